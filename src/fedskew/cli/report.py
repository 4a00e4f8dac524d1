"""``fedskew report``: a comparison of runs as one page."""

from pathlib import Path
from typing import Any

import click

from fedskew.cli.base import Command
from fedskew.cli.output import say
from fedskew.cli.values import FILE, FOLDER, RUN

EXAMPLES = (
    "fedskew report runs",
    "fedskew report runs --metric macro_f1 --title 'My methods' --out macro.html",
    "fedskew report runs --tables tables",
)
MISSING = "at least one run folder, or a folder that holds some"


@click.command(cls=Command, lines=EXAMPLES, missing=MISSING)
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
    from fedskew.report.entries import from_folders
    from fedskew.report.reached import targets_of
    from fedskew.report.studied import of_study

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
