"""Command lines and configurations that nobody would write, made from the options themselves and a seed."""

from __future__ import annotations

import copy
import typing
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedskew.config import presets
from fedskew.config.experiment import Experiment
from fedskew.config.flags import NAMED, Option, options_of, outline
from fedskew.config.tables import TABLES
from fedskew.config.words import ALIASES
from fedskew.fields import choices_of, plain_kinds
from fedskew.methods import METHODS

__all__ = ["HUGE", "WORDS", "Grammar", "mutated"]

WORDS = (
    "", " ", "none", "nan", "inf", "-inf", "1e20", "-1e20", "1e400", "true", "0x10", "1_0", "٣", "²", "-", "--", "=",
    "\x1b[2J\x1b]0;x\x07", "$\\frac{$", "[/red]", "[bold", ":cat:", "漢字 ünï", "\udcff\udc9b", "a" * 300, "a/" * 200,
    "%s{0}\\N{x}", "'; ls", "/dev/null", "/dev/zero", "/proc/none/x", "[" * 50_000, '{"a":' * 2_000, "[[1,2],[3]]",
    "[[1e400]]", "[[-1,9223372036854775808]]", "\u202egnp.\r\n", ",", ",,a,", "9" * 30, "9" * 5_000, "1.5", "-1", "0",
)  # fmt: skip
NUMBERS = ("0", "1", "2", "3", "0.5", "1e-3", "1e-45", "1e20", "1e38", "-1", "nan", "inf", "3.5e38", "1e300")
COUNTS = ("0", "1", "2", "3", "4", "7", "-1", "2147483648", "9223372036854775807", "9223372036854775808", "1e3", "1.0")
HUGE: tuple[Any, ...] = (
    None, True, -1, 0, 3, 10**30, 2**63 - 1, 1e20, 1e300, float("nan"), float("inf"), "", "\x1b[2J", "$x_", "[/b]",
    "a" * 300, "\ud800", "a\u0000b", [], {}, [[]], [None], {"name": "fedavg"}, {"name": None}, {"name": []},
    {"name": {}}, "none",
)  # fmt: skip
LISTS = ("methods", "datasets", "partitions", "models", "cite")


