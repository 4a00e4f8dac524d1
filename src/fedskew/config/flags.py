"""From the words of a command line to an experiment, in two passes.

Pass one reads the METHOD, ``--from`` and the names (``--data digits``, ``--parts a,b``, ``--weighting.base size``): the
composition. Pass two makes one option of every field of what was chosen, and puts the values in.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from fedskew.config.experiment import Experiment, load
from fedskew.config.presets import PRESETS, applied
from fedskew.config.tables import TABLES, make, method_named
from fedskew.config.words import ALIASES, SHORT, Pair, parse, scan, split
from fedskew.errors import ConfigError, FedskewError, FieldError
from fedskew.fields import documented, hints_of, kind_of
from fedskew.method import SLOTS, Method, renamed
from fedskew.methods import METHODS

__all__ = [
    "NAMED", "Option", "assign", "compose", "experiment_from", "flagged", "is_name", "options_of", "outline", "spoken",
    "table_names", "table_of", "unknown_option", "wanted",
]  # fmt: skip

HIDDEN = ("method", "data", "partition", "model", "fingerprint")  # fields of an experiment that are no options
SLOTTED = ("data", "partition", "model", *SLOTS)
NAMED = (*SLOTTED, "parts", "weighting.base", "partition.base", "preset")  # --NAMED NAME chooses what stands there
ELSEWHERE = {  # flags of the command that are no fields, and what they want
    "--from": "a run folder or its config.json",
    "--resume": "a run folder",
    "--out": "a folder, or a picture's file",
    "--figure": "a figure of docs/guide/figures.md",
}


@dataclass(frozen=True)
class Option:
    """One flag: where its value goes and how it is read."""

    flag: str
    place: tuple[str, ...]  # ("method", "weighting", "beta") or ("rounds",)
    type: Any  # with its limits
    default: Any
    owner: type  # the class of the field

    @property
    def help(self) -> str:
        """The field's docstring. It is looked up when somebody reads it: it takes the source of the class, parsed."""
        return documented(self.owner).get(self.place[-1], "")

    @property
    def flags(self) -> list[str]:
        """The alias first, where there is one."""
        return [SHORT[self.flag], self.flag] if self.flag in SHORT else [self.flag]

    @property
    def section(self) -> str:
        """What the option belongs to: "run", "data", "server", "parts.proximal"."""
        words = self.flag[2:].split(".")
        return "run" if len(words) == 1 else ".".join(words[:2]) if words[0] == "parts" else words[0]


def experiment_from(words: Sequence[str]) -> Experiment:
    """The experiment that a command line names: METHOD and flags, as after ``fedskew run``.

    Raises:
        ConfigError: one line for every mistake.
    """
    positional, flags = split(words, wanted=lambda flag: wanted(flag, words))
    flags = list(_parted(flags))
    base = compose(positional, flags)
    table = table_of(base)
    rest = [(f, v) for f, v in flags if not is_name(f) and f != "--from"]
    found = {flag: table.get(ALIASES.get(flag, flag)) or unknown_option(flag, table) for flag, _ in rest}
    return assign(base, {flag: parse(flag, found[flag].type, value) for flag, value in rest})


def _parted(flags: Sequence[Pair]) -> Iterator[Pair]:
    """``--epochs 0.5`` as ``--pace.part 0.5``, where no pace is named."""
    paced = any(flag == "--pace" for flag, _ in flags)
    for flag, value in flags:
        if paced or ALIASES.get(flag, flag) != "--pace.epochs" or not re.fullmatch(r"\d*\.\d+", value):
            yield flag, value
        else:
            yield "--pace.part", value


def is_name(flag: str) -> bool:
    """Whether a flag chooses an ingredient by its name."""
    return flag[2:] in NAMED


def table_names(slot: str) -> list[str]:
    """The names that a slot takes."""
    return sorted(PRESETS if slot == "preset" else TABLES[slot])


# Pass one: the composition


