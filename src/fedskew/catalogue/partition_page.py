"""The page of partitions: definition, formula, users and options of every partitioner, with a picture of each."""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedskew.catalogue.docstrings import prose
from fedskew.data.partitioners import PARTITIONERS, Counts, Natural
from fedskew.data.partitioners.base import Ints, Partitioner
from fedskew.fields import documented

__all__ = ["Example", "examples", "partitions_markdown", "write_page"]

CLIENTS, CLASSES, ROWS, SEED = 20, 10, 500, 0
NOT_DRAWN = ("file",)  # whatever the file holds
HEAD = f"""# Partitions

Made by `python scripts/reference.py`; a test compares. How to split data, step by step:
[splits.md](../guide/splits.md).

Symbols: n rows, N clients, C classes that occur, N_c rows of class c, n_kc rows of class c at client k. Ranks are
random, and ties are broken at random. "Dir(0.1)" stands for at least seven different partitions in the literature: name
the partitioner, not only alpha.

Every partitioner keeps these rules:

- No row belongs to two clients, except under `shared`, whose purpose that is.
- The same labels, options and seed give the same rows, however the labels are stored.
- A setting that cannot be met raises an error of one line, which names the nearest setting that can be met.
- No partitioner redraws until it likes a draw, unless you ask for it: `dirichlet` and `dir_extended` with `least`,
  `dir_extended` with random owners, and `quantity_dir` with `redraw` draw at most 100 times.
- Rows are kept in one flat array with offsets. Memory is at most about ten 8-byte numbers for each row and for each
  cell of [N, C].

You can keep a partition as a file and use it on another machine: [partition-file.md](partition-file.md). This matters,
because draws use exp and log, whose last bit depends on the machine: a row on the boundary between two clients may
move. The file does not change.

The pictures show {CLASSES} classes of {ROWS} rows at {CLIENTS} clients, seed {SEED}, all options at their defaults.
Bars: rows of each client. Map: the darker a cell, the more rows of that class. `natural` and `feature` read a column
that the example makes up, and `counts` has a matrix that the example makes up.
"""


class Example(NamedTuple):
    """One partitioner applied to the example data."""

    partitioner: Partitioner
    counts: Ints  # [N, C]
    rows: int  # that somebody has; several may have the same


def examples() -> dict[str, Example]:
    """Every partitioner of the table applied to the example data, by name; one that reads a file is left out."""
    labels = np.repeat(np.arange(CLASSES), ROWS)
    places = np.arange(len(labels))
    column = (places * 7 // ROWS + places % 3) % CLIENTS  # related to the label, but not equal to it
    found = {}
    for name, kind in _named().items():
        if name not in NOT_DRAWN:
            partitioner = _example(kind)
            clients = len(np.unique(column)) if isinstance(partitioner, Natural) else CLIENTS
            parts = partitioner.split(labels, clients, SEED, {"site": column})
            found[name] = Example(partitioner, parts.counts(labels, CLASSES), len(np.unique(parts.rows)))
    return found


def _named() -> dict[str, type[Partitioner]]:
    return {kind.name: kind for kind in PARTITIONERS.values()}


def _example(kind: type[Partitioner]) -> Partitioner:
    if kind is Counts:
        steps = np.add.outer(np.arange(CLIENTS), np.arange(CLASSES)) % 5
        return Counts(matrix=tuple(map(tuple, (steps * 10).tolist())))
    return kind()


def partitions_markdown() -> str:
    """The page."""
    shown = examples()
    aliases = {
        kind.name: [n for n in PARTITIONERS if PARTITIONERS[n] is kind and n != kind.name] for kind in _named().values()
    }
    lines = [HEAD, "| name | formula | used by |", "|---|---|---|"]
    lines += [f"| [`{n}`](#{n}) | {k.formula.replace('|', chr(92) + '|')} | {k.users} |" for n, k in _named().items()]
    for name, kind in _named().items():
        lines += ["", *_section(name, kind, aliases[name], shown.get(name))]
    return "\n".join(lines) + "\n"


def _section(name: str, kind: type[Partitioner], aliases: list[str], shown: Example | None) -> list[str]:
    first, _, rest = prose(kind).partition("\n")
    also = f" (also {', '.join(f'`{a}`' for a in aliases)})" if aliases else ""
    lines = [f"## {name}", "", f"**{first}** `fs.partitioners.{kind.__name__}`{also}", ""]
    lines += [line for part in rest.strip().split("\n\n") if part for line in (" ".join(part.split()), "")]
    lines += [f"- Formula: {kind.formula}", f"- Used by: {kind.users}", f"- Limits: {kind.limits}"]
    lines += [f"- `{n}` = `{value}`: {text}" for n, value, text in _options(kind)]
    if shown is not None:
        lines += ["", f"![{name}: clients by classes](../pictures/partition-{name}.png)", "", _told(shown)]
    return lines


def _options(kind: type[Partitioner]) -> list[tuple[str, Any, str]]:
    """Name, default and help of each option, with the words that it takes."""
    if not dataclasses.is_dataclass(kind):
        return []
    made, helps, hints = kind(), documented(kind), typing.get_type_hints(kind)
    told = []
    for f in dataclasses.fields(kind):
        value = getattr(made, f.name)
        words = [w for h in (hints[f.name], *typing.get_args(hints[f.name])) for w in _words(h)]
        choice = f" One of {', '.join(dict.fromkeys(words))}." if words else ""
        default = value.name if isinstance(value, Partitioner) else "unset" if value in (None, "") else value
        told.append((f.name, default, " ".join(helps.get(f.name, "").split()) + choice))
    return told


def _words(hint: Any) -> list[str]:
    return list(typing.get_args(hint)) if typing.get_origin(hint) is typing.Literal else []


def _told(shown: Example) -> str:
    n = shown.counts
    sizes, held = n.sum(axis=1), (n > 0).sum(axis=1)
    unused = CLASSES * ROWS - shown.rows
    return (
        f"In the picture: {len(n)} clients of {sizes.min()} to {sizes.max()} rows with {held.min()} to {held.max()} "
        f"classes; {unused:,} rows unused."
    )


def write_page(folder: str | Path = "docs") -> list[Path]:
    """Write ``reference/partitions.md`` and ``pictures/partition-<name>.png`` into a folder.

    Args:
        folder: The folder.

    Returns:
        The files written.
    """
    from fedskew.plots.skew import example

    page = Path(folder) / "reference" / "partitions.md"
    pictures = Path(folder) / "pictures"
    page.parent.mkdir(parents=True, exist_ok=True)
    made = [example(shown.counts, pictures / f"partition-{name}.png") for name, shown in examples().items()]
    page.write_text(partitions_markdown(), encoding="utf-8")
    return [page, *made]
