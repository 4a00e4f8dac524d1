"""Published image sets: MNIST and its kin, CIFAR, SVHN, Tiny-ImageNet, and 47 labels joined from four of them.

Of SVHN, EMNIST and Tiny-ImageNet this package knows no checksum of the rows. `verify` compares the number of rows of
each class.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedskew.data.arrays import Dataset, build
from fedskew.data.sources import pictures, readers
from fedskew.data.sources.files import BothSplits, SplitFacts, altered, md5_of, reading, together
from fedskew.data.sources.images import Constants, Decoded, Formats, ImageOptions, Published
from fedskew.errors import claim, content_of, some

IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
IDX_FILES = [(f"{n}.gz", n, f"{n.replace('-idx', '.idx')}.gz", n.replace("-idx", ".idx")) for n in IDX]


@dataclass(frozen=True)
class Mnist(Published):
    """MNIST: 60 000 training and 10 000 test images of handwritten digits, 28x28, 10 classes.

    References:
        LeCun et al. 1998, Gradient-Based Learning Applied to Document Recognition (Proceedings of the IEEE).
        https://doi.org/10.1109/5.726791
    """

    name: ClassVar[str] = "mnist"
    reference: ClassVar[str] = "lecun1998"
    protocol: ClassVar[Constants] = ((0.1307,), (0.3081,))
    augmentations: ClassVar[tuple[str, ...]] = ("crop",)
    idx: ClassVar[Sequence[Sequence[str]]] = IDX_FILES  # names of each official file
    repo: ClassVar[str] = "ylecun/mnist"
    folders: ClassVar[tuple[str, ...]] = ("mnist", "MNIST/raw", "MNIST")
    known: ClassVar[BothSplits] = (
        SplitFacts(60000, "f6df1131ebd1f670df947aa6d12ecd18", "e86ee40d66677c011a9abda399ec8c4d"),
        SplitFacts(10000, "c96757a4180a626e1737cfdf4690742f", "073c3904dfbd3e141ff8aa01cfde6b15"),
    )

    def formats(self, place: Path) -> Formats:
        """idx files, gzipped or not, before parquet files."""
        return [(together(place, self.idx), self._read_idx), *super().formats(place)]

    def _read_idx(self, files: tuple[Path, ...]) -> Decoded:
        arrays = [readers.read_idx(file) for file in files]
        for i in (0, 2):
            fine = arrays[i].ndim == 3 and arrays[i + 1].shape == arrays[i].shape[:1]
            shapes = f"{arrays[i].shape} and {arrays[i + 1].shape}"
            claim(fine, f"{files[i]} and {files[i + 1].name}", "hold images and their labels", shapes)
        x, y, x_test, y_test = arrays
        return Decoded(x[:, None], [y], x_test[:, None], [y_test])


FASHION_MNIST = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip


@dataclass(frozen=True)
class FashionMnist(Mnist):
    """Fashion-MNIST (MIT licence): 60 000 training and 10 000 test images of clothes, 28x28, 10 classes.

    References:
        Xiao, Rasul and Vollgraf 2017, Fashion-MNIST: a Novel Image Dataset. https://arxiv.org/abs/1708.07747
    """

    name: ClassVar[str] = "fashion_mnist"
    reference: ClassVar[str] = "xiao2017"
    protocol: ClassVar[Constants] = ((0.5,), (0.5,))
    augmentations: ClassVar[tuple[str, ...]] = ("crop", "flip")
    repo: ClassVar[str] = "zalando-datasets/fashion_mnist"
    folders: ClassVar[tuple[str, ...]] = ("fashion-mnist", "fashion_mnist", "FashionMNIST/raw", "FashionMNIST")
    names: ClassVar[tuple[str, ...]] = FASHION_MNIST
    known: ClassVar[BothSplits] = (
        SplitFacts(60000, "4115895a719d060966a54c7f2e69e159", "3236f6424fc25388b2834cb19942cf7e"),
        SplitFacts(10000, "4e6f7641d5ba513061f4658044048c5c", "8dea97a4e78c1bd1b5a6e8efbb870b6e"),
    )


CIFAR_CONSTANTS = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))  # CIFAR-10's, used for both by the papers' code
DECODED_JPEGS = (
    1259, 1369, 1422, 2245, 2737, 2935, 3695, 3718, 4085, 4496,
    5791, 5896, 6286, 7580, 7707, 7724, 7832, 8117, 8551, 9254,
)  # fmt: skip
PIXELS = 3 * 32 * 32
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR100 = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl", "boy",
    "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair", "chimpanzee", "clock",
    "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish",
    "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion",
    "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain", "mouse", "mushroom", "oak_tree", "orange",
    "orchid", "otter", "palm_tree", "pear", "pickup_truck", "pine_tree", "plain", "plate", "poppy", "porcupine",
    "possum", "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk",
    "skyscraper", "snail", "snake", "spider", "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank",
    "telephone", "television", "tiger", "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale",
    "willow_tree", "wolf", "woman", "worm",
)  # fmt: skip
CIFAR100_COARSE = (
    "aquatic_mammals", "fish", "flowers", "food_containers", "fruit_and_vegetables", "household_electrical_devices",
    "household_furniture", "insects", "large_carnivores", "large_man-made_outdoor_things",
    "large_natural_outdoor_scenes", "large_omnivores_and_herbivores", "medium_mammals", "non-insect_invertebrates",
    "people", "reptiles", "small_mammals", "trees", "vehicles_1", "vehicles_2",
)  # fmt: skip


@dataclass(frozen=True)
class Cifar10(Published):
    """CIFAR-10: 50 000 training and 10 000 test colour images, 32x32, 10 classes.

    Local files are parquet files as on the hub, or the official binary version.

    References:
        Krizhevsky 2009, Learning Multiple Layers of Features from Tiny Images.
        https://www.cs.toronto.edu/~kriz/cifar.html
    """

    name: ClassVar[str] = "cifar10"
    reference: ClassVar[str] = "krizhevsky2009"
    protocol: ClassVar[Constants] = CIFAR_CONSTANTS
    repo: ClassVar[str] = "uoft-cs/cifar10"
    folders: ClassVar[tuple[str, ...]] = ("cifar10", "cifar-10")
    x_column: ClassVar[str] = "img"
    names: ClassVar[tuple[str, ...]] = CIFAR10
    known: ClassVar[BothSplits] = (
        SplitFacts(50000, "608b58aed9d6cb6699103559008cda70", "69c5f3349be54915edfca558b72ad888"),
        SplitFacts(10000, "87c9a27c33052a498ff7c4ff162a9c36", "251f18ce75337ae9ca5d0dbd7ea62cf4", DECODED_JPEGS),
    )
    decoded_jpegs: ClassVar[str] = "732c957094f5781f9b27bb8dce0f0458"  # md5 of the 20 images in the copy that has them
    batches: ClassVar[tuple[str, ...]] = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
    unpacked: ClassVar[str] = "cifar-10-batches-bin"  # folder of the official binary version

    def formats(self, place: Path) -> Formats:
        """The official binary version, then parquet files."""
        batches = [(name,) for name in self.batches]
        files = together(place, batches) or together(place / self.unpacked, batches)
        return [(files, self._read), *super().formats(place)]

    def _read(self, files: tuple[Path, ...]) -> Decoded:
        """Records of the labels, the coarse one first, and an image."""
        width, parts = len(self.y_columns), list[np.ndarray]()
        for file in files:
            with reading(file, "cannot be read"):
                raw = np.frombuffer(content_of(file), np.uint8)
            whole = len(raw) and len(raw) % (width + PIXELS) == 0
            claim(whole, file, f"hold whole records of {width + PIXELS} bytes", f"{len(raw)} bytes")
            parts.append(raw.reshape(-1, width + PIXELS))
        splits = np.concatenate(parts[:-1]), parts[-1]
        (x, y), (x_test, y_test) = (
            (rows[:, width:].reshape(-1, 3, 32, 32), [rows[:, i].astype(np.int64) for i in reversed(range(width))])
            for rows in splits
        )
        return Decoded(x, y, x_test, y_test)

    def _verify(self, d: Decoded, files: Sequence[Path]) -> list[str]:
        notes = super()._verify(d, files)
        if self.decoded_jpegs and md5_of(np.ascontiguousarray(d.x_test[list(DECODED_JPEGS)])) == self.decoded_jpegs:
            rows = " ".join(map(str, DECODED_JPEGS))
            notes.append(f"20 test images are decoded JPEGs, not exact (at most 0.2 points of accuracy): {rows}")
        return notes


@dataclass(frozen=True)
class Cifar100(Cifar10):
    """CIFAR-100: 50 000 training and 10 000 test colour images, 32x32, 100 classes in 20 superclasses.

    The column `coarse_label` holds the superclasses, for the partition "natural".

    References:
        Krizhevsky 2009, Learning Multiple Layers of Features from Tiny Images.
        https://www.cs.toronto.edu/~kriz/cifar.html
    """

    name: ClassVar[str] = "cifar100"
    repo: ClassVar[str] = "uoft-cs/cifar100"
    folders: ClassVar[tuple[str, ...]] = ("cifar100", "cifar-100")
    y_columns: ClassVar[tuple[str, ...]] = ("fine_label", "coarse_label")
    names: ClassVar[tuple[str, ...]] = CIFAR100
    known: ClassVar[BothSplits] = (
        SplitFacts(50000, "f9c530e1a417feb91bd4e4edc8910a7a", "00c0899b82d482aefa46cdb301dbaf9c"),
        SplitFacts(10000, "887656c7c745158fb8b3f227c1d6536d", "1ddeb59844e0066662ddddaec17677b9", proven=False),
    )
    decoded_jpegs: ClassVar[str] = ""
    batches: ClassVar[tuple[str, ...]] = ("train.bin", "test.bin")
    unpacked: ClassVar[str] = "cifar-100-binary"

    coarse: bool = False
    """predict the 20 superclasses in place of the 100 classes"""

    def target(self) -> tuple[int, tuple[str, ...]]:
        """Fine labels, or coarse ones."""
        return (1, CIFAR100_COARSE) if self.coarse else (0, self.names)

    def _verify(self, d: Decoded, files: Sequence[Path]) -> list[str]:
        """The digest covers images and fine labels; a fine class lies in one superclass, which covers the others."""
        notes = super()._verify(d, files)
        fine, coarse = (np.concatenate([d.y[i], d.y_test[i]]).astype(np.int64) for i in (0, 1))
        if len(np.unique(np.stack([fine, coarse]), axis=1).T) != len(np.unique(fine)):
            raise altered(files, "the coarse labels were altered: a class has two superclasses")
        return notes

    def columns(self, y: list[np.ndarray]) -> dict[str, np.ndarray]:
        """The superclass of each row, by name. Raises DataError for labels beyond 0..19."""
        claim(np.isin(y[1], range(20)).all(), "coarse labels", "be 0..19", some([*map(str, np.unique(y[1]).tolist())]))
        return {"coarse_label": np.array(CIFAR100_COARSE)[y[1]]}


@dataclass(frozen=True)
class Svhn(Published):
    """SVHN, cropped digits: 73 257 training and 26 032 test colour images, 32x32, 10 classes.

    Files are train_32x32.mat and test_32x32.mat as published, which label the digit 0 as 10, or parquet files as on the
    hub. The 531 131 extra images are not used. FedGA's protocol has no normalisation.

    References:
        Netzer et al. 2011, Reading Digits in Natural Images with Unsupervised Feature Learning.
        http://ufldl.stanford.edu/housenumbers/
    """

    name: ClassVar[str] = "svhn"
    reference: ClassVar[str] = "netzer2011"
    augmentations: ClassVar[tuple[str, ...]] = ("crop",)
    repo: ClassVar[str] = "ufldl-stanford/svhn"
    config: ClassVar[str | None] = "cropped_digits"
    folders: ClassVar[tuple[str, ...]] = ("svhn", "svhn/cropped_digits", "SVHN", "cropped_digits")
    known: ClassVar[BothSplits] = (
        SplitFacts(73257, counts=(4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659)),
        SplitFacts(26032, counts=(1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595)),
    )

    def formats(self, place: Path) -> Formats:
        """MATLAB files before parquet files."""
        return [(together(place, (("train_32x32.mat",), ("test_32x32.mat",))), _read_mats), *super().formats(place)]


def _read_mats(files: tuple[Path, ...]) -> Decoded:
    """SVHN's arrays: X [32, 32, 3, n], and y [n, 1] from 1 to 10."""
    parts = []
    for file in files:
        x, y = readers.read_mat(file, ("X", "y"))
        fine = x.shape == (32, 32, 3, y.size) and y.shape == (y.size, 1)
        claim(fine, file, "hold X [32, 32, 3, n] and y [n, 1]", f"{x.shape} and {y.shape}")
        y = y[:, 0]
        claim(np.isin(y, range(1, 11)).all(), file, "have labels 1..10, 10 for the digit 0", f"{y.min()}..{y.max()}")
        parts.append((np.ascontiguousarray(x.transpose(3, 2, 0, 1)), [np.where(y == 10, 0, y)]))
    return Decoded(*parts[0], *parts[1])


