"""The ingredients' side of a method: hooks, all of them no-ops, and the slots that ask one question more."""

from __future__ import annotations

import difflib
import functools
import types
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from torch import Tensor

from fedskew.errors import ConfigError
from fedskew.fields import Above, AtLeast, Checked
from fedskew.tree import Tree
from fedskew.types import (
    Answers,
    Assignment,
    Carry,
    Cohort,
    Context,
    Differentiate,
    LocalRun,
    PacePlan,
    Params,
    Query,
    Task,
    View,
    Weights,
)

if TYPE_CHECKING:
    from fedskew.data.federation import Federation
    from fedskew.method import Method

__all__ = [
    "SLOTS",
    "Component",
    "LocalStep",
    "Pace",
    "Sampler",
    "Selector",
    "ServerOptimizer",
    "Weighting",
    "spec",
]

Gradient = Callable[[Params], Params]
FUNCTIONS = (types.FunctionType, staticmethod, classmethod, property)
HOOKED: set[type] = set()  # Component and the slots: the classes whose public functions are hooks


@dataclass(frozen=True)
class Component(Checked):
    """An ingredient with a client half and a server half. Every hook is pure and a no-op unless overridden.

    A component owns one namespace, its ``name``: its memory on a client, its state at the server, its share of a
    broadcast, its upload. Client hooks run under ``vmap``: no data-dependent branches, no reading back of values.
    """

    name: ClassVar[str] = ""
    classification: ClassVar[bool] = False  # True: it is the classification loss itself
    discloses: ClassVar[str] = ""  # what leaves the client besides the model
    uploads: ClassVar[str] = ""  # extra upload a round and client, in symbols (P parameters, C classes, F features)
    downloads: ClassVar[str] = ""  # extra download
    keeps: ClassVar[str] = ""  # state between rounds, in the same symbols
    compute: ClassVar[str] = ""  # extra work
    reference: ClassVar[str] = ""
    auxiliary: ClassVar[int] = 0  # rows a class that it wants the server to hold, where the user names no number

    def __init_subclass__(cls, **options: Any) -> None:
        """Raise ConfigError for a method of the class whose name is nearly that of a hook: it would never be called."""
        super().__init_subclass__(**options)
        known = {name for base in cls.__mro__[1:] for name in vars(base)}
        hooks = {name for base in cls.__mro__[1:] if base in HOOKED for name in vars(base) if name[0] != "_"}
        for name in [n for n, v in vars(cls).items() if n[0] != "_" and n not in known and isinstance(v, FUNCTIONS)]:
            near = difflib.get_close_matches(name, hooks, n=1, cutoff=0.75)
            if near:
                hint = f"did you mean {near[0]!r}? Let a helper's name begin with an underscore"
                raise ConfigError(f"a method of {cls.__name__} must be a hook; got {name!r}; {hint}")

    # what it adds to the model itself

    def init_params(self, params: Params, task: Task, key: Tensor) -> Params:
        """Parameters that travel and are averaged with the model's, under names of this component's own."""
        return {}

    # client half

    def init_client(self, params: Params, buffers: Params, task: Task) -> Tree:
        """Memory of a client that has not taken part yet."""
        return {}

    def start(self, params: Params, ctx: Context) -> tuple[Params, Tree]:
        """Parameters that the local run begins with, and this component's memory; chained in tuple order."""
        return params, ctx.memory[self.name]

    def loss(self, view: View) -> Tensor:
        """A () term: per-sample values averaged with ``view.batch.mean``; terms are summed over components."""
        raise NotImplementedError

    def correct(self, grads: Params, view: View) -> Params:
        """The gradients after this component's correction; chained in tuple order."""
        return grads

    def learn(self, view: View) -> Tree:
        """This component's memory after a gradient was taken at ``view``."""
        return view.memory[self.name]

    def finish(self, local: LocalRun) -> tuple[Tree, Tree]:
        """(upload, memory) after the last step."""
        return {}, local.memory[self.name]

    def personalize(self, params: Params, ctx: Context, gradient: Gradient) -> Params:
        """The client's own model; ``gradient`` gives the cross-entropy gradient on its training rows."""
        return params

    # server half

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """Server state before the first round. Reading ``fed.counts`` here is a declared disclosure."""
        return {}

    def broadcast(self, state: Tree, ids: Tensor | None) -> tuple[Tree, Tree | None]:
        """(what every client gets, what each client of ``ids`` gets [K, ...]); ids is None before selection."""
        return {}, None

    def ask(self, state: Tree, round: int, key: Tensor) -> Query | None:
        """An extra exchange before training, or None. Rounds count from 1."""
        return None

    def receive(self, state: Tree, answers: Answers, key: Tensor) -> Tree:
        """State after the answers to ``ask``."""
        return state

    def combine(self, state: Tree, cohort: Cohort) -> Params:
        """The deltas [K, ...] after a step across clients, before averaging."""
        assert cohort.deltas is not None
        return cohort.deltas

    def absorb(self, state: Tree, cohort: Cohort, key: Tensor) -> tuple[Tree, Tree | None]:
        """(state after the update, memories [K, ...] written back to the cohort or None)."""
        return state, None

    def serve(self, params: Params, state: Tree, task: Task) -> Params:
        """The parameters that are evaluated and deployed, where they differ from those broadcast."""
        return params

    def record(self, state: Tree) -> dict[str, Any]:
        """What each round's record should hold of this component's server state: numbers and lists of numbers."""
        return {}

    # facts about the component

    @property
    def proximal(self) -> float:
        """Coefficient mu of a quadratic pull towards w^t that this component adds to every gradient."""
        return 0.0

    @property
    def stateful(self) -> bool:
        """Whether it keeps memory on clients or uploads more than the model."""
        return overrides(self, "init_client") or overrides(self, "finish")

    def check(self, method: Method, fed: Federation, task: Task) -> None:
        """Raise ConfigError where a field, the federation or the rest of the method makes it meaningless."""


