"""The reliability diagram and the decision curve show the numbers of `fedskew.records.decisions`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from fedskew.plots.decisions import decision_curve, draw_decision, reliability_diagram
from fedskew.records.decisions import net_benefit, reliability

P = np.random.default_rng(0).random(80)
Y = np.random.default_rng(1).random(80) < P


def test_the_diagram_shows_shares_over_probabilities() -> None:
    curve, below = reliability_diagram(Y, P, "ill").axes
    rows, chance, share = reliability(Y, P, 10)
    np.testing.assert_allclose(curve.lines[1].get_xydata(), np.stack([chance, share], 1))
    assert curve.get_ylabel() == "share of rows that are ill"
    assert sum(bar.get_height() for bar in below.patches) == rows.sum() == 80


def test_the_curve_shows_model_all_and_none() -> None:
    (axes,) = decision_curve(Y, P, "ill", 0.3).axes
    model, everyone, nobody, mark = axes.lines
    t = np.asarray(model.get_xdata())
    np.testing.assert_allclose(model.get_ydata(), net_benefit(Y, P, t))
    np.testing.assert_allclose(everyone.get_ydata(), net_benefit(Y, np.ones(80), t))
    assert not np.any(nobody.get_ydata()) and list(mark.get_xdata()) == [0.3, 0.3]


def test_files_are_the_same_again_and_a_dollar_is_one(tmp_path: Path) -> None:
    first = draw_decision(Y, P, tmp_path / "a", "$x_1$")
    again = draw_decision(Y, P, tmp_path / "b", "$x_1$")
    assert [one.read_bytes() for one in first] == [one.read_bytes() for one in again]
