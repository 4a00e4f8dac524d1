"""The numbers that the five papers printed, and those of a third party beside them."""

import csv
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

FIVE = ("FedBal", "FedGA", "Seol-Kim", "FedGR", "FedLA")
THIRD = ("Flower",)  # parties that ran published methods and printed what they got
PAPERS = (*FIVE, *THIRD)
SHARES = ("accuracy", "macro_F1")  # metrics that count as shares of 1


@dataclass(frozen=True)
class Printed:
    """A number of a paper, with its place in it.

    Attributes:
        id: Its name here: paper and running number.
        paper: The paper, or the third party: "Flower" of the README of its NIID-Bench baseline.
        table: Number of the table; "text/Fig3a" of a number in the text about a figure; "logs" of the mean over the
            runs whose logs the authors published.
        dataset: Data set.
        setting: Skew and participation, as the paper names them.
        model: Network.
        method: Method, as the paper names it; "A minus B" is a difference.
        metric: What is printed. Metrics that end in ``_pct`` or ``_points`` are percent, others are as they are.
        mean: The number.
        spread: Standard deviation, where one is printed.
        kind: "result", "input" (a setting, not a result) or "no data" (a data set that is not at hand).
        note: What the paper says beside it.
    """

    id: str
    paper: str
    table: str
    dataset: str
    setting: str
    model: str
    method: str
    metric: str
    mean: float | None
    spread: float | None
    kind: str
    note: str

    @property
    def labels(self) -> tuple[str, ...]:
        """The methods that it is computed from: two of "A minus B", one of "A vs baselines", those of "all three".

        Example:
            >>> from fedskew_papers.printed import printed
            >>> next(p for p in printed() if p.id == "seolkim-033").labels
            ('proposed', 'FedAvg')
        """
        if self.method == "all three":  # Seol and Kim's figure 7d: one number of the method and its two baselines
            return "proposed", "FedAvg", "FedNova"
        return tuple(self.method.partition(" vs ")[0].split(" minus "))

    @property
    def counts(self) -> bool:
        """Whether it counts rounds, rows or times, and is no share: its gain is then a ratio, and no difference."""
        share = self._shared or "weight" in self.metric
        return not share and not self.metric.endswith(("_pct", "_points"))

    @property
    def points(self) -> float:
        """What turns the unit of its metric into points."""
        return 100.0 if self._shared else 1.0

    @property
    def _shared(self) -> bool:
        return self.metric.partition(", round")[0] in SHARES

    @property
    def text(self) -> str:
        """The number with its spread."""
        spread = "" if self.spread is None else f" ± {self.spread:g}"
        return "" if self.mean is None else f"{self.mean:g}{spread}"

    @property
    def runs(self) -> int:
        """How many runs the paper names for it; 0 where it names none.

        Example:
            >>> from fedskew_papers.printed import printed
            >>> next(p for p in printed() if p.id == "fedga-001").runs
            5
        """
        match = re.search(r"(\d+) runs", self.note)
        return int(match[1]) if match else 0


@lru_cache(1)
def printed() -> tuple[Printed, ...]:
    """Every printed number, in the order of papers and tables: 1039 of the five papers, then 60 of a third party.

    Example:
        >>> from fedskew_papers.printed import FIVE, printed
        >>> sum(p.paper in FIVE for p in printed()), sum(p.paper not in FIVE for p in printed())
        (1039, 60)
    """
    with (Path(__file__).parent / "printed.csv").open(encoding="utf-8", newline="") as opened:
        rows: list[dict[str, Any]] = list(csv.DictReader(opened))
    return tuple(Printed(**{**row, "mean": _number(row["mean"]), "spread": _number(row["spread"])}) for row in rows)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None  # "28x28", or nothing printed
