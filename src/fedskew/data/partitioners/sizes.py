"""How many rows each client gets: an option of partitioners that fix sizes before labels, and partitioners by size."""

import heapq
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from fedskew.data.partitioners import base
from fedskew.data.partitioners.base import Floats, Ints, LabelTable, Partition, Partitioner
from fedskew.errors import FieldError, require
from fedskew.fields import Above, AtLeast, demand, fits, omit_if_default

__all__ = ["Iid", "QuantityDir", "Sized"]

Law = Literal["equal", "lognormal", "power"]


def whole(shares: Floats, total: int, least: int) -> Ints:
    """`least` rows for each client, the rest of `total` in proportion to the shares, [N]."""
    return np.asarray(least + base.largest_remainder(shares[None], np.array([total - least * len(shares)]))[0])


@dataclass(frozen=True)
class Sized(Partitioner):
    """Base of the partitioners that take client sizes. All take them in the same way.

    `sizes` is a law or a list. A law gives every client one row, and the rest in proportion to

        equal      1
        lognormal  e^(sigma z_k),  z_k ~ N(0, 1)
        power      rank(k)^(-a), a random ranking

    with sigma or a = `size_skew`. FedLab and FedDyn (unbalanced) take lognormal sizes, fluke and FLSim a power law. A
    list gives the rows of each client; its sum must not exceed the rows there are, and rows beyond it stay unused.

    Raises:
        ConfigError: A field breaks a rule, or the sizes do not fit the clients or the rows.
    """

    sizes: Law | tuple[Annotated[int, AtLeast(0)], ...] | None = omit_if_default()
    """client sizes: a law, or the rows of each client, such as 30,20,10; unset: equal"""
    size_skew: Annotated[float, AtLeast(0)] | None = omit_if_default()
    """sigma of the law lognormal, exponent a of the law power; 0: equal sizes; unset: 1"""

    def __post_init__(self) -> None:
        given: Any = self.sizes
        given = given.tolist() if hasattr(given, "tolist") else given  # of an array or a tensor
        if isinstance(given, list):
            object.__setattr__(self, "sizes", tuple(given))
        if isinstance(self.sizes, tuple):  # an error names one size, not a hundred thousand
            wrong = [size for size in self.sizes if not fits(size, int) or size < 0]
            if wrong or not any(self.sizes):
                rule = "be whole numbers of rows, at least 0 and not all 0"
                raise FieldError(type(self).__name__, "sizes", rule, wrong[0] if wrong else 0)
        super().__post_init__()
        used = self.sizes in ("lognormal", "power") or self.size_skew is None
        demand(self, "size_skew", used, "be unset, except where sizes is lognormal or power", "set sizes")
        if isinstance(self.sizes, tuple) and hasattr(self, "samples"):
            demand(self, "samples", self.samples == 0, "be 0 if sizes are a list", "leave it out")

    @property
    def uneven(self) -> bool:
        """Whether sizes are anything but the partitioner's own equal ones."""
        return self.sizes not in (None, "equal")

    def shares(self, clients: int, gen: np.random.Generator) -> Floats:
        """What sizes are in proportion to, [N]: the law's shares, or the list. Raises ConfigError for a wrong list."""
        skew = 1.0 if self.size_skew is None else float(self.size_skew)
        if self.sizes == "lognormal":
            logs = skew * gen.standard_normal(clients)
            return np.asarray(np.exp(logs - logs.max()))
        if not isinstance(self.sizes, tuple):
            return np.asarray(np.power(gen.permutation(clients) + 1.0, -skew))
        listed = len(self.sizes)
        require(clients == listed, "clients", f"equal the {listed} sizes that are given", clients, f"use {listed}")
        return np.array(self.sizes, dtype=np.float64)

    def fitted(
        self, shares: Floats, rows: int, group: Ints | None = None, caps: Ints | None = None, samples: int = 0
    ) -> Ints:
        """Sizes for the shares under which all clients have at most `rows`, and no group more than its cap.

        Args:
            shares: From `shares`, [N].
            rows: Most rows of all clients.
            group: Group of each client, below G, [N]; -1 for none; None where there are no groups.
            caps: Most rows of each group, [G].
            samples: Mean size of a law; 0 for the largest that fits.

        Returns:
            Sizes, int64 [N]: exactly the list; of a law, in proportion to `shares` beyond the first row.

        Raises:
            ConfigError: They do not fit.
        """
        clients = len(shares)
        group = np.full(clients, -1) if group is None else group
        caps = np.zeros(0, dtype=np.int64) if caps is None else caps
        inside = group >= 0
        owners = np.bincount(group[inside], minlength=len(caps))
        load = np.bincount(group[inside], shares[inside], len(caps)).astype(np.float64)
        if isinstance(self.sizes, tuple):
            for cap, asked in zip([rows, *caps.tolist()], [shares.sum(), *load.tolist()], strict=True):
                if asked > cap:
                    rule = f"fit the data: the {cap} rows that there are for some of these clients"
                    hint = f"scaled by {np.floor(cap / asked * 1e4) / 1e4:g} they would fit"
                    raise FieldError(type(self).__name__, "sizes", rule, int(asked), hint)
            return shares.astype(np.int64)
        room = clients <= rows and bool((owners <= caps).all())
        require(room, "clients", "leave every client at least one row under this partition", clients, "use fewer")
        held = load > 0
        scale = min([(rows - clients) / shares.sum(), *((caps - owners)[held] / load[held])])
        most = int(clients + scale * shares.sum()) // clients
        if samples:
            rule = f"be at most {most} here, the mean of these sizes"
            demand(self, "samples", samples <= most, rule, f"use {most}")
            scale = (samples - 1) * clients / shares.sum()
        sizes = np.empty(clients, dtype=np.int64)
        ends = np.cumsum(np.bincount(group + 1, minlength=len(caps) + 1))
        for members in np.split(np.argsort(group, kind="stable"), ends[:-1]):
            if len(members):
                total = len(members) + int(scale * shares[members].sum() + 1e-6)
                sizes[members] = whole(shares[members], total, 1)
        return sizes


