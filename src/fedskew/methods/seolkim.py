"""Seol and Kim 2023: decaying oversampling, selection by KL divergence with quotas, dynamic batch size and rate."""

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew import rng
from fedskew.fields import Above, AtLeast, Within, omit_if_default
from fedskew.method import Fixed, Method, Pace, Read, Selector, Shuffle
from fedskew.method.selectors import Random
from fedskew.types import Answers, Assignment, Cohort, Federation, PacePlan, Params, Query, Task, Tree


@dataclass(frozen=True)
class DecayingOversampling(Shuffle):
    """Rare classes of a client are filled up by duplicates, to a level that falls from round to round.

    Let m be the client's mean rows a class, in round r = 0, 1, ... A class with 0 < n_c < t = m e^(-delta r) is filled
    up to ceil(t) rows ("target", the paper's algorithm), or a class with 0 < n_c < m gets floor((ceil(m) - n_c)
    e^(-delta r)) more rows ("amount", its text). The server raises delta by `increment` after a round whose cohort
    oversampled by more than `threshold`.

    Source: Seol and Kim 2023, section 4.1 and algorithm 1, https://doi.org/10.3390/s23031152

    Example:
        >>> F.oversample_target(torch.tensor([[100, 20, 0, 40]]), torch.tensor(0.01), 10)
        tensor([[100,  37,   0,  40]])
    """

    name = "decaying_oversampling"
    reads = (Read("rows", "sum"),)
    keeps = "1 at the server"
    compute = "more rows in early rounds"
    downloads = "1"

    delta: float = 0.01
    """initial decay delta_0"""
    increment: float = 0.1
    """growth of delta, the paper's Delta"""
    threshold: float = 0.1
    """theta_over, the oversampling rate that makes delta grow"""
    decays: Literal["target", "amount"] = "target"
    """what decays: the level that classes are filled up to (the algorithm), or the duplicates added (the text)"""

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """{"delta": delta_0}."""
        return {"delta": torch.tensor(self.delta, dtype=torch.float64)}

    def broadcast(self, state: Tree, ids: Tensor | None) -> tuple[Tree, Tree | None]:
        """delta to all."""
        return {"delta": state["delta"]}, None

    def record(self, state: Tree) -> dict[str, Any]:
        """delta after the round."""
        return {"delta": float(state["delta"])}

    def offer(self, counts: Tensor, state: Tree, round: int, key: Tensor) -> Tensor:
        """Rows after oversampling, built from the original data in every round."""
        return F.oversample_target(counts, state["delta"], round - 1, self.decays)

    def absorb(self, state: Tree, cohort: Cohort, key: Tensor) -> tuple[Tree, Tree | None]:
        """delta, larger by `increment` where the cohort oversampled by more than `threshold`."""
        return {
            "delta": F.decay_step(state["delta"], cohort.owned, cohort.offered, self.threshold, self.increment)
        }, None


@dataclass(frozen=True)
class KLD(Selector):
    """A greedy cohort whose pooled classes are balanced, with a quota of rows a class for each client.

    Every candidate sends its histogram after oversampling. Clients are added until KL(pool || uniform) < threshold or k
    are chosen: the next is the largest that has rows of the pool's rarest class, and its quota fills the pool up to the
    largest class. Algorithm 2 goes through the sorted clients once; the text names no such end (`passes`).

    Source: Seol and Kim 2023, section 4.2 and algorithm 2, https://doi.org/10.3390/s23031152

    Example:
        >>> KLD(threshold=0.05)
        KLD(threshold=0.05, candidate_fraction=1.0, passes='restart')
    """

    name = "kld"
    compute = "server: greedy search over the candidates"
    reads = (Read("histogram", "each", "class histogram after oversampling"),)
    uploads = "C (every candidate)"
    downloads = "C"

    threshold: float = 0.1
    """theta_KLD; 0: continue until k clients are chosen or none can be added"""
    candidate_fraction: Annotated[float, Within(0, 1, "(]")] = 1.0
    """share of the clients that are available in a round"""
    passes: Literal["restart", "once"] = omit_if_default(default="restart")
    """clients that are asked next: all that are left, from the largest, or once through the sorted list, as algorithm
    2 is listed"""

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """No histogram yet: {"offered": zeros [N, C]}."""
        return {"offered": torch.zeros(task.clients, task.classes, dtype=torch.int64)}

    def ask(self, state: Tree, round: int, key: Tensor) -> Query | None:
        """The histograms of the candidates after oversampling."""
        clients = len(state["offered"])
        willing = max(1, round_up(self.candidate_fraction * clients))
        ids = rng.uniform(key, (clients,), torch.float64).argsort()[:willing].sort().values
        return Query(ids, "counts")

    def receive(self, state: Tree, answers: Answers, key: Tensor) -> Tree:
        """The histograms by client; clients that were not asked offer nothing."""
        return {"offered": torch.zeros_like(state["offered"]).index_copy(0, answers.ids, answers.values)}

    def select(self, state: Tree, k: int, key: Tensor) -> Assignment:
        """Chains of one client, with quotas."""
        candidates = torch.nonzero(state["offered"].sum(1) > 0).squeeze(1)
        offered = state["offered"][candidates]
        order = F.seolkim_order(offered, rng.uniform(key, (len(candidates),), torch.float64))
        chosen, quota = F.seolkim_select(offered, k, self.threshold, order, self.passes)
        return Assignment(candidates[chosen].unsqueeze(1), quota)


