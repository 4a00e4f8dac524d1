"""Fields of frozen dataclasses as options: types and limits stand on the field, and are checked in one place.

    lr: Annotated[float, Above(0)] = 1.0  # and its docstring below: the help of --server.lr

`check` holds a value to both; the command makes flags, help and parsing from the same declarations.
"""

import dataclasses
import difflib
import functools
import itertools
import numbers
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, Literal

from fedskew.errors import FieldError

LARGEST, INFINITY = 3.4e38, float("inf")  # of float32
MOST = 10**6  # of a whole number with a limit: it becomes a loop or an array
EXACT = 2**31  # a whole number in the place of a number: times a count of rows it still fits int64
UNION = (typing.Union, types.UnionType)
OMITTED = "omit_if_default"  # mark of a field that records leave out while it has its default


SEPARATED = "comma-separated"
Listed = Annotated[str, SEPARATED]  # names in one word, "age,sex": one value of an option


@dataclass(frozen=True)
class Limit:
    """An interval for the numbers of a field: ``Annotated[float, AtLeast(0)]``.

    Attributes:
        low: Lower end.
        high: Upper end.
        ends: Its brackets: "[)" includes low and excludes high.
        infinite: Whether infinity is allowed where nothing bounds it from above.
        hint: A suggestion for the error, for example "for example 10".
    """

    low: float
    high: float = INFINITY
    ends: str = "[]"
    infinite: bool = dataclasses.field(default=False, kw_only=True)
    hint: str = dataclasses.field(default="", kw_only=True)

    @property
    def rule(self) -> str:
        """The rule in words, after "must": "be at least 1", "be positive", "be in [0, 1)"."""
        if self.high == INFINITY:
            least = f"be at least {self.low}" if self.ends[0] == "[" else f"be above {self.low}"
            return least if self.low or self.ends[0] == "[" else "be positive"
        span = f"be in {self.ends[0]}{self.low}, {self.high}{self.ends[1]}"
        return f"be at most {self.high}" if self.low == -INFINITY else span

    def holds(self, value: float) -> bool:
        """Whether the value is in the interval."""
        above = self.low <= value if self.ends[0] == "[" else self.low < value
        return above and (value <= self.high if self.ends[1] == "]" or self.infinite else value < self.high)


Within = Limit
AtLeast = functools.partial(Limit, ends="[)")
Above = functools.partial(Limit, ends="()")
AtMost = functools.partial(Limit, -INFINITY)


def check(value: Any) -> None:
    """Check the type and the limits of every field of a dataclass.

    Option classes call it in ``__post_init__``, so that no instance exists that breaks a rule. A limit inside
    ``tuple[Annotated[int, AtLeast(0)], ...]`` holds for every element. None has no limit. A whole number with a limit
    becomes a loop or an array: it is at most a million. One without, such as a seed, is what int64 holds.

    Raises:
        FieldError: A field has another type, or breaks a limit of its annotation.
    """
    kind: Any = type(value)
    ours = kind.__module__.startswith("fedskew.")  # whose defaults the tests check
    if not ours:
        _check_class(kind)
    for f in fields(kind):
        got = getattr(value, f.name, f.default)  # a user's subclass may not call its base's __init__
        if ours and got is f.default:
            continue
        hint = hints_of(kind)[f.name]
        if hint is Any or (dataclasses.is_dataclass(hint) and isinstance(got, typing.cast(type, hint))):
            continue
        if not fits(got, hint):
            raise FieldError(kind.__name__, f.name, _misfit(got, hint), got, nearest(got, hint))
        if broken := breach(hint, got):
            raise FieldError(kind.__name__, f.name, broken[0], got, broken[1])


def untyped(value: Any) -> Any:
    """A dataclass, and those in it, as plain values that JSON holds; the inverse of `typed`."""
    import msgspec  # 9 ms that the command does not need to begin

    return msgspec.to_builtins(value, enc_hook=lambda scalar: scalar.item())  # numpy's numbers as Python's


def typed(content: Any, kind: Any) -> Any:
    """A dataclass of plain values. Raises ValueError for values of other types, FieldError for those of no sense."""
    import msgspec

    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


@cache
def _check_class(kind: type) -> None:
    """Raise ConfigError where a user's class itself is wrong."""
    if issubclass(kind, Checked):
        kind.check_class()


class Checked:
    """Base of option dataclasses: an instance whose fields break a type or a limit cannot be made.

    A subclass with rules between its fields calls ``super().__post_init__()`` first, then `demand`.
    """

    @classmethod
    def check_class(cls) -> None:
        """Raise ConfigError where the class itself is wrong. Called once, before the first instance of a user's own."""

    __post_init__ = check


