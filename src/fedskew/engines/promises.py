"""What each hook of a component must give back: names and shapes, in `debug` dtypes and devices too.

A promise is a function (component, arguments, result, close) that says what the hook must do, or "" where it did it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedskew.component import Component, LocalStep, Pace, Sampler, Selector, ServerOptimizer, Weighting
from fedskew.tree import Tree, flatten
from fedskew.types import Assignment, Query, Weights

__all__ = ["PROMISES", "STATE", "infinite", "snapshot", "unchanged"]

STATE = ("init_server", "init_client", "receive", "absorb", "broadcast", "record", "ask")  # infinities may be kept
Promise = Callable[[Component, tuple[Any, ...], Any, bool], str]


# Rules


def alike(what: str, got: Any, want: Tree, close: bool, *, free: bool = False) -> str:
    """The rule that a tree breaks which must be like another in names and shapes.

    Args:
        what: the trees, in the message.
        got: the tree.
        want: the other one.
        close: in dtype and device, too.
        free: names may come and go; those that stay keep their shape.
    """
    if not _is_tree(got):
        return f"give {what} as a tensor or a dict of tensors, not {_told(got)}"
    found, wanted = ({path: leaf for path, leaf in flatten(t) if leaf is not None} for t in (got, want))
    for path in [path for path in wanted if path in found] if free else {**wanted, **found}:
        name = ".".join(path) or what
        if path not in found:
            return f"give {what} with {name!r}, which is missing"
        if path not in wanted:
            return f"give {what} without {name!r}, which was not there before"
        a, b = found[path], wanted[path]
        if a.shape != b.shape:
            return f"give {what} {name!r} of shape {tuple(b.shape)}, not {tuple(a.shape)}"
        if close and (a.dtype != b.dtype or a.device != b.device):
            return f"give {what} {name!r} as {b.dtype} on {b.device}, not {a.dtype} on {a.device}"
    return ""


def _is_tree(got: Any) -> bool:
    if isinstance(got, dict):
        return all(isinstance(name, str) and _is_tree(value) for name, value in got.items())
    return got is None or isinstance(got, Tensor)


def _told(got: Any) -> str:
    return f"shape {tuple(got.shape)}" if isinstance(got, Tensor | np.ndarray) else type(got).__name__


def tree_of(what: str, got: Any, first: int | None = None) -> str:
    """The rule that what must be a tree breaks, with leaves [first, ...] where that is given."""
    if not _is_tree(got):
        return f"give {what} as a tensor or a dict of tensors, not {_told(got)}"
    for path, leaf in flatten(got):
        if first is not None and leaf is not None and (leaf.dim() == 0 or len(leaf) != first):
            return f"give {what} {'.'.join(path)!r} with {first} rows, one a client; got shape {tuple(leaf.shape)}"
    return ""


def _pair(out: Any, *rules: Callable[[Any], str]) -> str:
    if not isinstance(out, tuple) or len(out) != len(rules):
        return f"give a tuple of {len(rules)}, not {_told(out)}"
    return next((wrong for rule, value in zip(rules, out, strict=True) if (wrong := rule(value))), "")


def scalar(what: str, got: Any) -> str:
    """The rule that a number () breaks."""
    if not isinstance(got, Tensor) or got.dim() or not got.is_floating_point():
        return f"give {what} as one floating-point number, a tensor of shape (), not {_told(got)}"
    return ""


def column(what: str, got: Any, shape: tuple[int, ...]) -> str:
    """The rule that a tensor of a given shape breaks."""
    return "" if isinstance(got, Tensor) and tuple(got.shape) == shape else f"give {what} {shape}, not {_told(got)}"


# The client half


def start(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """(params, ctx) -> (params, memory); the memory may hold more until `finish`."""
    kept = args[1].memory[part.name]
    return _pair(
        out,
        lambda p: alike("parameter", p, args[0], close),
        lambda m: alike("memory", m, kept, close, free=True),
    )


def loss(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """(view) -> ()."""
    return scalar("the loss", out)


def correct(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """(grads, view) -> grads."""
    return alike("gradient", out, args[0], close)


def learn(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """(view) -> memory."""
    return alike("memory", out, args[0].memory[part.name], close)


def finish(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """(local) -> (upload, memory)."""
    memory = args[0].ctx.memory[part.name]
    return _pair(out, lambda u: tree_of("the upload", u), lambda m: alike("memory", m, memory, close))


def step(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """(carry, ctx, differentiate) -> (carry, loss)."""
    before = args[0]

    def carry(after: Any) -> str:
        if not isinstance(after, tuple) or len(after) != len(before):
            return f"give a Carry, not {_told(after)}"
        kinds = ("parameter", "buffer", "memory")
        found = (alike(k, a, b, close) for k, a, b in zip(kinds, after, before, strict=True))
        return next((wrong for wrong in found if wrong), "")

    return _pair(out, carry, lambda x: scalar("the loss", x))


def personalize(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """(params, ctx, gradient) -> params; also `serve`: (params, state, task) -> params."""
    return alike("parameter", out, args[0], close)


def init_params(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """(params, task, key) -> further parameters."""
    if not isinstance(out, dict) or not all(isinstance(p, Tensor) and p.is_floating_point() for p in out.values()):
        return f"give a dict of floating-point tensors, not {_told(out)}"
    taken = [name for name in out if name in args[0]]
    return f"give names of its own; the model has {taken[0]!r}" if taken else ""


def init_model(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """(params, task, key) -> other values of some of the parameters."""
    if not isinstance(out, dict):
        return f"give a dict of tensors, not {_told(out)}"
    return alike("parameter", {**args[0], **out}, args[0], close)


def some(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """(names, task) -> some of the names."""
    if not isinstance(out, Collection) or isinstance(out, str):
        return f"give a list of names, not {_told(out)}"
    other = [name for name in out if name not in args[0]]
    return f"give names that it was given, not {other[0]!r}" if other else ""


def moves(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """(names, task, progress) -> {name: () bool}."""
    if not isinstance(out, dict):
        return f"give a dict of truth values by name, not {_told(out)}"
    wrong = (some(part, args, out, close), *(_truth(n, v) for n, v in out.items()))
    return next((told for told in wrong if told), "")


def _truth(name: str, got: Any) -> str:
    fits = isinstance(got, Tensor) and not got.dim() and got.dtype == torch.bool
    return "" if fits else f"give a truth value of shape () for {name!r}, not {_told(got)}"


# The server half


def state(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """Any hook that makes the first state or memory."""
    return tree_of("its state", out)


def broadcast(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """(state, ids) -> (common, each [K, ...] or None)."""
    count = None if args[1] is None else len(args[1])
    return _pair(out, lambda c: tree_of("the broadcast", c), lambda e: tree_of("the broadcast to each", e, count))


def ask(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """(state, round, key) -> Query or None."""
    return "" if out is None or isinstance(out, Query) else f"give a Query or None, not {_told(out)}"


def receive(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """(state, answers, key) -> state."""
    return alike("state", out, args[0], close, free=True)


def combine(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """(state, cohort) -> deltas [K, ...]."""
    return alike("delta", out, args[1].deltas, close)


def absorb(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """(state, cohort, key) -> (state, memories [K, ...] or None)."""
    count = len(args[1].ids)
    return _pair(
        out, lambda s: alike("state", s, args[0], close, free=True), lambda m: tree_of("the memories", m, count)
    )


def update(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """(params, delta, state, cohort) -> (params, state)."""
    before, _, kept, _ = args
    return _pair(out, lambda p: alike("parameter", p, before, close), lambda s: alike("state", s, kept, close))


def weigh(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """(state, cohort) -> Weights of [K]."""
    shape = (len(args[1].ids),)
    if not isinstance(out, Weights):
        return f"give Weights, not {_told(out)}"
    return column("weights of shape", out.update, shape) or column("weights of shape", out.average, shape)


def record(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """(state) -> a dict."""
    return "" if isinstance(out, dict) else f"give a dict, not {_told(out)}"


# The slots


def offer(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """(counts, state, round, key) -> [N, C]."""
    return column("rows of each client and class,", out, tuple(args[0].shape))


def plan(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """(labels, ...) -> positions [E, S, B]."""
    rows = len(args[0])
    if not isinstance(out, np.ndarray) or out.ndim != 3 or out.dtype.kind not in "iu":
        return f"give whole numbers [epochs, steps, rows], not {_told(out)}"
    if out.size and not (out.min() >= -1 and out.max() < rows):
        return f"give positions from -1 to {rows - 1}, not {int(out.min())} to {int(out.max())}"
    return ""


def select(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """(state, k, key) -> Assignment."""
    if not isinstance(out, Assignment):
        return f"give an Assignment, not {_told(out)}"
    chains = out.chains
    if not isinstance(chains, Tensor) or chains.dim() != 2 or chains.is_floating_point():
        return f"give chains of client ids, whole numbers [G, M], not {_told(chains)}"
    for name in ("quota", "averaged"):
        if (given := getattr(out, name)) is not None and len(given) != len(chains):
            return f"give {name} with a row for each of the {len(chains)} chains, not {_told(given)}"
    return ""


def pace(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """(used [K], round, rounds) -> PacePlan of [K]."""
    shape = tuple(args[0].shape)
    names = ("batch", "epochs", "steps", "lr", *(("total",) if getattr(out, "total", None) is not None else ()))
    found = (column(f"{name} of each client,", getattr(out, name, None), shape) for name in names)
    return next((wrong for wrong in found if wrong), "")


def a_norm(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """(steps, lr, mu) -> like steps."""
    return column("a number for each client,", out, tuple(args[0].shape))


PROMISES: dict[str, Promise] = {
    "start": start, "loss": loss, "correct": correct, "learn": learn, "finish": finish, "step": step,
    "personalize": personalize, "serve": personalize, "init_params": init_params, "init_model": init_model,
    "private": some, "frozen": some, "moves": moves, "init_client": state,
    "init_server": state, "broadcast": broadcast, "ask": ask, "receive": receive, "combine": combine,
    "absorb": absorb, "update": update, "weigh": weigh, "record": record, "offer": offer, "plan": plan,
    "select": select, "of": pace, "a_norm": a_norm,
}  # fmt: skip


# Inputs

Seen = tuple[str, Any]  # name of an input, its value or a copy


def snapshot(hook: str, args: tuple[Any, ...], *, copied: bool = True) -> list[Seen]:
    """Every tensor and array in a hook's arguments, by name."""
    return [(name, _copy(value) if copied else value) for name, value in _inside(_names(hook, args))]


