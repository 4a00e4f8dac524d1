"""Biases and a temperature of a served model, fitted on sums that nodes give of their rows, where all of them allow it.

A node gets the model once, keeps the logits of its rows, and answers each further point of the server's.
"""

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedskew.engines.fitting import Fit, fits_by, whole_of
from fedskew.errors import one_line
from fedskew.flower.exchange import LARGEST, Exchange, Measuring
from fedskew.flower.facts import quoted, receipt
from fedskew.flower.link import Request
from fedskew.flower.memory import NONE
from fedskew.flower.requests import MOST_FITTED
from fedskew.flower.wire import Envelope, Layout, Packed, pack
from fedskew.functional.fitting import Sums

LOG = logging.getLogger("flwr")
ROUNDING = 1e-6  # of the size of what is compared
INDEFINITE = 1e-9  # of the diagonal
NOTHING = pack({})


class _Again(Exception):
    """A node of the fit was left out: the others' sums are of another sample from here on."""


class _Unfit(Exception):
    """There is no fit, in words."""


@dataclass
class NodeFits:
    """Fits of models of one run."""

    exchange: Exchange
    measuring: Measuring
    counts: Tensor  # training rows of each client and class, as the nodes have declared them
    _told: set[int] = field(default_factory=set)  # clients of whom the log has said that their nodes do not allow it

    def of(self, model: Packed) -> dict[str, Fit]:
        """The fits of a model by objective; none where a node does not allow it.

        A node whose answer is of no use is left out, where its option says drop, and the fit begins again without it.
        Under stop it raises TrainingError.
        """
        asked = [k for k in range(len(self.counts)) if int(self.counts[k].sum())]
        if self._refusing(asked):
            return {}
        left = iter(range(MOST_FITTED))
        while asked:
            gone = len(self.measuring.unmeasured)
            counts = torch.zeros_like(self.counts)
            counts[asked] = self.counts[asked]
            try:
                return fits_by(_Asking(self, model, counts, asked, left), counts)
            except _Again:
                gone_now = {bad.client for bad in self.measuring.unmeasured[gone:]}
                asked = [k for k in asked if k not in gone_now]
            except (_Unfit, torch.linalg.LinAlgError) as error:  # type: ignore[attr-defined]
                LOG.warning("fedskew: the model is not fitted: %s", one_line(error))
                return {}
        LOG.warning("fedskew: the model is not fitted: no node gave sums of use")
        return {}

    def _refusing(self, asked: list[int]) -> list[int]:
        """Clients whose nodes do not allow it. The log says so once."""
        clients = self.exchange.link.clients
        found = [k for k in asked if not {"fit", "histogram"} <= set(clients[k].facts["permits"])]
        if set(found) - self._told:
            told = f"{clients[found[0]].name} does not allow fit"
            more = f", and {len(found) - 1} others do not" if len(found) > 1 else ""
            LOG.info("fedskew: the model is not fitted, which takes all %d nodes: %s%s", len(asked), told, more)
        self._told |= set(found)
        return found


