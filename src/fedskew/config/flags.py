"""From the words of a command line to an experiment, in two passes.

Pass one reads the METHOD, ``--from`` and the names (``--data digits``, ``--parts a,b``, ``--weighting.base size``): the
composition. Pass two looks up the other flags among the fields of what was chosen, and puts the values in.
"""

import dataclasses
import difflib
import re
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, ValuesView
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from fedskew.config import presets
from fedskew.config.experiment import Experiment, load
from fedskew.config.tables import TABLES, make, method_named
from fedskew.config.words import ALIASES, SHORT, USUAL, Pair, check_once, flag_of, parse, scan, split
from fedskew.errors import ConfigError, FedskewError, FieldError, UnknownOption
from fedskew.fields import documented, hints_of
from fedskew.method import SLOTS, Method, renamed
from fedskew.methods import METHODS

HIDDEN = ("method", "fingerprint")  # fields of an experiment that are no options
SLOTTED = ("data", "partition", "model", *SLOTS)
NAMED = (*SLOTTED, "parts", "weighting.base", "partition.base", "preset")  # --NAMED NAME chooses what stands there


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


class Options(Mapping[str, Option]):
    """The options of a composition by flag or alias. Each is made from its field when it is asked for."""

    def __init__(self, experiment: Experiment) -> None:
        # what the flags of a dataclass's fields begin with -> where it stands, and itself
        self.holders: dict[str, tuple[tuple[str, ...], Any]] = {"": ((), experiment)}
        slots = experiment.method.slots.items()
        todo: list[tuple[str, tuple[str, ...], Any]] = [("", (), experiment)]
        todo += [(slot, ("method", slot), ingredient) for slot, ingredient in slots]
        todo += [(f"parts.{part.name}", ("method", "parts", part.name), part) for part in experiment.method.parts]
        for i, (prefix, place, value) in enumerate(todo, 1):
            self.holders[prefix] = place, value
            for f in reversed(dataclasses.fields(value)):
                if dataclasses.is_dataclass(inner := getattr(value, f.name)) and (prefix or f.name not in HIDDEN):
                    todo.insert(i, (f"{prefix}.{f.name}".lstrip("."), (*place, f.name), inner))

    def __getitem__(self, flag: str) -> Option:
        full = ALIASES.get(flag, flag)
        prefix, _, name = full[2:].rpartition(".")
        place, holder = self.holders[prefix]
        if not prefix:
            name = flag if "_" in name else name.replace("-", "_")
        kind: Any = type(holder)
        hint = hints_of(kind)[name]
        if name in HIDDEN or dataclasses.is_dataclass(value := getattr(holder, name)):
            raise KeyError(flag)
        return Option(full, (*place, name), hint, value, kind)

    def __iter__(self) -> Iterator[str]:
        for prefix, (_, holder) in self.holders.items():
            for f in dataclasses.fields(holder):
                if f.name not in HIDDEN and not dataclasses.is_dataclass(getattr(holder, f.name)):
                    yield f"--{prefix}.{f.name}" if prefix else flag_of(f.name)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def options_of(experiment: Experiment) -> ValuesView[Option]:
    """Every flag that sets a field of this composition."""
    return Options(experiment).values()


def experiment_from(words: Sequence[str]) -> Experiment:
    """The experiment that a command line names: METHOD and flags, as after ``fedskew run``.

    Raises:
        ConfigError: one line for every mistake.
    """
    return experiment_of(*split(words))


def experiment_of(positional: Sequence[Any], flags: Sequence[Pair], others: Collection[str] = ()) -> Experiment:
    """The experiment of a METHOD and flags with their values.

    Args:
        positional: the METHOD, its name or itself; none beside ``--from``.
        flags: flags or aliases, each with a word or with a value of the option's type.
        others: other flags that there are, of which one may have been meant by an unknown one.

    Raises:
        ConfigError: as `experiment_from`.
    """
    check_once(flags)
    flags = _parted(flags)
    return with_flags(compose(positional, flags), flags, others)


def with_flags(base: Experiment, flags: Iterable[Pair], others: Collection[str] = ()) -> Experiment:
    """The composition with the values of those flags that are no names. Raises ConfigError."""
    options, changes, typed = Options(base), dict[str, Any](), list[str]()
    for flag, value in flags:
        if flag[2:] in NAMED or flag == "--from":
            continue
        option = options.get(flag) or unknown_option(flag, options, others)
        *holders, name = option.place
        inner = changes
        for holder in holders:
            inner = inner.setdefault(holder, {})
        inner[name] = parse(flag, option.type, value)
        typed.append(flag)
    with naming_flags(base, typed):
        return _with(base, changes) if changes else base


