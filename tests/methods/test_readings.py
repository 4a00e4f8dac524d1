"""Readings of a paper and copies of its baselines that are options: each does what its name says, and no more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedskew as fs
from fedskew import functional as F
from fedskew import methods as m
from fedskew.catalogue.listing import explained
from fedskew.config.flags import experiment_from
from fedskew.data.arrays import from_arrays
from fedskew.errors import ConfigError
from fedskew.fields import documented
from fedskew.method import Method
from fedskew.method.paces import Fixed
from fedskew.method.parts import DatasetMean
from fedskew.method.servers import Plain, WeightedSum
from fedskew.method.weightings import Size, Uniform, UnionShare
from fedskew.methods.climb import Dual
from fedskew.methods.feddyn import DynamicCorrection, WeightedRegulariser
from fedskew.methods.fedga import CalibratedTargets
from fedskew.methods.fedgr import Gravitation, UnbalancedSoftmax, WeightedGravitation
from fedskew.methods.fedrl import RatioLoss, head_gradient, minus_head_gradient
from fedskew.methods.seolkim import DecayingOversampling
from fedskew.plots.groups import groups_of, title_of
from fedskew.types import Task
from support.federations import RAGGED, blobs, skewed
from support.methods import WHOLE, each, spied, tiny
from support.runs import gap, go, rows_of, same


def avg(*parts: Any, **slots: Any) -> Method:
    return replace(m.fedavg(), parts=parts, **slots)


# Seol and Kim


def test_switching_the_dynamic_batch_off_changes_nothing_else() -> None:
    """It once changed 5 epochs to 2, so that ablations confounded the batch with the epochs."""
    on, off = m.seolkim(), m.seolkim(dynamic=False)
    assert off.pace == Fixed(epochs=5, lr=0.1, batch_size=64)  # the paper's baselines
    assert (off.pace.epochs, off.pace.lr, off.pace.decay) == (on.pace.epochs, on.pace.lr, on.pace.decay)
    assert replace(off, pace=on.pace) == on


def test_another_pace_on_the_command_keeps_epochs_rate_and_decay() -> None:
    def pace(*words: str) -> Any:
        return experiment_from(words).method.pace

    assert pace("seolkim", "--pace", "fixed") == m.seolkim(dynamic=False).pace
    assert pace("fedavg", "--pace", "dynamic").epochs == m.fedavg().pace.epochs
    assert pace("pfedme", "--pace", "staged").lr == m.pfedme().pace.lr
    assert pace("seolkim", "--pace", "fixed", "--epochs", "2", "--batch-size", "9") == Fixed(2, batch_size=9)


def test_titles_and_records_name_the_network_s_reading(tmp_path: Path) -> None:
    words = ["fedavg", "--model", "mlp", "--model.hidden", "5", "--rounds", "1", "--clients", "4", "--partition", "iid"]
    experiment_from(words).run(tmp_path / "run")
    (group,) = groups_of([tmp_path / "run"])
    assert "mlp (hidden 5)" in title_of(group.runs)
    spec = experiment_from(["seolkim", "--model", "seolkim_cnn", "--model.pools", "1"]).to_json()["model"]
    assert spec == {"name": "seolkim_cnn", "pools": 1}


@pytest.mark.parametrize("reading", ["target", "amount"])
def test_both_readings_of_the_decay_begin_and_end_alike(reading: Any) -> None:
    counts = torch.tensor([[100, 20, 0, 41], [7, 7, 7, 7], [0, 0, 9, 0]])
    first, last = (F.oversample_target(counts, 0.3, r, reading) for r in (0, 1000))
    assert first.tolist() == [[100, 41, 0, 41], [7, 7, 7, 7], [0, 0, 9, 0]]  # the mean is 40.25
    assert torch.equal(last, counts)


def test_a_decaying_target_leaves_classes_out_and_a_decaying_amount_fills_them_by_less() -> None:
    counts = torch.tensor([100, 20, 30, 10])  # mean 40; e^-0.6 = 0.5488
    assert F.oversample_target(counts, 0.6, 1).tolist() == [100, 22, 30, 22]
    assert F.oversample_target(counts, 0.6, 1, "amount").tolist() == [100, 30, 35, 26]
    with pytest.raises(ConfigError, match="decays"):
        F.oversample_target(counts, 0.1, 1, "level")  # type: ignore[arg-type]
    offered = DecayingOversampling(decays="amount").offer(
        counts.unsqueeze(0), {"delta": torch.tensor(0.6)}, 2, torch.tensor(0)
    )
    assert offered.tolist() == [[100, 30, 35, 26]]


def test_equation_1_shortens_each_step_to_the_batch_s_share_of_the_data_set() -> None:
    """On all rows at once it is the usual step; with mini-batches the first step is |b| / |D| as long."""
    fed = blobs(RAGGED)
    whole = [go(fed, avg(*parts, pace=WHOLE)) for parts in ((), (DatasetMean(),))]
    assert same(whole[0].params, whole[1].params)
    method, seen = spied(avg(DatasetMean(), pace=Fixed(epochs=1, batch_size=4), selector=each(0)))
    step = replace(method, pace=replace(method.pace, lr=1e-6))  # so short that all gradients are those at the start
    go(fed, step, cohort=1, rounds=1)
    go(fed, replace(step, parts=(step.parts[0], step.parts[-1])), cohort=1, rounds=1)
    short, usual = (torch.cat([d.flatten() for d in c.deltas.values()]) for c in seen)  # type: ignore[union-attr]
    sizes = np.array([4, 4, 4, 1])  # the batches of 13 rows: usual steps weigh them alike, these by their rows
    assert 0 < float(short.norm() / usual.norm()) < 2 * sizes.max() / 13


def test_equation_2_has_weights_below_1_where_clients_use_subsets() -> None:
    fed = blobs(RAGGED)
    full = go(fed, avg(weighting=UnionShare()), cohort=4)
    plain = go(fed, m.fedavg(), cohort=4)
    assert gap(full.params, plain.params) < 1e-12  # everyone uses all rows
    subsets = tiny("seolkim").with_(weighting=UnionShare(), sampler=fs.samplers.Shuffle())
    some = go(blobs([[9, 3, 1], [2, 5, 0], [1, 1, 6]]), subsets, rounds=3)
    totals = [sum(row["weights"]) for row in some.rounds]
    assert all(0 < total <= 1 + 1e-9 for total in totals) and min(totals) < 0.99
    far = go(fed, avg(weighting=UnionShare("all")), cohort=1)
    assert all(sum(row["weights"]) == pytest.approx(row["samples"] / 52) for row in far.rounds)


def test_the_weighted_sum_of_models_shrinks_by_the_missing_share() -> None:
    fed = blobs(RAGGED)
    whole = avg(weighting=Size())
    assert gap(go(fed, whole).params, go(fed, whole.with_(server=WeightedSum())).params) < 1e-12
    method, seen = spied(avg(weighting=UnionShare("all"), server=WeightedSum()))
    result = go(fed, method, cohort=2, rounds=1)
    (cohort,) = seen
    assert cohort.deltas is not None and cohort.weights is not None
    for name, x in cohort.before.items():
        want = sum(p * (x + d) for p, d in zip(cohort.weights.update, cohort.deltas[name], strict=True))
        torch.testing.assert_close(result.params[name], want, rtol=0, atol=1e-12)
    kept = go(fed, method.with_(server=Plain()), cohort=2, rounds=1)
    assert gap(kept.params, result.params) > 1e-3


# FedGA: what its losses do to error asymmetry, and its copies of CLIMB and FedRL


def two_digits(ratio: int = 10) -> fs.Dataset:
    """Digits 0 and 6 as classes 0 and 1, ``ratio`` times as many of the first; the test rows are the training rows."""
    digits = fs.federate("digits", "iid", clients=1).dataset
    x, y = digits.x.numpy(), digits.y.numpy()
    many, few = np.flatnonzero(y == 0), np.flatnonzero(y == 6)
    at = np.concatenate([many, few[: len(many) // ratio]])
    labels = (y[at] == 6).astype(np.int64)
    return from_arrays(x[at], labels, x[at], labels, mean=digits.mean, std=digits.std)


def test_softce_overshoots_error_asymmetry_and_the_exact_form_brings_it_to_1() -> None:
    """On the training rows, which the derivation is about: N0 / N1 under cross-entropy, and 1 as derived."""
    fed = fs.federate(two_digits(), "iid", clients=1)
    found = {}
    for form, method in {"ce": m.fedavg(), **{f: m.fedga(f) for f in ("softce", "exact", "binary")}}.items():  # type: ignore[arg-type]
        pace = Fixed(epochs=20, batch_size=0)  # all rows at once: no noise
        result = go(fed, method.with_(pace=pace), cohort=1, rounds=10, eval_every=10, diagnose="asymmetry")
        found[form] = result.rounds[-1]["diagnostics"]["asymmetry"]["each"][1]
    assert found["ce"] == pytest.approx(10, rel=0.15)
    assert found["exact"] == pytest.approx(1, rel=0.1) and found["binary"] == pytest.approx(1, rel=0.1)
    assert found["softce"] < 0.5


def test_what_softce_does_is_said_at_the_option_and_in_the_catalogue() -> None:
    help = documented(CalibratedTargets)["form"]
    assert "does not bring error asymmetry to 1" in " ".join(help.split())
    told = explained("fedga")
    assert "0.25\nunder softce" in told and "does not bring it there" in told


def test_climb_cuts_weights_to_whole_numbers_as_fedga_s_copy_does() -> None:
    state = {"duals": torch.tensor([0.0, 1.5, 4.0, 0.5])}  # weights -0.5, 1, 3.5, 0
    assert Dual()._weights(state).tolist() == [-0.5, 1.0, 3.5, 0.0]
    assert Dual(whole=True)._weights(state).tolist() == [0.0, 1.0, 3.0, 0.0]
    method, seen = spied(avg(weighting=Dual(20.0, 0.0, 1, apply="loss", initial=1.0, whole=True)))
    go(blobs(RAGGED), method, cohort=4, rounds=3)
    still = [float(sum(d[k].abs().max() for d in c.deltas.values())) == 0 for c in seen for k in range(4)]  # type: ignore[union-attr]
    assert not any(still[:4]) and any(still[4:])  # a client with a weight below 1 sends a zero update


def _copy(d: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], list[float]]:
    """Masks and ratios weight by weight, by the rule of FedGA's authors: a neighbour is the largest, or near it."""
    masks = np.zeros(d.shape, bool)
    for i, j in np.ndindex(*d.shape[1:]):
        values, top = d[:, i, j], d[:, i, j].max()
        near = [v == top or (top != 0 and v / top > 0.8) or (top == 0 and v > 0) for v in values]
        if sum(near) == 1:
            masks[near.index(True), i, j] = True
    ratios = []
    for p in range(len(d)):
        own, all_of = (d[p] * masks[p]).sum(), (d * masks[p]).sum()
        rest = all_of - own
        ratios.append(10.0 if rest == 0 else min(abs(own / rest) * (len(d) - 1), 5000.0))
    return masks, ratios


