"""What there is: every method's composition, disclosure and cost, as rows, as a page, and as citations."""

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import chain
from typing import Any

from fedskew import methods, plugins
from fedskew.catalogue.citations import bibtex, short, software
from fedskew.config.tables import TABLES, method_named
from fedskew.config.words import as_word
from fedskew.errors import ConfigError, unknown
from fedskew.fields import choices, documented, hints_of
from fedskew.method import SLOTS, Component, Method, Read, method_spec, suffices

SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Note|Example|References):$", re.M)
LEAVES, NOTHING = "leaves the client", "nothing beside the model"
ITSELF = "fedskew"  # cited by its own name
FACTS = {
    "uploads": "extra upload",
    "downloads": "extra download",
    "keeps": "state kept",
    "compute": "extra work",
}


def prose(thing: object) -> str:
    """The docstring of a class or a function up to its first section, such as Raises or Example."""
    return SECTION.split(inspect.cleandoc(thing.__doc__ or ""), maxsplit=1)[0].rstrip()


def _reads(components: Iterable[Component]) -> list[Read]:
    """What their server halves read of clients beside the model, each once."""
    return list(dict.fromkeys([read for c in components for read in c.reads]))


def _facts(components: Iterable[Component], fact: str) -> list[str]:
    """What they say of one of `FACTS`, each once."""
    return list(dict.fromkeys(statement for c in components if (statement := getattr(c, fact))))


def _papers(method: Method) -> list[str]:
    """The keys of its own paper and of those of its components; some are empty."""
    return [method.reference, *(c.reference for c in method.components)]


def catalogue() -> list[dict[str, Any]]:
    """Every method: its composition, what leaves the client, extra bytes each way, state, work, reference."""
    rows = []
    for name, factory in sorted(methods.METHODS.items()):
        method = factory()
        components = [component for _, component in method.ingredients()]
        rows.append(
            {
                "name": name,
                "serves": method.serves,
                "summary": (factory.__doc__ or "").strip().split("\n")[0],
                "slots": {slot: value for slot, value in method_spec(method).items() if slot != "name"},
                "reads": [str(read) for read in _reads(components)],
                "suffices": suffices(_reads(components)),
                "extra_upload": _facts(components, "uploads"),
                "extra_download": _facts(components, "downloads"),
                "state": _facts(components, "keeps"),
                "extra_compute": _facts(components, "compute"),
                "reference": short(method.reference),
            }
        )
    return rows


def named(slot: str, names: Sequence[str] = ()) -> list[tuple[str, str, list[str]]]:
    """(name, what it is, its options) of the slot "data", "partition" or "model", of all names or of those given.

    With names, options come with what they mean. Raises ConfigError for an unknown name.
    """
    table = TABLES[slot]
    for name in names:
        if name not in table:
            raise unknown({"data": "dataset"}.get(slot, slot), name, table)
    listed = []
    for name in dict.fromkeys(names or table):
        text, options = prose(table[name]), []
        for option, value, about, words in options_of(table[name]()):
            shown = "unset" if value in (None, "", ()) else getattr(value, "name", value)
            options.append(f"--{slot}.{option} = {shown}: {about}{words}" if names else f"{option} = {shown}")
        listed.append((name, text if names else text.split("\n\n")[0].replace("\n", " "), options))
    return listed


def options_of(made: Any) -> Iterator[tuple[str, Any, str, str]]:
    """Name, value and help of each field, and the words that it takes."""
    kind: Any = type(made)
    helps, hints = documented(kind), hints_of(kind)
    for f in fields(made):
        yield f.name, getattr(made, f.name), " ".join(helps.get(f.name, "").split()), choices(hints[f.name])


# The page of one method or ingredient


