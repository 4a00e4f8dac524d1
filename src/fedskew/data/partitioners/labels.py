"""Partitioners by whole labels: which labels a client holds, and how the rows of each label are divided."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from fedskew.data.partitioners import base
from fedskew.data.partitioners.base import Ints, LabelTable, Partition, Partitioner, Rounding
from fedskew.data.partitioners.sizes import equal_size
from fedskew.fields import Above, AtLeast, Within, demand, omit_if_default

__all__ = ["DirExtended", "Double", "ExclusiveIid", "LabelsK", "Pathological", "Shards"]

Owns = np.ndarray  # bool [N, C]
TEST_BATCH = 40  # PFLlib: batch of 10 / (1 - training share of 0.75)


@dataclass(frozen=True)
class LabelsK(Partitioner):
    """L labels for each client, dealt from shuffled label lists in rotation; owners of a label divide its rows equally.

    All rows of a label that somebody owns are used: all rows, if N L >= C. A label with fewer rows than owners leaves
    some owners without it. This is the split of FedRepo, FedRS's code; `repeats` gives its literal deal. Each label has
    the same number of owners, within one, so with balanced labels sizes are equal. The pathological splits of
    NIID-Bench, flwr-datasets and PFLlib have other owners and unequal sizes: `pathological`.

    Formula: client k owns L labels;  n_kc = N_c / #owners of c
    Used by: FedRepo (FedRS)
    Limits: L = C: equal IID histograms

    Raises:
        ConfigError: A field breaks a rule, or `labels` exceeds the number of classes.

    Example:
        >>> from fedskew.data import federate
        >>> from fedskew.data.partitioners import LabelsK
        >>> (federate("digits", LabelsK(labels=2), clients=5).counts > 0).sum(1).tolist()
        [2, 2, 2, 2, 2]

    References:
        Li and Zhan 2021, FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data (KDD).
        https://doi.org/10.1145/3447548.3467254
    """

    name: ClassVar[str] = "labels_k"
    labels: Annotated[int, AtLeast(1)] = 2
    """L, labels per client"""
    repeats: bool = False
    """allow a client to draw a label twice: it then has fewer than L labels and a double share of one"""

    def draw(self, table: LabelTable, clients: int, gen: np.random.Generator) -> Partition:
        """Deal tickets of equal weight."""
        return _tickets(self, table, clients, 0.0, gen)


@dataclass(frozen=True)
class Double(Partitioner):
    """L labels a client as in labels_k, with a power law in quantity: a label's i-th owner gets a share ~ i^(-a).

    Owners are ranked at random for each label. With L = C only quantities are skewed. FedGR uses it, with 2 or 3 of 10
    and 20 or 30 of 100 labels, and does not state the exponent.

    Formula: client k owns L labels;  n_kc = N_c·rank_c(k)^(−a) / Σ_j rank_c(j)^(−a)
    Used by: FedGR
    Limits: a = 0: labels_k; L = C: quantities alone are skewed, label by label

    Raises:
        ConfigError: A field breaks a rule, or `labels` exceeds the number of classes.

    References:
        Guo et al. 2023, FedGR: Federated Learning with Gravitation Regulation for Double Imbalance Distribution
        (DASFAA). https://doi.org/10.1007/978-3-031-30637-2_47
    """

    name: ClassVar[str] = "double"
    labels: Annotated[int, AtLeast(1)] = 2
    """L, labels per client"""
    exponent: Annotated[float, AtLeast(0)] = 1.0
    """a, the power law's exponent; 0: equal shares"""
    repeats: bool = False
    """allow a client to draw a label twice: it then has fewer than L labels and two shares of one"""

    def draw(self, table: LabelTable, clients: int, gen: np.random.Generator) -> Partition:
        """Deal tickets of weight rank^(-a)."""
        return _tickets(self, table, clients, self.exponent, gen)


def enough_labels(partitioner: Any, classes: int) -> None:
    """Raise FieldError unless there are as many classes as labels asked for."""
    holds = partitioner.labels <= classes
    demand(partitioner, "labels", holds, f"be at most the {classes} classes", f"use {classes}")


