"""Programs that a process keeps: found again by later runs, compared before they are used, never another step's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from torch import Tensor, nn

import fedskew as fs
from fedskew.engines import kept, programs, stepper
from fedskew.engines.kept import Shelf
from fedskew.engines.programs import Program
from fedskew.engines.stepper import Stepper
from fedskew.method import Component, Method
from fedskew.shared import SGD
from fedskew.types import View
from support.federations import skewed
from support.methods import tiny
from support.runs import go, rows_of, same


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Steps are traced from the second on; one entry for each trace. Nothing is held before."""
    made: list[int] = []
    init, trace = Stepper.__init__, programs._trace

    def early(self: Stepper, function: Any, after: float, mark: Any = None) -> None:
        init(self, function, after if after == float("inf") else 2, mark)

    def counted(*arguments: Any) -> Program:
        made.append(1)
        return trace(*arguments)

    monkeypatch.setattr(Stepper, "__init__", early)
    monkeypatch.setattr(programs, "_trace", counted)
    monkeypatch.setattr(stepper, "SHELF", Shelf())
    return made


def run(method: Method, seed: int = 0, **options: Any) -> fs.Result:
    return go(skewed(), method, **{"engine": "threaded", "threads": 1, "seed": seed, "rounds": 3, **options})


@pytest.mark.parametrize("engine", ["threaded", "batched"])
@pytest.mark.parametrize("name", ["fedga", "scaffold", "fedprox"])
def test_the_next_run_traces_nothing_and_has_its_bits(
    name: str, engine: str, traces: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = run(tiny(name), seed=1, engine=engine)
    first = len(traces)
    assert first > 0
    monkeypatch.setattr(stepper, "SHELF", Shelf())
    run(tiny(name), engine=engine)
    before = len(traces)
    after = run(tiny(name), seed=1, engine=engine)
    assert len(traces) - before < first  # another seed may have mini-batches of sizes of its own
    again = len(traces)
    repeated = run(tiny(name), seed=1, engine=engine)
    assert len(traces) == again
    for other in (after, repeated):
        assert same(alone.params, other.params) and rows_of(alone) == rows_of(other)


def test_what_a_step_does_not_read_makes_no_other_program(traces: list[int]) -> None:
    method = tiny("fedga")
    run(method)
    before = len(traces)
    run(method.with_(pace=replace(method.pace, lr=0.07)))
    assert len(traces) == before
    run(tiny("fedprox"))
    between = len(traces)
    run(tiny("fedprox").with_(local=SGD(momentum=0.5)))
    run(tiny("fedprox"), model=fs.models.MLP(hidden=4))
    run(tiny("fedprox"), model=fs.models.MLP(hidden=5))
    assert len(traces) >= between + 3 > before + 3


def test_a_program_that_gives_other_bits_is_not_taken(traces: list[int]) -> None:
    """Were the mark to say too little, the comparison with the step would notice."""
    plain = run(tiny("fedprox"), seed=1)
    run(tiny("fedprox"))
    held = stepper.SHELF._held
    for key, right in held.items():
        held[key] = Program(right.once, lambda *leaves, each=right.each: [leaf * 1.5 for leaf in each(*leaves)])
    before, result = len(traces), run(tiny("fedprox"), seed=1)
    assert len(traces) > before and same(plain.params, result.params)


class Own(nn.Linear):
    """A layer that no package knows."""


@dataclass(frozen=True)
class Extra(Component):
    """A term of a user's own."""

    name = "extra"

    def loss(self, view: View) -> Tensor:
        """A penalty."""
        return 0.01 * view.batch.mean(view.out.logits.square().sum(1))


def test_what_is_a_users_own_is_not_kept(traces: list[int]) -> None:
    run(tiny("fedavg").with_(parts=(*tiny("fedavg").parts, Extra())))
    run(tiny("fedprox"), model=nn.Sequential(nn.Flatten(), Own(64, 10)))
    assert traces and not stepper.SHELF._held


def test_a_shelf_lets_go_of_what_was_met_longest_ago() -> None:
    shelf, programs_of = Shelf(2), {name: Program(list, list) for name in "abc"}
    for name in "ab":
        shelf.put(name, 0, programs_of[name])
    assert shelf.get("a", 0) is programs_of["a"]
    shelf.put("c", 0, programs_of["c"])
    assert shelf.get("b", 0) is None and shelf.get("a", 0) is programs_of["a"] and shelf.get("a", 1) is None
    assert kept.KEPT > 2
