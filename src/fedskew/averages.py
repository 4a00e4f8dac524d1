"""Models of the last rounds and their means: a control that costs no row and no byte, and a model to serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fedskew import tree
from fedskew.records.summary import TAIL
from fedskew.settings import Evaluation, Settings
from fedskew.types import Params, Tree


class Kept(NamedTuple):
    """The model that is evaluated after a round."""

    round: int
    params: Params
    buffers: Params

    @property
    def model(self) -> Tree:
        """Parameters and buffers, as a checkpoint has them."""
        return {"params": self.params, "buffers": self.buffers}

    @classmethod
    def of(cls, number: int, model: Tree) -> Kept:
        """What `model` gives back."""
        return cls(number, model["params"], model.get("buffers", {}))


class Averages:
    """The models of the last rounds, and two means of them: one is measured beside the last model, one may be served.

    The model of round t is x_t, with its BatchNorm statistics. Measured is (x_T-9 + ... + x_T) / 10 after the last
    round T. Served is x_T, or with ``average`` k and ``average_decay`` d the sum over i < k of d^i x_t-i over that of
    d^i; with d = 1 every model counts alike. Sums are in float64.

    References:
        Polyak and Juditsky 1992, Acceleration of Stochastic Approximation by Averaging. Izmailov et al. 2018, Averaging
        Weights Leads to Wider Optima, https://arxiv.org/abs/1803.05407. Over rounds: Caldarola et al. 2023,
        Window-based Model Averaging, https://arxiv.org/abs/2310.01366
    """

    def __init__(self, settings: Settings, evaluation: Evaluation) -> None:
        self.served, self.decay, self.evaluation = settings.average, settings.average_decay, evaluation
        self.length = max(TAIL if evaluation.due("average_models", evaluation.rounds, over=True) else 0, self.served)
        self.window: list[Kept] = []

    def keep(self, model: Kept) -> None:
        """Keep the model after a round. Safe to repeat."""
        if self.length and model.round:
            self.window = self._last(model, self.length)

    def shown(self, model: Kept) -> Kept:
        """What is evaluated after the round of a model, which may not be kept yet."""
        return mean_of(self._last(model, self.served), self.decay) if self.served > 1 and model.round else model

    def measured(self, model: Kept, over: bool = False) -> Kept | None:
        """The mean of the last ten models, up to this one; None where it is not due, or a model is not at hand."""
        last, first = self._last(model, TAIL), max(1, model.round - TAIL + 1)
        whole = [kept.round for kept in last] == list(range(first, model.round + 1))
        return mean_of(last) if whole and self.evaluation.due("average_models", model.round, over) else None

    def restore(self, models: Mapping[str, Tree]) -> None:
        """Continue from the models by round of a checkpoint."""
        self.window = [Kept.of(int(number), model) for number, model in models.items()]

    def _last(self, model: Kept, length: int) -> list[Kept]:
        return [*(kept for kept in self.window if kept.round < model.round), model][-length:]


def mean_of(models: Sequence[Kept], decay: float = 1.0) -> Kept:
    """The mean of models, the last one last, as of its round; each weighs ``decay`` times as much as the next.

    Example:
        >>> import torch
        >>> from fedskew.averages import Kept, mean_of
        >>> mean_of([Kept(1, {"w": torch.tensor(1.0)}, {}), Kept(2, {"w": torch.tensor(2.0)}, {})])
        Kept(round=2, params={'w': tensor(1.5000)}, buffers={})
    """
    weights = [decay**age for age in reversed(range(len(models)))]
    return Kept.of(models[-1].round, tree.mean([kept.model for kept in models], weights))
