"""What each argument of a method changes in it. Defaults: `golden/addresses.json`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from fedskew import methods as m
from fedskew.errors import ConfigError
from fedskew.method import Method
from fedskew.method.weightings import Uniform
from fedskew.methods import METHODS
from support.paths import TESTS

PLAIN = {"cross_entropy", "shuffle", "random", "fixed", "size", "plain", "sgd"}


def other(kind: Any, value: Any) -> Any:
    """Another legal value of an argument."""
    if get_origin(kind) is Literal:
        return next(word for word in get_args(kind) if word != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1 if isinstance(value, int) else value / 2 + 0.125
    if isinstance(value, tuple):
        return ("fc", "hidden*") if value else (1.0, 2.0)
    return 9 if isinstance(value, str) else Uniform()


def held(method: Method) -> dict[str, Any]:
    """The value of each field, by its place."""
    found = {f"{at}.{f.name}": getattr(one, f.name) for at, one in method.ingredients() for f in fields(one)}
    return found | {at: type(one).__name__ for at, one in method.ingredients()}


def changes(factory: Callable[..., Method], name: str, kind: Any, **given: Any) -> list[str]:
    """Fields and ingredients that an argument changes, with their value where it is not its own; or the refusal."""
    value = other(kind, inspect.signature(factory).parameters[name].default)
    try:
        before, after = held(factory(**given)), held(factory(**{**given, name: value}))
    except ConfigError as refusal:
        return [str(refusal)]
    new = {place: now for place, now in after.items() if place not in before or now != before[place]}
    inner = {place for place, now in new.items() if place.rpartition(".")[0] in new and now != value}
    told = [place if now == value else f"{place} {now}" for place, now in new.items() if place not in inner]
    return sorted(told + [f"without {place}" for place in before.keys() - after.keys() if place.count(".") == 1])


def test_each_argument_of_a_method_changes_what_is_written() -> None:
    """What is new is in the golden file once it is written again: `json.dumps(found, indent=0)`."""
    given = {name: dict[str, Any]() for name in METHODS} | {"fedetf alternating": {"personal": "alternating"}}
    found: dict[str, dict[str, list[str]]] = {}
    for name, beside in given.items():
        factory = METHODS[name.split()[0]]
        kinds = {word: kind for word, kind in get_type_hints(factory).items() if word != "return"}
        found[name] = {word: changes(factory, word, kind, **beside) for word, kind in kinds.items()}
    assert found == json.loads((TESTS / "golden/arguments.json").read_text(encoding="utf-8"))


def test_every_method_has_a_source_and_fedrl_alone_needs_rows_at_the_server() -> None:
    made = {name: method() for name, method in METHODS.items()}
    assert all(method.reference for method in made.values())
    needing = {name: max(c.auxiliary for c in method.components) for name, method in made.items()}
    assert {name: rows for name, rows in needing.items() if rows} == {"fedrl": 63}
    for bare in (m.fedbal(False, False), m.seolkim(False, False, False)):
        assert {c.name for c in bare.components} == PLAIN
