"""The fit of a served model over Flower: that of the engine sequential, from nodes that allow it; lies cost their author."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("flwr")

from fedskew.config.recorded import read_run
from fedskew.engines.fitting import Fit, triangle_of
from fedskew.errors import FedskewError
from fedskew.flower.fits import check_sums
from fedskew.flower.options import experiment_of
from fedskew.functional import even_weights, logit_sums
from fedskew.records.summary import FITTED
from support.flower_grid import bits, config, served

pytestmark = pytest.mark.flower


def alone(content: dict[str, Any]) -> Any:
    """The run of the engine sequential."""
    return experiment_of(
        {**{name: value for name, value in content.items() if not name.startswith("flower.")}, "engine": "sequential"}
    ).run()


RUNS: dict[str, dict[str, Any]] = {
    "classes missing at clients": {"partition__alpha": 0.05},
    "a class missing at training": {"clients": 2, "cohort": 2, "partition": "classes", "partition__classes": 4},
    "personalised": {"method": "fedper", "model": "mlp", "local_test": 0.2},
    "rows aside, every round": {"validation": 0.1, "fit_logits": "every", "rounds": 2},
}


@pytest.mark.parametrize("name", RUNS)
def test_the_fit_is_that_of_sequential(name: str, tmp_path: Path) -> None:
    content = config(tmp_path, **RUNS[name])
    expected, found = alone(content), served(tmp_path, content)
    assert bits(found) == bits(expected), "training is what it was"
    ours, others = ({n: v for n, v in r.summary.items() if FITTED in n} for r in (found, expected))
    assert ours == pytest.approx(others, abs=1e-6) and "final_fitted_accuracy" in ours
    for objective, fit in expected.trained.fits.items():
        got = found.trained.fits[objective]
        assert [*got.b, got.a] == pytest.approx([*fit.b, fit.a], abs=1e-6)
        assert (got.clients, got.upload_bytes, got.exchanges) == (fit.clients, fit.upload_bytes, fit.exchanges)
