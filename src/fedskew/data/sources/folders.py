"""Folders of images: class/image, or client/class/image."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, NoReturn

import numpy as np
import torch

from fedskew.data.arrays import Dataset, Reading, build
from fedskew.data.encoding import folded, value_of
from fedskew.data.inputs import Inputs, Rows
from fedskew.data.sources import cache
from fedskew.data.sources.files import SPLITS, by_split, given_file, holds_training
from fedskew.data.sources.images import ImageOptions
from fedskew.data.sources.pictures import Background, ImageMode, decode_images, endings
from fedskew.data.values import named
from fedskew.errors import DataError, claim, plural, some
from fedskew.fields import AtLeast, AtMost, untyped

SYSTEM = {"__macosx", "__pycache__", "@eadir", "$recycle.bin", "lost+found", "thumbs.db", "ehthumbs.db", "desktop.ini"}
FORMS = "class/image or client/class/image"
UNMIXED = "have folders of splits (train, test, val) or others, not both"
LAYOUT = "say what the folders are by Images.layout: classes, splits or clients"
MODES: dict[str, ImageMode | None] = {"first": None, "grey": "L", "rgb": "RGB"}
Layout = Literal["auto", "classes", "splits", "clients"]


class _Files(NamedTuple):
    """The images of a folder, in the order of their paths."""

    root: Path
    files: list[Path]
    classes: list[str]  # empty where there is no level of classes
    clients: list[str]  # empty where there is no level of clients
    left_out: Counter[str]  # files that are no images, by reason
    empty: list[str]  # folders without anything in them


@dataclass(frozen=True)
class Images(ImageOptions):
    """A folder of images that Pillow reads: class/image, or client/class/image, below train and test if present.

    The names of folders are the classes, and the natural clients. Classes are numbered in the order of their names, as
    numbers where all are numbers. Folders of a split are train, training, test, testing, val, valid or validation, in
    any case. Without test images a stratified 20 % of the training images becomes the test set. Validation images are
    left out. Hidden and system folders are no classes, links to folders are not followed.

    Grey images of 16 bits become float32, divided by 65535, and are normalised by the training pixels of each channel
    (`normalize`). EXIF's orientation is applied. Of several frames the first is read.
    """

    name: ClassVar[str] = "images"

    size: Annotated[int, AtLeast(0), AtMost(4096)] = 0
    """pixels per side to which images are scaled (bilinear); 0: all images must have one size"""
    colours: Literal["first", "grey", "rgb"] = "first"
    """grey: one channel; rgb: three; first: grey if all images are grey, else rgb"""
    background: Background = "white"
    """colour on which transparent images are laid"""
    layout: Layout = "auto"
    """what folders are: classes (class/image), clients (client/class/image) or splits (train, test, val above either);
    auto: splits if all have such names, else what their depth says"""

    def load(self, path: str | None = None) -> Dataset:
        """Load the folder.

        Args:
            path: The folder.

        Returns:
            The dataset, with the column `client` where the folders have that level.

        Raises:
            ConfigError: No path is given, or an option breaks a rule.
            DataError: Folders are of another form, an image is damaged or of another size, or the extra `hub` is
                missing.
        """
        place = given_file(self.name, path)
        folders, notes = _folders(place, self.layout)
        named = ", ".join(folder.name for folder in folders.values())
        claim("training" in folders, place, f"have a folder train beside {named}")
        splits = [image_files(folders[name], layout=self.layout) for name in ("training", "test") if name in folders]
        files = [file for split in splits for file in split.files]
        left_out = sum((split.left_out for split in splits), Counter[str]())
        if aside := folders.get("validation"):
            kinds = endings()
            left_out[f"for validation, in {aside.name}"] = sum(f.suffix.lower() in kinds for f in aside.rglob("*"))
        if empty := [name for split in splits for name in split.empty]:
            notes.append(f"folders without a file are no classes: {some(empty)}")
        rows = tuple((split.root.name, len(split.files)) for split in splits)
        reading = Reading(rows, left_out=tuple(sorted(left_out.items())))
        options = {name: getattr(self, name) for name in ("size", "colours", "pad", "background")}
        key = cache.key_of(self.name, {**options, "read": [untyped(reading), notes]}, files)
        data = cache.cached(key, lambda: self._decoded(place, splits, reading, notes))
        deep = data.x.dtype != torch.uint8 and self.normalize == "protocol"  # 12 bits in 16 are near 0
        return (replace(self, normalize="channel") if deep else self).finish(data)

    def _decoded(self, place: Path, splits: Sequence[_Files], reading: Reading, notes: Sequence[str]) -> Dataset:
        classes = {name for split in splits for name in split.classes}
        names = sorted(sorted(classes), key=float) if all(map(str.isdecimal, classes)) else sorted(classes)
        _differ(place, names)
        codes = {name: code for code, name in enumerate(names)}
        claim(len(names) > 1, place, "have folders of two classes at least", some([*map(repr, names)]))
        account: list[str] = []
        files = [file for split in splits for file in split.files]
        x = decode_images(files, str(place), MODES[self.colours], self.size, self.background, account)
        parts: list[Any] = []
        for split in splits:
            here, x = x[: len(split.files)], x[len(split.files) :]
            parts += [self.padded(here), np.array([codes[name] for name in split.classes])]
        columns = {"client": np.array(splits[0].clients)} if splits[0].clients else {}
        return build(
            place.name, *parts, label_names=names, columns=columns, source=f"folder {place}",
            notes=[*notes, *lost(reading.left_out), *account[1:]], channels="first",
            reading=replace(reading, pictures=tuple(account[:1])),
        )  # fmt: skip

    def rows(self, path: str | None, inputs: Inputs) -> Rows:
        """All images of a folder, of folders of classes or of none, of the model's shape."""
        place, shape = given_file(self.name, path), inputs.shape
        folders, _ = _folders(place, self.layout)
        place = next(folders[split] for split in ("test", "training", "validation") if split in folders)
        images = image_files(place, least=0, layout=self.layout)
        square = len(shape) == 3 and shape[1] == shape[2]
        size, mode = self.size or (shape[2] - 2 * self.pad if square else 0), MODES["grey" if shape[0] == 1 else "rgb"]
        account: list[str] = []
        x = self.padded(decode_images(images.files, str(place), mode, size, self.background, account))
        names = [str(file.relative_to(images.root)) for file in images.files]
        beside = {"client": np.array(images.clients)} if images.clients else {}
        notes = [*lost(images.left_out.items()), *account[1:]]
        return Rows(str(images.root), x, images.classes or None, "class", names, beside, notes)


