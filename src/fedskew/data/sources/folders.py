"""Folders of images: class/image, or client/class/image."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np

from fedskew.data.arrays import Dataset, build
from fedskew.data.sources import cache
from fedskew.data.sources.files import given_file
from fedskew.data.sources.images import ImageOptions
from fedskew.data.sources.readers import ImageMode, decode_images
from fedskew.errors import DataError, plural
from fedskew.fields import AtLeast, AtMost

VALIDATION = {"val", "valid", "validation"}
ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".pgm", ".ppm")
MODES: dict[str, ImageMode | None] = {"first": None, "grey": "L", "rgb": "RGB"}


class _Files(NamedTuple):
    """The images of a folder, in the order of their paths."""

    root: Path
    files: list[Path]
    classes: list[str]  # empty where there is no level of classes
    clients: list[str]  # empty where there is no level of clients


@dataclass(frozen=True)
class Images(ImageOptions):
    """A folder of PNG or JPEG images: class/image, or client/class/image, below train and test if present.

    The names of folders are the classes, and the natural clients. Classes are numbered in the order of their names, as
    numbers where all are numbers. Without a folder test a stratified 20 % of the images becomes the test set. A folder
    val beside train is left out.
    """

    name: ClassVar[str] = "images"

    size: Annotated[int, AtLeast(0), AtMost(4096)] = 0
    """pixels per side to which images are scaled (bilinear); 0: all images must have one size"""
    colours: Literal["first", "grey", "rgb"] = "first"
    """grey: one channel; rgb: three; first: as the first image"""

    def load(self, path: str | None = None) -> Dataset:
        """Load the folder.

        Args:
            path: The folder.

        Returns:
            The dataset, with the column ``client`` where the folders have that level.

        Raises:
            ConfigError: No path is given, or an option breaks a rule.
            DataError: Folders are of another form, an image is damaged or of another size, or the extra ``hub`` is
                missing.
        """
        place = given_file(self.name, path)
        splits = [image_files(folder) for folder in _folders(place)]
        files = [file for split in splits for file in split.files]
        options = {"size": self.size, "colours": self.colours, "pad": self.pad, "train": len(splits[0].files)}
        key = cache.key_of(self.name, options, files)
        return self.finish(cache.cached(key, lambda: self._decoded(place, splits)))

    def _decoded(self, place: Path, splits: Sequence[_Files]) -> Dataset:
        found = {name for split in splits for name in split.classes}
        names = sorted(found, key=float) if all(name.isdecimal() for name in found) else sorted(found)
        codes = {name: code for code, name in enumerate(names)}
        if len(names) < 2:
            raise DataError(f"{place} must have folders of two classes at least; got {names[0]!r}")
        first = splits[0].files[:1]
        parts: list[Any] = []
        for split in splits:  # the first image decides for both
            x = decode_images([*first, *split.files], str(place), MODES[self.colours], self.size)[1:]
            parts += [self.padded(x), np.array([codes[name] for name in split.classes])]
        columns = {"client": np.array(splits[0].clients)} if splits[0].clients else {}
        left_out = [f.name for f in sorted(place.iterdir()) if f.name in VALIDATION and f.is_dir()]
        notes = [f"the images in {name!r} are left out" for name in left_out if name not in codes]
        return build(place.name, *parts, label_names=names, columns=columns, source=f"folder {place}", notes=notes)

    def pictures(self, path: str | None, shape: Sequence[int]) -> tuple[_Files, np.ndarray]:
        """(images, in folders of classes or in none; the same as uint8 [n, channels, H, W] of a model's shape)."""
        place = given_file(self.name, path)
        found = image_files(_folders(place)[-1], least=0)
        square = len(shape) == 3 and shape[1] == shape[2]
        size, mode = self.size or (shape[2] - 2 * self.pad if square else 0), MODES["grey" if shape[0] == 1 else "rgb"]
        return found, self.padded(decode_images(found.files, str(place), mode, size))


def _folders(place: Path) -> list[Path]:
    """The folders of training and, where it is there, of test images. Raises DataError for a path that is no folder."""
    if not place.is_dir():
        raise DataError(f"path must name a folder of images, class/image or client/class/image; got '{place}'")
    folders = {folder.name for folder in place.iterdir() if folder.is_dir()}
    parted = "train" in folders and folders <= {"train", "test", *VALIDATION}  # else it is a class
    return [place / name for name in ("train", "test") if name in folders] if parted else [place]


def image_files(root: Path, least: int = 1) -> _Files:
    """The images below a folder. Raises DataError unless all lie one folder deep, or all two; 0 too if ``least`` is."""
    found = sorted(f for f in root.rglob("*") if f.suffix.lower() in ENDINGS and f.is_file() and f.name[0] != ".")
    if not found:
        kinds = ", ".join(ENDINGS)
        raise DataError(f"{root} must hold images as class/image or client/class/image; got none that end in {kinds}")
    places = [file.relative_to(root).parts for file in found]
    depth = len(places[0]) - 1
    odd = next((i for i, parts in enumerate(places) if len(parts) - 1 != depth or not least <= depth <= 2), None)
    if odd is not None:
        here, first = ("/".join(places[i]) for i in (odd, 0))
        told = f"'{here}' lies {plural(len(places[odd]) - 1, 'folder')} deep" + (f", '{first}' {depth}" if odd else "")
        raise DataError(f"{root} must hold images as class/image or client/class/image; {told}")
    classes, clients = ([parts[-k] for parts in places] if depth >= k - 1 else [] for k in (2, 3))
    return _Files(root, found, classes, clients)
