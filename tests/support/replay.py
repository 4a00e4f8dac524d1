"""A run of the library on a tiny skewed federation, recorded so that another implementation can be given its plans.

Not a test. Only what the server and the clients were *given* is recorded for the oracle (who trains, on which rows, in
which order, at which rate); what they computed is recorded beside it, for comparison.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest

import fedskew as fs
from fedskew import engines, server
from fedskew.data.federation import Federation
from fedskew.engines.base import LocalEngine
from fedskew.engines.planning import ClientJob
from fedskew.method.paces import Fixed
from fedskew.method.samplers import Shuffle
from fedskew.models.architectures import MLP
from fedskew.types import Assignment
from oracle import Problem, RoundPlan, run

COUNTS = ((9, 4, 0, 2), (0, 7, 5, 0), (3, 0, 0, 6), (1, 2, 8, 3), (0, 0, 5, 0))  # ragged; every client lacks classes
LEVEL = ((8, 2, 0, 2), (0, 6, 6, 0), (3, 0, 0, 9), (1, 2, 8, 1), (0, 0, 5, 7))  # equal sizes: Seol-Kim must draw lots
PACE = Fixed(epochs=2, lr=0.1, batch_size=5)  # the last mini-batch of most clients is partial
MODELS = {"logistic": "logistic", "mlp": MLP(hidden=5)}
SEED, ROUNDS, COHORT = 2, 3, 3  # this seed: every client comes, three of them twice, one after a gap


@cache
def federation(counts: tuple[tuple[int, ...], ...] = COUNTS, auxiliary: int = 0) -> Federation:
    """Clients with these rows of each class, 6 features; the server's own rows come on top."""
    draw = np.random.default_rng(5)
    table = np.array(counts)
    owner, y = (a.repeat(table.ravel()) for a in np.indices(table.shape).reshape(2, -1))
    x = draw.normal(size=(len(y), 6)) + 0.7 * draw.normal(size=(table.shape[1], 6))[y]
    order = draw.permutation(len(y))
    data = fs.data.from_arrays(
        x[order], y[order], x[:8], y[:8], classes=table.shape[1], columns={"client": owner[order]}
    )
    return fs.federate(data, "natural", auxiliary=auxiliary)


@dataclass
class Round:
    """One recorded round."""

    before: dict[str, np.ndarray]
    assignment: Assignment
    common: dict[str, Any]  # broadcast to all
    places: list[ClientJob] = field(default_factory=list)
    probes: list[ClientJob] = field(default_factory=list)  # local runs that a query caused
    answers: list[Any] = field(default_factory=list)  # to the queries before training
    parts: dict[str, Any] = field(default_factory=dict)  # server state of every component after the round
    after: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass
class Replay:
    """A recorded run."""

    method: fs.Method
    fed: Federation
    rounds: list[Round]
    result: fs.Result
    engine: LocalEngine

    @property
    def problem(self) -> Problem:
        """The start and the data, as the oracle wants them."""
        x, y = self.fed.dataset.x.numpy(), self.fed.dataset.y.numpy()
        rows = [self.fed.rows(k) for k in range(self.fed.clients)]
        return Problem(self.rounds[0].before, x, y, self.fed.dataset.classes, rows, self.fed.auxiliary_rows)

    @property
    def plans(self) -> list[RoundPlan]:
        """What the oracle is told of every round."""
        return [plan(r) for r in self.rounds]

    def oracle(self, **options: Any) -> tuple[list[dict[str, np.ndarray]], dict[str, Any]]:
        """The oracle's run of the method under these plans: (parameters after each round, final state).

        The models that IFCA's clusters start from are drawn, so the oracle is given them.
        """
        clusters = self.rounds[0].common.get("cluster_identity", {}).get("models", {})
        models = [dict(zip(clusters, model, strict=True)) for model in zip(*numpy(clusters).values(), strict=True)]
        return run(self.method.components, self.problem, self.plans, models=models, **options)

    def memory(self, k: int, component: str) -> Any:
        """What a component keeps on a client after the last round."""
        return self.engine.memory.get(k)[component]


def steps(place: ClientJob) -> list[Any]:
    """Rows of the training set, one array a step, or a tuple of them where a step reads several mini-batches."""
    local, rows = place.plan.batches, place.plan.rows
    named = [tuple(rows[b[b >= 0]] for b in step) for step in local]
    return [s[0] if len(s) == 1 else s for s in named]