def _names(hook: str, args: tuple[Any, ...]) -> dict[str, Any]:
    kinds = (Component, Sampler, Selector, Pace, Weighting, ServerOptimizer, LocalStep)
    known = next(getattr(kind, hook) for kind in kinds if hasattr(kind, hook))
    return dict(zip(list(inspect.signature(known).parameters)[1:], args, strict=False))


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


def unchanged(before: list[Seen], now: list[Seen]) -> str:
    """The name of the first input that is not what it was; "" where all are."""
    if [name for name, _ in before] != [name for name, _ in now]:
        gone = {name for name, _ in before} ^ {name for name, _ in now}
        return min(gone, default="the order of its inputs")
    return next((name for (name, a), (_, b) in zip(before, now, strict=True) if not _equal(a, b)), "")


def _equal(a: Any, b: Any) -> bool:
    """Equal to the bit; a NaN equals itself."""
    if isinstance(a, np.ndarray):
        return bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(a, b.detach()) or (a.is_floating_point() and bool(((a == b) | (a.isnan() & b.isnan())).all()))


def infinite(value: Any, *, only_nan: bool = False) -> str | None:
    """The name of the first tensor that is not finite; None where all are. "" names the value itself."""
    for name, leaf in _inside(value):
        numbers = isinstance(leaf, Tensor) and leaf.is_floating_point()
        if numbers and bool((torch.isnan(leaf) if only_nan else ~torch.isfinite(leaf)).any()):
            return name
    return None
