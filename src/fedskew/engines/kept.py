"""Programs that outlive a run: the next one of the same step and shapes in this process, as in a study, traces nothing.

A program is the list of operators of a step: what its network, method and shapes make it, and no values but theirs. So
it is held under its shapes and under a mark (`fedskew.engines.marks`), which says which step it is. A program that is
met again is compared with the step at the values of the new run, bit by bit, before it is used.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from fedskew.engines.programs import Program

__all__ = ["SHELF", "Mark", "Shelf"]

Mark = str
KEPT = 64  # programs, some tens of kilobytes each


class Shelf:
    """The programs of this process by mark and shapes; the one that was met longest ago goes first.

    Example:
        >>> shelf = Shelf(1)
        >>> shelf.put("a", 1, "program")
        >>> shelf.put("b", 1, "another")
        >>> shelf.get("a", 1), shelf.get("b", 1)
        (None, 'another')
    """

    def __init__(self, room: int = KEPT) -> None:
        """``room`` for so many programs."""
        self._room = room
        self._held: OrderedDict[Any, Program] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, mark: Mark, shapes: Any) -> Program | None:
        """The program of a step, where one is held."""
        with self._lock:
            if (mark, shapes) in self._held:
                self._held.move_to_end((mark, shapes))
            return self._held.get((mark, shapes))

    def put(self, mark: Mark, shapes: Any, program: Program) -> None:
        """Hold a program."""
        with self._lock:
            self._held[mark, shapes] = program
            self._held.move_to_end((mark, shapes))
            while len(self._held) > self._room:
                self._held.popitem(last=False)


SHELF = Shelf()
