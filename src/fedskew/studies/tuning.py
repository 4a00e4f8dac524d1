"""Tuning under an equal budget: one search space, one sequence of trials, for every method alike.

Trials are points of a shifted Halton sequence. They are scored on a part of the training set that is held out for
them, never on the test set, and use a seed that is not among the compared seeds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedskew import rng
from fedskew.config.words import Pair
from fedskew.errors import ConfigError, require

__all__ = ["Range", "Tuning", "tuning_of"]

HELD_OUT = "0.1"  # of the training rows, where the study holds out none
MOST_TRIALS = 10_000
TRIAL_SEED = 1_000_003  # added to the first seed
SPACE = re.compile(r"\s*(?:(log|int):)?\s*([-+0-9.eE]+)\s*\.\.\s*([-+0-9.eE]+)\s*")


@dataclass(frozen=True)
class Range:
    """Values of one option: ``log:0.01..0.3``, ``0..0.9`` or ``int:1..5``."""

    option: str
    low: float
    high: float
    scale: str = ""

    def at(self, share: float) -> str:
        """The value at a point of [0, 1), as a word with four digits."""
        if self.scale == "log":
            return f"{math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low))):.4g}"
        if self.scale == "int":
            return str(int(self.low + math.floor(share * (self.high - self.low + 1))))
        return f"{self.low + share * (self.high - self.low):.4g}"


@dataclass(frozen=True)
class Tuning:
    """What is tuned, and how often."""

    space: tuple[Range, ...]
    trials: int = 8
    metric: str = "mean10_val_accuracy"
    own: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """by method: the name that an option of the space has there, such as {"lr": "local.inner_lr"}"""

    def points(self) -> list[tuple[Pair, ...]]:
        """The options of each trial, the same for every method.

        Example:
            >>> [pairs[0][1] for pairs in Tuning((Range("lr", 0.01, 0.3, "log"),), 3).points()]
            ['0.241', '0.04399', '0.0188']
        """
        from scipy.stats import qmc

        shift = rng.generator(0, "tuning").random(len(self.space))  # the sequence itself begins at 0
        drawn = (qmc.Halton(len(self.space), scramble=False).random(self.trials) + shift) % 1
        return [tuple((r.option, r.at(float(x))) for r, x in zip(self.space, row, strict=True)) for row in drawn]

    def options_for(self, label: str, options: tuple[Pair, ...]) -> tuple[Pair, ...]:
        """A trial's options under the names that a method has for them."""
        names = self.own.get(label, {})
        return tuple((names.get(option, option), value) for option, value in options)


def tuning_of(space: Any, trials: Any = 8, own: Mapping[str, Mapping[str, str]] | None = None) -> Tuning:
    """A search space from words.

    Args:
        space: "lr=log:0.01..0.3,momentum=0..0.9", or a mapping of the same.
        trials: runs of each method and setting.
        own: by method, other names of these options.

    Raises:
        ConfigError: a range is none, or the number of trials is below 2 or above 10 000.
    """
    if isinstance(space, str):
        pieces = [piece.partition("=") for piece in space.split(",")]
        space = {key.strip(): value for key, _, value in pieces}
    rule = "be OPTION=LOW..HIGH, OPTION=log:LOW..HIGH or OPTION=int:LOW..HIGH"
    require(isinstance(space, Mapping) and bool(space), "tune", rule, space)
    require(
        isinstance(trials, int) and not isinstance(trials, bool) and trials >= 2, "tune_trials", "be at least 2", trials
    )
    require(trials <= MOST_TRIALS, "tune_trials", f"be at most {MOST_TRIALS}", trials)
    ranges = []
    for key, text in space.items():
        found = SPACE.fullmatch(str(text))
        try:
            low, high = (float(found[2]), float(found[3])) if found else (1.0, 0.0)
        except ValueError:
            low, high = 1.0, 0.0
        scale = (found[1] or "") if found else ""
        if not (found and key and low < high and math.isfinite(high - low) and (scale != "log" or low > 0)):
            raise ConfigError(f"tune must {rule}, with LOW < HIGH, both positive for log; got {f'{key}={text}'!r}")
        ranges.append(Range(key.removeprefix("--"), low, high, scale))
    return Tuning(tuple(ranges), trials, own={k: dict(v) for k, v in (own or {}).items() if v})
