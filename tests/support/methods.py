"""Methods of the table made quick, and components that look into a round."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

import fedskew as fs
from fedskew.method import Component, Method
from fedskew.method.component import SLOTS, hooks_of, overrides
from fedskew.method.paces import Fixed
from fedskew.methods import METHODS
from fedskew.types import Assignment, Cohort, Params

NAMES = list(METHODS)


def signature(method: Method) -> frozenset[str]:
    """The hooks that its ingredients define, by slot: they decide which way the method goes through an engine."""
    hooks = set()
    for slot, component in [*(("parts", p) for p in method.parts), *method.slots.items()]:
        for hook in hooks_of(type(component)):
            defined = getattr(type(component), hook) is not getattr(SLOTS.get(slot, Component), hook)
            if overrides(component, hook) if hasattr(Component, hook) else defined:
                hooks.add(f"{slot}.{hook}")
    return frozenset(hooks)


def fewest() -> list[str]:
    """A few methods that define, together, every hook in every slot that a method of the table defines there."""
    hooks = {name: signature(METHODS[name]()) for name in NAMES}
    missing, chosen = set().union(*hooks.values()), list[str]()
    while missing:
        chosen.append(max(NAMES, key=lambda name: len(hooks[name] & missing)))
        missing -= hooks[chosen[-1]]
    return chosen


def rest_thorough(names: Iterable[str]) -> list[Any]:
    """Every method, for parametrize: the others than ``names`` are tested by `make test-all` only."""
    kept = set(names)
    return [name if name in kept else pytest.param(name, marks=pytest.mark.thorough) for name in NAMES]


def cases(kept: Container[tuple[Any, ...]], *choices: Iterable[Any]) -> list[Any]:
    """All combinations of choices, for parametrize: the others than ``kept`` are tested by `make test-all` only."""
    return [case if case in kept else pytest.param(*case, marks=pytest.mark.thorough) for case in product(*choices)]


# Choices for a test that runs over all methods: one method of each signature, a few that define every hook, or those of
# them that define the most.
BY_SIGNATURE = rest_thorough({signature(METHODS[name]()): name for name in reversed(NAMES)}.values())
BY_HOOK = rest_thorough(fewest())
MOST_HOOKS = rest_thorough(fewest()[:5])
PACE = Fixed(epochs=2, lr=0.1, batch_size=16)
WHOLE = Fixed(epochs=1, lr=0.1, batch_size=0)  # one step on all rows: gradient descent


def tiny(name: str) -> Method:
    """A method of the table with small mini-batches, and without CReFF's hundreds of server steps."""
    method = METHODS[name]()
    if type(method.pace) is Fixed:
        method = replace(method, pace=replace(method.pace, batch_size=16))
    if name == "creff":
        return changed(
            method, "federated_features", features_per_class=3, match_steps=3, head_epochs=5, draws=2, rows=4
        )
    if name == "ccvr":
        return changed(
            method, "virtual_representations", samples=5, batch=16, serves="last"
        )  # BatchNorm is refused otherwise
    if name == "seolkim":  # beta=25 makes mini-batches of two equal rows here, over which BatchNorm amplifies rounding
        return changed(method, "dynamic", beta=3)
    if name == "fedrep":
        return changed(replace(method, pace=PACE), "alternating", epochs=1)
    if name == "pfedme":
        return changed(method, "moreau", inner_steps=2)
    return changed(method, "power_of_choice", candidates=4) if name == "powerofchoice" else method


def changed(method: Method, name: str, **changes: Any) -> Method:
    """The method with fields of its component ``name`` changed."""
    for slot, component in method.slots.items():
        if component.name == name:
            return replace(method, **{slot: replace(component, **changes)})
    new = tuple(replace(p, **changes) if p.name == name else p for p in method.parts)
    assert new != method.parts, f"{method.name} has no component {name!r} that these changes touch"
    return replace(method, parts=new)


@dataclass(frozen=True)
class Spy(Component):
    """Keeps every cohort that the server sees, with each client's delta; changes nothing."""

    name = "spy"
    seen: list[Cohort]
    """one cohort a round"""

    def combine(self, state: Any, cohort: Cohort) -> Params:
        assert cohort.deltas is not None  # filling this hook makes the engine stack the deltas
        return cohort.deltas

    def absorb(self, state: Any, cohort: Cohort, key: Tensor) -> tuple[Any, None]:
        self.seen.append(cohort)
        return state, None


def spied(method: Method) -> tuple[Method, list[Cohort]]:
    """(the method with a spy as its last part, what the spy will see)."""
    seen: list[Cohort] = []
    return replace(method, parts=(*method.parts, Spy(seen))), seen


@dataclass(frozen=True)
class FixedCohort(fs.Selector):
    """The same chains in every round."""

    name = "fixed_chains"
    chains: tuple[tuple[int, ...], ...]
    """client ids"""

    def select(self, state: Any, k: int, key: Tensor) -> Assignment:
        return Assignment(torch.tensor(self.chains))


def each(*clients: int) -> FixedCohort:
    """These clients, every round, in this order."""
    return FixedCohort(tuple((k,) for k in clients))
