"""The address of a run: a hash of everything that decides its numbers, and of nothing else.

Hashed are the fingerprint of the data, how they are divided, network, method, settings, engine and seeds, each as
resolved: who is selected where nobody said how many, which engine "auto" takes. A field at its default is left out, so
that a new option changes no address. A class whose formula or default changes raises its ``version``.
"""

import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from torch import nn

from fedskew import fields, models
from fedskew.config.experiment import CLIENTS, Experiment
from fedskew.config.own import name_of, source_of
from fedskew.data.arrays import Dataset
from fedskew.engines import choose
from fedskew.engines.network import digest_of
from fedskew.errors import DataError, opened
from fedskew.models.precision import NARROW
from fedskew.models.prepare import prepare
from fedskew.settings import COHORT, Settings
from fedskew.types import Width

ADDRESS = 1  # of what is hashed, and how
DIGITS = 16
SLOW, REMEMBERED = 1.0, 60.0  # seconds: a failure that took as long is the hub's, and is remembered as long


def address(experiment: Experiment, dataset: Dataset, earlier: bool = False) -> str:
    """The hash of what decides a run's numbers, 16 hexadecimal digits.

    Args:
        experiment: the run.
        dataset: its data, loaded.
        earlier: whether objects of the user's own have the digest that they had before, see `fedskew.config.own`.

    Example:
        >>> from fedskew.config.flags import experiment_from
        >>> one, two = (experiment_from(["fedavg", "--rounds", "3", *more]) for more in ([], ["--memory", "ram"]))
        >>> address(one, one.data.load()) == address(two, two.data.load())
        True
    """
    content = {
        "address": ADDRESS,
        "data": dataset.fingerprint,
        "rows": [list(dataset.augment), list(dataset.mean), list(dataset.std)],
        "engine": engine_of(experiment, dataset),
        **asked(experiment, earlier),
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def dataset_of(data: Any, path: str | None) -> Dataset:
    """The data set of an experiment, loaded once.

    The hub is asked for a missing one once a minute: its retries take half a minute, and a plan has hundreds of runs.

    Raises:
        DataError: The data set is not at hand or is broken.
    """
    key = data, path, os.environ.get("FEDSKEW_DATA")
    until, message = _absent.get(key, (0.0, ""))
    began = time.monotonic()
    if began < until:
        raise DataError(message)
    try:
        return _loaded(data, path)
    except DataError as error:
        if time.monotonic() - began >= SLOW:
            _absent[key] = time.monotonic() + REMEMBERED, str(error)
        raise


_absent: dict[Any, tuple[float, str]] = {}


@lru_cache(8)
def _loaded(data: Any, path: str | None) -> Dataset:
    loaded: Dataset = data.load(path)
    return loaded


def asked(experiment: Experiment, earlier: bool = False) -> dict[str, Any]:
    """What decides a run's numbers beside the content of its data and the engine, as plain values."""
    method, default = experiment.method, Settings()
    # a partition that decides has one number, which a record names and a study leaves open
    clients = None if experiment.partition.decides else experiment.clients or CLIENTS
    cohort = experiment.cohort or (COHORT if method.share is None else f"share {method.share}")
    partition = experiment.seed if experiment.seed_partition is None else experiment.seed_partition
    names = fields.deciding(Settings, "numbers", "measures", resolved=False)
    settings = {name: _json_value(getattr(experiment, name)) for name in names}
    return {
        "partition": _partition(experiment.partition, earlier),
        "clients": clients,
        **{n: v for n in ("longtail", "validation", "local_test", "heldout_clients") if (v := getattr(experiment, n))},
        "auxiliary": experiment.rows_at_server,
        "model": _network(experiment.network, method.projection, earlier),
        "parts": [_of(part, earlier) for part in method.parts],
        **{slot: _of(ingredient, earlier) for slot, ingredient in method.slots.items()},
        **{n: v for n, v in settings.items() if n == "rounds" or v != _json_value(getattr(default, n))},
        **({"init": digest} if (digest := digest_of(experiment)) else {}),
        "cohort": cohort,
        "seeds": [experiment.seed, partition, experiment.seed_of("model"), experiment.seed_of("clients")],
    }


def engine_of(experiment: Experiment, dataset: Dataset) -> str:
    """The engines that give the bits of this run: "plain", or one that stacks, with the threads that sums depend on."""
    method, name = experiment.method, experiment.engine
    if name == "auto":
        model = experiment.network
        shape, augmented = tuple(dataset.x.shape[1:]), bool(dataset.augment)
        place = experiment.precision, experiment.device, augmented
        key = (repr(model), shape, dataset.classes, *place, repr(method.components))
        if key not in _CHOSEN:
            network = model if isinstance(model, nn.Module) else models.build(model, shape, dataset.classes, 0)
            head, narrow = getattr(network, "head_name", None), NARROW[experiment.precision]
            prepared = prepare(network, head, shape, dataset.classes, narrow=narrow)
            _CHOSEN[key] = choose("auto", experiment.device, prepared, method, augmented)[0].name
        name = _CHOSEN[key]  # type: ignore[assignment]
    order = "" if experiment.deterministic else " in any order"
    where = "" if experiment.device == "cpu" else f" cuda{order}"
    return f"{name} {experiment.threads}{where}" if name in ("batched", "chained") else f"plain{where}"


_CHOSEN: dict[Any, str] = {}


def _network(model: Any, width: Width, earlier: bool) -> dict[str, Any]:
    """As `_of`; of a network of the user's own, its digest and the projection head that it gets."""
    if not isinstance(model, nn.Module):
        return _of(model, earlier)
    return {"name": name_of(model), "source": source_of(model, earlier), "projection": width}


def _of(ingredient: Any, earlier: bool) -> dict[str, Any]:
    """Name, version and the fields that are not at their default; ingredients among the fields likewise.

    A class of the user's own has the digest of its source.
    """
    kind = type(ingredient)
    content: dict[str, Any] = {"name": ingredient.name}
    if (version := getattr(kind, "version", 1)) != 1:
        content["version"] = version
    if source := source_of(ingredient, earlier):
        content["source"] = source
    for f in dataclasses.fields(ingredient):
        value = getattr(ingredient, f.name)
        if dataclasses.is_dataclass(value) and hasattr(value, "name"):
            content[f.name] = _of(value, earlier)
        elif _json_value(value) != _default(f):
            content[f.name] = _json_value(value)
    return content


def _partition(partition: Any, earlier: bool) -> dict[str, Any]:
    """As `_of`; of a file, what it holds and not where it is."""
    content, path = _of(partition, earlier), getattr(partition, "path", None)
    if path:
        with opened(path) as file:
            content["path"] = hashlib.file_digest(file, "sha256").hexdigest()[:DIGITS]
    return content


def _default(field: dataclasses.Field[Any]) -> Any:
    value = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    return _json_value(value)


def _json_value(value: Any) -> Any:
    """A value as JSON holds it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _json_value(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): _json_value(v) for k, v in value.items()}
    return [_json_value(v) for v in value] if isinstance(value, list | tuple) else value