def overrides(component: Component, hook: str) -> bool:
    """Whether the component fills a hook: its class does, or the component that it forwards the hook to."""
    found = getattr(type(component), hook)
    if found is getattr(Component, hook):
        return False
    inner = getattr(found, "forwards_to", None)  # see `forwarding`
    return inner is None or overrides(getattr(component, inner), hook)


@dataclass(frozen=True)
class Sampler(Component):
    """Which rows a client trains on this round."""

    def offer(self, counts: Tensor, state: Tree, round: int, key: Tensor) -> Tensor:
        """Rows of each class that each client could train on, [N, C]; ``state`` is this component's broadcast."""
        return counts

    def plan(
        self,
        labels: np.ndarray[Any, Any],
        offered: np.ndarray[Any, Any],
        quota: np.ndarray[Any, Any] | None,
        pace: tuple[int, int, int],
        shared: Tree,
        key: Tensor,
    ) -> np.ndarray[Any, Any]:
        """Positions [E, S, B] into the client's labels [n], -1 is padding.

        pace is (batch size or 0 for all rows, epochs, most steps of an epoch or 0 for all).
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Selector(Component):
    """Which clients take part, in which chains, and how much of each class each may use."""

    chained: ClassVar[bool] = False  # True: it forms chains of more than one client

    def select(self, state: Tree, k: int, key: Tensor) -> Assignment:
        """The cohort of at most k clients. What the selector asked for has reached its state through `receive`."""
        raise NotImplementedError


@dataclass(frozen=True)
class Pace(Component):
    """Batch size, number of steps and learning rate of each client this round."""

    epochs: Annotated[int, AtLeast(1)] = 2
    """local epochs E"""
    lr: Annotated[float, Above(0)] = 0.1
    """learning rate of the clients"""
    decay: Annotated[float, Above(0)] = 1.0
    """factor on the rate after every round: lr * decay^(round - 1)"""

    def of(self, used: Tensor, round: int, rounds: int) -> PacePlan:
        """The pace of clients that train on ``used`` rows [K] an epoch; rounds count from 1."""
        raise NotImplementedError


@dataclass(frozen=True)
class Weighting(Component):
    """Aggregation weights."""

    @property
    def reads_deltas(self) -> bool:
        """False: the weights follow from counts and reports, so deltas are reduced while clients train."""
        return False

    def weigh(self, state: Tree, cohort: Cohort) -> Weights:
        """The weights of the cohort [K]."""
        raise NotImplementedError


@dataclass(frozen=True)
class ServerOptimizer(Component):
    """What is done with the aggregated update."""

    lr: Annotated[float, Above(0)] = 1.0
    """server learning rate"""

    def update(self, params: Params, delta: Params, state: Tree, cohort: Cohort) -> tuple[Params, Tree]:
        """(new parameters, new state of this component) from the aggregated delta."""
        raise NotImplementedError


@dataclass(frozen=True)
class LocalStep(Component):
    """How one mini-batch becomes a step."""

    @property
    def batches(self) -> int:
        """Mini-batches that one step reads."""
        return 1

    def step(self, carry: Carry, ctx: Context, differentiate: Differentiate) -> tuple[Carry, Tensor]:
        """(carry after the step, loss ()). ``differentiate(carry, i)`` is the gradient on the i-th mini-batch."""
        raise NotImplementedError

    def a_norm(self, steps: Tensor, lr: Tensor, mu: float) -> Tensor:
        """FedNova's ||a||_1: how far ``steps`` local steps reach, in units of one plain step."""
        return steps


