"""Every name that a command or a configuration file may hold, and its class. A file never holds a class path."""

from collections.abc import Mapping
from typing import Any

from fedskew.config.words import tupled
from fedskew.data import DATASETS
from fedskew.data.partitioners import PARTITIONERS
from fedskew.errors import ConfigError, FieldError, require, unknown
from fedskew.fields import hints_of
from fedskew.method import Method
from fedskew.method.component import SLOTS
from fedskew.methods import METHODS
from fedskew.models import MODELS
from fedskew.slots import INGREDIENTS

TABLES: dict[str, Mapping[str, Any]] = {  # slot -> name -> class
    "data": DATASETS,
    "partition": PARTITIONERS,
    "model": MODELS,
    **INGREDIENTS,
}


def make(slot: str, spec: str | Mapping[str, Any], place: str = "") -> Any:
    """The ingredient of a slot from its name, or from {"name": ..., field: value}. Raises ConfigError."""
    if not isinstance(spec, str):
        require(isinstance(spec, Mapping), slot, 'be a name, or {"name": ..., field: value}', spec)
        require(isinstance(spec.get("name", ""), str), f"the name of {slot}", "be a word", spec.get("name"))
    fields = {"name": spec} if isinstance(spec, str) else dict(spec)
    name = fields.pop("name", "")
    fields.pop("version", None)  # of the record, which `repeatable` compares
    kind = TABLES[slot].get(name)
    if kind is None:
        raise unknown({"data": "dataset", "parts": "part"}.get(slot, slot), name, TABLES[slot])
    place = place or (f"parts.{name}" if slot == "parts" else slot)
    for option, value in fields.items():
        if option not in hints_of(kind):
            raise unknown(f"option of {slot} {name!r}", option, hints_of(kind))
        if "tuple" in str(hints_of(kind)[option]):  # files have lists alone
            fields[option] = tupled(value)
    if isinstance(fields.get("base"), Mapping):
        fields["base"] = make(slot, fields["base"], f"{place}.base")
    try:
        return kind(**fields)
    except FieldError as error:
        raise ConfigError(error.named(f"{place}.{error.field}")) from None


def insist_on(content: Mapping[str, Any], whose: str, *names: str) -> None:
    """Raise ConfigError unless a configuration, or an entry of it, has entries of these names."""
    for name in names:
        require(name in content, whose, f"have the entry {name!r}", list(content))


def method_named(name: str) -> Method:
    """The method of the table. Raises ConfigError for an unknown name."""
    if made := METHODS.get(name):
        return made()
    raise unknown("method", name, METHODS)


def method_from(content: Mapping[str, Any]) -> Method:
    """The inverse of `method_spec`. Raises ConfigError."""
    require(isinstance(content, Mapping), "method", 'be {"name": ..., "parts": [...], slot: ...}', content)
    for key in content:
        if key not in (known := ("name", "parts", *SLOTS, "preset", "share")):
            raise unknown("entry of method", key, known)
    insist_on(content, "method", "name", "parts", *SLOTS)
    name, listed = content["name"], content["parts"]
    require(isinstance(name, str), "the name of a method", "be a word", name)
    require(isinstance(listed, list), "parts", "be a list", listed)
    reference = method_named(named).reference if (named := name.partition("(")[0]) in METHODS else ""
    parts = tuple(make("parts", p) for p in listed)
    pace = {"preset": content.get("preset", ""), "share": content.get("share")}
    return Method(name, parts, **{s: make(s, content[s]) for s in SLOTS}, reference=reference, **pace)
