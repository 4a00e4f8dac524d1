"""What runs local steps: a mode for each class of networks, the rule that decides it, and steppers along a schedule.

A stepper runs the plain function, or a program that is made of it once.
"""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from enum import Enum
from itertools import groupby
from typing import Any

from torch import Tensor

from fedskew.engines.programs import (
    Along,
    Captured,
    Program,
    StepFunction,
    captured,
    flatten,
    leaves_of,
    like,
    program,
)
from fedskew.method import Method
from fedskew.method.component import does_no_more
from fedskew.method.parts import CrossEntropy
from fedskew.method.steps import SGD


class StepMode(Enum):
    """What runs local steps, in words for the record. Steps of a stack are equal up to rounding, the others to the bit.

    Each engine takes the first that its device, the network and the method allow:

    - `sequential`, `debug`: AUTOGRAD.
    - `threaded`, `ray`: TRACED on a CPU for networks without convolutions, else AUTOGRAD.
    - `batched` on a GPU: RECORDED.
    - `chained`: CHAINED; where steps cannot be recorded, that of `batched`.
    - `batched` on a CPU: WRITTEN for dense networks under cross-entropy and plain SGD; FUSED for dense networks under
      fedskew's other methods; else VMAP.
    """

    AUTOGRAD = "steps by plain autograd"
    TRACED = "steps by autograd, traced where many lie ahead"
    WRITTEN = "steps are written out"
    FUSED = "steps are written out around the method's loss"
    VMAP = "steps by vmap"
    RECORDED = "steps by vmap, recorded where many lie ahead"
    CHAINED = "steps by autograd, a client a chain of launches"


def is_plain_loss(method: Method) -> bool:
    """Whether the loss is mean cross-entropy and nothing else; False under a guard."""
    return [does_no_more(part, CrossEntropy) for part in method.having("loss")] == [True]


def plain_decay(method: Method) -> float | None:
    """d where a local step is w <- w - lr (g + d w) and no more; None for any other, and under a guard."""
    step = method.local
    return step.weight_decay if isinstance(step, SGD) and does_no_more(step, SGD, "weight_decay") else None


def is_fused(method: Method) -> bool:
    """Whether a step adds -lr times the gradient and nothing looks in between: the update is part of the product."""
    changed = any(map(method.having, ("correct", "learn", "moves", "frozen")))
    return plain_decay(method) is not None and not changed


# Steppers


Maker = Callable[[StepFunction, Any, Any, Any, Any], Program | Captured | None]

# Steps of one shape that must lie ahead, so that a program saves more than it costs (notes/engines.md)
TRACE = 4000  # a second or more, against a fraction of a millisecond a step
RECORD = 100  # of a stack on a GPU, where a recording costs some ten steps
MAKERS: dict[StepMode, tuple[float, Maker | None]] = {
    StepMode.TRACED: (TRACE, program),
    StepMode.RECORDED: (RECORD, captured),
}
_LOCK = threading.Lock()  # make_fx sets modes of the whole process


class Stepper:
    """Applies ``function(rows, fixed, carry, now) -> (carry, loss)`` along a schedule of ``now``.

    All four arguments are trees of tensors. Of ``rows``, what mini-batches are drawn from, the number may change from
    call to call, their shape may not.
    """

    def __init__(self, function: StepFunction, mode: StepMode) -> None:
        """``mode`` decides by what programs are made, and how many steps must lie ahead; most modes make none."""
        self.function, self.mode = function, mode
        self.after, self._maker = MAKERS.get(mode, (float("inf"), None))
        self.counts: Counter[Any] = Counter()
        self.first: dict[Any, int] = {}  # how many rounds were left when a shape was first seen
        self.asked: set[Any] = set()
        self.programs: dict[Any, Program | Captured | None] = {}  # by shapes; None where a shape has none

    def due(self, size: Any, steps: int, left: int) -> bool:
        """Note that steps of this size are about to run. True when it is time to make their program, which is once.

        The steps ahead are those that a round has had on average since the shape was first seen, times the rounds that
        are ``left``, this one included. So a short run makes nothing, and a long one begins with it.
        """
        self.counts[size] += steps
        rounds = self.first.setdefault(size, left) - left + 1
        if size in self.asked or self.counts[size] / rounds * left < self.after:
            return False
        self.asked.add(size)
        return True

    def make(self, rows: Any, fixed: Any, carry: Any, now: Any) -> None:
        """Make the program of the step at these shapes, where that can be done; of a trace while no thread trains."""
        key, devices = _key(rows, fixed, carry, now), {leaf.device for leaf in leaves_of(carry)}
        if self._maker is not None and key not in self.programs and len(devices) == 1:
            with _LOCK:
                self.programs[key] = self._maker(self.function, rows, fixed, carry, now)

    def run(
        self, rows: Any, fixed: Any, carry: Any, schedule: Sequence[Any], left: int = 0
    ) -> tuple[Any, list[Tensor]]:
        """All steps of a schedule: the carry after the last one, and the loss of each.

        With ``left`` rounds, shapes that are due get their program here, by the thread that trains.
        """
        losses: list[Tensor] = []
        begun: dict[int, Along] = {}  # of the programs that were met, by identity
        for _, group in groupby(schedule, key=_sizes):
            steps = list(group)
            key = _key(rows, fixed, carry, steps[0]) if left or self.programs else None
            if left and self.due(key, len(steps), left):
                self.make(rows, fixed, carry, steps[0])
            made = self.programs.get(key)
            if made is not None:
                along = begun.get(id(made)) or begun.setdefault(id(made), made.over(rows, fixed))
                carry = along(carry, steps, losses)
                continue
            for now in steps:
                carry, loss = self.function(rows, fixed, carry, now)
                losses.append(loss)
        return carry, losses


def _sizes(now: Any) -> tuple[Any, ...]:
    return tuple(leaf.shape for leaf in now)


def _key(rows: Any, fixed: Any, carry: Any, now: Any) -> Any:
    """What a program depends on: names, shapes, strides and dtypes; of the rows, all but their number."""
    leaves: list[Tensor] = []
    names: list[Any] = []
    flatten((fixed, carry, now), leaves, names)
    kinds = tuple((r.shape[1:], r.stride(), r.dtype) for r in rows)
    return tuple(names), kinds, tuple(map(like, leaves))
