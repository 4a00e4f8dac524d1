"""Ingredients of a method: their hooks, which do nothing unless defined, and the slots with one more question each."""

from __future__ import annotations

import difflib
import functools
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from torch import Tensor

from fedskew import functional as F
from fedskew import tree
from fedskew.errors import ConfigError
from fedskew.fields import OMITTED, Above, AtLeast, Checked, hints_of
from fedskew.method.reads import Read
from fedskew.types import (
    Answers,
    Assignment,
    Carry,
    Cohort,
    Context,
    Differentiate,
    Federation,
    Gradient,
    LocalRun,
    PacePlan,
    Params,
    Progress,
    Query,
    Task,
    Tree,
    View,
    Weights,
    Width,
)

if TYPE_CHECKING:
    from fedskew.method.value import Method


FUNCTIONS = (types.FunctionType, staticmethod, classmethod, property)
SERVER = ("init_server", "receive", "combine", "absorb", "adds", "mass", "weigh", "update")  # hooks that may read
HOOKED: set[type] = set()  # Component and the slots: the classes whose public functions are hooks


@dataclass(frozen=True)
class Component(Checked):
    """An ingredient of a method, with a client half and a server half.

    Every hook is a pure function and does nothing unless a subclass defines it. A component owns one namespace, its
    `name`: its memory on each client, its state at the server, its broadcast and its upload. Client hooks run under
    `torch.vmap`: they have no branches on data and read no values back.

    Raises:
        FieldError: A field has another type, or breaks a limit of its annotation.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Halved(Component):
        ...     name = "halved"
        ...     factor: Annotated[float, Above(0)] = 0.5
        ...     def correct(self, grads, view):
        ...         return {n: self.factor * g for n, g in grads.items()}
        >>> Halved(factor=0.0)
        Traceback (most recent call last):
        fedskew.errors.FieldError: Halved.factor must be positive; got 0.0
    """

    name: ClassVar[str] = ""
    classification: ClassVar[bool] = False  # True: it is the classification loss itself
    uploads: ClassVar[str] = ""  # extra upload a round and client, in symbols (P parameters, C classes, F features)
    downloads: ClassVar[str] = ""  # extra download
    keeps: ClassVar[str] = ""  # state between rounds, in the same symbols
    compute: ClassVar[str] = ""  # extra work
    reference: ClassVar[str] = ""
    version: ClassVar[int] = 1  # of its formula and defaults: another one gives its runs another address
    averages_all: ClassVar[bool] = False  # True: it is right only where the server averages every parameter
    own_only: ClassVar[bool] = False  # True: clients use their own models; the global one is a means, or is not trained
    trains_own: ClassVar[bool] = False  # True: it moves a model of the client's own, which no `frozen` holds still
    auxiliary: ClassVar[int] = 0  # rows a class that it wants the server to hold, where the user names no number

    @classmethod
    def check_class(cls) -> None:
        """Raise ConfigError where the decorator is missing, a function is nearly a hook, or none of them is one."""
        subclass: type = cls
        hints = vars(subclass).get("__annotations__", {})
        if missing := [n for n, hint in hints.items() if n not in hints_of(subclass) and "ClassVar" not in str(hint)]:
            rule = f"must stand below @dataclass(frozen=True); {missing[0]!r} is not a field"
            raise ConfigError(f"the class {cls.__name__} {rule}")
        hooks = {name for base in HOOKED if issubclass(cls, base) for name in vars(base) if name[0] != "_"}
        users = [k for k in cls.__mro__ if issubclass(k, Component) and not k.__module__.startswith("fedskew.")]
        idle = not any(name in hooks for kind in users for name in vars(kind))
        for kind in users:
            known = {name for base in kind.__mro__[1:] for name in vars(base)}
            known |= set(vars(kind).get("__annotations__", {}))  # a field may hold a function
            new = {n: v for n, v in vars(kind).items() if n[0] != "_" and n not in known and isinstance(v, FUNCTIONS)}
            for name, function in new.items():
                near = difflib.get_close_matches(name, hooks, n=1, cutoff=0.75)
                if near or (idle and not isinstance(function, property)):  # it would never be called
                    hint = f"did you mean {near[0]!r}? Let" if near else "none of them is; let"
                    rule = f"a method of {kind.__name__} must be a hook; got {name!r}; {hint}"
                    raise ConfigError(f"{rule} a helper's name begin with an underscore")

    @property
    def reads_rounds(self) -> bool:
        """Whether what it does depends on the run's number of rounds, so that a run cannot be extended."""
        return False

    @property
    def reads(self) -> tuple[Read, ...]:
        """What its server half reads of clients beside the trained model. A class sets it as a plain attribute.

        What is declared as a sum arrives with secure sums as one row, the total. An answer has the ids of all in it.
        """
        return ()

    # what it adds to the model itself

    def init_params(self, params: Params, task: Task, key: Tensor) -> Params:
        """Parameters that travel and are averaged with the model's, under names that begin with the component's."""
        return {}

    def init_model(self, params: Params, task: Task, key: Tensor) -> Params:
        """Initial values, by name, for some of the model's own parameters, in the place of the network's."""
        return {}

    # what of the model stays, and what moves

    def private(self, names: Sequence[str], task: Task) -> Collection[str]:
        """Which of these parameters and buffers stay on the client, which has its own; the server never sees them."""
        return ()

    def frozen(self, names: Sequence[str], task: Task) -> Collection[str]:
        """Which of these parameters and buffers no local step moves. They are not sent either."""
        return ()

    def moves(self, names: Sequence[str], task: Task, progress: Progress) -> dict[str, Tensor]:
        """Whether a parameter moves in this local step, () bool by name; those that are not named move."""
        return {}

    # client half

    def init_client(self, params: Params, buffers: Params, task: Task) -> Tree:
        """Memory of a client before it takes part."""
        return {}

    def start(self, params: Params, ctx: Context) -> tuple[Params, Tree]:
        """(parameters that the local run begins with, this component's memory); chained in the order of components.

        BatchNorm statistics that it begins with may be among the parameters, by their names.
        """
        return params, ctx.memory[self.name]

    def loss(self, view: View) -> Tensor:
        """A term () of the loss: per-row values averaged with `view.batch.mean`. Terms are summed."""
        raise NotImplementedError

    def correct(self, grads: Params, view: View) -> Params:
        """The gradients after this component's correction; chained in the order of components."""
        return grads

    def learn(self, view: View) -> Tree:
        """This component's memory after the gradient at `view`."""
        return view.memory[self.name]

    def finish(self, local: LocalRun) -> tuple[Tree, Tree]:
        """(upload, memory) after the last local step."""
        return {}, local.memory[self.name]

    def personalize(self, params: Params, ctx: Context, gradient: Gradient) -> Params:
        """The client's own model. `gradient` is taken on its training rows, of cross-entropy or of another term.

        BatchNorm statistics of its own may be among the parameters, by their names.
        """
        return params

    # server half

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """Server state before the first round. What it reads of `fed.counts` or `fed.sizes` stands in `reads`."""
        return {}

    def broadcast(self, state: Tree, ids: Tensor | None) -> tuple[Tree, Tree | None]:
        """(what every client gets, what each client of `ids` gets, [K, ...]); ids is None before selection."""
        return {}, None

    def ask(self, state: Tree, round: int, key: Tensor) -> Query | None:
        """An exchange before training, or None. Rounds count from 1."""
        return None

    def receive(self, state: Tree, answers: Answers, key: Tensor) -> Tree:
        """Server state after the answers to `ask`."""
        return state

    def to_sum(self, answer: Tree) -> Tree:
        """What one client adds to a sum in the place of its answer to `ask`, where the server sees sums alone."""
        return answer

    def from_sum(self, total: Tree) -> Tree:
        """The answer of one client that stands for all, from the sum."""
        return total

    def combine(self, state: Tree, cohort: Cohort) -> Params:
        """The deltas [K, ...] after a step across clients, before they are averaged."""
        return cohort.deltas

    def absorb(self, state: Tree, cohort: Cohort, key: Tensor) -> tuple[Tree, Tree | None]:
        """(server state after the update, memories [K, ...] to write back to the cohort, or None)."""
        return state, None

    def serve(self, params: Params, state: Tree, task: Task) -> Params:
        """The parameters to evaluate and deploy, where they differ from those broadcast."""
        return params

    def record(self, state: Tree) -> dict[str, Any]:
        """Numbers of this component's server state for each round's record."""
        return {}

    # facts about the component

    @property
    def proximal(self) -> float:
        """Coefficient mu of a quadratic pull towards w^t that this component adds to every gradient."""
        return 0.0

    @property
    def needs_two_classes(self) -> bool:
        """Whether its loss is next to 0 at a client with rows of one class, which then hardly trains."""
        return False

    @property
    def projects(self) -> Width:
        """The projection head that it wants in front of the classifier, where the network leaves it open; 0: none."""
        return 0

    def check(self, method: Method, fed: Federation, task: Task) -> None:
        """Raise ConfigError where the federation or the rest of the method does not fit this component."""