def _parted(flags: Sequence[Pair]) -> list[Pair]:
    """``--epochs 0.5`` as ``--pace.part 0.5``, where no pace is named."""
    parts = {} if "--pace" in dict(flags) else dict.fromkeys(("--epochs", "--pace.epochs"), "--pace.part")
    return [(parts.get(flag, flag) if re.fullmatch(r"\d*\.\d+", str(value)) else flag, value) for flag, value in flags]


# Pass one: the composition


def compose(positional: Sequence[Any], flags: Iterable[Pair]) -> Experiment:
    """The experiment of METHOD, ``--from`` and the names among the flags; other flags are not read.

    Raises:
        ConfigError: no METHOD, more than one, or a name that is unknown or does not fit.
    """
    pairs = list(flags)
    if len(positional) > 1:
        raise ConfigError(f"one METHOD is run at a time; got {', '.join(positional)}")
    experiment = _begin(positional, [value for flag, value in pairs if flag == "--from"])
    with naming_flags(None):
        for flag, value in sorted(pairs, key=_preset_first):
            if flag[2:] in NAMED:
                named = isinstance(value, str | int | float | None)
                experiment = _choose(experiment, flag[2:], str(value) if named else value)
    typed = {ALIASES.get(flag, flag): flag for flag, _ in pairs}
    return experiment if "--pace" in typed else _lengthened(experiment, typed)


def _preset_first(pair: tuple[str, Any]) -> bool:
    """A preset sets the pace of METHOD, and an ingredient that is named replaces that."""
    return pair[0] != "--preset"


def _lengthened(experiment: Experiment, typed: Mapping[str, str]) -> Experiment:
    """With the pace that ``--steps`` or ``--epochs 0.5`` means; ``typed`` are the flags by their full names.

    Raises ConfigError where the method has a schedule that this would replace, or where nothing reads ``--epochs``.
    """
    for kind in ("steps", "part"):
        pace = experiment.method.pace
        if f"--pace.{kind}" not in typed or hasattr(pace, kind):
            continue
        flag = typed[f"--pace.{kind}"] if kind == "steps" else "--epochs with a part"
        if pace.name not in ("fixed", "steps", "part"):
            hint = f"add --pace {kind} to replace it"
            raise ConfigError(f"{flag} must go with a pace without a schedule of its own; got {pace.name!r}; {hint}")
        experiment = _choose(experiment, "pace", kind)
    pace = experiment.method.pace
    if "--pace.epochs" in typed and pace.name in ("steps", "part"):
        why = "the steps of a round are given, and epochs are not read"
        raise ConfigError(f"{typed['--pace.epochs']} must not go with the pace {pace.name!r}: {why}")
    return experiment


def outline(words: Sequence[str]) -> Experiment:
    """The composition of half a command line: what is unknown or wrong is left out, FedAvg where METHOD is missing."""
    pairs = [(flag, value) for flag, value in scan(words) if value is not None]
    method = next((value for flag, value in pairs if not flag and value in METHODS), "")
    try:
        experiment = _begin([method] if method else [], [value for flag, value in pairs if flag == "--from"])
    except FedskewError:
        experiment = _begin([method or "fedavg"], [])
    for flag, value in sorted(pairs, key=_preset_first):
        with suppress(FedskewError):
            experiment = _choose(experiment, flag[2:], value) if flag[2:] in NAMED else experiment
    return experiment


def _begin(positional: Sequence[Any], sources: list[str]) -> Experiment:
    if sources:
        experiment = load(sources[-1])
        return replace(experiment, method=method_named(positional[0])) if positional else experiment
    if not positional:
        raise ConfigError("name a METHOD (see `fedskew methods`), or give --from config.json or --resume RUN")
    given = positional[0]
    return Experiment(method=given if isinstance(given, Method) else method_named(given))


