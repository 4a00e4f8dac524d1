"""Weights & Biases: a run in its offline files, or online where the user wants that."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from fedskew.errors import require
from fedskew.track._base import Row, Tracker, environment, flat, name_of

__all__ = ["WandB"]

MODES = ("offline", "online", "disabled")


class WandB(Tracker):
    """See `fedskew.track.wandb`."""

    name, packages = "W&B", ("wandb",)

    def __init__(self, folder: str | Path, project: str, mode: str | None) -> None:
        super().__init__()
        self.folder, self.project = Path(folder), project
        self.mode = mode or os.environ.get("WANDB_MODE") or "offline"
        require(self.mode in MODES, "mode", f"be one of {', '.join(MODES)}", self.mode)
        self._run: Any = None
        self._from = 0

    def _begin(self, config: Row) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with environment(WANDB_ERROR_REPORTING="false"):
            package: Any = import_module("wandb")
            # what is said of the machine is in env.json; nothing that the user prints is recorded
            quiet = package.Settings(
                console="off", silent=True, disable_git=True, save_code=False, x_disable_stats=True,
                x_disable_meta=True,
            )  # fmt: skip
            self._run = package.init(
                project=self.project, id=str(config["run"]), name=name_of(config),
                dir=str(self.folder), mode=self.mode, resume="allow", config=flat(config), settings=quiet,
                reinit="create_new", allow_val_change=True,
            )  # fmt: skip
        self._from = self._run.step if self.mode == "online" else 0  # offline files are whole, each by itself

    def _round(self, number: int, values: dict[str, float]) -> None:
        if self._run is not None and number >= self._from:
            self._run.log(values, step=number)

    def _end(self, summary: Row) -> None:
        if self._run is not None:
            run, self._run = self._run, None
            run.summary.update({n: v for n, v in summary.items() if isinstance(v, int | float | str)})
            run.finish(exit_code=0 if str(summary.get("stopped", "")) in ("", "time limit", "interrupted") else 1)
