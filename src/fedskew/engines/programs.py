"""Local steps as traced programs: the operators of one step in a row, without Python and without the tape.

A step is a pure function of tensors (`client.step`), so it can be traced once by ``make_fx``, backward pass and update
included, and run by torch's graph interpreter, which does not hold Python's lock: threads then work side by side. What
does not change from step to step (masks of ones, terms of a client's label counts) is computed once a local run. A
traced step is used only after it has given the very bits of the untraced one.
"""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["TRACE_AFTER", "Stepper"]

Function = Callable[..., Any]

TRACE_AFTER = 1000  # untraced steps of one shape: tracing costs about as much as it then saves
_LOCK = threading.Lock()  # make_fx sets modes of the whole process


class Program(NamedTuple):
    """A traced function: ``each(*once(*rows, *fixed), *carry, *now)`` is the new carry and the loss, in one list."""

    once: Callable[..., list[Tensor]]
    each: Callable[..., list[Tensor]]


def _shape(leaf: Tensor) -> tuple[Any, ...]:
    return leaf.shape, leaf.stride(), leaf.dtype


def _flatten(tree: Any, leaves: list[Tensor], names: list[Any]) -> None:
    """Tensors and names of a tree of dicts and tuples, in order: what torch's pytree does, ten times cheaper."""
    if isinstance(tree, Tensor):
        leaves.append(tree)
    elif isinstance(tree, dict):
        names.append(tuple(tree))
        for value in tree.values():
            _flatten(value, leaves, names)
    else:
        names.append(len(tree))
        for value in tree:
            _flatten(value, leaves, names)


def _rebuild(like: Any, leaves: Iterator[Tensor]) -> Any:
    """A tree like another, of other leaves."""
    if isinstance(like, Tensor):
        return next(leaves)
    if isinstance(like, dict):
        return {name: _rebuild(value, leaves) for name, value in like.items()}
    parts = [_rebuild(value, leaves) for value in like]
    return type(like)(*parts) if hasattr(like, "_fields") else tuple(parts)


def _leaves(tree: Any) -> list[Tensor]:
    found: list[Tensor] = []
    _flatten(tree, found, [])
    return found


class Stepper:
    """A function (rows, fixed, carry, now) -> (carry, loss) of trees of tensors, applied along a schedule of ``now``.

    ``rows`` are what mini-batches are drawn from: their number may change from call to call, nothing else may.
    """

    def __init__(self, function: Function, after: float) -> None:
        self.function, self.after = function, after
        self.counts: Counter[Any] = Counter()
        self.known: dict[Any, Any] = {}  # of the round in hand
        self.programs: dict[Any, Program | None] = {}

    def due(self, size: Any, steps: int) -> bool:
        """Note that steps of this size are about to be made; True when it is time to trace them."""
        before = self.counts[size]
        self.counts[size] += steps
        return before < self.after <= self.counts[size]

    def make(self, rows: Any, fixed: Any, carry: Any, now: Any) -> None:
        """Trace the step at these shapes, where that can be done. One thread at a time."""
        key = self._key(rows, fixed, carry, now)
        if key not in self.programs and all(leaf.device.type == "cpu" for leaf in _leaves(carry)):
            with _LOCK:
                self.programs[key] = program(self.function, rows, fixed, carry, now)

    def run(self, rows: Any, fixed: Any, carry: Any, schedule: Sequence[Any]) -> tuple[Any, list[Tensor]]:
        """(carry after the last step, loss of each step)."""
        losses: list[Tensor] = []
        kept: dict[int, list[Tensor]] = {}  # what a program computes once, by the program's identity
        for _, group in groupby(schedule, key=_sizes):
            steps = list(group)
            traced = self._find(rows, fixed, carry, steps[0]) if self.programs else None
            if traced is not None:
                if id(traced) not in kept:
                    kept[id(traced)] = traced.once(*_leaves((rows, fixed)))
                carry = _along(traced.each, kept[id(traced)], carry, steps, losses)
                continue
            for now in steps:
                carry, loss = self.function(rows, fixed, carry, now)
                losses.append(loss)
        return carry, losses

    def _find(self, rows: Any, fixed: Any, carry: Any, now: Any) -> Program | None:
        """The program for these shapes. In one round clients differ in their own tensors only, so looking is cheap."""
        own = tuple(_shape(leaf) for leaf in _leaves((fixed.each, fixed.memory)))
        quick = (id(fixed.params), own, _sizes(now), rows[0].shape[1:], rows[0].stride())
        found: Program | None
        held, found = self.known.get(quick, (None, None))
        if held is not fixed.params:  # the identity of a dict that is gone may come again
            found = self.programs.get(self._key(rows, fixed, carry, now))
            if len(self.known) > 64:
                self.known = {}
            self.known[quick] = (fixed.params, found)
        return found

    def _key(self, rows: Any, fixed: Any, carry: Any, now: Any) -> Any:
        leaves: list[Tensor] = []
        names: list[Any] = []
        _flatten((fixed, carry, now), leaves, names)
        kinds = tuple((r.shape[1:], r.stride(), r.dtype) for r in rows)
        return tuple(names), kinds, tuple(map(_shape, leaves))

    @property
    def traced(self) -> int:
        """Shapes that run as programs."""
        return sum(p is not None for p in self.programs.values())


