"""Looks over the hooks of a method while it runs: where an error was raised, and whether a hook gave what it may.

`guarded` makes a method that hands out its components with watched hooks. In every engine an error in a hook of
the server half, or in one that runs before the first round, names component, hook and round; and every hook must give
back the names and shapes that its docstring says, since a tensor of another shape would be broadcast silently. Hooks
that run in every local step are looked at until the end of the first round, and so is whether a hook writes into what
it was given, which would change another client's or a later round's numbers. In `debug` they are in all rounds, and
dtype, device, finiteness and the content of inputs are looked at as well.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor

from fedskew.data.federation import Federation
from fedskew.engines.outcomes import Fault, not_finite
from fedskew.engines.promises import PROMISES, STATE
from fedskew.errors import FedskewError, TrainingError
from fedskew.method import Method
from fedskew.method.component import SLOTS, Component, hooks_of, overrides

# What a hook is given, and whether somebody wrote into it


Seen = tuple[str, Any]  # name of an input, its value
Marked = tuple[str, Any, Any]  # name of an input, its value, what its content is compared with


def marked(values: Any, whole: bool = False) -> list[Marked]:
    """Every tensor and array in some values, with what tells that somebody wrote into it.

    Of a tensor this is the counter that torch keeps of its changes, so no tensor is copied; of an array a copy, since
    those that hooks get are rows of one client or of the server. What is written past torch, as by ``x.data``, only
    copies of tensors show: ``whole`` takes them.
    """
    return [(name, value, _copy(value) if whole else _mark(value)) for name, value in _inside(values)]


def _mark(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    while is_functorch_wrapped_tensor(value):  # under vmap, what is beneath counts
        value = get_unwrapped(value)
    return value._version


def written(before: list[Marked], values: Any) -> str:
    """The name of the first value that was written into or replaced; "" where none was."""
    now = list(_inside(values))
    if gone := {name for name, *_ in before} ^ {name for name, _ in now}:
        return min(gone)
    pairs = zip(before, now, strict=True)
    return next((name for (name, a, mark), (_, b) in pairs if a is not b or not _as_marked(a, mark)), "")


def _as_marked(value: Any, mark: Any) -> bool:
    """Whether a value is what its mark says, to the bit; a NaN equals itself."""
    if isinstance(mark, np.ndarray):
        return bool(np.array_equal(value, mark, equal_nan=mark.dtype.kind == "f"))
    if not isinstance(mark, Tensor):
        return bool(_mark(value) == mark)
    if value.shape != mark.shape or value.dtype != mark.dtype:
        return False
    equal = (value.detach() == mark) | (value.detach().isnan() & mark.isnan())
    return bool(equal.all())


def names_of(hook: str, args: tuple[Any, ...]) -> dict[str, Any]:
    """The arguments of a hook by name."""
    return dict(zip(_parameters(hook), args, strict=False))


@cache
def _parameters(hook: str) -> list[str]:
    known = next(getattr(kind, hook) for kind in (Component, *SLOTS.values()) if hasattr(kind, hook))
    return list(inspect.signature(known).parameters)[1:]


def _inside(value: Any, path: str = "") -> Iterator[Seen]:
    if isinstance(value, Tensor | np.ndarray):
        yield path, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _inside(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, tuple | list):
        names = getattr(value, "_fields", [""] * len(value))
        for name, inner in zip(names, value, strict=True):
            yield from _inside(inner, ".".join(filter(None, (path, name))))


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value.copy()


def infinite(value: Any, *, only_nan: bool = False) -> str | None:
    """The name of the first tensor that is not finite; None where all are. "" names the value itself."""
    for name, leaf in _inside(value):
        numbers = isinstance(leaf, Tensor) and leaf.is_floating_point()
        if numbers and bool((torch.isnan(leaf) if only_nan else ~torch.isfinite(leaf)).any()):
            return name
    return None


def tensors_of(fed: Federation) -> dict[str, Tensor]:
    """The tensors of a federation, which its user has, too."""
    data = fed.dataset
    return {"counts": fed.counts, "x": data.x, "y": data.y, "x_test": data.x_test, "y_test": data.y_test}


# The guard


CLIENT = ("start", "moves", "loss", "correct", "learn", "finish", "step")  # hooks that run in a client's local run


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
        inputs = names_of(hook, args) if self.looks else {}
        before = marked(inputs, whole=self.full)
        if hook in CLIENT:
            try:
                out = original(*args)
            except Exception:
                self.noted = self.noted or name  # the engine says the rest
                raise
        else:
            with self.located(name):
                out = original(*args)
        if changed := written(before, inputs):
            self._refuse(name, changed)
        if self.looks or hook not in CLIENT:
            with self.located(f"what {name} gave"):
                wrong = PROMISES[hook](part, args, out, self.full) if hook in PROMISES else ""
            if wrong:
                raise TrainingError(f"{name} must {wrong}; {self.where}")
        if self.full:
            self._inspect(name, hook, [copy for *_, copy in before], out)
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

    def _inspect(self, name: str, hook: str, given: list[Any], out: Any) -> None:
        broken = infinite(out, only_nan=hook in STATE)
        if broken is None or infinite(given) is not None:
            return  # what came in was not finite already: other checks say where it began
        if hook in CLIENT and self.client >= 0:
            raise not_finite([Fault(self.client, self.round, self.step, self.steps, f"output {broken!r} of {name}")])
        raise TrainingError(f"{name} must return finite values; {broken!r} is not, {self.where}")


class Watched:
    """A component whose hooks are looked at. All else is the component's own."""

    def __init__(self, part: Component, guard: Guard) -> None:
        """Wrap the hooks that the component fills, and those of its slot."""
        self.part = part
        for hook in hooks_of(type(part)):
            function = isinstance(inspect.getattr_static(part, hook), types.FunctionType)
            if function and hook != "check" and (not hasattr(Component, hook) or overrides(part, hook)):
                setattr(self, hook, _looked_at(part, hook, guard))

    def __getattr__(self, name: str) -> Any:
        if name == "part":  # of an object that is not made yet
            raise AttributeError(name)
        return getattr(self.part, name)

    def __eq__(self, other: object) -> bool:
        """Of the same component: fields may hold tensors, which have no single truth."""
        return isinstance(other, Watched) and self.part is other.part

    def __hash__(self) -> int:
        return id(self.part)


