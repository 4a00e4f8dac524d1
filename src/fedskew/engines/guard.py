"""Looks over the hooks of a method while it runs: where an error was raised, and whether a hook gave what it may.

`guarded` makes a method whose components are the same values with watched hooks. In every engine an error in a hook of
the server half, or in one that runs before the first round, names component, hook and round; and every hook must give
back the names and shapes that its docstring says, since a tensor of another shape would be broadcast silently. Hooks
that run in every local step are looked at until the end of the first round, and so is whether a hook writes into what
it was given, which would change another client's or a later round's numbers. In `debug` they are in all rounds, and
dtype, device, finiteness and the content of inputs are looked at as well.
"""

from __future__ import annotations

import copy
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any
from weakref import WeakSet

from fedskew.component import Component, hooks_of, overrides
from fedskew.engines.finite import Fault, not_finite
from fedskew.engines.inputs import infinite, marked, names_of, snapshot, unchanged, written
from fedskew.engines.promises import PROMISES, STATE
from fedskew.errors import FedskewError, TrainingError
from fedskew.method import Method

__all__ = ["CLIENT", "Guard", "guarded", "unguarded"]

CLIENT = ("start", "moves", "loss", "correct", "learn", "finish", "step")  # hooks that run in a client's local run
_WATCHED: WeakSet[type] = WeakSet()  # classes made here, each with the class of the component as its base


@dataclass(eq=False)
class Guard:
    """Where a run stands, and how closely its hooks are looked at."""

    full: bool = False  # the `debug` engine
    round: int = 0  # 0 before the first
    client: int = -1  # only in `debug`, which trains one client at a time
    step: int = 0
    steps: int = 0
    looks: bool = True  # at what hooks of a local run give back; the others run a few times a round and always are
    noted: str = ""  # the innermost hook of the local run that raised

    def begin(self, round: int) -> None:
        """A round begins, perhaps again."""
        self.looks = self.full or self.round in (0, round)
        self.round = round

    def at(self, client: int = -1, step: int = 0, steps: int = 0) -> None:
        """The local step that comes next; without arguments, none."""
        self.client, self.step, self.steps, self.noted = client, step, steps, ""

    @property
    def where(self) -> str:
        """Round, client and step, as far as they are known."""
        if self.client >= 0:
            return f"client {self.client}, round {self.round}, step {self.step} of {self.steps}"
        return f"round {self.round}" if self.round else "before round 1"

    @contextmanager
    def located(self, what: str) -> Iterator[None]:
        """Let errors that fedskew did not raise say where they were raised."""
        try:
            yield
        except FedskewError:
            raise
        except Exception as error:
            said = (str(error).strip().splitlines() or ["no message"])[0]
            raise TrainingError(f"{type(error).__name__} in {what}, {self.where}: {said}") from error

    def call(self, part: Component, hook: str, original: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """What a hook gives back, looked at."""
        name = f"hook {hook!r} of component {part.name!r}"
        given = snapshot(hook, args) if self.full else []
        inputs = names_of(hook, args) if self.looks and not self.full else {}
        before = marked(inputs)
        if hook in CLIENT:
            try:
                out = original(part, *args)
            except Exception:
                self.noted = self.noted or name  # the engine says the rest
                raise
        else:
            with self.located(name):
                out = original(part, *args)
        if changed := written(before, inputs):
            self._refuse(name, changed)
        if self.looks or hook not in CLIENT:
            with self.located(f"what {name} gave"):
                wrong = PROMISES[hook](part, args, out, self.full) if hook in PROMISES else ""
            if wrong:
                raise TrainingError(f"{name} must {wrong}; {self.where}")
        if self.full:
            self._inspect(name, hook, args, given, out)
        return out

    @contextmanager
    def unwritten(self, name: str, values: Any) -> Iterator[None]:
        """Raise TrainingError where what runs inside writes into the values, or replaces one of them."""
        before = marked(values)
        yield
        if changed := written(before, values):
            self._refuse(name, changed)

    def _refuse(self, name: str, changed: str) -> None:
        hint = "use x + 1 rather than x += 1 or x.add_(1)"
        raise TrainingError(f"{name} must not change its inputs; it changed {changed!r}, {self.where}; {hint}")

    def _inspect(self, name: str, hook: str, args: tuple[Any, ...], given: list[Any], out: Any) -> None:
        changed = unchanged(given, snapshot(hook, args, copied=False))
        if changed:
            self._refuse(name, changed)
        broken = infinite(out, only_nan=hook in STATE)
        if broken is None or infinite([copy for *_, copy in given]) is not None:
            return  # what came in was not finite already: other checks say where it began
        if hook in CLIENT and self.client >= 0:
            raise not_finite([Fault(self.client, self.round, self.step, self.steps, f"output {broken!r} of {name}")])
        raise TrainingError(f"{name} must give finite values; {broken!r} is not, {self.where}")


def guarded(method: Method, guard: Guard) -> Method:
    """The same method with watched hooks. Its components compare unequal to those of the method."""
    parts = tuple(_watched(part, guard) for part in method.parts)
    return replace(method, parts=parts, **{slot: _watched(c, guard) for slot, c in method.slots.items()})


def unguarded(method: Method) -> Method:
    """The inverse of `guarded`: its components are of their own classes, as another process knows them.

    Nothing is checked again: where denormal numbers are 0, as in a run, a tiny rate would be refused.
    """
    values = {f.name: getattr(method, f.name) for f in fields(method)}
    values |= {"parts": tuple(map(_plain, method.parts)), **{s: _plain(c) for s, c in method.slots.items()}}
    plain = object.__new__(type(method))
    for name, value in values.items():
        object.__setattr__(plain, name, value)
    return plain


def _plain(part: Component) -> Any:
    if type(part) not in _WATCHED:
        return part
    plain: Any = copy.copy(part)
    object.__setattr__(plain, "__class__", type(part).__bases__[0])
    return plain


def _watched(part: Component, guard: Guard) -> Any:
    """The component as an instance of a subclass in which the hooks that it fills are watched."""
    kind = type(part)
    functions = [n for n in hooks_of(kind) if isinstance(inspect.getattr_static(kind, n), types.FunctionType)]
    names = [n for n in functions if n != "check"]
    filled = {n: _call(n, getattr(kind, n), guard) for n in names if not hasattr(Component, n) or overrides(part, n)}
    about = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__slots__": ()}
    twin: Any = copy.copy(part)
    watched = type(kind.__name__, (kind,), {**about, **filled})
    _WATCHED.add(watched)
    object.__setattr__(twin, "__class__", watched)
    return twin


def _call(hook: str, original: Callable[..., Any], guard: Guard) -> Callable[..., Any]:
    brief = hook in CLIENT

    @functools.wraps(original)
    def call(self: Component, *args: Any, **named: Any) -> Any:
        if named or (brief and not guard.looks):
            return original(self, *args, **named)
        return guard.call(self, hook, original, args)

    return call