def _along(each: Function, kept: list[Tensor], carry: Any, steps: Sequence[Any], losses: list[Tensor]) -> Any:
    """The carry after steps of one shape."""
    moving = _leaves(carry)
    for now in steps:
        *moving, loss = each(*kept, *moving, *now)
        losses.append(loss)
    return _rebuild(carry, iter(moving))


def _sizes(now: Any) -> tuple[Any, ...]:
    return tuple(leaf.shape for leaf in now)


def program(function: Function, rows: Any, fixed: Any, carry: Any, now: Any) -> Program | None:
    """The function as a program of flat tensors, or None where it cannot be traced or would give other bits."""
    given = (rows, fixed, carry, now)
    flat = _leaves(given)
    before: list[Any] = []
    _flatten(carry, [], before)

    def plain(*leaves: Tensor) -> list[Tensor]:
        state, loss = function(*_rebuild(given, iter(leaves)))
        moved: list[Tensor] = []
        after: list[Any] = []
        _flatten(state, moved, after)
        if after != before:
            raise TypeError("the carry changes its structure")
        return [*moved, loss]

    try:
        later = plain(*flat)[:-1]  # values that no two of the leaves share: a first step is taken from the broadcast
        flat[-len(later) - len(now) : -len(now)] = later
        expected = plain(*flat)
        lasting = len(_leaves((rows, fixed)))
        traced = _trace(plain, flat, lasting)
        kept = traced.once(*flat[:lasting])
        for _ in range(3):  # the interpreter optimises in its first runs
            got = traced.each(*kept, *flat[lasting:])
    except Exception:  # whatever the step of a user's component does that cannot be traced: it runs untraced
        return None
    same = all(_same(a, b) for a, b in zip(expected, got, strict=True))
    steady = all(_shape(a) == _shape(b) for a, b in zip(got, _leaves(carry), strict=False))
    return traced if same and steady else None


def _same(a: Tensor, b: Tensor) -> bool:
    """Equal to the bit, nothing compared but values: a NaN equals itself."""
    return torch.equal(a.nan_to_num(), b.nan_to_num())


def _trace(plain: Callable[..., list[Tensor]], flat: list[Tensor], lasting: int) -> Program:
    """The first ``lasting`` of the tensors stay the same from step to step."""
    from torch.fx.experimental.proxy_tensor import make_fx

    apart = [leaf.detach() for leaf in flat]  # a tracer knows tensors by identity, and one may stand in two places
    whole = make_fx(plain)(*apart)
    _tidy(whole.graph)
    first, second = _split(whole, lasting)
    _in_place(second.graph)
    second.recompile()
    once = _interpreted(first, flat[:lasting])
    return Program(once, _interpreted(second, [*once(*flat[:lasting]), *flat[lasting:]]))