def compose(positional: Sequence[str], flags: Iterable[Pair]) -> Experiment:
    """The experiment of METHOD, ``--from`` and the names among the flags; other flags are not read.

    Raises:
        ConfigError: no METHOD, more than one, or a name that is unknown or does not fit.
    """
    pairs = list(flags)
    if len(positional) > 1:
        raise ConfigError(f"one METHOD is run at a time; got {', '.join(positional)}")
    experiment = _begin(positional, [value for flag, value in pairs if flag == "--from"])
    with spoken(None):
        for flag, value in _in_order(pairs):
            if is_name(flag):
                experiment = _choose(experiment, flag[2:], value)
    named = {ALIASES.get(flag, flag): flag for flag, _ in pairs}
    return experiment if "--pace" in named else _lengthened(experiment, named)


def _lengthened(experiment: Experiment, named: Mapping[str, str]) -> Experiment:
    """With the pace that ``--steps`` or ``--epochs 0.5`` means; ``named`` are the flags as they were typed.

    Raises ConfigError where the method has a schedule that this would replace, or where nothing reads ``--epochs``.
    """
    for kind in ("steps", "part"):
        pace = experiment.method.pace
        if f"--pace.{kind}" not in named or hasattr(pace, kind):
            continue
        typed = named[f"--pace.{kind}"] if kind == "steps" else "--epochs with a part"
        if pace.name not in ("fixed", "steps", "part"):
            hint = f"add --pace {kind} to replace it"
            raise ConfigError(f"{typed} must go with a pace without a schedule of its own; got {pace.name!r}; {hint}")
        experiment = _choose(experiment, "pace", kind)
    pace = experiment.method.pace
    if "--pace.epochs" in named and pace.name in ("steps", "part"):
        told = "the steps of a round are given, and epochs are not read"
        raise ConfigError(f"{named['--pace.epochs']} must not go with the pace {pace.name!r}: {told}")
    return experiment


def outline(words: Sequence[str], bare: Collection[str] = ()) -> Experiment:
    """The composition of half a command line: what is unknown or wrong is left out, FedAvg where METHOD is missing."""
    pairs = [(flag, value) for flag, value in scan(words, bare) if value is not None]
    method = next((value for flag, value in pairs if not flag and value in METHODS), "")
    sources = [value for flag, value in pairs if flag == "--from"]
    try:
        experiment = _begin([method] if method else [], sources)
    except FedskewError:
        experiment = _begin([method or "fedavg"], [])
    for flag, value in _in_order(pairs):
        with suppress(FedskewError):
            experiment = _choose(experiment, flag[2:], value) if is_name(flag) else experiment
    return experiment


def _in_order(pairs: Iterable[Pair]) -> list[Pair]:
    """A preset first: it sets the pace of METHOD, and an ingredient that is named replaces that."""
    return sorted(pairs, key=lambda pair: pair[0] != "--preset")


def _begin(positional: Sequence[str], sources: list[str]) -> Experiment:
    if sources:
        experiment = load(sources[-1])
        return replace(experiment, method=method_named(positional[0])) if positional else experiment
    if not positional:
        raise ConfigError("name a METHOD (see `fedskew methods`), or give --from config.json or --resume RUN")
    return Experiment(method=method_named(positional[0]))


def _choose(experiment: Experiment, slot: str, value: str) -> Experiment:
    """Put the ingredient of this name into its slot."""
    method = experiment.method
    if slot == "preset":
        return replace(experiment, method=applied(value, method))
    if slot in ("data", "partition", "model"):
        return replace(experiment, **{slot: make(slot, value)})
    if slot == "partition.base":
        return replace(experiment, partition=_based(experiment.partition, "partition", value, "longtail or shared"))
    if slot == "parts":
        parts = tuple(make("parts", name) for name in value.split(",") if name and name != "none")
        return replace(experiment, method=_with_parts(method, parts))
    if slot == "weighting.base":
        weighting = _based(method.weighting, "weighting", value, "a weighting that wraps another")
        return replace(experiment, method=method.with_(weighting=weighting))
    return replace(experiment, method=method.with_(**{slot: _paced(method, slot, make(slot, value))}))


