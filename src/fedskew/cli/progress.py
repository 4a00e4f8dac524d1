"""What a run shows while it trains, and what it reports at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fedskew.cli.output import console, say
from fedskew.errors import plural, visible
from fedskew.records.summary import TAIL, Collapse, privacy_words, worst_words

if TYPE_CHECKING:
    from fedskew.method import Method


TIME_IS_UP = 75  # the code of a failure that another try mends: a job script resumes the run


@contextmanager
def run_progress(name: str, rounds: int) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A bar with round time, accuracy and time left; on a stream that is no terminal, ten lines a run.

    Yields:
        What shows a round, by its row.
    """
    view, name = console(stderr=True), visible(name)
    live = view.is_terminal
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=view, transient=True, disable=not live)
    task = bar.add_task(name, total=rounds, note="")

    def ended(row: dict[str, Any]) -> None:
        accuracy = f"accuracy {row['accuracy']:.4f}  " if "accuracy" in row else ""
        status, number = f"{accuracy}{row['wall_s']:.2f} s a round", row["round"]
        bar.update(task, completed=number)
        if accuracy:
            bar.update(task, note=status)
        if not live and (number == rounds or number % max(1, rounds // 10) == 0):
            say(f"{name} round {number}/{rounds}  {status}", sys.stderr)

    with bar if live else nullcontext():  # rich 13.0 ends a disabled bar with an empty line
        yield ended


def report(method: Method, summary: dict[str, Any], folder: Path, stopped: str = "") -> int:
    """Print what a run reached, and whether training collapsed; the exit code."""
    from fedskew.config.recorded import label_of
    from fedskew.method import method_spec

    s, name = summary, label_of(method_spec(method))
    rounds = plural(s["rounds"], "round")
    if stopped:
        why = " by --max-minutes" if stopped == "time limit" else ""
        say(f"stopped{why} after {rounds}; the record is kept; `fedskew run --resume {folder}` continues it")
    else:
        models = s.get("final_personal_accuracy")
        theirs = "" if models is None else f"clients' own models {models:.4f}"
        serves_own = method.serves == "own" and bool(theirs)
        first = [f"{theirs}, of a global model that nobody uses:"] * serves_own
        mean = f"mean of last {min(TAIL, s['rounds'])}"
        parts = [
            " ".join([*first, f"accuracy {s['final_accuracy']:.4f} ({mean}: {s['mean10_accuracy']:.4f})"]),
            f"macro-F1 {s['final_macro_f1']:.4f}",
            *([worst] if (worst := worst_words(s)) else []),
        ]
        if "final_local_accuracy" in s:
            parts.append(f"clients' own tests {s['final_local_accuracy']:.4f}")
        if theirs and not serves_own:
            parts.append(theirs)
        if "final_heldout_accuracy" in s:
            joined = s.get("final_heldout_personal_accuracy")
            models = "" if joined is None else f" (own models {joined:.4f})"
            parts.append(f"held-out clients {s['final_heldout_accuracy']:.4f}{models}")
        say(f"{name}: {', '.join(parts)}; {rounds} in {s['total_wall_s']:.1f} s; {folder}")
    if private := privacy_words(s):
        say(f"privacy: {private}")
    if best := s.get("best"):
        early = "; it did not improve after that" if best["stopped_early"] else ""
        value, test = f"{best['monitor']} {best['value']:.4f}", f"accuracy {best['accuracy']:.4f}"
        say(f"best {value} in round {best['round']}{early}: {test}; `fedskew evaluate {folder} --best`")
    for collapse in s.get("collapsed", ()):
        say(f"{name} COLLAPSED: {Collapse(**collapse).words}; {_advice(method, collapse['measure'])}")
    return {"": 0, "time limit": TIME_IS_UP}.get(stopped, 130)


def _advice(method: Method, measure: str) -> str:
    """What to try after a collapse, as far as this composition has it."""
    rate = f"a smaller --lr (now {method.pace.lr:g})" if hasattr(method.pace, "lr") else "a smaller rate"
    clip = getattr(method.local, "clip", None)
    if measure == "train_loss":
        return f"try {'--clip 5 or ' if clip == 0 else ''}{rate}"
    return f"try another --lr or more --rounds, and see `fedskew methods {method.name.partition('(')[0]}`"
