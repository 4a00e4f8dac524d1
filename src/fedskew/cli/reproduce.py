"""``fedskew reproduce``: a table of a paper, run again, and the printed numbers beside ours."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from fedskew.cli.base import Command, decorated
from fedskew.cli.output import grid, say, show
from fedskew.cli.studying import print_plan, run_study, store_of, store_options
from fedskew.cli.values import Names
from fedskew.errors import ConfigError, FieldError, require, unknown, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fedskew.papers import Protocol, Row
    from fedskew.studies.spec import Spec
    from fedskew.studies.study import Study


EXAMPLES = (
    "fedskew reproduce",
    "fedskew reproduce fedga-table1-mnist --scale small --dry-run",
    "fedskew reproduce fedga-table1-mnist --scale smoke",
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
        click.option("--device", metavar="NAME", help="where to run: cpu, cuda  [default: cpu]"),
        click.option(
            "--precision", metavar="NAME",
            help="precision of products: float32, tf32, bfloat16  [default: float32]",
        ),
        click.option("--retry", is_flag=True, help="repeat runs that were refused or failed"),
        store_options("results/papers"),
    )  # fmt: skip


@click.command(cls=Command, lines=EXAMPLES)
@click.argument("name", required=False, metavar="[NAME]", type=Names("protocol"))
@part_options("small", "smoke: seconds, on digits; small: reduced, as listed; paper: the full protocol")
def reproduce(name: str | None, scale: str, seeds: str | None, out: str | None, store: str | None, **given: Any) -> int:
    """Repeat a table or figure of the five papers, with our numbers beside the printed ones.

    This includes the tables of third parties, Flower's NIID-Bench baseline and FedBench.

    Without a NAME, the studies are listed. You can stop the command; the same command continues. `fedskew ledger` shows
    all printed numbers.
    """
    from fedskew.papers import protocol

    if name is None:
        _check_list(scale, **{"seeds": seeds, "out": out, **given})
        show(_listing())
        return 0
    one = protocol(name)
    spec, words = part_of(one, scale, seeds, given)
    study = lent(spec, store, given)
    study.plan()  # a mistake is told before what would be run
    for line in _told(one, scale):
        say(line)
    if given["dry_run"]:
        return print_plan(study, given["processes"] or 0)
    command = shlex.join(["fedskew", "reproduce", name, "--scale", scale, *words])
    code = run_study(study, given["processes"] or 0, (1, 1), given["retry"], out, command)
    if scale != "smoke":
        _beside(one, scale, study)
    return code


def part_of(one: Protocol, scale: str, seeds: str | None, given: Mapping[str, Any]) -> tuple[Spec, list[str]]:
    """What the options of `part_options` choose of a table, and their words. Raises ConfigError."""
    from dataclasses import replace

    from fedskew.papers import Scale, scaled
    from fedskew.studies.arguments import seeds_of, words_of

    # machine and precision change no number's meaning: a run answers a protocol however it was run
    how = tuple((option, given[option]) for option in ("device", "precision") if given[option])
    part = tuple((option, given[option]) for option in ("methods", "settings") if given[option] is not None)
    methods, settings = (_listed(option, given[option]) for option in ("methods", "settings"))
    spec = one.at(scale)
    spec = scaled(spec, Scale(how, settings=settings, methods=methods)) if how or part else spec
    if given["device"]:
        _check_device(given["device"], there=not given["dry_run"])
    spec = replace(spec, seeds=seeds_of(seeds)) if seeds else spec
    return spec, words_of([*([("seeds", seeds)] if seeds else []), *part, *how])


def lent(spec: Spec, store: str | None, given: Mapping[str, Any]) -> Study:
    """A study that finds the runs of archives."""
    from fedskew.papers import HERE
    from fedskew.studies.packing import lend
    from fedskew.studies.study import Study

    study = Study(spec, store_of(store))
    lend(study, given["archives"] or (str(HERE) if HERE.is_dir() else None), keep=not given["dry_run"])
    return study


def _listed(option: str, names: str | None) -> tuple[str, ...]:
    """Names between semicolons; they may hold commas. Raises ConfigError where there is none."""
    found = tuple(name for part in (names or "").split(";") if (name := part.strip()))
    require(names is None or bool(found), option, "name at least one, between semicolons", names)
    return found


def _check_device(name: str, there: bool) -> None:
    """Raise ConfigError for a device that is none, or that is not there when it is needed."""
    from fedskew.settings import check_device

    try:
        check_device(name)
    except FieldError as error:
        if there or "at hand" not in str(error):
            raise ConfigError(str(error).replace("Settings.device", "--device")) from None


def _check_list(scale: str, **of_one: object) -> None:
    """Raise ConfigError for a scale that there is not, and for options that mean nothing without a NAME."""
    from fedskew.papers import SCALES

    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    for option, value in of_one.items():
        hint = "without one, studies are listed"
        require(not value, option.replace("_", "-"), "be used with the NAME of a study", str(value), hint)


def _told(one: Protocol, scale: str) -> list[str]:
    """What the study is, and what its scale reduces."""
    reduced = one.reduced(scale)
    return [f"{one.title}: {one.reading}", *([f"reduced: {reduced}"] if reduced else [])]


def _listing() -> Any:
    """The studies, by paper."""
    from fedskew.papers import names, protocol

    made = {name: protocol(name) for name in names()}
    lines = ((name, one.title, str(len(one.numbers()) or "")) for name, one in made.items())
    return grid(("name", "what", "printed numbers"), lines)


def _beside(one: Protocol, scale: str, study: Study) -> None:
    """Print the numbers of the paper and ours."""
    from fedskew.papers import Runs, rows_of

    entries = [entry for _, entry in study.entries() if entry is not None]
    rows = [row for row in rows_of(one, scale, Runs(entries), study.spec.seeds) if row.ours is not None]
    if rows:
        show(beside(rows))


def beside(rows: list[Row]) -> Any:
    """A table of printed numbers and ours; below five seeds a gain has no verdict."""
    from rich.table import Table

    table = Table("setting", "method", "metric", "printed", "ours (95 %)", "seeds", "gain (printed)")
    table.columns[0].min_width = min(12, max(len(row.number.setting) for row in rows))
    table.columns[2].overflow = "fold"  # metrics of one table differ in their ends
    for row in rows:
        n = row.number
        told, ours, span, seeds = row.texts
        between = f" ({span})" if span else ""
        gain = "{1} ({0}) ".format(*row.gain.texts) if row.gain is not None else ""
        place = visible(n.setting), visible(n.method), n.metric
        table.add_row(*place, told, f"{ours}{between}", seeds, gain + (row.state if row.judged else ""))
    return table
