"""In what a method on record differs from the method of the table whose name it has."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from fedskew.config.tables import TABLES
from fedskew.method import method_spec
from fedskew.method.component import SLOTS, spec
from fedskew.methods import METHODS

Spec = Mapping[str, Any]


def plain_name(method: Spec) -> str:
    """The name in the table: "fedbal" of ``fedbal(parts=proximal)``; "" where the table has no such method."""
    bare = str(method.get("name", "")).partition("(")[0]
    return bare if bare in METHODS else ""


def changed(method: Spec) -> dict[str, Any]:
    """The options that differ from those of the method of this name, by dotted path.

    An ingredient that the method of the table has is compared with it; another one is named, and compared with its own
    defaults. Other parts are not named here, as the recorded name says them.

    Args:
        method: A method as `method_spec` gives it, or as a configuration file holds it.

    Returns:
        Values by path, such as ``{"weighting.name": "uniform", "pace.lr": 0.05}``; empty for a name that is not known.

    Example:
        >>> from fedskew import methods, weightings
        >>> changed(method_spec(methods.fedavg().with_(weighting=weightings.Uniform()).with_("pace", lr=0.05)))
        {'pace.lr': 0.05, 'weighting.name': 'uniform'}
    """
    name = plain_name(method)
    if not name:
        return {}
    plain = method_spec(METHODS[name]())
    parts = {p["name"]: p for p in plain["parts"]}
    found: dict[str, Any] = {}
    for part in _named(method.get("parts", ())):
        found |= _differing(f"parts.{part['name']}", "parts", part, parts.get(part["name"]))
    for slot in SLOTS:
        for now in _named([method.get(slot)]):
            found |= _differing(slot, slot, now, plain[slot])
    return found


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Leaves of a configuration by dotted path. An element of a list is addressed by its name.

    Example:
        >>> flat({"method": {"name": "fedavg", "parts": [{"name": "ldam", "s": 30}]}})
        {'method.name': 'fedavg', 'method.parts.ldam.name': 'ldam', 'method.parts.ldam.s': 30}
    """
    if isinstance(value, Mapping):
        items = [(str(key), v) for key, v in value.items()]
    elif isinstance(value, list):
        names = [v.get("name") if isinstance(v, Mapping) else v for v in value]
        keys = [name if isinstance(name, str) and name else str(i) for i, name in enumerate(names)]
        items = list(zip(keys, value, strict=True))
    else:
        return {path: value}
    return {p: leaf for key, v in items for p, leaf in flat(v, f"{path}.{key}" if path else key).items()}


def label_of(method: Spec) -> str:
    """The recorded name with what differs from the method of the table: "fedavg (uniform, lr 0.05)".

    Example:
        >>> from fedskew import methods, weightings
        >>> label_of(method_spec(methods.fedavg().with_(weighting=weightings.Uniform())))
        'fedavg (uniform)'
    """
    told = [words_of(path, value) for path, value in changed(method).items()]
    return f"{method['name']} ({', '.join(told)})" if told else str(method["name"])


def words_of(path: str, value: Any) -> str:
    """An option as a phrase: an ingredient by its name, a field by its last word."""
    end = path.rpartition(".")[2]
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if end == "name" else f"{end} {text}"


def _named(specs: Any) -> Iterator[Spec]:
    return (s for s in specs if isinstance(s, Mapping) and "name" in s)


def _differing(path: str, slot: str, now: Spec, plain: Spec | None) -> dict[str, Any]:
    """What differs in one ingredient, and in those among its fields."""
    found: dict[str, Any] = {}
    if plain is None or plain["name"] != now["name"]:
        if plain is not None:
            found[f"{path}.name"] = now["name"]
        kind = TABLES[slot].get(now["name"])
        plain = spec(kind()) if kind else {}
    for field, value in now.items():
        if field == "name" or field not in plain:
            continue
        if isinstance(value, Mapping) and isinstance(plain[field], Mapping):
            found |= _differing(f"{path}.{field}", slot, value, plain[field])
        elif json.dumps(plain[field]) != json.dumps(value):
            found[f"{path}.{field}"] = value
    return found
