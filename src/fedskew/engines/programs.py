"""A local step as a program: traced once, then run as a list of operators, without Python and without the tape.

A step is a pure function of tensors, so ``make_fx`` can trace it, backward pass and update included. torch's graph
interpreter runs the trace without Python's lock, so threads work side by side. Values that do not change from step to
step (masks of ones, terms of a client's label counts) are computed once a local run. Passes over its graph, of ATen
operators, remove work and change no bit of the result. A program is used only where it gives the bits of the function.

On a GPU a step is recorded once as a CUDA graph, then launched as one piece. A step of a small network is a hundred
kernels of a few microseconds. Python and vmap take milliseconds to launch them, so the GPU waits. A graph keeps the
kernels and the addresses they work on: what differs from step to step is copied to those addresses, and one launch runs
the step. The kernels are those of the plain function, so the bits are too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

# Trees of tensors as flat lists, which programs take and return. A tree is a tensor, a dict of trees, or a tuple of
# trees (a NamedTuple too). torch's pytree does the same at ten times the cost, which counts once a local step.


def flatten(tree: Any, leaves: list[Tensor], names: list[Any]) -> None:
    """Append the tensors of a tree to ``leaves``, and its keys and lengths to ``names``, both in order."""
    if isinstance(tree, Tensor):
        leaves.append(tree)
    elif isinstance(tree, dict):
        names.append(tuple(tree))
        for value in tree.values():
            flatten(value, leaves, names)
    else:
        names.append(len(tree))
        for value in tree:
            flatten(value, leaves, names)


def leaves_of(tree: Any) -> list[Tensor]:
    """The tensors of a tree, in order."""
    leaves: list[Tensor] = []
    flatten(tree, leaves, [])
    return leaves


def rebuild(template: Any, leaves: Iterator[Tensor]) -> Any:
    """A tree of the structure of ``template`` that holds the next tensors of ``leaves``."""
    if isinstance(template, Tensor):
        return next(leaves)
    if isinstance(template, dict):
        return {name: rebuild(value, leaves) for name, value in template.items()}
    parts = [rebuild(value, leaves) for value in template]
    return type(template)(*parts) if hasattr(template, "_fields") else tuple(parts)


def each_leaf(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """A tree of what a function gives for the tensors of another."""
    return rebuild(tree, map(function, leaves_of(tree)))


def like(leaf: Tensor) -> tuple[Any, ...]:
    """Shape, strides and dtype: tensors that agree in these can take each other's place in a program."""
    return leaf.shape, leaf.stride(), leaf.dtype


# Passes over the graph of a step. They move reads, so they are for graphs that are `pure`.


FILLED = {"ones_like": 1, "zeros_like": 0, "new_zeros": 0, "new_ones": 1}  # operators whose result is one number


def tidy(graph: Any) -> None:
    """Remove operators that do nothing, fold constants, and write ``addmm`` as ``linear``.

    Raises TypeError for a graph that is not `pure`.
    """
    _write_apart(graph)
    if not pure(graph):
        raise TypeError("the step writes into memory, or draws numbers")
    _remove_identities(graph)
    _fold_constants(graph)
    _addmm_to_linear(graph)
    graph.eliminate_dead_code()


def pure(graph: Any) -> bool:
    """Whether no operator writes into memory or draws from torch's generator, so that none depends on its place."""
    schemas = [_schema(node) for node in graph.nodes]
    drawn = any(torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) for node in graph.nodes)
    return not drawn and not any(schema is not None and schema.is_mutable for schema in schemas)


def _write_apart(graph: Any) -> None:
    """Let operators that write into what nobody else reads, as in the gradient of a norm, give new memory instead."""
    for node in list(graph.nodes):
        schema = _schema(node)
        if schema is None or not schema.is_mutable or not schema.name.endswith("_"):
            continue
        into = node.args[0]
        if getattr(into, "users", None) == {node: None} and _fresh(into):
            twin = getattr(torch.ops.aten, schema.name.removeprefix("aten::")[:-1])
            _replace(graph, node, getattr(twin, node.target._overloadname), node.args, dict(node.kwargs))
            graph.erase_node(node)


