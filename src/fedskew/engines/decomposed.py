"""What the error of a trained model is made of: biases of the classes, calibration, ranking, and features."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from fedskew.engines.fitting import Fitting
from fedskew.errors import require
from fedskew.functional import cross_entropy
from fedskew.records.metrics import confusion_of, from_confusion, from_probabilities
from fedskew.records.probabilities import PRECISION
from fedskew.records.typed import Row

if TYPE_CHECKING:
    from fedskew.data.federation import Federation
    from fedskew.engines.trained import Trained

__all__ = ["STEPS", "decompose", "pooled_head"]

RIDGE = 1e-3  # of the head's weights beside the mean loss, over standardised features
CLOSE = 1e-7  # of the largest entry of the gradient, at which the head is done
MOST = 1000  # evaluations of it
# step -> what of the model is fitted on training rows
STEPS: dict[str, str] = {
    "raw": "the model as it was trained",
    "biases": "a bias of each class is fitted",
    "temperature": "one temperature is fitted: calibration alone, no prediction changes",
    "both": "biases and temperature are fitted, as for fitted metrics",
    "features": "a new linear head on the model's features, fitted on all training rows pooled at one place",
}


def decompose(trained: Trained, fed: Federation, ridge: float = RIDGE) -> dict[str, Row]:
    """Metrics of the test rows after each of `STEPS`, all fitted on training rows.

    The gap from "raw" to "both" is bias and calibration, which eleven numbers mend for ten classes. That from "both" to
    "features" is what the head lost, and 1 less that of "features" is what the features lost. The last step pools the
    features of all clients, so it is a bound for comparison: no federation computes it so, and it is none of a method.
    The macro AUROC ranks the rows of a class against the others by its probability. Of two classes neither biases nor a
    temperature change it. Of more they may, a little: a probability depends on all logits of its row.

    Args:
        trained: The model.
        fed: Whose rows; their dataset is encoded as the model's training rows were.
        ridge: Weight of the penalty on the head of "features", above 0.

    Returns:
        Of each step accuracy, balanced_accuracy, loss (mean cross-entropy), ece and auroc_macro; None where a
            class that it needs has no test rows.

    Raises:
        ConfigError: The ridge is not above 0, or the model's logits or features are not finite.
        DataError: The rows have another shape or another encoding.

    Example:
        >>> import fedskew as fs
        >>> fed = fs.federate("digits", fs.partitioners.Dirichlet(alpha=0.1), clients=5)
        >>> trained = fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=2, cohort=2).trained
        >>> found = fs.decompose(trained, fed)
        >>> found["raw"]["accuracy"] < found["both"]["accuracy"] < found["features"]["accuracy"]
        True
    """
    require(ridge > 0 and math.isfinite(ridge), "ridge", "be above 0", ridge)
    x, y = trained.test_rows(fed.dataset)
    logits, classes = trained.logits(x, y).double(), len(trained.label_names)
    kinds: tuple[Literal["biases", "temperature", "both"], ...] = ("biases", "temperature", "both")
    given = {"raw": logits} | {of: trained.fit_on(fed, Fitting(of=of)).logits(logits) for of in kinds}
    train, labels = trained.train_rows(fed)
    weight, bias = pooled_head(trained.features(train), labels, classes, ridge)
    given["features"] = trained.features(x).double() @ weight.T + bias
    return {step: _measured(y, given[step]) for step in STEPS}


def pooled_head(features: Tensor, labels: Tensor, classes: int, ridge: float = RIDGE) -> tuple[Tensor, Tensor]:
    """Multinomial logistic regression by L-BFGS, over features of mean 0 and deviation 1.

        min over V, c of  mean cross-entropy of V s + c + ridge / 2 |V|^2,   s = (f - m) / d

    Args:
        features: f, [n, F].
        labels: Class numbers, int64 [n].
        classes: C.
        ridge: Weight of the penalty; c has none.

    Returns:
        (weight [C, F], bias [C]) over the features as they are, float64.

    Raises:
        ConfigError: The features are not finite.
    """
    f = features.double()
    require(bool(f.isfinite().all()), "model", "give finite features", "infinity or NaN")
    middle, far = f.mean(0), f.std(0, correction=0)
    scale = torch.where(far > 0, far, 1.0)
    s = (f - middle) / scale
    v = torch.zeros(classes, f.shape[1], dtype=torch.float64, requires_grad=True)
    c = torch.zeros(classes, dtype=torch.float64, requires_grad=True)
    solver = torch.optim.LBFGS(
        [v, c], max_iter=MOST, tolerance_grad=CLOSE, tolerance_change=1e-12, history_size=20,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    def value() -> Tensor:
        solver.zero_grad()
        loss: Tensor = torch.nn.functional.cross_entropy(s @ v.T + c, labels) + ridge / 2 * (v * v).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    with torch.enable_grad():
        solver.step(value)  # type: ignore[no-untyped-call]
    weight = v.detach() / scale
    return weight, c.detach() - weight @ middle


def _measured(labels: Tensor, logits: Tensor) -> Row:
    """What a step is judged by."""
    matrix = confusion_of(labels, logits.argmax(1), logits.shape[1])
    plain, ranked = from_confusion(matrix), from_probabilities(labels, logits.softmax(1), PRECISION)
    loss = float(cross_entropy(logits, labels).mean())
    return {"accuracy": plain["accuracy"], "balanced_accuracy": plain["balanced_accuracy"], "loss": loss,
            "ece": ranked["ece"], "auroc_macro": ranked["auroc_macro"]}  # fmt: skip
