"""Dirichlet partitioners: class by class and client by client."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from fedskew.data.partitioners import base
from fedskew.data.partitioners.base import Ints, Partition, Partitioner, Rounding, Table
from fedskew.errors import require
from fedskew.fields import Above, AtLeast, later

__all__ = ["DirClientEqual", "Dirichlet"]

ALPHA_HINT = "use 0.001 for extreme skew, or dir_prior, which takes 0"


@dataclass(frozen=True)
class Dirichlet(Partitioner):
    """Class by class: each class is divided by shares p_c ~ Dir(alpha 1_N), rounded by largest remainders.

    Client k gets floor(N_c p_ck) rows, and one more where its fraction is among the largest. Every row is used, sizes
    differ, and some clients may have no rows.

    The code of papers and libraries cuts at the cumulative shares P: client k gets floor(N_c P_ck) - floor(N_c P_c,k-1)
    rows, which is `rounding` "cut". The sum of the shares before the last client is a little below 1, so a cut leaves
    one row of most classes over. The last client that has a share gets it: at alpha 0.05 it holds three times as many
    classes as the others, most with one row. FL-bench and flwr-datasets divide so. FedBal does not state its rounding.

    With `balance_guard` 1, `least` 10 and `rounding` "cut_last" it is NIID-Bench's: classes are divided in the order of
    their labels, a client that has n/N rows or more gets a share of 0 of the next, and all is drawn again until every
    client has 10 rows. What a cut leaves over goes to client N - 1, full or not. FedLab's hetero_dir (C rows) and
    PFLlib's dir (min(40, n / 2N) rows) are the same. They draw without end, here it is 100 times at most.

    Formula: p_c ~ Dir(α·1_N);  n_kc = N_c·p_ck by largest remainders
    Used by: FedBal; cut: FL-bench, flwr-datasets; cut and guarded: NIID-Bench, PFLlib, MarsFL
    Limits: α→∞: IID histograms; α→0: one client a class. Every row is used.

    Raises:
        ConfigError: A field breaks a rule, or ``least`` is not met in 100 draws.

    Example:
        >>> from fedskew.data import federate
        >>> from fedskew.data.partitioners import Dirichlet
        >>> federate("digits", Dirichlet(alpha=0.1), clients=4).counts.tolist()[0]
        [133, 0, 1, 34, 144, 120, 3, 95, 0, 0]

    References:
        Hsu, Qi and Brown 2019, Measuring the Effects of Non-Identical Data Distribution for Federated Visual
        Classification. https://arxiv.org/abs/1909.06335
        Li et al. 2022, Federated Learning on Non-IID Data Silos: An Experimental Study (ICDE).
        https://arxiv.org/abs/2102.02079
    """

    name: ClassVar[str] = "dirichlet"
    stream: ClassVar[str] = "dir_class"
    version: ClassVar[int] = 2  # rounding was cut by default
    alpha: Annotated[float, Above(0, hint=ALPHA_HINT)] = 0.1
    """concentration: small gives each class to few clients, large gives IID histograms"""
    balance_guard: Annotated[float, AtLeast(1, infinite=True, hint=base.FULL)] | None = None
    """clients with this many times n/N rows get no rows of later classes (NIID-Bench: 1); unset: off"""
    least: Annotated[int, AtLeast(0)] | None = None
    """minimum rows of each client (NIID-Bench: 10), an error after 100 draws; unset: 0, one draw"""
    rounding: Rounding = later(default="largest_remainder")
    """rounding of shares to rows: "largest_remainder", or "cut" at the cumulative shares, the remainder to the last
    share ("cut_last": to client N - 1), as papers and libraries do"""

    def draw(self, table: Table, clients: int, gen: np.random.Generator) -> Partition:
        """Draw shares [C, N], round and deal; draw again while a client has fewer than ``least`` rows."""
        self.enough_rows(clients, len(table.codes))
        return base.deal(table.codes, self.redrawn(lambda: self._counts(table.totals, clients, gen)), gen)

    def _counts(self, totals: Ints, clients: int, gen: np.random.Generator) -> Ints:
        """Rows of each class, [N, C]."""
        logs = base.log_dirichlet(np.full((len(totals), clients), self.alpha), gen)
        if self.balance_guard is None:
            return base.rounded(np.exp(logs), totals, self.rounding).T
        return base.guarded(logs, totals, self.balance_guard, self.rounding)


@dataclass(frozen=True)
class DirClientEqual(Partitioner):
    """Client by client, near-equal sizes: r_k ~ Dir(alpha 1_C), n_kc = round(s r_kc), s = min_c N_c / sum_k r_kc.

    The scarcest class is used up; rows of the others are left over. Where rounding would ask for more rows than a class
    has, that class is rounded by largest remainders to N_c. FedGA uses it.

    Formula: r_k ~ Dir(α·1_C);  n_kc = round(s·r_kc),  s = min_c N_c / Σ_k r_kc
    Used by: FedGA
    Limits: α→∞: IID histograms; α→0: one class a client. Sizes differ by at most C rows.

    Raises:
        ConfigError: A field breaks a rule, or there are more clients than rows of the scarcest class.

    References:
        Xiao, Zuo and Wang 2024, FedGA: Federated Learning with Gradient Alignment for Error Asymmetry Mitigation.
        https://arxiv.org/abs/2412.16582
    """

    name: ClassVar[str] = "dir_client_equal"
    alpha: Annotated[float, Above(0, hint=ALPHA_HINT)] = 0.1
    """concentration of each client's class proportions"""

    def draw(self, table: Table, clients: int, gen: np.random.Generator) -> Partition:
        """Draw proportions [N, C], scale them to the scarcest class, round and deal."""
        least = int(table.totals.min())  # with more clients s can fall below one row, and rounding leaves nothing
        rule = f"be at most the {least} rows of the scarcest class, to which this partition scales the others"
        require(clients <= least, "clients", rule, clients, f"use {least}, or dirichlet, which uses every row")
        shares = np.exp(base.log_dirichlet(np.full((clients, len(table.totals)), self.alpha), gen))  # r, [N, C]
        scale = 1.0 / (shares.sum(axis=0) / table.totals).max()  # s; written so that an empty column cannot divide
        counts = np.rint(scale * shares).astype(np.int64)
        over = counts.sum(axis=0) > table.totals
        counts[:, over] = base.largest_remainder(shares[:, over].T, table.totals[over]).T
        return base.deal(table.codes, counts, gen)
