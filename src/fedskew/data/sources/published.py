"""Published image sets: MNIST and its kin, CIFAR, SVHN, Tiny-ImageNet, and 47 labels joined from four of them.

They are read from parquet files as on the hub, MNIST and its kin from the official idx files, too. Of SVHN, EMNIST and
Tiny-ImageNet this package knows no checksum of the rows. `verify` compares the number of rows of each class.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedskew.data.arrays import Dataset, build
from fedskew.data.sources import pictures
from fedskew.data.sources.files import Known, altered
from fedskew.data.sources.images import Constants, Decoded, ImageOptions, Published
from fedskew.errors import claim, some

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
    idx: ClassVar[Sequence[Sequence[str]]] = IDX_FILES
    repo: ClassVar[str] = "ylecun/mnist"
    folders: ClassVar[tuple[str, ...]] = ("mnist", "MNIST/raw", "MNIST")
    known: ClassVar[tuple[Known, Known]] = (
        Known(60000, "365dab9bac26085dc69f1022fe166e2f"),
        Known(10000, "a9c5e64a683c5dd2f6a9bf7c61b53e6f"),
    )


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
    known: ClassVar[tuple[Known, Known]] = (
        Known(60000, "819d6ae9214abbc30bd601cb4ad304c0"),
        Known(10000, "2bdc83e1b78e813df8547ccd14b70d8f"),
    )


CIFAR_CONSTANTS = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))  # CIFAR-10's, used for both by the papers' code
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

    20 test images of the hub's copy are decoded JPEGs (at most 0.2 points of accuracy).

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
    known: ClassVar[tuple[Known, Known]] = (
        Known(50000, "a9cd0507218afb3020015e860ff15ba5"),
        Known(10000, "a2a769fcabc62e8317a9d94de9e06180"),
    )


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
    known: ClassVar[tuple[Known, Known]] = (
        Known(50000, "5c7680383d9d266e2dd95435eea5ae97"),
        Known(10000, "359513b401e41dbb9c2c819294e5564b"),
    )

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

    The 531 131 extra images are not used. FedGA's protocol has no normalisation.

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
    known: ClassVar[tuple[Known, Known]] = (
        Known(73257, counts=(4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659)),
        Known(26032, counts=(1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595)),
    )


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
    known: ClassVar[tuple[Known, Known]] = (Known(112800, counts=(2400,) * 47), Known(18800, counts=(400,) * 47))

    def _read_idx(self, files: tuple[Path, ...]) -> Decoded:
        stored = super()._read_idx(files)
        return stored._replace(x=stored.x.swapaxes(2, 3), x_test=stored.x_test.swapaxes(2, 3))


@dataclass(frozen=True)
class TinyImageNet(Published):
    """Tiny-ImageNet: 100 000 training and 10 000 test colour images, 64x64, 200 classes.

    The official validation set is the test set, because the test set has no public labels. Grey images get three equal
    channels. Nothing is normalised, as in FedGA's protocol.

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
    known: ClassVar[tuple[Known, Known]] = (Known(100000, counts=(500,) * 200), Known(10000, counts=(50,) * 200))


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
