"""A method: parts and slots in one frozen value."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, Literal

from fedskew.errors import ConfigError, FieldError, require, unknown
from fedskew.fields import check
from fedskew.method.component import (
    SLOTS,
    Component,
    LocalStep,
    Pace,
    Sampler,
    Selector,
    ServerOptimizer,
    Weighting,
    overrides,
    spec,
)
from fedskew.method.paces import Fixed
from fedskew.method.parts import CrossEntropy
from fedskew.method.samplers import Shuffle
from fedskew.method.selectors import Random
from fedskew.method.servers import Plain
from fedskew.method.steps import SGD
from fedskew.method.weightings import Size
from fedskew.types import Federation, Task, Width


@dataclass(frozen=True)
class Method:
    """A federated learning method: parts of the client's objective, and one ingredient in each of six slots.

    Compose a new one from an existing one with `with_`. A method without a classification loss gets cross-entropy.

    Args:
        name: Name in records, a word.
        parts: Terms, corrections and memory of the client, in the order in which their hooks are chained.
        sampler: The rows that a client trains on.
        selector: The clients that take part.
        pace: Batch size, epochs and learning rate.
        weighting: The aggregation weights.
        server: The step of the global model.
        local: The step of a client.
        reference: Key of the paper, for citations.
        preset: Name of the preset that set its pace, a word in the record: `fedskew.config.presets`.
        share: Part of the clients in a round where the run names no cohort; None: 10 of them.

    Raises:
        ConfigError: Two classification losses, two components of one name, or a value that is no component of its slot.

    Example:
        >>> from fedskew.methods.fedprox import Proximal
        >>> method = Method("mine", parts=(Proximal(0.1),), local=SGD(momentum=0.9))
        >>> method.parts, method.weighting
        ((CrossEntropy(), Proximal(mu=0.1)), Size())
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
    preset: str = ""
    share: float | None = None

    def __post_init__(self) -> None:
        self._check_kinds()
        bases = [p.name for p in self.parts if p.classification]
        if not bases:
            object.__setattr__(self, "parts", (CrossEntropy(), *self.parts))
        if len(bases) > 1:
            raise ConfigError(f"parts must hold at most one classification loss; got {', '.join(bases)}")
        names = [c.name for c in self.components]
        repeated = sorted({n for n in names if names.count(n) > 1})
        if repeated:
            raise ConfigError(f"components of a method must have different names; got {', '.join(repeated)} twice")

    def _check_kinds(self) -> None:
        require(isinstance(self.name, str) and bool(self.name), "the name of a method", "be a word", self.name)
        several = isinstance(self.parts, tuple | list)
        require(several, "parts", "be a tuple of components", self.parts, "for a single component write (component,)")
        share = 1.0 if self.share is None else self.share
        require(0 < share <= 1, "share", "be above 0 and at most 1", self.share)
        object.__setattr__(self, "parts", tuple(self.parts))
        for place, component in (*zip(itertools.repeat("parts"), self.parts), *self.slots.items()):
            kind = SLOTS.get(place, Component)
            if not isinstance(component, kind) or (place == "parts" and isinstance(component, (*SLOTS.values(),))):
                raise _misplaced(place, component, kind.__name__)
            if type(component).__module__.startswith("fedskew."):
                continue
            check(component)  # again: a user's own class may have a __post_init__ that does not
            if not isinstance(component.name, str) or not component.name:
                rule = 'must have its own name, a line such as name = "mine"'
                raise ConfigError(f"the class {type(component).__name__} {rule}; got {component.name!r}")
            if component.proximal < 0:
                rule = "be at least 0: it pulls towards the broadcast model"
                raise FieldError(type(component).__name__, "proximal", rule, component.proximal)

    @cached_property
    def slots(self) -> dict[str, Component]:
        """The six slots by name."""
        return dict(zip(SLOTS, attrgetter(*SLOTS)(self), strict=True))

    @cached_property
    def components(self) -> tuple[Component, ...]:
        """Parts, then slots: the order in which hooks are chained."""
        return (*self.parts, *self.slots.values())

    def ingredients(self) -> Iterator[tuple[str, Component]]:
        """(place, ingredient) of every ingredient, the inner ones too.

        Places are "parts.proximal", "weighting", and "weighting.base" for the weighting inside another one.
        """
        for part in self.parts:
            yield from _nested(f"parts.{part.name}", part)
        for place, component in self.slots.items():
            yield from _nested(place, component)

    def with_(self, ingredient: str = "", /, **changes: Any) -> Method:
        """A copy of the method with other values.

        With an ingredient, `changes` are fields of it; without one, they are slots of the method. A method that gets
        other parts gets a name that says so, `fedbal(parts=proximal)`, unless `name` is given too.

        Args:
            ingredient: Name of an ingredient, for example "local_balancer", or its place, for example "pace".
            **changes: New values of its fields, or new ingredients: `parts=(...)`, `weighting=...`.

        Returns:
            The new method. The old one does not change.

        Raises:
            ConfigError: The method has no such ingredient, slot or field, or a value breaks a rule.

        Example:
            >>> from fedskew import methods, weightings
            >>> method = methods.fedbal().with_("local_balancer", eps=1.0).with_("pace", lr=0.05)
            >>> method.parts[0].eps, method.pace.lr
            (1.0, 0.05)
            >>> methods.fedbal().with_(weighting=weightings.Uniform(), parts=()).name
            'fedbal(parts=none)'
        """
        if not ingredient:
            _check_known("slot of a method", changes, [f.name for f in fields(self)])
            self._check_own_kept(changes.get("local", self.local))
            other = replace(self, **changes)
            return other if "name" in changes else replace(other, name=renamed(self, other.parts))
        for place, component in self.ingredients():
            if ingredient in (place, component.name):
                _check_known(f"field of {component.name}", changes, [f.name for f in fields(component)])
                after: Method = _changed(self, place.split("."), changes)
                return after
        known = {name for place, component in self.ingredients() for name in (place, component.name)}
        raise unknown(f"ingredient of {self.name}", ingredient, known)

    def _check_own_kept(self, local: LocalStep) -> None:
        """Raise FieldError where a local step goes that makes models of the clients' own: the method is no more."""
        if overrides(self.local, "personalize") and not isinstance(local, type(self.local)):
            rule = f"stay {self.local.name!r} in {self.name}: it makes the clients' own models"
            hint = f"set its own fields ({', '.join(f.name for f in fields(self.local))})"
            raise FieldError("Method", "local", rule, getattr(local, "name", local), hint)

    def having(self, hook: str) -> tuple[Component, ...]:
        """The components that define a hook. Remembered, as every local step asks."""
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
    def projection(self) -> Width:
        """The projection head that the components want in front of the classifier: the widest, then linear; 0: none."""
        widths = [c.projects for c in self.components]
        return max(width for width in [0, *widths] if width != "linear") or ("linear" if "linear" in widths else 0)

    @property
    def stacks(self) -> bool:
        """Whether the server must see the delta of every client rather than their weighted sum."""
        return self.weighting.reads_deltas or bool(self.having("combine"))

    def named(self, hook: Literal["private", "frozen"], names: Sequence[str], task: Task) -> frozenset[str]:
        """Those of these parameters and buffers that any component's `private`, or `frozen`, names."""
        return frozenset().union(*(getattr(part, hook)(names, task) for part in self.having(hook)))

    @property
    def personal(self) -> bool:
        """Whether clients have models of their own."""
        return bool(self.having("personalize") or self.having("private"))

    @property
    def serves(self) -> Literal["global", "own", "both"]:
        """What clients use after training: the global model, models of their own, or either.

        Models of their own alone where parameters of the network itself stay on the client, so that the global model is
        not trained as a whole, and where a component says so (`Component.own_only`).

        Example:
            >>> from fedskew import methods
            >>> methods.fedavg().serves, methods.fedper().serves, methods.ditto().serves
            ('global', 'own', 'both')
        """
        kept = any(part not in self.having("personalize") for part in self.having("private"))
        alone = kept or any(part.own_only for part in self.components)
        return "own" if alone else "both" if self.personal else "global"

    def probe(self) -> Method:
        """Plain cross-entropy with the same pace and local step: what a "delta" query trains."""
        return Method(f"{self.name}.probe", pace=self.pace, local=self.local)

    def check(self, fed: Federation, task: Task) -> None:
        """Raise ConfigError where the method cannot run on this federation, before anything trains."""
        for component in self.components:
            component.check(self, fed, task)
        # beside the local step, what keeps something on clients or uploads more than the model
        parts = [c for c in self.components if c is not self.local]
        keepers = [c.name for c in parts if overrides(c, "init_client") or overrides(c, "finish")]
        keepers += [c.name for c in self.having("private")]
        across = [c.name for c in self.having("combine")]
        if self.selector.chained and (keepers or across):
            why = "which keeps memory on clients" if keepers else "which needs the classifier of each single client"
            rule = f"not pass a model from client to client beside {(keepers or across)[0]}, {why}"
            raise FieldError("Method", "selector", rule, self.selector.name)
        alike = "which is right only where every parameter of every client is averaged once"
        for part, other in itertools.product(self.having("private"), self.components):
            rule = f"not keep parameters on clients beside {other.name!r}, {alike}"
            require(not other.averages_all, f"{self.name}'s {part.name!r}", rule, part.name)
        for part, other in itertools.product((*self.having("frozen"), *self.having("moves")), self.components):
            rule = f"not hold parameters still beside {other.name!r}, which moves a model of the client's own"
            require(not other.trains_own, f"{self.name}'s {part.name!r}", rule, part.name)
        if self.selector.repeats:
            for other in (c for c in self.components if c.averages_all):
                rule = f"not take a client twice in a round beside {other.name!r}, {alike}"
                raise FieldError("Method", "selector", rule, self.selector.name)


