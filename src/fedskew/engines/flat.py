"""Trees of tensors as flat lists, for programs that take and return lists.

A tree is a tensor, a dict of trees, or a tuple of trees (a NamedTuple too). torch's pytree does the same at ten times
the cost, which counts because these functions run once a local step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

__all__ = ["flatten", "leaves_of", "like", "rebuild"]


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
    found: list[Tensor] = []
    flatten(tree, found, [])
    return found


def rebuild(template: Any, leaves: Iterator[Tensor]) -> Any:
    """A tree of the structure of ``template`` that holds the next tensors of ``leaves``."""
    if isinstance(template, Tensor):
        return next(leaves)
    if isinstance(template, dict):
        return {name: rebuild(value, leaves) for name, value in template.items()}
    parts = [rebuild(value, leaves) for value in template]
    return type(template)(*parts) if hasattr(template, "_fields") else tuple(parts)


def like(leaf: Tensor) -> tuple[Any, ...]:
    """Shape, strides and dtype: tensors that agree in these can take each other's place in a program."""
    return leaf.shape, leaf.stride(), leaf.dtype
