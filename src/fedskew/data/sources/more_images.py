"""More published image sets: SVHN, EMNIST-balanced, Tiny-ImageNet, and 47 labels joined from four sets.

This package knows no checksum of their rows. ``verify`` compares the number of rows of each class.
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
from fedskew.data.sources.cifar import Cifar10, Cifar100
from fedskew.data.sources.files import Known, reading, together
from fedskew.data.sources.images import Constants, Decoded, FashionMnist, Formats, ImageOptions, Mnist, Published
from fedskew.errors import DataError, some, text_of


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
    x_column: ClassVar[str] = "image"
    y_columns: ClassVar[tuple[str, ...]] = ("label",)
    names: ClassVar[tuple[str, ...]] = tuple(map(str, range(10)))
    known: ClassVar[tuple[Known, Known]] = (
        Known(73257, counts=(4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659)),
        Known(26032, counts=(1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595)),
    )

    def formats(self, place: Path) -> Formats:
        """MATLAB files before parquet files."""
        return [(together(place, (("train_32x32.mat",), ("test_32x32.mat",))), _read_mats), *super().formats(place)]


def _read_mats(files: tuple[Path, ...]) -> Decoded:
    """SVHN's arrays: X [32, 32, 3, n], and y [n, 1] from 1 to 10."""
    parts = []
    for file in files:
        x, y = readers.read_mat(file, ("X", "y"))
        if x.ndim != 4 or x.shape[:3] != (32, 32, 3) or y.shape != (x.shape[3], 1):
            raise DataError(f"{file} must hold X [32, 32, 3, n] and y [n, 1]; got {x.shape} and {y.shape}")
        y = y[:, 0]
        if not 1 <= y.min() <= y.max() <= 10:
            raise DataError(f"{file} must have labels 1..10, 10 for the digit 0; got {y.min()}..{y.max()}")
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
    known: ClassVar[tuple[Known, Known]] = (Known(112800, counts=(2400,) * 47), Known(18800, counts=(400,) * 47))

    def _read_idx(self, files: tuple[Path, ...]) -> Decoded:
        stored = super()._read_idx(files)
        return stored._replace(x=stored.x.swapaxes(2, 3), x_test=stored.x_test.swapaxes(2, 3))


@dataclass(frozen=True)
class TinyImageNet(Published):
    """Tiny-ImageNet: 100 000 training and 10 000 test colour images, 64x64, 200 classes.

    The official validation set is the test set, because the test set has no public labels. Grey images get three equal
    channels. Nothing is normalised, as in FedGA's protocol. Files are the official folder with its wnids.txt, in whose
    order the classes are numbered, or parquet files as on the hub; ``label_names`` shows the order.

    References:
        Stanford CS231n, Tiny ImageNet Challenge. http://cs231n.stanford.edu/
    """

    name: ClassVar[str] = "tiny_imagenet"
    reference: ClassVar[str] = "le2015"
    repo: ClassVar[str] = "zh-plus/tiny-imagenet"
    test_split: ClassVar[str] = "valid"
    mode: ClassVar[pictures.ImageMode | None] = "RGB"
    folders: ClassVar[tuple[str, ...]] = ("tiny-imagenet-200", "tiny-imagenet", "tiny_imagenet")
    x_column: ClassVar[str] = "image"
    y_columns: ClassVar[tuple[str, ...]] = ("label",)
    names: ClassVar[tuple[str, ...]] = ()  # those of the files
    known: ClassVar[tuple[Known, Known]] = (Known(100000, counts=(500,) * 200), Known(10000, counts=(50,) * 200))

    def formats(self, place: Path) -> Formats:
        """The official folder before parquet files: its lists, then all images, which enter the cache's key."""
        lists = together(place, (("wnids.txt",), ("val/val_annotations.txt",)))
        images = [*place.glob("train/*/images/*.JPEG"), *place.glob("val/images/*.JPEG")] if lists else []
        images.sort(key=lambda image: (len(image.name), image.name))  # in the order of their numbers
        return [((*lists, *images), self._read_folder), *super().formats(place)]

    def _read_folder(self, files: tuple[Path, ...]) -> Decoded:
        root, names = files[0].parent, tuple(_lines(files[0]))
        held = {file.name: file for file in files[2:] if file.parent.parent == root / "val"}
        train = [(file, file.parent.parent.name) for file in files[2:] if file.parent.parent != root / "val"]
        test = [(held.pop(image, None), of) for image, of, *_ in (f"{line}\t".split("\t") for line in _lines(files[1]))]
        if held or any(file is None for file, _ in test):
            raise DataError(f"{files[1]} must name each image of val/images once, and no other")
        for what, found in (("train", {of for _, of in train}), (files[1].name, {of for _, of in test} | {*names})):
            if odd := sorted(found ^ {*names}):
                rule = "have images of the classes of wnids.txt, each"
                raise DataError(f"{root} must {rule}; {what} differs: {some(odd)}")
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
    with reading(file, "is not a text in UTF-8"):
        return [line.strip() for line in text_of(file).splitlines() if line.strip()]


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