def does_no_more(component: Component, kind: type[Component], *free: str) -> bool:
    """Whether a component does exactly what `kind` does at its defaults, whatever its fields `free` are.

    False for a subclass that defines a hook, and for any other field that is not at its default, known here or not.
    """
    same = all(getattr(type(component), hook) is getattr(kind, hook) for hook in hooks_of(kind))
    return same and all(getattr(component, f.name) == f.default for f in fields(component) if f.name not in free)


def overrides(component: Component, hook: str) -> bool:
    """Whether the component fills a hook: its class does, or the component that it forwards the hook to."""
    attribute = getattr(type(component), hook)
    if attribute is getattr(Component, hook):
        return False
    inner = getattr(attribute, "forwards_to", None)  # see `forwarding`
    return inner is None or overrides(getattr(component, inner), hook)


def undeclared(part: Component, hooks: Sequence[str] = SERVER) -> str:
    """One of these hooks, those of the server half, for which no class says what it reads; "" where all is declared."""
    for kind in type(part).__mro__:
        if "reads" in vars(kind):
            return ""
        ours = kind.__module__.startswith("fedskew.")  # whose declarations are tested
        if hook := next((name for name in hooks if name in vars(kind) and not ours), ""):
            return hook
    return ""


@dataclass(frozen=True)
class Sampler(Component):
    """The rows that a client trains on in a round."""

    bare: ClassVar[bool] = False  # True: a mini-batch without rows is a step, too

    def offer(self, counts: Tensor, state: Tree, round: int, key: Tensor) -> Tensor:
        """Rows of each class that each client can train on, [N, C]; `state` is this component's broadcast."""
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
        """Mini-batches of one client.

        Args:
            labels: Labels of the client's rows, [n].
            offered: Rows of each class that the client offered, [C].
            quota: Rows of each class that the selector allows, [C], or None.
            pace: Batch size or 0 for all rows, epochs, and most steps of an epoch or 0 for all.
            shared: This component's broadcast.
            key: Key of the draws.

        Returns:
            Positions [E, S, B] into `labels`; -1 is padding.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Selector(Component):
    """The clients that take part in a round, in which chains, and how much of each class each may use."""

    chained: ClassVar[bool] = False  # True: it forms chains of more than one client
    repeats: ClassVar[bool] = False  # True: it may take a client more than once in a round
    varies: ClassVar[bool] = False  # True: it draws k clients on average; a round may have more, fewer or none

    def select(self, state: Tree, k: int, key: Tensor) -> Assignment:
        """The cohort: at most k clients, or k on average where it `varies`.

        Answers to `ask` have reached `state` through `receive`.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Pace(Component):
    """Batch size, number of steps and learning rate of each client in a round."""

    epochs: Annotated[int, AtLeast(1)] = 2
    """local epochs E"""
    lr: Annotated[float, Above(0)] = 0.1
    """learning rate of the clients"""
    decay: Annotated[float, Above(0)] = 1.0
    """factor on the rate after every round: lr * decay^(round - 1)"""

    def of(self, used: Tensor, round: int, rounds: int) -> PacePlan:
        """The pace of clients that train on `used` rows [K] in an epoch; rounds count from 1.

        A pace that reads `rounds`, the number of rounds of the run, says so by `reads_rounds`.
        """
        raise NotImplementedError