EMNIST = [f"emnist-balanced-{s}-{k}-ubyte" for s in ("train", "test") for k in ("images-idx3", "labels-idx1")]


@dataclass(frozen=True)
class Emnist(Mnist):
    """EMNIST-balanced: 112 800 training and 18 800 test images of digits and letters, 28x28, 47 classes.

    Letters whose upper and lower case look alike share a class. The official idx files store every image transposed;
    this is undone. Parquet files (columns image and label) are taken as they are. No copy on the hub is known, so local
    files are needed.

    References:
        Cohen et al. 2017, EMNIST: an Extension of MNIST to Handwritten Letters. https://arxiv.org/abs/1702.05373
    """

    name: ClassVar[str] = "emnist"
    reference: ClassVar[str] = "cohen2017"
    idx: ClassVar[Sequence[Sequence[str]]] = [(f"{name}.gz", name) for name in EMNIST]
    repo: ClassVar[str] = ""
    folders: ClassVar[tuple[str, ...]] = ("emnist", "emnist/gzip", "EMNIST/raw", "EMNIST", "gzip")
    names: ClassVar[tuple[str, ...]] = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabdefghnqrt")
    known: ClassVar[BothSplits] = (SplitFacts(112800, counts=(2400,) * 47), SplitFacts(18800, counts=(400,) * 47))

    def _read_idx(self, files: tuple[Path, ...]) -> Decoded:
        stored = super()._read_idx(files)
        return stored._replace(x=stored.x.swapaxes(2, 3), x_test=stored.x_test.swapaxes(2, 3))