def _paced(method: Method, slot: str, new: Any) -> Any:
    """The ingredient; another pace keeps the method's epochs, rate, decay and batch size, so that one thing changes."""
    if slot != "pace":
        return new
    kept = [*(f.name for f in dataclasses.fields(SLOTS["pace"])), "batch_size"]
    return replace(new, **{n: getattr(method.pace, n) for n in kept if hasattr(method.pace, n) and hasattr(new, n)})


def _based(outer: Any, slot: str, value: str, right: str) -> Any:
    """A wrapper around the ingredient of this name."""
    if not hasattr(outer, "base"):
        raise ConfigError(f"--{slot}.base must go with {right}; got {outer.name!r}")
    return replace(outer, base=make(slot, value))


def _with_parts(before: Method, parts: tuple[Any, ...]) -> Method:
    """The method with other parts, named after the method of the table: what records it must say so."""
    bare = before.name.partition("(")[0]
    after = before.with_(parts=parts)
    return after.with_(name=renamed(method_named(bare) if bare in METHODS else before, after.parts))


# Pass two: the fields


def options_of(experiment: Experiment) -> Iterator[Option]:
    """Every flag that sets a field of this composition."""
    yield from _of_run(experiment)
    for slot in ("data", "partition", "model"):
        yield from _fields(getattr(experiment, slot), (slot,), f"--{slot}")
    for slot, ingredient in experiment.method.slots.items():
        yield from _fields(ingredient, ("method", slot), f"--{slot}")
    for part in experiment.method.parts:
        yield from _fields(part, ("method", "parts", part.name), f"--parts.{part.name}")


def table_of(experiment: Experiment) -> dict[str, Option]:
    """`options_of` by flag."""
    return {o.flag: o for o in options_of(experiment)}


def _of_run(experiment: Experiment) -> Iterator[Option]:
    """Options of the run itself; those of a field that is a value of its own come last."""
    kind: Any = type(experiment)
    hints = hints_of(kind)
    shown = {f.name: getattr(experiment, f.name) for f in dataclasses.fields(experiment) if f.name not in HIDDEN}
    inner = {name: value for name, value in shown.items() if dataclasses.is_dataclass(value)}
    for name, value in shown.items():
        if name not in inner:
            yield Option(f"--{name.replace('_', '-')}", (name,), hints[name], value, kind)
    for name, value in inner.items():
        yield from _fields(value, (name,), f"--{name}")


def _fields(ingredient: Any, place: tuple[str, ...], prefix: str) -> Iterator[Option]:
    kind: Any = type(ingredient)
    hints = hints_of(kind)
    for f in dataclasses.fields(ingredient):
        value, inner, flag = getattr(ingredient, f.name), (*place, f.name), f"{prefix}.{f.name}"
        if dataclasses.is_dataclass(value):
            yield from _fields(value, inner, flag)
        else:
            yield Option(flag, inner, hints[f.name], value, kind)


def assign(experiment: Experiment, values: Mapping[str, Any]) -> Experiment:
    """The experiment with these values of its options, by flag or alias; all at once, whatever their order.

    Raises:
        ConfigError: a value that breaks a rule of its field, which is named as in ``values``.
    """
    table = table_of(experiment)
    changes: dict[str, Any] = {}
    for flag, value in values.items():
        place = table[ALIASES.get(flag, flag)].place
        inner = changes
        for name in place[:-1]:
            inner = inner.setdefault(name, {})
        inner[place[-1]] = value
    with spoken(experiment, values):
        return _with(experiment, changes) if changes else experiment


def _with(holder: Any, changes: Mapping[str, Any]) -> Any:
    """A dataclass with other values, those of the dataclasses in it first."""
    values = {}
    for name, change in changes.items():
        now = getattr(holder, name)
        if name == "parts":
            now = tuple(_with(p, change[p.name]) if p.name in change else p for p in now)
        values[name] = now if name == "parts" else _with(now, change) if dataclasses.is_dataclass(now) else change
    return replace(holder, **values)


# What is said of a mistake