def _tickets(
    partitioner: LabelsK | Double, table: LabelTable, clients: int, exponent: float, gen: np.random.Generator
) -> Partition:
    """Deal each client `labels` tickets, one class each; divide a class by its tickets' weights rank^(-exponent)."""
    classes = len(table.totals)
    enough_labels(partitioner, classes)
    labels = partitioner.labels
    ticket = label_lists(clients, labels, classes, partitioner.repeats, gen)  # [N L] class of each ticket
    order = base.by_label(ticket, gen)
    owners = np.bincount(ticket, minlength=classes)  # [C]
    rank = np.empty(len(ticket))
    rank[order] = np.arange(1, len(ticket) + 1) - np.repeat(np.cumsum(owners) - owners, owners)
    cell = np.repeat(np.arange(clients), labels) * classes + ticket
    weight = np.bincount(cell, rank**-exponent, clients * classes).reshape(clients, classes).astype(np.float64)
    shuffle = gen.permutation(clients)  # so that ties of the rounding favour no client
    counts = np.empty((clients, classes), dtype=np.int64)
    counts[shuffle] = base.largest_remainder(weight[shuffle].T, np.where(owners > 0, table.totals, 0)).T
    return base.deal(table.codes, counts, gen)


def label_lists(clients: int, labels: int, classes: int, repeats: bool, gen: np.random.Generator) -> Ints:
    """Shuffled lists of all classes end to end, cut to [N L]; client k reads places kL to (k+1)L."""
    lists = -(-clients * labels // classes)
    decks = gen.permuted(np.tile(np.arange(classes), (lists, 1)), axis=1)
    seams = () if repeats else range(1, lists)
    for i in (i for i in seams if (i * classes) % labels):
        held = decks[i - 1, classes - (i * classes) % labels :]
        clash = (decks[i][:, None] == held).any(axis=1)  # the client at the seam holds these: move them behind
        decks[i] = np.concatenate([decks[i][~clash], decks[i][clash]])
    return decks.ravel()[: clients * labels]


@dataclass(frozen=True)
class Shards(Partitioner):
    """Rows sorted by label are cut into N s shards of equal size (within one row); each client gets s random shards.

    Every row is used. This is the pathological split of the FedAvg paper; FedNTD uses it, too.

    Formula: sort by label, cut into N·s pieces of n / (N·s) rows, s random pieces a client
    Used by: FedAvg's paper, FedNTD
    Limits: equal sizes differ by at most s rows; every row is used

    Raises:
        ConfigError: A field breaks a rule, or there are more shards than rows.

    Example:
        >>> from fedskew.data import federate
        >>> from fedskew.data.partitioners import Shards
        >>> federate("digits", Shards(shards=2), clients=5).sizes.tolist()
        [288, 288, 288, 286, 288]

    References:
        McMahan et al. 2017, Communication-Efficient Learning of Deep Networks from Decentralized Data (AISTATS).
        https://arxiv.org/abs/1602.05629
        Lee et al. 2022, Preservation of the Global Knowledge by Not-True Distillation in Federated Learning (NeurIPS).
        https://arxiv.org/abs/2106.03097
    """

    name: ClassVar[str] = "shards"
    shards: Annotated[int, AtLeast(1)] = 2
    """s, shards per client"""

    def draw(self, table: LabelTable, clients: int, gen: np.random.Generator) -> Partition:
        """Shuffle the rows of each label, cut, and deal the shards in random order."""
        n, pieces = len(table.codes), clients * self.shards
        rule = f"give each of the {clients} x shards pieces at least one of the {n} rows"
        hint = f"use {n // clients}" if clients <= n else f"use 1 and at most {n} clients"
        demand(self, "shards", pieces <= n, rule, hint)
        order = base.by_label(table.codes, gen)
        owner = np.empty(n, dtype=np.int64)
        owner[order] = (gen.permutation(pieces) // self.shards)[np.arange(n) * pieces // n]
        return base.gather(owner, clients)


@dataclass(frozen=True)
class ExclusiveIid(Partitioner):
    """Some clients own labels that nobody else has; the others are IID on the remaining labels. All have the same size.

    The first e = round(N noniid_s) clients draw unique_c labels each and take equal counts of them. The other N - e
    share the remaining labels in proportion to their rows, equally. FedLA uses it; this follows the paper's text.

    Formula: e = round(N·s) clients own u labels each, alone;  the other N−e are IID on the C−e·u left
    Used by: FedLA
    Limits: s = 0: equal IID histograms; s = 1: no label has two owners. Sizes are as asked for.

    Raises:
        ConfigError: A field breaks a rule, or there are too few labels or rows.

    References:
        Khalil et al. 2023, Label-Aware Aggregation for Improved Federated Learning (FMEC).
        https://github.com/AhmadMkhalil/Label-Aware-Aggregation-in-Federated-Learning
    """

    name: ClassVar[str] = "exclusive_iid"
    noniid_s: Annotated[float, Within(0, 1)] | None = None
    """s, fraction of clients with exclusive labels; unset: 0.5, or if labels are few, as many as use half of the
    labels"""
    unique_c: Annotated[int, AtLeast(1)] = 1
    """u, exclusive labels of each of them"""
    samples: Annotated[int, AtLeast(0)] = 0
    """rows per client; 0: the largest that is feasible for any draw of labels"""

    def draw(self, table: LabelTable, clients: int, gen: np.random.Generator) -> Partition:
        """Deal exclusive labels first, then the rest."""
        classes = len(table.totals)
        alone = self._alone(clients, classes)  # e
        self._enough_labels(classes, clients, alone)
        scarce = np.sort(table.totals)  # whichever labels are drawn
        rest = int(scarce[: classes - alone * self.unique_c].sum())
        most = [rest // (clients - alone)] if alone < clients else []
        largest = min(most + [self.unique_c * int(scarce[0])] * (alone > 0))
        size = equal_size(self, largest, clients, alone + rest)
        labels = gen.permutation(classes)
        mine, others = labels[: alone * self.unique_c].reshape(alone, self.unique_c), labels[alone * self.unique_c :]
        counts = np.zeros((clients, classes), dtype=np.int64)
        each, more = divmod(size, self.unique_c)
        counts[np.arange(alone)[:, None], mine] = each + (np.arange(self.unique_c) < more)
        if alone < clients:  # rows of the other labels, label by label, are dealt in turn
            total, shares = np.array([size * (clients - alone)]), table.totals[others][None].astype(np.float64)
            label = np.repeat(others, base.largest_remainder(shares, total)[0])
            np.add.at(counts, (alone + np.arange(len(label)) % (clients - alone), label), 1)
        return base.deal(table.codes, counts, gen)

    def _alone(self, clients: int, classes: int) -> int:
        """Number of clients with exclusive labels."""
        half = math.floor(clients * 0.5 + 0.5)
        if self.noniid_s is not None:
            return math.floor(clients * self.noniid_s + 0.5)
        fits = half * self.unique_c <= classes - (half < clients)
        return half if fits else max(1, classes // 2 // self.unique_c)

    def _enough_labels(self, classes: int, clients: int, alone: int) -> None:
        """Raise ConfigError unless there are labels for the exclusive clients, and one for the others."""
        shared = clients - alone
        spare = classes - (shared > 0)
        rule = f"leave enough of the {classes} labels for {alone} exclusive and {shared} other clients"
        fewer = f"use 1, and noniid_s at most {math.floor(1000 * (classes - 1) / clients) / 1000:g}"
        hint = f"use {spare // max(alone, 1)}" if spare >= alone else fewer
        demand(self, "unique_c", alone * self.unique_c <= spare, rule, hint)


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

    Formula: client k owns the L labels of a rule;  n_kc = N_c / #owners of c, or a random part
    Used by: NIID-Bench (#C = L), FedLab, flwr-datasets, PFLlib (pat)
    Limits: L = C: equal IID histograms (shares = equal)

    Raises:
        ConfigError: A field breaks a rule, or `labels` exceeds the number of classes.

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
    labels: Annotated[int, AtLeast(1)] = 2
    """L, labels per client"""
    owners: Literal["first", "random", "cyclic", "blocks"] = "first"
    """who owns a label: NIID-Bench's and FedLab's rule, flwr's default, flwr's deterministic one, or PFLlib's"""
    shares: Literal["equal", "random"] = "equal"
    """how owners divide a label: equally, or by random numbers (PFLlib, unbalanced)"""

    def draw(self, table: LabelTable, clients: int, gen: np.random.Generator) -> Partition:
        """Name the owners, divide each label among them, deal."""
        classes = len(table.totals)
        enough_labels(self, classes)
        owns = _owners(self.owners, clients, classes, self.labels, gen)
        if self.shares == "equal":
            counts = base.largest_remainder(owns.T.astype(np.float64), np.where(owns.any(axis=0), table.totals, 0)).T
        else:
            counts = np.zeros((clients, classes), dtype=np.int64)
            low = min(TEST_BATCH, len(table.codes) // (2 * clients)) // classes
            for c in np.flatnonzero(owns.any(axis=0)):
                counts[owns[:, c], c] = _random_parts(int(table.totals[c]), int(owns[:, c].sum()), low, gen)
        return base.deal(table.codes, counts, gen)


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

    Formula: client k owns L labels;  p_c ~ Dir(α·1) over the owners of c;  n_kc = N_c·p_ck
    Used by: with its options: Li and Lyu 2023, PFLlib (exdir)
    Limits: α→∞: labels_k; α→0: one client a class; L = C: dirichlet

    Raises:
        ConfigError: A field breaks a rule, `labels` exceeds the number of classes, or `least` is not met in 100
            draws.

    References:
        Li and Lyu 2023, Convergence Analysis of Sequential Federated Learning on Heterogeneous Data (NeurIPS).
        https://arxiv.org/abs/2311.03154
    """

    name: ClassVar[str] = "dir_extended"
    labels: Annotated[int, AtLeast(1)] = 2
    """L, labels per client"""
    alpha: Annotated[float, Above(0, hint="use 0.001 for extreme skew")] = 0.5
    """concentration of a label over its owners"""
    owners: Literal["rotation", "random"] | None = omit_if_default()
    """labels of a client: from shuffled lists in rotation, or L at random for each (PFLlib); unset: rotation"""
    balance_guard: Annotated[float, AtLeast(1, infinite=True, hint=base.FULL)] | None = omit_if_default()
    """clients with this many times n/N rows get no rows of later labels (PFLlib: 1); unset: off"""
    least: Annotated[int, AtLeast(0)] | None = omit_if_default()
    """minimum rows of each client (PFLlib: 10), an error after 100 draws; unset: 0, one draw"""
    rounding: Rounding = omit_if_default(default="largest_remainder")
    """rounding of shares to rows, as in `dirichlet` (PFLlib: cut)"""

    def draw(self, table: LabelTable, clients: int, gen: np.random.Generator) -> Partition:
        """Draw owners, then shares, then deal."""
        enough_labels(self, len(table.totals))
        if self.least:
            self.enough_rows(clients, len(table.codes))
        owns = self._owners(clients, len(table.totals), gen).T
        return base.deal(table.codes, self.redrawn(lambda: self._counts(owns, table.totals, gen)), gen)

    def _owners(self, clients: int, classes: int, gen: np.random.Generator) -> Owns:
        """Whether a client owns a label, [N, C]."""
        if self.owners == "random":
            least = max(self.labels * clients // classes // 2, 1)
            for _ in range(base.TRIES):
                owns = _owners("random", clients, classes, self.labels, gen)
                if owns.sum(axis=0).min() >= least:
                    return owns
            rule = f"give each of the {classes} labels {least} owners in one of {base.TRIES} draws"
            demand(self, "owners", False, rule, "use rotation, or more labels or clients")
        owns = np.zeros((clients, classes), dtype=bool)
        owns[np.repeat(np.arange(clients), self.labels), label_lists(clients, self.labels, classes, False, gen)] = True
        return owns

    def _counts(self, owns: Owns, totals: Ints, gen: np.random.Generator) -> Ints:
        """Rows of each class, [N, C]; labels without owner stay unused."""
        logs = np.where(owns, base.log_dirichlet(np.full(owns.shape, self.alpha), gen), -np.inf)
        held, guard = owns.any(axis=1), np.inf if self.balance_guard is None else self.balance_guard
        counts = np.zeros(owns.shape[::-1], dtype=np.int64)
        counts[:, held] = base.guarded(logs[held], totals[held], guard, self.rounding)
        return counts
