"""``fedskew reproduce``, ``ledger``, ``arbitrate`` and ``portions``: printed tables again, and our numbers."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedskew.cli.seam import (
    FOLDER,
    INTERRUPTED,
    Command,
    decorated,
    grid,
    print_plan,
    run_study,
    say,
    say_reused,
    show,
    store_of,
    store_options,
    work_off,
)
from fedskew.errors import ConfigError, FieldError, require
from fedskew_papers import names

if TYPE_CHECKING:
    from fedskew.seam import Spec, Study
    from fedskew_papers.arbiter import Case
    from fedskew_papers.rows import Row
    from fedskew_papers.tables import Protocol


machine_options = decorated(
    click.option("--device", metavar="NAME", help="where to run: cpu, cuda  [default: cpu]"),
    click.option(
        "--precision", metavar="NAME", help="precision of products: float32, tf32, bfloat16  [default: float32]"
    ),
)


def part_options(scale: str, help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options for a command that runs a table or a part of it, at a scale unless another is named."""
    return decorated(
        click.option("--scale", metavar="NAME", default=scale, help=help),
        click.option("--seeds", metavar="NUMBERS", help="seeds, such as 0-4  [default: those of the scale]"),
        click.option(
            "--methods", metavar="NAMES", help="only these methods of the table, between semicolons  [default: all]"
        ),
        click.option("--settings", metavar="NAMES", help="only these settings, between semicolons  [default: all]"),
        machine_options,
        click.option("--retry", is_flag=True, help="repeat runs that were refused or failed"),
        store_options("results/papers"),
    )  # fmt: skip


@click.command(
    cls=Command,
    lines=(
        "fedskew reproduce",
        "fedskew reproduce fedga-table1-mnist --scale small --dry-run",
        "fedskew reproduce fedga-table1-mnist --scale smoke",
    ),
)
@click.argument("name", required=False, metavar="[NAME]")
@part_options("small", "smoke: seconds, on digits; small: reduced, as listed; paper: the full protocol")
def reproduce(name: str | None, scale: str, seeds: str | None, out: str | None, store: str | None, **given: Any) -> int:
    """Repeat a table or figure of the five papers, with our numbers beside the printed ones.

    This includes the tables of third parties, Flower's NIID-Bench baseline and FedBench.

    Without a NAME, the studies are listed. You can stop the command; the same command continues. `fedskew ledger` shows
    all printed numbers.
    """
    from fedskew_papers.rows import rows_of
    from fedskew_papers.runs import Runs
    from fedskew_papers.tables import protocol

    if name is None:
        _check_list(scale, **{"seeds": seeds, "out": out, **given})
        tables = {each: protocol(each) for each in names()}
        lines = ((each, table.title, str(len(table.numbers()) or "")) for each, table in tables.items())
        show(grid(("name", "what", "printed numbers"), lines))
        return 0
    table = protocol(name)
    spec, words = part_of(table, scale, seeds, given)
    study = archived_study(spec, store, given)
    study.plan()  # a mistake is told before what would be run
    say(f"{table.titled(scale)}: {table.reading}")
    if reduced := table.reduced(scale):
        say(f"reduced: {reduced}")
    if given["dry_run"]:
        return print_plan(study, given["processes"] or 0)
    command = shlex.join(["fedskew", "reproduce", name, "--scale", scale, *words])
    code = run_study(study, given["processes"] or 0, (1, 1), given["retry"], out, command)
    if scale != "smoke":
        runs = Runs(entry for _, entry in study.entries() if entry is not None)
        rows = [row for row in rows_of(table, scale, runs, study.spec.seeds) if row.ours is not None]
        if rows:
            show(beside(rows))
    return code


def part_of(table: Protocol, scale: str, seeds: str | None, given: Mapping[str, Any]) -> tuple[Spec, list[str]]:
    """What the options of `part_options` choose of a table, and their words. Raises ConfigError."""
    from dataclasses import replace

    from fedskew.seam import seeds_of, words_of
    from fedskew_papers.tables import Scale, scaled

    # machine and precision change no number's meaning: a run answers a protocol however it was run
    how = tuple((option, given[option]) for option in ("device", "precision") if given[option])
    part = tuple((option, given[option]) for option in ("methods", "settings") if given[option] is not None)
    methods, settings = (_listed(option, given[option]) for option in ("methods", "settings"))
    spec = table.at(scale)
    spec = scaled(spec, Scale(how, settings=settings, methods=methods)) if how or part else spec
    if given["device"]:
        _check_device(given["device"], there=not given["dry_run"])
    spec = replace(spec, seeds=seeds_of(seeds)) if seeds else spec
    return spec, words_of([*([("seeds", seeds)] if seeds else []), *part, *how])


