"""Looks over the hooks of a method while it runs: where an error was raised, and whether a hook gave what it may.

`guarded` makes a method that hands out its components with guarded hooks. In every engine an error in a hook of
the server half, or in one that runs before the first round, names component, hook and round; and every hook must give
back the names and shapes that its docstring says, since a tensor of another shape would be broadcast silently. Hooks
that run in every local step are looked at until the end of the first round, and so is whether a hook writes into what
it was given, which would change another client's or a later round's numbers. In `debug` they are in all rounds, and
dtype, device, finiteness and the content of inputs are looked at as well.
"""

import inspect
import json
import types
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor

from fedskew.data.federation import Federation
from fedskew.engines.outcomes import Fault, not_finite
from fedskew.errors import FedskewError, TrainingError
from fedskew.method import Method
from fedskew.method.component import SLOTS, Component, hooks_of, overrides
from fedskew.tree import Tree, flatten
from fedskew.types import COSINE_SCALE, Assignment, Params, Query, Weights

STATE = ("init_server", "init_client", "receive", "absorb", "broadcast", "record", "ask")  # infinities may be kept
# raises Broken; of (component, arguments, result, whether dtypes and devices count)
Promise = Callable[[Component, tuple[Any, ...], Any, bool], None]


class Broken(Exception):
    """What a hook must do and did not, after the word "must"."""


# Rules, which raise Broken


def of_kind(what: str, got: Any, kind: Any) -> None:
    """The result is of a type."""
    if not isinstance(got, kind):
        raise Broken(f"give {what}, not {_described(got)}")


def alike(what: str, got: Any, want: Tree, close: bool, *, free: bool = False) -> None:
    """A tree is like another in names and shapes.

    Args:
        what: the trees, in the message.
        got: the tree.
        want: the other one.
        close: in dtype and device, too.
        free: names may come and go; those that stay keep their shape.
    """
    if not _is_tree(got) or (got is None and want is not None):
        raise Broken(f"give {what} as a tensor or a dict of tensors, not {_described(got)}")
    leaves, wanted = ({path: leaf for path, leaf in flatten(t) if leaf is not None} for t in (got, want))
    for path in [path for path in wanted if path in leaves] if free else {**wanted, **leaves}:
        name = ".".join(path) or what
        if path not in leaves:
            raise Broken(f"give {what} with {name!r}, which is missing")
        if path not in wanted:
            raise Broken(f"give {what} without {name!r}, which was not there before")
        a, b = leaves[path], wanted[path]
        if a.shape != b.shape:
            raise Broken(f"give {what} {name!r} of shape {tuple(b.shape)}, not {tuple(a.shape)}")
        if close and (a.dtype != b.dtype or a.device != b.device):
            raise Broken(f"give {what} {name!r} as {b.dtype} on {b.device}, not {a.dtype} on {a.device}")


def _is_tree(got: Any) -> bool:
    if isinstance(got, dict):
        return all(isinstance(name, str) and _is_tree(value) for name, value in got.items())
    return got is None or isinstance(got, Tensor)


def _described(got: Any) -> str:
    return f"shape {tuple(got.shape)}" if isinstance(got, Tensor | np.ndarray) else type(got).__name__


def tree_of(what: str, got: Any, first: int | None = None) -> None:
    """What is given is a tree or None, with leaves [first, ...] where that is given."""
    alike(what, got, None, False, free=True)
    for path, leaf in flatten(got):
        if first is not None and leaf is not None and (leaf.dim() == 0 or len(leaf) != first):
            name = ".".join(path)
            raise Broken(f"give {what} {name!r} with {first} rows, one a client; got shape {tuple(leaf.shape)}")


def pair(out: Any, *rules: Callable[[Any], None]) -> None:
    """A tuple whose entries keep these rules."""
    if not isinstance(out, tuple) or len(out) != len(rules):
        raise Broken(f"give a tuple of {len(rules)}, not {_described(out)}")
    for rule, value in zip(rules, out, strict=True):
        rule(value)


def loss(got: Any) -> None:
    """A number ()."""
    if not isinstance(got, Tensor) or got.dim() or not got.is_floating_point():
        raise Broken(f"give the loss as one floating-point number, a tensor of shape (), not {_described(got)}")


def column(what: str, got: Any, shape: tuple[int, ...]) -> None:
    """A tensor of a given shape."""
    if not isinstance(got, Tensor) or tuple(got.shape) != shape:
        raise Broken(f"give {what} {shape}, not {_described(got)}")


def model(out: Any, params: Params, free: Params, close: bool) -> None:
    """Parameters, among which some of ``free`` may be."""
    some_of = {n: v for n, v in free.items() if n in out} if isinstance(out, dict) else {}
    alike("parameter", out, {**params, **some_of}, close)


# Hooks


