"""Networks of which only the classifier is trained: what enters it is computed once for each row, and kept."""

from __future__ import annotations

import copy
from collections import OrderedDict
from dataclasses import replace

import torch
from torch import nn

from fedskew import rng
from fedskew.data.store import Store
from fedskew.engines.evaluation import Evaluator
from fedskew.engines.runtime import Runtime, one_thread
from fedskew.models.layers import drops
from fedskew.models.precision import arithmetic
from fedskew.models.prepare import Model, prepare
from fedskew.models.probe import probe_rows


def head_alone(model: Model, augmented: bool = False) -> Model | None:
    """The classifier as a network of features, with the same names.

    Args:
        model: a network on its device.
        augmented: whether training rows are augmented: their features are then new in each step.

    Returns:
        The classifier; None where anything else is trained, training rows have other features than test rows, or
        something follows the classifier.
    """
    layer = model.module.get_submodule(model.head)
    names = {f"{model.head}.{name}" for name, _ in layer.named_parameters()}
    noisy = any(drops(m) and m.p for m in model.module.modules())
    if augmented or noisy or type(layer) is not nn.Linear or not model.constants or model.buffers:
        return None
    if set(model.params) != names:
        return None
    own: nn.Module = copy.deepcopy(layer)
    own._forward_pre_hooks.clear()
    own._forward_pre_hooks_with_kwargs.clear()
    vars(own).pop("fedskew_call")
    for part in reversed(model.head.split(".")):
        own = nn.Sequential(OrderedDict({part: own}))
    alone = prepare(own, model.head, (model.features,), model.classes, narrow=model.narrow)
    return alone if _does_all(model, alone) else None


@torch.no_grad()
def _does_all(model: Model, alone: Model) -> bool:
    """Whether the classifier gives the network's outputs from the features, which are the same in both modes."""
    for x in probe_rows(model, 4):
        mask, key = next(iter(model.params.values())).new_ones(len(x)), rng.key(0, "probe").to(x.device)
        try:
            out, again = (model.forward(model.params, {}, x, mask, train=t, key=key)[0] for t in (True, False))
        except Exception:  # rows of another kind
            continue
        found, _ = alone.forward(alone.params, {}, again.features, mask, train=False, key=key)
        pairs = (out.features, again.features), (found.logits, again.logits)
        return all(torch.allclose(a, b, rtol=1e-3, atol=1e-5) for a, b in pairs)
    return False


@torch.no_grad()
def features_of(runtime: Runtime, stores: tuple[Store, Store], classes: int, precision: str) -> tuple[Store, Store]:
    """The stores with features, float [n, F], in the place of rows; by the runtime's network."""
    net = runtime.workers.original

    def one(store: Store) -> Store:
        rows = torch.arange(len(store.y)).numpy()
        if not len(rows):
            return replace(store, x=net.params[f"{net.head}.weight"].new_empty(0, net.features), mean=(), std=())
        found = Evaluator(runtime, store, classes, keep=False).outputs(net.params, {}, rows)[1]
        return replace(store, x=found.to(store.y.device), mean=(), std=())

    with one_thread(), arithmetic(precision):
        return one(stores[0]), one(stores[1])
