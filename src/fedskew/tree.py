"""Nested dicts of tensors, the container of all state.

A tree is a tensor or a dict from names to trees. A component without state has {}.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

Tree = Any  # Tensor | dict[str, Tree]; a component without state has {}
Params = dict[str, Tensor]


def map_tree(fn: Callable[..., Any], tree: Tree, *rest: Tree) -> Tree:
    """Apply a function to the corresponding leaves of trees of one structure.

    Args:
        fn: Function of as many leaves as there are trees.
        tree: First tree; its structure is that of the result.
        *rest: Further trees of the same structure.

    Returns:
        A tree of the results.

    Raises:
        KeyError: A further tree lacks a name of the first.

    Example:
        >>> import torch
        >>> from fedskew import tree
        >>> tree.map_tree(torch.add, {"a": torch.tensor(1)}, {"a": torch.tensor(2)})
        {'a': tensor(3)}
    """
    if isinstance(tree, dict):
        return {name: map_tree(fn, value, *(r[name] for r in rest)) for name, value in tree.items()}
    return fn(tree, *rest)


def slope(value: Callable[[Params], Tensor], params: Params) -> Params:
    """The gradient of a function () of tensors, without a tape; it may be taken inside of `torch.vmap`.

    The tape is read inside of `torch.func.vjp`: `torch.func.grad`, and the function that `vjp` gives, import torch's
    compiler, which takes seconds.

    Example:
        >>> import torch
        >>> from fedskew import tree
        >>> tree.slope(lambda w: w["w"].square().sum(), {"w": torch.tensor([1.0, 2.0])})
        {'w': tensor([2., 4.])}
    """

    def whole(leaves: Params) -> tuple[Tensor, Params]:
        at = value(leaves)
        grads = torch.autograd.grad(at, list(leaves.values()), create_graph=True, materialize_grads=True)
        return at, dict(zip(leaves, grads, strict=True))

    vjp: Any = torch.func.vjp(whole, {name: p.detach() for name, p in params.items()}, has_aux=True)
    return {name: grad.detach() for name, grad in vjp[2].items()}


def leaves(tree: Tree) -> Iterator[Tensor]:
    """Yield the tensors of a tree in the order of its keys."""
    if isinstance(tree, dict):
        for value in tree.values():
            yield from leaves(value)
    elif tree is not None:
        yield tree


def stack(trees: Sequence[Tree]) -> Tree:
    """Stack K trees of one structure: leaves [...] become [K, ...].

    Example:
        >>> import torch
        >>> from fedskew import tree
        >>> tree.stack([{"w": torch.tensor([1, 2])}, {"w": torch.tensor([3, 4])}])
        {'w': tensor([[1, 2],
                [3, 4]])}
    """
    first = trees[0]
    if isinstance(first, dict):
        return {name: stack([t[name] for t in trees]) for name in first}
    return torch.stack(list(trees))


def concatenate(trees: Sequence[Tree]) -> Tree:
    """Concatenate trees of one structure along the first axis of their leaves."""
    first = trees[0]
    if isinstance(first, dict):
        return {name: concatenate([t[name] for t in trees]) for name in first}
    return torch.cat(list(trees))


def row(tree: Tree, index: int) -> Tree:
    """Row ``index`` of every leaf; undoes `stack`."""
    return map_tree(lambda leaf: leaf[index], tree)


def expand(tree: Tree, count: int) -> Tree:
    """Repeat every leaf along a new first axis of length ``count``, without copying."""
    return map_tree(lambda leaf: leaf.unsqueeze(0).expand(count, *leaf.shape), tree)


def zeros_like(tree: Tree) -> Tree:
    """A tree of zeros of the same structure, shapes and dtypes."""
    return map_tree(torch.zeros_like, tree)


def add(a: Tree, b: Tree, alpha: Tensor | float = 1.0) -> Tree:
    """a + alpha * b."""
    return map_tree(lambda x, y: x + alpha * y, a, b)


def sub(a: Tree, b: Tree) -> Tree:
    """a - b."""
    return map_tree(lambda x, y: x - y, a, b)


def scale(a: Tree, factor: Tensor | float) -> Tree:
    """factor * a."""
    return map_tree(lambda x: x * factor, a)


def aggregate(stacked: Tree, weights: Tensor) -> Tree:
    """sum_k weights_k * stacked_k for leaves [K, ...]; integer leaves are taken from the largest weight."""

    def weighted_sum(leaf: Tensor) -> Tensor:
        if not leaf.is_floating_point():
            return leaf[int(weights.argmax())]
        if len(leaf) == 1:  # the same bits, without the detour over a matrix product
            return leaf[0] * weights[0].to(leaf)
        total: Tensor = torch.tensordot(weights.to(leaf), leaf, dims=1)
        return total

    return map_tree(weighted_sum, stacked)


def mean(trees: Sequence[Tree], weights: Sequence[float]) -> Tree:
    """The mean of K trees of one structure, summed in float64; integer leaves are those of the last tree.

    Args:
        trees: The trees.
        weights: Of each tree, whatever they add up to.

    Example:
        >>> import torch
        >>> from fedskew import tree
        >>> tree.mean([{"w": torch.tensor([1.0])}, {"w": torch.tensor([4.0])}], [1, 2])
        {'w': tensor([3.])}
    """

    def weighted_mean(*leaves: Tensor) -> Tensor:
        if not leaves[-1].is_floating_point():
            return leaves[-1]
        terms = [leaf.double() * weight for leaf, weight in zip(leaves, weights, strict=True)]
        return (torch.stack(terms).sum(0) / sum(weights)).to(leaves[-1])

    return map_tree(weighted_mean, *trees)


def where(condition: Tensor, a: Tree, b: Tree) -> Tree:
    """``a`` where the condition () holds, else ``b``, leaf by leaf. A padded step keeps the old state this way."""
    return map_tree(lambda x, y: torch.where(condition, x, y), a, b)


def size_bytes(tree: Tree) -> int:
    """Bytes of all leaves."""
    return sum(leaf.numel() * leaf.element_size() for leaf in leaves(tree))


def flatten(tree: Tree, prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Tensor | None]]:
    """Yield (path, leaf) pairs. An empty dict is a path with None.

    Example:
        >>> import torch
        >>> from fedskew import tree
        >>> list(tree.flatten({"moon": {"w": torch.tensor(1)}, "scaffold": {}}))
        [(('moon', 'w'), tensor(1)), (('scaffold',), None)]
    """
    if isinstance(tree, dict):
        if not tree:
            yield prefix, None
        for name, value in tree.items():
            yield from flatten(value, (*prefix, name))
    elif tree is not None:
        yield prefix, tree


def unflatten(pairs: Iterable[tuple[tuple[str, ...], Tensor | None]]) -> Tree:
    """The tree of (path, leaf) pairs; undoes `flatten`."""
    out: dict[str, Any] = {}
    for path, leaf in pairs:
        if not path:
            continue
        node = out
        for name in path[:-1]:
            node = node.setdefault(name, {})
        node[path[-1]] = {} if leaf is None else leaf
    return out
