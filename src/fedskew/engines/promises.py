"""What each hook of a component must give back: names and shapes, in `debug` dtypes and devices too.

A promise is a function (component, arguments, result, close) that says what the hook must do, or "" where it did it.
The simple ones stand in `PROMISES`, beside what the hook takes and gives.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedskew.method.component import Component
from fedskew.tree import Tree, flatten
from fedskew.types import COSINE_SCALE, Assignment, Params, Query, Weights

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
    if not _is_tree(got) or (got is None and want is not None):
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


# Hooks


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


def _model(out: Any, params: Params, free: Params, close: bool) -> str:
    """The rule that parameters break, among which some of ``free`` may be."""
    some_of = {n: v for n, v in free.items() if n in out} if isinstance(out, dict) else {}
    return alike("parameter", out, {**params, **some_of}, close)


def _scale(params: Params) -> Params:
    """What `serve` may add."""
    return {COSINE_SCALE: next(iter(params.values())).new_zeros(())}


def init_params(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """(params, task, key) -> further parameters."""
    if not isinstance(out, dict) or not all(map(_is_parameter, out.items())):
        return f"give a dict of floating-point tensors by name, not {_told(out)}"
    taken = [name for name in out if name in args[0]]
    return f"give names of its own; the model has {taken[0]!r}" if taken else ""


def _is_parameter(item: tuple[Any, Any]) -> bool:
    name, value = item
    return isinstance(name, str) and isinstance(value, Tensor) and value.is_floating_point()


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


def state(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """Any hook that makes the first state or memory."""
    return "give its state as a tensor or a dict of tensors, not None" if out is None else tree_of("its state", out)


def ask(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """(state, round, key) -> Query or None."""
    return "" if out is None or isinstance(out, Query) else f"give a Query or None, not {_told(out)}"


def weigh(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """(state, cohort) -> Weights of [K]."""
    shape = (len(args[1].ids),)
    if not isinstance(out, Weights):
        return f"give Weights, not {_told(out)}"
    return column("weights of shape", out.update, shape) or column("weights of shape", out.average, shape)


def record(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """(state) -> a dict that JSON can hold."""
    if not isinstance(out, dict):
        return f"give a dict, not {_told(out)}"
    try:
        json.dumps(out)
    except (TypeError, ValueError, RecursionError) as error:
        return f"give what JSON can hold, numbers, words, lists and dicts: {error}"
    return ""


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
    quota = out.quota
    if quota is not None and not (isinstance(quota, Tensor) and quota.dim() == 2 and len(quota) == len(chains)):
        return f"give quota as a tensor with a row for each of the {len(chains)} chains, not {_told(quota)}"
    sizes = args[0].get("sizes") if isinstance(args[0], dict) else None
    if isinstance(sizes, Tensor) and chains.numel() and int(chains.max()) >= len(sizes):
        return f"give client ids below {len(sizes)}, not {int(chains.max())}"
    return ""


def pace(part: Component, args: tuple[Any, ...], out: Any, close: bool) -> str:
    """(used [K], round, rounds) -> PacePlan of [K]."""
    shape = tuple(args[0].shape)
    names = ("batch", "epochs", "steps", "lr", *(("total",) if getattr(out, "total", None) is not None else ()))
    found = (column(f"{name} of each client,", getattr(out, name, None), shape) for name in names)
    return next((wrong for wrong in found if wrong), "")


PROMISES: dict[str, Promise] = {
    # the client half
    "start": lambda part, args, out, close: _pair(  # (params, ctx) -> (params, memory), open until finish
        out,
        lambda p: _model(p, args[0], args[1].buffers, close),
        lambda m: alike("memory", m, args[1].memory[part.name], close, free=True),
    ),
    "loss": lambda part, args, out, close: scalar("the loss", out),  # (view) -> ()
    "correct": lambda part, args, out, close: alike("gradient", out, args[0], close),  # (grads, view) -> grads
    "learn": lambda part, args, out, close: alike("memory", out, args[0].memory[part.name], close),  # (view) -> memory
    "finish": lambda part, args, out, close: _pair(  # (local) -> (upload, memory)
        out,
        lambda u: tree_of("the upload", u),
        lambda m: alike("memory", m, args[0].ctx.memory[part.name], close),
    ),
    "step": step,
    # (params, ctx, gradient) -> params; (params, state, task) -> params
    "personalize": lambda part, args, out, close: _model(out, args[0], args[1].buffers, close),
    "serve": lambda part, args, out, close: _model(out, args[0], _scale(args[0]), close),
    "init_params": init_params, "init_model": init_model, "private": some, "frozen": some, "moves": moves,
    # the server half
    "init_client": state, "init_server": state, "ask": ask, "weigh": weigh, "record": record,
    "broadcast": lambda part, args, out, close: _pair(  # (state, ids) -> (common, each [K, ...] or None)
        out,
        lambda c: tree_of("the broadcast", c),
        lambda e: tree_of("the broadcast to each", e, None if args[1] is None else len(args[1])),
    ),
    "receive": lambda part, args, out, close: alike("state", out, args[0], close, free=True),  # (state, ...) -> state
    "combine": lambda part, args, out, close: alike("delta", out, args[1].deltas, close),  # (state, cohort) -> deltas
    "absorb": lambda part, args, out, close: _pair(  # (state, cohort, key) -> (state, memories [K, ...] or None)
        out,
        lambda s: alike("state", s, args[0], close, free=True),
        lambda m: tree_of("the memories", m, len(args[1].ids)),
    ),
    "update": lambda part, args, out, close: _pair(  # (params, delta, state, cohort) -> (params, state)
        out, lambda p: alike("parameter", p, args[0], close), lambda s: alike("state", s, args[2], close)
    ),
    # the slots: (counts, state, round, key) -> [N, C]; (steps, lr, mu) -> like steps
    "offer": lambda part, args, out, close: column("rows of each client and class,", out, tuple(args[0].shape)),
    "a_norm": lambda part, args, out, close: column("a number for each client,", out, tuple(args[0].shape)),
    "plan": plan, "select": select, "of": pace,
}  # fmt: skip
