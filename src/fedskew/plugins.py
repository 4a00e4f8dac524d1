"""Plug-ins: installed packages that bring commands, methods, datasets and partitioners of their own.

A package names one module by an entry point of the group "fedskew.plugins". The module has any of the tables
``commands``, ``methods``, ``datasets`` and ``partitioners``, each from a name to a thing, or to the place "module:name"
of one. Plug-ins are looked up where a name is none of fedskew's own, and where all names are listed: the look takes
time, and imports what others wrote. One that is wrong is a warning, and everything else goes on.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from itertools import chain
from typing import Any, NamedTuple, TypeVar, cast

from fedskew.errors import one_line

GROUP = "fedskew.plugins"
T = TypeVar("T")


class Plugin(NamedTuple):
    """An installed package with an entry point for fedskew."""

    distribution: str  # its name and version
    module: str


class Brought(NamedTuple):
    """Something that a plug-in brings."""

    distribution: str
    name: str
    thing: Any


@cache
def installed() -> tuple[Plugin, ...]:
    """Every plug-in, by distribution. Nothing of them is imported."""
    from importlib.metadata import entry_points  # takes longer than all else that the command imports to start

    entries = ((entry.dist, entry.value) for entry in entry_points(group=GROUP))
    return tuple(sorted({Plugin(f"{dist.name} {dist.version}", module) for dist, module in entries if dist}))


@cache
def packages() -> frozenset[str]:
    """The top-level packages of all plug-ins: their code is no library's, and is part of the address of a run."""
    return frozenset(plugin.module.partition(".")[0] for plugin in installed())


@cache
def _modules() -> tuple[tuple[str, Any], ...]:
    """(distribution, module) of the plug-ins that can be imported."""
    modules = []
    for distribution, module in installed():
        try:
            modules.append((distribution, import_module(module)))
        except Exception as error:
            leave_out(f"the plug-in {distribution} cannot be imported", error)
    return tuple(modules)


def leave_out(message: str, error: Exception | str) -> None:
    """Warn of something that a plug-in brings and nobody gets."""
    why = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    warnings.warn(one_line(f"{message}; {why}"), RuntimeWarning, stacklevel=3)


def brought(table: str) -> Iterator[Brought]:
    """What the plug-ins have in a table, such as "methods"."""
    for distribution, module in _modules():
        named = getattr(module, table, {})
        if isinstance(named, Mapping):
            yield from (Brought(distribution, str(name), thing) for name, thing in named.items())
        else:
            leave_out(f"the plug-in {distribution} has no {table}", f"they must be a dictionary; got {named!r}")


def distinct(what: str, shipped: Mapping[str, Any], given: Iterable[Brought]) -> dict[str, Brought]:
    """What is brought, by name: a name of fedskew's own, or of another plug-in, is left out."""
    accepted: dict[str, Brought] = {}
    for candidate in given:
        if candidate.name in accepted and accepted[candidate.name].thing is candidate.thing:
            continue
        if candidate.name in shipped or candidate.name in accepted:
            whose = accepted[candidate.name].distribution if candidate.name in accepted else "fedskew"
            rule = f"the {what} {candidate.name!r} of {candidate.distribution} must have another name"
            leave_out(rule, f"{whose} has one of this name")
        else:
            accepted[candidate.name] = candidate
    return accepted


def holder(name: str, tables: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The key of the first table that has a name. Plug-ins are asked where it is none of fedskew's own."""
    shipped = (key for key, table in tables.items() if name in getattr(table, "own", table))
    return next(chain(shipped, (key for key, table in tables.items() if name in table)), None)


def at(place: str) -> Any:
    """What stands at "module:name". Raises whatever its import raises."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


@dataclass(eq=False)
class Registry(MutableMapping[str, T]):
    """Things by name: fedskew's own, and behind them those of plug-ins.

    Attributes:
        what: What a message calls one of them: "method".
        own: fedskew's own.
        kind: What calling one of them without arguments gives.
        given: What plug-ins bring; by default what stands in their tables of this name, such as "methods".
    """

    what: str
    own: dict[str, T]
    kind: type
    given: Callable[[], Iterable[Brought]] | None = None

    @cached_property
    def added(self) -> dict[str, Brought]:
        """Those of plug-ins, which can be made and are called as they say themselves."""
        given, accepted = self.given() if self.given else brought(f"{self.what}s"), {}
        for name, (distribution, _, thing) in distinct(self.what, self.own, given).items():
            message = f"the {self.what} {name!r} of {distribution} is left out"
            try:
                thing = at(thing) if isinstance(thing, str) else thing
                made = thing()
            except Exception as error:
                leave_out(message, error)
                continue
            if isinstance(made, self.kind) and getattr(made, "name", "") == name:
                accepted[name] = Brought(distribution, name, thing)
            else:
                rule = f"called without arguments, it must give a {self.kind.__name__} of this name"
                leave_out(message, f"{rule}; got {made!r}")
        return accepted

    def __getitem__(self, name: str) -> T:
        return self.own[name] if name in self.own else cast(T, self.added[name].thing)

    def __setitem__(self, name: str, thing: T) -> None:
        self.own[name] = thing

    def __delitem__(self, name: str) -> None:
        del self.own[name]

    def __iter__(self) -> Iterator[str]:
        yield from (*self.own, *self.added)

    def __len__(self) -> int:
        return len(self.own) + len(self.added)
