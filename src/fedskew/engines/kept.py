"""Programs that outlive a run: the next one of the same step and shapes in this process, as in a study, traces nothing.

A program is the list of operators of a step: what its network, method and shapes make it, and no values but theirs. So
a mark says which network and which ingredients a step has. A program that is met again under its mark and its shapes is
compared with the step at the values of the new run, bit by bit, before it is used.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from typing import Any

from fedskew.component import overrides, spec
from fedskew.data.store import Store
from fedskew.engines.guard import unguarded
from fedskew.engines.programs import Program
from fedskew.method import Method
from fedskew.models.prepare import Model
from fedskew.types import Task

__all__ = ["SHELF", "Mark", "Shelf", "mark"]

Mark = str
KEPT = 64  # programs, some tens of kilobytes each
HOOKS = ("loss", "correct", "learn")  # of a local step
KNOWN = ("fedskew.", "torch.nn.")  # whose fields and representations say all that a step reads


def mark(engine: str, method: Method, model: Model, task: Task, store: Store) -> Mark | None:
    """What two runs have in common whose steps of the same shapes are the same program.

    Args:
        engine: name of the engine, whose steps are of a client or of a stack.
        method: only what a local step reads of it counts: its parts, its local rule, and any slot with such a hook.
        model: the network.
        task: facts of the run.
        store: the rows, which may be augmented.

    Returns:
        A text, or None where this cannot be told: an ingredient or a layer is a user's own, or rows are augmented.
    """
    bare = unguarded(method)
    slots = [c for c in bare.slots.values() if c is bare.local or any(overrides(c, hook) for hook in HOOKS)]
    read = [*bare.parts, *slots]
    layers = list(model.module.modules())
    kinds = [type(one).__module__ + "." for one in (*read, *layers)]
    if store.augmentation or not all(kind.startswith(KNOWN) for kind in kinds):
        return None
    written = [spec(component) for component in read]
    net = [repr(model.module), str(model.narrow), model.unpadded, model.head, [name for name, _ in model.stored]]
    return json.dumps([engine, written, net, list(task)], sort_keys=True, default=str)


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
