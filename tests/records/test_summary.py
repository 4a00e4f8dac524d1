"""What a run's rounds come to: the worst class, the G-mean, and whether training collapsed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import fedskew as fs
from fedskew.records.folder import read
from fedskew.records.summary import collapses, fitted_name, summarise, worst_class, worst_words
from support.federations import skewed
from support.runs import go

COSTS = {"upload_bytes": 8, "download_bytes": 8, "samples": 4, "steps": 2, "wall_s": 0.1}


def rows(losses: list[float], balanced: list[float | None], classes: int = 4) -> list[dict[str, Any]]:
    """Rounds with these training losses and balanced accuracies; None is a round without evaluation."""
    made = []
    for number, (loss, score) in enumerate(zip(losses, balanced, strict=True), 1):
        row: dict[str, Any] = {"round": number, "train_loss": loss, **COSTS}
        if score is not None:
            row |= {"balanced_accuracy": score, "per_class_recall": [score] * classes, "support": [5] * classes}
        made.append(row)
    return made


def test_one_round_of_a_loss_above_ten_times_a_guess_is_a_collapse() -> None:
    limit = 10 * math.log(4)
    (found,) = collapses(rows([1.0, limit * 1.01, 3e9, 1.0, limit * 2], [0.9] * 5))
    assert (found.measure, found.rounds, found.worst, found.round) == ("train_loss", [[2, 3], [5, 5]], 3e9, 3)
    assert found.limit == pytest.approx(limit) and "in rounds 2 to 3, 5 (3e+09 in round 3)" in found.words
    assert not collapses(rows([limit * 0.99] * 3, [0.9] * 3))


def test_ten_evaluations_in_a_row_at_chance_are_a_collapse_and_nine_are_none() -> None:
    assert not collapses(rows([1.0] * 12, [0.9] + [0.25] * 9 + [0.9, 0.25]))
    (found,) = collapses(rows([1.0] * 12, [0.9] + [0.26] * 10 + [0.9]))
    assert (found.measure, found.rounds) == ("balanced_accuracy", [[2, 11]])
    assert not collapses(rows([1.0] * 12, [0.28] * 12)), "1.1 / 4 is 0.275"
    seldom: list[float | None] = [0.25, None, None] * 10
    assert collapses(rows([1.0] * 30, seldom))[0].rounds == [[1, 28]], "rounds that were not evaluated do not count"
    assert not collapses(rows([1.0] * 30, [0.25, *[None] * 29]))


def test_a_run_that_ends_at_chance_needs_no_ten_evaluations() -> None:
    """FedGR at 0.11 after five rounds: what is left is a guess."""
    (found,) = collapses(rows([1.0] * 6, [0.9, 0.25, 0.25, 0.25, 0.26, 0.25]))
    assert (found.measure, found.rounds) == ("balanced_accuracy", [[2, 6]])
    assert not collapses(rows([1.0] * 6, [0.9, 0.9, *[0.25] * 4])), "four may be a dip"
    assert not collapses(rows([1.0] * 6, [*[0.25] * 5, 0.9])), "a run may begin at chance"


def test_chance_is_that_of_the_classes_with_test_rows() -> None:
    made = rows([1.0] * 10, [0.3] * 10)
    for row in made:
        row["support"] = [5, 5, 0, 0]
    assert collapses(made)[0].limit == pytest.approx(0.55)


def test_fedbal_s_collapse_is_told_in_the_record_and_to_python(tmp_path: Path) -> None:
    """A rate at which its loss explodes and stays finite."""
    fed = fs.federate("digits", fs.partitioners.Dirichlet(alpha=0.1), clients=10, seed=0)
    method = fs.methods.fedbal().with_("pace", lr=1.0).with_("local_balancer", eps=1e-12)
    result = fs.run(fed, method, rounds=4, cohort=4, out=tmp_path / "a")
    (found,) = [f for f in result.collapsed if f.measure == "train_loss"]
    told = json.loads((tmp_path / "a/summary.json").read_text())["collapsed"]
    assert told[0] == found._asdict() and max(row["train_loss"] for row in result.rounds) == found.worst
    assert "COLLAPSED: training loss above 23" in repr(result)


def test_the_worst_class_is_named_with_its_recall_and_the_g_mean() -> None:
    row = {"per_class_recall": [0.9, 0.4, 0.0], "support": [5, 5, 0]}
    found = worst_class(row, ("cat", "dog", "fox"))
    assert found == {"class": 1, "name": "dog", "recall": 0.4, "unrecognised": 0, "classes": 2}
    assert worst_words({"worst_class": found, "final_g_mean": 0.6}) == (
        "worst class 1 (dog) with recall 0.4000, G-mean 0.6000"
    )
    assert worst_class({}) is None and worst_words({"worst_class": None}) == ""


def test_a_class_that_is_never_recognised_makes_the_g_mean_0_and_that_is_said() -> None:
    one = worst_class({"per_class_recall": [0.9, 0.0], "support": [5, 5]})
    assert worst_words({"worst_class": one, "final_g_mean": 0.0}).endswith("recall 0, G-mean 0 (1 class has recall 0)")
    two = worst_class({"per_class_recall": [0.0, 0.0, 0.4], "support": [5, 5, 5]})
    assert "(2 of 3 classes have recall 0)" in worst_words({"worst_class": two, "final_g_mean": 0.0})


def test_the_summary_holds_what_matters_with_rare_classes(tmp_path: Path) -> None:
    go(skewed(), fs.methods.fedavg(), out=tmp_path / "a")
    _, held, summary = read(tmp_path / "a")
    assert summary["final_g_mean"] == held[-1]["g_mean"]
    assert summary["worst_class"]["recall"] == held[-1]["worst_class_recall"] == summary["final_worst_class_recall"]
    once = {name: value for name, value in summary.items() if name not in summarise(held)}  # of the last model alone
    assert "final_auroc_macro" in once and all(name.startswith(("final_", "mean10_served_")) for name in once)
    assert summary == {**summarise(held), "worst_class": summary["worst_class"], **once} and not summary["collapsed"]


def test_a_metric_and_its_fitted_form() -> None:
    assert fitted_name("final_balanced_accuracy") == "final_fitted_balanced_accuracy"
    assert fitted_name("final_fitted_ece") == "final_fitted_ece"
    for metric in ("total_upload_bytes", "final_mix_accuracy_mean", "mean10_val_accuracy"):
        with pytest.raises(fs.ConfigError, match="unknown fitted metric"):
            fitted_name(metric)


def test_fitted_values_stand_only_for_rounds_that_were_all_fitted() -> None:
    rows = [{"round": r, "accuracy": 0.5, **COSTS} for r in range(1, 16)]
    rows = [*rows[:5], *({**row, "fitted_accuracy": row["round"] / 100} for row in rows[5:])]
    found = summarise(rows)
    assert (found["final_fitted_accuracy"], found["mean10_fitted_accuracy"]) == (0.15, pytest.approx(0.105))
    assert "best_fitted_accuracy" not in found and "mean50_fitted_accuracy" not in found
    later = summarise([*rows, {"round": 16, "accuracy": 0.5, **COSTS}])
    assert not [name for name in later if "fitted" in name], "a longer run was not fitted at its end"
    whole = summarise(rows[5:])
    assert whole["best_fitted_accuracy"] == 0.15 and whole["mean50_fitted_accuracy"] == pytest.approx(0.105)


def test_numbers_of_diagnostics_are_means_over_the_rounds_that_have_them() -> None:
    """Lists stay in the rounds, and a summary without diagnostics has no entry."""
    found = [{"coverage": {"kl": 0.5, "used": [1, 2]}}, {}, {"coverage": {"kl": 1.0, "used": [3, 4]}}]
    rows: list[dict[str, Any]] = [{"round": i, "accuracy": 0.5, "diagnostics": one} for i, one in enumerate(found, 1)]
    assert {name: value for name, value in summarise(rows).items() if "mean_" in name} == {"mean_coverage_kl": 0.75}
    assert not [name for name in summarise([{"round": 1, "accuracy": 0.5}]) if "mean_" in name]
