"""What a page is made of: sections of sentences, tables and figures."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from fedskew.errors import text_of
from fedskew.plots.drawing import Picture
from fedskew.report.tables import Table

TEXTS = tomllib.loads(text_of(Path(__file__).parent / "texts.toml"))  # of the sections


@dataclass(frozen=True)
class Figure:
    """Pictures side by side."""

    pictures: tuple[Picture, ...]


@dataclass(frozen=True)
class Section:
    """A section of the page."""

    key: str
    title: str
    text: tuple[str, ...] = ()
    parts: tuple[Table | Figure, ...] = ()
    listed: tuple[str, ...] = ()
    code: str = ""
    folded: tuple[Table, ...] = ()
    missing: str = ""  # why nothing is shown, in one sentence
