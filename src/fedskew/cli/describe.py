"""``fedskew describe``: how skewed a federation is."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from fedskew.cli.composed import FileOrOptions
from fedskew.cli.output import say, show
from fedskew.cli.values import FILE

if TYPE_CHECKING:
    from fedskew.config.experiment import Experiment
    from fedskew.data.describe import Counted


EXAMPLES = (
    "fedskew describe --data digits --partition dirichlet --partition.alpha 0.1",
    "fedskew describe --partition shards --clients 20 --out shards.svg",
    "fedskew describe split.npz --json",
)


def source_of(file: str | None, experiment: Experiment | None) -> Any:
    """What is described: the FILE, or the federation that the options name."""
    if file is not None:
        return Path(file)
    assert experiment is not None
    return experiment.federation()


@click.command(cls=FileOrOptions, slots=("data", "partition"), fields="federation", lines=EXAMPLES)
@click.argument("file", required=False, metavar="[FILE]", type=FILE)
@click.option(
    "--out", metavar="PICTURE", type=FILE,
    help="a picture's file, .png, .svg or .pdf, next to which histograms and overlap are drawn  [default: no picture]",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="print numbers as JSON instead of the table")
def describe(file: str | None, out: str | None, as_json: bool, experiment: Experiment | None) -> None:
    """Show how skewed a federation is, as a table and, with --out, in three pictures.

    FILE is a partition (split.npz) or a matrix of counts, a row for each client (csv, npy). Without it, the
    options describe the federation. Other options of `fedskew run` are accepted and ignored.
    """
    import fedskew.data.describe as words
    from fedskew.config.flags import flagged
    from fedskew.plots import canvas

    path = canvas.target(out) if out else None
    source = source_of(file, experiment)
    found = words.counted(source)
    dataset = getattr(source, "dataset", None)
    notes = [flagged(note, experiment) for note in dataset.notes] if dataset else []
    if as_json:
        say(json.dumps({**words.describe(source), "notes": notes}, indent=1))
    else:
        show(words.describe_table(source))
        for note in notes:
            say(f"note: {note}")
    if path is not None:
        beside = [path.with_name(f"{path.stem}-{name}{path.suffix}") for name in ("histograms", "overlap")]
        draw(found, (path, *beside), sys.stderr if as_json else sys.stdout)
    elif not as_json:
        say("add `--out federation.png` to draw it")


def draw(found: Counted, files: Any, to: TextIO) -> None:
    """Write the three pictures, and say where they are."""
    from fedskew.plots import skew as skewplots

    drawn = skewplots.report(found.counts, files, title=found.title, class_names=found.class_names)
    for name, picture in zip(("heat map", "histograms", "overlap"), drawn, strict=True):
        say(f"{name}: {picture}", to)
