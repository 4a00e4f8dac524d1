"""Passes over the graph of a traced local step: they remove work and change no bit of the result.

A graph is a ``torch.fx.Graph`` of ATen operators. The passes move reads, so they are for graphs that are `pure`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedskew.engines.flat import like

__all__ = ["pure", "split", "tidy", "write_in_place"]

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
