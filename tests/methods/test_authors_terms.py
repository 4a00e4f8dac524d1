"""Loss terms, weights and draws against numbers that the public code of their papers gave, one call at a time.

`tests/golden/authors_code.json` holds the inputs, the numbers and how they were had. No line of that code is here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fedskew import functional as F
from fedskew.methods.fedamp import AttentiveMessages
from support.authors import CODE

TERMS: dict[str, Any] = CODE["terms"]
FEATURES, LOGITS, TEACHER = (torch.tensor(TERMS[n], dtype=torch.float64) for n in ("features", "logits", "teacher"))
LABELS, COUNTS = torch.tensor(TERMS["labels"]), torch.tensor(TERMS["counts"])

Masked = Callable[[Tensor, Tensor], Tensor]  # rows, mask -> the term
OURS: dict[str, tuple[Tensor, Masked]] = {
    "feddecorr": (FEATURES, F.feature_correlation),
    "feduv, features": (FEATURES, F.feature_uniformity),
    "feduv, logits": (LOGITS, F.output_spread),
    "fedvls, cross-entropy": (LOGITS, lambda z, m: (F.fedvls_loss(z, labels(z), COUNTS) * m).sum() / m.sum()),
    "fedvls, suppression": (LOGITS, lambda z, m: 0.005 * F.logit_suppression(z, labels(z), COUNTS, m)),
    "fedvls, distillation": (
        LOGITS,
        lambda z, m: (F.vacant_distillation(z, padded(TEACHER, len(z)), COUNTS == 0) * m).sum() / m.sum(),
    ),
}


def padded(rows: Tensor, size: int) -> Tensor:
    """The rows, and zeros below."""
    return torch.cat([rows, rows.new_zeros(size - len(rows), *rows.shape[1:])])


def labels(z: Tensor) -> Tensor:
    return padded(LABELS, len(z))


def test_every_term_is_compared() -> None:
    assert OURS.keys() == {n for n, v in TERMS.items() if isinstance(v, dict)}


@pytest.mark.parametrize("padding", [0, 2])
@pytest.mark.parametrize("name", OURS)
def test_the_authors_code_gives_the_same_terms(name: str, padding: int) -> None:
    rows, term = OURS[name]
    rows = padded(rows, len(rows) + padding)
    mask = padded(torch.ones(len(FEATURES), dtype=torch.float64), len(rows))
    x = rows.clone().requires_grad_()
    value = term(x, mask)
    (gradient,) = torch.autograd.grad(value, x)
    assert value.item() == pytest.approx(TERMS[name]["value"], abs=1e-11)
    wanted = padded(torch.tensor(TERMS[name]["gradient"], dtype=torch.float64), len(rows))
    torch.testing.assert_close(gradient, wanted, rtol=0, atol=1e-11)


@pytest.mark.parametrize("told", CODE["feddisco"]["runs"], ids=lambda told: f"{told['metric']} {told['a']}")
def test_feddisco_weighs_as_the_authors_code(told: dict[str, Any]) -> None:
    counts = torch.tensor(CODE["feddisco"]["counts"], dtype=torch.float64)
    d = F.label_discrepancy(counts, torch.full((4,), 0.25, dtype=torch.float64), told["metric"])
    found = F.disco_weights(F.size_weights(counts.sum(1)), d, told["a"], told["b"])
    assert found.tolist() == pytest.approx(told["weights"], abs=1e-11)


@pytest.mark.parametrize("draws", CODE["clustered"]["distributions"])
def test_clustered_sampling_draws_from_the_authors_distributions(draws: str) -> None:
    found = F.cluster_draws(torch.tensor(CODE["clustered"]["sizes"]), int(draws))
    torch.testing.assert_close(
        found, torch.tensor(CODE["clustered"]["distributions"][draws], dtype=torch.float64), rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("setting", CODE["fedamp"]["clouds"])
def test_fedamp_sends_the_messages_of_public_code(setting: str) -> None:
    alpha, sigma = map(float, setting.split())
    models = {"w": torch.tensor(CODE["fedamp"]["models"], dtype=torch.float64)}
    part = AttentiveMessages(alpha, sigma, most=math.inf)
    _, each = part.broadcast({"models": models, "seen": torch.ones(4, dtype=torch.float64)}, torch.arange(4))
    assert each is not None
    torch.testing.assert_close(
        each["cloud"]["w"], torch.tensor(CODE["fedamp"]["clouds"][setting], dtype=torch.float64), rtol=0, atol=1e-10
    )