def _remove_identities(graph: Any) -> None:
    """Bypass detach, alias, and a transpose or negation that undoes the one before it."""
    ops = torch.ops.aten
    for node in list(graph.nodes):
        if node.target in (ops.detach.default, ops.alias.default):
            node.replace_all_uses_with(node.args[0])
        elif node.target in (ops.t.default, ops.neg.default) and getattr(node.args[0], "target", None) is node.target:
            node.replace_all_uses_with(node.args[0].args[0])
        elif node.target is ops.bitwise_and.Scalar and node.args[1] is True:  # the interpreter does not know it
            node.replace_all_uses_with(node.args[0])


def _fold_constants(graph: Any) -> None:
    """Make ones and zeros from a known shape instead of from a tensor of that shape, which then may be unused."""
    ops = torch.ops.aten
    filled = {getattr(ops, name).default: value for name, value in FILLED.items()}
    for node in list(graph.nodes):
        value = node.meta.get("val")
        if node.target in filled and value.is_contiguous():
            kind = {"dtype": value.dtype, "device": value.device, "pin_memory": False}
            _replace(graph, node, ops.full.default, (list(value.shape), filled[node.target]), kind)


def _addmm_to_linear(graph: Any) -> None:
    """Write ``addmm(bias, x, weight.t())`` as ``linear(x, weight, bias)``.

    The interpreter computes addmm as a product and a sum, which rounds twice.
    """
    ops = torch.ops.aten
    for node in list(graph.nodes):
        if node.target is ops.addmm.default and len(node.args) == 3 and not node.kwargs:
            bias, x, weight = node.args
            if getattr(weight, "target", None) is ops.t.default:
                _replace(graph, node, ops.linear.default, (x, weight.args[0], bias))


