"""Evaluation of models on rows: chunks of rows on every thread; nothing is read back before the end."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedskew.data.inputs import Store
from fedskew.engines.runtime import Runtime
from fedskew.functional import cross_entropy
from fedskew.models.prepare import Model
from fedskew.records.metrics import confusion_of
from fedskew.types import Output, Params

Array = np.ndarray[Any, Any]
Rows = Tensor | slice
T = TypeVar("T")

# Rows at a time. A chunk fills a core, and what passes between layers stays in its cache. A convolution's tens of
# megabytes do not, and come from fresh pages each time: 256 rows take twice the time of 64. A dense model's rows are as
# wide as its biases together: some 300 rows of the 2NN fill CACHE, logistic regression never does.
CHUNK = {"convolutional": 64, "cuda": 4096}
CACHE = 512 << 10  # bytes
LEAST, MOST = 256, 2048  # rows of a dense model; the same for any number of threads, so that sums are the same
PART = 1024  # rows that are normalised at a time
KEPT_BYTES = 256 << 20  # a test set up to this size is kept as floats: normalising costs as much as a small model


class Evaluator:
    """Evaluates models on the rows of one store."""

    def __init__(self, runtime: Runtime, store: Store, classes: int, *, keep: bool) -> None:
        """``keep`` the store's rows as floats, up to KEPT_BYTES of them."""
        self._runtime, self._store, self._classes = runtime, store, classes
        size = store.x.numel() * torch.empty((), dtype=store.dtype).element_size()
        self._keep = keep and size <= KEPT_BYTES
        self._kept: Tensor | None = None
        self._rows_at_a_time = _chunk(runtime.workers.original, store, classes)

    def confusion(self, params: Params, buffers: Params, rows: Array | None) -> tuple[Tensor, Tensor]:
        """(confusion matrix [C, C], mean cross-entropy ()) on the device, over these rows or all; 0 without rows."""
        matrix, loss, _ = self._measured(params, buffers, rows, keep=False)
        return matrix, loss

    def scored(self, params: Params, buffers: Params, rows: Array | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """`confusion` and, of the same pass, the probabilities of the rows, float64 [R, C]; both on the host."""
        matrix, loss, logits = self._measured(params, buffers, rows, keep=True)
        return matrix.cpu(), loss, torch.cat(logits).softmax(1).cpu()

    def _measured(
        self, params: Params, buffers: Params, rows: Array | None, keep: bool
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """As `confusion`, with the logits of each chunk, float64 [B, C], where they are to be kept."""

        def one(out: Output, y: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
            logits = out.logits.double()
            matrix = confusion_of(y, out.logits.argmax(1), self._classes)
            return matrix, cross_entropy(logits, y).sum(), [logits] if keep else []

        if self._keep and self._kept is None:
            self._kept = self._all_rows()
        device = self._store.y.device
        matrix = torch.zeros(self._classes, self._classes, dtype=torch.int64, device=device)
        loss, kept = torch.zeros((), dtype=torch.float64, device=device), list[Tensor]()
        for found, part, logits in self._over(params, buffers, rows, one):  # so that sums do not depend on the threads
            matrix, loss, kept = matrix + found, loss + part, kept + logits
        total = len(self._store.y) if rows is None else len(rows)
        return matrix, loss / max(total, 1), kept

    def logits(self, params: Params, buffers: Params, rows: Array | None = None) -> tuple[Tensor, Tensor]:
        """(logits [R, C] in the model's type, labels int64 [R]) of these rows or all, on the host."""
        found = self._over(params, buffers, rows, lambda out, y: (out.logits.cpu(), y.cpu()))
        logits, labels = map(torch.cat, zip(*found, strict=True))
        return logits, labels

    def outputs(self, params: Params, buffers: Params, rows: Array | Tensor | None) -> tuple[Tensor, Tensor]:
        """(probabilities [R, C] float64, features [R, F]) on the host; with ``rows`` None no features, [0, F]."""

        def one(out: Output, y: Tensor) -> tuple[Tensor, Tensor]:
            return out.logits.double().softmax(1).cpu(), out.features[: 0 if rows is None else None].cpu()

        probabilities, features = map(torch.cat, zip(*self._over(params, buffers, rows, one), strict=True))
        return probabilities, features

    def _over(self, params: Params, buffers: Params, rows: Array | Tensor | None, of: Callable[..., T]) -> list[T]:
        """A function of outputs and labels, of each chunk of these rows or all, in their order."""
        given, statistics = self._runtime.layout(params), self._runtime.layout(buffers)

        def one(chunk: Rows) -> T:
            return of(self._forward(given, statistics, chunk), self._store.y[chunk])

        return list(self._runtime.map(one, self._chunks(rows)))

    def _forward(self, params: Params, buffers: Params, chunk: Rows) -> Output:
        x = self._floats(chunk)
        mask = torch.ones(len(x), dtype=self._store.dtype, device=x.device)
        key = torch.zeros((), dtype=torch.int64, device=x.device)
        out, _ = self._runtime.net.forward(params, buffers, x, mask, train=False, key=key)
        return out

    def _floats(self, at: Rows) -> Tensor:
        """Normalised rows, from those that are kept where they are."""
        rows: Tensor = self._runtime.layout(self._store.floats(at)) if self._kept is None else self._kept[at]
        return rows

    def _all_rows(self) -> Tensor:
        """All rows, normalised a part at a time: all at once, the intermediate values take three times the memory."""
        total = len(self._store.y)
        first = self._floats(slice(0, PART))
        if total <= PART:
            return first
        whole: Tensor = self._runtime.layout(first.new_empty(total, *first.shape[1:]))
        for a in range(0, total, PART):
            whole[a : a + PART] = self._floats(slice(a, a + PART))
        return whole

    def _chunks(self, rows: Array | Tensor | None) -> list[Rows]:
        """These rows or all, cut into as many at a time as suits the device and the model."""
        total, size = len(self._store.y) if rows is None else len(rows), self._rows_at_a_time
        cuts = [slice(a, a + size) for a in range(0, total, size)]
        if rows is None:  # neighbours, which need no copy
            return [*cuts]
        at = torch.from_numpy(np.ascontiguousarray(rows)).to(self._store.y.device)
        return [at[cut] for cut in cuts]


def _chunk(model: Model, store: Store, classes: int) -> int:
    """Rows at a time, by device and model."""
    if store.y.device.type != "cpu":
        return CHUNK["cuda"]
    if model.convolutional:
        return CHUNK["convolutional"]
    width = max(sum(p.numel() for p in model.params.values() if p.dim() == 1), classes)  # between dense layers
    return min(max(CACHE // (width * store.dtype.itemsize), LEAST), MOST)
