"""What a hook is given, and whether somebody wrote into it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor

from fedskew.component import Component, LocalStep, Pace, Sampler, Selector, ServerOptimizer, Weighting

if TYPE_CHECKING:
    from fedskew.data.federation import Federation

__all__ = ["infinite", "marked", "names_of", "tensors_of", "written"]

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
    kinds = (Component, Sampler, Selector, Pace, Weighting, ServerOptimizer, LocalStep)
    known = next(getattr(kind, hook) for kind in kinds if hasattr(kind, hook))
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
