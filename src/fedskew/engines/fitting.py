"""The control of every run: biases of the classes and a temperature, fitted after training on the clients' sums.

Nothing here reads a test row to fit, and nothing that it finds is read by training. A simulated run does it outside of
its traffic; its bytes are counted apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from fedskew.errors import FieldError, RecordError
from fedskew.functional import cross_entropy, even_weights, fit_by_sums, fitted_logits, logit_sums, prior_biases
from fedskew.functional.fitting import RIDGE, Sums
from fedskew.records.metrics import confusion_of, from_confusion, from_probabilities
from fedskew.records.typed import Row
from fedskew.settings import Settings

Ask = Callable[[Tensor, Tensor], Sums]  # (point [C + 1], weight of each class [C]) -> sums over all clients
Objective = Literal["prior", "balanced"]
LIMIT = 256  # classes: 268 kB for each client and exchange; a model of more is not fitted
CELLS = 1 << 15  # logits that are looked at together: what is made of them stays in the cache of a core
OBJECTIVES: tuple[Objective, ...] = ("prior", "balanced")


@dataclass(frozen=True)
class Fit:
    """What was fitted: z' = a z + b."""

    a: float
    b: tuple[float, ...]  # of each class; their sum is 0
    of: str
    objective: str
    ridge: float
    exchanges: int
    converged: bool
    clients: int
    upload_bytes: int  # of all clients, in all exchanges, the histogram among them
    download_bytes: int  # of the points; the model itself goes to every client that uses it

    def logits(self, logits: Tensor) -> Tensor:
        """Fitted logits, float64 [..., C]."""
        return fitted_logits(logits.double(), torch.tensor(self.b, dtype=torch.float64, device=logits.device), self.a)

    def to_json(self) -> Row:
        """Plain values."""
        return {**asdict(self), "b": list(self.b)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any], classes: int | None = None) -> Fit:
        """The fit that a file holds. Raises RecordError where it is none, or of another number of classes."""
        try:
            made = cls(**{**content, "b": tuple(map(float, content["b"]))})
            numbers = torch.tensor([made.a, *made.b], dtype=torch.float64)
            right = len(made.b) == (classes or len(made.b)) and bool(numbers.isfinite().all()) and made.a > 0
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise RecordError(f"its fit is damaged: {type(error).__name__}: {error}") from None
        if not right:
            raise RecordError("its fit must hold a finite bias of each class and a temperature above 0")
        return made


