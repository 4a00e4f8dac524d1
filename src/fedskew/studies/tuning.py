"""Tuning under an equal budget: one search space, one sequence of trials, for every method alike.

Trials are points of a shifted Halton sequence. They are scored on a part of the training set that is held out for
them, never on the test set, and use a seed that is not among the compared seeds.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedskew import rng
from fedskew.config.words import Pair
from fedskew.errors import ConfigError, require

HELD_OUT = "0.1"  # of the training rows, where the study holds out none
MOST_TRIALS = 10_000
TRIAL_SEED = 1_000_003  # added to the first seed
NUMBER = r"([-+]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?)"
SPACE = re.compile(rf"\s*(?:(log|int):)?\s*{NUMBER}\s*\.\.\s*{NUMBER}\s*")


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
    beyond: int = 0
    """most trials outside of the range, one at a time while the best value is the smallest or the largest"""

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

    def next_point(self, scores: Mapping[tuple[Pair, ...], float]) -> tuple[Pair, ...] | None:
        """The trial beyond an edge of what was tried, if the best value is there; None if it lies inside.

        The step is that of evenly spaced trials: the range's ratio to the power of 1 / trials.

        Args:
            scores: the score of each point that was tried; NaN where the run failed.

        Example:
            >>> tuning = Tuning((Range("lr", 0.01, 1, "log"),), 2, beyond=1)
            >>> tuning.next_point({(("lr", "0.1"),): 0.8, (("lr", "0.5"),): 0.9})
            (('lr', '5'),)
        """
        if len(scores) >= self.trials + self.beyond or all(map(math.isnan, scores.values())):
            return None
        (axis,) = self.space
        values = [float(point[0][1]) for point in scores]
        best = float(max((p for p in scores if not math.isnan(scores[p])), key=scores.__getitem__)[0][1])
        step = (axis.high / axis.low) ** (1 / self.trials)
        if min(values) < best < max(values):
            return None
        return ((axis.option, f"{best * step if best == max(values) else best / step:.4g}"),)


def tuning_of(space: Any, trials: Any = 8, beyond: Any = 0) -> Tuning:
    """A search space from words.

    Args:
        space: "lr=log:0.01..0.3,momentum=0..0.9", or a mapping of the same.
        trials: runs of each method and setting.
        beyond: most trials outside of the range while the best value is at its edge; for one log range.

    Raises:
        ConfigError: a range is none, the number of trials is below 2 or above 10 000, or ``beyond`` is no whole number
            from 0 to 10 000 or has a space of another kind.
    """
    if isinstance(space, str):
        pieces = [piece.partition("=") for piece in space.split(",")]
        space = {key.strip(): value for key, _, value in pieces}
    rule = "be OPTION=LOW..HIGH, OPTION=log:LOW..HIGH or OPTION=int:LOW..HIGH"
    require(isinstance(space, Mapping) and bool(space), "tune", rule, space)
    for name, value, least in (("tune_trials", trials, 2), ("tune_beyond", beyond, 0)):
        require(type(value) is int and value >= least, name, f"be at least {least}", value)
        require(value <= MOST_TRIALS, name, f"be at most {MOST_TRIALS}", value)
    ranges = []
    for key, text in space.items():
        found = SPACE.fullmatch(str(text))
        scale, low, high = ("", 1.0, 0.0) if found is None else (found[1] or "", float(found[2]), float(found[3]))
        if not (key and low < high and math.isfinite(high - low) and (scale != "log" or low > 0)):
            raise ConfigError(f"tune must {rule}, with LOW < HIGH, both positive for log; got {f'{key}={text}'!r}")
        ranges.append(Range(key.removeprefix("--"), low, high, scale))
    one = not beyond or (len(ranges) == 1 and ranges[0].scale == "log")
    require(one, "tune_beyond", "be used with one log range, such as lr=log:0.01..0.3", beyond)
    return Tuning(tuple(ranges), trials, beyond=beyond)
