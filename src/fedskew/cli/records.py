"""``fedskew runs``, ``show`` and ``verify``: recorded runs listed and deleted, one in the terminal, and checked."""

from __future__ import annotations

import json
import shlex
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import click

from fedskew.cli import output
from fedskew.cli.base import Command
from fedskew.cli.output import SPELLINGS, say
from fedskew.cli.values import FOLDER, RUN
from fedskew.errors import ConfigError, FedskewError, RecordError, plural, some, unknown, visible

if TYPE_CHECKING:
    from fedskew.config.recorded import Run


SPANS = ((1 / 1440, "s", 86400), (1 / 24, "min", 1440), (2, "h", 24), (90, "d", 1), (float("inf"), "months", 1 / 30.4))


def columns(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table, its head first; numbers stand to the right."""
    from rich.cells import cell_len  # late: help must not wait for it

    shown = [[visible(text).replace("\n", " ").replace("\t", " ") for text in row] for row in [head, *rows]]
    widths = [max(map(cell_len, column)) for column in zip(*shown, strict=True)]
    right = [all(_is_number(text) for text in column[1:]) and len(column) > 1 for column in zip(*shown, strict=True)]
    lines = []
    for row in shown:
        padded = [
            " " * (width - cell_len(text)) + text if number else text + " " * (width - cell_len(text))
            for text, width, number in zip(row, widths, right, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return lines


def cell(value: Any) -> str:
    """A value as a list shows it: four digits of a fraction, nothing where there is none."""
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def age(days: float) -> str:
    """As in "40 s", "12 min", "3 h" or "5 d"."""
    unit, factor = next((unit, factor) for limit, unit, factor in SPANS if days < limit)
    return f"{max(days, 0) * factor:.0f} {unit}"


def _is_number(text: str) -> bool:
    return not text or text.replace(".", "").replace("/", "").replace("e-", "").replace("-", "").isdigit()


RUNS_FOLDER = "runs"  # where `fedskew run` puts them
USUAL = ("folder", "method", "data", "partition", "done", "accuracy", "state", "age")


@click.command(
    cls=Command,
    lines=(
        "fedskew runs",
        "fedskew runs --where 'accuracy>0.3' --where method=fedavg --sort -accuracy",
        "fedskew runs --columns folder,lr,partition.alpha,total_upload_bytes",
        "fedskew runs --settings",
        "fedskew runs --where state=failed --delete --yes",
    ),
)
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
    from fedskew.studies.archiving import folders_of
    from fedskew.studies.filters import condition_of, matching, sorted_by
    from fedskew.studies.runs import described

    _check(folders, where, settings, as_json, delete, yes)
    conditions = [condition_of(text) for text in where]
    everything = described(folders_of(folders or [RUNS_FOLDER]))
    listed = matching(everything, conditions)
    if sort:
        listed = sorted_by(listed, sort)
    if as_json:
        rows = [{**run.shown, "config": run.config, "summary": run.summary} for run in listed]
        say(json.dumps(rows, indent=1))
        return 0
    if not listed:
        say(f"no run matches; {plural(len(everything), 'run')} in {', '.join(folders or [RUNS_FOLDER])}")
        return 0
    for line in _differences(listed) if settings else _table(listed, wanted):
        say(line)
    return _delete(listed, folders or (RUNS_FOLDER,), yes) if delete else 0


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
    from fedskew.config.recorded import in_words
    from fedskew.studies.runs import differing

    different = differing(listed, [{**run.settings, **{what: seed for seed, what in run.seeds}} for run in listed])
    if not different:
        return ["these runs have the same settings"]
    rows = [[str(run.folder), *(in_words(each[i]) for _, each in different)] for i, run in enumerate(listed)]
    return columns(["folder", *(path for path, _ in different)], rows)


def _delete(listed: Sequence[Run], folders: Sequence[str], yes: bool) -> int:
    """Delete runs; the exit code is 2 where one is still there."""
    from fedskew.studies.runs import remove

    if not yes:
        say(f"delete {plural(len(listed), 'run')}? [y/N] ", end="")
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            say("nothing is deleted")
            return 0
    kept = [why for run in listed if (why := remove(run, [Path(folder) for folder in folders]))]
    for why in kept:
        say(f"fedskew: {why}", sys.stderr)
    say(f"deleted {plural(len(listed) - len(kept), 'run')}")
    return 2 if kept else 0


DRAWN = ("accuracy", "loss")  # entries of a round
WIDTH = 98  # characters of a line
MANY = 60  # classes that are shown one by one
LONGEST = 24  # characters of the name of a class
BLOCKS = "▁▂▃▄▅▆▇█"
SKETCHED = 72  # of a line


@click.command(
    "show",
    cls=Command,
    lines=("fedskew show runs/fedavg", "fedskew show runs/fedavg --metric macro_f1,worst_class_recall"),
    missing="a run folder",
)
@click.argument("run", required=False, metavar="RUN", type=RUN)
@click.option("--metric", metavar="NAME,...", help=f"entries of a round to draw  [default: {','.join(DRAWN)}]")
@click.option("--ascii", "as_ascii", is_flag=True, help="draw with ASCII only  [default: if the terminal has no more]")
def show(run: str, metric: str | None, as_ascii: bool) -> None:
    """Show a run: its curves, the recall of each class, its summary, and the command that repeats it.

    RUN is a run folder, or the folder of a study, which gives a table of methods and settings. Only settings that
    differ from the defaults of the method are shown.
    """
    from fedskew.config.recorded import read_run
    from fedskew.plots.groups import title_of
    from fedskew.records.folder import insist_on_run
    from fedskew.studies.runs import listed

    folder = Path(run)
    if (folder / "study.json").is_file():
        _show_study(folder, metric)
        return
    insist_on_run(folder)
    recorded, about = read_run(folder), listed(folder)
    drawn = [*_curves(recorded, metric), *_classes(recorded)]  # an unknown metric is told before anything is shown
    say(f"{about.label or recorded.name}: {title_of([recorded])}")
    say(f"{run}: {_ended(about)}")
    plain = str.maketrans(SPELLINGS if as_ascii else {})
    for line in drawn:
        say(line.translate(plain))
    for line in (*_numbers(recorded), *_own_models(folder), *_settings(recorded), _again(recorded, run)):
        say(line)


def _show_study(folder: Path, metric: str | None) -> None:
    """Print the tables of a study, what its tuning chose, and the command that repeats it."""
    from fedskew.cli.tables import results_of
    from fedskew.report.compared import compare
    from fedskew.report.controls import models_of
    from fedskew.report.entries import of_study

    entries, asked = of_study(folder)
    output.show(f"{asked.get('title') or folder}: {plural(len(entries), 'run')}")
    if any(entry.run.last for entry in entries):
        compared = compare(entries, metric or asked.get("metric"), asked.get("baseline"))
        for part in results_of(compared, "fitted" in models_of(compared)):
            output.show(part)
    chosen = {(t.method, t.setting): t.options for t in asked["trials"] if t.chosen}
    for (method, setting), options in chosen.items():
        values = ", ".join(f"{option} {value}" for option, value in options.items())
        output.show(f"tuned: {method}{f', {setting}' * bool(setting)}: {values}")
    for note in asked["notes"]:
        output.show(f"note: {note}")
    if asked.get("command"):
        say(f"again: {asked['command']}")


def _wrapped(line: str) -> list[str]:
    """A line as lines of at most ``WIDTH`` characters."""
    return textwrap.wrap(line, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _ended(run: Run) -> str:
    done, asked = run.summary.get("rounds"), run.config.get("rounds")
    early = run.summary.get("best", {}).get("stopped_early") if run.state == "finished" else False
    why = f": {run.reason}" if run.reason else ": it no longer improved" if early else ""
    return f"{run.state}{why}, {cell(done)} of {cell(asked)} rounds, {age(run.shown['age'])} ago"


def _curves(run: Run, metric: str | None) -> Iterator[str]:
    """The curves of the metrics; raises ConfigError for one that no round has."""
    known = dict.fromkeys(n for row in run.rows for n, v in row.items() if n != "round" and isinstance(v, int | float))
    names = [name.strip() for name in metric.split(",")] if metric else [name for name in DRAWN if name in known]
    for name in names:
        if name not in known:
            raise unknown("metric of this run", name, known)
    for name in names:
        rounds, values, *_ = run.series(name)
        if rounds:
            span = f"{min(values):.4g} to {max(values):.4g}"
            yield f"\n{name} by round, {rounds[0]} to {rounds[-1]}: {span}"
            yield f"  {sketched(values.tolist())}"


def sketched(values: Sequence[float]) -> str:
    """A block for each value, the higher the fuller; of more than 72 values for the mean of neighbours.

    Example:
        >>> from fedskew.cli.records import sketched
        >>> sketched([0.1, 0.2, 0.4, 0.8])
        '▁▂▄█'
    """
    count, low, high = min(len(values), SKETCHED), min(values), max(values)
    parts = [values[len(values) * i // count : len(values) * (i + 1) // count] for i in range(count)]
    top = len(BLOCKS) - 1
    return "".join(BLOCKS[round(top * (fmean(part) - low) / ((high - low) or 1))] for part in parts)


def _classes(run: Run) -> Iterator[str]:
    """Bars of the recalls of the last evaluation; of many classes the worst."""
    last = next((row for row in reversed(run.rows) if "per_class_recall" in row), None)
    if last is None:
        return
    labels, recalls = run.config.get("label_names", []), last["per_class_recall"]
    support = last.get("support") or [1] * len(recalls)
    listed = [(c, recall) for c, (recall, rows) in enumerate(zip(recalls, support, strict=True)) if rows]
    note = ""
    if len(listed) > MANY:
        listed, note = sorted(listed, key=lambda pair: pair[1])[:MANY], f", the worst {MANY} of {len(listed)} classes"
    named = [str(labels[c])[:LONGEST] if c < len(labels) and labels[c] != str(c) else "" for c, _ in listed]
    rows = [[str(c), name, f"{recall:.4f}", BLOCKS[-1] * round(40 * recall)]
            for (c, recall), name in zip(listed, named, strict=True)]  # fmt: skip
    whose = "" if run.serves == "global" else " by the global model"
    yield f"\nrecall of each class{whose} in round {last['round']}{note}"
    yield from columns(["class", "name", "recall", ""], rows)


def _numbers(run: Run) -> Iterator[str]:
    """Final, best and mean values, and totals."""
    from fedskew.records.summary import MEANS, privacy_words

    summary = run.summary
    kinds = [  # lists of classes and the fit are in summary.json
        name.removeprefix("final_")
        for name, value in summary.items()
        if name.startswith("final_") and not isinstance(value, list | dict)
    ]
    spans = {"final": "final", "best": "best"}
    for span, most in MEANS.items():  # both are the same of a run of few rounds
        spans.setdefault(f"mean of last {min(most, summary.get('rounds', most))}", span)
    rows = [[name, *(_spanned(run, f"{span}_{name}") for span in spans.values())] for name in kinds]
    yield ""
    if rows:
        yield from columns(["metric", *spans], rows)
    totals = [f"{name.removeprefix('total_')} {cell(value)}" for name, value in summary.items() if "total_" in name]
    yield from _wrapped(f"total: {', '.join(totals)}")
    if privacy := privacy_words(summary):
        yield from _wrapped(f"privacy: {privacy}")
    for collapse in summary.get("collapsed", ()):
        from fedskew.records.summary import Collapse

        yield f"COLLAPSED: {Collapse(**collapse).words}"


def _spanned(run: Run, key: str) -> str:
    """A number of the summary; empty where a mean over several rounds is of one evaluation, which is the final one."""
    from fedskew.records.summary import tail_of

    tail = tail_of(key, run.summary, run.rows)
    return "" if tail and tail.evaluations == 1 < tail.rounds else cell(run.summary.get(key))


def _own_models(folder: Path) -> Iterator[str]:
    """Of which clients the run keeps own models."""
    from fedskew.engines.trained import OWN, owners_of, read_description

    if (folder / OWN).is_file():
        names = list(owners_of(read_description(folder)).values())
        yield f"own models: {some(names)}; `fedskew evaluate {folder} --client NAME` evaluates one"


def _settings(run: Run) -> Iterator[str]:
    """In what method and run differ from the defaults."""
    from fedskew.config.experiment import Experiment
    from fedskew.plots.groups import HEADED

    plain = {f.name: f.default for f in fields(Experiment) if f.metadata.get("decides", "nothing") != "nothing"}
    given = {name: run.config.get(name) for name in plain if name not in (*HEADED, "auxiliary")}  # the method's choice
    given["diagnose"] = ",".join((given["diagnose"] or {}).get("names", ())) if "diagnose" in given else ""
    changed = {name.removeprefix("method."): value for name, value in run.changed.items()}
    changed |= {name: value for name, value in given.items() if value and value != plain[name]}
    differences = ", ".join(f"{name} {cell(value)}" for name, value in changed.items())
    yield from ("", *_wrapped(f"differs from the defaults: {differences or 'nothing'}"))
    if noise := run.config.get("histogram_noise"):
        yield f"label histograms: each told once with epsilon {cell(run.config['histogram_epsilon'])} ({noise})"


def _again(run: Run, folder: str) -> str:
    """The command that repeats a run, or why there is none."""
    from fedskew.config.experiment import repeatable

    if run.config.get("started_by") == "python":
        return "started from Python: continue with fedskew.run(fed, method, ..., out=FOLDER, resume=True)"
    if run.config.get("own_data"):
        return "trained over Flower on the nodes' own rows: `sh run.sh` in the folder of its app continues"
    try:
        repeatable(run.config, folder)
    except (FedskewError, KeyError, TypeError, ValueError) as error:
        return f"its configuration is not one of this fedskew: {' '.join(str(error).split())}"
    return f"again: {shlex.join(['fedskew', 'run', '--from', folder])}"


@click.command(
    cls=Command,
    lines=("fedskew verify runs", "fedskew verify runs/fedavg runs/mixed"),
    missing="at least one run folder, or a folder that holds some",
)
@click.argument("runs", nargs=-1, metavar="RUN [RUN ...]", type=RUN)
def verify(runs: tuple[str, ...]) -> int:
    """Compare every file, round and record of run folders with the digests that the runs wrote.

    RUN is a run folder, or a folder that holds some. The exit code is 2 if anything was altered. Traces of a kill are
    not damage: `fedskew run --resume RUN` removes them.
    """
    from fedskew.config.recorded import find_runs
    from fedskew.records.folder import troubles

    damaged = 0
    for folder in find_runs([Path(run) for run in runs]):
        try:
            rounds, faults = troubles(folder)
        except RecordError as error:
            rounds, faults = 0, [str(error)]
        for trouble in faults:
            say(f"{folder}: ALTERED: {trouble}")
        if not faults:
            say(f"{folder}: whole, {plural(rounds, 'round')}")
        damaged += bool(faults)
    return 2 if damaged else 0
