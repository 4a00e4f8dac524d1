"""What a study shows while it runs: in a terminal one moving line, elsewhere a line for each run that ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from fedskew.errors import visible

if TYPE_CHECKING:
    from fedskew.studies.study import Planned, Study
    from fedskew.studies.work import RunOutcome


class StudyProgress:
    """The runs that are done, the metric of the last one, and the time left.

    Args:
        study: What runs.
        total: Runs to do; 0: not known.
        say: Takes the line of each run where there is no terminal, and of each that is lost; None: there are none.
    """

    def __init__(self, study: Study, total: int = 0, say: Callable[[str], None] | None = None) -> None:
        self.total, self.done, self.unfinished = total, 0, dict[str, dict[str, list[int]]]()
        self.metrics = study.spec.metric, study.spec.trial[1]  # of a run that is compared, of a trial
        self.say, self._began = say, time.monotonic()
        view = Console(stderr=True)
        columns = BarColumn(24), MofNCompleteColumn(), TextColumn("{task.description}", markup=False)
        self.live = view.is_terminal and (total > 0 or say is None)
        self.bar = Bar(*columns, console=view, transient=True, disable=not self.live)
        self.task = self.bar.add_task("runs", total=total or None)

    def __enter__(self) -> StudyProgress:
        if self.live:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.bar.stop()

    def ended(self, outcome: RunOutcome, planned: Planned) -> None:
        """A run ended."""
        self.done += 1
        if self.total:  # a control of more rounds is planned once the others are done
            self.total = max(self.total, self.done)
        cell = planned.cell
        place = f"{cell.label}, {cell.setting}"
        where = f"{place}, seed {cell.seed}" + f", trial {cell.trial}" * (cell.trial >= 0)
        lost = outcome.state in ("broken", "interrupted")
        if lost:
            self.unfinished.setdefault(outcome.reason, {}).setdefault(place, []).append(cell.seed)
        scored = outcome.score is not None and not lost  # a run that was stopped has no result yet
        ending = f"{self.metrics[cell.trial >= 0]} {outcome.score:.4f}" if scored else outcome.state
        why = f": {outcome.reason}" if outcome.state != "finished" else ""
        left = f", {self.left} left" if self.done < self.total else ""
        line = f"{where}: {ending}{why} ({outcome.seconds:.1f} s{left})"
        self.bar.update(self.task, completed=self.done, total=self.total or None, description=visible(line))
        if self.say and not (self.live and scored):
            self.say(f"[{self.done}/{self.total}] {line}")

    @property
    def left(self) -> str:
        """Time left, from the runs that are done."""
        passed = time.monotonic() - self._began
        return duration(passed / max(self.done, 1) * (self.total - self.done))


def duration(seconds: float) -> str:
    """As in "40 s", "12 min" or "3.5 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