def demand(value: Any, field: str, holds: bool, rule: str, hint: str = "") -> None:
    """Raise FieldError unless a rule holds.

    For rules that no annotation can express: between two fields, with the rest of the method, or with the federation.
    """
    if not holds:
        raise FieldError(type(value).__name__, field, rule, getattr(value, field), hint)


# A field that was added to a class which records name: omit_if_default(default=0). It is not recorded while it is the
# default, so that the hashes of earlier records stay as they are.
omit_if_default: Any = functools.partial(dataclasses.field, default=None, kw_only=True, metadata={OMITTED: True})


def unchecked(kind: type, values: Mapping[str, Any]) -> Any:
    """A dataclass with these values of its fields, which were checked before."""
    made: Any = object.__new__(kind)
    vars(made).update(values)
    return made


def option(
    default: Any = None, *,
    decides: Literal["numbers", "measures", "split", "seed", "bits", "nothing"],
    resume: Literal["same", "free", "new"] | None = None, resolved: bool = False, omit_if_default: bool = False,
) -> Any:  # fmt: skip
    """A field that is an option of a run. Everything that treats some options apart from others reads this.

    Args:
        default: its default.
        decides: what another value changes. "numbers": the training, "split": the rows of the clients; the address of
            a run has both, and runs that differ in one are different experiments. "measures": what is recorded of the
            same training; the address has it, and groups of runs do not. "seed": the repetition of an experiment.
            "bits": how results are rounded, which the address says by the engine. "nothing": no number.
        resume: whether a run that goes on must have the "same" value, may have another one ("free"), or has another
            one from then on, which its record then says ("new"). Unless given, "free" for what decides nothing.
        resolved: whether the address has it in another form, such as the digest of a file for its name.
        omit_if_default: whether records hold it only where it is not at its default.
    """
    going_on = resume or ("free" if decides == "nothing" else "same")
    facts: dict[str, Any] = {"decides": decides, "resume": going_on, "resolved": resolved}
    facts |= {OMITTED: True} if omit_if_default else {}
    return dataclasses.field(default=default, kw_only=True, metadata=facts)


def deciding(kind: Any, *what: str, resolved: bool = True) -> tuple[str, ...]:
    """The options of a dataclass that decide one of these, see `option`; without those ``resolved`` by the address."""
    listed = [f for f in fields(kind) if f.metadata.get("decides") in what]
    return tuple([f.name for f in listed if resolved or not f.metadata["resolved"]])


def plain_types(kind: Any) -> dict[str, Any]:
    """The types that JSON has for the fields of a dataclass: a Literal is a word. Other fields are left out."""
    by_name = {}
    for name, hint in hints_of(kind).items():
        kinds = [str if typing.get_origin(member) is Literal else member for member in plain_kinds(hint)]
        plain, *others = (member for member in kinds if member is not types.NoneType)
        if plain in (int, float, bool, str) and not others:
            by_name[name] = plain | None if types.NoneType in kinds else plain
    return by_name


def plain_kinds(kind: Any) -> list[Any]:
    """The types of a field without their limits; NoneType is one of those of an optional field.

    Example:
        >>> plain_kinds(float | None)
        [<class 'float'>, <class 'NoneType'>]
    """
    kinds = [kind]
    for i, member in enumerate(kinds):
        while typing.get_origin(member) in (Annotated, *UNION):
            inner = [member.__origin__] if typing.get_origin(member) is Annotated else typing.get_args(member)
            kinds[i : i + 1] = inner
            member = kinds[i]
    return kinds


def choices_of(kind: Any) -> list[str]:
    """The words that a field takes, where its type lists them."""
    listed = [typing.get_args(k) for k in plain_kinds(kind) if typing.get_origin(k) is typing.Literal]
    return ["true", "false"] if bool in plain_kinds(kind) else [str(word) for words in listed for word in words]


def resumed(kind: Any, *how: str) -> tuple[str, ...]:
    """The options of a dataclass that a run treats so when it goes on, see `option`."""
    return tuple([f.name for f in fields(kind) if f.metadata.get("resume") in how])