def archived_study(spec: Spec, store: str | None, given: Mapping[str, Any]) -> Study:
    """A study that finds the runs of archives."""
    from fedskew.seam import Study, reuse_archived
    from fedskew_papers.runs import RESULTS

    study = Study(spec, store_of(store))
    archives = given["archives"] or (str(RESULTS) if RESULTS.is_dir() else None)
    reuse_archived(study, archives, not given["dry_run"], say_reused)
    return study


def _listed(option: str, names: str | None) -> tuple[str, ...]:
    """Names between semicolons; they may hold commas. Raises ConfigError where there is none."""
    listed = tuple(name for part in (names or "").split(";") if (name := part.strip()))
    require(names is None or bool(listed), option, "name at least one, between semicolons", names)
    return listed


def _check_device(name: str, there: bool) -> None:
    """Raise ConfigError for a device that is none, or that is not there when it is needed."""
    from fedskew.seam import check_device

    try:
        check_device(name)
    except FieldError as error:
        if there or "at hand" not in str(error):
            raise ConfigError(str(error).replace("Settings.device", "--device")) from None


def _check_list(scale: str, **of_one: object) -> None:
    """Raise ConfigError for a scale that there is not, and for options that mean nothing without a NAME."""
    from fedskew.seam import check_names
    from fedskew_papers.tables import SCALES

    check_names("scale", [scale], SCALES)
    for option, value in of_one.items():
        hint = "without one, studies are listed"
        require(not value, option.replace("_", "-"), "be used with the NAME of a study", str(value), hint)


def beside(rows: list[Row]) -> Any:
    """A table of printed numbers and ours; below five seeds a gain has no verdict."""
    lines = []
    for row in rows:
        n = row.number
        printed, ours, span, seeds = row.texts
        between = f"\n({span})" if span else ""
        gain = "{1} ({0}) ".format(*row.gain.texts) if row.gain is not None else ""
        judged = gain + (row.state if row.judged else "")
        lines.append((n.setting, n.method, n.metric, judged, printed, f"{ours}{between}", seeds))
    heads = ("setting", "method", "metric", "gain (printed)", "printed", "ours, interval", "seeds")
    return grid(heads, lines, words=4)