def _interpreted(graph: Any, example: list[Tensor]) -> Callable[..., list[Tensor]]:
    """A graph as torch's graph interpreter runs it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is in maintenance; the interpreter is all that is used of it
        module: Any = torch.jit.trace(graph, tuple(example), check_trace=False)  # type: ignore[no-untyped-call]
    run: Callable[..., list[Tensor]] = module._c._get_method("forward")  # without an nn.Module's hooks at every call
    return run


def _split(whole: Any, lasting: int) -> tuple[Any, Any]:
    """Two graphs: what the first placeholders alone decide, as a list; and, given that list, all the rest.

    Of loops, this is loop-invariant code motion.
    """
    from torch.fx import Graph, GraphModule

    nodes = list(whole.graph.nodes)
    given = [node for node in nodes if node.op == "placeholder"]
    known, written = set(given[:lasting]), _written(nodes)
    for node in nodes:
        pure = node.op in ("get_attr", "call_function") and not _random(node)
        if pure and not _meets(node, written) and all(x in known for x in node.all_input_nodes):
            known.add(node)
    handed = [node for node in nodes if node in known and any(user not in known for user in node.users)]

    first, second = Graph(), Graph()
    before: dict[Any, Any] = {}
    for node in nodes:
        if node in known:
            before[node] = first.node_copy(node, before.__getitem__)
    first.output([before[node] for node in handed])

    after: dict[Any, Any] = {}
    for node in handed:
        after[node] = second.placeholder(f"kept_{node.name}")
        after[node].meta = dict(node.meta)
    for node in nodes:
        if node not in known:
            after[node] = second.node_copy(node, after.__getitem__)
    first.eliminate_dead_code()
    return GraphModule(whole, first), GraphModule(whole, second)


def _schema(node: Any) -> Any:
    return getattr(node.target, "_schema", None)


def _written(nodes: list[Any]) -> set[Any]:
    """Nodes whose memory an operator writes into, under any of its names."""
    waiting = []
    for node in nodes:
        schema = _schema(node)
        if schema is not None and schema.is_mutable:
            into = [a.alias_info is not None and a.alias_info.is_write for a in schema.arguments]
            waiting += [node, *node.kwargs.values(), *(x for x, w in zip(node.args, into, strict=False) if w)]
    found: set[Any] = set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, list | tuple):
            waiting += node
            continue
        if not hasattr(node, "users") or node in found:
            continue
        found.add(node)
        waiting += [user for user in node.users if not _fresh(user)]
        waiting += [] if _fresh(node) else node.all_input_nodes
    return found


def _meets(node: Any, written: set[Any]) -> bool:
    """Whether a node writes, is written into, or reads what is: then its place in the order matters."""
    return node in written or any(x in written for x in node.all_input_nodes)


def _random(node: Any) -> bool:
    """Whether an operator draws from torch's generator."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _tidy(nodes: Any) -> None:
    """Drop what does nothing or what was done before, and write what a shape alone decides as a constant.

    addmm becomes linear: the interpreter would split it, which rounds otherwise.
    """
    ops = torch.ops.aten
    written = _written(list(nodes.nodes))
    for node in list(nodes.nodes):
        if node.target in (ops.detach.default, ops.alias.default):
            node.replace_all_uses_with(node.args[0])
        elif node.target in (ops.t.default, ops.neg.default) and getattr(node.args[0], "target", None) is node.target:
            if not (_meets(node, written) or _meets(node.args[0], written)):
                node.replace_all_uses_with(node.args[0].args[0])
        elif node.target is ops.bitwise_and.Scalar and node.args[1] is True:  # unknown to the interpreter
            node.replace_all_uses_with(node.args[0])
    filled = {ops.ones_like.default: 1, ops.zeros_like.default: 0, ops.new_zeros.default: 0, ops.new_ones.default: 1}
    for node in list(nodes.nodes):
        like = node.meta.get("val")
        if node.target in filled and like.is_contiguous():  # of their argument they need the shape, which is known
            with nodes.inserting_before(node):
                kind = {"dtype": like.dtype, "device": like.device, "pin_memory": False}
                whole = nodes.call_function(ops.full.default, (list(like.shape), filled[node.target]), kind)
            whole.meta = node.meta
            node.replace_all_uses_with(whole)
    for node in list(nodes.nodes):
        if node.target is ops.addmm.default and len(node.args) == 3 and not node.kwargs:
            bias, x, weight = node.args
            if getattr(weight, "target", None) is ops.t.default:
                with nodes.inserting_before(node):
                    whole = nodes.call_function(ops.linear.default, (x, weight.args[0], bias))
                whole.meta = node.meta
                node.replace_all_uses_with(whole)
    _merge(nodes)
    nodes.eliminate_dead_code()


def _merge(nodes: Any) -> None:
    """One operator in the place of several that do the same with the same: common subexpressions."""
    seen: dict[Any, Any] = {}
    written = _written(list(nodes.nodes))
    for node in list(nodes.nodes):
        if node.op == "call_function" and not _meets(node, written) and not _random(node):
            first = seen.setdefault((node.target, repr(node.args), repr(node.kwargs)), node)
            if first is not node:
                node.replace_all_uses_with(first)


def _in_place(nodes: Any) -> None:
    """x + y in the memory of x or of y, where nobody else reads it, and so for -, *, /: the same bits, less traffic."""
    ops = torch.ops.aten
    into = {
        ops.add.Tensor: ops.add.out,
        ops.sub.Tensor: ops.sub.out,
        ops.mul.Tensor: ops.mul.out,
        ops.div.Tensor: ops.div.out,
    }
    made: set[Any] = set()
    for node in list(nodes.nodes):
        if node.target not in into:
            continue
        free = [x for x in node.args if (x in made or _fresh(x)) and len(x.users) == 1 and _alike(x, node)]
        if free:
            with nodes.inserting_before(node):
                done = nodes.call_function(into[node.target], node.args, {**node.kwargs, "out": free[0]})
            done.meta = node.meta
            node.replace_all_uses_with(done)
            nodes.erase_node(node)
            made.add(done)


def _fresh(node: Any) -> bool:
    """Whether a node's tensor has memory of its own."""
    schema = _schema(node) if hasattr(node, "target") else None
    if schema is None or node.target is torch.ops.aten._unsafe_view.default:
        return False
    return all(out.alias_info is None for out in schema.returns)


def _alike(a: Any, b: Any) -> bool:
    """Of one shape, layout and type."""
    some, other = a.meta.get("val"), b.meta.get("val")
    return isinstance(some, Tensor) and isinstance(other, Tensor) and _shape(some) == _shape(other)
