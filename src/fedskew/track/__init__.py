"""Trackers: the rounds of a run in TensorBoard, MLflow or W&B while it trains.

A tracker goes where `fedskew.run` takes ``on_round``. Any object with the same three methods is one: ``begin(config)``,
the call with each round's row, and ``end(summary)``.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedskew.errors import require, unknown
from fedskew.track._trackers import MLflow, Several, TensorBoard, Tracker, WandB

__all__ = ["TRACKERS", "Named", "Several", "Tracker", "mlflow", "named", "several", "tensorboard", "wandb"]


tensorboard, mlflow, wandb = TensorBoard, MLflow, WandB
TRACKERS: dict[str, Callable[..., Tracker]] = {"mlflow": mlflow, "tensorboard": tensorboard, "wandb": wandb}


def several(*listeners: Callable[[dict[str, Any]], None]) -> Several:
    """Trackers and plain functions as one ``on_round``, called in their order.

    Example:
        >>> seen = []
        >>> both = several(seen.append, lambda row: None)
        >>> both({"round": 1}), seen
        (None, [{'round': 1}])
    """
    return Several(listeners)


@dataclass(frozen=True)
class Named:
    """Trackers by their names, as the command and studies have them: plain values, that a worker process can be told.

    Raises:
        ConfigError: a name that there is not or that is given twice, or a package that is not installed.
    """

    names: tuple[str, ...]
    folder: str | None = None
    """where their files go; unset: the folder track, and for MLflow what MLFLOW_TRACKING_URI says"""

    def __post_init__(self) -> None:
        """Check all of it now, where a mistake costs nothing."""
        for name in self.names:
            if name not in TRACKERS:
                raise unknown("tracker", name, TRACKERS)
        once = 0 < len(set(self.names)) == len(self.names)
        require(once, "track", "name each tracker once", ",".join(self.names))
        self.made()

    def made(self, note: Callable[[str], None] | None = None) -> list[Tracker]:
        """The trackers, new ones; ``note`` is told what fails later, which is warned of by default."""
        place = Path(self.folder or "track")
        store = None if self.folder is None and os.environ.get("MLFLOW_TRACKING_URI") else place / "mlruns"
        given = {"tensorboard": place / "tensorboard", "mlflow": store, "wandb": place}
        made = [TRACKERS[name](given[name]) for name in self.names]
        for tracker in made:
            tracker.note = note or tracker.note
        return made

    def prepare(self) -> None:
        """Make what several processes could not make at the same time. A failure is warned of, no more."""
        for tracker in self.made():
            tracker.prepare()


def named(names: str | Sequence[str], folder: str | Path | None = None) -> Named:
    """Trackers by name: what a study takes, whose runs train in other processes.

    Args:
        names: names of ``TRACKERS``, between commas or as a list.
        folder: where their files go; unset: the folder track, and for MLflow what MLFLOW_TRACKING_URI says.

    Raises:
        ConfigError: a name that there is not or that is given twice, or a package that is not installed.

    Example:
        >>> import fedskew as fs
        >>> study = fs.study(["fedavg", "fedla"], rounds=2, clients=5, store="store")
        >>> study.run(track=fs.track.named("tensorboard,mlflow", "track"))  # doctest: +SKIP
    """
    listed = names.split(",") if isinstance(names, str) else names
    return Named(tuple(name.strip() for name in listed), None if folder is None else str(folder))
