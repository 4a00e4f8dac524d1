"""A method is a value: parts and slots, frozen and printable."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fedskew.component import (
    SLOTS,
    Component,
    Gradient,
    LocalStep,
    Pace,
    Sampler,
    Selector,
    ServerOptimizer,
    Weighting,
    check_kind,
    overrides,
    spec,
)
from fedskew.errors import ConfigError, require
from fedskew.fields import check
from fedskew.shared import SGD, Fixed, Plain, Random, Shuffle, Size
from fedskew.shared.parts import CrossEntropy
from fedskew.tree import Tree
from fedskew.types import Cohort, Task, Weights

if TYPE_CHECKING:
    from fedskew.data.federation import Federation

__all__ = [
    "SLOTS",
    "Component",
    "Gradient",
    "LocalStep",
    "Method",
    "Pace",
    "Sampler",
    "Selector",
    "ServerOptimizer",
    "Weighting",
    "check_method",
    "method_spec",
    "spec",
]


@dataclass(frozen=True)
class Method:
    """Parts and six slots. ``dataclasses.replace`` makes every ablation and every combination.

    Raises ConfigError for two classification losses, two components of one name, and what is no component, stands in
    another's slot, has no name or a field of another type.
    """

    name: str
    parts: tuple[Component, ...] = ()
    sampler: Sampler = field(default_factory=Shuffle)
    selector: Selector = field(default_factory=Random)
    pace: Pace = field(default_factory=Fixed)
    weighting: Weighting = field(default_factory=Size)
    server: ServerOptimizer = field(default_factory=Plain)
    local: LocalStep = field(default_factory=SGD)
    reference: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        self._check_kinds()
        if not any(p.classification for p in self.parts):
            object.__setattr__(self, "parts", (CrossEntropy(), *self.parts))
        bases = [p.name for p in self.parts if p.classification]
        if len(bases) > 1:
            raise ConfigError(f"parts must hold at most one classification loss; got {', '.join(bases)}")
        names = [c.name for c in self.components]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise ConfigError(f"every component of a method must have a name of its own; got {', '.join(twice)} twice")

    def _check_kinds(self) -> None:
        require(isinstance(self.name, str) and bool(self.name), "the name of a method", "be a word", self.name)
        several = isinstance(self.parts, tuple | list)
        require(several, "parts", "be a tuple of components", self.parts, "for one of them write (it,)")
        object.__setattr__(self, "parts", tuple(self.parts))
        for place, component in [*(("parts", p) for p in self.parts), *self.slots.items()]:
            check_kind(place, component)
            check(component)  # again: a user's own class may have a __post_init__ that does not
            rule = "be at least 0: it pulls towards the broadcast model"
            owner = type(component).__name__
            require(component.proximal >= 0, f"{owner}.proximal", rule, component.proximal)

    @property
    def slots(self) -> dict[str, Component]:
        """The six slots by name."""
        return {s: getattr(self, s) for s in SLOTS}

    @cached_property
    def components(self) -> tuple[Component, ...]:
        """Parts, then slots: the order in which hooks are chained."""
        return (*self.parts, *self.slots.values())

    def having(self, hook: str) -> tuple[Component, ...]:
        """The components that fill a hook. Asked at every local step, so remembered."""
        if hook not in self._having:
            self._having[hook] = tuple(c for c in self.components if overrides(c, hook))
        return self._having[hook]

    @cached_property
    def _having(self) -> dict[str, tuple[Component, ...]]:
        return {}

    @property
    def proximal(self) -> float:
        """Sum of the components' proximal coefficients."""
        return sum(c.proximal for c in self.components)

    @property
    def stacks(self) -> bool:
        """Whether the server must see every client's delta rather than their weighted sum."""
        return self.weighting.reads_deltas or bool(self.having("combine"))

    def weigh(self, state: Tree, cohort: Cohort) -> Weights:
        """The weighting's answer; where only some members are averaged, its answer for those, and 0 for the others."""
        if cohort.averaged is None:
            return self.weighting.weigh(state, cohort)
        at = cohort.averaged.nonzero().squeeze(1)
        some = self.weighting.weigh(state, cohort.rows(at))
        return Weights(*(w.new_zeros(len(cohort.ids)).index_copy(0, at.to(w.device), w) for w in some))

    def probe(self) -> Method:
        """Plain cross-entropy under the same pace and local step: what a "delta" query trains."""
        return Method(f"{self.name}.probe", pace=self.pace, local=self.local)

    def check(self, fed: Federation, task: Task) -> None:
        """Raise ConfigError where the method cannot run on this federation, before anything trains."""
        for component in self.components:
            component.check(self, fed, task)
        chained = self.selector.chained
        keepers = [c.name for c in self.components if c.stateful and c is not self.local]
        chain = f"--selector {self.selector.name} passes a model from client to client and"
        if chained and keepers:
            raise ConfigError(f"{chain} must not be combined with {keepers[0]!r}, which keeps memory on clients")
        if chained and self.having("combine"):
            one = self.having("combine")[0].name
            raise ConfigError(f"{chain} must not be combined with {one!r}, which needs each single client's classifier")


def check_method(method: object) -> None:
    """Raise ConfigError unless this is a `Method`: the name of one, a factory or a class is none."""
    if isinstance(method, Method):
        return
    name = getattr(method, "__name__", type(method).__name__)
    hint = "compose one: fs.Method(name, parts=(...), ...)"
    if isinstance(method, str):
        hint = f"use fs.methods.{method}()" if method.isidentifier() else hint
    elif callable(method) and not isinstance(method, type):
        hint = f"call it: {name}()"
    elif isinstance(method, Component):
        hint = f"compose one: fs.Method({method.name!r}, parts=({method!r},))"
    got = method if isinstance(method, str) else f"{'the class ' * isinstance(method, type)}{name}"
    raise ConfigError(f"method must be a Method; got {got!r}; {hint}")


def method_spec(method: Method) -> dict[str, Any]:
    """A method as table names and fields."""
    return {
        "name": method.name,
        "parts": [spec(p) for p in method.parts],
        **{s: spec(c) for s, c in method.slots.items()},
    }
