"""``fedskew arbitrate``: a printed table of anybody run again, and which readings give its numbers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedskew.cli.base import Command
from fedskew.cli.interrupt import INTERRUPTED
from fedskew.cli.output import grid, say, show
from fedskew.cli.reproduce import lent, part_of, part_options
from fedskew.cli.studying import print_plan, work_off
from fedskew.cli.values import Names

if TYPE_CHECKING:
    from fedskew.studies.spec import Spec
    from fedskew.studies.study import Study


EXAMPLES = (
    "fedskew arbitrate niid-bench-mnist --scale smoke --dry-run",
    "fedskew arbitrate niid-bench-mnist --scale smoke --out arbiter",
)


@click.command(cls=Command, lines=EXAMPLES, missing="a table: TABLE.toml, or a name that `fedskew reproduce` lists")
@click.argument("name", required=False, metavar="TABLE.toml | NAME", type=Names("protocol"))
@part_options("paper", "paper: the full protocol; small: reduced, where the table has it; smoke: seconds, on digits")
def arbitrate(name: str, scale: str, seeds: str | None, out: str | None, store: str | None, **given: Any) -> int:
    """Judge each cell of a printed table, and search for what makes those that differ.

    A cell is run as stated. One that differs is run again under each reading of the settings that the table leaves
    open, then under pairs of them. --out is a folder for cells.csv and page.md. You can stop the command; the same
    command continues.
    """
    from fedskew.papers import protocol
    from fedskew.papers.arbiter import Search, arbitrate, cells_of, page, sheet
    from fedskew.records.files import write_atomic

    table = protocol(name)
    spec, _ = part_of(table, scale, seeds, given)
    search = Search(table, spec)
    asked = {number: [()] for number in search.numbers() if number.kind != "no data"}
    if given["dry_run"]:
        say("as stated:")
        print_plan(lent(search.part(asked), store, given), given["processes"] or 0)
        say("with each other reading, if all cells differ:")
        every = {number: [(), *search.singles(number)] for number in asked}
        return print_plan(lent(search.part(every), store, given), given["processes"] or 0)
    lost = list[str]()
    if out:
        Path(out).mkdir(parents=True, exist_ok=True)  # a mistake is told before hours of runs

    def work(part: Spec) -> Study:
        study = lent(part, store, given)
        ended = work_off(study, given["processes"] or 0, retry=given["retry"])
        if ended is None:
            raise click.exceptions.Exit(INTERRUPTED)
        lost.extend(ended)
        return study

    cases = arbitrate(table, spec, work)
    heads = ("setting", "method", "metric", "printed", "ours less printed", "seeds", "verdict", "cause")
    show(grid(heads, map(cells_of, cases)))
    if out:
        for file, text in (("cells.csv", sheet(cases)), ("page.md", page(table, scale, cases))):
            write_atomic(Path(out) / file, text.encode())
            say(f"written: {Path(out) / file}")
    for line in lost:
        say(line, sys.stderr)
    return int(bool(lost))