def test_masks_of_fedga_s_copy_compare_values_and_keep_a_largest_change_of_0() -> None:
    d = np.random.default_rng(0).normal(size=(4, 4, 30))
    d[:, :, :8] = -np.abs(d[:, :, :8])
    d[1, 2, :4] = 0.0  # the largest of its weights
    masks, ratios = _copy(d)
    assert masks[1, 2, :4].all() and masks[:, 0, :8].sum() == 0  # all negative: every class is a neighbour
    got = F.ratio_masks(torch.as_tensor(d), by="quotient", zeros=True)
    assert got.numpy().tolist() == masks.tolist()
    found = F.ratio_of_changes(torch.as_tensor(d), by="quotient", zeros=True)
    np.testing.assert_allclose(found.numpy(), ratios, rtol=1e-12)
    assert not torch.equal(got, F.ratio_masks(torch.as_tensor(d)))


@pytest.mark.parametrize("by", ["signed", "quotient"])
def test_a_largest_change_of_exactly_0_belongs_to_no_class_unless_asked(by: Any) -> None:
    d = torch.tensor([[[0.0, 0.0]], [[-1.0, 0.0]], [[-2.0, -1.0]]])  # the second weight is a tie of zeros
    assert not F.ratio_masks(d, by=by).any()
    assert F.ratio_masks(d, by=by, zeros=True).nonzero().tolist() == [[0, 0, 0]]
    assert not F.ratio_masks(d, by="magnitude", zeros=True)[0].any()