@dataclass(frozen=True)
class TinyImageNet(Published):
    """Tiny-ImageNet: 100 000 training and 10 000 test colour images, 64x64, 200 classes.

    The official validation set is the test set, because the test set has no public labels. Grey images get three equal
    channels. Nothing is normalised, as in FedGA's protocol. Files are the official folder with its wnids.txt, in whose
    order the classes are numbered, or parquet files as on the hub; `label_names` shows the order.

    References:
        Stanford CS231n, Tiny ImageNet Challenge. http://cs231n.stanford.edu/
    """

    name: ClassVar[str] = "tiny_imagenet"
    reference: ClassVar[str] = "le2015"
    repo: ClassVar[str] = "zh-plus/tiny-imagenet"
    test_split: ClassVar[str] = "valid"
    mode: ClassVar[pictures.ImageMode | None] = "RGB"
    folders: ClassVar[tuple[str, ...]] = ("tiny-imagenet-200", "tiny-imagenet", "tiny_imagenet")
    names: ClassVar[tuple[str, ...]] = ()
    known: ClassVar[BothSplits] = (SplitFacts(100000, counts=(500,) * 200), SplitFacts(10000, counts=(50,) * 200))

    def formats(self, place: Path) -> Formats:
        """The official folder before parquet files: its lists, then all images, which enter the cache's key."""
        lists = together(place, (("wnids.txt",), ("val/val_annotations.txt",)))
        images = [*place.glob("train/*/images/[!.]*.JPEG"), *place.glob("val/images/[!.]*.JPEG")] if lists else []
        images.sort(key=lambda image: (len(image.name), image.name))  # in the order of their numbers
        return [((*lists, *images), self._read_folder), *super().formats(place)]

    def _read_folder(self, files: tuple[Path, ...]) -> Decoded:
        root, names = files[0].parent, tuple(dict.fromkeys(_lines(files[0])))
        held = {file.name: file for file in files[2:] if file.parent.parent == root / "val"}
        train = [(file, file.parent.parent.name) for file in files[2:] if file.parent.parent != root / "val"]
        test = [(held.pop(image, None), of) for image, of, *_ in (f"{line}\t".split("\t") for line in _lines(files[1]))]
        known = not held and all(file is not None for file, _ in test)
        claim(known, files[1], "name each image of val/images once, and no other")
        for what, ids in (("train", {of for _, of in train}), (files[1].name, {of for _, of in test} | {*names})):
            odd = some(sorted(ids ^ {*names}))
            claim(not odd, root, f"have images of the classes of wnids.txt, each; {what} differs: {odd}")
        codes = {name: code for code, name in enumerate(names)}
        train.sort(key=lambda row: codes[row[1]])
        x, x_test = (
            pictures.decode_images([Path(str(file)) for file, _ in rows], f"dataset {self.name!r}", self.mode)
            for rows in (train, test)
        )
        y, y_test = (np.array([codes[of] for _, of in rows]) for rows in (train, test))
        return Decoded(x, [y], x_test, [y_test], names)


