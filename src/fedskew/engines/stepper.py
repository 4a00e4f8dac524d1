"""Runs local steps along a schedule, by the plain function or by a program (`fedskew.engines.programs`)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from torch import Tensor

from fedskew.engines.captured import Captured, captured
from fedskew.engines.flat import flatten, leaves_of, like
from fedskew.engines.kept import SHELF, Mark
from fedskew.engines.programs import Along, Program, StepFunction, program

__all__ = ["CAPTURE", "TRACE_CLIENT", "TRACE_STACK", "Stepper", "Steppers"]

Known = Program | Captured | None  # None where a shape has no program

# Steps of one shape that must lie ahead, so that tracing costs less than it saves (notes/performance.md)
TRACE_CLIENT = 4000  # of a client: a second or more, against a fraction of a millisecond a step
TRACE_STACK = 800  # of a stack, whose step costs Python and vmap two milliseconds
CAPTURE = 100  # of a stack on a GPU, where a recording costs some ten steps
KNOWN = 64  # shapes that `Stepper.known` holds before it is emptied
_LOCK = threading.Lock()  # make_fx sets modes of the whole process


class Stepper:
    """Applies ``function(rows, fixed, carry, now) -> (carry, loss)`` along a schedule of ``now``.

    All four arguments are trees of tensors. Of ``rows``, what mini-batches are drawn from, the number may change from
    call to call, their shape may not. ``fixed`` is a pair (shared, own): ``shared`` is one object for all clients of a
    round, so its identity stands for its shapes; ``own`` is a tree that differs from client to client.
    """

    def __init__(self, function: StepFunction, after: float, mark: Mark | None = None) -> None:
        """Trace steps of one shape where `due` expects at least ``after`` of them; never with ``after`` infinite.

        A function may have a twin ``into``, which may write into the first tree of the carry that it is given. Then so
        may its programs, and what `run` is given there must be in memory of its own. Steps under one ``mark`` and of
        one shape have one program in the whole process (`fedskew.engines.kept`).
        """
        self.function, self.after, self.mark = function, after, mark
        self.into: StepFunction | None = getattr(function, "into", None)
        self.counts: Counter[Any] = Counter()
        self.first: dict[Any, int] = {}  # how many rounds were left when a shape was first seen
        self.asked: set[Any] = set()
        self.known: dict[Any, tuple[Any, Known]] = {}  # of the round in progress
        self.programs: dict[Any, Known] = {}

    def due(self, size: Any, steps: int, left: int) -> bool:
        """Note that steps of this size are about to run. True when it is time to trace them, which is once.

        The steps ahead are those that a round has had on average since the shape was first seen, times the rounds that
        are ``left``, this one included. So a short run traces nothing, and a long one begins with it.
        """
        self.counts[size] += steps
        rounds = self.first.setdefault(size, left) - left + 1
        if size in self.asked or self.counts[size] / rounds * left < self.after:
            return False
        self.asked.add(size)
        return True

    def make(self, rows: Any, fixed: Any, carry: Any, now: Any) -> None:
        """Trace the step at these shapes, where that can be done. Call it while no thread trains."""
        key = _key(rows, fixed, carry, now)
        kinds = {leaf.device.type for leaf in leaves_of(carry)}
        if key in self.programs or kinds not in ({"cpu"}, {"cuda"}):
            return
        with _LOCK:
            if kinds == {"cuda"}:
                self.programs[key] = captured(self.function, rows, fixed, carry, now)
            else:
                self.programs[key] = self._program(key, rows, fixed, carry, now)

    def _program(self, key: Any, rows: Any, fixed: Any, carry: Any, now: Any) -> Program | None:
        """The program of a run before this one, else a new one."""
        owned = 0 if self.into is None else len(leaves_of(carry[0]))
        held = None if self.mark is None else SHELF.get(self.mark, (key, owned))
        found = held and program(self.function, rows, fixed, carry, now, owned, held)
        if found is None:
            found = program(self.function, rows, fixed, carry, now, owned)
            if found is not None and self.mark is not None:
                SHELF.put(self.mark, (key, owned), found)
        return found

    def run(self, rows: Any, fixed: Any, carry: Any, schedule: Sequence[Any]) -> tuple[Any, list[Tensor]]:
        """All steps of a schedule: the carry after the last one, and the loss of each."""
        losses: list[Tensor] = []
        function = self.into or self.function
        ways: dict[int, Along] = {}  # of the programs that were met, by identity
        for _, group in groupby(schedule, key=_sizes):
            steps = list(group)
            traced = self._find(rows, fixed, carry, steps[0]) if self.programs else None
            if traced is not None:
                along = ways.get(id(traced)) or ways.setdefault(id(traced), traced.over(rows, fixed))
                carry = along(carry, steps, losses)
                continue
            for now in steps:
                carry, loss = function(rows, fixed, carry, now)
                losses.append(loss)
        return carry, losses

    def _find(self, rows: Any, fixed: Any, carry: Any, now: Any) -> Known:
        """The program for these shapes. Within a round only ``own``, ``now`` and the rows are looked at."""
        shared, own = fixed
        quick = (id(shared), tuple(map(like, leaves_of(own))), _sizes(now), rows[0].shape[1:], rows[0].stride())
        held, found = self.known.get(quick, (None, None))
        if held is not shared:  # the identity of an object that is gone may come again
            found = self.programs.get(_key(rows, fixed, carry, now))
            if len(self.known) > KNOWN:
                self.known = {}
            self.known[quick] = (shared, found)
        return found

    @property
    def traced(self) -> int:
        """Number of shapes that run as programs."""
        return sum(p is not None for p in self.programs.values())


class Steppers:
    """One `Stepper` for each key, made when it is first asked for.

    Keys are compared by ``==``, so that they need no hash: a method with a tensor in a field has none.
    """

    def __init__(
        self,
        function_of: Callable[[Any], StepFunction],
        after: float,
        mark_of: Callable[[Any], Mark | None] | None = None,
    ) -> None:
        """``function_of(key)`` makes the function of a stepper; ``after`` and ``mark_of(key)`` are as in `Stepper`."""
        self._function_of, self._after, self._mark_of = function_of, after, mark_of or (lambda key: None)
        self._made: list[tuple[Any, Stepper]] = []

    def of(self, key: Any) -> Stepper:
        """The stepper of a key."""
        for known, stepper in self._made:
            if known is key or known == key:
                return stepper
        self._made.append((key, Stepper(self._function_of(key), self._after, self._mark_of(key))))
        return self._made[-1][1]


def _sizes(now: Any) -> tuple[Any, ...]:
    return tuple(leaf.shape for leaf in now)


def _key(rows: Any, fixed: Any, carry: Any, now: Any) -> Any:
    """What a program depends on: names, shapes, strides and dtypes; of the rows, all but their number."""
    leaves: list[Tensor] = []
    names: list[Any] = []
    flatten((fixed, carry, now), leaves, names)
    kinds = tuple((r.shape[1:], r.stride(), r.dtype) for r in rows)
    return tuple(names), kinds, tuple(map(like, leaves))
