"""``fedskew rehearse``: what a consortium can expect, from its class counts, before it starts."""

from __future__ import annotations

import dataclasses
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import click

from fedskew.cli.interrupt import INTERRUPTED
from fedskew.cli.output import say, show, table_of
from fedskew.cli.studying import Optioned, store_of, work_off
from fedskew.cli.values import FILE, FOLDER, POSITIVE, Value
from fedskew.config.words import Pair
from fedskew.errors import plural, require
from fedskew.fields import Above

if TYPE_CHECKING:
    from fedskew.studies.rehearsal import Rehearsal


EXAMPLES = (
    "fedskew rehearse sites.csv --rounds 20 --model logistic",
    "fedskew rehearse sites.csv scaffold --data adult --deadline 60 --vary none",
    "fedskew rehearse sites.csv --stand-ins 5 --seeds 0-4 --vary all --out app",
)
SECONDS = Value(Annotated[float, Above(0)])


class RehearseCommand(Optioned):
    """Its options, and what --data takes."""

    def about(self) -> str:
        """That --data names the stand-ins."""
        from fedskew.studies.rehearsal import PANELS

        panels = "; ".join(f"up to {most} classes {', '.join(names)}" for most, names in PANELS.items())
        return (
            f"{super().about()} --data names stand-in datasets between commas; unset, the first at hand of: {panels}. "
            "The partition is that of the counts."
        )

    def flags(self) -> set[str]:
        """Those of the runs that are not free, too."""
        from fedskew.studies.rehearsal import SET

        return {*super().flags(), "--data", *(f"--{name}" for name in SET)}


@click.command(cls=RehearseCommand, lines=EXAMPLES, missing="a file of counts")
@click.argument("counts", required=False, metavar="COUNTS.csv", type=FILE)
@click.argument("method", required=False, metavar="[METHOD]")
@click.option("--seeds", metavar="NUMBERS", default="0-1", help="seeds of every run, such as 0-4 or 0,3,7")
@click.option("--stand-ins", type=POSITIVE, help="stand-in datasets, where --data names none  [default: 5]")
@click.option("--deadline", type=SECONDS, help="seconds after which a round goes on without a site  [unset: none]")
@click.option("--parameters", type=POSITIVE, help="parameters of your network  [unset: those of the stand-in's]")
@click.option(
    "--vary", metavar="SITES", default="none",
    help="sites to try without, and with fewer cases, one at a time: names separated by commas, all or none",
)  # fmt: skip
@click.option("--store", type=FOLDER, help="folder of the runs  [default: FEDSKEW_STORE, else runs/store]")
@click.option("--processes", type=POSITIVE, help="worker processes, one thread each  [default: one per core]")
@click.option("--dry-run", is_flag=True, help="only print which runs are missing and what they cost")
@click.option("--json", "as_json", is_flag=True, help="print everything as JSON")
@click.option("--out", type=FOLDER, help="a folder for the app of `fedskew flower init`  [unset: none is written]")
def rehearse(counts: str, method: str | None, options: list[Pair], as_json: bool, **given: Any) -> int:
    """Show what a consortium can expect before it starts: results of each site, wall time, bytes.

    COUNTS.csv has a line of names and a line for each site: a column of cases for each class and, optionally, site,
    failure (probability that it misses a round), up and down (Mbit/s), and step_s (seconds of a local step) or speed
    (as a multiple of this machine's). Each site's cases are drawn from stand-in datasets; runs are kept and continued.
    """
    from fedskew.data.counts import read_consortium
    from fedskew.engines.runtime import Workers
    from fedskew.report.rehearsed import rehearsed
    from fedskew.studies.arguments import seeds_of
    from fedskew.studies.progress import duration
    from fedskew.studies.rehearsal import Rehearsal
    from fedskew.studies.study import Study

    asked = {"varied": given["vary"], "used": given["stand_ins"], **{n: given[n] for n in ("deadline", "parameters")}}
    consortium, seeds = read_consortium(counts), seeds_of(given["seeds"])
    rehearsal = Rehearsal(consortium, method or "fedavg", tuple(options), seeds, **asked)
    store, app = store_of(given["store"]), Path(given["out"] or "")
    require(not (app / "pyproject.toml").exists() or not given["out"], "out", "name a folder without an app", app)
    studies = [Study(spec, store) for spec in filter(None, rehearsal.studies)]
    cores = given["processes"] or Workers.cores()
    runs, missing = (sum(map(len, each)) for each in zip(*((s.plan(), s.missing()) for s in studies), strict=True))
    if missing or given["dry_run"]:
        names = ", ".join(standin.name for standin in rehearsal.standins)
        length = duration(rehearsal.seconds(studies) / cores)
        plan = f"{names}: {plural(runs, 'run')}: {runs - missing} done, {missing} missing"
        plan += f", about {length} on {plural(cores, 'core')}" * bool(missing)
        say(plan, sys.stdout if given["dry_run"] else sys.stderr)
    if given["dry_run"]:
        return 0
    expected = rehearsal.done(studies, lambda study: not study.missing() or work_off(study, cores) is not None)
    if expected is None:
        return INTERRUPTED
    if as_json:
        say(json.dumps(expected, indent=1, default=dataclasses.asdict))
    else:
        for table in rehearsed(expected):
            show(table_of(table))
        for line in expected["unknown"]:
            say(f"not known: {line}")
        if not rehearsal.sites:
            say("--vary all also tries every site away, and with fewer cases")
    if given["out"]:
        _write_app(rehearsal, app, sys.stderr if as_json else sys.stdout)
    return 0


def _write_app(rehearsal: Rehearsal, app: Path, stream: TextIO) -> None:
    """The app that `fedskew flower init` writes with the options of the rehearsal and the first stand-in."""
    from fedskew.cli.flower import init
    from fedskew.records.sheets import csv_text
    from fedskew.studies.arguments import entry_of, words_of

    entry, standin = entry_of(rehearsal.method), rehearsal.standins[0]
    app.mkdir(parents=True, exist_ok=True)
    file = app.resolve() / "counts.csv"
    file.write_text(csv_text([rehearsal.consortium.classes, *standin.counts.tolist()]), encoding="utf-8")
    of_counts = ("partition", "counts"), ("partition.path", str(file))
    words = words_of((*entry.options, *rehearsal.common, *standin.options, *of_counts))
    with redirect_stdout(stream), init.make_context("init", [str(entry.method), *words, "--out", str(app)]) as context:
        init.invoke(context)
        yours = f"fedskew flower init {entry.method} --own-data --data ..."
        say(f"its nodes hold rows of {standin.name}; for yours: {yours}")
