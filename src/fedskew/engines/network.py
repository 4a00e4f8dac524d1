"""The network of a run: as a pure function, with its initial weights, on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from fedskew import models, rng
from fedskew.engines.begun import begin_from
from fedskew.method import Method
from fedskew.models import Architecture
from fedskew.models.precision import DTYPES, NARROW, arithmetic
from fedskew.models.prepare import Model, prepare
from fedskew.models.probe import require_runs
from fedskew.models.sequences import require_tokens
from fedskew.settings import Settings
from fedskew.types import Params, Task

if TYPE_CHECKING:
    from fedskew.data.federation import Federation

__all__ = ["initial_params", "prepared_model"]


def prepared_model(
    fed: Federation, model: Architecture | nn.Module, head: str | None, settings: Settings, projection: int
) -> Model:
    """The network as a pure function, with its initial weights, on the device; with the method's projection head."""
    shape, classes = tuple(fed.dataset.x.shape[1:]), fed.dataset.classes
    named = head or getattr(model, "head_name", None)
    if not isinstance(model, nn.Module):
        network = models.build(model, shape, classes, settings.seed_of("model"))
        if model.projection and named == model.head:
            named = f"{named}.{models.CLASSIFIER}"
    elif projection:
        network, named = models.projected(model, named, projection, settings.seed_of("model"))
    else:
        network = model
    require_tokens(network, fed.dataset.x, fed.dataset.x_test)
    prepared = prepare(network, named, shape, classes, narrow=NARROW[settings.precision])
    ready = prepared.to(DTYPES[settings.dtype], settings.device)
    begin_from(ready, settings)
    with arithmetic(settings.precision):
        require_runs(ready)
    return ready


def initial_params(method: Method, params: Params, task: Task, seed: int) -> Params:
    """The model's parameters, some with values of the method's own, and those that components add to it."""
    for part in method.having("init_model"):
        params = {**params, **part.init_model(params, task, rng.key(seed, "init_model", part.name))}
    for part in method.having("init_params"):
        params = {**params, **part.init_params(params, task, rng.key(seed, "init", part.name))}
    return params
