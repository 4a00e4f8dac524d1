"""The exceptions of fedskew; each message is one line that a user can act on.

FedskewError
├── ConfigError      a parameter is wrong: the parameter, the rule, the value got, a suggestion
│   └── FieldError   the same of one field of an option class, which the command names by its flag
├── DataError        a dataset, partition or file is missing, truncated or impossible
├── TrainingError    the mathematics left the finite numbers: client, round and step
└── RecordError      a run folder cannot be written, read or resumed
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "ConfigError",
    "DataError",
    "FedskewError",
    "FieldError",
    "RecordError",
    "TrainingError",
    "closest",
    "require",
    "unknown",
]


class FedskewError(Exception):
    """Base of every error that fedskew raises on purpose. The command prints it as one line and exits with 2."""


class ConfigError(FedskewError):
    """A parameter breaks a rule."""


class FieldError(ConfigError):
    """A field of an option class breaks a rule: ``Momentum.lr must be positive; got -1``.

    The core knows classes and fields, not how a user spells them; `named` gives the same sentence with a flag.
    """

    def __init__(self, owner: str, field: str, rule: str, got: object, hint: str = "") -> None:
        super().__init__(owner, field, rule, got, hint)
        self.owner, self.field, self.rule, self.got, self.hint = owner, field, rule, got, hint

    def __str__(self) -> str:
        return self.named(f"{self.owner}.{self.field}")

    def named(self, parameter: str) -> str:
        """The sentence about the parameter as the user wrote it, for example ``--server.lr``."""
        return f"{parameter} must {self.rule}; got {self.got!r}" + (f"; {self.hint}" if self.hint else "")


class DataError(FedskewError):
    """Data is missing, damaged, or cannot be split as asked."""


class TrainingError(FedskewError):
    """Training produced a value that is not finite."""


class RecordError(FedskewError):
    """A run folder cannot be written, read or resumed."""


def closest(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'fedprox'?"`` for a near miss, ``"; known: a, b, c"`` for a short list, else nothing."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; known: {', '.join(names)}" if 0 < len(names) <= 40 else ""


def unknown(kind: str, name: str, known: Iterable[str]) -> ConfigError:
    """The error for a name that is not in its table."""
    return ConfigError(f"unknown {kind} {name!r}{closest(name, known)}")


def require(holds: bool, parameter: str, rule: str, got: object, hint: str = "") -> None:
    """Raise ConfigError ``"<parameter> must <rule>; got <got>"`` unless the rule holds."""
    if not holds:
        raise ConfigError(f"{parameter} must {rule}; got {got!r}" + (f"; {hint}" if hint else ""))
