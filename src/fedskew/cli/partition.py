"""What `fedskew partition make | show | verify` do: functions of parsed values; the command prints what they return."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rich.console import RenderableType

from fedskew.data import describe
from fedskew.data.arrays import Dataset
from fedskew.data.federation import Federation
from fedskew.data.partitioners.file import save_partition, verify_partition
from fedskew.errors import require

__all__ = ["Shown", "free", "make", "show", "verify"]


class Shown(NamedTuple):
    """What `show` found."""

    body: str | RenderableType  # JSON, or a table for rich
    pictures: tuple[Path, ...]


def free(out: str | Path | None) -> Path:
    """The file that `make` will write, .npz where there is no suffix. Raises ConfigError where it is there already."""
    path = Path(out or "partition.npz")
    path = path.with_suffix(path.suffix or ".npz")
    require(not path.exists(), "--out", "be a file that is not there yet: runs may go by it", str(path))
    return path


def make(fed: Federation, path: Path) -> str:
    """Write a federation's partition to a file; a line that says so."""
    digest = save_partition(path, fed)
    rows = len(fed.partition.rows)
    aside = f", {len(fed.validation_rows):,} validation" * bool(len(fed.validation_rows))
    aside += f", {len(fed.auxiliary_rows):,} auxiliary" * bool(len(fed.auxiliary_rows))
    size = path.stat().st_size / 1e6
    return f"{path}: {fed.clients:,} clients, {rows:,} rows{aside}, {size:.1f} MB, sha256 {digest[:16]}…"


def show(
    source: describe.Source,
    *,
    as_json: bool = False,
    pictures: str | Path | None = None,
    style: Literal["auto", "circles", "colours"] = "auto",
    measure: str = "overlap",
    most: int = 500,
) -> Shown:
    """The skew report of a partition file, a file of counts, a federation or a matrix, as a table or as JSON.

    ``pictures`` is a folder for heatmap.png, histograms.png and pairs.png (`fedskew.plots.skew`: ``style`` of the
    first, ``measure`` of the last); ``most`` clients at most are compared pairwise.
    """
    body = json.dumps(describe.describe(source, most), indent=1) if as_json else describe.describe_table(source, most)
    if pictures is None:
        return Shown(body, ())
    from fedskew.plots import skew as skewplots

    found, folder = describe.counted(source), Path(pictures)
    files = (folder / "heatmap.png", folder / "histograms.png", folder / "pairs.png")
    names = found.class_names
    drawn = skewplots.report(found.counts, files, title=found.title, class_names=names, style=style, measure=measure)
    return Shown(body, drawn)


def verify(path: str | Path, dataset: Dataset | None = None, match: Literal["dataset", "labels"] = "dataset") -> str:
    """A line that says that a partition file is whole and, where a dataset is given, made for it.

    Raises DataError, one line, where it is not.
    """
    facts: dict[str, Any] = verify_partition(path, dataset, match)
    how = f"{describe.named(facts['convention'])}, seed {facts['seed']}"
    split = f"{how}, {facts['clients']:,} clients, {facts['rows']:,} rows"
    return f"{path}: intact, sha256 {facts['sha256'][:16]}…; {split} of {facts['dataset']['name']}; {facts['data']}"
