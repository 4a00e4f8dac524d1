"""Trackers: the rounds of a run in TensorBoard, MLflow or W&B while it trains.

A tracker goes where `fedskew.run` takes ``on_round``. Any object with the same three methods is one: ``begin(config)``,
the call with each round's row, and ``end(summary)``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedskew.track._base import Several, Tracker

__all__ = ["TRACKERS", "Several", "Tracker", "mlflow", "several", "tensorboard", "wandb"]


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


TRACKERS: dict[str, Callable[..., Tracker]] = {"mlflow": mlflow, "tensorboard": tensorboard, "wandb": wandb}
