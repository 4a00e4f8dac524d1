"""What the advice was worth: each dataset left out, regret against the best method, and intervals that should hold."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedskew.advice.evidence import Run, Setting, descriptors, packaged
from fedskew.advice.margins import predicted
from fedskew.advice.worth import Case, cases, worth

COUNTS = np.array([[90, 5, 0], [0, 80, 10], [4, 0, 99], [60, 40, 0]])


def setting(name: str, data: str, **gains: float) -> Setting:
    """A federation on which methods gain this much over both baselines, with each of three seeds."""
    scores = {"fedavg": 0.7, "fedavg, weighting uniform": 0.7, **{m: 0.7 + g for m, g in gains.items()}}
    runs = tuple(Run(m, seed, v + seed / 100, v) for m, v in scores.items() for seed in range(3))
    facts = {"data": {"name": data}, "model": {"name": "mlp"}, "partition": {"name": "iid"}}
    return Setting(name, "made up", facts, descriptors(COUNTS), runs, {})


def test_a_dataset_is_judged_by_the_others_alone() -> None:
    """Its own federations, on which another method is best, have no say."""
    mine = [setting("a", "x", fedga=0.1, feddyn=0.0), setting("b", "x", fedga=0.1, feddyn=0.0)]
    others = [setting(n, "y", fedga=0.0, feddyn=0.05) for n in "cde"]
    found = {case.federation: case for case in cases([*mine, *others])}
    assert found["a"].first == "feddyn" and found["a"].best == "fedga" and found["a"].near == 3
    assert found["a"].regret == pytest.approx(0.1) and not found["a"].hit
    assert found["c"].first == "fedga" and found["c"].regret == pytest.approx(0.05)


def test_where_nothing_is_near_the_advice_is_the_baseline() -> None:
    (only,) = cases([setting("a", "x", fedga=0.1)])
    assert (only.near, only.advised, only.first, only.covered) == (0, (), "baseline", ())
    assert only.regret == pytest.approx(0.1)


def test_a_near_federation_counts_more() -> None:
    near, far = predicted([(0.1, 1.0), (0.0, 0.1), (0.0, 0.1)]), predicted([(0.1, 0.1), (0.0, 1.0), (0.0, 1.0)])
    assert near is not None and far is not None
    assert sum(near) / 2 == pytest.approx(0.1 / 1.2) and sum(far) / 2 == pytest.approx(0.01 / 2.1)


def test_a_method_that_failed_on_a_seed_is_not_the_best_there() -> None:
    held = setting("a", "x", fedga=0.1, feddyn=0.05)
    (case,) = cases([held._replace(runs=tuple(r for r in held.runs if (r.method, r.seed) != ("fedga", 1)))])
    assert case.best == "feddyn" and "fedga" not in case.margins


def test_the_figures_of_cases() -> None:
    one = Case("a", "x", 3, ("fedga", "feddyn"), {"fedga": 0.02, "feddyn": 0.05, "baseline": 0.0}, (True, False))
    two = Case("b", "x", 0, (), {"fedga": -0.01, "feddyn": -0.03, "baseline": 0.0}, ())
    assert one.hit and two.hit and two.best == "baseline"
    found = worth([one, two])
    assert (found.federations, found.advised, found.intervals, found.coverage) == (2, 1, 2, 0.5)
    assert found.regret == pytest.approx(0.015) and found.regret_baseline == pytest.approx(0.025)
    assert found.always == "feddyn" and found.regret_best == pytest.approx(0.015) and found.hits == 1.0


def test_nine_of_ten_margins_lie_in_the_interval() -> None:
    """Of normal margins with equal weights, as the formula wants; the tenth that is missed is missed."""
    gen = np.random.default_rng(0)
    held = []
    for _ in range(2000):
        *seen, new = gen.normal(0.02, 0.03, 6)
        ends = predicted([(v, 1.0) for v in seen])
        assert ends is not None
        held.append(ends[0] <= new <= ends[1])
    assert 0.88 < np.mean(held) < 0.92


def test_the_interval_is_that_of_student() -> None:
    values = np.array([0.01, 0.03, 0.08, 0.0])
    half = stats.t.ppf(0.95, 3) * values.std(ddof=1) * np.sqrt(1 + 1 / 4)
    ends = predicted([(v, 0.3) for v in values])
    assert ends == pytest.approx((values.mean() - half, values.mean() + half))


def test_two_federations_give_no_interval() -> None:
    assert predicted([(0.1, 1.0), (0.2, 1.0)]) is None


def test_the_packaged_evidence_is_of_sixteen_federations_and_more() -> None:
    """Five datasets, four kinds of partition, two shares of clients, twelve methods, three seeds."""
    found = [s for s in packaged() if s.source == "federations.jsonl"]
    assert len(found) >= 16
    assert {s.facts["data"]["name"] for s in found} == {"digits", "adult", "mnist", "fashion_mnist", "cifar10"}
    assert len({s.facts["partition"]["name"] for s in found}) == 4
    assert {round(s.facts["cohort"] / s.facts["clients"], 1) for s in found} == {0.1, 0.3}
    assert all(len({r.method for r in s.runs}) == 12 for s in found)
    assert all(len({r.seed for r in s.runs if r.method == "fedavg"}) == 3 for s in found)
