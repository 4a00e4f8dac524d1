"""The verdict on a gain beside the same gain under fitted biases."""

from __future__ import annotations

import numpy as np
import pytest

import fedskew as fs
from fedskew.studies.differences import Difference, differences
from fedskew.studies.fitted import beside, fitted_labels, fitted_name, fitted_summary
from fedskew.studies.scores import Scores


def gap(values: list[float], metric: str = "final_accuracy") -> Difference:
    """Differences from a baseline, one a seed."""
    table = np.array([[[0.5] * len(values)], [[0.5 + v for v in values]]])
    better = not metric.endswith("loss")
    scores = Scores(metric, ("fedavg", "fedga"), ("all",), tuple(range(len(values))), table, better)
    return differences(scores, "fedavg")[0]


UP, DOWN = [0.05, 0.06, 0.07, 0.06, 0.06], [-0.05, -0.06, -0.07, -0.06, -0.06]
NOTHING, WIDE = [0.001, -0.001, 0.002, 0.0, 0.001], [0.09, -0.09, 0.05, -0.08, 0.02]


@pytest.mark.parametrize(
    ("raw", "fitted", "told"),
    [
        (UP, NOTHING, "its gain is a bias of the logits"),
        (UP, DOWN, "its gain is a bias of the logits, and its sign changes after the fit"),
        (UP, [0.03, 0.035, 0.04, 0.03, 0.035], "its gain stays after the fit"),
        (UP, WIDE, "after the fit no gain is shown, but these seeds do not exclude one"),
        (DOWN, NOTHING, "its loss is a bias of the logits"),
        (DOWN, UP, "its loss is a bias of the logits, and its sign changes after the fit"),
        (DOWN, DOWN, "its loss stays after the fit"),
        (NOTHING, UP, "a gain shows only after the fit"),
        (NOTHING, DOWN, "a loss shows only after the fit"),
        (WIDE, NOTHING, "neither shows a difference"),
        (UP[:3], NOTHING[:3], "3 seeds: no verdict: the methods need 5 common seeds"),
        (UP[:4], NOTHING, "4 seeds: no verdict: the methods need 5 common seeds"),
    ],
)
def test_the_verdict_speaks_of_both(raw: list[float], fitted: list[float], told: str) -> None:
    assert beside(gap(raw), gap(fitted)).endswith(f": {told}" if "seeds: " not in told else told)


def test_the_numbers_stand_in_the_sentence() -> None:
    told = beside(gap(UP[:3]), gap([-0.01, -0.02, -0.03]))
    assert told.startswith("fedga: +6.0 points (+3.5 to +8.5) raw, -2.0 points (-4.5 to +0.5) fitted, 3 seeds: ")
    assert beside(gap([0.06]), gap([-0.01])).startswith(
        "fedga: +6.0 points raw, -1.0 points fitted, 1 seed: no verdict"
    )


def test_less_of_a_loss_is_a_gain() -> None:
    told = beside(gap(DOWN, "final_loss"), gap([0.0001, 0.0, -0.0001, 0.0, 0.0], "final_fitted_loss"))
    assert told.startswith("fedga: -0.060 (-0.069 to -0.051) raw") and told.endswith("its gain is a bias of the logits")


def test_a_metric_and_its_fitted_form() -> None:
    assert fitted_name("final_balanced_accuracy") == "final_fitted_balanced_accuracy"
    assert fitted_name("final_fitted_ece") == "final_fitted_ece"
    for metric in ("total_upload_bytes", "final_mix_accuracy_mean", "mean10_val_accuracy"):
        with pytest.raises(fs.ConfigError, match="unknown fitted metric"):
            fitted_name(metric)


def test_fitted_models_are_methods_of_their_own_where_every_run_has_them() -> None:
    def row(label: str, **numbers: float) -> tuple[str, dict[str, float]]:
        return label, {"final_accuracy": 0.5, "final_ece": 0.3, "total_upload_bytes": 8, **numbers}

    runs = [row("fedavg", final_fitted_accuracy=0.8), row("old", final_fitted_accuracy=0.9), row("old")]
    runs += [row("fedavg, fitted"), ("fedavg", {})]  # the last is missing, and tells nothing
    assert fitted_labels(runs, "final_accuracy") == {"fedavg": "fedavg, fitted'"}, "another method has the plain name"
    assert fitted_labels(runs, "total_upload_bytes") == fitted_labels(runs, "final_ece") == {}
    first = fitted_summary(runs[0][1])
    assert first == {"total_upload_bytes": 8, "final_accuracy": 0.8}, "no raw number passes for a fitted one"