def recorded(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that a record holds; those of `omit_if_default` only away from their default."""
    shown = [f.name for f in fields(value) if OMITTED not in f.metadata or getattr(value, f.name) != f.default]
    return {name: getattr(value, name) for name in shown}


def breach(hint: Any, value: Any) -> tuple[str, str] | None:
    """(rule, suggestion) of the limit of an annotation that a value of its type breaks; None where it keeps all."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if value is None or origin is None:
        return None
    parts = [value]
    if origin is Annotated:
        limits = [mark for mark in hint.__metadata__ if isinstance(mark, Limit)]
        if limits and inner[0] is int and all(limit.high == INFINITY for limit in limits):
            limits.append(AtMost(MOST))  # of a whole number that none of them bounds from above
        for limit in limits:
            if not limit.holds(value):
                return ("be finite", "") if value == INFINITY == limit.high else (limit.rule, limit.hint)
        inner = () if isinstance(inner[0], type) else inner[:1]
    elif origin is tuple:
        parts, inner = list(value), inner[:1]
    elif origin not in UNION:
        return None
    for kind, part in itertools.product(inner, parts):
        if (origin not in UNION or fits(part, kind)) and (broken := breach(kind, part)):
            return broken
    return None


@cache
def hints_of(kind: type) -> dict[str, Any]:
    """The annotations of a dataclass's fields, limits included; Any where a user's own cannot be resolved."""
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except (NameError, TypeError):
        hints = {}
    return {f.name: hints.get(f.name, Any) for f in fields(kind)}


def limits_of(hint: Any) -> tuple[Limit, ...]:
    """Every limit in an annotation, those of a tuple's elements among them."""
    limits = [m for m in getattr(hint, "__metadata__", ()) if isinstance(m, Limit)]
    inner = (hint.__origin__,) if limits or typing.get_origin(hint) is Annotated else typing.get_args(hint)
    return (*limits, *(limit for member in inner for limit in limits_of(member)))


def fits(value: object, hint: Any) -> bool:
    """Whether a value is of a field's type; NaN is no number, nor is what float32 cannot hold."""
    while typing.get_origin(hint) is Annotated:
        hint = hint.__origin__
    if hint is Any or (type(value) is hint and hint in (bool, str)):
        return True
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in UNION:
        return any(map(fits, itertools.repeat(value), inner))
    if origin is typing.Literal:
        return any(type(value) is type(literal) and value == literal for literal in inner)
    if origin is tuple:
        whole = len(inner) != 2 or inner[1] is not ...
        return isinstance(value, tuple) and (whole or all(map(fits, value, itertools.repeat(inner[0]))))
    if hint in (int, float):
        if isinstance(value, bool) or not isinstance(value, numbers.Integral if hint is int else numbers.Real):
            return False
        most = 2**63 - 1 if hint is int else EXACT if isinstance(value, numbers.Integral) else LARGEST
        number: Any = value
        return bool(-most <= number <= most) or number in (INFINITY, -INFINITY)
    kind = type(None) if hint is None else origin or hint
    return not isinstance(kind, type) or isinstance(value, kind)


def _misfit(value: Any, hint: Any) -> str:
    """The rule that a value of another type breaks, after "must"."""
    kind = kind_of(hint)
    numbers_ = {"a number": (numbers.Real, "float32"), "a whole number": (numbers.Integral, "int64")}
    right, holder = numbers_.get(kind, ((), ""))
    beyond = isinstance(value, right) and not isinstance(value, bool) and value == value
    return f"be {kind} that {holder} holds" if beyond else f"be {kind}"


def nearest(value: object, hint: Any) -> str:
    """The suggestion for a word that is nearly one of those that a field takes."""
    near = difflib.get_close_matches(value, choices_of(hint), n=1) if isinstance(value, str) else []
    return f"did you mean {near[0]!r}?" if near else ""


def kind_of(hint: Any) -> str:
    """What a value of this type is called in an error: "a whole number", "one of a, b"."""
    if typing.get_origin(hint) is Annotated:
        return kind_of(hint.__origin__)
    if typing.get_origin(hint) is typing.Literal:
        return "one of " + ", ".join(map(str, typing.get_args(hint)))
    if typing.get_origin(hint) in UNION:
        return " or ".join(kind_of(member) for member in typing.get_args(hint) if member is not type(None))
    if typing.get_origin(hint) is tuple:
        return f"a tuple, each {kind_of(typing.get_args(hint)[0])}"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
    return words.get(hint, getattr(hint, "__name__", str(hint)))


def documented(kind: type) -> dict[str, str]:
    """Field docstrings, base classes first."""
    docstrings: dict[str, str] = {}
    for cls in reversed(kind.__mro__):
        if cls is not object and dataclasses.is_dataclass(cls):
            docstrings |= _own_docstrings(cls)
    return docstrings


@cache  # it parses the source of the class, and a command line asks for the same classes again and again
def _own_docstrings(cls: type) -> dict[str, str]:
    from docstring_parser import parse_from_object

    return {p.arg_name: p.description for p in parse_from_object(cls).params if p.description}


def choices(kind: Any) -> str:
    """ "; one of a, b" for a field that takes names."""
    return f" ({kind_of(kind)})" if typing.get_origin(kind) is typing.Literal else ""