@dataclass
class _Asking:
    """One exchange with all clients of a fit: a point and weights of the classes go out, sums come back, added."""

    fits: NodeFits
    model: Packed
    counts: Tensor
    asked: list[int]
    left: Iterator[int]  # exchanges that are left for the model, whoever takes part
    _kept: dict[int, str] = field(default_factory=dict)  # client: receipt of the logits that its node keeps

    def __call__(self, point: Tensor, weights: Tensor) -> Sums:
        """The sums, added in the order of the clients."""
        if not bool(point.isfinite().all()):
            raise _Unfit("the sums lead to no finite point")
        if next(self.left, None) is None:
            raise _Unfit(f"{MOST_FITTED} exchanges have not led to its end")
        measuring, size = self.fits.measuring, len(point)
        number, left_out = self.fits.exchange.number, len(measuring.unmeasured)
        half = (size * (size + 1) // 2,)
        shapes = {"loss": (), "gradient": (size,), "triangle": half}
        expected: Layout = {("sums", name): (torch.float64, shape) for name, shape in shapes.items()}
        requests = [self._request(k, {"point": point, "weights": weights}, expected) for k in self.asked]
        total = torch.zeros((), dtype=torch.float64), torch.zeros_like(point), torch.zeros(size, size).double()

        def read(client: int, answer: Envelope) -> tuple[str, Sums]:
            kept, sums = _read(answer)
            check_sums(sums, point, weights, self.counts[client])
            return kept, sums

        for client, (kept, sums) in measuring.of_use(requests, "query", number, read):
            self._kept[client] = kept
            total = total[0] + sums[0], total[1] + sums[1], total[2] + sums[2]
        if len(measuring.unmeasured) > left_out:
            raise _Again
        return total

    def _request(self, k: int, own: dict[str, Tensor], expected: Layout) -> Request:
        """A message with the model, where the node does not have it yet."""
        kept = self._kept.get(k, NONE)
        given = NOTHING if kept else self.model
        return self.fits.exchange.request(k, {"kind": "fit", "logits": kept}, given, own, expected)


def _read(answer: Envelope) -> tuple[str, Sums]:
    """(receipt of the logits that the node keeps, its sums). Raises one of MALFORMED."""
    sums, kept = answer.trees["sums"], receipt(answer.facts.get("logits"))
    if not kept:
        raise ValueError("it must say which logits it keeps; got none")
    return kept, (sums["loss"], sums["gradient"], whole_of(sums["triangle"], len(sums["gradient"])))


def check_sums(sums: Sums, point: Tensor, weights: Tensor, counts: Tensor) -> None:
    """Hold a node's sums against the rows that it has declared: they are those of some logits of so many rows.

    With x = (b, a) the point, n_c rows of class c, W = sum w_c n_c, g and H the gradient and the Hessian:

        g_c + w_c n_c = sum w p_c >= 0, and these sum to W
        H of the biases is a Laplacian: its rows sum to 0, and beside the diagonal it is at most 0;  H is semidefinite
        L - x . g = sum w (entropy of p), from 0 to W log C
        x . H x = sum w (variance of log p) <= W (log^2(C - 1) / 4 + 1)

    So a node can move the fit as its rows could, and no further.

    Args:
        sums: loss, gradient and Hessian of the node.
        point: x, at which it was asked.
        weights: w of each class.
        counts: n of each class.

    Raises:
        ValueError: they cannot be; the message says why.

    References:
        Reeb and Wolf 2015, Tight Bound on Relative Entropy by Entropy Difference (IEEE Transactions on Information
        Theory 61(3)), for the variance of log p. https://arxiv.org/abs/1304.0036
    """
    loss, gradient, hessian = sums
    whole, held, classes = float((weights * counts).sum()), weights * counts, len(weights)
    near = ROUNDING * whole
    if not all(bool(part.isfinite().all()) for part in sums):
        raise ValueError("its sums must be finite")
    if not 0 <= float(loss) <= LARGEST * whole:
        raise ValueError(f"its loss must be from 0 to {LARGEST:g} a row; got {quoted(float(loss))} in all")
    chances = gradient[:-1] + held  # sum w p of each class
    if float(chances.min()) < -near or abs(float(chances.sum()) - whole) > near:
        raise ValueError("its gradient must be of the rows of each class that it has declared")
    block, own = hessian[:-1, :-1], float(hessian[-1, -1])
    beside = block - torch.diag(block.diagonal())
    laplacian = float(beside.max()) <= near and float(block.sum(1).abs().max()) <= near * classes
    if not laplacian or bool((block.diagonal() > chances + near).any()) or own < 0:
        raise ValueError("its Hessian must be of the rows that it has declared")
    scale = torch.full_like(point, whole**-0.5)
    scale[-1] = max(own, near) ** -0.5
    if float(torch.linalg.eigvalsh(scale[:, None] * hessian * scale).min()) < -INDEFINITE * classes:
        raise ValueError("its Hessian must be positive semidefinite")
    parts = point * gradient
    entropy, error = float(loss - parts.sum()), ROUNDING * float(whole + loss + parts.abs().sum())
    if not -error <= entropy <= whole * math.log(classes) + error:
        raise ValueError("its loss and its gradient must be of the same rows")
    bent = point[:, None] * hessian * point
    error = ROUNDING * float(whole + bent.abs().sum())
    if float(bent.sum()) > whole * (math.log(max(classes - 1, 1)) ** 2 / 4 + 1) + error:
        raise ValueError("its curvature must be that of probabilities")