class ClientLogits:
    """Logits of all training rows of all clients, from one pass, kept for the exchanges."""

    def __init__(self, logits: Tensor, labels: Tensor) -> None:
        """``logits`` [R, C] and ``labels`` int64 [R], on the host."""
        self.logits, self.labels = logits, labels

    def __call__(self, point: Tensor, weights: Tensor) -> Sums:
        """What the server adds up: the sums of `logit_sums` over all clients, where class c weighs ``weights[c]``."""
        size = max(1, CELLS // self.logits.shape[1])
        cuts = [slice(a, a + size) for a in range(0, len(self.labels), size)]
        parts = [logit_sums(self.logits[cut], y := self.labels[cut], weights[y], point) for cut in cuts]
        loss, gradient, hessian = (torch.stack(column).sum(0) for column in zip(*parts, strict=True))
        return loss, gradient, hessian


def triangle_of(hessian: Tensor) -> Tensor:
    """The upper triangle of a matrix, row by row."""
    at = torch.triu_indices(*hessian.shape)
    return hessian[at[0], at[1]]


def whole_of(triangle: Tensor, size: int) -> Tensor:
    """The symmetric matrix of an upper triangle."""
    upper = triangle.new_zeros(size, size)
    at = torch.triu_indices(size, size)
    upper[at[0], at[1]] = triangle
    return upper + upper.triu(1).T


def fit(ask: Ask, counts: Tensor, objective: Objective, start: Fit | None = None) -> Fit:
    """Fit biases and a temperature to the logits of a model that all clients have.

    Args:
        ask: one exchange: the server's point and the classes' weights go to every client, the sums come back, added.
        counts: training rows of each client and class, int64 [N, C]. Their sum over clients is the histogram that the
            balanced objective needs; clients without rows are not asked.
        objective: "prior" takes rows as they are, for accuracy and loss; "balanced" every class alike, for balanced
            accuracy and macro F1.
        start: another fit of the model, from whose end a few exchanges are left.

    Returns:
        The fit, with what crossed the network: each client sends (C + 1)(C + 4) / 2 + 1 numbers of 8 bytes in an
        exchange (the loss, the gradient, a triangle of the Hessian), 624 bytes for 10 classes; C + 1 come to it.
    """
    pooled, classes = counts.sum(0), counts.shape[1]
    clients, even = int((counts.sum(1) > 0).sum()), objective == "balanced"
    weights = even_weights(pooled) if even else torch.ones(classes, dtype=torch.float64)
    begin = None if start is None else torch.tensor([*start.b, start.a], dtype=torch.float64)
    every = torch.ones(classes + 1, dtype=torch.bool)
    total = float((weights * pooled).sum())
    point, exchanges, converged = fit_by_sums(lambda x: ask(x, weights), total, every, RIDGE, begin)
    histogram = classes * even
    up = 8 * clients * (exchanges * ((classes + 1) * (classes + 4) // 2 + 1) + histogram)
    down = 8 * clients * (exchanges * (classes + 1) + histogram)
    *b, a = point.tolist()
    return Fit(a, tuple(b), "both", objective, RIDGE, exchanges, converged, clients, up, down)


def fits_by(ask: Ask, counts: Tensor) -> dict[str, Fit]:
    """The fits of a run by objective; the balanced one begins where the other ends. Arguments are those of `fit`."""
    prior = fit(ask, counts, "prior")
    return {"prior": prior, "balanced": fit(ask, counts, "balanced", prior)}


def fits_by_shares(shares: Tensor, exchanges: int, clients: int) -> dict[str, Fit]:
    """The fits of a run where clients tell shares of the classes with noise, and nothing of their rows.

    For rows as they are the model stays as it is. For every class alike it gets the biases of the shares, where one
    that is less than its noise counts as the noise.

    Args:
        shares: mean over clients, in units of the noise, [C].
        exchanges: how often they were told.
        clients: that told them each time, on average.
    """
    each = {"prior": torch.zeros_like(shares), "balanced": prior_biases(shares)}
    up = 8 * clients * exchanges * len(shares)
    made = {name: (1.0, tuple(b.tolist()), "histogram", name, RIDGE) for name, b in each.items()}
    return {name: Fit(*facts, exchanges, True, clients, up, 0) for name, facts in made.items()}


def fits_of(content: Mapping[str, Any], classes: int | None = None) -> dict[str, Fit]:
    """The fits by objective that a file or a summary holds under "fit". Raises RecordError where one is damaged."""
    fits = content.get("fit", {})
    if not isinstance(fits, Mapping) or not (not fits or set(fits) == set(OBJECTIVES)):
        raise RecordError(f"its fit is damaged: it must have the entries {' and '.join(OBJECTIVES)}")
    return {name: Fit.from_json(entry, classes) for name, entry in fits.items()}


def measured(labels: Tensor, logits: Tensor, fits: Mapping[str, Fit], recall_at: float | None) -> Row:
    """Metrics of a fitted model, each under the fit that serves it.

    Args:
        labels: true classes, int64 [R].
        logits: of the model as it was trained, [R, C].
        fits: by objective, both.
        recall_at: precision at which the recall of each class is measured; None: no scores are.

    Returns:
        As `from_confusion` and `from_probabilities`, with ``loss`` and ``confusion``: those that count classes
        (recalls, F1, balanced accuracy, the matrix) of the balanced fit, those that count rows (accuracy, loss,
        calibration, AUROC, AUPRC) of the other.
    """
    classes = logits.shape[1]
    prior, balanced = (fits[name].logits(logits) for name in OBJECTIVES)
    matrix = confusion_of(labels, balanced.argmax(1), classes)
    by_row: Row = {
        "accuracy": float((prior.argmax(1) == labels).double().mean()),
        "loss": float(cross_entropy(prior, labels).mean()),
    }
    ranked = {} if recall_at is None else from_probabilities(labels, prior.softmax(1), recall_at)
    return {**from_confusion(matrix), **by_row, **ranked, "confusion": matrix.tolist()}


def check_limit(settings: Settings, classes: int) -> None:
    """Raise FieldError where fits are asked for between rounds that a model of so many classes does not get."""
    if settings.evaluation().due("fit_logits", settings.rounds) and classes > LIMIT:
        rule = f"be last or none beside {classes} classes: a model of more than {LIMIT} is not fitted"
        raise FieldError("Settings", "fit_logits", rule, settings.fit_logits)
