"""The words of a command line: flags with their values, and a value read by the type of its field.

Nothing here needs torch, and nothing knows which options there are.
"""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

from fedskew.errors import ConfigError, from_json
from fedskew.fields import fits, kind_of

__all__ = ["ALIASES", "SHORT", "Pair", "choices_of", "parse", "scan", "split", "without_none", "words_of"]

ALIASES = {  # what users type -> the flag made from the field
    "--epochs": "--pace.epochs",
    "--steps": "--pace.steps",
    "--batch-size": "--pace.batch_size",
    "--lr": "--pace.lr",
    "--lr.decay": "--pace.decay",
    "--momentum": "--local.momentum",
    "--weight-decay": "--local.weight_decay",
    "--clip": "--local.clip",
    "--server-lr": "--server.lr",
    "--eval.every": "--eval-every",
    "--eval.rows": "--eval-rows",
    "--eval.personal": "--personal-every",
    "--eval.scores": "--scores",
    "--eval.recall-at": "--recall-at",
    "--checkpoint.every": "--checkpoint-every",
    "--data.path": "--path",
    "--seed.partition": "--seed-partition",
    "--seed.model": "--seed-model",
    "--seed.clients": "--seed-clients",
    "--ray.address": "--ray-address",
    "--ray.workers": "--ray-workers",
    "--ray.gpus": "--ray-gpus",
    "--ray.sum": "--ray-sum",
    "--diagnose": "--diagnose.names",
}
SHORT = {full: alias for alias, full in ALIASES.items()}
TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
NOTHING = ("none", "null")  # how an optional value is unset again

Pair = tuple[str, str]  # (flag, value)


def scan(words: Sequence[str], bare: Collection[str] = ()) -> Iterator[tuple[str, str | None]]:
    """(flag, value) for ``--flag value`` and ``--flag=value``, in order; ("", word) for a positional word.

    The value is None where none follows: at the end, before another flag, and for the flags in ``bare``, which take
    none. Raises nothing, so that help and completion can read half a command line.
    """
    rest = list(words)
    while rest:
        word = rest.pop(0)
        flag, equals, value = word.partition("=")
        if not word.startswith("--"):
            yield "", word
        elif equals or flag in bare or not rest or rest[0].startswith("--"):
            yield flag, value if equals else None
        else:
            yield flag, rest.pop(0)


def split(
    words: Sequence[str], bare: Collection[str] = (), wanted: Callable[[str], str] = lambda flag: ""
) -> tuple[list[str], list[Pair]]:
    """(positional words, [(flag, value)]) of a command line.

    Args:
        words: the words after the subcommand.
        bare: flags that take no value; they are checked and left out.
        wanted: text after "must be followed by a value", of a flag without one.

    Raises:
        ConfigError: a flag without its value, with one that it does not take, or given twice; a single dash.
    """
    positional: list[str] = []
    flags: dict[str, Pair] = {}
    for flag, value in scan(words, bare):
        if not flag:
            positional.append(_undashed(value or ""))
        elif flag in bare and value is not None:
            raise ConfigError(f"{flag} takes no value; got {value!r}")
        elif flag not in bare:
            if value is None:
                raise ConfigError(f"{flag} must be followed by a value{wanted(flag)}")
            _once(flag, value, flags)
    return positional, list(flags.values())


def words_of(values: Mapping[str, Any]) -> list[str]:
    """Options by name, without dashes, as words of a command line.

    Example:
        >>> words_of({"lr": 0.1, "partition.strict": True})
        ['--lr=0.1', '--partition.strict=true']
    """
    text = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}
    return [f"--{name}={value}" for name, value in text.items()]


def _undashed(word: str) -> str:
    if word.startswith("-"):
        raise ConfigError(f"unknown option {word!r}; did you mean {'-' + word!r}?")
    return word


def _once(flag: str, value: str, flags: dict[str, Pair]) -> None:
    full = ALIASES.get(flag, flag)
    if full in flags:
        before = " ".join(flags[full])
        raise ConfigError(f"{flag} must be given once; got {before!r} and {f'{flag} {value}'!r}")
    flags[full] = flag, value


def parse(flag: str, kind: Any, text: str) -> Any:
    """A word as a value of a field's type.

    Limits are not checked here but where the value is used, by its dataclass.

    Raises:
        ConfigError: the flag, what it must be, the word, and the choice that was probably meant.
    """
    plain, optional = without_none(kind)
    if len(several := _united(kind)) > 1 and text.lower() not in NOTHING:
        return _first_of(flag, several, text, kind_of(kind))
    if typing.get_origin(plain) is tuple and not _is_rows(plain):
        inner = typing.get_args(plain)[0]
        return tuple(parse(flag, inner, word) for word in map(str.strip, text.split(",")) if word)
    try:
        return None if optional and plain is not str and text.lower() in NOTHING else _read(plain, text)
    except (ValueError, KeyError):
        near = difflib.get_close_matches(text, choices_of(plain), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        rule = "rows such as [[1,2],[3,4]]" if _is_rows(plain) else kind_of(plain)
        raise ConfigError(f"{flag} must be {rule}; got {text!r}{hint}") from None


def _united(kind: Any) -> list[Any]:
    """The types of a union, without None."""
    inner = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else ()
    return [one for one in inner if one is not type(None)]


def _first_of(flag: str, kinds: Sequence[Any], text: str, rule: str) -> Any:
    """The word as a value of the first type that takes it: a name, or numbers with commas."""
    for kind in kinds:
        with suppress(ConfigError):
            return parse(flag, kind, text)
    near = difflib.get_close_matches(text, [word for kind in kinds for word in choices_of(kind)], n=1)
    raise ConfigError(f"{flag} must be {rule}; got {text!r}" + (f"; did you mean {near[0]!r}?" if near else ""))


def without_none(kind: Any) -> tuple[Any, bool]:
    """(the type itself without its limits, whether None is one of its values)."""
    if typing.get_origin(kind) is Annotated:
        return without_none(kind.__origin__)
    if typing.get_origin(kind) not in (typing.Union, types.UnionType):
        return kind, False
    inner = [one for one in typing.get_args(kind) if one is not type(None)]
    return without_none(inner[0])[0], len(inner) < len(typing.get_args(kind))


def choices_of(kind: Any) -> list[str]:
    """The words that a field takes, where its type lists them."""
    plain, _ = without_none(kind)
    if plain is bool:
        return ["true", "false"]
    return [str(one) for one in typing.get_args(plain)] if typing.get_origin(plain) is typing.Literal else []


def _is_rows(kind: Any) -> bool:
    """Whether values are rows of values, written as JSON."""
    return typing.get_origin(kind) is tuple and typing.get_origin(typing.get_args(kind)[0]) is tuple


def _read(kind: Any, text: str) -> Any:
    """The value of a type without None. Raises ValueError or KeyError."""
    if kind is str:
        return text
    if kind is bool:
        return TRUTH[text.lower()]
    if kind in (int, float):
        return kind(text)
    if typing.get_origin(kind) is typing.Literal:
        return {str(choice): choice for choice in typing.get_args(kind)}[text]
    if not _is_rows(kind):
        raise ValueError(text)
    found = from_json(text)
    value = tuple(tuple(row) if isinstance(row, list) else row for row in found) if isinstance(found, list) else found
    if not fits(value, kind):
        raise ValueError(text)
    return value
