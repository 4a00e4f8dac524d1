"""Runs of a list, filtered and sorted by any entry of their configuration or summary."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt, ne
from typing import Any

from fedskew.config.recorded import Run
from fedskew.errors import ConfigError, closest, some
from fedskew.studies.arguments import full

RULE = "be FIELD=VALUE, or with one of != < <= > >= ~ between them"
WORDS = re.compile(r"\s*([\w.()\- ]+?)\s*(!=|<=|>=|=|<|>|~)\s*(.*?)\s*", re.DOTALL)
COMPARED: dict[str, Callable[[Any, Any], bool]] = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
PLAIN = {"true": True, "false": False, "none": None, "null": None}
NAMED = ("method", "data", "partition")  # shown with their options: the name alone is equal, too


@dataclass(frozen=True)
class Condition:
    """One condition on a run: ``accuracy > 0.5``."""

    field: str
    sign: str
    value: str

    def holds(self, run: Run, path: str) -> bool:
        """Whether a run meets it. A run that lacks the field differs from every value, and meets nothing else."""
        recorded = run.fields.get(path)
        if self.sign == "~":
            return recorded is not None and self.value.casefold() in str(recorded).casefold()
        if self.sign in ("=", "!="):
            names = [recorded, *([_name(run, path)] if path in NAMED else [])]
            return any(_equal(name, self.value) for name in names) == (self.sign == "=")
        number = isinstance(recorded, int | float) and not isinstance(recorded, bool)
        return number and COMPARED[self.sign](recorded, float(self.value))


def condition_of(text: str) -> Condition:
    """A condition from words.

    Raises:
        ConfigError: it is none, or compares by size with something else than a number.

    Example:
        >>> condition_of("partition.alpha <= 0.1")
        Condition(field='partition.alpha', sign='<=', value='0.1')
    """
    match = WORDS.fullmatch(text)
    if match is None:
        raise ConfigError(f"where must {RULE}; got {text!r}")
    field, sign, value = match.groups()
    if sign in ("<", "<=", ">", ">=") and not _is_number(value):
        raise ConfigError(f"where must compare by {sign} with a number; got {text!r}")
    return Condition(field, sign, value)


def matching(runs: Sequence[Run], conditions: Iterable[Condition]) -> list[Run]:
    """The runs that meet every condition. Raises ConfigError for a field that no run has."""
    known = _known(runs)
    paths = [(condition, path_of(condition.field, known)) for condition in conditions] if runs else []
    return [run for run in runs if all(condition.holds(run, path) for condition, path in paths)]


def sorted_by(runs: Sequence[Run], field: str) -> list[Run]:
    """Runs by a field, the smallest first, with "-" before it the largest; those that lack it come last.

    Raises:
        ConfigError: no run has the field.
    """
    if not runs:
        return []
    path = path_of(field.removeprefix("-"), _known(runs))
    having = [run for run in runs if run.fields.get(path) is not None]

    def rank(run: Run) -> tuple[bool, float, str]:
        """Numbers before words."""
        value = run.fields[path]
        return (False, value, "") if isinstance(value, int | float) else (True, 0.0, str(value))

    having.sort(key=rank, reverse=field.startswith("-"))
    return [*having, *(run for run in runs if run.fields.get(path) is None)]


def path_of(field: str, known: Mapping[str, Any]) -> str:
    """The dotted path that a word means: the path itself, an option as it is typed, or its last words.

    Raises:
        ConfigError: nothing ends so, or several paths do.
    """
    whole = full(field)  # "pace.lr" of "lr"
    for word in dict.fromkeys((field, whole, whole.replace("-", "_"))):
        if word in known:
            return word
    ends = [path for path in known if path.endswith((f".{whole}", f".{whole.replace('-', '_')}"))]
    if len(ends) > 1:
        raise ConfigError(f"field {field!r} must be one entry; it is {some(ends)}")
    if not ends:
        meant = closest(field, [*known, *(path.rpartition(".")[2] for path in known)], listed=False)
        raise ConfigError(f"unknown field {field!r} of these runs{meant or '; `fedskew runs --json` shows all'}")
    return ends[0]


def _known(runs: Sequence[Run]) -> dict[str, None]:
    return dict.fromkeys(path for run in runs for path in run.fields)


def _name(run: Run, path: str) -> str:
    value = run.config.get(path)
    return str(value.get("name", "")) if isinstance(value, Mapping) else str(value)


def _equal(recorded: Any, word: str) -> bool:
    if isinstance(recorded, bool) or recorded is None:
        return word.lower() in PLAIN and PLAIN[word.lower()] is recorded
    if isinstance(recorded, int | float):
        return _is_number(word) and float(word) == recorded
    return str(recorded) == word


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
