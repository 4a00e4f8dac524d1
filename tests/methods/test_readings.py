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
from fedskew.fields import documented
from fedskew.method import Method
from fedskew.method.paces import Fixed
from fedskew.method.weightings import UnionShare
from fedskew.methods.fedga import CalibratedTargets
from fedskew.methods.seolkim import DecayingOversampling
from fedskew.plots.groups import groups_of, title_of
from support.federations import RAGGED, blobs
from support.methods import tiny
from support.runs import gap, go


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


def test_a_decaying_target_leaves_classes_out_and_a_decaying_amount_fills_them_by_less() -> None:
    counts = torch.tensor([100, 20, 30, 10])  # mean 40; e^-0.6 = 0.5488
    assert F.oversample_target(counts, 0.6, 1).tolist() == [100, 22, 30, 22]
    assert F.oversample_target(counts, 0.6, 1, "amount").tolist() == [100, 30, 35, 26]
    start = F.oversample_target(torch.tensor([100, 20, 0, 41]), 0.3, 0, "amount")  # mean 40.25
    assert start.tolist() == [100, 41, 0, 41]
    offered = DecayingOversampling(decays="amount").offer(
        counts.unsqueeze(0), {"delta": torch.tensor(0.6)}, 2, torch.tensor(0)
    )
    assert offered.tolist() == [[100, 30, 35, 26]]


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


@pytest.mark.parametrize("by", ["signed", "quotient"])
def test_a_largest_change_of_exactly_0_belongs_to_no_class_unless_asked(by: Any) -> None:
    d = torch.tensor([[[0.0, 0.0]], [[-1.0, 0.0]], [[-2.0, -1.0]]])  # the second weight is a tie of zeros
    assert not F.ratio_masks(d, by=by).any()
    assert F.ratio_masks(d, by=by, zeros=True).nonzero().tolist() == [[0, 0, 0]]
    assert not F.ratio_masks(d, by="magnitude", zeros=True)[0].any()
