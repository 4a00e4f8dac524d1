"""From words to lists: methods with options of their own, seeds, and options that take several values."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from torch import nn

from fedskew.config.flags import NAMED, Options, compose
from fedskew.config.own import LoadedDataset, source_of
from fedskew.config.words import ALIASES, Pair, as_word, flags_of
from fedskew.data.arrays import Dataset
from fedskew.data.partitioners.base import Partitioner
from fedskew.errors import ConfigError, require
from fedskew.fields import SEPARATED
from fedskew.method import Method
from fedskew.models import Architecture

METHOD = re.compile(r"\s*([A-Za-z_][\w]*)\s*(?:\((.*)\))?\s*", re.DOTALL)
MOST_SEEDS = 10_000
# what stands for a name where Python asks
OBJECTS: dict[str, Any] = {"data": LoadedDataset, "model": Architecture | nn.Module, "partition": Partitioner}


@dataclass(frozen=True)
class Entry:
    """A method of a study: its name in the table or itself, options of its own, and what the report calls it."""

    method: str | Method
    options: tuple[Pair, ...] = ()
    label: str = ""

    @property
    def name(self) -> str:
        """The label, or the method with its options: "fedbal(weighting=uniform)"."""
        options = ", ".join(f"{option}={as_word(value)}" for option, value in self.options)
        name = as_word(self.method)
        return self.label or (f"{name}({options})" if options else name)


def entry_of(text: str | Method) -> Entry:
    """A method as a command line names it, or a method itself.

    Args:
        text: a name of the table, and in brackets options of ``fedskew run`` without their dashes. A piece without "="
            goes on with the list before it.

    Raises:
        ConfigError: the text is no such thing.

    Example:
        >>> entry_of("fedbal(parts=cross_entropy,proximal, weighting=uniform)").options
        (('parts', 'cross_entropy,proximal'), ('weighting', 'uniform'))
    """
    if isinstance(text, Method):
        for _, part in text.ingredients():
            source_of(part)
        return Entry(text)
    match = METHOD.fullmatch(text) if isinstance(text, str) else None
    rule = "be a name, or NAME(option=value, ...)"
    require(match is not None, "method", rule, text)
    name, inner = match.groups() if match else ("", "")
    options: list[list[str]] = []
    for piece in (inner or "").split(","):
        key, equals, value = piece.partition("=")
        if equals:
            options.append([key.strip().removeprefix("--"), value.strip()])
        elif piece.strip():
            require(bool(options), "method", rule, text)
            options[-1][1] += f",{piece.strip()}"
    return Entry(name, tuple((option, value) for option, value in options))


def seeds_of(text: str | int | Sequence[int]) -> tuple[int, ...]:
    """Seeds: "0-4", "0,3,7-9", a number, or a list of numbers.

    Raises:
        ConfigError: no seed, one given twice, or something else.

    Example:
        >>> seeds_of("0-2,7")
        (0, 1, 2, 7)
    """
    rule = "be numbers such as 0-4 or 0,3,7"
    if isinstance(text, str):
        seeds: list[int] = []
        for piece in text.split(","):
            ends = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", piece)
            require(ends is not None and len(piece) < 40, "seeds", rule, text)
            first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (0, 0)
            require(first <= last < first + MOST_SEEDS, "seeds", rule, text)
            seeds += range(first, last + 1)
    else:
        listed = [text] if isinstance(text, int) else text
        plain = isinstance(listed, list | tuple) and all(isinstance(s, int) and not isinstance(s, bool) for s in listed)
        require(plain, "seeds", rule, text)
        seeds = [int(s) for s in listed]
    require(0 < len(seeds) == len(set(seeds)), "seeds", "name at least one seed, each once", text)
    return tuple(seeds)


def shard_of(text: str) -> tuple[int, int]:
    """``2/8`` as (2, 8). Raises ConfigError.

    Example:
        >>> shard_of("2/8")
        (2, 8)
    """
    first, _, last = text.partition("/")
    shard = (int(first), int(last)) if first.isdecimal() and last.isdecimal() and len(text) < 20 else (0, 0)
    require(1 <= shard[0] <= shard[1], "shard", "be PART/PARTS, such as 2/8", text)
    return shard


def combinations(method: str | Method, options: Sequence[Pair]) -> Iterator[tuple[Pair, ...]]:
    """Every combination of options of which some have several values.

    Values stand between commas; those of an option that is a list itself, such as parts or data.exclude, between
    semicolons.

    Args:
        method: a METHOD of the table, whose options these are.
        options: names without dashes, and values.

    Yields:
        One pair for each option, in their order; the last option changes fastest.

    Raises:
        ConfigError: a value is empty or is given twice.
    """
    named = {o: _several(v, listed=o == "parts") for o, v in options if o in NAMED}
    for names in product(*named.values()):
        chosen = dict(zip(named, names, strict=True))
        known = Options(compose([method], flags_of(list(chosen.items()))))
        several: list[Sequence[Any]] = []
        for option, value in options:
            flag = known.get(f"--{option}")
            listed = flag is not None and ("tuple" in str(flag.type) or SEPARATED in str(flag.type))
            values = [chosen[option]] if option in chosen else _several(value, listed)
            if "" in values or len(set(values)) < len(values):
                raise ConfigError(f"--{option} must name each value once; got {as_word(value)!r}")
            several.append(values)
        for point in product(*several):
            yield tuple((option, v) for (option, _), v in zip(options, point, strict=True))


def _several(value: Any, listed: bool) -> list[Any]:
    """The values of an option; of one that is a list itself, a list of a study file is one value."""
    if isinstance(value, str):
        return [piece.strip() for piece in value.split(";" if listed else ",")]
    return [as_word(value)] if listed else list(value) if isinstance(value, tuple) else [value]


def full(option: str) -> str:
    """The whole name of an option: "pace.lr" of "lr"."""
    return ALIASES.get(f"--{option}", f"--{option}")[2:]


def words_of(options: Sequence[Pair]) -> list[str]:
    """Options as words of a command line."""
    return [word for flag, value in flags_of(options) for word in (flag, as_word(value))]


def keywords(options: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Options by name and, beside them, those that Python passes as keywords: ``batch_size`` is "batch-size"."""
    return {**options, **{name.replace("_", "-"): value for name, value in more.items()}}


