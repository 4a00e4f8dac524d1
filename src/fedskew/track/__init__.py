"""Trackers: the rounds of a run in TensorBoard, MLflow or W&B while it trains.

A tracker goes where `fedskew.run` takes ``on_round``. Any object with the same three methods is one: ``begin(config)``,
the call with each round's row, and ``end(summary)``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedskew.errors import require, unknown
from fedskew.track._base import Called, Several, Tracker

__all__ = ["TRACKERS", "Called", "Named", "Several", "Tracker", "mlflow", "named", "several", "tensorboard", "wandb"]


def tensorboard(folder: str | Path = "track/tensorboard") -> Tracker:
    """A tracker that writes event files for TensorBoard.

    Args:
        folder: where they go, in a folder for each run; ``tensorboard --logdir FOLDER`` shows all of them.

    Returns:
        What `fedskew.run` takes as ``on_round``.

    Raises:
        ConfigError: the package tensorboard is not installed.

    Example:
        >>> import fedskew as fs
        >>> tracker = fs.track.tensorboard("events")  # doctest: +SKIP
        >>> fs.run(fed, fs.methods.fedavg(), rounds=3, on_round=tracker)  # doctest: +SKIP
    """
    from fedskew.track._tensorboard import TensorBoard

    return TensorBoard(folder)


def mlflow(uri: str | Path | None = None, experiment: str = "fedskew") -> Tracker:
    """A tracker that writes to an MLflow store.

    Args:
        uri: a folder, or the address of a server or database; unset: MLFLOW_TRACKING_URI, else track/mlruns.
        experiment: name of the experiment, made where there is none.

    Returns:
        What `fedskew.run` takes as ``on_round``.

    Raises:
        ConfigError: neither mlflow-skinny nor mlflow is installed.

    Example:
        >>> import fedskew as fs
        >>> tracker = fs.track.mlflow("mlruns")  # doctest: +SKIP
        >>> fs.run(fed, fs.methods.fedavg(), rounds=3, on_round=tracker)  # doctest: +SKIP
    """
    from fedskew.track._mlflow import MLflow

    return MLflow(uri, experiment)


def wandb(folder: str | Path = "track", project: str = "fedskew", mode: str | None = None) -> Tracker:
    """A tracker that writes a run of Weights & Biases, offline unless you say otherwise.

    Args:
        folder: where its files go; ``wandb sync FOLDER/wandb/offline-run-...`` sends them when you want that.
        project: name of the project.
        mode: "offline", "online" or "disabled"; unset: WANDB_MODE, else offline.

    Returns:
        What `fedskew.run` takes as ``on_round``.

    Raises:
        ConfigError: the package wandb is not installed, or ``mode`` is something else.

    Example:
        >>> import fedskew as fs
        >>> tracker = fs.track.wandb("track")  # doctest: +SKIP
        >>> fs.run(fed, fs.methods.fedavg(), rounds=3, on_round=tracker)  # doctest: +SKIP
    """
    from fedskew.track._wandb import WandB

    return WandB(folder, project, mode)


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


TRACKERS: dict[str, Callable[..., Tracker]] = {"mlflow": mlflow, "tensorboard": tensorboard, "wandb": wandb}
