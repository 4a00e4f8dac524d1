"""What a consortium knows before it starts: the cases of each class at each site, failures, links and speeds."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedskew.data.encoding import number_of
from fedskew.data.sources.readers import FACTS, count_table
from fedskew.errors import DataError

LEAST = 3  # cases of a site: one at least is kept for its test, see `fedskew.data.federation.hold_out`
Rule = tuple[str, Callable[[float], bool]]
POSITIVE: Rule = ("be a positive number", lambda v: 0 < v < math.inf)
COLUMNS: dict[str, Rule] = {  # of what a table says of a site beside its counts
    name: ("be a probability in [0, 1)", lambda v: 0 <= v < 1) if name == "failure" else POSITIVE for name in FACTS
}


@dataclass(frozen=True, eq=False)
class Consortium:
    """The sites, as a file describes them.

    Attributes:
        sites: Names of the N sites.
        classes: Names of the C classes.
        counts: Cases of each class at each site, int64 [N, C].
        facts: Values of the columns that are no class and are there, [N] each: ``failure``, the probability that a site
            misses a round; ``up`` and ``down``, its link in Mbit/s; ``step_s``, seconds of a local step; ``speed``, its
            speed as a multiple of this machine's.
    """

    sites: tuple[str, ...]
    classes: tuple[str, ...]
    counts: npt.NDArray[np.int64]
    facts: dict[str, list[float]]

    @property
    def rare(self) -> int:
        """The class with the fewest cases, the first of several."""
        return int(self.counts.sum(0).argmin())


def read_consortium(path: str | Path) -> Consortium:
    r"""Read a csv file with a line of names and then a line for each site.

    The columns ``site``, ``failure``, ``up``, ``down``, ``step_s`` and ``speed`` are optional, see `Consortium`. Every
    other column is a class, but for those that `fedskew.data.sources.readers.count_table` takes for names or refuses.

    Args:
        path: The file.

    Returns:
        What it holds.

    Raises:
        DataError: A column is missing, a value breaks its rule, a class or the last site is the sum of the others, or
            there are fewer than two classes or sites.

    Example:
        >>> from pathlib import Path
        >>> from fedskew.data.consortium import read_consortium
        >>> _ = Path("sites.csv").write_text("site,ill,well,failure\nva,40,60,0.1\nparis,5,80,0\n")
        >>> found = read_consortium("sites.csv")
        >>> found.sites, found.classes[found.rare], found.facts
        (('va', 'paris'), 'ill', {'failure': [0.1, 0.0]})
    """
    table = count_table(path)
    classes, counts, columns = table.classes, table.counts, list(table.facts)

    def claim(holds: bool, rule: str, got: object, where: str = "") -> None:
        if not holds:
            raise DataError(f"{path}{where} must {rule}; got {got}")

    claim(bool(classes), "begin with a line of names: the classes", ",".join(map(str, counts[0].tolist())))
    claim(len(classes) > 1, "have a column for each of two classes at least", ", ".join(classes) or "none")
    both, have = ("up" in columns) == ("down" in columns), ", ".join((*classes, *columns))
    claim(both, "have both columns up and down, or none", have)
    claim(not {"step_s", "speed"} <= {*columns}, "have one of the columns step_s and speed", "both")
    claim(len(counts) > 1, "have a line for each of two sites at least", len(counts))
    sites = table.clients or tuple(map(str, range(1, len(counts) + 1)))
    for name, cells in table.facts.items():
        rule, holds = COLUMNS[name]
        for row, cell in zip(table.rows, cells, strict=True):
            claim(holds(number_of(cell)), rule, repr(cell), f" line {row}: the value of {name!r}")
    facts = {name: [float(cell) for cell in cells] for name, cells in table.facts.items()}
    for name, cases in zip(classes, counts.sum(0), strict=True):
        claim(cases > 0, "have a case at some site", "none", f": class {name!r}")
    for name, cases in zip(sites, counts.sum(1), strict=True):
        claim(cases >= LEAST, f"have {LEAST} cases at least, to train and to test", cases, f": site {name!r}")
    return Consortium(sites, classes, counts, facts)


def scaled(counts: npt.NDArray[np.int64], have: Sequence[int]) -> tuple[npt.NDArray[np.int64], float]:
    """Counts that a dataset can meet: those given, or all times the largest factor that its rows allow.

    Cumulative sums over the sites are rounded, f (n_1c + ... + n_kc), so that every total is within a row of its exact
    value and no class is favoured. A site that is left with fewer than `LEAST` rows gets so many of its largest class.

    Args:
        counts: Cases [N, C].
        have: Rows of each class in the dataset, [C].

    Returns:
        (counts, factor f).

    Raises:
        DataError: A class has too few rows for the sites.

    Example:
        >>> import numpy as np
        >>> from fedskew.data.consortium import scaled
        >>> scaled(np.array([[40, 10], [80, 30]]), [66, 100])
        (array([[20,  5],
               [40, 15]]), 0.5)
    """
    asked, most = counts.sum(0), np.asarray(have)
    room = np.maximum(most - LEAST * len(counts), most // 2)  # the rest is for sites that are left with too few
    factor = 1.0 if (asked <= most).all() else float((room / np.maximum(asked, 1)).min())
    made = np.diff(np.rint(counts.cumsum(0) * factor), axis=0, prepend=0).astype(np.int64)
    few, largest = np.flatnonzero(made.sum(1) < LEAST), counts.argmax(1)
    made[few, largest[few]] = LEAST
    if (made.sum(0) > most).any():
        rule = f"have {LEAST} rows for each of {len(counts)} sites"
        raise DataError(f"a stand-in must {rule}; got {min(have)} of a class")
    return made, factor
