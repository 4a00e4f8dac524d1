"""What is measured at the nodes, pooled; what a node tells of its rows is held against what it has told before."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedskew.errors import TrainingError, one_line
from fedskew.flower.exchange import MALFORMED, Bad, Exchange
from fedskew.flower.facts import count, real
from fedskew.flower.link import Answer
from fedskew.flower.receipts import written_to
from fedskew.flower.wire import Layout, Packed

__all__ = ["LARGEST", "Measuring"]

LOG = logging.getLogger("flwr")
LARGEST = 1e100  # mean loss of a node: its sum over rows and nodes is finite


@dataclass
class Measuring:
    """Asks nodes about a model, outside of training."""

    exchange: Exchange
    classes: int
    unmeasured: list[Bad] = field(default_factory=list)  # whose answers were of no use, until somebody clears them
    _tested: dict[int, Tensor] = field(default_factory=dict)  # client: its test rows of each class

    def pooled(self, kind: str, shared: Packed, number: int, **facts: Any) -> tuple[Tensor, float]:
        """Pooled (confusion matrix, mean cross-entropy) of the nodes that have training and test rows, and permit it.

        Raises TrainingError where none of them tells a metric of use.
        """
        link, classes, requests = self.exchange.link, self.classes, []
        expected: Layout = {("matrix",): (torch.int64, (classes, classes))}
        for k in link.measuring:
            written = {"written": written_to(self.exchange.receipts.get(k))}
            requests.append(self.exchange.request(k, {"kind": kind, **facts}, shared, written, expected))
        matrix, total, rows = torch.zeros(classes, classes, dtype=torch.int64), 0.0, 0
        for answer in self.exchange.answers(requests, "evaluate", number):
            n = link.clients[answer.client].facts["test_rows"]
            try:
                found, loss = _measured(answer, n)
                _same_rows(self._tested.setdefault(answer.client, found.sum(1)), found.sum(1))
            except MALFORMED as error:
                self.leave_out(answer, one_line(error), number)
                continue
            matrix, total, rows = matrix + found, total + loss * n, rows + n
        if not rows:
            raise TrainingError(
                f"at least one node must send a usable metric; got none of {len(requests)} in round {number}"
            )
        return matrix, total / rows

    def leave_out(self, answer: Answer, wrong: str, number: int) -> None:
        """An answer of no use counts nowhere, and the record names its author. Raises TrainingError under stop."""
        bad = Bad(answer.client, wrong, number)
        failure = self.exchange.failure([bad], "missing" if answer.missing else "bad")
        if not failure.drop:
            raise failure from None
        LOG.warning("fedskew: the model of round %d is measured without it: %s", number, failure)
        self.unmeasured.append(bad)


def _same_rows(before: Tensor, now: Tensor) -> None:
    """Raise ValueError where a node's test rows of each class are not what they were."""
    if not torch.equal(before, now):
        raise ValueError("its confusion matrix must count the test rows of each class that it had before")


def _measured(answer: Answer, rows: int) -> tuple[Tensor, float]:
    """(confusion matrix, mean loss) that a node with ``rows`` test rows tells. Raises one of MALFORMED."""
    if answer.envelope is None:
        raise ValueError(answer.wrong)
    told, matrix = answer.envelope.facts, answer.envelope.trees["matrix"]
    if count(told, "rows") != rows:
        raise ValueError(f"its confusion matrix must be of its {rows} test rows; it counts {told['rows']}")
    cells = matrix.flatten().tolist()  # whole numbers without an end: a sum of int64 may come round again
    if min(cells) < 0 or max(cells) > rows or sum(cells) != rows:
        raise ValueError(f"its confusion matrix must count its {rows} test rows")
    loss = real(told, "loss")
    if not 0 <= loss <= LARGEST:
        raise ValueError(f"its mean loss must be a number from 0 to {LARGEST:g}; got {loss:g}")
    return matrix, loss
