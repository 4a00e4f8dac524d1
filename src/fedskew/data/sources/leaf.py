"""LEAF's datasets: FEMNIST's writers, and Shakespeare's speakers with the next character as the class."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import torch

from fedskew.data.arrays import Dataset, build, fingerprint
from fedskew.data.classes import ClassOptions
from fedskew.data.sources import cache
from fedskew.data.sources.files import absent, places, reading
from fedskew.data.sources.images import ImageOptions
from fedskew.data.values import words_of
from fedskew.errors import DataError, json_file, text_of
from fedskew.fields import AtLeast

LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"  # LEAF's vocabulary
SPACE = LETTERS.index(" ")
NAMES = tuple([{"\n": "line feed", " ": "space"}.get(letter, letter) for letter in LETTERS])
CHARACTERS = (*"0123456789", *"ABCDEFGHIJKLMNOPQRSTUVWXYZ", *"abcdefghijklmnopqrstuvwxyz")  # FEMNIST's 62 classes
WINDOW = 80  # characters of a row, in LEAF
TEXT_SHARE = 0.8  # of a speaker's characters are trained on, the first ones
PIXELS = 784


class _Users(NamedTuple):
    """Rows of LEAF files."""

    x: list[Any]
    y: list[Any]
    owner: np.ndarray  # name of each row's user


@dataclass(frozen=True)
class Femnist(ImageOptions):
    """FEMNIST in LEAF's layout: characters of 28x28, 62 classes, with their writers as natural clients.

    The folder holds train/*.json and test/*.json, or all_data/*.json or *.json, of which a stratified 20 % becomes the
    test set. Ink is 0 and paper 1, as LEAF has it. Pixels that are whole 255ths, as LEAF writes them, are stored as
    uint8, others as float32. The column ``client`` has the writers.

    References:
        Caldas et al. 2018, LEAF: A Benchmark for Federated Settings. https://arxiv.org/abs/1812.01097
    """

    name: ClassVar[str] = "femnist"
    reference: ClassVar[str] = "caldas2018"
    augmentations: ClassVar[tuple[str, ...]] = ("crop",)

    def load(self, path: str | None = None) -> Dataset:
        """Load the files.

        Args:
            path: Folder of LEAF's files; None searches $FEDSKEW_DATA.

        Returns:
            The dataset.

        Raises:
            DataError: The files are absent or damaged, or a row has another form.
        """
        groups = _leaf_files(self.name, path, ("femnist", "leaf/femnist"))
        files = [file for group in groups for file in group]
        key = cache.key_of(self.name, {"pad": self.pad, "train": len(groups[0])}, files)
        return self.finish(cache.cached(key, lambda: self._decoded(groups)))

    def _decoded(self, groups: Sequence[Sequence[Path]]) -> Dataset:
        splits = [_users(group, _image_row) for group in groups]
        exact = all(_whole(part.x) for part in splits)
        parts: list[Any] = []
        for part in splits:
            x = np.stack(part.x).reshape(-1, 1, 28, 28)
            x = np.round(255 * x).astype(np.uint8) if exact else x.astype(np.float32)
            parts += [self.padded(x), np.array(part.y)]
        source, (owners, *known) = f"files in {groups[0][0].parent}", [{"client": part.owner} for part in splits]
        return build(
            self.name,
            *parts,
            label_names=CHARACTERS,
            columns=owners,
            source=source,
            columns_test=known[0] if known else None,
        )


@dataclass(frozen=True)
class Shakespeare(ClassOptions):
    """Shakespeare's speakers as natural clients: predict the next character after 80, with LEAF's vocabulary of 80.

    A row is a window of characters as their numbers in the vocabulary, int16 [n, 80]; characters beyond it count as
    spaces. The folder holds LEAF's train/*.json and test/*.json, or a text, as Karpathy's tinyshakespeare.txt: speeches
    with blank lines between, each after a line with the speaker's name and a colon. The speeches of one name are joined
    by line feeds. Its first 80 % are training text, the rest is test text; no window lies in both. A name of two plays
    is one speaker. The column ``client`` has the speakers.

    References:
        Caldas et al. 2018, LEAF: A Benchmark for Federated Settings. https://arxiv.org/abs/1812.01097
    """

    name: ClassVar[str] = "shakespeare"
    reference: ClassVar[str] = "caldas2018"

    stride: Annotated[int, AtLeast(1)] = 1
    """characters between the starts of two windows of a text; LEAF uses 1"""
    least: Annotated[int, AtLeast(1)] = 1
    """minimum training rows of a speaker; speakers with fewer are left out"""

    def load(self, path: str | None = None) -> Dataset:
        """Load the text or LEAF's files.

        Args:
            path: The text, a folder that holds it, or a folder of LEAF's files; None searches $FEDSKEW_DATA.

        Returns:
            The dataset.

        Raises:
            DataError: The files are absent or damaged, or a row has another form.
        """
        folders = ("shakespeare", "leaf/shakespeare")
        texts = [file for place in places(path, folders) if (file := _text_of(place)) is not None]
        if texts:
            owners, splits = self._windows(texts[0])
            source = f"file {texts[0]}"
        else:
            groups = _leaf_files(self.name, path, folders)
            read = [self._kept(_users(group, _letter_row)) for group in groups]
            owners, source = read[0].owner, f"files in {groups[0][0].parent}"
            splits = [(np.stack(part.x), np.array(part.y)) for part in read]
        return self.of_classes(_tokens(self.name, splits, owners, source, official=not texts))

    def _windows(self, file: Path) -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
        """(speaker of each training row, windows and next characters of both splits)."""
        kept = []
        for name, text in sorted(_speakers(file).items()):
            codes = _codes(text).astype(np.int16)
            cut = int(TEXT_SHARE * len(codes))
            train, test = (_cut(piece, self.stride) for piece in (codes[:cut], codes[cut:]))
            if len(train) >= self.least:
                kept.append((np.repeat(np.array(name), len(train)), train, test))
        if not kept:
            raise DataError(f"{file} must have a speaker of {self.least} training rows at least; got none; lower least")
        owners, *joined = (np.concatenate(part) for part in zip(*kept, strict=True))
        if not len(joined[1]):
            raise DataError(f"{file} is too short: no speaker has {WINDOW + 1} characters of test text")
        return owners, [(p[:, :WINDOW], p[:, WINDOW].astype(np.int64)) for p in joined]

    def _kept(self, users: _Users) -> _Users:
        """The rows of LEAF's files that the options keep; those of a user follow one another."""
        names, first, counts = np.unique(users.owner, return_index=True, return_counts=True)
        place = np.arange(len(users.y)) - first[np.searchsorted(names, users.owner)]
        few = counts[np.searchsorted(names, users.owner)] < self.least
        at = np.flatnonzero((place % self.stride == 0) & ~few)
        if not len(at):
            raise DataError(f"a user must have {self.least} rows at least; got at most {counts.max()}; lower least")
        return _Users([users.x[i] for i in at], [users.y[i] for i in at], users.owner[at])


def _tokens(
    name: str, splits: Sequence[tuple[np.ndarray, np.ndarray]], owners: np.ndarray, source: str, official: bool
) -> Dataset:
    """A dataset of tokens: built with rows of no width, which then get theirs without a copy in floats."""
    tokens = [torch.from_numpy(np.ascontiguousarray(x, dtype=np.int16)) for x, _ in splits]
    if len(splits) == 1:  # the split follows the order of the rows
        numbers = np.arange(len(tokens[0]), dtype=np.float32)[:, None]
        made = build(name, numbers, splits[0][1], label_names=NAMES, columns={"client": owners}, source=source)
        tokens = [tokens[0][part.flatten().long()] for part in (made.x, made.x_test)]
    else:
        empty = [part for x, y in splits for part in (np.zeros((len(x), 1), np.float32), y)]
        made = build(name, *empty, label_names=NAMES, columns={"client": owners}, source=source, official=official)
    made = replace(made, x=tokens[0], x_test=tokens[1])
    return replace(made, fingerprint=fingerprint(made))


def _leaf_files(name: str, path: str | None, folders: Sequence[str]) -> list[list[Path]]:
    """LEAF's files: [training files, test files], or [all files]. Raises DataError where there are none."""
    for place in places(path, folders):
        for root in (place, place / "data") if place.is_dir() else ():
            train, test, every = (sorted((root / part).glob("*.json")) for part in ("train", "test", "all_data"))
            if train and test:
                return [train, test]
            if train or test:
                raise DataError(
                    f"{root} must hold train/*.json and test/*.json; got {'train' if train else 'test'} only"
                )
            if every := every or sorted(root.glob("*.json")):
                return [every]
    raise absent(name, path)


def _users(files: Sequence[Path], row: Any) -> _Users:
    """The rows of LEAF files. Raises DataError for another form, with file, user and row."""
    x: list[Any] = []
    y: list[Any] = []
    owners: list[str] = []
    counts: list[int] = []
    for file in files:
        with reading(file, "is not a whole JSON file"):
            content = json_file(file)
        held = content.get("user_data") if isinstance(content, dict) else None
        if not isinstance(held, dict) or not held:
            raise DataError(f"{file} must hold 'user_data', as LEAF writes it; got {_keys(content)}")
        for user, data in held.items():
            if not isinstance(data, dict) or not all(isinstance(data.get(part), list) for part in "xy"):
                raise DataError(f"{file}: user {user!r} must have lists 'x' and 'y'; got {_keys(data)}")
            if len(data["x"]) != len(data["y"]):
                raise DataError(f"{file}: user {user!r} has {len(data['x'])} x and {len(data['y'])} y; they must agree")
            for i, pair in enumerate(zip(data["x"], data["y"], strict=True)):
                sample, label, wrong = row(*pair)
                if wrong:
                    raise DataError(f"{file}: user {user!r}, row {i} must have {wrong}")
                x.append(sample)
                y.append(label)
            owners.append(str(user))
            counts.append(len(data["y"]))
    if not x:
        raise DataError(f"{files[0].parent} must hold rows; got none")
    return _Users(x, y, np.repeat(words_of(owners, f"{files[0].parent}: users"), counts))


def _keys(content: Any) -> str:
    return ", ".join(map(repr, list(content)[:5])) if isinstance(content, Mapping) else type(content).__name__


def _image_row(x: Any, y: Any) -> tuple[Any, Any, str]:
    """(pixels, label, what is wrong)."""
    try:
        pixels = np.array(x, np.float64)
    except (TypeError, ValueError):
        return None, None, f"{PIXELS} numbers in x; got {str(x)[:40]!r}"
    if pixels.shape != (PIXELS,) or not np.isfinite(pixels).all():
        return None, None, f"{PIXELS} finite numbers in x; got shape {pixels.shape}"
    if isinstance(y, bool) or not isinstance(y, int | float) or y not in range(len(CHARACTERS)):
        return None, None, f"a label 0..{len(CHARACTERS) - 1} in y; got {y!r}"
    return pixels.astype(np.float32), int(y), ""


def _letter_row(x: Any, y: Any) -> tuple[Any, Any, str]:
    """(numbers of the characters, number of the next one, what is wrong)."""
    if not isinstance(x, str) or len(x) != WINDOW:
        got = f"{len(x)} characters" if isinstance(x, str) else type(x).__name__
        return None, None, f"{WINDOW} characters in x; got {got}"
    if not isinstance(y, str) or len(y) != 1:
        return None, None, f"one character in y; got {str(y)[:20]!r}"
    return _codes(x).astype(np.int16), int(_codes(y)[0]), ""


def _whole(images: Sequence[np.ndarray]) -> bool:
    """Whether all pixels are whole 255ths."""
    return all(float(np.abs(255 * x - np.round(255 * x)).max()) < 1e-3 and 0 <= x.min() <= x.max() <= 1 for x in images)


def _text_of(place: Path) -> Path | None:
    """The text of a place: the file itself, or the only text of a folder without LEAF's files."""
    if place.is_file():
        return place if place.suffix == ".txt" else None
    texts = sorted(place.glob("*.txt"))
    leaf = ("*.json", "train/*.json", "test/*.json", "all_data/*.json", "data/*/*.json")
    return texts[0] if len(texts) == 1 and not any(any(place.glob(files)) for files in leaf) else None


