"""A local step as a program: traced once, then run as a list of operators, without Python and without the tape.

A step is a pure function of tensors, so ``make_fx`` can trace it, backward pass and update included. torch's graph
interpreter runs the trace without Python's lock, so threads work side by side. Values that do not change from step to
step (masks of ones, terms of a client's label counts) are computed once a local run. A program is used only where it
gives the bits of the function.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedskew.engines.flat import flatten, leaves_of, like, rebuild
from fedskew.engines.passes import split, tidy, write_in_place

__all__ = ["Along", "Program", "StepFunction", "program"]

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
        function: maps four trees of tensors (see `fedskew.engines.flat`) to the next carry and a loss.
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
    same = all(_same(a, b) for a, b in zip(expected, got, strict=True))
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
