"""Evaluation of what each client would use: its own model where the method has one, else the global model."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedskew import client as rounds
from fedskew.data.federation import Federation
from fedskew.engines.clients import ClientMemory, Clients, Source
from fedskew.engines.evaluation import Evaluator
from fedskew.functional import cross_entropy, fit_logits, fitted_logits
from fedskew.method import Method
from fedskew.records.metrics import confusion_of
from fedskew.server import Broadcast
from fedskew.types import Batch, Output, Params

Array = np.ndarray[Any, Any]
Term = Callable[[Params, Output, Batch], Tensor]
Models = Callable[[int], tuple[Params, Params]]


class Tested(NamedTuple):
    """A model on the own test rows of one client."""

    client: int
    confusion: Tensor  # [C, C], on the host
    loss: float  # mean cross-entropy
    rows: Array  # the test rows, places in the set that holds them
    probabilities: Tensor | None  # float64 [R, C] in the order of ``rows``; a node of Flower does not tell them


def shares_of(own: Source, fed: Federation, ids: Iterable[int] | None = None) -> dict[int, Array]:
    """Each client's own test rows: those that it keeps for a test, else its share of the test set.

    Clients without training rows or without test rows are left out, and those not in ``ids``.
    """
    of = fed.test_rows if fed.held is None else fed.local_test_rows
    shares = {k: of(k) for k in (range(fed.clients) if ids is None else ids) if len(own.rows[k])}
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

    def one(k: int) -> Tested:
        params, buffers = models(k)
        if fitted_on is None:
            matrix, loss, chances = test.scored(params, buffers, shares[k])
            return Tested(k, matrix, float(loss), shares[k], chances)
        biases, temperature = fit_logits(*fitted_on.logits(params, buffers, clients.own.rows[k]))
        logits, labels = test.logits(params, buffers, shares[k])
        logits = fitted_logits(logits.double(), biases, temperature)
        matrix, loss = confusion_of(labels, logits.argmax(1), classes), cross_entropy(logits, labels).mean()
        return Tested(k, matrix, float(loss), shares[k], logits.softmax(1))

    yield from clients.runtime.map(one, shares)


def pooled(each: Iterable[Tested], classes: int) -> tuple[Tensor, float]:
    """(confusion matrix [C, C], mean cross-entropy) over the test rows of all clients; zeros without any."""
    matrix, total, rows = torch.zeros(classes, classes, dtype=torch.int64), 0.0, 0
    for one in each:
        n = len(one.rows)
        matrix, total, rows = matrix + one.confusion, total + one.loss * n, rows + n
    return matrix, total / max(rows, 1)


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
