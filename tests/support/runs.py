"""Short runs, and readers of what they give."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import fedskew as fs
from fedskew.data.federation import Federation
from fedskew.engines.stepper import StepMode, Stepper
from fedskew.method import Method
from fedskew.records.folder import TIMES
from fedskew.types import Params


def go(fed: Federation, method: Method, **options: Any) -> fs.Result:
    """A run of two rounds with three clients each, float64, logistic regression; one thread, which is faster here.

    Without the fit of logits, the mean model and the clients' own test rows, which take a third of so short a run.
    """
    settings = {"model": "logistic", "rounds": 2, "cohort": 3, "dtype": "float64", "engine": "sequential", "threads": 1}
    settings |= {"fit_logits": "none", "served": "none", "average_models": "none"}
    return fs.run(fed, method, **(settings | options))


def measured(fed: Federation, method: Method, **options: Any) -> fs.Result:
    """As `go`, with the fit, the mean model and the clients' own test rows."""
    return go(fed, method, **({"fit_logits": "last", "served": "last", "average_models": "auto"} | options))


def noted_steppers(monkeypatch: pytest.MonkeyPatch) -> list[Stepper]:
    """The steppers that are made from here on."""
    made: list[Stepper] = []
    init = Stepper.__init__

    def noted(self: Stepper, function: Any, mode: StepMode) -> None:
        init(self, function, mode)
        made.append(self)

    monkeypatch.setattr(Stepper, "__init__", noted)
    return made


def programs_of(steppers: list[Stepper]) -> int:
    """How many shapes of steps became programs."""
    return sum(sum(map(bool, stepper.programs.values())) for stepper in steppers)


def rows_of(result: fs.Result | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rounds without what two equal runs may differ in."""
    rounds = result.rounds if isinstance(result, fs.Result) else result
    return [{name: value for name, value in row.items() if name not in (*TIMES, "digest")} for row in rounds]


def same(a: Params, b: Params) -> bool:
    """Equal bit for bit."""
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)


def gap(a: Any, b: Any) -> float:
    """Largest difference of two trees of one structure."""
    if isinstance(a, Tensor):
        assert a.shape == b.shape
        finite = torch.isfinite(a)  # power-of-choice keeps -inf for those who were not asked
        assert torch.equal(a[~finite], b[~finite])
        return float((a[finite].double() - b[finite].double()).abs().max()) if finite.any() else 0.0
    assert a.keys() == b.keys()
    return max((gap(a[n], b[n]) for n in a), default=0.0)