def _replace(graph: Any, node: Any, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
    """Let another call take a node's place; the old node stays, unused."""
    with graph.inserting_before(node):
        call = graph.call_function(target, args, kwargs or {})
    call.meta = node.meta
    node.replace_all_uses_with(call)
    return call


def split(whole: Any, lasting: int) -> tuple[Any, Any]:
    """Loop-invariant code motion: cut a graph into what runs once and what runs at every step.

    Args:
        whole: a GraphModule.
        lasting: number of leading placeholders whose values do not change from step to step.

    Returns:
        Two GraphModules. The first maps those placeholders to a list of all values that the second needs of them. The
        second maps that list and the other placeholders to the results of ``whole``.
    """
    from torch.fx import Graph, GraphModule

    nodes = list(whole.graph.nodes)
    known = _invariant(nodes, lasting)
    passed = [node for node in nodes if node in known and any(user not in known for user in node.users)]

    first, second = Graph(), Graph()
    before: dict[Any, Any] = {}
    for node in nodes:
        if node in known:
            before[node] = first.node_copy(node, before.__getitem__)
    first.output([before[node] for node in passed])

    after: dict[Any, Any] = {}
    for node in passed:
        after[node] = second.placeholder(f"kept_{node.name}")
        after[node].meta = dict(node.meta)
    for node in nodes:
        if node not in known:
            after[node] = second.node_copy(node, after.__getitem__)
    first.eliminate_dead_code()
    return GraphModule(whole, first), GraphModule(whole, second)


def _invariant(nodes: list[Any], lasting: int) -> set[Any]:
    """The first ``lasting`` placeholders, and every node that depends on them alone."""
    known = set([node for node in nodes if node.op == "placeholder"][:lasting])
    for node in nodes:
        if node.op in ("get_attr", "call_function") and all(x in known for x in node.all_input_nodes):
            known.add(node)
    return known


def write_in_place(graph: Any) -> None:
    """Give +, -, * and / the memory of an argument that nobody else reads: the same bits, less memory traffic."""
    ops = torch.ops.aten
    into = {getattr(ops, name).Tensor: getattr(ops, name).out for name in ("add", "sub", "mul", "div")}
    made: set[Any] = set()
    for node in list(graph.nodes):
        if node.target not in into:
            continue
        free = [x for x in node.args if (x in made or _fresh(x)) and len(x.users) == 1 and _alike(x, node)]
        if free:
            made.add(_replace(graph, node, into[node.target], node.args, {**node.kwargs, "out": free[0]}))
            graph.erase_node(node)


def _schema(node: Any) -> Any:
    return getattr(node.target, "_schema", None)


def _fresh(node: Any) -> bool:
    """Whether a node's tensor has memory of its own."""
    schema = _schema(node) if hasattr(node, "target") else None
    if schema is None or node.target is torch.ops.aten._unsafe_view.default:
        return False
    return all(out.alias_info is None for out in schema.returns)


def _alike(a: Any, b: Any) -> bool:
    """Whether two nodes' tensors agree in shape, strides and dtype."""
    some, other = a.meta.get("val"), b.meta.get("val")
    return isinstance(some, Tensor) and isinstance(other, Tensor) and like(some) == like(other)


# Programs


Flat = Callable[..., list[Tensor]]
StepFunction = Callable[[Any, Any, Any, Any], tuple[Any, Tensor]]  # (rows, fixed, carry, now) -> (carry, loss)


# (carry, the steps' nows, losses) -> the carry after them; their losses are appended
Along = Callable[[Any, Sequence[Any], list[Tensor]], Any]


class Program(NamedTuple):
    """A traced function: ``each(*once(*rows, *fixed), *carry, *now)`` is the new carry and the loss, in one list."""

    once: Flat
    each: Flat

    def over(self, rows: Any, fixed: Any) -> Along:
        """Compute what lasts a local run. The function that is returned goes along steps of one shape."""
        kept, each = self.once(*leaves_of((rows, fixed))), self.each

        def along(carry: Any, steps: Sequence[Any], losses: list[Tensor]) -> Any:
            moving = leaves_of(carry)
            for now in steps:
                *moving, loss = each(*kept, *moving, *now)
                losses.append(loss)
            return rebuild(carry, iter(moving))

        return along


def program(function: StepFunction, rows: Any, fixed: Any, carry: Any, now: Any) -> Program | None:
    """Trace a function at these arguments.

    Args:
        function: maps four trees of tensors (see `fedskew.engines.programs`) to the next carry and a loss.
        rows: what mini-batches are drawn from.
        fixed: what stays the same over a local run.
        carry: what a step hands to the next.
        now: what differs from step to step.

    Returns:
        The program, or None where the function cannot be traced or the trace gives other bits.
    """
    given = (rows, fixed, carry, now)
    flat, plain = leaves_of(given), _flat_function(function, given)
    try:
        # values that no two leaves share, unlike those of a first step, whose carry is the broadcast itself
        later = plain(*flat)[:-1]
        flat[-len(later) - len(now) : -len(now)] = later
        expected = plain(*flat)
        lasting = len(leaves_of((rows, fixed)))
        traced = _trace(plain, flat, lasting)
        kept = traced.once(*flat[:lasting])
        for _ in range(3):  # the interpreter optimises in its first runs
            got = traced.each(*kept, *(leaf.clone() for leaf in flat[lasting:]))
    except Exception:  # a user's component may do anything; what cannot be traced runs untraced
        return None
    same = all(map(_same, expected, got))
    steady = all(like(a) == like(b) for a, b in zip(got, leaves_of(carry), strict=False))
    return traced if same and steady else None


def _flat_function(function: StepFunction, given: tuple[Any, ...]) -> Flat:
    """The function of flat tensors. It raises TypeError where the carry changes its structure."""
    before: list[Any] = []
    flatten(given[2], [], before)

    def plain(*leaves: Tensor) -> list[Tensor]:
        state, loss = function(*rebuild(given, iter(leaves)))
        moved: list[Tensor] = []
        after: list[Any] = []
        flatten(state, moved, after)
        if after != before:
            raise TypeError("the carry changes its structure")
        return [*moved, loss]

    return plain


def _same(a: Tensor, b: Tensor) -> bool:
    """Equal to the bit; a NaN equals itself."""
    return torch.equal(a.nan_to_num(), b.nan_to_num())


def _trace(plain: Flat, flat: list[Tensor], lasting: int) -> Program:
    """Trace, tidy and split; the first ``lasting`` tensors stay the same."""
    from torch.fx.experimental.proxy_tensor import make_fx

    apart = [leaf.detach() for leaf in flat]  # a tracer knows tensors by identity, and one may stand in two places
    whole = make_fx(plain)(*apart)
    tidy(whole.graph)
    first, second = split(whole, lasting)
    write_in_place(second.graph)
    once = _interpreted(first, flat[:lasting])
    kept = once(*flat[:lasting])
    second.recompile()
    return Program(once, _interpreted(second, [*kept, *(leaf.clone() for leaf in flat[lasting:])]))


def _interpreted(graph: Any, example: list[Tensor]) -> Flat:
    """A graph as torch's graph interpreter runs it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is in maintenance; only its interpreter is used here
        module: Any = torch.jit.trace(graph, tuple(example), check_trace=False)  # type: ignore[no-untyped-call]
    run: Flat = module._c._get_method("forward")  # without an nn.Module's hooks at every call
    return run


Replay = Callable[[], None]
Record = Callable[[Callable[[], None]], Replay]  # runs a function while it records, and gives what runs it again

SPARE = 1.25  # room for rows beyond those of the first stack, whose clients may have fewer
WARM = 2  # runs before a recording: libraries allocate and choose kernels in their first


def captured(
    function: StepFunction, rows: Any, fixed: Any, carry: Any, now: Any, record: Record | None = None
) -> Captured | None:
    """Record a step at these arguments.

    Args:
        function: maps four trees of tensors (see `fedskew.engines.programs`) to the next carry and a loss.
        rows: what mini-batches are drawn from; later calls may have other rows, and more of them.
        fixed: what stays the same over a local run.
        carry: what a step hands to the next.
        now: what differs from step to step.
        record: how a function is recorded; a CUDA graph unless given.

    Returns:
        The recording, or None where the function reads a value, changes the structure of the carry, or where the
        recording gives something else.
    """
    try:
        made = Captured(function, rows, fixed, carry, now, record or cuda_graph)
        return made if made.agrees(rows, fixed, carry, now) else None
    except Exception:  # a user's component may do anything; what cannot be recorded runs as it is
        return None


class Captured:
    """A recorded step, with memory of its own for everything that the step reads and writes."""

    def __init__(self, function: StepFunction, rows: Any, fixed: Any, carry: Any, now: Any, record: Record) -> None:
        """As `captured`. Raises whatever the function or the recording raises."""
        self._function, self._record, self._template = function, record, (fixed, carry, now)
        self._fixed, self._carry, self._now = ([x.clone() for x in leaves_of(t)] for t in (fixed, carry, now))
        self._loss = self._carry[0].new_zeros(())
        self._make(rows)

    def _make(self, rows: Any) -> None:
        """Record the step for at most SPARE times as many rows as these."""
        room = int(len(rows[0]) * SPARE) if rows else 0
        self._rows = tuple(r.new_zeros(room, *r.shape[1:]) for r in rows)
        fixed, carry, now = self._template
        given = (
            self._rows,
            rebuild(fixed, iter(self._fixed)),
            rebuild(carry, iter(self._carry)),
            rebuild(now, iter(self._now)),
        )
        names: list[Any] = []
        flatten(carry, [], names)

        def once() -> None:
            state, loss = self._function(*given)
            after: list[Any] = []
            moved: list[Tensor] = []
            flatten(state, moved, after)
            if after != names or [m.shape for m in moved] != [c.shape for c in self._carry]:
                raise TypeError("the carry changes its structure")
            if self._loss.shape != loss.shape:
                self._loss = torch.zeros_like(loss)
            pairs = [(c, m) for c, m in zip(self._carry, moved, strict=True) if m is not c]
            addresses = {c.data_ptr() for c in self._carry}
            new = [m.clone() if m.data_ptr() in addresses else m for _, m in pairs]  # one leaf may have become another
            targets, values = [*(c for c, _ in pairs), self._loss], [*new, loss]
            for kind in dict.fromkeys(t.dtype for t in targets):  # one kernel copies tensors of one type
                some = [i for i, t in enumerate(targets) if t.dtype == kind]
                torch._foreach_copy_([targets[i] for i in some], [values[i] for i in some])

        _fill([*self._rows, *self._fixed, *self._carry, *self._now], leaves_of((rows, fixed, carry, now)))
        with torch.cuda.device_of(self._carry[0]):  # type: ignore[no-untyped-call]
            self.replay = self._record(once)

    def over(self, rows: Any, fixed: Any) -> Along:
        """Bring what lasts a local run. The function that is returned goes along steps, as `Program.over`'s does."""
        if rows and len(rows[0]) > len(self._rows[0]):
            self._make(rows)
        _fill([*self._rows, *self._fixed], leaves_of((rows, fixed)))
        return self._along

    def _along(self, carry: Any, steps: Sequence[Any], losses: list[Tensor]) -> Any:
        _fill(self._carry, leaves_of(carry))
        for now in steps:
            for target, value in zip(self._now, now, strict=True):
                target.copy_(value)
            self.replay()
            losses.append(self._loss.clone())
        return self.carried()

    def put(self, fixed: Any, carry: Any) -> None:
        """Bring what a local run begins with, where nothing else differs from step to step: then `replay` is a step."""
        _fill([*self._fixed, *self._carry], leaves_of((fixed, carry)))

    def carried(self) -> Any:
        """A copy of the carry as the last step left it."""
        return rebuild(self._template[1], (leaf.clone() for leaf in self._carry))

    def agrees(self, rows: Any, fixed: Any, carry: Any, now: Any) -> bool:
        """Whether a replay gives what the function gives: its bits, where the function repeats its own."""
        first, again = ([*leaves_of(c), loss] for c, loss in (self._function(rows, fixed, carry, now) for _ in "ab"))
        losses: list[Tensor] = []
        moved = self.over(rows, fixed)(carry, [now], losses)
        got = [*leaves_of(moved), *losses]
        if all(map(_same, first, again)):
            return all(map(_same, first, got))
        return all(torch.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True) for a, b in zip(first, got, strict=True))