def _speakers(file: Path) -> dict[str, str]:
    """The text of each speaker. Raises DataError."""
    with reading(file, "is not a text in UTF-8"):
        text = text_of(file)
    said: dict[str, list[str]] = {}
    line = 1
    for block in re.split(r"(\n(?:[ \t]*\n)+)", text):
        if block.strip():
            name, _, speech = block.strip("\n").partition("\n")
            if not name.rstrip().endswith(":"):
                told = f"line {line + len(block) - len(block.lstrip(chr(10)))} is {name[:40]!r}"
                raise DataError(f"{file} must begin each speech with the speaker's name and a colon; {told}")
            said.setdefault(name.rstrip()[:-1], []).append(speech)
        line += block.count("\n")
    return {name: "\n".join(speeches) for name, speeches in said.items()}


def _codes(text: str) -> np.ndarray:
    """Numbers of characters in LEAF's vocabulary, int64; those beyond it are spaces."""
    table = np.full(128, SPACE)
    table[[ord(letter) for letter in LETTERS]] = np.arange(len(LETTERS))
    points = np.frombuffer(text.encode("utf-32-le", "replace"), "<u4")
    return np.where(points < 128, table[np.minimum(points, 127)], SPACE)


def _cut(codes: np.ndarray, stride: int) -> np.ndarray:
    """Windows of 81 characters of a text, [n, 81]."""
    if len(codes) <= WINDOW:
        return np.empty((0, WINDOW + 1), codes.dtype)
    found: np.ndarray = np.lib.stride_tricks.sliding_window_view(codes, WINDOW + 1)[::stride]
    return found