Sums = tuple[Tree, ...]  # those of the stages so far, each over the participants


@dataclass(frozen=True)
class Weighting(Component):
    """The aggregation weights of a round, as what each participant computes from its own numbers and from sums.

    ``adds`` and ``mass`` are computed for each participant alone: row k of what they give depends on row k of the
    cohort, the state and the sums. A weighting that must see all participants at once defines `weigh` instead, and
    is refused where a server sees sums alone.

    Example:
        >>> import fedskew as fs
        >>> class Entropy(fs.Weighting):
        ...     name = "entropy"
        ...     def mass(self, state, own, sums):
        ...         shares = own.used / own.used.sum(1, keepdim=True)
        ...         return fs.types.Weights(*[torch.special.entr(shares).sum(1) + 1e-3] * 2)
        >>> Entropy().stages
        0
    """

    @property
    def reads_deltas(self) -> bool:
        """Whether the weights depend on the deltas. If not, deltas are summed while clients train."""
        return False

    @property
    def stages(self) -> int:
        """Sums over the participants that the masses rest on, one after another."""
        return 0

    @property
    def normed(self) -> bool:
        """Whether the masses are weights already: ``average`` sums to 1 over those who entered the sums."""
        return False

    def adds(self, state: Tree, own: Cohort, sums: Sums) -> Tree:
        """What each participant adds to the next sum, leaves [K, ...]."""
        raise NotImplementedError

    def mass(self, state: Tree, own: Cohort, sums: Sums) -> Weights:
        """The weights of each participant, [K], before they are divided by the sum of all ``average``."""
        raise NotImplementedError

    def weigh(self, state: Tree, cohort: Cohort) -> Weights:
        """The weights of the cohort, [K]."""
        return weights_of(self, state, cohort, cohort)