def explained(name: str) -> str:
    """What a method or an ingredient does: formula, options, what leaves the client, cost and reference, as text.

    Raises:
        ConfigError: an unknown name, with a suggestion.

    Example:
        >>> from fedskew.catalogue.listing import explained
        >>> print(explained("uniform").partition("\\n")[0])
        uniform, an ingredient: --weighting uniform
    """
    tables = {"method": methods.METHODS, **{slot: TABLES[slot] for slot in ("parts", *SLOTS)}}
    slot = plugins.holder(name, tables)
    if slot is None:
        raise unknown("method or ingredient", name, chain(*tables.values()))
    if slot == "method":
        return _explained_method(methods.METHODS[name], method_named(name))
    head = f"{name}, an ingredient: --{slot} {name}"
    made = TABLES[slot][name]()
    users = [n for n, f in sorted(methods.METHODS.items()) if name in {i.name for _, i in f().ingredients()}]
    lines = [f"used by: {', '.join(users) or 'no method of the table'}", *_costs([made], [made.reference])]
    return "\n".join([head, "", *lines, "", *_formula(made, slot if slot != "parts" else f"parts.{name}")])


def _explained_method(factory: Any, method: Method) -> str:
    plain = methods.METHODS["fedavg"]()
    same = {c.name for c in plain.components}
    ingredients = [(place, i) for place, i in method.ingredients() if i.name not in same] or list(method.ingredients())
    text = prose(factory)
    beyond = ", ".join(i.name for place, i in ingredients) if ingredients[0][1].name not in same else ""
    head = [f"{method.name}, a method: fedskew run {method.name}", "", text, ""]
    head += [f"beyond FedAvg: {beyond}"] if beyond else []
    pace = [
        f"{place}.{f.name} {getattr(i, f.name)}"
        for place, i in method.slots.items()
        for f in fields(i)
        if type(i) is type(plain.slots[place]) and getattr(i, f.name) != getattr(plain.slots[place], f.name)
    ]
    head += [f"settings of its own: {', '.join(pace)}"] if pace else []
    lines = [*head, *_costs([component for _, component in method.ingredients()], _papers(method))]
    for place, ingredient in ingredients:
        slot = "parts" if place.startswith("parts") else place
        lines += ["", f"{ingredient.name} (--{slot} {ingredient.name})", "", *_formula(ingredient, place)]
    return "\n".join([*lines, "", f"`fedskew run {method.name} --help` lists every option of a run"])


def _costs(components: Sequence[Component], keys: Sequence[str]) -> list[str]:
    """What leaves the client, what it costs, and the papers."""
    lines = [f"{LEAVES}: {'; '.join(map(str, _reads(components))) or NOTHING}"]
    lines += [f"{label}: {'; '.join(_facts(components, fact)) or 'none'}" for fact, label in FACTS.items()]
    rows = max(c.auxiliary for c in components)
    lines += [f"needs {rows} rows of each class at the server"] if rows else []
    return lines + [f"paper: {short(key)}" for key in dict.fromkeys(filter(None, keys))]


def _formula(made: Component, place: str) -> list[str]:
    """The docstring up to its example, and the options with the values that hold here."""
    options = [f"--{place}.{name} = {as_word(value)}: {about}{words}" for name, value, about, words in options_of(made)]
    return [*_described(type(made)), *([""] if options else []), *options]


def _described(kind: type) -> list[str]:
    """The lines of a docstring up to its example."""
    return inspect.cleandoc(kind.__doc__ or "").partition("\n\nExample:")[0].splitlines()


def citations(names: list[str]) -> list[str]:
    """BibTeX of methods, ingredients, datasets and fedskew itself, each paper once.

    A method has its own paper, and those of its components that name one. Raises ConfigError for an unknown name, and
    for one without a paper.
    """
    keys = [named for name in names for named in _cited(name)]
    return [software() if key == ITSELF else bibtex(key) for key in dict.fromkeys(keys)]


def _cited(name: str) -> list[str]:
    if name == ITSELF:
        return [ITSELF]
    tables = {"method": methods.METHODS, **TABLES}
    slot = plugins.holder(name, tables)
    if slot is None:
        raise unknown("method, ingredient or dataset", name, [ITSELF, *chain(*tables.values())])
    if slot == "method":
        keys = _papers(method_named(name))
    else:
        keys = [getattr(TABLES[slot][name], "reference", "")]
    if not any(keys):
        hint = "; cite where the file comes from" if slot == "data" else ""
        raise ConfigError(f"{name!r} has no paper{hint}")
    return [*filter(None, keys)]
