"""For every function: stacks go row by row, extremes stay finite, gradients stop, unknown options are named."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from inspect import signature
from typing import Literal, get_origin, get_type_hints

import pytest
import torch
from torch import Tensor

import fedskew.functional as fn
from fedskew.errors import ConfigError
from support.batches import COUNTS, DUALS, FEATURES, LABELS, LOGITS, MASK, PRIOR, WEIGHT
from support.tensors import close, draws

Stacked = tuple[Callable[..., Tensor], tuple[Tensor, ...]]
STACKS: dict[str, Stacked] = {
    "imbalance gap": (fn.imbalance_gap, (COUNTS,)),
    "gamma": (fn.fedgr_gamma, (COUNTS,)),
    "gamma, raw": (lambda n: fn.fedgr_gamma(n, "raw"), (COUNTS,)),
    "gamma, code": (lambda n: fn.fedgr_gamma(n, missing="code"), (COUNTS,)),
    "fedrs": (fn.fedrs_scale, (COUNTS,)),
    "fedrs, code": (lambda n: fn.fedrs_scale(n, scaling="code"), (COUNTS,)),
    "importance": (fn.importance_weights, (PRIOR, COUNTS)),
    "class-balanced": (lambda n: fn.class_balanced_weights(n, 0.9), (COUNTS,)),
    "margins": (fn.ldam_margins, (COUNTS,)),
    "astraea": (lambda n: fn.astraea_copies(n, 0.5), (COUNTS,)),
    "oversampling": (lambda n: fn.oversample_target(n, 0.1, 2).double(), (COUNTS,)),
    "divergence": (fn.kl_to_uniform, (COUNTS,)),
    "size": (fn.size_weights, (COUNTS,)),
    "balancer": (lambda v: fn.aggregation_balancer_weights(v, 0.5), (DUALS,)),
    "nova": (fn.fednova_weights, (PRIOR, COUNTS + 1)),
    "climb": (fn.climb_weights, (DUALS,)),
    "dual step": (lambda d, f: fn.climb_dual_step(d, f, 3.0, 0.1), (DUALS, COUNTS)),
    "label aware": (lambda n: fn.label_aware_weights(torch.stack([n, n.flip(-1) ** 2 + 1], -2)), (COUNTS,)),
    "binary targets": (fn.fedga_binary_targets, (LOGITS[:, 0, 0], LABELS[:, 0] % 2, COUNTS[:, :2])),
    "ratio loss": (fn.ratio_loss, (LOGITS, LABELS, PRIOR)),
    "ratio loss, mean weight": (
        lambda z, y, w, mask: fn.ratio_loss(z, y, w, True, mask), (LOGITS, LABELS, PRIOR, MASK),
    ),
    "weighted cross-entropy": (fn.weighted_cross_entropy, (LOGITS, LABELS, PRIOR)),
    "cosines": (fn.cosine_logits, (FEATURES, WEIGHT)),
    "adjusted": (lambda z, y, n: fn.logit_adjusted_loss(z, y, n), (LOGITS[:, 0], LABELS[:, 0], COUNTS)),
    "balancefl": (
        lambda z, a, t, y: torch.stack(fn.balancefl_terms(z, a, t, y, COUNTS[0] > 5)),
        (LOGITS, LOGITS + 1, draws(3, 5, 4, seed=4), torch.zeros_like(LABELS)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STACKS)
def test_a_stack_is_treated_row_by_row(name: str) -> None:
    f, args = STACKS[name]
    together, alone = f(*args), [f(*(a[g] for a in args)) for g in range(3)]
    close(together, torch.stack(alone, dim=1 if name == "balancefl" else 0))


# Extremes


EXTREME_LOSSES: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "cross_entropy": lambda z, f, y, n: fn.cross_entropy(z, y),
    "lb": lambda z, f, y, n: fn.local_balancer_loss(z, f, y, n, 60.0),
    "lb_mask": lambda z, f, y, n: fn.local_balancer_loss(z, f, y, n, 60.0, "mask"),
    "fedga_softce": lambda z, f, y, n: fn.fedga_loss(z, y),
    "fedga_exact": lambda z, f, y, n: fn.fedga_loss(z, y, form="exact"),
    "fedga_client": lambda z, f, y, n: fn.fedga_loss(z, y, n),
    "fedgr": lambda z, f, y, n: fn.unbalanced_softmax_loss(z, y, n),
    "fedgr_raw": lambda z, f, y, n: fn.unbalanced_softmax_loss(z, y, n, "raw"),
    "fedgr_weight": lambda z, f, y, n: fn.unbalanced_softmax_loss(z, y, n, "weight"),
    "fedgr_code": lambda z, f, y, n: fn.unbalanced_softmax_loss(z, y, n, missing="code"),
    "fedgr_raw_code": lambda z, f, y, n: fn.unbalanced_softmax_loss(z, y, n, "raw", "code"),
    "moon": lambda z, f, y, n: fn.moon_contrastive(z, z.detach().roll(1, 0), -z.detach()),
    "focal": lambda z, f, y, n: fn.focal_loss(z, y),
    "focal_half": lambda z, f, y, n: fn.focal_loss(z, y, gamma=0.5),
    "fedlc": lambda z, f, y, n: fn.fedlc_loss(z, y, n),
    "fedlc_exclude": lambda z, f, y, n: fn.fedlc_loss(z, y, n, 1.0, "exclude_true"),
    "logit_adjusted": lambda z, f, y, n: fn.logit_adjusted_loss(z, y, n),
    "fedrs": lambda z, f, y, n: fn.cross_entropy(z * fn.fedrs_scale(n), y),
    "fedrs_code": lambda z, f, y, n: fn.cross_entropy(z * fn.fedrs_scale(n, 0.5, "code"), y),
    "fedntd": lambda z, f, y, n: fn.fedntd_loss(z, z.detach().flip(0), y),
    "fedvls": lambda z, f, y, n: fn.fedvls_loss(z, y, n),
    "hybrid": lambda z, f, y, n: fn.hybrid_divergence(z, z.flip(0)),
    "vacant": lambda z, f, y, n: fn.vacant_distillation(z, z.detach().flip(0), n == 0),
    "suppression": lambda z, f, y, n: fn.logit_suppression(z, y, n, torch.ones_like(z[:, 0])) + 0 * z[:, 0],
    "correlation": lambda z, f, y, n: fn.feature_correlation(f, torch.ones_like(z[:, 0])) + 0 * z[:, 0],
    "uniformity": lambda z, f, y, n: fn.feature_uniformity(f, torch.ones_like(z[:, 0])) + 0 * z[:, 0],
    "spread": lambda z, f, y, n: fn.output_spread(z, torch.ones_like(z[:, 0])) + 0 * z[:, 0],
    "cosines": lambda z, f, y, n: fn.cross_entropy(fn.cosine_logits(f, f.roll(1, 0)), y),
    "bce": lambda z, f, y, n: fn.weighted_bce(z, y, fn.fedgrab_map(z.sum(0)), fn.fedgrab_map(-z.sum(0))),
    "ratio": lambda z, f, y, n: fn.ratio_loss(z, y, fn.ratio_weights(n)),
    "ratio_broken": lambda z, f, y, n: fn.ratio_loss(z, y, fn.ratio_weights(n), True),
}
EXTREME_COUNTS = {
    "none": [0.0, 0.0, 0.0, 0.0],
    "single": [0.0, 0.0, 500.0, 0.0],  # rows with label 0 stand for padding
    "singleton": [50000.0, 1.0, 0.0, 3.0],
    "even": [5.0, 5.0, 5.0, 5.0],
}


@pytest.mark.parametrize("counts", EXTREME_COUNTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", EXTREME_LOSSES)
def test_finite_in_extreme_cases(name: str, dtype: torch.dtype, counts: str) -> None:
    loss, n = EXTREME_LOSSES[name], torch.tensor(EXTREME_COUNTS[counts])
    g = torch.Generator().manual_seed(0)
    tame = torch.randn(6, 4, generator=g)
    wild = 1e4 * torch.where(torch.rand(6, 4, generator=g) < 0.5, -1.0, 1.0)
    logits = torch.stack([tame, wild, wild.abs(), torch.zeros(6, 4), 1e-30 * tame]).to(dtype)
    features = torch.stack([tame, torch.zeros(6, 4), 1e4 * tame, 1e-30 * tame, tame]).to(dtype)
    labels = torch.tensor([0, 1, 2, 3, 0, 2])
    for histogram in (n, n.to(dtype), n.to(torch.int64)):
        value = torch.vmap(lambda z, f, n=histogram: loss(z, f, labels, n))(logits, features)
        assert value.shape == (5, 6)
        assert value.isfinite().all(), value
        total = lambda z, f, n=histogram: loss(z, f, labels, n).float().sum()
        for got in torch.vmap(torch.func.grad(total, argnums=(0, 1)))(logits, features):
            assert got.dtype == dtype
            assert got.isfinite().all(), got


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_classifier_terms_are_finite_in_extreme_cases(scale: float, dtype: torch.dtype) -> None:
    rows = (scale * torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))).to(dtype)
    for owned in (
        torch.zeros(3, 4, dtype=torch.bool),
        torch.ones(3, 4, dtype=torch.bool),
        torch.tensor([[1, 0, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0]], dtype=torch.bool),
    ):
        for f in (fn.gravitation, fn.fedgc_spread):
            assert f(rows, owned).isfinite()
            assert torch.func.grad(lambda r, f=f, o=owned: f(r, o).float())(rows).isfinite().all()
        assert fn.gravitation_gradient(rows, owned).isfinite().all()
        assert fn.fedgc_gradient(rows, owned).isfinite().all()
    for eps in (0.0, 1e-6):
        match = lambda s, eps=eps: fn.creff_match(s, rows[1], torch.ones(4), eps)
        assert match(rows[0]).isfinite()
        assert torch.func.grad(match)(torch.zeros(4, 5)).isfinite().all()


def test_no_direction_is_no_perturbation() -> None:
    assert torch.equal(fn.sam_ascent({"w": torch.zeros(3)}, 0.5)["w"], torch.zeros(3))


# Gradients that stop


@pytest.mark.parametrize(
    "name",
    ["lb_mask", "fedga_exact", "fedgr", "fedgr_raw", "fedgr_weight", "fedlc", "fedlc_exclude", "logit_adjusted"],
)
def test_an_absent_class_gets_no_gradient_at_all(name: str) -> None:
    counts, labels = COUNTS[0].index_fill(0, torch.tensor(3), 0), torch.tensor([0, 2, 1, 1, 0])
    for dtype in (torch.float64, torch.float32):
        mean = lambda z: EXTREME_LOSSES[name](z, FEATURES[0].to(z), labels, counts.to(z)).mean()
        assert not torch.func.grad(mean)(LOGITS[0].to(dtype))[:, 3].any()


CONSTANTS: dict[str, Callable[[Tensor], Tensor]] = {
    "targets": lambda x: fn.fedga_targets(x, LABELS[0]),
    "binary targets": lambda x: fn.fedga_binary_targets(x[:, 0], LABELS[0] % 2, COUNTS[0, :2]),
    "teacher of fedntd": lambda x: fn.fedntd_loss(LOGITS[0], x, LABELS[0]),
    "teacher of balancefl": lambda x: torch.stack(
        fn.balancefl_terms(LOGITS[0], LOGITS[0], x, LABELS[0], COUNTS[0] > 5)
    ),
    "weights of binary cross-entropy": lambda x: fn.weighted_bce(LOGITS[0], LABELS[0], x[0], x[1]),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_what_is_a_constant_gets_no_gradient(name: str) -> None:
    assert not CONSTANTS[name](draws(5, 4).requires_grad_()).requires_grad


# Options and names


OPTIONS = [
    (name, option)
    for name in fn.__all__
    for option, kind in get_type_hints(getattr(fn, name)).items()
    if get_origin(kind) is Literal
]


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_unknown_options_are_named(name: str, option: str) -> None:
    function = getattr(fn, name)
    needed = [one for one in signature(function).parameters.values() if one.default is one.empty]
    with pytest.raises(ConfigError, match=f"^unknown {option} 'zzz'; known: .*$"):
        function(*[torch.ones(2, 2, 2)] * len(needed), **{option: "zzz"})


def test_names_are_sorted_public_and_documented() -> None:
    assert fn.__all__ == sorted(fn.__all__)
    modules = [m.name for m in pkgutil.iter_modules(fn.__path__) if not m.name.startswith("_")]
    exported = [n for m in modules for n in importlib.import_module(f"fedskew.functional.{m}").__all__]
    assert sorted(exported) == fn.__all__
    assert all(getattr(fn, name).__doc__ for name in fn.__all__)
