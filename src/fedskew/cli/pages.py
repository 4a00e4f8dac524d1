"""``fedskew plot`` and ``report``: recorded runs as pictures, and as one page."""

from pathlib import Path
from typing import Any

import click

from fedskew.cli.base import Command
from fedskew.cli.output import say, show
from fedskew.cli.values import FILE, FOLDER, RUN
from fedskew.plots import FIGURES


@click.command(
    cls=Command,
    lines=(
        "fedskew plot runs",
        "fedskew plot runs/fedavg runs/mixed --out both.svg",
        "fedskew plot runs/fedavg --figure selection",
    ),
    missing="at least one run folder, or a folder that holds some",
)
@click.argument("runs", nargs=-1, metavar="RUN [RUN ...]", type=RUN)
@click.option(
    "--figure", metavar="NAME",
    help=f"a figure of docs/reference/diagnostics.md: {', '.join(FIGURES)}  [default: curves, with a table]",
)  # fmt: skip
@click.option(
    "--out", metavar="PICTURE", type=FILE,
    help="a picture's file, .png, .svg or .pdf  [default: in the folder of one RUN, else here]",
)  # fmt: skip
def plot(runs: tuple[str, ...], figure: str | None, out: str | None) -> None:
    """Compare runs in one picture and a table, or draw a figure of what --diagnose recorded.

    RUN is a run folder, a folder that holds some, or the folder of a study.
    """
    import fedskew.plots.rounds as rounds
    from fedskew.cli.tables import comparison_tables
    from fedskew.config.recorded import find_runs
    from fedskew.plots import canvas
    from fedskew.studies.archiving import folders_of

    folders = find_runs(folders_of(runs))
    name = "comparison.png" if figure is None else f"{figure}.png"
    target = Path(out) if out else (Path(runs[0]) if len(runs) == 1 else Path(".")) / name
    canvas.target(target)  # refused before anything is printed
    if figure is None:
        for part in comparison_tables(folders):
            show(part)
    say(f"picture: {canvas.save(rounds.draw(figure or 'curves', folders), target)}")


@click.command(
    cls=Command,
    lines=(
        "fedskew report runs",
        "fedskew report runs --metric macro_f1 --title 'My methods' --out macro.html",
        "fedskew report runs --tables tables",
    ),
    missing="at least one run folder, or a folder that holds some",
)
@click.argument("runs", nargs=-1, metavar="RUN [RUN ...]", type=RUN)
@click.option("--out", metavar="PAGE", type=FILE, default="report.html", help="the page's file")
@click.option("--title", metavar="WORDS", help="title of the page  [default: the methods]")
@click.option(
    "--metric", metavar="NAME",
    help="a metric of the rounds, compared by its mean over the last 10, or a number of the summary, as final_accuracy"
    "  [default: the study's, else accuracy]",
)  # fmt: skip
@click.option(
    "--baseline", metavar="METHOD", help="the method that others are compared with  [default: fedavg, else the first]",
)  # fmt: skip
@click.option(
    "--targets", metavar="NUMBERS",
    help="values of the metric whose cost is shown, such as 0.5,0.8  [default: 50, 75 and 90 % of the best]",
)  # fmt: skip
@click.option("--tables", type=FOLDER, help="a folder for every table as CSV and LaTeX  [default: none]")
@click.option(
    "--figures", type=FOLDER,
    help="a folder for every figure as PDF and SVG; needs the extra plot  [default: none]",
)  # fmt: skip
def report(
    runs: tuple[str, ...],
    out: str,
    title: str | None,
    metric: str | None,
    baseline: str | None,
    targets: str | None,
    tables: str | None,
    figures: str | None,
) -> None:
    """Compare runs in one page: verdict, tables with intervals, curves, classes, cost, federation and configuration.

    RUN is a run folder, a folder that holds some, or the folder of a study. The page opens in any browser, without a
    network.
    """
    from fedskew.report import paper
    from fedskew.report.entries import from_folders, of_study
    from fedskew.report.reached import targets_of

    given: dict[str, Any] = {"title": title, "metric": metric, "baseline": baseline}
    asked = {name: value for name, value in given.items() if value}
    if targets:
        asked["targets"] = targets_of(targets)
    if len(runs) == 1 and (Path(runs[0]) / "study.json").is_file():
        entries, facts = of_study(runs[0])
        asked = {**facts, **asked}
    else:
        entries = from_folders(runs)
    for line in paper.write(entries, out, tables, figures, **asked):
        say(line)
