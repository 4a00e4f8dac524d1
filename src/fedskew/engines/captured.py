"""A local step on a GPU as a CUDA graph: recorded once, then launched as one piece.

A step of a small network is a hundred kernels of a few microseconds. Python and vmap take milliseconds to launch them,
so the GPU waits. A graph keeps the kernels and the addresses they work on: what differs from step to step is copied to
those addresses, and one launch runs the step. The kernels are those of the plain function, so the bits are too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from fedskew.engines.programs import Along, StepFunction, flatten, leaves_of, like, rebuild

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
        made = Captured(function, rows, fixed, carry, now, record or _cuda_graph)
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
        room = int(len(rows[0]) * SPARE)
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
            if after != names or [like(m) for m in moved] != [like(c) for c in self._carry]:
                raise TypeError("the carry changes its structure")
            if self._loss.shape != loss.shape:
                self._loss = torch.zeros_like(loss)
            held = {c.data_ptr() for c in self._carry}
            new = [m.clone() if m.data_ptr() in held else m for m in moved]  # one leaf may have become another
            for target, value in zip([*self._carry, self._loss], [*new, loss], strict=True):
                target.copy_(value)

        _fill([*self._rows, *self._fixed, *self._carry, *self._now], leaves_of((rows, fixed, carry, now)))
        self._replay = self._record(once)

    def over(self, rows: Any, fixed: Any) -> Along:
        """Bring what lasts a local run. The function that is returned goes along steps, as `Program.over`'s does."""
        if len(rows[0]) > len(self._rows[0]):
            self._make(rows)
        _fill([*self._rows, *self._fixed], leaves_of((rows, fixed)))
        return self._along

    def _along(self, carry: Any, steps: Sequence[Any], losses: list[Tensor]) -> Any:
        _fill(self._carry, leaves_of(carry))
        for now in steps:
            for target, value in zip(self._now, now, strict=True):
                target.copy_(value)
            self._replay()
            losses.append(self._loss.clone())
        return rebuild(carry, (leaf.clone() for leaf in self._carry))

    def agrees(self, rows: Any, fixed: Any, carry: Any, now: Any) -> bool:
        """Whether a replay gives what the function gives: its bits, where the function repeats its own."""
        first, again = ([*leaves_of(c), loss] for c, loss in (self._function(rows, fixed, carry, now) for _ in "ab"))
        losses: list[Tensor] = []
        moved = self.over(rows, fixed)(carry, [now], losses)
        got = [*leaves_of(moved), *losses]
        if all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(first, again, strict=True)):
            return all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(first, got, strict=True))
        return all(torch.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True) for a, b in zip(first, got, strict=True))


def _fill(targets: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Bring values to the recording's memory, which may have room for more rows."""
    for target, value in zip(targets, values, strict=True):
        (target[: len(value)] if target.dim() else target).copy_(value)


def _cuda_graph(function: Callable[[], None]) -> Replay:
    """Record a function's kernels as a CUDA graph."""
    here, aside = torch.cuda.current_stream(), _stream(torch.cuda.current_device())
    aside.wait_stream(here)
    with torch.cuda.stream(aside):
        for _ in range(WARM):
            function()
    here.wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=aside, capture_error_mode="thread_local"):
        function()
    return graph.replay


@cache
def _stream(device: int) -> torch.cuda.Stream:
    """The stream of all recordings: cuBLAS keeps a workspace of 32 MB or more for each stream that it has seen."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
