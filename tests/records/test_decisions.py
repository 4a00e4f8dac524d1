"""Thresholds, intervals and decision curves against scikit-learn and values by hand."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn import metrics as sk
from sklearn.calibration import calibration_curve

from fedskew.errors import ConfigError, DataError
from fedskew.records.decisions import (
    BINS,
    FEW,
    SMALL,
    choose_threshold,
    client_names,
    net_benefit,
    parsed_rule,
    reliability,
    report,
    wilson,
)

DRAW = np.random.default_rng(3)
P = DRAW.integers(0, 40, 300) / 40  # many ties, 0 among them
Y = DRAW.random(300) < P**1.3
TWO = np.stack([1 - P, P], 1)


def rates(threshold: float) -> tuple[float, float, int]:
    """(recall, specificity, rows decided positive) by scikit-learn."""
    decided = threshold <= P
    return sk.recall_score(Y, decided), sk.recall_score(~Y, ~decided), int(decided.sum())


@pytest.mark.parametrize("value", [0.0, 0.5, 0.9, 1.0])
def test_recall_at_a_specificity_is_the_best_point_of_the_roc_curve(value: float) -> None:
    fall_out, recall, _ = sk.roc_curve(Y, P, drop_intermediate=False)
    found = rates(choose_threshold(Y, P, f"recall@specificity={value}"))
    assert found[0] == recall[1 - fall_out >= value - 1e-12].max() and found[1] >= value
    found = rates(choose_threshold(Y, P, f"specificity@recall={value}"))
    assert found[1] == pytest.approx((1 - fall_out)[recall >= value].max()) and found[0] >= value
    if value == 0.5:
        assert found[0] == recall[1 - fall_out == found[1]].max(), "of equal specificities the greater recall"


@pytest.mark.parametrize("costs", [(1, 5), (3, 1), (1, 0), (0, 2)])
def test_costs_are_least_over_the_roc_curve(costs: tuple[int, int]) -> None:
    fall_out, recall, _ = sk.roc_curve(Y, P, drop_intermediate=False)
    every = costs[0] * fall_out * (~Y).sum() + costs[1] * (1 - recall) * Y.sum()
    decided = choose_threshold(Y, P, f"fp={costs[0]}, fn={costs[1]}") <= P
    assert costs[0] * (decided & ~Y).sum() + costs[1] * (Y & ~decided).sum() == pytest.approx(every.min())


def test_a_prevalence_is_met_as_nearly_as_ties_allow() -> None:
    for rule, wanted in (("prevalence", Y.mean()), ("prevalence=0.25", 0.25), ("prevalence=0", 0), ("prevalence=1", 1)):
        off = abs(rates(choose_threshold(Y, P, rule))[2] - wanted * 300)
        assert off == min(abs((t <= P).sum() - wanted * 300) for t in [*P, 2.0])


def test_thresholds_by_hand() -> None:
    y, p = [False, True, False, True], [0.1, 0.4, 0.6, 0.8]
    assert choose_threshold(y, p, 0.3) == 0.3 and choose_threshold((), (), "0.3") == 0.3
    assert choose_threshold(y, p, "specificity@recall=1") == pytest.approx(0.25), "the middle of 0.1 and 0.4"
    assert choose_threshold(y, p, "fp=1,fn=1") == pytest.approx(0.7), "of the ties 0.7 and 0.25 the nearest to 1/2"
    assert choose_threshold([False, True], [1.0, 0.5], "recall@specificity=1") > 1, "none will do"
    close = np.nextafter(0.5, 1)
    assert 0.5 < choose_threshold([False, True], [0.5, close], "recall@specificity=1") <= close


RULES = ["recall", "recall@specificity", "recall@specificity=2", "recall@specificity=x", "fp=1", "fp=1,fn=",
         "fp=0,fn=0", "fp=1,fn=-1", "fp=1,fn=inf", "fp=1,fn=2,tp=3", "fp=1,fp=2", "prevalence=-0.1", "1.1", "-1", "nan",
         "", "prevalence=0.1,recall@specificity=0.2"]  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_another_rule_is_one_line(rule: str) -> None:
    with pytest.raises(ConfigError, match=r"threshold must be recall@specificity=0.9, "):
        parsed_rule(rule)


def test_rows_that_decide_nothing_are_refused() -> None:
    with pytest.raises(DataError, match="rows of both classes; got 0 positive rows of 2"):
        choose_threshold([False, False], [0.1, 0.2], "prevalence")
    with pytest.raises(DataError, match=r"y and p must be \[n\], with a row"):
        choose_threshold([True], [0.1, 0.2], "prevalence")
    with pytest.raises(DataError, match="p must hold probabilities"):
        net_benefit([True], [math.nan], [0.5])
    with pytest.raises(ConfigError, match="thresholds must be in"):
        net_benefit([True], [0.5], [1.0])


@pytest.mark.parametrize(("hits", "rows"), [(0, 7), (7, 7), (1, 3), (40, 90)])
def test_wilson_is_that_of_scipy(hits: int, rows: int) -> None:
    wanted = binomtest(hits, rows).proportion_ci(method="wilson")
    assert wilson(hits, rows) == pytest.approx((wanted.low, wanted.high), abs=1e-12)


def test_net_benefit_by_hand_and_of_everyone() -> None:
    t = np.array([0.0, 0.25, 0.5, 0.9])
    true, false = (np.array([((s <= P) & kind).sum() for s in t]) / 300 for kind in (Y, ~Y))
    np.testing.assert_allclose(net_benefit(Y, P, t), true - false * t / (1 - t), atol=1e-15)
    np.testing.assert_allclose(net_benefit(Y, np.ones(300), t), Y.mean() - (1 - Y.mean()) * t / (1 - t), atol=1e-12)


def test_reliability_is_the_calibration_curve() -> None:
    rows, chance, share = reliability(Y, P, 10)
    wanted = calibration_curve(Y, P, n_bins=10)
    np.testing.assert_allclose((share, chance), wanted, atol=1e-12)
    assert rows.sum() == 300


def test_every_metric_is_that_of_scikit_learn() -> None:
    found = report(Y.astype(int), TWO, 1, 0.3)
    decided = P >= 0.3
    wanted = {
        "brier": sk.brier_score_loss(Y, P), "auroc": sk.roc_auc_score(Y, P),
        "auprc": sk.average_precision_score(Y, P),
    }  # fmt: skip
    for name, value in wanted.items():
        assert found[name]["value"] == pytest.approx(value, abs=1e-12), name
    rows, chance, share = reliability(Y, P, BINS)
    assert found["ece_positive"]["value"] == pytest.approx((rows * abs(share - chance)).sum() / 300)
    for kind, chosen in (("threshold", decided), ("argmax", TWO.argmax(1) == 1)):
        values = {
            "sensitivity": sk.recall_score(Y, chosen), "specificity": sk.recall_score(~Y, ~chosen),
            "ppv": sk.precision_score(Y, chosen), "npv": sk.precision_score(~Y, ~chosen), "f1": sk.f1_score(Y, chosen),
        }  # fmt: skip
        assert {name: found[kind][name]["value"] for name in values} == pytest.approx(values, abs=1e-12)
        assert found[kind]["decided"] == chosen.sum()


@pytest.mark.thorough
def test_intervals_are_those_of_resampled_rows() -> None:
    """scikit-learn on resamples of another seed: the same ends but for chance."""
    found, gen = report(Y.astype(int), TWO, 1, 0.3), np.random.default_rng(1)
    draws = [gen.integers(300, size=300) for _ in range(1000)]
    for name, score in (
        ("auroc", sk.roc_auc_score),
        ("auprc", sk.average_precision_score),
        ("brier", sk.brier_score_loss),
    ):
        ends = np.quantile([score(Y[at], P[at]) for at in draws], [0.025, 0.975])
        assert (found[name]["low"], found[name]["high"]) == pytest.approx(ends, abs=0.01)
        assert found[name]["by"] == "bootstrap"
    ece = found["ece_positive"]
    assert ece["low"] < ece["value"] < ece["high"]
    assert found == report(Y.astype(int), TWO, 1, 0.3), "the seed is fixed"


def test_a_share_of_few_rows_has_wilsons_interval() -> None:
    y = np.arange(400) % 2
    p = np.where(np.arange(400) < 2 * SMALL, 1 - y, y).astype(float)  # 30 of 200 are missed
    many = report(y, np.stack([1 - p, p], 1), 1)["argmax"]["sensitivity"]
    assert many["by"] == "bootstrap" and many["value"] == 0.85
    p[:2] = p[1::-1]
    few = report(y, np.stack([1 - p, p], 1), 1)["argmax"]["sensitivity"]
    assert few["by"] == "wilson" and (few["low"], few["high"]) == wilson(171, 200)


def test_each_client_is_a_report_of_its_own_and_few_rows_rank_nothing() -> None:
    owners = np.full(300, -1)
    owners[:100], owners[np.flatnonzero(Y[100:])[:2] + 100] = 0, 2
    found = report(Y.astype(int), TWO, 1, 0.3, owners, ("north", "east", "south"))
    assert list(found["clients"]) == ["north", "south"], "east has no rows"
    alone = report(Y[:100].astype(int), TWO[:100], 1, 0.3)
    assert found["clients"]["north"] == alone
    south = found["clients"]["south"]
    assert south["rows"] == south["positives"] == 2 < FEW and south["auroc"] is None and south["auprc"] is None
    assert south["notes"] == ["2 positive rows: no AUROC is shown", "0 negative rows: no AUROC is shown"]
    assert south["threshold"]["specificity"] is None, "no negative row"
    assert found["clients"].get("east") is None
    for name, told in (
        ("sout", "unknown client 'sout'; did you mean 'south'?"),
        (7, "client '7'; known: north, south"),
    ):
        with pytest.raises(ConfigError, match=re.escape(told)):
            found["clients"][name]


def test_a_row_has_the_name_of_its_client() -> None:
    owners = np.array([-1, 0, 1])
    assert client_names(owners, ["a", "b"]) == ["", "a", "b"] and client_names(owners) == ["", "0", "1"]
