"""Evaluation of the clients' own models, for methods that have them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fedskew import client as rounds
from fedskew.engines.clients import Clients
from fedskew.engines.evaluation import Evaluator
from fedskew.engines.memory import ClientMemory
from fedskew.functional import cross_entropy, fit_logits, fitted_logits
from fedskew.method import Method
from fedskew.records.metrics import confusion_of
from fedskew.server import Broadcast
from fedskew.types import Batch, Output, Params

if TYPE_CHECKING:
    from fedskew.data.federation import Federation

__all__ = ["personal_model", "pooled"]

Array = np.ndarray[Any, Any]
Term = Callable[[Params, Output, Batch], Tensor]


def pooled(
    clients: Clients,
    test: Evaluator,
    method: Method,
    broadcast: Broadcast,
    memory: ClientMemory,
    fed: Federation,
    ids: Iterable[int] | None = None,
    fitted_on: Evaluator | None = None,
) -> tuple[Tensor, float]:
    """(confusion matrix [C, C], mean cross-entropy) of every client's own model on its own test rows.

    These are rows of the set behind ``test``: the training set where clients keep rows for a test, else the test set.
    Clients without training rows or without test rows are left out, and those not in ``ids``.
    ``broadcast`` is in the layout of the runtime. With ``fitted_on``, an evaluator of the training set, each model
    first gets biases and a temperature of its client's own, which are fitted on its rows and told to nobody.
    """
    own = fed.test_rows if fed.held is None else fed.local_test_rows
    shares = {k: own(k) for k in (range(fed.clients) if ids is None else ids) if len(clients.own.rows[k])}
    shares = {k: rows for k, rows in shares.items() if len(rows)}

    def one(k: int) -> tuple[Tensor, float]:
        params, buffers = personal_model(clients, method, broadcast, memory, k)
        if fitted_on is not None:
            biases, temperature = fit_logits(*fitted_on.logits(params, buffers, clients.own.rows[k]))
            logits, labels = test.logits(params, buffers, shares[k])
            logits = fitted_logits(logits.double(), biases, temperature)
            return confusion_of(labels, logits.argmax(1), classes), float(cross_entropy(logits, labels).mean())
        found, loss = test.confusion(params, buffers, shares[k])
        return found.cpu(), float(loss)

    classes = clients.task.classes
    matrix, total = torch.zeros(classes, classes, dtype=torch.int64), 0.0
    for (found, loss), rows in zip(clients.runtime.map(one, shares), shares.values(), strict=True):
        matrix, total = matrix + found, total + loss * len(rows)
    return matrix, total / max(sum(map(len, shares.values())), 1)


def personal_model(
    clients: Clients, method: Method, broadcast: Broadcast, memory: ClientMemory, k: int
) -> tuple[Params, Params]:
    """(parameters, buffers) of client k's own model.

    The broadcast model with its private parameters, then the `personalize` of every component, one after another.
    """
    ctx, rows = clients.context(broadcast, memory, k, clients.own), clients.batch(clients.own.rows[k])
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
