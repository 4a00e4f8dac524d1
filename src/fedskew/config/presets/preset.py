"""What a preset is: values by place, each with its grade, and where they come from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

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
        found: dict[str, dict[str, Any]] = {}
        for place, stated in self.values.items():
            ingredient, _, name = place.rpartition(".")
            if ingredient:
                found.setdefault(ingredient, {})[name] = stated.value
        return found