def _choose(experiment: Experiment, slot: str, value: Any) -> Experiment:
    """Put the ingredient of this name into its slot; a value that is no word is the ingredient itself."""
    method = experiment.method
    if slot == "preset":
        return replace(experiment, method=presets.applied(value, method))
    if slot in ("data", "partition", "model"):
        return replace(experiment, **{slot: make(slot, value) if isinstance(value, str) else value})
    if slot == "partition.base":
        return replace(experiment, partition=_based(experiment.partition, "partition", value, "shared"))
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
def naming_flags(experiment: Experiment | None, typed: Iterable[str] = ()) -> Iterator[None]:
    """Name a field's mistake by its flag: ``--server.lr must be positive``, or ``--lr`` where that was ``typed``."""
    try:
        yield
    except FedskewError as error:
        message = flagged(str(error), experiment, set(typed))
        if message == str(error):
            raise
        raise (ConfigError if isinstance(error, FieldError) else type(error))(message) from None


def flagged(text: str, experiment: Experiment | None, typed: Collection[str] = ()) -> str:
    """A sentence of the core with the flags of the fields that it names: ``Csv.exclude`` becomes ``--data.exclude``.

    Of several ingredients of one class the one whose option was typed is named, by the name that was typed.
    """
    flags = {f"Method.{slot}": f"--{slot}" for slot in NAMED}
    for option in options_of(experiment) if experiment else ():
        as_typed = next((flag for flag in option.flags if flag in typed), "")
        for kind in option.owner.__mro__:
            field = f"{kind.__name__}.{option.place[-1]}"
            flags[field] = as_typed or flags.get(field, option.flags[0])
    return re.sub(r"\b[A-Z]\w*\.[a-z]\w*", lambda match: flags.get(match[0], match[0]), text)


def unknown_option(flag: str, options: Collection[str], others: Iterable[str] = ()) -> typing.NoReturn:
    """Raise UnknownOption for a flag that this composition lacks, with what was probably meant."""
    slot, _, name = ALIASES.get(flag, flag)[2:].partition(".")
    if flag in ALIASES and slot in SLOTS:
        raise UnknownOption(f"{flag} has no meaning here: {slot} is set by an ingredient without {name!r}; see --help")
    flag, of_slot = ALIASES.get(flag, flag), [f for f in options if f.startswith(f"--{slot}.")]
    known = [*options, *ALIASES, *others, *(f"--{s}" for s in (*SLOTTED, "parts") if not name or s != slot)]
    otherwise = "; see `fedskew run METHOD --help`"
    if name and slot in SLOTTED:
        otherwise = f": the {slot} of this run takes {', '.join(of_slot) or 'no options'}"
    raise UnknownOption(f"unknown option {flag!r}" + (_meant(flag, known, options) or otherwise), flag[2:])


def _meant(flag: str, known: list[str], options: Iterable[str]) -> str:
    """ "; did you mean ...?": the same ending here, or in an ingredient that is not chosen; else a near flag."""
    if here := USUAL.get(flag.strip("-").replace("_", "-").lower()):
        return f"; did you mean {' or '.join(map(repr, here.split()))}?"
    slot, _, end = flag[2:].rpartition(".")
    kind, _, part = slot.partition(".")
    if kind == "parts" and part in TABLES["parts"] and end in hints_of(TABLES["parts"][part]):
        having = [name for name, made in METHODS.items() if any(p.name == part for p in made().parts)]
        written = (
            f"or write {' or '.join(having[:3])} with brackets, as in {having[0]}({flag[2:]}=VALUE)" if having else ""
        )
        return f"; it needs the part {part}: add --parts {part}{f', {written}' * bool(having)}"
    same = [f for f in options if f.rpartition(".")[2] == end]
    if same:
        return f"; did you mean {' or '.join(map(repr, same))}?"
    near = difflib.get_close_matches(flag, known, n=1, cutoff=0.6)
    elsewhere = [(s, n) for s in (*SLOTTED, "parts") for n, kind in TABLES[s].items() if end in hints_of(kind)]
    if elsewhere and not (near and difflib.SequenceMatcher(None, flag, near[0]).ratio() > 0.8):
        if others := [name for s, name in elsewhere if s == slot]:
            return f": the {slot} of this run has no {end}; --{slot} {' or '.join(others[:3])} has"
        flags = [
            f"--{s}.{n}.{end} with --{s} {n}" if s == "parts" else f"--{s}.{end} with --{s} {n}" for s, n in elsewhere
        ]
        return f"; did you mean {', or '.join(flags[:3])}?"
    return f"; did you mean {near[0]!r}?" if near else ""