def test_fedga_s_copy_of_fedrl_uses_its_weights_in_the_round_that_estimates_them() -> None:
    fed = skewed(auxiliary=1)
    now, later = (avg(RatioLoss(estimator="unflipped", serves=s)) for s in ("same", "next"))  # type: ignore[arg-type]
    a, b = go(fed, now, rounds=3), go(fed, later, rounds=3)
    first = [rows_of(r)[0]["components"]["ratio_loss"]["weights"] for r in (a, b)]
    assert first[0] == first[1]  # estimated at the same model
    assert gap(a.params, b.params) > 1e-6


def test_the_unflipped_gradient_is_asked_of_the_server_s_rows() -> None:
    def asked(estimator: Any) -> Any:
        query = RatioLoss(estimator=estimator).ask({}, 1, torch.tensor(0))
        return query and query.what

    assert asked("unflipped") is head_gradient
    assert asked("gradient") is minus_head_gradient and asked("training") == "delta"


# FedDyn and FedGR


def test_feddyn_by_weight_is_feddyn_where_clients_are_equally_large() -> None:
    def dyn(part: Any) -> Method:
        return avg(part, weighting=Uniform(), server=DynamicCorrection(alpha=0.3))

    level = blobs([[4, 4, 4], [6, 3, 3], [1, 1, 10]])
    one, other = dyn(fs.parts.DynamicRegulariser(0.3)), dyn(WeightedRegulariser(0.3))
    assert gap(go(level, one, rounds=3).params, go(level, other, rounds=3).params) < 1e-12
    ragged = blobs(RAGGED)
    assert gap(go(ragged, one, rounds=3).params, go(ragged, other, rounds=3).params) > 1e-4


