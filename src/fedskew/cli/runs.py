"""``fedskew runs``: recorded runs listed, chosen, compared by their settings, and deleted."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedskew.cli.base import Command
from fedskew.cli.listing import age, cell, columns
from fedskew.cli.output import say
from fedskew.cli.values import FOLDER
from fedskew.errors import ConfigError, plural

if TYPE_CHECKING:
    from fedskew.config.recorded import Run


EXAMPLES = (
    "fedskew runs",
    "fedskew runs --where 'accuracy>0.3' --where method=fedavg --sort -accuracy",
    "fedskew runs --columns folder,lr,partition.alpha,total_upload_bytes",
    "fedskew runs --settings",
    "fedskew runs --where state=failed --delete --yes",
)
HERE = "runs"  # where `fedskew run` puts them
USUAL = ("folder", "method", "data", "partition", "done", "accuracy", "state", "age")


@click.command(cls=Command, lines=EXAMPLES)
@click.argument("folders", nargs=-1, metavar="[FOLDER ...]", type=FOLDER)
@click.option(
    "--where", metavar="FIELD=VALUE", multiple=True,
    help="a condition on an entry of config.json or summary.json, or on a column; = != < <= > >= compare, ~ finds a "
    "part of a word; repeat it for several conditions",
)  # fmt: skip
@click.option("--sort", metavar="FIELD", help="a field to sort by; -FIELD puts the largest first  [default: folder]")
@click.option("--columns", "wanted", metavar="FIELD,...", help=f"fields to show  [default: {','.join(USUAL)}]")
@click.option("--settings", is_flag=True, help="show only the settings in which these runs differ")
@click.option("--json", "as_json", is_flag=True, help="print the runs as JSON, with configuration and summary")
@click.option("--delete", is_flag=True, help="delete these runs, after showing them and asking")
@click.option("--yes", is_flag=True, help="delete without asking")
def runs(
    folders: tuple[str, ...], where: Sequence[str], sort: str | None, wanted: str | None,
    settings: bool, as_json: bool, delete: bool, yes: bool,
) -> int:  # fmt: skip
    """List the recorded runs below FOLDER, or below `runs`; FOLDER may be that of a study.

    Rounds are not read, so a list of a thousand runs takes about a second. A field is a dotted path such as
    method.pace.lr, its last words, such as lr, or a column: folder, method, data, partition, seed, rounds (done),
    asked, accuracy, state (finished, stopped, running, failed, damaged), reason, age (in days).
    """
    from fedskew.studies.filters import condition_of, matching, sorted_by
    from fedskew.studies.packing import folders_of
    from fedskew.studies.runs import described

    _check(folders, where, settings, as_json, delete, yes)
    conditions = [condition_of(text) for text in where]
    everything = described(folders_of(folders or [HERE]))
    listed = matching(everything, conditions)
    if sort:
        listed = sorted_by(listed, sort)
    if as_json:
        say(json.dumps([_json(run) for run in listed], indent=1))
        return 0
    if not listed:
        say(f"no run matches; {plural(len(everything), 'run')} in {', '.join(folders or [HERE])}")
        return 0
    for line in _differences(listed) if settings else _table(listed, wanted):
        say(line)
    return _delete(listed, folders or (HERE,), yes) if delete else 0


def _check(
    folders: Sequence[str], where: Sequence[str], settings: bool, as_json: bool, delete: bool, yes: bool
) -> None:
    """Raise ConfigError for options that do not go together."""
    if yes and not delete:
        raise ConfigError("--yes must go with --delete")
    if settings and as_json:
        raise ConfigError("--settings must go without --json")
    if delete and (settings or as_json):
        raise ConfigError(
            f"--delete must go without {'--settings' if settings else '--json'}: it shows what it deletes"
        )
    if delete and not (folders or where):
        raise ConfigError("--delete must go with a FOLDER or with --where")
    if delete and not yes and not sys.stdin.isatty():
        raise ConfigError("--delete must be confirmed by --yes without a terminal")


def _table(listed: Sequence[Run], wanted: str | None) -> list[str]:
    """Lines of the list."""
    from fedskew.studies.filters import path_of

    names = [name.strip() for name in wanted.split(",")] if wanted else list(USUAL)
    known = dict.fromkeys([*(path for run in listed for path in run.fields), "done"])
    paths = [path_of(name, known) for name in names]
    return columns(names, [[_shown(run, path) for path in paths] for run in listed])


def _shown(run: Run, path: str) -> str:
    fields = run.fields
    if path == "done":
        return f"{cell(fields.get('rounds'))}/{cell(fields.get('asked'))}"
    if path == "age":
        return age(fields["age"])
    if path == "state" and run.reason:
        return f"{run.state}: {run.reason}"
    return cell(fields.get(path)) if path != "folder" else str(fields["folder"])


def _differences(listed: Sequence[Run]) -> list[str]:
    """Lines of the settings in which runs differ."""
    from fedskew.studies.runs import differing

    different = differing(listed, [{**run.settings, **{what: seed for seed, what in run.seeds}} for run in listed])
    if not different:
        return ["these runs have the same settings"]
    rows = [[str(run.folder), *(_setting(each[i]) for _, each in different)] for i, run in enumerate(listed)]
    return columns(["folder", *(path for path, _ in different)], rows)


def _setting(value: Any) -> str:
    return "unset" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _json(run: Run) -> dict[str, Any]:
    return {**run.shown, "config": run.config, "summary": run.summary}


def _delete(listed: Sequence[Run], folders: Sequence[str], yes: bool) -> int:
    """Delete runs; the exit code is 2 where one is still there."""
    from fedskew.studies.runs import remove

    if not yes and not _agreed(len(listed)):
        say("nothing is deleted")
        return 0
    kept = [why for run in listed if (why := remove(run, [Path(folder) for folder in folders]))]
    for why in kept:
        say(f"fedskew: {why}", sys.stderr)
    say(f"deleted {plural(len(listed) - len(kept), 'run')}")
    return 2 if kept else 0


def _agreed(count: int) -> bool:
    say(f"delete {plural(count, 'run')}? [y/N] ", end="")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