def in_halves(weighting: Weighting) -> bool:
    """Whether the weights are those of `adds` and `mass`, which each client can compute."""
    weigh: Any = type(weighting).weigh
    inner = getattr(weigh, "forwards_to", None)  # see `forwarding`
    return in_halves(getattr(weighting, inner)) if inner else weigh is Weighting.weigh


def sums_of(weighting: Weighting, state: Tree, cohort: Cohort) -> Sums:
    """The sums that the masses rest on."""
    sums: Sums = ()
    for _ in range(weighting.stages):
        sums += (tree.map_tree(lambda leaf: leaf.sum(0), weighting.adds(state, cohort, sums)),)
    return sums


def weights_of(weighting: Weighting, state: Tree, cohort: Cohort, entered: Cohort) -> Weights:
    """The weights of who is left of those who entered the round, whose sums they rest on; of a weighting in halves."""
    mass = weighting.mass(state, cohort, sums_of(weighting, state, entered))
    if weighting.normed and cohort is entered:
        return mass
    average = F.size_weights(mass.average)
    return Weights(average if mass.update is mass.average else mass.update / mass.average.sum(), average)


@dataclass(frozen=True)
class ServerOptimizer(Component):
    """The step of the global model along the aggregated update."""

    lr: Annotated[float, Above(0)] = 1.0
    """server learning rate"""

    def update(self, params: Params, delta: Params, state: Tree, cohort: Cohort) -> tuple[Params, Tree]:
        """(new parameters, new state of this component) from the aggregated delta."""
        raise NotImplementedError


@dataclass(frozen=True)
class LocalStep(Component):
    """How one mini-batch becomes a step of the client."""

    @property
    def batches(self) -> int:
        """Mini-batches that one step reads."""
        return 1

    def step(self, carry: Carry, ctx: Context, differentiate: Differentiate) -> tuple[Carry, Tensor]:
        """(carry after the step, loss ()). `differentiate(carry, i)` is the gradient on the i-th mini-batch."""
        raise NotImplementedError

    def a_norm(self, steps: Tensor, lr: Tensor, mu: float) -> Tensor:
        """FedNova's ||a||_1: the reach of `steps` local steps, in units of one plain step."""
        return steps


