"""Named paces and readings, as values with their sources.

``authors`` is the pace of a method's own authors: rate, momentum, decay, clip, batch, epochs, share of clients. Where
paper and public code have two, they are ``authors_paper`` and ``authors_code``. ``printed`` and
``feature_balanced_loss`` are readings of FedBal's equation 12.

Example:
    >>> from fedskew import presets
    >>> method = presets.authors("moon")
    >>> method.pace.lr, method.local.momentum, method.share
    (0.01, 0.9, 1.0)
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple

from fedskew.config.tables import method_named
from fedskew.errors import ConfigError, unknown
from fedskew.method import Method
from fedskew.methods import METHODS
from fedskew.slots import INGREDIENTS

__all__ = ["GRADES", "Preset", "Stated", "applied", "authors", "every", "named"]

Grade = Literal["P", "C", "T", "A"]
GRADES: dict[Grade, str] = {
    "P": "stated in the paper",
    "C": "in the authors' public code",
    "T": "in a third party's code",
    "A": "assumed; no source states it",
}


class Stated(NamedTuple):
    """A value and how certain it is: P paper, C authors' code, T third party, A assumed."""

    value: float | str
    grade: Grade


@dataclass(frozen=True)
class Preset:
    """A pace with its provenance.

    Attributes:
        setting: Data, clients and rounds of the experiment that the values belong to.
        source: Paper, section or table; repository, commit and file.
        values: Values by place, "pace.lr" or "local.momentum". "share" is the part of the clients in a round,
            "weighting" the name of one.
        note: What the values leave out, or what a reader must know; "" for nothing.

    Example:
        >>> preset = Preset("MNIST, 10 clients", "made up", {"pace.lr": Stated(0.1, "A"), "share": Stated(0.5, "A")})
        >>> preset.changes(), preset.share
        ({'pace': {'lr': 0.1}}, 0.5)
    """

    setting: str
    source: str
    values: Mapping[str, Stated]
    note: str = ""

    @property
    def share(self) -> float | None:
        """The part of the clients that a round takes; None where no source states it."""
        return float(self.values["share"].value) if "share" in self.values else None

    @property
    def weighting(self) -> str | None:
        """The name of the weighting; None where the method keeps its own."""
        return str(self.values["weighting"].value) if "weighting" in self.values else None

    def changes(self) -> dict[str, dict[str, Any]]:
        """The values of fields, by the place of their ingredient."""
        options: dict[str, dict[str, Any]] = {}
        for place, stated in self.values.items():
            ingredient, _, name = place.rpartition(".")
            if ingredient:
                options.setdefault(ingredient, {})[name] = stated.value
        return options


def _row(content: str | dict[str, Any], texts: dict[str, str]) -> Preset | str:
    """A preset of a method, or why there is none."""
    if isinstance(content, str):
        return texts.get(content, content)
    values = {place: Stated(*stated) for place, stated in content["values"].items()}
    entries = (content.get(name, "") for name in ("setting", "source", "note"))
    setting, source, note = (texts.get(text, text) for text in entries)
    return Preset(setting, source, values, note)


@cache
def every() -> dict[str, dict[str, Preset | str]]:
    """Every preset of every method, by the names of both."""
    presets = tomllib.loads(files("fedskew.config.presets").joinpath("paces.toml").read_text(encoding="utf-8"))
    texts = presets.pop("texts")
    tables = {preset: {name: _row(row, texts) for name, row in rows.items()} for preset, rows in presets.items()}
    tables["authors"]["fedgr"] = tables["authors_paper"]["fedgr"]
    return {preset: dict(sorted(rows.items())) for preset, rows in tables.items()}


def named(preset: str, method: str) -> Preset:
    """The preset of a method of the table.

    Args:
        preset: Name of the preset, such as "authors".
        method: Name of the method.

    Raises:
        ConfigError: There is no such preset or method, the preset belongs to other methods, or nothing is on record for
            the method; the message says why.

    Example:
        >>> named("authors", "fedntd").values["pace.decay"]
        Stated(value=0.99, grade='C')
    """
    if preset not in every():
        raise unknown("preset", preset, every())
    known = every()[preset]
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    if method not in known:
        raise ConfigError(f"preset {preset!r} must go with {', '.join(known)}; got {method}")
    entry = known[method]
    if isinstance(entry, str):
        rule = "must go with a method whose authors' pace is on record"
        raise ConfigError(f"preset {preset!r} {rule}; {method}: {entry}")
    return entry


def applied(preset: str, method: Method) -> Method:
    """A method at the pace of a preset; changes that you make afterwards win.

    Args:
        preset: Name of the preset, such as "authors".
        method: A method of the table, or a variant of one.

    Returns:
        The method with the preset's values and its name, and ``share``, the part of the clients that a round takes
        where the run names no cohort.

    Raises:
        ConfigError: Nothing is on record for the method, or an ingredient that the preset sets was replaced.

    Example:
        >>> from fedskew import methods
        >>> applied("authors", methods.fedga()).local.clip
        5.0
        >>> applied("printed", methods.fedbal()).parts[0]
        LocalBalancer(strength=1.0, schedule_unit='epoch', one_based=True, missing='clamp1', early=0, eps=1.0)
    """
    entry = named(preset, method.name.partition("(")[0])
    if entry.weighting:
        method = method.with_(weighting=INGREDIENTS["weighting"][entry.weighting]())
    for place, changes in entry.changes().items():
        method = method.with_(place, **changes)
    return method.with_(preset=preset, share=entry.share)


def authors(name: str) -> Method:
    """A method of the table at its authors' pace.

    Args:
        name: Name of the method.

    Returns:
        The method. Run it by ``fs.run(fed, method)``: a round takes the authors' share of the clients.

    Raises:
        ConfigError: There is no such method, or nothing is on record for it.

    Example:
        >>> authors("creff").share
        0.4
        >>> authors("fedlc")
        Traceback (most recent call last):
        fedskew.errors.ConfigError: preset 'authors' must go with a method whose authors' pace is on record; fedlc: \
the authors have no public code, and their paper's settings were not checked
    """
    return applied("authors", method_named(name))
