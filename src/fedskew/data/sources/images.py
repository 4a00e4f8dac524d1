"""What image sets share: options, and how published ones are found, read and checked; digits."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np

from fedskew.data.arrays import ClassOptions, Dataset, build, channel_statistics
from fedskew.data.sources import cache, parquet, pictures
from fedskew.data.sources.files import BothSplits, absent, md5_of, places, reading, verify
from fedskew.errors import DataError, claim, require
from fedskew.fields import AtLeast, AtMost, demand

Normalize = Literal["protocol", "channel", "half", "none"]
Constants = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True)
class ImageOptions(ClassOptions):
    """Options of every image set."""

    name: ClassVar[str]
    protocol: ClassVar[Constants] = ((), ())  # mean and std of the seed papers' code
    augmentations: ClassVar[tuple[str, ...]] = ("crop", "flip")

    augment: bool | None = None
    """random crop (4 pixels of padding), and horizontal flip if it keeps the class; unset: off"""
    crop_padding: Literal["zeros", "reflect"] = "zeros"
    """padding of the crop: zeros, or the image reflected at its border pixels"""
    normalize: Normalize = "protocol"
    """protocol: constants of the papers; channel: mean and deviation of the training pixels; half: 0.5; none"""
    pad: Annotated[int, AtLeast(0), AtMost(256)] = 0
    """pixels of zero border on each side; 2 makes 28x28 images 32x32"""

    def padded(self, x: Any) -> Any:
        """Add the border of `pad` pixels to images [n, channels, H, W]. Raises ConfigError for features."""
        if not self.pad or x is None:
            return x
        demand(self, "pad", np.ndim(x) == 4, "be 0 for data other than images", "use 0")
        return np.pad(np.asarray(x), [(0, 0), (0, 0), (self.pad, self.pad), (self.pad, self.pad)])

    def finish(self, data: Dataset) -> Dataset:
        """Keep the classes asked for, and add normalisation and augmentation.

        Args:
            data: The decoded dataset.

        Returns:
            The dataset with `mean`, `std` and `augment`.

        Raises:
            ConfigError: An option is for images and the data are features.
        """
        data = self.of_classes(data)
        images = data.x.dim() == 4
        rule, hint = "be unset for data that are no images", f"{data.name!r} has {data.x.dtype} {[*data.x.shape[1:]]}"
        for field, asked in (("augment", bool(self.augment)), ("normalize", self.normalize in ("channel", "half"))):
            if asked and not images:
                demand(self, field, False, rule, hint)
        demand(self, "crop_padding", self.crop_padding == "zeros" or bool(self.augment), "be zeros without augment")
        half = (0.5,) * data.x.shape[1]
        constants: dict[str, Constants] = {"protocol": self.protocol, "half": (half, half), "none": ((), ())}
        mean, std = constants.get(self.normalize) or channel_statistics(data.x)
        crop = {"zeros": "crop", "reflect": "crop_reflect"}[self.crop_padding]
        kinds = tuple(crop if kind == "crop" else kind for kind in self.augmentations)
        return replace(data, mean=mean, std=std, augment=kinds if self.augment else ())


@dataclass(frozen=True)
class Digits(ImageOptions):
    """The 1 797 handwritten digits of 8x8 pixels that come with scikit-learn (UCI, test part); no file is needed.

    Values 0..16 are stored times 15, which is exact in uint8; divided by 255 the grey is value / 17. The test set is a
    stratified 20 %, always the same.

    Example:
        >>> from fedskew.data import load
        >>> digits = load("digits")
        >>> digits.shape, len(digits.x), len(digits.x_test)
        ((1, 8, 8), 1438, 359)

    References:
        Alpaydin and Kaynak 1998, Optical Recognition of Handwritten Digits (UCI). https://doi.org/10.24432/C50P49
    """

    name: ClassVar[str] = "digits"
    reference: ClassVar[str] = "alpaydin1998"
    augmentations: ClassVar[tuple[str, ...]] = ("crop",)

    def load(self, path: str | None = None) -> Dataset:
        """Load the embedded images, uint8 [n, 1, 8, 8].

        Args:
            path: Must be None.

        Returns:
            The dataset.

        Raises:
            ConfigError: A path is given, or an option breaks a rule.
            DataError: scikit-learn's file is absent or altered.
        """
        require(path is None, "path", "be unset for 'digits', which needs no file", path)
        pixels, y = digits()
        x = (pixels * np.uint8(15))[:, None]
        return self.finish(build(self.name, self.padded(x), y, classes=10, source="scikit-learn"))


class Decoded(NamedTuple):
    """A published set after reading."""

    x: np.ndarray  # [n, channels, H, W] uint8
    y: list[np.ndarray]  # [n] for each label column
    x_test: np.ndarray
    y_test: list[np.ndarray]
    names: tuple[str, ...] = ()  # of the classes, where the files hold them


Formats = list[tuple[tuple[Path, ...], Callable[[tuple[Path, ...]], Decoded]]]


@dataclass(frozen=True)
class Published(ImageOptions):
    """An image set with known content. Local files come first, then the cache, then the hub."""

    repo: ClassVar[str] = ""  # id on the hub; empty: not there
    config: ClassVar[str | None] = None  # configuration of the repo, where it has several
    test_split: ClassVar[str] = "test"  # in the repo and in parquet files
    mode: ClassVar[pictures.ImageMode | None] = None  # of encoded images; None: that of the first
    folders: ClassVar[tuple[str, ...]]  # below the root
    x_column: ClassVar[str] = "image"  # in parquet
    y_columns: ClassVar[tuple[str, ...]] = ("label",)
    known: ClassVar[BothSplits]  # training, test
    names: ClassVar[tuple[str, ...]] = tuple(map(str, range(10)))  # empty: those of the files

    verify: bool = True
    """check that local files hold the published rows; false for your own files in the same format"""

    def load(self, path: str | None = None) -> Dataset:
        """Load the dataset.

        Args:
            path: File or folder; None searches $FEDSKEW_DATA, then the cache, then the hub.

        Returns:
            The dataset.

        Raises:
            ConfigError: An option breaks a rule.
            DataError: The data are nowhere, or a file is truncated or altered.
        """
        for place in places(path, self.folders):
            for files, read in self.formats(place):
                if files:
                    return self.finish(cache.cached(self._key(files), partial(self._decoded, files, read)))
        if path is not None:
            raise absent(self.name, path)
        return self.finish(cache.cached(self._key(()), self._downloaded))

    def target(self) -> tuple[int, tuple[str, ...]]:
        """Number of the label column to predict, and the names of its classes."""
        return 0, self.names

    def columns(self, y: list[np.ndarray]) -> dict[str, np.ndarray]:
        """Columns for natural clients, from the label columns of the training rows."""
        return {}

    def formats(self, place: Path) -> Formats:
        """Files of each known format at a place, with the function that reads them."""
        train, test = (parquet.parquet_files(place, split) for split in ("train", self.test_split))
        lacking = self.test_split if train else "train"
        claim(bool(train) == bool(test), place, f"have {lacking}-*.parquet beside other files of {self.name!r}")
        return [(train + test, self._read_parquet)]

    def _downloaded(self) -> Dataset:
        if not self.repo:
            raise absent(self.name, None)
        try:
            columns = (self.x_column, *self.y_columns)
            train, test, names = parquet.hub_tables(self.repo, self.config, test=self.test_split, columns=columns)
        except DataError as error:
            raise absent(self.name, None, f"; {error}") from None
        decoded = self._from_tables(train, test)._replace(names=names.get(self.y_columns[self.target()[0]], ()))
        return self._build(decoded, f"hub {self.repo}", [])

    def _key(self, files: Sequence[Path]) -> str:
        options = {"pad": self.pad, "verify": self.verify, "target": self.target()[0]}
        return cache.key_of(self.name, options, files)

    def _decoded(self, files: tuple[Path, ...], read: Callable[[tuple[Path, ...]], Decoded]) -> Dataset:
        decoded = read(files)
        unverified = ["the content was not compared with the published data"]
        notes = self._verify(decoded, files) if self.verify else unverified
        return self._build(decoded, f"files in {files[0].parent}", notes)

    def _verify(self, d: Decoded, files: Sequence[Path]) -> list[str]:
        train = verify("training", d.x, d.y[0], self.known[0], files)
        return train + verify("test", d.x_test, d.y_test[0], self.known[1], files)

    def _build(self, d: Decoded, source: str, notes: Sequence[str]) -> Dataset:
        at, names = self.target()
        return build(
            self.name, self.padded(d.x), d.y[at], self.padded(d.x_test), d.y_test[at],
            label_names=names or d.names, columns=self.columns(d.y), source=source, notes=notes, channels="first",
        )  # fmt: skip

    def _read_parquet(self, files: tuple[Path, ...]) -> Decoded:
        splits = [[f for f in files if f.name.startswith(split)] for split in ("train", self.test_split)]
        return self._from_tables(*map(parquet.read_table, splits))

    def _from_tables(self, train: Any, test: Any) -> Decoded:
        x, x_test = (parquet.read_column(t, self.x_column, mode=self.mode) for t in (train, test))
        y, y_test = ([parquet.read_column(t, c) for c in self.y_columns] for t in (train, test))
        return Decoded(x, y, x_test, y_test, parquet.schema_names(train, self.y_columns[self.target()[0]]))


DIGITS_FILE = ("datasets", "data", "digits.csv.gz")  # in the folder of the package
DIGITS_MD5 = "265453a2439934797bb770ce205b6fad"  # of the rows as uint8: 64 pixels and the label


def digits() -> tuple[np.ndarray, np.ndarray]:
    """All rows in their order: pixels from 0 to 16, uint8 [1797, 8, 8], and labels, int64 [1797].

    Raises:
        DataError: scikit-learn is absent, or its rows are not the published ones.
    """
    package = find_spec("sklearn")  # which looks for the package and does not import it
    if package is None or package.origin is None:
        raise DataError("dataset 'digits' needs scikit-learn, which is not installed")
    file = Path(package.origin).parent.joinpath(*DIGITS_FILE)
    fault = "must hold the published rows of dataset 'digits'; reinstall scikit-learn"
    with reading(file, fault), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an empty file, and of a NaN as uint8
        table = np.loadtxt(file, delimiter=",")
        rows = np.ascontiguousarray(table.astype(np.uint8))
        if md5_of(rows) != DIGITS_MD5 or not (rows == table).all():
            raise ValueError("it holds other rows")
    return rows[:, :64].reshape(-1, 8, 8), rows[:, 64].astype(np.int64)
