"""What a round hands back to the session, and what an engine does to the model that it is given."""

from __future__ import annotations

import pytest
from torch import nn

from fedskew import engines
from fedskew.models.prepare import prepare
from fedskew.settings import Settings
from support.federations import skewed
from support.methods import tiny
from support.runs import go

STACKING = "fedgr"  # its server sees every delta


@pytest.mark.parametrize("name", ["fedavg", STACKING, "astraea"])
def test_every_delta_is_that_of_its_client_in_all_engines(name: str) -> None:
    """Stacks sort clients by their length; Astraea's pass a model on."""
    runs = [
        go(skewed(), tiny(name), engine=e, diagnose=("drift",)) for e in ("sequential", "threaded", "batched", "debug")
    ]
    for rows in zip(*(run.rounds for run in runs), strict=True):
        norms = [row["diagnostics"]["drift"]["norms"] for row in rows]
        assert all(other == pytest.approx(norms[0], rel=1e-8) for other in norms) and len({*norms[0]}) == len(norms[0])


def test_an_engine_leaves_the_model_that_it_is_given_as_it_was() -> None:
    fed = skewed()
    model = prepare(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), None, (1, 8, 8), 10)
    for name in ("sequential", "threaded", "batched", "debug"):
        runner = engines.ENGINES[name](model, fed, model.task(fed.clients, 1), Settings(seed=0, threads=1))
        assert model.unpadded is False and runner.model.unpadded is (name != "batched")
        assert runner.workers.model is runner.model
        runner.close()
