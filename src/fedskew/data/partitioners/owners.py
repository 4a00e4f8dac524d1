"""Partitioners by who owns which labels: the pathological splits of libraries, and the extended Dirichlet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np

from fedskew.data.partitioners.base import (
    FULL,
    TRIES,
    Ints,
    Partition,
    Partitioner,
    Rounding,
    Table,
    deal,
    enough_rows,
    guarded,
    largest_remainder,
    log_dirichlet,
    normalised,
    redrawn,
    rounded,
)
from fedskew.data.partitioners.labels import enough_labels, label_lists
from fedskew.fields import Above, AtLeast, demand, later

__all__ = ["DirExtended", "Pathological"]

Owns = np.ndarray  # bool [N, C]
TEST_BATCH = 40  # PFLlib: batch of 10 / (1 - training share of 0.75)


@dataclass(frozen=True)
class Pathological(Partitioner):
    """L labels for each client by the rule of a library; owners of a label divide its rows.

    `owners` "first": client k has label k mod C and L - 1 others at random, as in NIID-Bench (#C = L), FedLab
    (noniid-#label) and flwr-datasets (first-deterministic).

    "random": client k has L labels at random, as in flwr-datasets (its default), where a label that nobody drew stays
    unused. In fluke (label_quantity_skew) such a label gets an owner, and each row's owner is drawn.

    "cyclic": client k has labels k, k+1, ..., k+L-1 mod C, as in flwr-datasets (deterministic).

    "blocks": label c goes to the first ceil(L N / C) clients that have fewer than L labels, as in PFLlib (pat).

    With `shares` "equal" each of the m owners of a label gets floor(N_c / m) rows, the first ones one more. "random" is
    PFLlib's unbalanced form: each owner gets a random number from N_c / 10m to N_c / m rows, the last one the rest.
    Under first and random labels differ in their number of owners, and so do sizes; in `labels_k` they do not.

    Raises:
        ConfigError: A field breaks a rule, or ``labels`` exceeds the number of classes.

    Example:
        >>> from fedskew.data import federate
        >>> from fedskew.data.partitioners import Pathological
        >>> (federate("digits", Pathological(owners="cyclic"), clients=3).counts > 0).int().tolist()[2]
        [0, 0, 1, 1, 0, 0, 0, 0, 0, 0]

    References:
        Li et al. 2022, Federated Learning on Non-IID Data Silos: An Experimental Study (ICDE).
        https://arxiv.org/abs/2102.02079
        Zhang et al. 2023, PFLlib: Personalized Federated Learning Algorithm Library. https://arxiv.org/abs/2312.04992
    """

    name: ClassVar[str] = "pathological"
    formula: ClassVar[str] = "client k owns the L labels of a rule;  n_kc = N_c / #owners of c, or a random part"
    users: ClassVar[str] = "NIID-Bench (#C = L), FedLab, flwr-datasets, PFLlib (pat)"
    limits: ClassVar[str] = "L = C: equal IID histograms (shares = equal)"
    labels: Annotated[int, AtLeast(1)] = 2
    """L, labels per client"""
    owners: Literal["first", "random", "cyclic", "blocks"] = "first"
    """who owns a label: NIID-Bench's and FedLab's rule, flwr's default, flwr's deterministic one, or PFLlib's"""
    shares: Literal["equal", "random"] = "equal"
    """how owners divide a label: equally, or by random numbers (PFLlib, unbalanced)"""

    def draw(self, table: Table, clients: int, gen: np.random.Generator) -> Partition:
        """Name the owners, divide each label among them, deal."""
        classes = len(table.totals)
        enough_labels(self, classes)
        owns = _owners(self.owners, clients, classes, self.labels, gen)
        if self.shares == "equal":
            counts = largest_remainder(owns.T.astype(np.float64), np.where(owns.any(axis=0), table.totals, 0)).T
        else:
            counts = np.zeros((clients, classes), dtype=np.int64)
            low = min(TEST_BATCH, len(table.codes) // (2 * clients)) // classes
            for c in np.flatnonzero(owns.any(axis=0)):
                counts[owns[:, c], c] = _random_parts(int(table.totals[c]), int(owns[:, c].sum()), low, gen)
        return deal(table.codes, counts, gen)


def _owners(rule: str, clients: int, classes: int, labels: int, gen: np.random.Generator) -> Owns:
    """Whether a client owns a label, [N, C]."""
    k, owns = np.arange(clients), np.zeros((clients, classes), dtype=bool)
    if rule == "blocks":
        each = -(-labels * clients // classes)
        held = np.zeros(clients, dtype=np.int64)
        for c in range(classes):
            takers = np.flatnonzero(held < labels)[:each]
            owns[takers, c] = True
            held[takers] += 1
        return owns
    if rule == "cyclic":
        owns[k[:, None], (k[:, None] + np.arange(labels)) % classes] = True
        return owns
    keys = gen.random((clients, classes))  # the labels of the L smallest keys
    if rule == "first":
        keys[k, k % classes] = -1.0
    owns[k[:, None], np.argpartition(keys, labels - 1, axis=1)[:, :labels]] = True
    return owns


def _random_parts(total: int, owners: int, low: int, gen: np.random.Generator) -> Ints:
    """Random rows of all owners of a label but the last, who gets the rest, [owners]."""
    mean = total / owners
    least = max(int(max(mean / 10, low)), 0)
    parts: Ints = gen.integers(least, max(int(mean), least + 1), owners)
    parts[-1] = 0
    parts = np.minimum(parts, np.maximum(total - (np.cumsum(parts) - parts), 0)).astype(np.int64)
    parts[-1] = total - parts.sum()
    return parts


@dataclass(frozen=True)
class DirExtended(Partitioner):
    """Extended Dirichlet: L labels a client as in labels_k; each label is divided among its owners by Dir(alpha).

    Shares are rounded by largest remainders; all rows of a label that somebody owns are used. Li and Lyu (NeurIPS 2023)
    and PFLlib ("exdir") differ in three points, each of which is an option: L labels are drawn at random for every
    client, until each label has L N / 2C owners (PFLlib; 5C in the authors' code), at least one (`owners` "random"); a
    client with n/N rows or more gets no more of later labels (`balance_guard` 1); all is drawn again until every client
    has 10 rows (`least` 10). Their shares are cut (`rounding` "cut"), and their alpha is 1 to 100.

    Raises:
        ConfigError: A field breaks a rule, ``labels`` exceeds the number of classes, or ``least`` is not met in 100
            draws.

    References:
        Li and Lyu 2023, Convergence Analysis of Sequential Federated Learning on Heterogeneous Data (NeurIPS).
        https://arxiv.org/abs/2311.03154
    """

    name: ClassVar[str] = "dir_extended"
    formula: ClassVar[str] = "client k owns L labels;  p_c ~ Dir(α·1) over the owners of c;  n_kc = N_c·p_ck"
    users: ClassVar[str] = "with its options: Li and Lyu 2023, PFLlib (exdir)"
    limits: ClassVar[str] = "α→∞: labels_k; α→0: one client a class; L = C: dirichlet"
    labels: Annotated[int, AtLeast(1)] = 2
    """L, labels per client"""
    alpha: Annotated[float, Above(0, hint="use 0.001 for extreme skew")] = 0.5
    """concentration of a label over its owners"""
    owners: Literal["rotation", "random"] | None = later()
    """labels of a client: from shuffled lists in rotation, or L at random for each (PFLlib); unset: rotation"""
    balance_guard: Annotated[float, AtLeast(1, infinite=True, hint=FULL)] | None = later()
    """clients with this many times n/N rows get no more of later labels (PFLlib: 1); unset: no guard"""
    least: Annotated[int, AtLeast(0)] | None = later()
    """rows that every client must have (PFLlib: 10), within 100 draws, else an error; unset: 0, one draw"""
    rounding: Rounding | None = later()
    """shares to rows, as in `dirichlet` (PFLlib: cut); unset: largest_remainder"""

    def draw(self, table: Table, clients: int, gen: np.random.Generator) -> Partition:
        """Draw owners, then shares, then deal."""
        enough_labels(self, len(table.totals))
        if self.least:
            enough_rows(self, clients, len(table.codes))
        owns = self._owners(clients, len(table.totals), gen).T
        return deal(table.codes, redrawn(self, lambda: self._counts(owns, table.totals, gen), self.least), gen)

    def _owners(self, clients: int, classes: int, gen: np.random.Generator) -> Owns:
        """Whether a client owns a label, [N, C]."""
        if self.owners == "random":
            least = max(self.labels * clients // classes // 2, 1)
            for _ in range(TRIES):
                owns = _owners("random", clients, classes, self.labels, gen)
                if owns.sum(axis=0).min() >= least:
                    return owns
            rule = f"give each of the {classes} labels {least} owners in one of {TRIES} draws"
            demand(self, "owners", False, rule, "use rotation, or more labels or clients")
        ticket = label_lists(clients, self.labels, classes, False, gen)
        owns = np.zeros((clients, classes), dtype=bool)
        owns[np.repeat(np.arange(clients), self.labels), ticket] = True
        return owns

    def _counts(self, owns: Owns, totals: Ints, gen: np.random.Generator) -> Ints:
        """Rows of each class, [N, C]; labels without owner stay unused."""
        logs = np.where(owns, log_dirichlet(np.full(owns.shape, self.alpha), gen), -np.inf)
        held = owns.any(axis=1)
        rounding = self.rounding or "largest_remainder"
        counts = np.zeros(owns.shape[::-1], dtype=np.int64)
        if self.balance_guard is not None:
            counts[:, held] = guarded(logs[held], totals[held], self.balance_guard, rounding)
            return counts
        for c in np.flatnonzero(held):
            counts[:, c] = rounded(np.exp(normalised(logs[c : c + 1])), totals[c : c + 1], rounding, owns[c])[0]
        return counts