def test_alpha_is_divided_by_the_client_s_share_of_the_mean_rows() -> None:
    part = WeightedRegulariser(0.3)
    state = part.init_server({}, blobs(RAGGED), Task("fc", 3, 5, 4, 1))
    shared = {part.name: part.broadcast(state, None)[0]}
    for k, n in enumerate((13, 7, 8, 24)):
        ctx: Any = type("Ctx", (), {"shared": shared, "owned": torch.tensor(RAGGED[k]), "lr": torch.tensor(0.1)})
        assert float(part._strength(ctx)) == pytest.approx(0.3 * 13 / n)


@pytest.mark.parametrize("beside", [{"weighting": fs.weightings.FedNova(Uniform())}])
def test_a_strength_of_each_client_s_own_does_not_go_with_what_reads_one(beside: dict[str, Any]) -> None:
    method = avg(WeightedRegulariser(0.3), server=DynamicCorrection(alpha=0.3), **beside)
    with pytest.raises(ConfigError, match="dynamic_regulariser beside fednova"):
        go(blobs(RAGGED), method)


def test_weighted_gravitation_counts_rows() -> None:
    counts = torch.tensor([[3, 1, 0], [0, 4, 2]])
    by_sample, by_client = F.gravitation_mass(counts), F.gravitation_mass(counts, "client")
    assert float(by_sample.sum()) == pytest.approx(1) and by_client[:, 0].tolist() == pytest.approx([0.4, 0.6])
    draw = np.random.default_rng(0)
    rows, owned = torch.as_tensor(draw.normal(size=(2, 3, 4))), counts > 0
    ones = torch.ones(2, 3, dtype=torch.float64)
    assert torch.equal(F.gravitation(rows, owned, ones), F.gravitation(rows, owned))
    live = rows.clone().requires_grad_()
    F.gravitation(live, owned, by_sample).backward()
    torch.testing.assert_close(F.gravitation_gradient(rows, owned, by_sample), live.grad, rtol=0, atol=1e-13)
    double = F.gravitation_step(rows, owned, 0.1, 2 * by_sample)
    torch.testing.assert_close(double, F.gravitation_step(rows, owned, 0.2, by_sample), rtol=0, atol=1e-13)


def test_weighted_gravitation_differs_from_gravitation_and_says_what_it_discloses() -> None:
    softmax = UnbalancedSoftmax()
    a, b = (go(blobs(RAGGED), avg(softmax, part)) for part in (Gravitation(2.0), WeightedGravitation(2.0)))
    assert gap(a.params, b.params) > 1e-5
    assert WeightedGravitation.discloses == "class histogram" and Gravitation.discloses == "owned labels"


# Local steps of the personalised methods


@pytest.mark.parametrize("name", ["perfedavg", "pfedme"])
def test_personalised_steps_take_weight_decay_and_clip(name: str) -> None:
    plain = experiment_from([name]).method
    other = experiment_from([name, "--weight-decay", "0.5", "--clip", "0.01"]).method
    assert (other.local.weight_decay, other.local.clip) == (0.5, 0.01)  # type: ignore[attr-defined]
    assert gap(go(blobs(RAGGED), plain).params, go(blobs(RAGGED), other).params) > 1e-6


def test_rounding_grows_in_dead_features() -> None:
    """A change of FedDecorr's beta by 1e-15: the authors' eps of 1e-8 makes it grow, and 1e-3 does not."""
    fed = fs.federate("digits", fs.partitioners.Dirichlet(alpha=0.1), clients=5)

    def moved(**options: float) -> float:
        methods = [avg(fs.parts.CrossEntropy(), fs.parts.Decorrelation(b, **options)) for b in (0.1, 0.1 + 1e-15)]
        run = {"model": "mlp", "rounds": 1, "dtype": "float64", "threads": 1, "engine": "sequential", "served": "none"}
        one, two = (fs.run(fed, method, **run) for method in methods)
        return gap(one.params, two.params)

    assert moved() > 1e-13 and moved(eps=1e-3) < 1e-14
