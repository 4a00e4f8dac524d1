"""Shakespeare's speakers, with the next character as the class."""

import re
import unicodedata
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import torch

from fedskew.data.arrays import ClassOptions, Dataset, build, fingerprint
from fedskew.data.sources.files import absent, places
from fedskew.data.sources.readers import text_in
from fedskew.errors import DataError, claim
from fedskew.fields import AtLeast

LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"  # LEAF's vocabulary
SPACE = LETTERS.index(" ")
NAMES = tuple([{"\n": "line feed", " ": "space"}.get(letter, letter) for letter in LETTERS])
WINDOW = 80  # characters of a row, in LEAF
TEXT_SHARE = 0.8  # of a speaker's characters are trained on, the first ones


@dataclass(frozen=True)
class Shakespeare(ClassOptions):
    """Shakespeare's speakers as natural clients: predict the next character after 80, with LEAF's vocabulary of 80.

    A row is a window of characters as their numbers in the vocabulary, int16 [n, 80]; characters beyond it count as
    spaces. The file is a text, as Karpathy's tinyshakespeare.txt: speeches with blank lines between, each after a line
    with the speaker's name and a colon. The speeches of one name are joined by line feeds. Its first 80 % are training
    text, the rest is test text; no window lies in both. A name of two plays is one speaker. The column `client` has
    the speakers.

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
        """Load the text.

        Args:
            path: The text, or a folder that holds it; None searches $FEDSKEW_DATA.

        Returns:
            The dataset.

        Raises:
            DataError: The text is absent, or has another form.
        """
        texts = [file for place in places(path, (self.name,)) for file in _texts(place)]
        if not texts:
            raise absent(self.name, path)
        return self.of_classes(self._windows(texts[0]))

    def _windows(self, file: Path) -> Dataset:
        """Windows and next characters of all speakers.

        They are built with rows of no width, which then get theirs without a copy in floats.
        """
        kept = []
        for name, text in sorted(_speakers(file).items()):
            codes = _codes(text).astype(np.int16)
            cut = int(TEXT_SHARE * len(codes))
            train, test = (_cut(piece, self.stride) for piece in (codes[:cut], codes[cut:]))
            if len(train) >= self.least:
                kept.append((np.repeat(np.array(name), len(train)), train, test))
        claim(kept, file, f"have a speaker of {self.least} training rows at least", "none", "lower least")
        owners, *splits = (np.concatenate(part) for part in zip(*kept, strict=True))
        claim(len(splits[1]), file, f"have a speaker of {WINDOW + 1} characters of test text", "none: it is too short")
        empty = [part for p in splits for part in (np.zeros((len(p), 1), np.float32), p[:, WINDOW].astype(np.int64))]
        source, columns = f"file {file}", {"client": owners}
        made = build(self.name, *empty, label_names=NAMES, columns=columns, source=source, test_is_official=False)
        x, x_test = (torch.from_numpy(np.ascontiguousarray(p[:, :WINDOW], dtype=np.int16)) for p in splits)
        made = replace(made, x=x, x_test=x_test)
        return replace(made, fingerprint=fingerprint(made))


def _texts(place: Path) -> list[Path]:
    """The text of a place: the file itself, or the only text of a folder; none in other cases."""
    files = [place] if place.is_file() else list(place.glob("*.txt"))
    return files if len(files) == 1 and files[0].suffix == ".txt" else []


def _speakers(file: Path) -> dict[str, str]:
    """The text of each speaker. Raises DataError."""
    text = text_in(file).replace("\ufeff", "")  # a byte order mark is no character of a name
    by_speaker: dict[str, list[str]] = {}
    line = 1
    for block in re.split(r"(\n(?:[ \t]*\n)+)", text):
        if block.strip():
            name, _, speech = block.strip("\n").partition("\n")
            if not name.rstrip().endswith(":"):
                got = f"line {line + len(block) - len(block.lstrip(chr(10)))} is {name[:40]!r}"
                raise DataError(f"{file} must begin each speech with the speaker's name and a colon; {got}")
            by_speaker.setdefault(unicodedata.normalize("NFC", name.rstrip()[:-1]).strip(), []).append(speech)
        line += block.count("\n")
    return {name: "\n".join(speeches) for name, speeches in by_speaker.items()}


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
    return np.asarray(np.lib.stride_tricks.sliding_window_view(codes, WINDOW + 1)[::stride])
