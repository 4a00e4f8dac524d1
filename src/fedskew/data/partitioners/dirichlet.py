"""Dirichlet partitioners: class by class, and client by client around a prior."""

import bisect
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np

from fedskew.data.partitioners import base
from fedskew.data.partitioners.base import Floats, Ints, LabelTable, Partition, Partitioner, Rounding
from fedskew.data.partitioners.sizes import Sized, equal_size, packed
from fedskew.errors import require
from fedskew.fields import Above, AtLeast, demand, omit_if_default

__all__ = ["DirClientEqual", "DirPrior", "Dirichlet"]

BLOCK = 4096  # clients that `DirPrior` serves at a time
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
        ConfigError: A field breaks a rule, or `least` is not met in 100 draws.

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
    rounding: Rounding = omit_if_default(default="largest_remainder")
    """rounding of shares to rows: "largest_remainder", or "cut" at the cumulative shares, the remainder to the last
    share ("cut_last": to client N - 1), as papers and libraries do"""

    def draw(self, table: LabelTable, clients: int, gen: np.random.Generator) -> Partition:
        """Draw shares [C, N], round and deal; draw again while a client has fewer than `least` rows."""
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

    def draw(self, table: LabelTable, clients: int, gen: np.random.Generator) -> Partition:
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


@dataclass(frozen=True)
class DirPrior(Sized):
    """Fixed client size: q_k ~ Dir(alpha p) over classes with sum(p) = 1; alpha = 0 gives each client one class.

    Counts are size * q_k by largest remainders. Clients are served in random order, those of one class first. A class
    without rows left is replaced by the others in the proportions of q_k. Seol and Kim (2023) use it; their case 2 is
    `DirPrior(alpha=0, rest=20, alpha_rest=0.2)`.

    alpha has two meanings. `concentration` "total" is Dir(alpha p): alpha is the sum over the classes. "per_class" is
    Dir(alpha C p), as in flwr-datasets and FedLab. With 10 classes, per_class 0.2 equals total 2.

    Sizes are equal unless `sizes` is set. With a law, clients of one class are packed: the largest first, each
    into the class with most rows left. All sizes then shrink until every class has enough rows. `samples` is their
    mean.

    With equal sizes, FedNova equals FedAvg, and a selection by size is random. Seol and Kim write Dir(alpha p) with p a
    distribution, and state no sizes.
    Equal sizes give their sample totals; their protocol here has `sizes="lognormal", size_skew=0.05` as a second
    setting.

    FedDyn's code, FedLab and flwr-datasets (inner Dirichlet) serve all clients together: repeatedly, a random
    client takes one row of a class drawn from q_k. Counts are multinomial, and a class runs out for all clients at
    the same time. This is `serve="together", concentration="per_class"`. Served in turn, counts are rounded, and the
    last clients get the remaining rows.

    Formula: q_k ~ Dir(α·p), Σ_c p_c = 1;  n_kc = size_k·q_kc;  α = 0: q_k is one class
    Used by: Seol and Kim; with serve = together: FedDyn, FedLab, flwr-datasets (inner)
    Limits: α→∞: histograms in the proportions p; α→0: one class a client. Sizes are as asked for.

    Raises:
        ConfigError: A field breaks a rule, or `samples` or `sizes` ask for more than the classes allow.

    Example:
        >>> from fedskew.data import federate
        >>> from fedskew.data.partitioners import DirPrior
        >>> federate("digits", DirPrior(0.2, sizes="lognormal", size_skew=0.3), clients=4).sizes.tolist()
        [318, 262, 519, 339]
        >>> federate("digits", DirPrior(0.2, sizes=[100, 200, 300]), clients=3).sizes.tolist()
        [100, 200, 300]

    References:
        Seol and Kim 2023, Performance Enhancement in Federated Learning by Reducing Class Imbalance of Non-IID Data
        (Sensors 23(3):1152). https://doi.org/10.3390/s23031152
        Acar et al. 2021, Federated Learning Based on Dynamic Regularization (ICLR). https://arxiv.org/abs/2111.04263
    """

    name: ClassVar[str] = "dir_prior"
    alpha: Annotated[float, AtLeast(0)] = 0.0
    """concentration of most clients; 0: one class per client"""
    rest: Annotated[int, AtLeast(0)] = 0
    """number of clients, the last ones, with alpha_rest instead of alpha"""
    alpha_rest: Annotated[float, AtLeast(0)] = 0.2
    """concentration of the last `rest` clients"""
    samples: Annotated[int, AtLeast(0)] = 0
    """rows per client (the mean of a size law); 0: the largest feasible, at most n/N"""
    prior: Literal["uniform", "data"] = "uniform"
    """p: uniform over the classes, or the class shares of the rows"""
    concentration: Literal["total", "per_class"] | None = omit_if_default()
    """whether alpha is the total, Dir(alpha p), or per class, Dir(alpha C p); unset: total"""
    serve: Literal["in_turn", "together"] | None = omit_if_default()
    """one client after the other with rounded counts, or all together row by row (FedLab, flwr); unset: in_turn"""

    def draw(self, table: LabelTable, clients: int, gen: np.random.Generator) -> Partition:
        """Serve the clients of one class, then the others from what remains."""
        demand(self, "rest", self.rest <= clients, f"be at most the {clients} clients", f"use {clients}")
        alphas = np.repeat([float(self.alpha), float(self.alpha_rest)], [clients - self.rest, self.rest])  # [N]
        single = np.flatnonzero(alphas == 0)
        sizes, home = (self._unequal if self.uneven else self._equal)(table.totals, clients, single, gen)
        counts = np.zeros((clients, len(table.totals)), dtype=np.int64)
        counts[single, home] = sizes[single]
        p = table.totals / table.totals.sum() if self.prior == "data" else np.full(counts.shape[1], 1 / counts.shape[1])
        p = p * len(p) if self.concentration == "per_class" else p
        order = gen.permutation(np.flatnonzero(alphas > 0))
        serve = _serve_together if self.serve == "together" else _serve_all
        serve(counts, order, alphas, p, sizes, table.totals - counts.sum(axis=0), gen)
        return base.deal(table.codes, counts, gen)

    def _equal(self, totals: Ints, clients: int, single: Ints, gen: np.random.Generator) -> tuple[Ints, Ints]:
        """Equal sizes [N], and the class of each client of one class."""
        # the largest size up to n/N at which every one-class client finds a class with that many rows; else 0
        feasible = range(1, int(totals.sum()) // clients + 1)
        largest = bisect.bisect_left(feasible, True, key=lambda size: int((totals // size).sum()) < len(single))
        size = equal_size(self, largest, clients, int(totals.sum()))
        seats = np.repeat(np.arange(len(totals)), totals // size)  # a class seats N_c // size clients
        return np.full(clients, size), gen.permutation(seats)[: len(single)]

    def _unequal(self, totals: Ints, clients: int, single: Ints, gen: np.random.Generator) -> tuple[Ints, Ints]:
        """Sizes [N] by the law or the list, and the class of each client of one class."""
        shares = self.shares(clients, gen)
        room = totals * (shares.sum() / totals.sum()) if isinstance(self.sizes, str) else totals.astype(np.float64)
        home = packed(shares[single], room, gen)
        group = np.full(clients, -1)
        group[single] = home
        return self.fitted(shares, int(totals.sum()), group, totals, self.samples), home


def _serve_all(
    counts: Ints, order: Ints, alphas: Floats, p: Floats, sizes: Ints, left: Ints, gen: np.random.Generator
) -> None:
    """Fill `counts[k]` for the clients k in this order, many at once as long as no class runs out.

    A stretch ends with the client that empties a class, so there are at most C stretches besides the blocks.
    """
    if not len(order):
        return  # and nothing is drawn
    # one stream for each kind of draw, so that a client's numbers do not depend on the block
    apart = np.random.Generator(np.random.PCG64(int(gen.integers(2**63))))
    for at in range(0, len(order), BLOCK):
        ids = order[at : at + BLOCK]
        a = np.maximum(alphas[ids, None] * p, 1e-300)
        logs = base.normalised(np.log(gen.standard_gamma(a + 1.0)) - apart.standard_exponential(a.shape) / a)
        done = 0
        while done < len(ids):
            open_ = np.where(left > 0, logs[done:], -np.inf)
            want = base.largest_remainder(np.exp(open_ - open_.max(axis=1, keepdims=True)), sizes[ids[done:]])
            used = np.cumsum(want, axis=0)
            empties = ((used >= left) & (left > 0)).any(axis=1)  # monotone; an empty class changes the next shares
            first = int(np.searchsorted(empties, True))
            good = first + int(first < len(want) and (used[first] <= left).all())
            counts[ids[done : done + good]] = want[:good]
            left -= used[good - 1] if good else 0
            done += good
            if good == first and done < len(ids):
                counts[ids[done]] = _serve(left, logs[done], int(sizes[ids[done]]))
                left -= counts[ids[done]]
                done += 1


def _serve(left: Ints, log_share: Floats, size: int) -> Ints:
    """Take `size` rows by a client's shares from what is left [C]; each pass empties a class or is the last."""
    taken = np.zeros_like(left)
    while (missing := size - int(taken.sum())) > 0:
        logs = np.where(taken < left, log_share, -np.inf)
        step = base.largest_remainder(np.exp(logs - logs.max())[None], np.array([missing]))[0]
        taken += np.minimum(step, left - taken)
    return taken


def _serve_together(
    counts: Ints, order: Ints, alphas: Floats, p: Floats, sizes: Ints, left: Ints, gen: np.random.Generator
) -> None:
    """Fill `counts[k]` with rows drawn from q_k, while a random client at a time takes one row.

    Until a class runs out, q_k stays, so that many rows are drawn at once: a pass goes as far as the first class is
    expected to last, and a little beyond. Of a class that is asked for too often, random ones of these rows get their
    wish; the others ask again in the next pass.
    """
    ids, missing = order, sizes[order]
    logs = base.log_dirichlet(np.maximum(alphas[order, None] * p, 1e-300), gen)
    while len(ids):
        shares = np.exp(base.normalised(np.where(left > 0, logs, -np.inf)))
        shares /= shares.sum(axis=1, keepdims=True)
        rate = shares.mean(axis=0)  # of each class, for a row of a random client
        likely = rate > 1e-200
        lasts = float((left[likely] / rate[likely]).min())
        turns = missing  # all of them, if no class runs out
        if (missing @ shares > left).any() and lasts < missing.sum():
            far = int(lasts + 2 * lasts**0.5) + 1
            turns = np.minimum(missing, gen.multinomial(far, np.full(len(ids), 1 / len(ids))))
        asked = gen.multinomial(turns, shares)  # [M, C]
        for c in np.flatnonzero(asked.sum(axis=0) > left):
            asked[:, c] = gen.multivariate_hypergeometric(asked[:, c], left[c], method="marginals")
        counts[ids] += asked
        left -= asked.sum(axis=0)
        missing = missing - asked.sum(axis=1)
        ids, logs, missing = ids[missing > 0], logs[missing > 0], missing[missing > 0]