def forwarding(inner: str, kind: type[Component]) -> Callable[[type[Any]], type[Any]]:
    """A decorator for a component around another: every hook and property of ``kind`` is that of the inner component.

    The hooks are read from ``kind`` and its bases, so a new one is forwarded too. What the decorated class defines
    itself stays. `overrides` sees through the forwarding.

    Args:
        inner: Name of the attribute that gives the inner component.
        kind: The slot's class, for example `Weighting`.
    """

    def decorate(cls: type[Any]) -> type[Any]:
        for name in [n for n in (*hooks_of(kind), "auxiliary") if n not in vars(cls)]:
            setattr(cls, name, _forwarded(name, inner, getattr(kind, name)))
        return cls

    return decorate


def hooks_of(kind: type[Component]) -> tuple[str, ...]:
    """Names of the public functions and properties that a kind of component may define, in the order of the source."""
    return tuple(
        name
        for base in reversed(kind.__mro__)
        if base in HOOKED
        for name, value in vars(base).items()
        if name[0] != "_" and isinstance(value, types.FunctionType | property)
    )


def _forwarded(name: str, inner: str, original: Any) -> Any:
    """The function or property ``name`` of the inner component."""
    if not isinstance(original, types.FunctionType):
        return property(lambda self: getattr(getattr(self, inner), name), doc=getattr(original, "__doc__", None))

    @functools.wraps(original)
    def call(self: Component, *args: Any, **named: Any) -> Any:
        return getattr(getattr(self, inner), name)(*args, **named)

    call.forwards_to = inner  # type: ignore[attr-defined]
    return call


HOOKED |= {Component, Sampler, Selector, Pace, Weighting, ServerOptimizer, LocalStep}
SLOTS: dict[str, type[Component]] = {
    "sampler": Sampler,
    "selector": Selector,
    "pace": Pace,
    "weighting": Weighting,
    "server": ServerOptimizer,
    "local": LocalStep,
}


def spec(ingredient: Any) -> dict[str, Any]:
    """{"name": ..., field: value}: the inverse of `make`."""
    values = {f.name: getattr(ingredient, f.name) for f in fields(ingredient)}
    return {"name": ingredient.name, **{n: spec(v) if is_dataclass(v) else v for n, v in values.items()}}