def _fill(targets: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Bring values to the recording's memory, which may have room for more rows."""
    for target, value in zip(targets, values, strict=True):
        (target[: len(value)] if target.dim() else target).copy_(value)


def cuda_graph(function: Callable[[], None], aside: torch.cuda.Stream | None = None) -> Replay:
    """Record a function's kernels as a CUDA graph, on a stream of its own where others run beside it."""
    here, aside = torch.cuda.current_stream(), aside or _stream(torch.cuda.current_device())
    aside.wait_stream(here)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(aside):  # around the recording, too: one that fails would stay on its stream
        for _ in range(WARM):
            function()
        with torch.cuda.graph(graph, stream=aside, capture_error_mode="thread_local"):
            function()
    here.wait_stream(aside)
    return graph.replay


@cache
def _stream(device: int) -> torch.cuda.Stream:
    """The stream of all recordings: cuBLAS keeps a workspace of 32 MB or more for each stream that it has seen."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


class HostError(RuntimeError):
    """A function needs the host in between, which a recording leaves out."""


class NoHost(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Raises HostError where values of a tensor decide what the host does next, or come from it or go to it.

    A recording that fails in the middle harms the process.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        ops = torch.ops.aten
        reads = torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags
        if func is ops.index.Tensor:  # positions give a shape that is known
            reads = any(at is not None and at.dtype == torch.bool for at in args[1])
        if reads:
            raise HostError("reads a value of a tensor")
        given = func(*args, **(kwargs or {}))
        if func in (ops._to_copy.default, ops.copy_.default, ops.lift_fresh.default):
            places = {x.device.type for x in (given, *args) if isinstance(x, Tensor)}
            if len(places) > 1 or (func is ops.lift_fresh.default and places != {"cpu"}):
                raise HostError("moves values between the host and the device")
        return given
