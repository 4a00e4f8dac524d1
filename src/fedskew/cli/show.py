"""``fedskew show``: one run in the terminal."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import click

from fedskew.cli import output
from fedskew.cli.base import Command
from fedskew.cli.listing import age, cell, columns
from fedskew.cli.output import SPELLINGS, say
from fedskew.cli.values import RUN
from fedskew.errors import FedskewError, RecordError, plural, some, unknown

if TYPE_CHECKING:
    from fedskew.config.recorded import Run


EXAMPLES = ("fedskew show runs/fedavg", "fedskew show runs/fedavg --metric macro_f1,worst_class_recall")
USUAL = ("accuracy", "loss")
MISSING = "a run folder"
WIDTH = 100  # characters of a line
MANY = 60  # classes that are shown one by one
LONGEST = 24  # characters of the name of a class
BLOCKS = "▁▂▃▄▅▆▇█"


@click.command("show", cls=Command, lines=EXAMPLES, missing=MISSING)
@click.argument("run", required=False, metavar="RUN", type=RUN)
@click.option("--metric", metavar="NAME,...", help=f"entries of a round to draw  [default: {','.join(USUAL)}]")
@click.option("--ascii", "as_ascii", is_flag=True, help="draw with ASCII only  [default: if the terminal has no more]")
def show(run: str, metric: str | None, as_ascii: bool) -> None:
    """Show a run: its curves, the recall of each class, its summary, and the command that repeats it.

    RUN is a run folder, or the folder of a study, which gives a table of methods and settings. Only settings that
    differ from the defaults of the method are shown.
    """
    from fedskew.config.recorded import read_run
    from fedskew.plots.groups import title_of
    from fedskew.studies.runs import listed

    folder = Path(run)
    if not folder.is_dir():
        raise RecordError(f"there is no run at {run!r}: no such folder")
    if (folder / "study.json").is_file():
        for part in _study(folder, metric):
            if isinstance(part, str):
                say("\n".join(_wrapped(part)))
            else:
                output.show(part)
        return
    recorded = read_run(folder)
    about = listed(folder)
    say(f"{about.label or recorded.name}: {title_of([recorded])}")
    say(f"{run}: {_ended(about)}")
    plain = str.maketrans(SPELLINGS if as_ascii else {})
    for line in (*_curves(recorded, metric), *_classes(recorded)):
        say(line.translate(plain))
    for line in (*_numbers(recorded.summary), *_own_models(folder), *_settings(recorded, run)):
        say(line)


def _study(folder: Path, metric: str | None) -> Iterator[Any]:
    """The table of a study, methods by settings, what its tuning chose, and the command that repeats it."""
    from fedskew.cli.compared import results_of
    from fedskew.report.compared import compare
    from fedskew.report.studied import of_study

    entries, asked = of_study(folder)
    yield f"{asked.get('title') or folder}: {plural(len(entries), 'run')}"
    if any(entry.run.last for entry in entries):
        yield from results_of(compare(entries, metric or asked.get("metric"), asked.get("baseline")))
    chosen = {(t.method, t.setting): t.options for t in asked["trials"] if t.chosen}
    for (method, setting), options in chosen.items():
        told = ", ".join(f"{option} {value}" for option, value in options.items())
        yield f"tuned: {method}{f', {setting}' * bool(setting)}: {told}"
    for note in asked["notes"]:
        yield f"note: {note}"
    if asked.get("command"):
        yield f"again: {asked['command']}"


def _wrapped(line: str) -> list[str]:
    """A line as lines of at most ``WIDTH`` characters; a command is broken before options, as a shell takes it."""
    command = line.startswith("again: ")
    whole = re.sub(r" (?!--)", "\0", line) if command else line
    lines = textwrap.wrap(whole, WIDTH - 2, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return (" \\\n" if command else "\n").join(lines).replace("\0", " ").split("\n")


def _ended(run: Run) -> str:
    done, asked = run.summary.get("rounds"), run.config.get("rounds")
    early = run.summary.get("best", {}).get("stopped_early") if run.state == "finished" else False
    why = f": {run.reason}" if run.reason else ": it no longer improved" if early else ""
    return f"{run.state}{why}, {cell(done)} of {cell(asked)} rounds, {age(run.shown['age'])} ago"


def _curves(run: Run, metric: str | None) -> Iterator[str]:
    """The curves of the metrics; raises ConfigError for one that no round has."""
    known = dict.fromkeys(n for row in run.rows for n, v in row.items() if n != "round" and isinstance(v, int | float))
    names = [name.strip() for name in metric.split(",")] if metric else [name for name in USUAL if name in known]
    for name in names:
        if name not in known:
            raise unknown("metric of this run", name, known)
    for name in names:
        rounds, values, *_ = run.series(name)
        if rounds:
            span = f"{min(values):.4g} to {max(values):.4g}"
            yield f"\n{name} by round, {rounds[0]} to {rounds[-1]}: {span}"
            yield f"  {sketched(values.tolist())}"


def sketched(values: Sequence[float], width: int = 72) -> str:
    """A block for each value, the higher the fuller; of more than ``width`` values for the mean of neighbours.

    Example:
        >>> from fedskew.cli.show import sketched
        >>> sketched([0.1, 0.2, 0.4, 0.8])
        '▁▂▄█'
    """
    count, low, high = min(len(values), width), min(values), max(values)
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
        listed, note = sorted(listed, key=lambda pair: pair[1])[:MANY], f", the worst {MANY} of {len(recalls)} classes"
    named = [str(labels[c])[:LONGEST] if c < len(labels) and labels[c] != str(c) else "" for c, _ in listed]
    rows = [[str(c), name, f"{recall:.4f}", BLOCKS[-1] * round(40 * recall)]
            for (c, recall), name in zip(listed, named, strict=True)]  # fmt: skip
    yield f"\nrecall of each class in round {last['round']}{note}"
    yield from columns(["class", "name", "recall", ""], rows)


def _numbers(summary: dict[str, Any]) -> Iterator[str]:
    """Final, best and mean values, and totals."""
    kinds = [  # lists of classes and the fit are in summary.json
        name.removeprefix("final_")
        for name, value in summary.items()
        if name.startswith("final_") and not isinstance(value, list | dict)
    ]
    rows = [
        [name, *(cell(summary.get(f"{how}_{name}")) for how in ("final", "best", "mean10", "mean50"))] for name in kinds
    ]
    yield ""
    if rows:
        yield from columns(["metric", "final", "best", "mean of last 10", "mean of last 50"], rows)
    totals = [f"{name.removeprefix('total_')} {cell(value)}" for name, value in summary.items() if "total_" in name]
    yield from _wrapped(f"total: {', '.join(totals)}")
    for collapse in summary.get("collapsed", ()):
        from fedskew.records.summary import Collapse

        yield f"COLLAPSED: {Collapse(**collapse).words}"


def _own_models(folder: Path) -> Iterator[str]:
    """Of which clients the run keeps own models."""
    from fedskew.engines.trained import OWN, owners_of, read_description

    if (folder / OWN).is_file():
        names = list(owners_of(read_description(folder)).values())
        yield f"own models: {some(names)}; `fedskew evaluate {folder} --client NAME` evaluates one"


def _settings(run: Run, folder: str) -> Iterator[str]:
    """In what the method differs from its defaults, and the command that repeats the run."""
    from fedskew.config.experiment import repeatable

    changed = [f"{name.removeprefix('method.')} {cell(value)}" for name, value in run.changed.items()]
    yield ""
    yield from _wrapped(f"differs from the defaults: {', '.join(changed) or 'the method does not'}")
    if run.config.get("started_by") == "python":
        yield "started from Python: continue with fedskew.run(fed, method, ..., out=FOLDER, resume=True)"
    elif run.config.get("own_data"):
        yield "trained over Flower on the nodes' own rows: `sh run.sh` in the folder of its app continues"
    else:
        try:
            repeatable(run.config, folder)
        except (FedskewError, KeyError, TypeError, ValueError) as error:
            yield f"its configuration is not one of this fedskew: {' '.join(str(error).split())}"
            return
        yield f"again: {shlex.join(['fedskew', 'run', '--from', folder])}"
