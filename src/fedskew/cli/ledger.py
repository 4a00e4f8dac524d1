"""``fedskew ledger``: every number that the five papers and a third party printed, with ours beside it."""

import sys
from pathlib import Path

import click

from fedskew.cli.base import Command
from fedskew.cli.output import grid, say, show
from fedskew.cli.reproduce import beside
from fedskew.cli.values import FOLDER
from fedskew.errors import require, unknown

EXAMPLES = ("fedskew ledger", "fedskew ledger --paper FedGA")


@click.command(cls=Command, lines=EXAMPLES)
@click.option(
    "--paper", metavar="NAME", help="only the numbers of this paper: FedBal, FedGA, Seol-Kim, FedGR, FedLA or Flower"
)
@click.option(
    "--archives", type=FOLDER,
    help="archives of `fedskew study archive`  [default: results/papers]",
)  # fmt: skip
def ledger(paper: str | None, archives: str | None) -> None:
    """Count how many of the papers' 1039 printed numbers agree with our runs.

    The 60 numbers of Flower's NIID-Bench baseline, a third party, are listed below them.

    A number agrees if its gain over the reference method of its table agrees: the 90 % interval of our gain (paired by
    seed) minus the printed gain is within one point, or, for rounds and rows, the ratio is within a tenth. It differs
    if the interval is outside, and is not resolved in between. There is no verdict below five seeds.
    """
    from fedskew.papers import HERE, PAPERS, STATES, THIRD, TOTAL, Runs, coverage
    from fedskew.papers import ledger as every

    if paper is not None and paper not in PAPERS:
        raise unknown("paper", paper, PAPERS)
    folder = Path(archives or HERE)
    require(not archives or folder.is_dir(), "archives", "be a folder", archives)
    if not folder.is_dir():
        say(f"fedskew: note: no runs are read: {folder} does not exist; --archives names another folder", sys.stderr)
    rows = every(Runs.of(folder) if folder.is_dir() else Runs(()))
    papers = coverage(rows)
    states = {paper: [str(sum(row.state == s for row in of) or "") for s in STATES] for paper, of in papers.items()}
    table = grid(("paper", *STATES, "all"), ((paper, *states[paper], str(len(of))) for paper, of in papers.items()))
    table.columns[0].no_wrap = table.columns[-1].no_wrap = True  # the states fold in a narrow terminal
    show(table)
    for name in (TOTAL, *THIRD):
        ours = [row for row in papers[name] if row.ours is not None]
        full = sum(row.scale == "paper" for row in ours)
        say(f"{name}: {len(ours)} with our number, {full} of them at the scale of the paper")
    mine = [row for row in rows if row.number.paper == paper and row.ours is not None]
    if mine:
        show(beside(mine))
    elif paper is not None:
        say(f"no number of {paper} was run")