def step(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> None:
    """(carry, ctx, differentiate) -> (carry, loss)."""

    def carry(after: Any) -> None:
        if not isinstance(after, tuple) or len(after) != len(args[0]):
            raise Broken(f"give a Carry, not {_described(after)}")
        for kind, now, before in zip(("parameter", "buffer", "memory"), after, args[0], strict=True):
            alike(kind, now, before, close)

    pair(out, carry, loss)


def init_params(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> None:
    """(params, task, key) -> further parameters."""
    named = isinstance(out, dict) and all(isinstance(name, str) for name in out)
    if not named or not all(isinstance(v, Tensor) and v.is_floating_point() for v in out.values()):
        raise Broken(f"give a dict of floating-point tensors by name, not {_described(out)}")
    if taken := [name for name in out if name in args[0]]:
        raise Broken(f"give names of its own; the model has {taken[0]!r}")


def init_model(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> None:
    """(params, task, key) -> other values of some of the parameters."""
    of_kind("a dict of tensors", out, dict)
    alike("parameter", {**args[0], **out}, args[0], close)


def some(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> None:
    """(names, task) -> some of the names."""
    if not isinstance(out, Collection) or isinstance(out, str):
        raise Broken(f"give a list of names, not {_described(out)}")
    if other := [name for name in out if name not in args[0]]:
        raise Broken(f"give names that it was given, not {other[0]!r}")


def moves(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> None:
    """(names, task, progress) -> {name: () bool}."""
    of_kind("a dict of truth values by name", out, dict)
    some(part, args, out, close)
    for name, got in out.items():
        if not isinstance(got, Tensor) or got.dim() or got.dtype != torch.bool:
            raise Broken(f"give a truth value of shape () for {name!r}, not {_described(got)}")


def weigh(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> None:
    """(state, cohort) -> Weights of [K]."""
    of_kind("Weights", out, Weights)
    for weights in out:
        column("weights of shape", weights, (len(args[1].ids),))


def record(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> None:
    """(state) -> a dict that JSON can hold."""
    of_kind("a dict", out, dict)
    try:
        json.dumps(out)
    except (TypeError, ValueError, RecursionError) as error:
        raise Broken(f"give what JSON can hold, numbers, words, lists and dicts: {error}") from None


def plan(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> None:
    """(labels, ...) -> positions [E, S, B]."""
    rows = len(args[0])
    if not isinstance(out, np.ndarray) or out.ndim != 3 or out.dtype.kind not in "iu":
        raise Broken(f"give whole numbers [epochs, steps, rows], not {_described(out)}")
    if out.size and not (out.min() >= -1 and out.max() < rows):
        raise Broken(f"give positions from -1 to {rows - 1}, not {int(out.min())} to {int(out.max())}")


def select(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> None:
    """(state, k, key) -> Assignment."""
    of_kind("an Assignment", out, Assignment)
    chains, quota = out.chains, out.quota
    if not isinstance(chains, Tensor) or chains.dim() != 2 or chains.is_floating_point():
        raise Broken(f"give chains of client ids, whole numbers [G, M], not {_described(chains)}")
    if quota is not None and not (isinstance(quota, Tensor) and quota.dim() == 2 and len(quota) == len(chains)):
        raise Broken(f"give quota as a tensor with a row for each of the {len(chains)} chains, not {_described(quota)}")
    sizes = args[0].get("sizes") if isinstance(args[0], dict) else None
    if isinstance(sizes, Tensor) and chains.numel() and int(chains.max()) >= len(sizes):
        raise Broken(f"give client ids below {len(sizes)}, not {int(chains.max())}")


def pace(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> None:
    """(used [K], round, rounds) -> PacePlan of [K]."""
    for name in ("batch", "epochs", "steps", "lr", *(["total"] if getattr(out, "total", None) is not None else [])):
        column(f"{name} of each client,", getattr(out, name, None), tuple(args[0].shape))


PROMISES: dict[str, Promise] = {
    # the client half
    "start": lambda part, args, out, close: pair(  # (params, ctx) -> (params, memory), open until finish
        out,
        lambda p: model(p, args[0], args[1].buffers, close),
        lambda m: alike("memory", m, args[1].memory[part.name], close, free=True),
    ),
    "loss": lambda part, args, out, close: loss(out),  # (view) -> ()
    "correct": lambda part, args, out, close: alike("gradient", out, args[0], close),  # (grads, view) -> grads
    "learn": lambda part, args, out, close: alike("memory", out, args[0].memory[part.name], close),  # (view) -> memory
    "finish": lambda part, args, out, close: pair(  # (local) -> (upload, memory)
        out,
        lambda u: tree_of("the upload", u),
        lambda m: alike("memory", m, args[0].ctx.memory[part.name], close),
    ),
    "step": step,
    # (params, ctx, gradient) -> params; (params, state, task) -> params
    "personalize": lambda part, args, out, close: model(out, args[0], args[1].buffers, close),
    "serve": lambda part, args, out, close: model(
        out, args[0], {COSINE_SCALE: next(iter(args[0].values())).new_zeros(())}, close
    ),
    "init_params": init_params, "init_model": init_model, "private": some, "frozen": some, "moves": moves,
    # the server half: (params, ...) -> the first state or memory
    **dict.fromkeys(
        ("init_client", "init_server"), lambda part, args, out, close: alike("its state", out, {}, close, free=True)
    ),
    "ask": lambda part, args, out, close: of_kind("a Query or None", out, Query | None),  # (state, round, key)
    "weigh": weigh, "record": record,
    "broadcast": lambda part, args, out, close: pair(  # (state, ids) -> (common, each [K, ...] or None)
        out,
        lambda c: tree_of("the broadcast", c),
        lambda e: tree_of("the broadcast to each", e, None if args[1] is None else len(args[1])),
    ),
    "receive": lambda part, args, out, close: alike("state", out, args[0], close, free=True),  # (state, ...) -> state
    "combine": lambda part, args, out, close: alike("delta", out, args[1].deltas, close),  # (state, cohort) -> deltas
    "absorb": lambda part, args, out, close: pair(  # (state, cohort, key) -> (state, memories [K, ...] or None)
        out,
        lambda s: alike("state", s, args[0], close, free=True),
        lambda m: tree_of("the memories", m, len(args[1].ids)),
    ),
    "update": lambda part, args, out, close: pair(  # (params, delta, state, cohort) -> (params, state)
        out, lambda p: alike("parameter", p, args[0], close), lambda s: alike("state", s, args[2], close)
    ),
    # the slots: (counts, state, round, key) -> [N, C]; (steps, lr, mu) -> like steps
    "offer": lambda part, args, out, close: column("rows of each client and class,", out, tuple(args[0].shape)),
    "a_norm": lambda part, args, out, close: column("a number for each client,", out, tuple(args[0].shape)),
    "plan": plan, "select": select, "of": pace,
}  # fmt: skip


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
            reason = (str(error).strip().splitlines() or ["no message"])[0]
            raise TrainingError(f"{type(error).__name__} in {what}, {self.where}: {reason}") from error

    def call(self, part: Component, hook: str, original: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
        """What a hook gives back, looked at where it is time to."""
        if named or (hook in CLIENT and not self.looks):
            return original(*args, **named)
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
        with self.located(f"what {name} gave"):
            try:
                PROMISES[hook](part, args, out, self.full) if hook in PROMISES else None
            except Broken as rule:
                raise TrainingError(f"{name} must {rule}; {self.where}") from None
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


class GuardedComponent:
    """A component whose hooks are looked at. All else is the component's own."""

    def __init__(self, part: Component, guard: Guard) -> None:
        """Wrap the hooks that the component fills, and those of its slot."""
        self.part = part
        for hook in hooks_of(type(part)):
            function = isinstance(inspect.getattr_static(part, hook), types.FunctionType)
            if function and hook != "check" and (not hasattr(Component, hook) or overrides(part, hook)):
                setattr(self, hook, partial(guard.call, part, hook, getattr(part, hook)))

    def __getattr__(self, name: str) -> Any:
        if name == "part":  # of an object that is not made yet
            raise AttributeError(name)
        return getattr(self.part, name)

    def __eq__(self, other: object) -> bool:
        """Of the same component: fields may hold tensors, which have no single truth."""
        return isinstance(other, GuardedComponent) and self.part is other.part

    def __hash__(self) -> int:
        return id(self.part)


class Guarded(Method):
    """A method that hands out guarded components. Made by `guarded`."""

    plain: Method
    guard: Guard

    def having(self, hook: str) -> tuple[Component, ...]:
        """As `Method.having`."""
        if hook not in self._having:
            pairs = zip(self.components, self.plain.components, strict=True)
            self._having[hook] = tuple(guarded_ for guarded_, part in pairs if overrides(part, hook))
        return self._having[hook]

    def probe(self) -> Method:
        """As `Method.probe`."""
        return guarded(self.plain.probe(), self.guard)


def guarded(method: Method, guard: Guard) -> Method:
    """The same method with guarded hooks.

    Nothing is checked again: where denormal numbers are 0, as in a run, a tiny rate would be refused.
    """
    values = {f.name: getattr(method, f.name) for f in fields(method)}
    values |= {slot: GuardedComponent(component, guard) for slot, component in method.slots.items()}
    values |= {"parts": tuple(GuardedComponent(part, guard) for part in method.parts), "plain": method, "guard": guard}
    twin = object.__new__(Guarded)
    for name, value in values.items():
        object.__setattr__(twin, name, value)
    return twin


def unguarded(method: Method) -> Method:
    """The method that `guarded` was given, whose components are of their own classes; any other as it is."""
    return method.plain if isinstance(method, Guarded) else method
