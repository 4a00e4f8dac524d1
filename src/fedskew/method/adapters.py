"""Averages of low-rank adapters W + B A, whose factors a plain average takes apart: mean(B) mean(A) is no mean(B A).

A third way needs no ingredient of its own: `Frozen(("*lora_A*",))` keeps A, as FFA-LoRA does (Sun et al. 2024,
https://arxiv.org/abs/2403.12313), and half of the adapters is then neither trained nor sent.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedskew.errors import require
from fedskew.method.component import Component
from fedskew.method.reads import Read
from fedskew.types import Cohort, Params, Progress, Task, Tree

A, B = ".lora_A.", ".lora_B."  # in the names of peft


def factors(names: Iterable[str]) -> list[tuple[str, str]]:
    """The names (A, B) of every adapter among those of parameters.

    Example:
        >>> factors(["q.lora_A.default.weight", "q.lora_B.default.weight", "head.weight"])
        [('q.lora_A.default.weight', 'q.lora_B.default.weight')]
    """
    return [(name, name.replace(A, B)) for name in names if A in name]


def _require_adapters(part: Component, params: Params) -> None:
    require(bool(factors(params)), part.name, "go with a network that has adapters", [*params][:2])


@dataclass(frozen=True)
class AlternateAdapters(Component):
    """Factor B of the adapters is trained in odd rounds, factor A in even ones, so that an average is exact.

    The factor that does not move is the same at all clients: mean_k(B_k A) = mean_k(B_k) A. Both factors are sent in
    every round. Other parameters move in all rounds.

    Source: RoLoRA, Chen et al. 2024, https://arxiv.org/abs/2409.02346

    Example:
        >>> from fedskew.methods import fedavg
        >>> fedavg().with_(parts=(AlternateAdapters(),)).name
        'fedavg(parts=alternate_adapters)'
    """

    name = "alternate_adapters"

    def init_server(self, params: Params, fed: Any, task: Task) -> Tree:
        """No state. Raises ConfigError for a network without adapters."""
        _require_adapters(self, params)
        return {}

    def moves(self, names: Sequence[str], task: Task, progress: Progress) -> dict[str, Tensor]:
        """B in odd rounds, A in even ones."""
        odd = progress.round % 2 == 1
        return {a_or_b: moves for pair in factors(names) for a_or_b, moves in zip(pair, (~odd, odd), strict=True)}


@dataclass(frozen=True)
class AverageProducts(Component):
    """The server averages the products B_k A_k of the adapters, and factors the mean to their rank.

        sum_k p_k B_k A_k ~ U S V'  (the r largest singular values);  A = c V',  B = U S / c,  c = |A before| / sqrt(r)

    so that A keeps its norm. What is cut off is recorded, as a part of the mean's Frobenius norm, of all adapters
    together. For convolutions, A and B are matrices of their weights. The server's optimiser gets their change.

    Example:
        >>> from fedskew.methods import fedprox
        >>> fedprox().with_(parts=(*fedprox().parts, AverageProducts())).parts[-1]
        AverageProducts()
    """

    name = "average_products"
    reads = (Read("update", "each"),)

    def init_server(self, params: Params, fed: Any, task: Task) -> Tree:
        """No part of a mean has been cut off. Raises ConfigError for a network without adapters."""
        _require_adapters(self, params)
        return {"cut": torch.zeros((), dtype=torch.float64)}

    def combine(self, state: Tree, cohort: Cohort) -> Params:
        """Every client's change of A and B is that of the new factors, whose weighted sum is their change."""
        deltas, total = dict(cohort.deltas), cohort.weights.update.sum()
        for names in factors(cohort.before):
            for name, new in zip(names, _refactored(cohort, cohort.deltas, *names)[:2], strict=True):
                delta = (new - cohort.before[name]) / total
                deltas[name] = delta.unsqueeze(0).expand_as(deltas[name]).to(deltas[name].dtype)
        return deltas

    def absorb(self, state: Tree, cohort: Cohort, key: Tensor) -> tuple[Tree, Tree | None]:
        """What was cut off."""
        squares = [_refactored(cohort, cohort.trained, *names)[2:] for names in factors(cohort.before)]
        lost, whole = (torch.stack(list(column)).sum() for column in zip(*squares, strict=True))
        return {"cut": (lost / whole.clamp(min=1e-300)).sqrt()}, None

    def record(self, state: Tree) -> dict[str, Any]:
        """The part of the norm that was cut off in this round."""
        return {"cut": float(state["cut"])}


def _refactored(cohort: Cohort, deltas: Params, a: str, b: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """New A and B in their shapes, the sum of squares that is cut off, and that of all."""
    before, p = (cohort.before[a], cohort.before[b]), cohort.weights.average.double()
    low = ((old + deltas[n]).double() for old, n in zip(before, (a, b), strict=True))
    first, second = (t.flatten(2) if t.dim() > 2 else t for t in low)  # [K, r, in], [K, out, r]
    rank = first.shape[1]
    left = (second * p[:, None, None]).permute(1, 0, 2).flatten(1)  # [out, K r]
    right = first.flatten(0, 1)  # [K r, in]
    (ql, rl), (qr, rr) = torch.linalg.qr(left), torch.linalg.qr(right.T)
    u, s, v = torch.linalg.svd(rl @ rr.T, full_matrices=False)
    kept = min(rank, len(s))
    norm = before[0].double().norm() / rank**0.5
    new = (norm * (qr @ v.T)[:, :kept].T, (ql @ u)[:, :kept] * s[:kept] / norm)
    new = (torch.nn.functional.pad(new[0], (0, 0, 0, rank - kept)), torch.nn.functional.pad(new[1], (0, rank - kept)))
    shaped = [t.reshape(old.shape).to(old.dtype) for t, old in zip(new, before, strict=True)]
    return shaped[0], shaped[1], s[kept:].square().sum(), s.square().sum()
