"""``fedskew plot``: pictures of recorded runs."""

from pathlib import Path

import click

from fedskew.cli.base import Command
from fedskew.cli.names import names
from fedskew.cli.output import say, show
from fedskew.cli.values import FILE, POSITIVE, RUN, Names
from fedskew.errors import ConfigError, unknown

EXAMPLES = (
    "fedskew plot runs",
    "fedskew plot runs/fedavg runs/mixed --out both.svg",
    "fedskew plot runs --smooth 10",
    "fedskew plot runs/fedavg --figure selection",
)
MISSING = "at least one run folder, or a folder that holds some"


@click.command(cls=Command, lines=EXAMPLES, missing=MISSING)
@click.argument("runs", nargs=-1, metavar="RUN [RUN ...]", type=RUN)
@click.option(
    "--figure", metavar="NAME", type=Names("figure"),
    help=f"a figure of docs/reference/diagnostics.md: {', '.join(names('figure'))}  [default: curves, with a table]",
)  # fmt: skip
@click.option(
    "--out", metavar="PICTURE", type=FILE,
    help="a picture's file, .png, .svg or .pdf  [default: in the folder of one RUN, else here]",
)  # fmt: skip
@click.option(
    "--smooth", type=POSITIVE, default=1,
    help="a whole number: evaluations to average in the curves; 1: none",
)  # fmt: skip
def plot(runs: tuple[str, ...], figure: str | None, out: str | None, smooth: int) -> None:
    """Compare runs in one picture and a table, or draw a figure of what --diagnose recorded.

    RUN is a run folder, a folder that holds some, or the folder of a study.
    """
    import fedskew.plots.rounds as rounds
    from fedskew.cli.compared import comparison_tables
    from fedskew.config.recorded import find_runs
    from fedskew.plots import canvas
    from fedskew.studies.packing import folders_of

    if figure is not None and figure not in rounds.FIGURES:
        raise unknown("figure", figure, rounds.FIGURES)
    folders = find_runs(folders_of(runs))
    name = "comparison.png" if figure is None else f"{figure}.png"
    target = Path(out) if out else (Path(runs[0]) if len(runs) == 1 else Path(".")) / name
    canvas.target(target)  # refused before anything is printed
    if smooth > 1 and figure not in (None, "curves"):
        raise ConfigError(f"--smooth must go with the curves, the default figure; got --figure {figure}")
    if figure is None:
        for part in comparison_tables(folders):
            show(part)
    say(f"picture: {rounds.draw(figure or 'curves', folders, target, smooth)}")
