"""Your own npz files: arrays of one file, of one file a client, or of MedMNIST."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedskew.data.arrays import Dataset, Reading, build
from fedskew.data.inputs import Inputs, Rows
from fedskew.data.sources import readers
from fedskew.data.sources.columns import owner_columns
from fedskew.data.sources.files import given_file, reading, splits_of
from fedskew.data.sources.images import ImageOptions
from fedskew.data.values import Channels, samples_of
from fedskew.errors import DataError, claim, regular, some
from fedskew.fields import Listed

WHOLE: tuple[str, ...] = ("x", "y")
PARTED: tuple[str, ...] = ("x_train", "y_train", "x_test", "y_test")
MEDMNIST = {
    "train_images": "x_train", "train_labels": "y_train", "test_images": "x_test", "test_labels": "y_test",
    "val_images": "x_val", "val_labels": "y_val",
}  # fmt: skip


@dataclass(frozen=True)
class Npz(ImageOptions):
    """Arrays x and y of an npz file, or x_train and y_train; without x_test and y_test 20 % become the test set.

    uint8 arrays with 3 or 4 axes are images; everything else is features. Labels are numbers 0..C-1 or strings, [n] or
    [n, 1]. Arrays of objects raise an error. MedMNIST's names, train_images, train_labels and so on, are known as well.

    In a folder each npz file is a client, named as the file without its ending. A folder of x_train.npy, y_train.npy,
    x_test.npy and y_test.npy holds one array each; uint8 images with channels first and float32 features stay in their
    files, which may be larger than the memory.
    """

    name: ClassVar[str] = "npz"

    columns: Listed | None = None
    """arrays with one value per training row, comma-separated, for natural clients; unset: client, if present"""
    channels: Channels = "auto"
    """axis of images that has the channels; auto: the one of 1 to 4, of two such axes that which makes images square"""

    def load(self, path: str | None = None) -> Dataset:
        """Load the file or folder.

        Args:
            path: The npz file, or a folder with one for each client.

        Returns:
            The dataset.

        Raises:
            ConfigError: No path is given, or an option breaks a rule.
            DataError: The file is absent or damaged, or lacks an array.

        Example:
            >>> import numpy as np
            >>> from fedskew.data import load
            >>> np.savez("mine.npz", x=np.random.default_rng(0).normal(size=(20, 3)), y=np.arange(20) % 2)
            >>> load("npz", "mine.npz").shape
            (3,)
        """
        file, arrays = self.arrays(path)
        names = PARTED[:2] if "x_train" in arrays else WHOLE
        names += PARTED[2:] if {*PARTED[2:]} & {*arrays} else ()
        _insist_on_arrays(file, arrays, names, "x_train and y_train, or x and y, perhaps with x_test and y_test")
        columns = {name: arrays[name] for name in owner_columns(self, list(arrays), file.name)}
        unread = [name for name in arrays if name not in (*names, *columns)]
        notes = [f"arrays left out: {some(unread)}"] if unread else []
        parts = [self.padded(arrays[name]) if name.startswith("x") else arrays[name] for name in names]
        made = build(
            file.stem, *parts, columns=columns, source=f"file {file}", notes=notes,
            reading=Reading(tuple((name, len(arrays[name])) for name in names[::2])),
            channels="first" if self.pad else self.channels,
        )  # fmt: skip
        return self.finish(made)

    def rows(self, path: str | None, inputs: Inputs) -> Rows:
        """x_test and y_test of the arrays, else x and, where it is there, y."""
        file, arrays = self.arrays(path)
        x, y = ("x_test", "y_test") if "x_test" in arrays else ("x", "y")
        _insist_on_arrays(file, arrays, [x], "x, or x_test")
        return Rows(str(file), self.padded(arrays[x]), arrays.get(y), y, range(len(arrays[x])))

    def padded(self, x: Any) -> Any:
        """As for every image set, with channels first."""
        return super().padded(samples_of(x, "x", self.channels).numpy()) if self.pad else x

    def arrays(self, path: str | None) -> tuple[Path, dict[str, np.ndarray]]:
        """(the path, its arrays by name). Raises ConfigError and DataError."""
        place = given_file(self.name, path)
        if (place / "x_train.npy").is_file():
            return place, {file.stem: _array(file) for file in sorted(place.glob("*.npy"))}
        groups, clients = splits_of(place, ".npz")
        parts = [_merged(files, clients) for files in groups]
        if len(parts) == 1:
            return place, parts[0]
        for part, files in zip(parts, groups, strict=True):
            _insist_on_arrays(files[0], part, WHOLE, "x and y, as its name or folder says which set it is")
        train, test = parts
        whole = {n: v for n, v in train.items() if n not in WHOLE}
        return place, whole | dict(zip(PARTED, (train["x"], train["y"], test["x"], test["y"]), strict=True))


def _insist_on_arrays(file: Path, arrays: Mapping[str, Any], names: Iterable[str], rule: str) -> None:
    """Raise DataError, with the `rule`, for an array that is not there."""
    lacking = [name for name in names if name not in arrays]
    claim(not lacking, file, f"hold {rule}", f"{', '.join(arrays) or 'no arrays'}, without {', '.join(lacking)}")


def _array(file: Path) -> np.ndarray:
    """The array of an npy file: samples mapped into memory, others read."""
    with reading(file, "is not a whole npy file of plain numbers or words"):
        array = np.load(regular(file), mmap_mode="c", allow_pickle=False)
        return array if file.stem.startswith("x_") else np.array(array)


def _merged(files: Sequence[Path], clients: bool) -> dict[str, np.ndarray]:
    """The arrays of files, one below the other; of clients with the name of each training row's file."""
    parts = [readers.read_npz(file) for file in files]
    for i, arrays in enumerate(parts):
        if "train_images" in arrays and "x_train" not in arrays:
            parts[i] = {MEDMNIST.get(name, name): value for name, value in arrays.items()}
    if not clients:
        return parts[0]
    names = list(parts[0])
    rows = "y_train" if "x_train" in names else "y"
    for file, arrays in zip(files, parts, strict=True):
        needed = dict.fromkeys((*names, "x_train" if "x_train" in names else "x", rows))
        _insist_on_arrays(file, arrays, needed, "the arrays of the other clients' files")
    made = {name: _joined(name, [arrays[name] for arrays in parts], files) for name in names}
    owners = np.repeat(np.array([file.stem for file in files]), [len(arrays[rows]) for arrays in parts])
    return {"client": owners, **made}


def _joined(name: str, parts: Sequence[np.ndarray], files: Sequence[Path]) -> np.ndarray:
    """Arrays one below the other. Raises DataError where their rows have other shapes."""
    for part, file in zip(parts, files, strict=True):
        if part.ndim == 0 or part.shape[1:] != parts[0].shape[1:] or part.dtype.kind != parts[0].dtype.kind:
            first, got = (f"{a.dtype} {a.shape}" for a in (parts[0], part))
            raise DataError(f"{file}: {name!r} must be as in {files[0].name}, {first}; got {got}")
    return np.concatenate(list(parts))
