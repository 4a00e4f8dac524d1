"""Evaluation of one model: chunks of rows, on every thread, nothing read back before the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fedskew.data.store import Store
from fedskew.functional import cross_entropy
from fedskew.records.metrics import confusion_of
from fedskew.types import Params

if TYPE_CHECKING:
    from fedskew.engines.base import LocalEngine

__all__ = ["KEPT_BYTES", "Evaluator"]

Array = np.ndarray[Any, Any]
Rows = Tensor | slice

# rows at a time: enough to fill a core, few enough that what passes between layers stays in its cache (a convolution's
# tens of megabytes do not, and come from fresh pages each time: twice the time at 256 rows). A dense model's rows are
# as wide as its biases together: the 2NN's fill CACHE with some 300 rows, logistic regression's never do
CHUNK = {"convolutional": 64, "cuda": 4096}
CACHE = 512 << 10  # bytes
LEAST, MOST = 256, 2048  # of the rows of a dense model; the same for any number of threads, as are the sums
PART = 1024  # rows that are normalised at a time
KEPT_BYTES = 256 << 20  # floats of a test set up to this size are kept: normalising costs as much as a small model


class Evaluator:
    """Confusion and loss on rows of one store."""

    def __init__(self, engine: LocalEngine, store: Store, *, keep: bool) -> None:
        self.engine, self.store = engine, store
        size = store.x.numel() * torch.empty((), dtype=store.dtype).element_size()
        self.keep = keep and size <= KEPT_BYTES
        self.floats: Tensor | None = None

    def rows(self, at: Rows) -> Tensor:
        """Normalised rows, from those kept where they are kept."""
        rows: Tensor = self.engine.layout(self.store.floats(at)) if self.floats is None else self.floats[at]
        return rows

    def __call__(self, params: Params, buffers: Params, rows: Array | None) -> tuple[Tensor, Tensor]:
        """(confusion matrix [C, C], mean cross-entropy ()) on the device; 0 without rows."""
        engine, device = self.engine, self.store.y.device
        given, statistics = engine.layout(params), engine.layout(buffers)
        chunks = self.chunks(rows)

        def one(chunk: Rows) -> tuple[Tensor, Tensor]:
            return self._chunk(given, statistics, chunk)

        if self.keep and self.floats is None:
            self.floats = self._all_rows()
        done = list(engine.map(one, chunks))
        matrix = torch.zeros(engine.task.classes, engine.task.classes, dtype=torch.int64, device=device)
        loss = torch.zeros((), dtype=torch.float64, device=device)
        for found, part in done:  # in the order of the rows, so that sums do not depend on the threads
            matrix, loss = matrix + found, loss + part
        return matrix, loss / max(len(self.store.y) if rows is None else len(rows), 1)

    def _all_rows(self) -> Tensor:
        """All rows, made a part at a time: what normalising makes in between would be three times as large."""
        total = len(self.store.y)
        first = self.rows(slice(0, PART))
        if total <= PART:
            return first
        whole: Tensor = self.engine.layout(first.new_empty(total, *first.shape[1:]))
        for a in range(0, total, PART):
            whole[a : a + PART] = self.rows(slice(a, a + PART))
        return whole

    def chunks(self, rows: Array | None) -> list[Rows]:
        """Rows, or all of them, as many at a time as suits the device and the model."""
        total = len(self.store.y) if rows is None else len(rows)
        if self.store.y.device.type != "cpu":
            size = CHUNK["cuda"]
        elif self.engine.convolves:
            size = CHUNK["convolutional"]
        else:
            size = min(max(CACHE // self._row_bytes(), LEAST), MOST)
        cuts = [slice(a, a + size) for a in range(0, total, size)]
        if rows is None:  # neighbours: looked at where they lie
            return [*cuts]
        at = torch.from_numpy(np.ascontiguousarray(rows)).to(self.store.y.device)
        return [at[cut] for cut in cuts]

    def _row_bytes(self) -> int:
        """What one row takes between the layers of a dense model."""
        biases = [p for p in self.engine.model.params.values() if p.dim() == 1]
        return max(sum(p.numel() for p in biases), self.engine.task.classes) * self.store.dtype.itemsize

    @torch.inference_mode()
    def _chunk(self, params: Params, buffers: Params, chunk: Rows) -> tuple[Tensor, Tensor]:
        y = self.store.y[chunk]
        mask = torch.ones(len(y), dtype=self.store.dtype, device=y.device)
        out, _ = self.engine.net.forward(params, buffers, self.rows(chunk), mask, train=False, key=y.new_zeros(()))
        matrix = confusion_of(y, out.logits.argmax(1), self.engine.task.classes)
        return matrix, cross_entropy(out.logits.double(), y).sum()
