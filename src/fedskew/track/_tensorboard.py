"""TensorBoard: scalars and hyper-parameters in event files, one folder a run."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from fedskew.track._base import Row, Tracker, flat, name_of

__all__ = ["TensorBoard"]


class TensorBoard(Tracker):
    """See `fedskew.track.tensorboard`."""

    name, packages = "TensorBoard", ("tensorboard",)

    def __init__(self, folder: str | Path) -> None:
        super().__init__()
        self.folder = Path(folder)
        self._writer: Any = None

    def _begin(self, config: Row) -> None:
        board: Any = import_module("torch.utils.tensorboard")
        place = self.folder / f"{name_of(config)}-{str(config['run'])[:8]}"
        # TensorBoard hides what an earlier file of the folder says of these steps: they are told again
        self._writer = board.SummaryWriter(str(place), purge_step=0, flush_secs=10)
        plain = {name: v if isinstance(v, bool | int | float | str) else str(v) for name, v in flat(config).items()}
        for part in board.summary.hparams(plain, {"accuracy": 0.0}):
            self._writer.file_writer.add_summary(part)

    def _round(self, number: int, values: dict[str, float]) -> None:
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, number)

    def _end(self, summary: Row) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()