def _lines(file: Path) -> list[str]:
    """The lines of a text that are not blank."""
    return [line.strip() for line in readers.text_in(file).splitlines() if line.strip()]


LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601
ROWS, TEST_ROWS = 2400, 400  # of a label, as in EMNIST-balanced
SIDE = 28


@dataclass(frozen=True)
class Labels47(ImageOptions):
    """47 labels of grey 28x28 images, 2400 training and 400 test rows each: a stand-in for EMNIST-balanced.

    Labels 0 to 9 are MNIST's, 10 to 19 Fashion-MNIST's, 20 to 29 CIFAR-10's, 30 to 46 the first 17 superclasses of
    CIFAR-100 (without trees and vehicles). Of each label the first rows are taken. Colours become grey by 0.299 R +
    0.587 G + 0.114 B, and 32x32 images lose 2 pixels on each side. So labels, rows a label and size of an image are
    EMNIST-balanced's, and accuracies are not.

    References:
        LeCun et al. 1998, Gradient-Based Learning Applied to Document Recognition (Proceedings of the IEEE).
        https://doi.org/10.1109/5.726791
        Xiao, Rasul and Vollgraf 2017, Fashion-MNIST: a Novel Image Dataset. https://arxiv.org/abs/1708.07747
        Krizhevsky 2009, Learning Multiple Layers of Features from Tiny Images.
        https://www.cs.toronto.edu/~kriz/cifar.html
    """

    name: ClassVar[str] = "labels47"
    reference: ClassVar[str] = "krizhevsky2009"
    protocol: ClassVar[Constants] = ((0.1307,), (0.3081,))
    augmentations: ClassVar[tuple[str, ...]] = ("crop",)

    verify: bool = True
    """check that local files hold the published rows; false for your own files in the same format"""

    def load(self, path: str | None = None) -> Dataset:
        """Load the four datasets and join them.

        Args:
            path: Folder that holds all four; None searches $FEDSKEW_DATA, then the cache, then the hub.

        Returns:
            The dataset.

        Raises:
            ConfigError: An option breaks a rule.
            DataError: One of the four is nowhere, or a file is truncated or altered.
        """
        made: list[Any] = [kind(verify=self.verify) for kind in (Mnist, FashionMnist, Cifar10)]
        loaded = [source.load(path) for source in (*made, Cifar100(verify=self.verify, coarse=True))]
        wanted = [(data, label) for data in loaded for label in range(data.classes)][:47]
        train = [_first(data.x, data.y, label, ROWS) for data, label in wanted]
        test = [_first(data.x_test, data.y_test, label, TEST_ROWS) for data, label in wanted]
        joined = build(
            self.name, self.padded(torch.cat(train).numpy()), _numbers(train),
            self.padded(torch.cat(test).numpy()), _numbers(test), classes=len(wanted),
            label_names=[f"{data.name} {data.class_names[label]}" for data, label in wanted],
            source="; ".join(data.source for data in loaded), notes=[n for data in loaded for n in data.notes],
        )  # fmt: skip
        return self.finish(joined)


def _first(x: Tensor, y: Tensor, label: int, most: int) -> Tensor:
    """The first images of a label, grey and of 28x28 pixels, uint8 [n, 1, 28, 28]."""
    rows = x[(y == label).nonzero().flatten()[:most]]
    if rows.shape[1] == 3:
        rows = torch.einsum("nchw,c->nhw", rows.double(), torch.tensor(LUMA, dtype=torch.float64))
        rows = rows.round().to(torch.uint8).unsqueeze(1)
    edge = (rows.shape[-1] - SIDE) // 2
    return rows[..., edge : edge + SIDE, edge : edge + SIDE]


def _numbers(images: list[Tensor]) -> Any:
    """The label of every row, its place in the list, int64 [n]."""
    return torch.arange(len(images)).repeat_interleave(torch.tensor([len(rows) for rows in images])).numpy()