def lost(left_out: Iterable[tuple[str, int]]) -> list[str]:
    """Notes of files that are not read."""
    return [f"{plural(count, 'file')} left out: {reason}" for reason, count in left_out]


def _folders(place: Path, layout: Layout) -> tuple[dict[str, Path], list[str]]:
    """(folders by split; notes). Without splits the folder itself is that of training images. Raises DataError."""
    claim(place.is_dir(), "path", f"name a folder of images, {FORMS}", f"'{place}'")
    inner = sorted(folder for folder in place.iterdir() if folder.is_dir() and not _hidden(folder.name))
    parted = [folder for folder in inner if folder.name.casefold() in SPLITS]
    others = [folder.name for folder in inner if folder not in parted]
    if layout in ("classes", "clients") or (layout == "auto" and not parted):
        return {"training": place}, []
    clear = layout != "auto" or not others
    claim(clear, place, UNMIXED, f"{some([folder.name for folder in parted])} beside {some(others)}", LAYOUT)
    splits = by_split(parted)
    claim(splits, place, "have a folder train, for Images.layout splits", some(others) or "none")
    return splits, [f"folders beside the splits are left out: {some(others)}"] if others else []


def _hidden(name: str) -> bool:
    """Whether a file or folder is hidden, or is one that an operating system adds."""
    return name.startswith(".") or name.casefold() in SYSTEM


def _differ(place: Path, names: Sequence[str]) -> None:
    """Raise DataError for two names of classes or clients that are probably one."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(folded(value_of(name)), name)
        claim(other == name, place, "name each class by one spelling", f"{other!r} and {name!r}", "rename one")


def image_files(root: Path, least: int = 1, layout: Layout = "auto") -> _Files:
    """The images below a folder: all one folder deep, or all two; 0 too if `least` is.

    Raises:
        DataError: They lie in other ways, a folder has files and no image, or a class has the name of a split while
            the layout is open.
    """
    kinds, files, left_out = endings(), list[Path](), Counter[str]()
    folders, empty = list[Path](), list[str]()

    def fail(error: OSError) -> NoReturn:
        raise DataError(f"{root} must be readable: {error}")

    for here, inner, names in os.walk(root, onerror=fail):
        folder = Path(here)
        inner[:] = sorted(name for name in inner if not _hidden(name))
        folders += [folder / name for name in inner]  # a link, too, which is not followed
        kept = sorted(name for name in names if not _hidden(name))
        empty += [] if inner or kept else [str(folder.relative_to(root))]
        for file in (folder / name for name in kept):
            if file.suffix.lower() in kinds and file.is_file():
                files.append(file)
                continue
            ending = f"ends in {file.suffix.lower()}" if file.suffix else "without an ending"
            left_out[ending if file.is_file() else "no file that can be read"] += 1
    others = ", ".join(f"{plural(count, 'file')}: {reason}" for reason, count in left_out.items()) or "none"
    claim(files, root, f"hold images as {FORMS}", others)
    full = {above for file in files for above in file.parents}
    bare = [name for f in folders if f not in full and (name := str(f.relative_to(root))) not in empty]
    hint = "take it out, or put its images there"
    claim(not bare, root, "have an image in each folder of a class or client", f"none in {', '.join(bare[:1])}", hint)
    files.sort()
    places = [file.relative_to(root).parts for file in files]
    depth = len(places[0]) - 1
    fewest, most = {"classes": (least, 1), "clients": (2, 2)}.get(layout, (least, 2))
    odd = next((i for i, parts in enumerate(places) if len(parts) - 1 != depth or not fewest <= depth <= most), None)
    if odd is not None:
        here, first = ("/".join(places[i]) for i in (odd, 0))
        got = f"'{here}' lies {plural(len(places[odd]) - 1, 'folder')} deep" + (f", '{first}' {depth}" if odd else "")
        raise DataError(f"{root} must hold images as {FORMS}; {got}")
    classes, clients = (
        named(np.array([parts[-k] for parts in places])).tolist() if depth >= k - 1 else [] for k in (2, 3)
    )
    parted = next((name for name in (*classes, *clients) if name.casefold() in SPLITS), None)
    other = f"{some(sorted(set(clients or classes)))}, where splits are named train and test"
    splits = holds_training(clients) or (holds_training(classes) and any("test" in n.casefold() for n in classes))
    unclear = layout == "auto" and (parted or splits)
    claim(not unclear, root, UNMIXED, f"{parted} in another folder" if parted else other, LAYOUT)
    _differ(root, sorted(set(clients)))
    return _Files(root, files, classes, clients, left_out, empty)
