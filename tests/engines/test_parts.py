"""The parts of an engine: what a round hands back, what a copy of a model keeps, and that imports run one way."""

from __future__ import annotations

import ast
import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedskew import engines, server
from fedskew.engines.stepper import Stepper, Steppers
from fedskew.method import Method
from fedskew.models.prepare import Model, prepare
from fedskew.types import Assignment, Results, Weights
from support.federations import skewed
from support.methods import tiny
from support.runs import gap, go, same

ROOM = Path(engines.__file__).parent
STACKING = "fedgr"  # its server sees every delta


def trained(
    engine: str, method: Method, weights: list[float] | None, chains: list[list[int]], **options: Any
) -> Results:
    """One round of these chains, by weights that are known beforehand or by none."""
    fed = skewed()
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).double()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net.apply(lambda m: m.reset_parameters() if isinstance(m, nn.Linear) else None)
    model = prepare(net, None, (1, 8, 8), 10)
    task = model.task(fed.clients, 3)
    runner = engines.ENGINES[engine](model, fed, task, seed=0, threads=2)
    try:
        with torch.no_grad():
            runner.birth(method, model.params, model.buffers)
            state = server.init(method, model.params, model.buffers, fed, task)
            assignment = Assignment(torch.tensor(chains))
            given = server.broadcast(method, state, assignment.ids)
            known = None if weights is None else (lambda _: Weights(torch.tensor(weights), torch.tensor(weights)))
            return runner.train(method, assignment, given, known, **options)
    finally:
        runner.close()


@pytest.mark.parametrize("engine", ["sequential", "threaded", "batched", "debug"])
@pytest.mark.parametrize("chains", [[[4], [0], [2], [5], [1]], [[4, 0], [2, 5]]], ids=["clients", "chains"])
def test_deltas_are_kept_beside_their_sum_in_the_order_of_the_cohort(engine: str, chains: list[list[int]]) -> None:
    weights = [0.4, 0.3, 0.1, 0.15, 0.05][: len(chains)]
    method = tiny("fedavg")
    summed = trained(engine, method, weights, chains, keep_deltas=True)
    stacked = trained(engine, method, None, chains, keep_deltas=True)
    assert summed.kept is not None and stacked.kept is not None and summed.delta is not None
    assert summed.cohort.deltas is None and stacked.delta is None
    assert same(stacked.kept, stacked.cohort.deltas)
    assert same(summed.kept, stacked.kept)
    assert all(leaf.shape[0] == len(chains) and leaf.device.type == "cpu" for leaf in summed.kept.values())
    assert gap(summed.delta, server.aggregate(summed.kept, torch.tensor(weights))) < 1e-12


@pytest.mark.parametrize("weights", [None, [0.5, 0.5]])
def test_keeping_deltas_changes_no_bit_and_nothing_is_kept_unasked(weights: list[float] | None) -> None:
    plain, kept = (trained("batched", tiny("fedavg"), weights, [[1], [3]], keep_deltas=k) for k in (False, True))
    assert plain.kept is None and kept.kept is not None
    for name in ("delta", "buffers"):
        a, b = getattr(plain, name), getattr(kept, name)
        assert (a is None) == (b is None) and (a is None or same(a, b))


@pytest.mark.parametrize("name", ["fedavg", STACKING])
def test_a_run_is_the_same_with_and_without_diagnostics_of_deltas(name: str) -> None:
    plain, watched = (go(skewed(), tiny(name), diagnose=d) for d in ((), ("drift", "per_class")))
    assert same(plain.params, watched.params) and len(watched.rounds[0]["diagnostics"]["drift"]["norms"]) == 3


COPIES = {
    "clone": Model.clone,
    "deepcopy": copy.deepcopy,
    "pickle": lambda m: pickle.loads(pickle.dumps(m)),
    "to": lambda m: m.to(torch.float32),
}


@pytest.mark.parametrize("way", COPIES)
def test_copies_keep_what_a_model_was_made_with(way: str) -> None:
    net = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4), nn.Linear(4, 3))
    model = prepare(net, None, (4,), 3, narrow=torch.bfloat16).clone(unpadded=True)
    for again in (COPIES[way](model), COPIES[way](COPIES[way](model))):
        assert again.narrow is torch.bfloat16 and again.unpadded is True
        assert again.clone(unpadded=False).unpadded is False and again.unpadded is True


def test_an_engine_leaves_the_model_that_it_is_given_as_it_was() -> None:
    fed = skewed()
    model = prepare(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), None, (1, 8, 8), 10)
    for name, kind in engines.ENGINES.items():
        runner = kind(model, fed, model.task(fed.clients, 1), seed=0, threads=1)
        assert model.unpadded is False and runner.model.unpadded is (name != "batched")
        assert runner.workers.model is runner.model
        runner.close()


def test_a_narrow_model_is_probed_in_its_own_precision() -> None:
    """A module of float64, which autocast does not round, is still taken."""
    model = prepare(nn.Linear(3, 2).double(), "", (3,), 2, narrow=torch.bfloat16)
    assert model.params["weight"].dtype == torch.float64 and model.narrow is torch.bfloat16


def test_a_stepper_finds_its_program_by_what_is_shared_and_what_is_own() -> None:
    """Nothing of a federated round is needed: ``fixed`` is any pair of trees."""

    def step(rows: Any, fixed: Any, carry: Tensor, now: Any) -> Any:
        shared, own = fixed
        moved = carry * shared + own["bias"] + rows[0].sum() * now[0]
        return moved, moved.sum()

    stepper, rows, now = Stepper(step, 1), (torch.ones(2),), (torch.tensor(0.5),)
    fixed = torch.tensor(2.0), {"bias": torch.ones(3)}
    stepper.make(rows, fixed, torch.ones(3), now)
    assert stepper.traced == 1
    carry, losses = stepper.run(rows, fixed, torch.ones(3), [now, now])
    assert torch.equal(carry, torch.full((3,), 10.0)) and [float(x) for x in losses] == [12.0, 30.0]
    other = fixed[0], {"bias": torch.ones(1)}  # the same object for all, another shape of the client's own
    assert torch.equal(stepper.run(rows, other, torch.ones(3), [now])[0], torch.full((3,), 4.0))
    assert {found is None for _, found in stepper.known.values()} == {True, False}


def test_steppers_are_made_once_a_key_that_needs_no_hash() -> None:
    asked: list[Any] = []
    steppers = Steppers(lambda key: asked.append(key) or (lambda *_: None), 7)  # type: ignore[func-returns-value,arg-type,return-value]
    one = steppers.of({"lr": 1})
    assert steppers.of({"lr": 1}) is one and steppers.of({"lr": 2}) is not one
    assert asked == [{"lr": 1}, {"lr": 2}] and one.after == 7


# ---------------------------------------------------------------------------------------------------------------------
# The room itself


def room_imports(path: Path) -> set[str]:
    """Modules of the room that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedskew.engines."):
            found.add(str(node.module).split(".")[2])
    return found


def test_imports_in_the_room_run_one_way() -> None:
    waiting = {path.stem: room_imports(path) for path in ROOM.glob("*.py")}
    assert waiting["__init__"] == {"base", "batched", "sequential"}
    assert not waiting["base"] & {"batched", "sequential"} and waiting["flat"] == set()
    assert not (waiting["stepper"] | waiting["programs"] | waiting["passes"]) - {"flat", "passes", "programs"}
    while waiting:
        free = [name for name, needs in waiting.items() if not needs & waiting.keys()]
        assert free, f"these import each other: {sorted(waiting)}"
        for name in free:
            del waiting[name]
