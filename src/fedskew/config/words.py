"""The words of a command line: flags with their values, and a value read by the type of its field.

Nothing here needs torch, and nothing knows which options there are.
"""

import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from types import NoneType
from typing import Any

from fedskew.errors import ConfigError, from_json
from fedskew.fields import fits, kind_of, nearest, plain_kinds

DOTTED = (  # "--eval.every" is typed for "--eval-every"
    "eval-every", "checkpoint-every", "seed-partition", "seed-model", "seed-clients", "ray-address",
    "ray-workers", "ray-gpus", "dp-clip", "dp-noise", "dp-epsilon", "dp-delta",
)  # fmt: skip
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
    "--split-by": "--data.split_by",
    "--eval.personal": "--personal-every",
    "--eval.served": "--served",
    "--eval.scores": "--scores",
    "--eval.recall-at": "--recall-at",
    "--data.path": "--path",
    **{f"--{name.replace('-', '.', 1)}": f"--{name}" for name in DOTTED},
    "--diagnose": "--diagnose.names",
}
USUAL = {  # what other libraries call an option -> what it is called here
    "learning-rate": "--lr", "client-lr": "--lr", "local-epochs": "--epochs", "num-epochs": "--epochs",
    "local-steps": "--steps", "batchsize": "--batch-size", "local-bs": "--batch-size", "num-rounds": "--rounds",
    "comm-rounds": "--rounds", "num-clients": "--clients", "num-users": "--clients", "n-parties": "--clients",
    "fraction-fit": "--cohort", "clients-per-round": "--cohort", "participation": "--cohort", "frac": "--cohort",
    "dataset": "--data", "network": "--model", "arch": "--model", "alpha": "--partition.alpha", "wd": "--weight-decay",
    "optimizer": "--local --server",
}  # fmt: skip
SHORT = {full: alias for alias, full in ALIASES.items()}
TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
NOTHING = ("none", "null")  # how an optional value is unset again

Pair = tuple[str, Any]  # (flag, a word or a value of its type)


def scan(words: Sequence[str], bare: Collection[str] = ()) -> Iterator[tuple[str, str | None]]:
    """(flag, value) for ``--flag value`` and ``--flag=value``, in order; ("", word) for a positional word.

    The value is None where none follows: at the end, before another flag, and for the flags in ``bare``, which take
    none. Raises nothing, so that help can read half a command line.
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
    words: Sequence[str],
    bare: Collection[str] = (),
    wanted: Callable[[str], str] = lambda flag: "",
    repeated: Collection[str] = (),
) -> tuple[list[str], list[Pair]]:
    """(positional words, [(flag, value)]) of a command line.

    Args:
        words: the words after the subcommand.
        bare: flags that take no value; they are checked and left out.
        wanted: text after "must be followed by a value", of a flag without one.
        repeated: flags that may be given several times.

    Raises:
        ConfigError: a flag without its value, with one that it does not take, or given twice; a single dash.
    """
    positional, flags = list[str](), list[Pair]()
    for flag, value in scan(words, bare):
        if not flag:
            if str(value).startswith("-"):
                raise ConfigError(f"unknown option {value!r}; did you mean {f'-{value}'!r}?")
            positional.append(str(value))
        elif flag in bare:
            if value is not None:
                raise ConfigError(f"{flag} takes no value; got {value!r}")
        elif value is None:
            raise ConfigError(f"{flag} must be followed by a value{wanted(flag)}")
        else:
            flags.append((flag, value))
    check_once([pair for pair in flags if pair[0] not in repeated])
    return positional, flags


def as_word(value: Any) -> str:
    """A value as it is typed on a command line; an object by its name."""
    if isinstance(value, tuple):
        return ",".join(map(as_word, value))
    if not isinstance(value, str | int | float | None):
        return str(getattr(value, "name", type(value).__name__))
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def flag_of(name: str) -> str:
    """The flag of a field, or of a parameter of a command: "--fit-logits" of fit_logits."""
    return f"--{name.replace('_', '-')}"


def flags_of(options: Iterable[Pair]) -> list[Pair]:
    """Options without their dashes as flags: "lr" is "--lr"."""
    return [(f"--{option}", value) for option, value in options]


def check_once(flags: Sequence[Pair]) -> None:
    """Raise ConfigError where an option is given twice, also under two names."""
    before = dict[str, Pair]()
    for flag, value in flags:
        if first := before.get(full := ALIASES.get(flag, flag)):
            raise ConfigError(f"{flag} must be given once; got {' '.join(map(str, first))!r} and {f'{flag} {value}'!r}")
        before[full] = flag, value


def parse(flag: str, kind: Any, given: Any) -> Any:
    """A word, or a value as TOML has it, as a value of a field's type.

    Limits are not checked here but where the value is used, by its dataclass.

    Raises:
        ConfigError: the flag, what it must be, the word, and the choice that was probably meant.
    """
    every = plain_kinds(kind)
    kinds = [plain for plain in every if plain is not NoneType]
    if type(given) is int and float in kinds and int not in kinds:
        given = float(str(given))  # infinite where a double does not hold it: the limits refuse that
    if not isinstance(given, str) and fits(given, kind):
        return given
    text = str(given).lower() if isinstance(given, bool) else str(given)
    if str not in kinds and text.lower() in NOTHING and NoneType in every:
        return None
    for plain in kinds:
        with suppress(ValueError, KeyError, *([ConfigError] if len(kinds) > 1 else [])):
            return _read(flag, plain, text)
    rule = "rows such as [[1,2],[3,4]]" if _is_rows(kinds[0]) else kind_of(kind)
    raise ConfigError(f"{flag} must be {rule}; got {text!r}" + (f"; {near}" if (near := nearest(text, kind)) else ""))


def _is_rows(kind: Any) -> bool:
    """Whether values are rows of values, written as JSON."""
    return typing.get_origin(kind) is tuple and typing.get_origin(typing.get_args(kind)[0]) is tuple


def _read(flag: str, kind: Any, text: str) -> Any:
    """The value of a type without None. Raises ValueError or KeyError, and ConfigError for an element of a list."""
    if kind is str:
        return text
    if kind is bool:
        return TRUTH[text.lower()]
    if kind in (int, float):
        return kind(text)
    if typing.get_origin(kind) is typing.Literal:
        return {str(choice): choice for choice in typing.get_args(kind)}[text]
    if typing.get_origin(kind) is tuple and not _is_rows(kind):
        inner = typing.get_args(kind)[0]
        return tuple(parse(flag, inner, word) for word in map(str.strip, text.split(",")) if word)
    value = tupled(from_json(text)) if _is_rows(kind) else text
    if not fits(value, kind):
        raise ValueError(text)
    return value


def tupled(value: Any) -> Any:
    """A value of JSON with tuples in the place of lists."""
    return tuple(map(tupled, value)) if isinstance(value, list) else value
