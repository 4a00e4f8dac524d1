"""``fedskew partition make | show | verify``: a partition as a file. Functions of parsed values, then the commands."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from fedskew.cli.base import Command, Group
from fedskew.cli.composed import Beside, FileOrOptions
from fedskew.cli.describe import draw
from fedskew.cli.output import say, show
from fedskew.cli.values import FILE, FOLDER, Value
from fedskew.errors import plural, require

if TYPE_CHECKING:
    from fedskew.config.experiment import Experiment
    from fedskew.data.arrays import Dataset
    from fedskew.data.federation import Federation


Match = Literal["dataset", "labels"]
MADE = "fedskew partition make --partition shards --clients 20 --out split.npz"


def free(out: str | Path | None) -> Path:
    """The file that `make` will write, .npz where there is no suffix. Raises ConfigError where it is there already."""
    path = Path(out or "partition.npz")
    path = path.with_suffix(path.suffix or ".npz")
    require(not path.exists(), "--out", "be a new file: runs may use the old one", str(path))
    return path


def make(fed: Federation, path: Path) -> str:
    """Write a federation's partition to a file; a line that says so."""
    from fedskew.data.partitioners.file import save_partition

    digest = save_partition(path, fed)
    rows = fed.report()["training_rows"]
    aside = f", {len(fed.validation_rows):,} validation" * bool(len(fed.validation_rows))
    aside += f", {len(fed.auxiliary_rows):,} auxiliary" * bool(len(fed.auxiliary_rows))
    tested = len(fed.local_test_rows())
    aside += f", {tested:,} kept by clients for a test" * bool(tested)
    size = path.stat().st_size / 1e6
    return (
        f"{path}: {plural(fed.clients, 'client')}, {plural(rows, 'row')}{aside}, {size:.1f} MB, sha256 {digest[:16]}…"
    )


def verify(path: str | Path, dataset: Dataset | None = None, match: Match = "dataset") -> str:
    """A line that says that a partition file is whole and, where a dataset is given, made for it.

    Raises DataError, one line, where it is not.
    """
    from fedskew.data import describe
    from fedskew.data.partitioners.file import verify_partition

    facts: dict[str, Any] = verify_partition(path, dataset, match)
    how = f"{describe.named(facts['convention'])}, seed {facts['seed']}"
    split = f"{how}, {plural(facts['clients'], 'client')}, {plural(facts['rows'], 'row')}"
    copies = f" and {facts['shared_copies']:,} copies" * bool(facts["shared_copies"])
    told = f"{split} of {facts['dataset']['name']}{copies}"
    return f"{path}: intact, sha256 {facts['sha256'][:16]}…; {told}; {facts['data']}"


# The commands


@click.group(
    cls=Group, kind="action of fedskew partition", lines=(MADE, "fedskew partition show split.npz --out pictures")
)
def partition() -> None:
    """Make, show and verify partition files."""


@partition.command("make", cls=FileOrOptions, slots=("data", "partition"), fields="federation", lines=(MADE,))
@click.option("--out", type=FILE, help="a new file  [default: partition.npz]")
def _make(out: str | None, experiment: Experiment) -> None:
    """Divide a dataset over clients and write the partition to a file.

    `fedskew run METHOD --partition file --partition.path FILE` trains on it. Other options of `fedskew run` are
    accepted and ignored.
    """
    path = free(out)  # before the data are read
    say(make(experiment.federation(), path))


@partition.command(
    "show", cls=Command, missing="a file",
    lines=("fedskew partition show split.npz", "fedskew partition show split.npz --out pictures"),
)  # fmt: skip
@click.argument("file", required=False, metavar="FILE", type=FILE)
@click.option("--out", type=FOLDER, help="a folder for heatmap, histograms and pairs as .png")
@click.option("--json", "as_json", is_flag=True, help="print numbers as JSON instead of the table")
def _show(file: str, out: str | None, as_json: bool) -> None:
    """Show how skewed the partition in FILE is, or a matrix of counts (csv, npy)."""
    from fedskew.data import describe

    say(json.dumps(describe.describe(file), indent=1)) if as_json else show(describe.describe_table(file))
    if out is not None:
        files = [Path(out) / f"{name}.png" for name in ("heatmap", "histograms", "pairs")]
        draw(describe.counted(file), files, sys.stderr if as_json else sys.stdout)


@partition.command(
    "verify", cls=Beside, slots=("data",), fields="path", missing="a file",
    lines=("fedskew partition verify split.npz", "fedskew partition verify split.npz --data digits"),
)  # fmt: skip
@click.argument("file", required=False, metavar="FILE", type=FILE)
@click.option(
    "--match", metavar="NAME", type=Value(Match), default="dataset",
    help="dataset or labels: what must match",
)  # fmt: skip
def _verify(file: str, match: Match, experiment: Experiment | None) -> None:
    """Check that the partition in FILE is intact and, with --data, that it fits the dataset."""
    dataset = None if experiment is None else experiment.data.load(experiment.path)
    say(verify(file, dataset, match))