class Grammar:
    """Draws command lines.

    Args:
        seed: Of the draws.
        data: Words that name small data, such as ``["--data", "npz", "--path", "x.npz"]``, one of them for each line.
        files: Files and folders that a line may name.
    """

    def __init__(self, seed: int, data: Sequence[Sequence[str]], files: Sequence[str]) -> None:
        self.gen = np.random.Generator(np.random.PCG64(seed))
        self.data, self.files = data, list(files)

    def pick(self, some: Sequence[Any]) -> Any:
        return some[int(self.gen.integers(len(some)))]

    def often(self, chance: float) -> bool:
        return bool(self.gen.random() < chance)

    def line(self, number: int) -> list[str]:
        """The words after ``fedskew``; ``number`` names its output."""
        kinds: list[tuple[float, Callable[[int], list[str]]]] = [
            (0.66, self._run), (0.74, self._describe), (0.80, self._partition), (0.86, self._of_files),
            (0.92, self._listing), (1.0, self._noise),
        ]  # fmt: skip
        drawn = self.gen.random()
        words = next(make for most, make in kinds if drawn < most)(number)
        return self._spoilt(words) if self.often(0.25) else words

    def _run(self, number: int) -> list[str]:
        words = ["run", self.pick(sorted(METHODS)), "--rounds", "1", "--clients", "3", "--cohort", "2"]
        words += ["--model", "logistic", "--epochs", "1", *self.pick(self.data), "--out", f"run{number}"]
        if self.often(0.1):
            return ["run", "--from", self.pick(self.files), *self._options([], 2), "--out", f"run{number}"]
        return words + self._options(words[1:], int(self.gen.integers(1, 5)), replaced=words)

    def _options(self, words: list[str], most: int, replaced: list[str] | None = None) -> list[str]:
        """Names, then options of what they compose. An option that is there is replaced, most of the time."""
        more: list[str] = []
        if self.often(0.5):
            slot = self.pick([n for n in NAMED if n not in ("data", "model")])
            names = sorted(presets.every() if slot == "preset" else TABLES[slot.removesuffix(".base")])
            more += [f"--{slot}", self.pick(names if self.often(0.9) else WORDS)]
        options = list(options_of(outline([*words, *more])))
        for option in (self.pick(options) for _ in range(most)):
            flag = self.pick(option.flags)
            self._without(replaced, {flag, ALIASES.get(flag, flag), *option.flags})
            self._without(more, {flag, *option.flags})
            value = self.value(option)
            more += [f"{flag}={value}"] if self.often(0.3) else [flag, value]
        return more

    def _without(self, words: list[str] | None, flags: set[str]) -> None:
        for i in [i for i, word in enumerate(words or ()) if word in flags][::-1]:
            if words is not None and self.often(0.9):
                del words[i : i + 2]

    def value(self, option: Option) -> str:
        """A value of an option: often one of its type, within its limits or not."""
        plain = plain_kinds(option.type)[0]
        if self.often(0.15):
            return str(self.pick(WORDS))
        if option.place[-1] == "path":
            return str(self.pick(self.files))
        if offered := choices_of(plain):
            return str(self.pick(offered))
        if typing.get_origin(plain) is tuple:
            return ",".join(self.pick((*COUNTS[:5], *NUMBERS[:5], "a")) for _ in range(int(self.gen.integers(0, 4))))
        return str(self.pick(COUNTS if plain is int else NUMBERS if plain is float else (*WORDS, "client", "x", "y")))

    def _describe(self, number: int) -> list[str]:
        name = self.pick(("describe", "advise"))
        if self.often(0.5):
            return [name, self.pick(self.files), *(["--json"] if self.often(0.3) else [])]
        words = [name, "--clients", "3", *self.pick(self.data)]
        words += self._options([], 2, replaced=words)
        return words + (["--out", f"picture{number}.svg"] if name == "describe" and self.often(0.3) else [])

    def _partition(self, number: int) -> list[str]:
        action = self.pick(("make", "show", "verify"))
        if action == "make":
            words = ["partition", "make", "--clients", "3", *self.pick(self.data)]
            return words + self._options([], 2, replaced=words) + ["--out", f"split{number}.npz"]
        return ["partition", action, self.pick(self.files), *(self.pick(self.data) if action == "verify" else [])]

    def _of_files(self, number: int) -> list[str]:
        if self.often(0.4):
            return ["evaluate", self.pick(self.files), *(self.pick(self.data) if self.often(0.5) else [])]
        if self.often(0.25):
            metric = ["--metric", self.pick(("macro_f1", "loss", "final_accuracy", *WORDS))]
            return ["report", self.pick(self.files), *(metric * self.often(0.5)), "--out", f"page{number}.html"]
        figure = ["--figure", self.pick(("curves", "weights", "selection", "drift", "tsne", self.pick(WORDS)))]
        return ["plot", self.pick(self.files), *(figure if self.often(0.6) else []), "--out", f"picture{number}.svg"]

    def _listing(self, number: int) -> list[str]:
        names = (*METHODS, "proximal", "digits", "mlp", "shards", "fedskew")
        return [self.pick(LISTS), *(self.pick(names) for _ in range(int(self.gen.integers(0, 3))))]

    def _noise(self, number: int) -> list[str]:
        flags = ["--help", "-h", "--version", "--json", "--out", "--from", "--resume", "--lr", "--data", "--top"]
        commands = ("run", "plot", "report", "advise", "evaluate", "describe", "partition", "help")
        drawn = [self.pick((*flags, *WORDS, *METHODS)) for _ in range(int(self.gen.integers(0, 5)))]
        return [self.pick((*commands, *LISTS)), *drawn] if self.often(0.9) else drawn

    def _spoilt(self, words: list[str]) -> list[str]:
        """A word left out, doubled, moved, cut or replaced."""
        words, at = list(words), int(self.gen.integers(len(words))) if words else 0
        if not words:
            return words
        how = int(self.gen.integers(5))
        if how == 0:
            del words[at]
        elif how == 1:
            words.insert(at, words[at])
        elif how == 2:
            words.append(words.pop(at))
        elif how == 3:
            words[at] = words[at][: int(self.gen.integers(len(words[at]) + 1))]
        else:
            words[at] = str(self.pick(WORDS))
        return words


def mutated(content: Any, gen: np.random.Generator, times: int = 1) -> Any:
    """A JSON value in which something else stands at ``times`` places: deleted, replaced, doubled or nested."""
    made = copy.deepcopy(content)
    for _ in range(times):
        places = list(_places(made))
        if not places:
            return made
        holder, key = places[int(gen.integers(len(places)))]
        how = gen.random()
        if how < 0.2 and isinstance(holder, dict):
            del holder[key]
        elif how < 0.3 and isinstance(holder, dict):
            holder[str(HUGE[int(gen.integers(len(HUGE)))])] = holder[key]
        elif how < 0.35:
            deep: Any = holder[key]
            for _ in range(int(gen.integers(1, 200))):
                deep = [deep]
            holder[key] = deep
        else:
            holder[key] = copy.deepcopy(HUGE[int(gen.integers(len(HUGE)))])
    return made


def _places(node: Any) -> Any:
    """(holder, key) of every value inside."""
    pairs = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in list(pairs):
        yield node, key
        yield from _places(value)


def experiment_json(method: str) -> dict[str, Any]:
    """A configuration of defaults."""
    return Experiment(METHODS[method](), rounds=1, clients=3, cohort=2).to_json()