def plan(r: Round) -> RoundPlan:
    """One round for the oracle. Chains may train side by side: a client's places are in the order of its passes."""
    waiting: dict[int, list[ClientJob]] = {}
    for place in r.places:
        waiting.setdefault(place.plan.client, []).append(place)
    chains: list[list[int]] = []
    places: list[ClientJob] = []
    for chain in r.assignment.chains.tolist():
        members = [waiting[k].pop(0) for k in chain if k >= 0]
        chains.append(list(range(len(places), len(places) + len(members))))
        places += members
    plans = [p.plan for p in places]
    return RoundPlan(
        ids=[p.client for p in plans],
        batches=[steps(p) for p in places],
        lr=[p.lr for p in plans],
        epochs=[p.epoch.tolist() for p in plans],
        used=[p.used.numpy() for p in plans],
        samples=[p.samples for p in plans],
        chains=chains,
        auxiliary=[steps(p) for p in r.probes] or None,
    )


def numpy(params: Any) -> dict[str, np.ndarray]:
    """A dict of tensors as arrays of their own."""
    return {n: p.detach().numpy().copy() for n, p in params.items()}


def recorder(kind: type[LocalEngine], log: list[Round], made: list[LocalEngine]) -> type[LocalEngine]:
    """The engine, keeping what passes through it."""

    class Recorder(kind):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            made.append(self)
            self.asked: tuple[list[ClientJob], list[Any]] = ([], [])
            self.asking = False

        def query(self, *args: Any) -> Any:
            self.asking = True
            answers = super().query(*args)
            self.asking = False
            self.asked[1].append(answers)
            return answers

        def train(self, method: Any, assignment: Any, broadcast: Any, *rest: Any, **options: Any) -> Any:
            probes, answers = self.asked
            log.append(
                Round(numpy(broadcast.params), assignment, broadcast.common, probes=[*probes], answers=[*answers])
            )
            self.asked = ([], [])
            return super().train(method, assignment, broadcast, *rest, **options)

        def run_clients(self, method: Any, places: list[ClientJob], *settle: Any) -> Iterator[Any]:
            (self.asked[0] if self.asking else log[-1].places).extend(places)
            return super().run_clients(method, places, *settle)

    return Recorder


def record(
    method: fs.Method, engine: str = "sequential", model: Any = "mlp", fed: Federation | None = None, **options: Any
) -> Replay:
    """Run the method in float64 and keep everything."""
    fed = fed or federation()
    log: list[Round] = []
    made: list[LocalEngine] = []
    close = server.close_round

    def closed(*args: Any) -> Any:
        out = close(*args)
        log[-1].parts, log[-1].after = out[0].parts, numpy(out[0].params)
        return out

    settings = {"rounds": ROUNDS, "cohort": COHORT, "seed": SEED, "eval_every": 100, "threads": 1}
    settings |= {"fit_logits": "none", "served": "none", **options}  # metrics that nobody compares
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(engines.ENGINES, engine, recorder(engines.ENGINES[engine], log, made))
        patch.setattr(server, "close_round", closed)
        result = fs.run(fed, method, model=MODELS.get(model, model), engine=engine, dtype="float64", **settings)
    replay = Replay(method, fed, log, result, made[0])
    check_plans(replay, whole=type(method.sampler).plan is Shuffle.plan)
    return replay


def check_plans(replay: Replay, whole: bool) -> None:
    """Every epoch of a plan is a ``whole`` pass over what the client uses; other samplers draw with replacement."""
    for r in replay.rounds:
        for place in [*r.places, *r.probes]:
            p = place.plan
            assert p.samples == int(p.used.sum()) > 0 and p.epoch.max() == p.epochs and len(p.epoch) == len(p.batches)
            assert (p.batches.max((1, 2)) >= 0).all() and (np.diff(p.epoch) >= 0).all()
            labels = replay.fed.dataset.y.numpy()[p.rows]
            for epoch in range(1, p.epochs + 1):
                for d in range(p.batches.shape[1]):
                    rows = p.batches[p.epoch == epoch, d]
                    held = np.bincount(labels[rows[rows >= 0]], minlength=len(p.used))
                    assert not whole or (held <= p.used.numpy()).all()
                    assert held.sum() == min(p.samples, rows.size)  # fewer only where a pace caps the mini-batches


TOLERANCE = 1e-10


def agree(actual: Any, expected: Any, what: str) -> None:
    """Trees of the two implementations, within rounding."""
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys(), what
        for name, value in expected.items():
            agree(actual[name], value, f"{what} {name}")
        return
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=TOLERANCE, atol=TOLERANCE, err_msg=what)
