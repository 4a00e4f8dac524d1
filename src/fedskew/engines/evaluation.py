"""Evaluation of models on rows, and of what each client would use: its own model where the method has one.

Rows are evaluated in chunks on every thread; nothing is read back before the end.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedskew import client as rounds
from fedskew.data.federation import Federation
from fedskew.data.inputs import RowStore
from fedskew.engines.clients import ClientMemory, Clients, RowSource
from fedskew.engines.runtime import Runtime
from fedskew.errors import afford
from fedskew.functional import cross_entropy, fit_logits, fitted_logits
from fedskew.method import Method
from fedskew.models.prepare import Model
from fedskew.records.metrics import confusion_of
from fedskew.server import Broadcast
from fedskew.types import Batch, Output, Params

Array = np.ndarray[Any, Any]
Rows = Tensor | slice
T = TypeVar("T")

# Rows at a time. A chunk fills a core, and what passes between layers stays in its cache. A convolution's tens of
# megabytes do not, and come from fresh pages each time: 256 rows take twice the time of 64. A dense model's rows are as
# wide as its biases together: some 300 rows of the 2NN fill CACHE, logistic regression never does.
CHUNK = {"convolutional": 64, "cuda": 4096}
CACHE = 512 << 10  # bytes
LEAST, MOST = 256, 2048  # rows of a dense model; the same for any number of threads, so that sums are the same
MATRICES = 4  # [C, C] at a time: of a chunk, of all rows, their sum, the record's list
PART = 1024  # rows that are normalised at a time
KEPT_BYTES = 256 << 20  # a test set up to this size is kept as floats: normalising costs as much as a small model


class Evaluator:
    """Evaluates models on the rows of one store."""

    def __init__(self, runtime: Runtime, store: RowStore, classes: int, *, keep: bool) -> None:
        """``keep`` the store's rows as floats, up to KEPT_BYTES of them.

        Raises DataError where confusion matrices [C, C] do not fit into memory: that comes before the training.
        """
        afford(MATRICES * 8 * classes**2, f"confusion matrices of {classes} classes", "keep fewer classes")
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

        def chunk_metrics(out: Output, y: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
            logits = out.logits.double()
            matrix = confusion_of(y, out.logits.argmax(1), self._classes)
            return matrix, cross_entropy(logits, y).sum(), [logits] if keep else []

        if self._keep and self._kept is None:
            self._kept = self._all_rows()
        device = self._store.y.device
        matrix = torch.zeros(self._classes, self._classes, dtype=torch.int64, device=device)
        loss, kept = torch.zeros((), dtype=torch.float64, device=device), list[Tensor]()
        # a chunk at a time, so that sums do not depend on the threads
        for counts, part, logits in self._over(params, buffers, rows, chunk_metrics):
            matrix, loss, kept = matrix + counts, loss + part, kept + logits
        total = len(self._store.y) if rows is None else len(rows)
        return matrix, loss / max(total, 1), kept

    def logits(self, params: Params, buffers: Params, rows: Array | None = None) -> tuple[Tensor, Tensor]:
        """(logits [R, C] in the model's type, labels int64 [R]) of these rows or all, on the host."""
        chunks = self._over(params, buffers, rows, lambda out, y: (out.logits.cpu(), y.cpu()))
        logits, labels = map(torch.cat, zip(*chunks, strict=True))
        return logits, labels

    def outputs(self, params: Params, buffers: Params, rows: Array | Tensor | None) -> tuple[Tensor, Tensor]:
        """(probabilities [R, C] float64, features [R, F]) on the host; with ``rows`` None no features, [0, F]."""

        def chunk_outputs(out: Output, y: Tensor) -> tuple[Tensor, Tensor]:
            return out.logits.double().softmax(1).cpu(), out.features[: 0 if rows is None else None].cpu()

        probabilities, features = map(torch.cat, zip(*self._over(params, buffers, rows, chunk_outputs), strict=True))
        return probabilities, features

    def _over(self, params: Params, buffers: Params, rows: Array | Tensor | None, of: Callable[..., T]) -> list[T]:
        """A function of outputs and labels, of each chunk of these rows or all, in their order."""
        weights, statistics = self._runtime.layout(params), self._runtime.layout(buffers)

        def chunk_value(chunk: Rows) -> T:
            x = self._floats(chunk)
            mask = torch.ones(len(x), dtype=self._store.dtype, device=x.device)
            key = torch.zeros((), dtype=torch.int64, device=x.device)
            out, _ = self._runtime.net.forward(weights, statistics, x, mask, train=False, key=key)
            return of(out, self._store.y[chunk])

        return list(self._runtime.workers.map(chunk_value, self._chunks(rows)))

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


def _chunk(model: Model, store: RowStore, classes: int) -> int:
    """Rows at a time, by device and model."""
    if store.y.device.type != "cpu":
        return CHUNK["cuda"]
    if model.convolutional:
        return CHUNK["convolutional"]
    width = max(sum(p.numel() for p in model.params.values() if p.dim() == 1), classes)  # between dense layers
    return min(max(CACHE // (width * store.dtype.itemsize), LEAST), MOST)


# What each client would use


Term = Callable[[Params, Output, Batch], Tensor]
Models = Callable[[int], tuple[Params, Params]]


class Tested(NamedTuple):
    """A model on the own test rows of one client."""

    client: int
    confusion: Tensor  # [C, C], on the host
    loss: float  # mean cross-entropy
    rows: Array  # the test rows, places in the set that holds them
    probabilities: Tensor | None  # float64 [R, C] in the order of ``rows``; a node of Flower does not tell them


def shares_of(source: RowSource, fed: Federation, ids: Iterable[int] | None = None) -> dict[int, Array]:
    """Each client's own test rows: those that it keeps for a test, else its share of the test set.

    Clients without training rows or without test rows are left out, and those not in ``ids``.
    """
    of = fed.test_rows if fed.held is None else fed.local_test_rows
    shares = {k: of(k) for k in (range(fed.clients) if ids is None else ids) if len(source.rows[k])}
    return {k: rows for k, rows in shares.items() if len(rows)}


def tested(
    clients: Clients, test: Evaluator, models: Models, shares: Mapping[int, Array], fitted_on: Evaluator | None = None
) -> Iterator[Tested]:
    """Each client's model on its own test rows, in the order of ``shares``.

    Args:
        clients: with their training rows.
        test: of the set that holds the test rows: the training set where clients keep rows for a test.
        models: (parameters, buffers) that client k would use, in the layout of the runtime.
        shares: test rows of each client, of `shares_of`.
        fitted_on: an evaluator of the training set. Each model then first gets biases and a temperature of its client's
            own, which are fitted on its rows and told to nobody.
    """
    classes = clients.task.classes

    def client_test(k: int) -> Tested:
        params, buffers = models(k)
        if fitted_on is None:
            matrix, loss, chances = test.scored(params, buffers, shares[k])
            return Tested(k, matrix, float(loss), shares[k], chances)
        biases, temperature = fit_logits(*fitted_on.logits(params, buffers, clients.source.rows[k]))
        logits, labels = test.logits(params, buffers, shares[k])
        logits = fitted_logits(logits.double(), biases, temperature)
        matrix, loss = confusion_of(labels, logits.argmax(1), classes), cross_entropy(logits, labels).mean()
        return Tested(k, matrix, float(loss), shares[k], logits.softmax(1))

    yield from clients.runtime.workers.map(client_test, shares)


def pooled(each: Iterable[Tested], classes: int) -> tuple[Tensor, float]:
    """(confusion matrix [C, C], mean cross-entropy) over the test rows of all clients; zeros without any."""
    matrix, total, rows = torch.zeros(classes, classes, dtype=torch.int64), 0.0, 0
    for test in each:
        n = len(test.rows)
        matrix, total, rows = matrix + test.confusion, total + test.loss * n, rows + n
    return matrix, total / max(rows, 1)


def personal_model(
    clients: Clients, method: Method, broadcast: Broadcast, memory: ClientMemory, k: int
) -> tuple[Params, Params]:
    """(parameters, buffers) of client k's own model.

    The broadcast model with its private parameters, then the `personalize` of every component, one after another.
    """
    ctx, rows = clients.context(broadcast, memory, k, clients.source), clients.batch(clients.source.rows[k])
    net = clients.runtime.net

    def gradient(params: Params, term: Term | None = None, at: Tensor | None = None, /) -> Params:
        """Of the mean of a term, or of cross-entropy, over some or all rows of the client, in evaluation mode."""
        some = rows if at is None else Batch(*(part[at.to(part.device)] for part in rows))

        def objective(p: Params) -> tuple[Tensor, tuple[Batch, Params]]:
            key = ctx.owned.new_zeros(())
            out, _ = net.forward(p, buffers, some.x, some.mask, train=False, key=key)
            each = cross_entropy(out.logits, some.y) if term is None else term(p, out, some)
            return some.mean(each), (some, {})

        return rounds.autograd(objective, params)[0]

    params, buffers = ctx.params, ctx.buffers
    for part in method.having("personalize"):
        params, buffers = rounds.apart(part.personalize(params, ctx, gradient), buffers)
    return params, buffers