def round_up(value: float) -> int:
    """ceil, with 1e-9 of slack for products of fractions.

    Example:
        >>> round_up(0.1 * 30), round_up(3.01)
        (3, 4)
    """
    return -int(-(value - 1e-9) // 1)


@dataclass(frozen=True)
class Dynamic(Pace):
    """Batch size and learning rate from the client's rows, for the same number of mini-batches at every client.

    b_k = max(1, floor(n_k / beta)), at most beta mini-batches an epoch, and lr_k = lr (2 / pi) arctan(b_k / b0). The
    paper prints eta_max arctan(b_k), and says that the rate does not exceed eta_max.

    Source: Seol and Kim 2023, section 4.3 and algorithm 3, https://doi.org/10.3390/s23031152

    Example:
        >>> plan = Dynamic(beta=25).of(torch.tensor([250, 7]), round=1, rounds=10)
        >>> plan.batch, plan.lr
        (tensor([10,  1]), tensor([0.0937, 0.0500], dtype=torch.float64))
    """

    name = "dynamic"
    compute = "beta mini-batches an epoch, whatever the client's size"

    epochs: Annotated[int, AtLeast(1)] = 5
    """local epochs E"""
    beta: Annotated[int, AtLeast(1)] = 25
    """mini-batches of an epoch"""
    literal: bool = False
    """the printed formula, without 2/pi: rates up to 1.57 lr"""
    b0: Annotated[float, Above(0, infinite=True)] = 1.0
    """batch size at which the rate is half of lr"""

    def of(self, used: Tensor, round: int, rounds: int) -> PacePlan:
        """The plan of each client, [K], from the rows that it uses."""
        batch, ones = F.dynamic_batch(used, self.beta), torch.ones_like(used)
        rate = F.dynamic_rate(batch, self.lr, self.literal, self.b0) * self.decay ** (round - 1)
        return PacePlan(batch, ones * self.epochs, ones * self.beta, rate)


def seolkim(sampling: bool = True, selection: bool = True, dynamic: bool = True) -> Method:
    """Seol and Kim's method: data sampling, client selection and dynamic batch size, or some of the three.

    Clients duplicate rows of rare classes, the server chooses cohorts whose pooled classes are balanced, and batch
    sizes follow the rows.

    Source: Seol and Kim 2023, https://doi.org/10.3390/s23031152

    Args:
        sampling: Decaying oversampling; False trains on every row once an epoch.
        selection: Selection by KL divergence; False draws clients at random.
        dynamic: Dynamic batch size and learning rate; False has the pace of the paper's baselines on CIFAR-10, 5 epochs
            of mini-batches of 64 at rate 0.1. On MNIST they have 10 and 0.03.

    Returns:
        The method; without all three it is FedAvg at 5 epochs. The printed equations 1 and 2 are the part
        `dataset_mean` and the weighting `union_share` with the server `weighted_sum`.

    Example:
        >>> seolkim(selection=False).selector
        Random()
        >>> seolkim(dynamic=False).pace
        Fixed(epochs=5, lr=0.1, decay=1.0, batch_size=64)
    """
    method = Method("seolkim", reference="seol2023")
    return replace(
        method,
        sampler=DecayingOversampling() if sampling else Shuffle(),
        selector=KLD() if selection else Random(),
        pace=Dynamic() if dynamic else Fixed(epochs=Dynamic.epochs),
    )