@contextmanager
def spoken(experiment: Experiment | None, typed: Iterable[str] = ()) -> Iterator[None]:
    """Name a field's mistake by its flag: ``--server.lr must be positive``, or ``--lr`` where that was ``typed``."""
    try:
        yield
    except FieldError as error:
        flag = _flag_of(error, experiment, set(typed))
        raise (ConfigError(flagged(error.named(flag), experiment)) if flag else error) from None
    except FedskewError as error:
        told = flagged(str(error), experiment)
        if told == str(error):
            raise
        raise type(error)(told) from None


def flagged(text: str, experiment: Experiment | None) -> str:
    """A sentence of the core with the flags of the fields that it names: ``Csv.exclude`` becomes ``--data.exclude``."""
    if experiment is None:
        return text
    flags = {f"{kind.__name__}.{o.place[-1]}": o.flags[0] for o in options_of(experiment) for kind in o.owner.__mro__}
    return re.sub(r"\b[A-Z]\w*\.[a-z]\w*", lambda found: flags.get(found[0], found[0]), text)


def _flag_of(error: FieldError, experiment: Experiment | None, typed: set[str]) -> str | None:
    """The flag of a field's mistake; of several ingredients of one class the one whose option was typed."""
    if error.owner == "Method" and error.field in NAMED:
        return f"--{error.field}"
    if experiment is None:
        return None
    found = [
        o
        for o in options_of(experiment)
        if o.place[-1] == error.field and error.owner in {kind.__name__ for kind in o.owner.__mro__}
    ]
    told = [flag for o in found for flag in o.flags if flag in typed]
    return told[0] if told else found[0].flags[0] if found else None


def wanted(flag: str, words: Sequence[str]) -> str:
    """ ", a whole number: number of rounds": what a flag without its value wants, as far as is known."""
    if is_name(flag):
        return f", one of {', '.join(table_names(flag[2:].removesuffix('.base')))}"
    if flag in ELSEWHERE:
        return f", {ELSEWHERE[flag]}"
    table = table_of(outline(words))
    found = table.get(ALIASES.get(flag, flag))
    if found is None:
        unknown_option(flag, table)
    kind = "commas between" if typing.get_origin(found.type) is tuple else kind_of(found.type)
    return f", {kind}: {' '.join(found.help.split())}"


def unknown_option(flag: str, table: Mapping[str, Option], others: Iterable[str] = ELSEWHERE) -> typing.NoReturn:
    """Raise ConfigError for a flag that this composition lacks, with what was probably meant."""
    full = ALIASES.get(flag, flag)
    slot, _, name = full[2:].partition(".")
    if flag in ALIASES and slot in SLOTS:
        raise ConfigError(f"{flag} has no meaning here: {slot} is set by an ingredient without {name!r}; see --help")
    own = [f for f in table if f.startswith(f"--{slot}.")]
    known = [*table, *ALIASES, *others, *(f"--{s}" for s in (*SLOTTED, "parts") if not name or s != slot)]
    otherwise = "; see `fedskew run METHOD --help`"
    if name and slot in SLOTTED:
        otherwise = f": the {slot} of this run takes {', '.join(own) or 'no options'}"
    raise ConfigError(f"unknown option {flag!r}" + (_meant(full, known, table) or otherwise))


def _meant(flag: str, known: list[str], table: Mapping[str, Option]) -> str:
    """ "; did you mean ...?": the same ending here, or in an ingredient that is not chosen; else a near flag."""
    slot, _, end = flag[2:].rpartition(".")
    same = [f for f in table if f.rpartition(".")[2] == end]
    if same:
        return f"; did you mean {' or '.join(map(repr, same))}?"
    near = difflib.get_close_matches(flag, known, n=1, cutoff=0.6)
    elsewhere = [(s, n) for s in (*SLOTTED, "parts") for n, kind in TABLES[s].items() if end in hints_of(kind)]
    if elsewhere and not (near and difflib.SequenceMatcher(None, flag, near[0]).ratio() > 0.8):
        elsewhere.sort(key=lambda place: place[0] != slot)
        told = [
            f"--{s}.{n}.{end} with --{s} {n}" if s == "parts" else f"--{s}.{end} with --{s} {n}" for s, n in elsewhere
        ]
        return f"; did you mean {', or '.join(told[:3])}?"
    return f"; did you mean {near[0]!r}?" if near else ""
