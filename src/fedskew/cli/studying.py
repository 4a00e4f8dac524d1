"""What commands that train have alike: trackers; where a study's runs are, what is missing, and doing it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedskew.cli.base import decorated
from fedskew.cli.composed import WithRunOptions
from fedskew.cli.interrupt import INTERRUPTED
from fedskew.cli.output import note, say, show
from fedskew.cli.tables import clients_tables, study_tables
from fedskew.cli.values import FILE, FOLDER, POSITIVE
from fedskew.config.words import Pair
from fedskew.errors import ConfigError, FedskewError, json_file, plural, require, some
from fedskew.track import TRACKERS, Named, named

if TYPE_CHECKING:
    from fedskew.studies.study import Study


track_options = decorated(
    click.option(
        "--track", metavar="NAME,...",
        help=f"trackers that follow every round: {', '.join(TRACKERS)}",
    ),
    click.option("--track.folder", "track_folder", type=FOLDER, help="a folder for their files  [default: track]"),
)  # fmt: skip


def trackers(listed: str | None, folder: str | None) -> Named | None:
    """What the options name. Raises ConfigError for an unknown name, and where a package is missing."""
    if listed is None:
        if folder is not None:
            raise ConfigError("--track.folder must go with --track")
        return None
    return named(listed, folder)


class Optioned(WithRunOptions):
    """A command whose options of ``run`` are those of many runs: they are set aside as they are typed."""

    def about(self) -> str:
        """What is said of the options of ``run``."""
        return "Every option of `fedskew run` is accepted (`fedskew run METHOD --help` lists them)."

    def take(self, ctx: click.Context, positional: list[str], flags: list[Pair]) -> None:
        """Set the options of the runs aside."""
        ctx.params["options"] = [(flag[2:], value) for flag, value in flags if flag not in self.own_options]

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
            help="archives of `fedskew study archive`, whose runs are not computed again, or none; "
            f"a note says which are used  [default: {archives}, if it exists]",
        ),
        click.option(
            "--processes", type=POSITIVE,
            help="worker processes, one thread each  [default: one per core; on a GPU 4]",
        ),
        click.option("--dry-run", is_flag=True, help="only print which runs are missing and what they cost"),
    )  # fmt: skip


def store_of(given: str | None) -> str:
    """The folder of the store."""
    return given or os.environ.get("FEDSKEW_STORE") or "runs/store"


def print_plan(study: Study, processes: int) -> int:
    """Say how much is missing."""
    from fedskew.report.entries import alike
    from fedskew.studies.pool import workers_of
    from fedskew.studies.progress import duration
    from fedskew.studies.study import cost_of

    plan, trials = study.plan(), study.trials()
    refused = [p for p in plan if p.cell.experiment is None]
    refusals = dict[str, dict[str, list[int]]]()
    for cell in (planned.cell for planned in refused):
        places = refusals.setdefault(f"refused: {cell.refused}", {})
        places.setdefault(f"{cell.label}, {cell.setting}", []).append(cell.seed)
    for reason, places in refusals.items():
        say(alike(reason, places))
    if trials:
        say(f"tuning: {len(trials)} trials, {len(study.missing(trials))} of them missing")
    wanted = study.missing(plan)
    missing, unfitted = len(wanted), sum(bool(planned.before and planned.entry(study.store)) for planned in wanted)
    waiting = {planned.address for planned in wanted}
    duplicates = sum(planned.cell.experiment is not None and planned.address in waiting for planned in plan) - missing
    finished = len(plan) - missing - duplicates - len(refused)
    say(
        f"{len(plan)} runs: {finished} done, {missing} missing, {len(refused)} refused"
        + (f"; {duplicates} the same as others" if duplicates else "")
    )
    if unfitted:
        say(f"{unfitted} of the missing runs are stored without the fits of --fit-logits")
    if missing or study.missing(trials):
        devices = {planned.cell.experiment.device for planned in wanted if planned.cell.experiment}
        cost, cores = cost_of(study), processes or workers_of(devices)
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
    tracking: Named | None = None, under_controls: bool = False, by: str | None = None,
) -> int:  # fmt: skip
    """Do the study and print its tables, `study_tables`; exit code 1 where a run broke."""

    if out:
        _check_free(out, study)
    lost = work_off(study, processes, part, retry, tracking)
    if lost is None:
        return INTERRUPTED
    for table in (*study_tables(study, under_controls), *clients_tables(study, by == "client")):
        show(table)
    for line in lost:
        say(line, sys.stderr)
    if out:
        say(f"study: {study.save(Path(out), command)}")
        _page(Path(out))
    return int(bool(lost))


def work_off(
    study: Study, processes: int, part: tuple[int, int] = (1, 1), retry: bool = False,
    tracking: Named | None = None,
) -> list[str] | None:  # fmt: skip
    """Do the missing runs of a study; a line for each that broke, or None where somebody interrupts."""
    from fedskew.report.entries import alike
    from fedskew.studies.progress import StudyProgress

    if retry:
        study.retry()
    todo = study.missing([*study.trials(), *study.plan()])
    stored = len({p.address for p in study.plan() if p.address} - {p.address for p in todo})
    if stored and (todo or tracking):
        others = "; trackers follow only the others" if tracking else ""
        note(f"{plural(stored, 'run')} reused from the store {study.store.folder}{others}")
    try:
        with StudyProgress(study, len(todo[part[0] - 1 :: part[1]]), lambda line: say(line, sys.stderr)) as progress:
            study.run(processes, part, on_end=progress.ended, track=tracking)
    except KeyboardInterrupt:
        say("interrupted; the same command continues", sys.stderr)
        return None
    if not todo and all(planned.address for planned in study.plan()):  # what is refused has none
        say(f"nothing to do: every run is in the store {study.store.folder}")
    again = "; the same command tries again"
    return [f"fedskew: {alike(f'not finished: {why}', at)}{again}" for why, at in progress.unfinished.items()]


def _check_free(folder: str, study: Study) -> None:
    """Raise ConfigError where a folder holds the table of a study with runs that this one lacks."""
    try:
        labels = {run["address"]: run["label"] for run in json_file(Path(folder) / "study.json")["runs"]}
    except (OSError, ValueError, KeyError, TypeError):
        return
    lost = labels.keys() - {p.address for p in study.plan()} - {""}
    message = f"it holds a study of {plural(len(labels), 'run')} of {some(sorted(set(labels.values())))}"
    require(not lost, "--out", "be a new folder, or that of this study", folder, message)


def _page(folder: Path) -> None:
    """Write the report of a study beside it; a line where it cannot be."""
    from fedskew.report import paper
    from fedskew.report.entries import of_study

    try:
        entries, asked = of_study(folder)
        for line in paper.write(entries, folder / "report.html", **asked):
            say(line)
    except FedskewError as error:  # the package may be missing, or nothing has come to an end yet
        note(f"no report: {error}")