def forwarding(inner: str, kind: type[Component]) -> Callable[[type[Any]], type[Any]]:
    """A decorator for a component around another: every hook and property of `kind` is that of the inner component.

    The hooks are read from `kind` and its bases, so a new one is forwarded too. What the decorated class defines
    itself stays. `overrides` sees through the forwarding.

    Args:
        inner: Name of the attribute that gives the inner component.
        kind: The slot's class, for example `Weighting`.
    """

    def decorate(cls: type[Any]) -> type[Any]:
        for name in [n for n in (*hooks_of(kind), "auxiliary") if n not in vars(cls)]:
            original = getattr(kind, name)
            if not isinstance(original, types.FunctionType):
                setattr(cls, name, property(attrgetter(f"{inner}.{name}"), doc=getattr(original, "__doc__", None)))
                continue

            @functools.wraps(original)
            def call(self: Component, *args: Any, _hook: str = name, **named: Any) -> Any:
                return getattr(getattr(self, inner), _hook)(*args, **named)

            call.forwards_to = inner  # type: ignore[attr-defined]
            setattr(cls, name, call)
        return cls

    return decorate


def hooks_of(kind: type[Component]) -> tuple[str, ...]:
    """Names of the public functions and properties that a kind of component may define, in the order of the source."""
    attrs = {name: value for base in reversed(kind.__mro__) if base in HOOKED for name, value in vars(base).items()}
    return tuple([n for n, value in attrs.items() if n[0] != "_" and isinstance(value, types.FunctionType | property)])


SLOTS: dict[str, type[Component]] = {
    "sampler": Sampler,
    "selector": Selector,
    "pace": Pace,
    "weighting": Weighting,
    "server": ServerOptimizer,
    "local": LocalStep,
}
HOOKED |= {Component, *SLOTS.values()}


def spec(ingredient: Any) -> dict[str, Any]:
    """An ingredient as a name and fields: the inverse of `make`. A version of its class is told where it is not 1.

    Example:
        >>> from fedskew.method.steps import SGD
        >>> spec(SGD(momentum=0.9))
        {'name': 'sgd', 'momentum': 0.9, 'weight_decay': 0.0, 'clip': 0.0}
    """
    held = {"name": ingredient.name}
    if (version := getattr(type(ingredient), "version", 1)) != 1:
        held["version"] = version
    for f in fields(ingredient):
        got = getattr(ingredient, f.name)
        if OMITTED not in f.metadata or got != f.default:
            held[f.name] = spec(got) if is_dataclass(got) else got
    return held


def versions(recorded: Any) -> dict[str, Any]:
    """The version of every ingredient in a record, by its name.

    Example:
        >>> versions({"name": "mine", "parts": [{"name": "local_balancer", "version": 2, "eps": 1.0}]})
        {'mine': 1, 'local_balancer': 2}
    """
    by_name = dict[str, Any]()
    if isinstance(recorded, Mapping) and isinstance(recorded.get("name"), str):
        by_name[recorded["name"]] = recorded.get("version", 1)
    inner = recorded.values() if isinstance(recorded, Mapping) else recorded if isinstance(recorded, list) else ()
    for nested in inner:
        by_name |= versions(nested)
    return by_name


def former(was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What to say of a configuration whose ingredients have other versions than those of `now`; "" where none has.

    Example:
        >>> former({"method": {"name": "tethered"}}, {"method": {"name": "tethered", "version": 2}})
        "version 1 of 'tethered', which is version 2 in this fedskew, with another formula or other defaults"
    """
    old, new = (versions([config.get(slot) for slot in ("method", "partition", "model")]) for config in (was, now))
    for name in (name for name in new if name in old and old[name] != new[name]):
        message = f"version {str(old[name])[:20]} of {name!r}, which is version {new[name]} in this fedskew"
        return f"{message}, with another formula or other defaults"
    return ""
