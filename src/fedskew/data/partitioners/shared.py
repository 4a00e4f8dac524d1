"""A partitioner over another one: a small set of rows that all clients share."""

import math
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from fedskew import rng
from fedskew.data.arrays import draw as draw_rows
from fedskew.data.partitioners.base import Columns, Partition, Partitioner, table_of
from fedskew.data.partitioners.dirichlet import Dirichlet
from fedskew.errors import FieldError
from fedskew.fields import Above, Within, demand, omit_if_default

__all__ = ["Shared"]


@dataclass(frozen=True)
class Shared(Partitioner):
    """Shared data: a set G, even over the classes, is taken out; a base divides the rest, each client adds a part of G.

    G has m = floor(beta n / ((1 + beta) C)) rows of each class, so that its size is about beta times that of the rows D
    that the base divides. A client adds floor(alpha C m + 1/2) rows of G, drawn from all of G alike. So rows of G have
    several owners, and count at each of them. What nobody draws stays unused. The paper also trains the first model on
    G at the server: a run whose only client has all of G (`divides="shared"`) makes it, another begins from it.

    Formula: m = ⌊β·n/((1+β)·C)⌋ rows of each class make G;  rows of k = base(D, k) ∪ ⌊α·C·m + ½⌋ of G
    Used by: Zhao et al. 2018 (10 clients of 1 or 2 labels; β up to 0.25)
    Limits: α = 0: the base alone on D; α = 1: every client has all of G

    Raises:
        ConfigError: A field breaks a rule, or beta gives no row of a class, or all rows of one.

    Example:
        >>> from fedskew.data import federate
        >>> from fedskew.data.partitioners import LabelsK, Shared
        >>> federate("digits", Shared(LabelsK(1), beta=0.1, alpha=0.5), clients=10).counts[0].tolist()
        [8, 7, 6, 7, 3, 7, 6, 7, 7, 138]

    References:
        Zhao et al. 2018, Federated Learning with Non-IID Data. https://arxiv.org/abs/1806.00582
    """

    name: ClassVar[str] = "shared"
    overlaps: ClassVar[bool] = True
    base: Partitioner = field(default_factory=Dirichlet)
    """partitioner that divides the rows besides G"""
    beta: Annotated[float, Above(0)] = 0.05
    """size of G over that of the rows besides it"""
    alpha: Annotated[float, Within(0, 1)] = 0.5
    """part of G that each client adds, in [0, 1]"""
    divides: Literal["rest", "shared"] = omit_if_default(default="rest")
    """rows that the base divides: all besides G, or only G, to train a first model on it"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.base.overlaps or self.base.name in ("counts", "file"):
            rule, hint = "be a partitioner that draws", "for example dirichlet"
            raise FieldError(type(self).__name__, "base", rule, self.base.name, hint)

    @property
    def decides(self) -> bool:
        """Whether the base decides the number of clients."""
        return self.base.decides

    def count(self, columns: Columns) -> int:
        """Number of clients that the base decides."""
        return self.base.count(columns)

    def split(self, labels: npt.ArrayLike, clients: int, seed: int, columns: Columns | None = None) -> Partition:
        """Divide as `Partitioner.split`. The base is keyed as alone, client k's part of G by (seed, k)."""
        table = table_of(labels, columns, clients)
        key, classes, scarce = rng.key(seed, "partition", self.name), len(table.totals), int(table.totals.min())
        each = math.floor(self.beta * len(table.codes) / (1 + self.beta) / classes + 1e-9)  # m
        demand(self, "beta", each > 0, f"give a row of each of the {classes} classes", "use more")
        demand(self, "beta", each < scarce, f"leave rows of each class, one has {scarce}", "use less")
        common = draw_rows(table.codes, np.full(classes, each), key)
        left = np.setdiff1d(np.arange(len(table.codes)), common, assume_unique=True)
        if self.divides == "shared":
            left, common = common, common[:0]
        if self.base.decides:  # of all rows
            whole = self.base.split(labels, clients, seed, columns)
            rest = whole.masked(np.isin(whole.rows, left))
        else:
            facts = {name: np.asarray(values)[left] for name, values in (columns or {}).items()}
            local = self.base.split(np.asarray(labels)[left], clients, seed, facts)
            rest = Partition(left[local.rows], local.offsets)
        take = math.floor(self.alpha * len(common) + 0.5)
        added = [common[rng.generator(key, "part", k).permutation(len(common))[:take]] for k in range(clients)]
        return Partition.of_lists([np.sort(np.concatenate([rest.of(k), part])) for k, part in enumerate(added)])