def renamed(method: Method, parts: Sequence[Component]) -> str:
    """The name of a method with other parts: `fedbal(parts=proximal)`, or its own name for the same parts.

    Example:
        >>> from fedskew.methods import fedavg, fedprox
        >>> renamed(fedavg(), fedprox().parts)
        'fedavg(parts=proximal)'
    """
    names, old_names = ([p.name for p in group if p.name != CrossEntropy.name] for group in (parts, method.parts))
    if names == old_names:
        return method.name
    return f"{method.name.partition('(')[0]}(parts={','.join(names) or 'none'})"


def _nested(place: str, component: Component) -> Iterator[tuple[str, Component]]:
    """(place, component) of a component and of those among its fields."""
    yield place, component
    for f in fields(component):
        inner = getattr(component, f.name)
        if isinstance(inner, Component):
            yield from _nested(f"{place}.{f.name}", inner)


def _changed(value: Any, place: Sequence[str], changes: dict[str, Any]) -> Any:
    """The value with other fields at the place inside it."""
    if not place:
        return replace(value, **changes)
    name, *rest = place
    if name == "parts":
        parts = tuple(_changed(p, rest[1:], changes) if p.name == rest[0] else p for p in value.parts)
        return replace(value, parts=parts)
    return replace(value, **{name: _changed(getattr(value, name), rest, changes)})


