"""Marks of local steps: which network and which ingredients a step has, as far as its operators depend on them."""

from __future__ import annotations

import json

from fedskew.component import overrides, spec
from fedskew.data.store import Store
from fedskew.engines.guard import unguarded
from fedskew.engines.kept import Mark
from fedskew.method import Method
from fedskew.models.prepare import Model
from fedskew.types import Task

__all__ = ["mark"]

HOOKS = ("loss", "correct", "learn", "moves", "frozen")  # of a local step
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