def equal_size(partitioner: Any, largest: int, clients: int, most: int) -> int:
    """Rows of each client: `samples`, or the largest feasible number where it is 0; ConfigError for too many."""
    rule = "leave every client at least one row under this partition"
    require(largest > 0, "clients", rule, clients, f"use at most {most}")
    samples = partitioner.samples
    demand(partitioner, "samples", samples <= largest, f"be at most {largest} here", f"use {largest} or 0")
    return int(samples) or largest


def packed(shares: Floats, room: Floats, gen: np.random.Generator) -> Ints:
    """One class for each client, so that the classes are filled evenly, [M].

    The largest client comes first. Each takes the class with most room left, ties at random.

    Args:
        shares: Sizes, [M].
        room: Room of each class in the same unit, [C].
        gen: Source of random numbers.
    """
    tie = gen.permutation(len(room))
    heap = [(-float(space), int(t), c) for c, (space, t) in enumerate(zip(room, tie, strict=True))]
    heapq.heapify(heap)
    home = np.empty(len(shares), dtype=np.int64)
    order = gen.permutation(len(shares))
    order = order[np.argsort(-shares[order], kind="stable")]
    for k, share in zip(order.tolist(), shares[order].tolist(), strict=True):
        space, t, c = heap[0]
        heapq.heapreplace(heap, (space + share, t, c))
        home[k] = c
    return home


@dataclass(frozen=True)
class Iid(Sized):
    """Equal random parts: all rows are shuffled, n_k = n/N (sizes differ by at most one row). The usual IID reference.

    With `sizes` client k gets that many rows of the shuffle.

    Formula: n_k = n / N rows of a shuffle
    Used by: the IID reference of FedLA and others
    Limits: equal sizes differ by at most one row; every row is used

    Raises:
        ConfigError: There are more clients than rows.

    Example:
        >>> from fedskew.data import federate
        >>> from fedskew.data.partitioners import Iid
        >>> federate("digits", Iid(), clients=4).sizes.tolist()
        [360, 359, 360, 359]
    """

    name: ClassVar[str] = "iid"

    def draw(self, table: LabelTable, clients: int, gen: np.random.Generator) -> Partition:
        """Give the row at place i of a shuffle to client floor(i N / n), or n_k places in turn to client k."""
        n = len(table.codes)
        self.enough_rows(clients, n)
        if self.uneven:
            return _dealt(self.fitted(self.shares(clients, gen), n), n, gen)
        return _dealt(np.bincount(np.arange(n) * clients // n, minlength=clients), n, gen)


def _dealt(sizes: Ints, rows: int, gen: np.random.Generator) -> Partition:
    """Random rows for clients of these sizes [N], as of one class; rows beyond their sum belong to nobody."""
    return base.deal(np.zeros(rows, np.int64), sizes[:, None], gen)


@dataclass(frozen=True)
class QuantityDir(Partitioner):
    """Sizes are Dirichlet, labels are IID: one draw q ~ Dir(alpha 1_N) is each client's share of the rows.

    Every client first gets `least` rows; the others are divided by largest remainders. NIID-Bench calls it
    "iid-diff-quantity"; FedLab has it, too. Both give nothing first: they draw q again until every client has 10 rows,
    which is `least` 10 with `redraw`.

    Formula: q ~ Dir(α·1_N);  n_k = m + (n − N·m)·q_k
    Used by: NIID-Bench (iid-diff-quantity), FedLab
    Limits: α→∞: equal sizes; α→0: one client has all but m rows each. Every row is used.

    Raises:
        ConfigError: A field breaks a rule, there are too few rows, or `least` is not met in 100 draws.

    References:
        Li et al. 2022, Federated Learning on Non-IID Data Silos: An Experimental Study (ICDE).
        https://arxiv.org/abs/2102.02079
    """

    name: ClassVar[str] = "quantity_dir"
    alpha: Annotated[float, Above(0, hint="use 0.001 for extreme skew")] = 0.5
    """concentration of the sizes"""
    least: Annotated[int, AtLeast(0)] = 1
    """m, rows that every client gets first"""
    redraw: bool | None = omit_if_default()
    """draw again, at most 100 times, until all have `least` rows, instead of giving these first (NIID-Bench, FedLab)"""

    def draw(self, table: LabelTable, clients: int, gen: np.random.Generator) -> Partition:
        """Draw shares, compute sizes, deal."""
        n = len(table.codes)
        self.enough_rows(clients, n)
        first = 0 if self.redraw else self.least

        def sizes() -> Ints:
            return whole(np.exp(base.log_dirichlet(np.full(clients, self.alpha), gen)), n, first)[:, None]

        return _dealt((self.redrawn(sizes) if self.redraw else sizes())[:, 0], n, gen)