def options_of_table(content: Mapping[str, Any], place: str) -> tuple[Pair, ...]:
    """Options of a TOML table: ``alpha = [0.05, 0.1]`` is a list of values, a table inside is ``[partition] alpha``.

    From Python, ``data``, ``model`` and ``partition`` may be objects.

    Raises:
        ConfigError: a value is neither a word, a number, a truth value nor a list of such, or a list is empty.
    """
    require(isinstance(content, Mapping), place, "be a table of options", content)
    pairs: list[Pair] = []
    for key, value in content.items():
        if isinstance(value, Mapping):
            inner = {k if k == "name" else f"{key}.{k}": v for k, v in value.items()}
            pairs += options_of_table({key if k == "name" else k: v for k, v in inner.items()}, place)
            continue
        listed = value if isinstance(value, list) else [value]
        listed = [LoadedDataset(v) if isinstance(v, Dataset) else v for v in listed]
        plain = all(isinstance(v, str | int | float | OBJECTS.get(key, str)) for v in listed)
        instances = [v for v in listed if not isinstance(v, str | int | float | LoadedDataset)]
        for instance in instances if plain else ():
            source_of(instance)
        rule = (
            "be a word, a number or a list of them; tables of which each is a setting are [[settings]] of a study file"
        )
        require(bool(listed) and plain, f"{place}.{key}", rule, value)
        pairs.append((key, tuple(listed) if isinstance(value, list) else listed[0]))
    return tuple(pairs)