def _check_known(kind: str, names: Iterable[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise unknown(kind, name, known)


def _misplaced(place: str, value: object, kind: str) -> ConfigError:
    """The error for a value that is no component of the slot `place`, or of "parts"."""
    if isinstance(value, type):
        return ConfigError(f"{place} must hold a {kind}; got the class {value.__name__}; use {value.__name__}()")
    if not isinstance(value, Component):
        return ConfigError(f"{place} must hold a {kind}; got {value!r} of type {type(value).__name__}")
    home = next((slot for slot, base in SLOTS.items() if isinstance(value, base)), "parts")
    right = f"parts=({value!r},)" if home == "parts" else f"{home}={value!r}"
    return ConfigError(f"{place} must not hold {type(value).__name__}, which belongs elsewhere; use {right}")


def check_method(method: object) -> None:
    """Raise ConfigError unless `method` is a `Method`, with a hint for a name, a factory or a class."""
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
    """A method as names and fields, as a configuration file holds it.

    Example:
        >>> from fedskew.methods import fedavg
        >>> method_spec(fedavg())["selector"]
        {'name': 'random'}
    """
    return {
        "name": method.name,
        "parts": [spec(p) for p in method.parts],
        **{s: spec(c) for s, c in method.slots.items()},
        **({"preset": method.preset} if method.preset else {}),
        **({"share": method.share} if method.share is not None else {}),
    }