def _looked_at(part: Component, hook: str, guard: Guard) -> Callable[..., Any]:
    original, brief = getattr(part, hook), hook in CLIENT

    def call(*args: Any, **named: Any) -> Any:
        if named or (brief and not guard.looks):
            return original(*args, **named)
        return guard.call(part, hook, original, args)

    return call


class Guarded(Method):
    """A method that hands out watched components. Made by `guarded`."""

    plain: Method
    guard: Guard

    def having(self, hook: str) -> tuple[Component, ...]:
        """As `Method.having`."""
        if hook not in self._having:
            pairs = zip(self.components, self.plain.components, strict=True)
            self._having[hook] = tuple(watched for watched, part in pairs if overrides(part, hook))
        return self._having[hook]

    def probe(self) -> Method:
        """As `Method.probe`."""
        return guarded(self.plain.probe(), self.guard)


def guarded(method: Method, guard: Guard) -> Method:
    """The same method with watched hooks.

    Nothing is checked again: where denormal numbers are 0, as in a run, a tiny rate would be refused.
    """
    values = {f.name: getattr(method, f.name) for f in fields(method)}
    values |= {slot: Watched(component, guard) for slot, component in method.slots.items()}
    values |= {"parts": tuple(Watched(part, guard) for part in method.parts), "plain": method, "guard": guard}
    twin = object.__new__(Guarded)
    for name, value in values.items():
        object.__setattr__(twin, name, value)
    return twin


def unguarded(method: Method) -> Method:
    """The method that `guarded` was given, whose components are of their own classes; any other as it is."""
    return method.plain if isinstance(method, Guarded) else method