@click.command(cls=Command, lines=("fedskew ledger", "fedskew ledger --paper FedGA"))
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
    if the interval is outside, and is not resolved in between, or within the printed spread where that alone is too
    wide to agree. There is no verdict below five seeds.
    """
    from fedskew.seam import check_names
    from fedskew_papers.printed import PAPERS, THIRD
    from fedskew_papers.rows import STATES, TOTAL, coverage
    from fedskew_papers.rows import ledger as every
    from fedskew_papers.runs import RESULTS, Runs

    check_names("paper", filter(None, [paper]), PAPERS)
    folder = Path(archives or RESULTS)
    require(not archives or folder.is_dir(), "archives", "be a folder", archives)
    if not folder.is_dir():
        say(f"fedskew: note: no runs are read: {folder} does not exist; --archives names another folder", sys.stderr)
    rows = every(Runs.of(folder) if folder.is_dir() else Runs(()))
    papers = coverage(rows)
    states = {paper: [str(sum(row.state == s for row in of) or "") for s in STATES] for paper, of in papers.items()}
    lines = ((paper, *states[paper], str(len(of))) for paper, of in papers.items())
    show(grid(("paper", *STATES, "all"), lines, words=1))
    for name in (TOTAL, *THIRD):
        ours = [row for row in papers[name] if row.ours is not None]
        full = sum(row.scale == "paper" for row in ours)
        say(f"{name}: {len(ours)} with our number, {full} of them at the scale of the paper")
    mine = [row for row in rows if row.number.paper == paper and row.ours is not None]
    if mine:
        show(beside(mine))
    elif paper is not None:
        say(f"no number of {paper} was run")


@click.command(
    cls=Command,
    lines=(
        "fedskew arbitrate niid-bench-mnist --scale smoke --dry-run",
        "fedskew arbitrate niid-bench-mnist --scale smoke --out arbiter",
    ),
    missing="a table: TABLE.toml, or a name that `fedskew reproduce` lists",
)
@click.argument("name", required=False, metavar="TABLE.toml | NAME")
@part_options("paper", "paper: the full protocol; small: reduced, where the table has it; smoke: seconds, on digits")
def arbitrate(name: str, scale: str, seeds: str | None, out: str | None, store: str | None, **given: Any) -> int:
    """Judge each cell of a printed table, and search for what makes those that differ.

    A cell is run as stated. One that differs is run again under each reading of the settings that the table leaves
    open, then under pairs of them. --out is a folder for cells.csv and page.md. You can stop the command; the same
    command continues.
    """
    from fedskew.seam import write_atomic
    from fedskew_papers.arbiter import Search, arbitrate, page, sheet
    from fedskew_papers.tables import protocol

    table = protocol(name)
    spec, _ = part_of(table, scale, seeds, given)
    search = Search(table, spec)
    asked = {number: [()] for number in search.numbers() if number.kind != "no data"}
    if given["dry_run"]:
        say("as stated:")
        print_plan(archived_study(search.part(asked), store, given), given["processes"] or 0)
        say("with each other reading, if all cells differ:")
        every = {number: [(), *search.singles(number)] for number in asked}
        return print_plan(archived_study(search.part(every), store, given), given["processes"] or 0)
    lost = list[str]()
    if out:
        Path(out).mkdir(parents=True, exist_ok=True)  # a mistake is told before hours of runs

    def work(part: Spec) -> Study:
        study = archived_study(part, store, given)
        ended = work_off(study, given["processes"] or 0, retry=given["retry"])
        if ended is None:
            raise click.exceptions.Exit(INTERRUPTED)
        lost.extend(ended)
        return study

    cases = arbitrate(table, spec, work)
    judged(cases)
    if out:
        for file, text in (("cells.csv", sheet(cases)), ("page.md", page(table, scale, cases))):
            write_atomic(Path(out) / file, text.encode())
            say(f"written: {Path(out) / file}")
    for line in lost:
        say(line, sys.stderr)
    return int(bool(lost))


def judged(cases: list[Case]) -> None:
    """Print a table for each metric, then what makes the cells that differ."""
    from fedskew_papers.arbiter import cells_of

    by = dict[str, list[tuple[str, ...]]]()
    for case in cases:
        setting, method, metric, printed, span, _, verdict, _ = cells_of(case)
        by.setdefault(metric, []).append((setting, method, printed, span, verdict))
    for metric, rows in by.items():
        say(f"{metric}:")
        show(grid(("setting", "method", "printed", "ours less printed", "verdict"), rows))
    for case in cases:
        if case.cause:
            say(f"{', '.join((case.number.setting, case.number.method, case.number.metric))}: {case.cause}")


@click.command(
    cls=Command,
    lines=("fedskew portions --dry-run",),
)
@click.option("--minutes", type=click.FloatRange(0, min_open=True), default=9.0, help="when to stop  [default: 9]")
@machine_options
@click.option("--engine", metavar="NAME", help="how clients are trained  [default: auto]")
@store_options("results/papers")
def portions(minutes: float, out: str | None, store: str | None, **given: Any) -> int:
    """Run the next parts of the papers' tables that wait for a GPU, for some minutes.

    The same command continues. --out is a folder for portions.json, which says what is missing of each.
    """
    import json

    from fedskew.seam import write_atomic
    from fedskew_papers.portions import limit
    from fedskew_papers.portions import portions as queue

    how = tuple((option, given[option]) for option in ("device", "precision", "engine") if given[option])
    if given["device"]:
        _check_device(given["device"], there=not given["dry_run"])
    missing, lost = dict[str, int](), list[str]()
    stopped = False
    with limit(0 if given["dry_run"] else minutes) as up:
        for name, spec in queue(how):
            study = archived_study(spec, store, given)
            missing[name] = len(study.missing(study.plan()))
            if given["dry_run"]:
                say(f"{name}: {missing[name]} of {len(study.plan())} runs missing")
            elif missing[name]:
                say(name)
                ended = work_off(study, given["processes"] or 0)
                missing[name] = len(study.missing(study.plan()))
                stopped, lost = ended is None, [*lost, *(ended or ())]
                if stopped:
                    break
    if out:
        Path(out).mkdir(parents=True, exist_ok=True)
        write_atomic(Path(out) / "portions.json", json.dumps(missing, indent=1).encode())
    for line in lost:
        say(line, sys.stderr)
    return INTERRUPTED if stopped and not up else int(bool(lost))
