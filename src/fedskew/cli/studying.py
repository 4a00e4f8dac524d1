"""What `fedskew compare` and `fedskew reproduce` share: where a study's runs are, what is missing, and doing it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedskew.cli.base import Command, decorated
from fedskew.cli.interrupt import INTERRUPTED
from fedskew.cli.output import say, show
from fedskew.cli.values import FILE, FOLDER, POSITIVE
from fedskew.config.words import Pair
from fedskew.errors import FedskewError, json_file, plural, require, some

if TYPE_CHECKING:
    from fedskew.studies.study import Study
    from fedskew.track import Named


class Optioned(Command):
    """A command with its own options, and every option of ``run`` beside them."""

    def about(self) -> str:
        """What is said of the options of ``run``."""
        return "Every option of `fedskew run` is accepted (`fedskew run METHOD --help` lists them)."

    def take(self, ctx: click.Context, positional: list[str], flags: list[Pair]) -> None:
        """Set the options of the runs aside."""
        ctx.params["options"] = [(flag[2:], value) for flag, value in flags if flag not in self.own]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Where the options of the runs are explained."""
        super().format_options(ctx, formatter)
        with formatter.section("Options of the runs"):
            formatter.write_text(self.about())


def store_options(archives: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options for a command's function; ``archives`` is where archives are found without being named."""
    return decorated(
        click.option("--out", type=FOLDER, help="a folder for study.json, the tables and the report  [unset: none]"),
        click.option(
            "--store", type=FOLDER,
            help="folder of the runs; studies can share it  "
            "[default: FEDSKEW_STORE, else runs/store]",
        ),
        click.option(
            "--archives", metavar="FOLDER", type=FILE,
            help="archives of `fedskew study archive`, whose runs are not computed "
            f"again  [default: {archives}, if it exists]",
        ),
        click.option("--processes", type=POSITIVE, help="worker processes, one thread each  [default: one per core]"),
        click.option("--dry-run", is_flag=True, help="only print which runs are missing and what they cost"),
    )  # fmt: skip


def store_of(given: str | None) -> str:
    """The folder of the store."""
    return given or os.environ.get("FEDSKEW_STORE") or "runs/store"


def print_plan(study: Study, processes: int) -> int:
    """Say how much is missing."""
    from fedskew.cli.compared import duration
    from fedskew.engines.runtime import Workers
    from fedskew.studies.study import cost_of

    trials, plan = study.trials(), study.plan()
    refused = [p for p in plan if p.cell.experiment is None]
    for one in refused[:20]:
        say(f"refused: {one.cell.label}, {one.cell.setting}: {one.cell.refused}")
    if trials:
        say(f"tuning: {len(trials)} trials, {len(study.missing(trials))} of them missing")
    wanted = study.missing()
    missing, unfitted = len(wanted), sum(bool(one.before and one.entry(study.store)) for one in wanted)
    there = sum(study.is_done(one) for one in plan)
    twice = len(plan) - missing - len(refused) - there
    say(
        f"{len(plan)} runs: {there} done, {missing} missing, {len(refused)} refused"
        + (f"; {twice} the same as others" if twice else "")
    )
    if unfitted:
        say(f"{unfitted} of the missing runs are stored without the fits of --fit-logits")
    if missing or study.missing(trials):
        cost, cores = cost_of(study), processes or Workers.cores()
        hours = f"{cost.seconds / 3600:.3g} core-hours"
        if cost.unknown < cost.runs:
            say(f"about {duration(cost.seconds / cores)} with {cores} processes, {hours} in all")
        if cost.unknown:
            say(f"the time of {plural(cost.unknown, 'run')} is not known: no finished run is like them")
    else:
        say("nothing to do")
    return 0


def run_study(
    study: Study, processes: int, part: tuple[int, int], retry: bool, out: str | None, command: str,
    tracking: Named | None = None, cluster: str | None = None, fitted: bool = False, by: str | None = None,
) -> int:  # fmt: skip
    """Do the study and print its table, with ``fitted`` that of fitted models too; exit code 1 where a run broke."""
    from fedskew.cli.compared import clients_tables, study_tables

    if out:
        _check_free(out, study)
    lost = work_off(study, processes, part, retry, tracking, cluster)
    if lost is None:
        return INTERRUPTED
    for table in (*study_tables(study, fitted), *clients_tables(study, by == "client")):
        show(table)
    for line in lost:
        say(line, sys.stderr)
    if out:
        say(f"study: {study.save(Path(out), command)}")
        _page(Path(out))
    return int(bool(lost))


def work_off(
    study: Study, processes: int, part: tuple[int, int] = (1, 1), retry: bool = False,
    tracking: Named | None = None, cluster: str | None = None,
) -> list[str] | None:  # fmt: skip
    """Do the missing runs of a study; a line for each that broke, or None where somebody interrupts."""
    from fedskew.cli.compared import StudyProgress

    if retry:
        study.retry()
    todo = study.missing([*study.trials(), *study.plan()])
    if tracking and (before := len({p.address for p in study.plan() if p.address} - {p.address for p in todo})):
        say(f"fedskew: note: {before} of the runs are stored already; trackers follow only the others", sys.stderr)
    progress = StudyProgress(study, len(todo[part[0] - 1 :: part[1]]))
    try:
        study.run(processes, part, told=progress.ended, track=tracking, cluster=cluster)
    except KeyboardInterrupt:
        say("interrupted; the same command continues", sys.stderr)
        return None
    if not todo:
        say("nothing to do: every run is in the store")
    return progress.lost


def _check_free(folder: str, study: Study) -> None:
    """Raise ConfigError where a folder holds the table of a study with runs that this one lacks."""
    try:
        held = {run["address"]: run["label"] for run in json_file(Path(folder) / "study.json")["runs"]}
    except (OSError, ValueError, KeyError, TypeError):
        return
    lost = held.keys() - {p.address for p in study.plan()} - {""}
    told = f"it holds a study of {plural(len(held), 'run')} of {some(sorted(set(held.values())))}"
    require(not lost, "--out", "be a new folder, or that of this study", folder, told)


def _page(folder: Path) -> None:
    """Write the report of a study beside it; a line where it cannot be."""
    from fedskew.report import paper
    from fedskew.report.studied import of_study

    try:
        entries, asked = of_study(folder)
        for line in paper.write(entries, folder / "report.html", **asked):
            say(line)
    except FedskewError as error:  # the package may be missing, or nothing has come to an end yet
        say(f"fedskew: note: no report: {error}", sys.stderr)
