"""The page's statistics are those of `fedskew.studies`, and what cannot be shown is said in one sentence."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedskew import report
from fedskew.config.recorded import Run
from fedskew.errors import ConfigError
from fedskew.records.metrics import SCORES
from fedskew.report import LabelledRun, paper
from fedskew.report.listings import rank_cells
from fedskew.studies.differences import average_ranks, differences
from fedskew.studies.scores import Scores, reach
from support.reports import made_run, sections_of, study, undrawn

pytest.importorskip("jinja2", reason="jinja2 is not installed: pip install -e '.[report]'")
pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install -e '.[plot]'")


def scores_of(entries: list[LabelledRun], key: str = "mean10_accuracy", higher: bool = True) -> Scores:
    runs = [(e.method, e.setting or "all", int(e.seed), e.run.summary[key]) for e in entries]
    return Scores.of(runs, key, higher)


@undrawn()
def written(entries: list[LabelledRun], folder: Path, **asked: Any) -> dict[str, list[dict[str, str]]]:
    """Records of every table, by the name of its file."""
    list(paper.write(entries, folder / "r.html", folder / "t", **asked))
    return {p.stem: list(csv.DictReader(p.read_text().splitlines())) for p in (folder / "t").glob("*.csv")}


# One source of truth


def test_ranks_and_their_verdict_are_those_of_studies() -> None:
    entries = study(3, 4, 3)
    found = average_ranks(scores_of(entries))
    told = sections_of(entries)
    assert found.conclusion in told["ranks"]
    assert found.p is not None and found.p <= 0.05


def test_gains_under_the_controls_stand_beside_the_results(tmp_path: Path) -> None:
    """Of runs with raw and fitted numbers alone: no averaged column, and the verdict says which control is missing."""
    raw = study(3, 2, 5)
    for entry in raw:
        place = int(entry.method[-1])
        entry.run.summary.update(
            mean10_fitted_accuracy=0.5 + 0.2 * (place == 2) + 0.001 * (int(entry.seed) * place % 3)
        )
    told = {row["method"]: row for row in written(raw, tmp_path, baseline="method0")["results-1"]}
    one = told["method2"]
    assert float(one["fitted_gain"]) == pytest.approx(0.2, abs=0.01) and one["averaged_gain"] == ""
    assert float(one["raw_low"]) == float(one["difference_low"]), "one interval, of one rule"
    verdicts = {method: row["verdict"] for method, row in told.items()}
    assert verdicts == {"method0": "", "method1": "a bias", "method2": "open: not averaged"}
    page = sections_of(raw, baseline="method0")
    assert "raw fitted" in page["results"] and "averaged:" not in page["results"]
    assert "over method0; open: not averaged." in page["verdict"]
    assert "Nothing of it is left when both are fitted: a bias." in page["verdict"]
    for entry in raw:
        del entry.run.summary["mean10_fitted_accuracy"]
    assert "over method0 settings" in sections_of(raw)["results"], "nothing is controlled"


@pytest.mark.parametrize(("methods", "seeds", "told"), [(2, 7, "–"), (2, 8, "no"), (9, 8, "–")])
def test_what_so_few_seeds_cannot_show_is_not_called_insignificant(methods: int, seeds: int, told: str) -> None:
    runs = [(str(m), "all", s, 0.5 + m * (s % 2) / 90) for m in range(methods) for s in range(seeds)]
    assert rank_cells(differences(Scores.of(runs), "0")[0])[-1] == told


def test_the_smallest_p_is_that_of_the_whole_family() -> None:
    """A method with fewer pairs beside one with more: Holm's factor falls behind the first."""
    runs = [(m, "all", s, 0.5 + (m != "a") * (s + 1) / 99) for m in "abc" for s in range(7) if (m, s) != ("b", 6)]
    b, c = differences(Scores.of(runs), "a")
    assert (b.pairs, b.p_holm, b.least_p) == (6, 0.03125, 0.03125) and (c.p_holm, c.least_p) == (0.03125, 0.03125)


def test_differences_are_those_of_studies_by_setting_and_over_all(tmp_path: Path) -> None:
    entries = study(3, 2, 8)
    by = {(d.method, d.setting): d for d in differences(scores_of(entries), "method0")}
    tables = written(entries, tmp_path)
    for name, setting in (("results-1", "alpha 0.01"), ("results-2", "alpha 0.02"), ("together-1", None)):
        rows = {row["method"]: row for row in tables[name]}
        for method in ("method1", "method2"):
            wanted, row = by[method, setting], rows[method]
            runs = [e.run.summary["mean10_accuracy"] for e in entries if e[:2] == (method, setting)]
            assert not runs or float(row["mean"]) == float(np.mean(runs)), "in full precision"
            assert float(row["difference"]) == wanted.mean and float(row["p_holm"]) == wanted.p_holm
            assert float(row["difference_low"]) == wanted.low
    told = sections_of(entries)["verdict"]
    assert re.search(r"method2 gains \S+ points \(\S+ to \S+\) over method0; open: not averaged or fitted\.", told)


# All settings together


def test_settings_are_put_together_where_there_are_several_and_methods_to_compare() -> None:
    entries = [e for e in study(2, 2, 2) if e[:2] != ("method1", "alpha 0.02")]
    assert "1 of 2" in sections_of(entries)["results"], "a method that lacks a setting is over the others"
    for entries in (study(2, 1, 1), study(1, 3, 2)):
        found = sections_of(entries)
        assert "All settings together" not in found["results"] and "ranks" not in found


# The last model's scores


def test_scores_of_the_last_model_have_means_and_intervals(tmp_path: Path) -> None:
    entries = study(2, 1, 4)
    row = next(r for r in written(entries, tmp_path)["scores-1"] if r["method"] == "method1")
    values = np.array([e.run.summary["final_ece"] for e in entries if e.method == "method1"])
    assert float(row["ece"]) == pytest.approx(values.mean()) and float(row["ece_sd"]) == pytest.approx(
        values.std(ddof=1)
    )
    assert float(row["ece_low"]) < values.mean() < float(row["ece_high"])
    told = sections_of(entries)["scores"]
    assert "recall at precision 0.9" in told and f"{values.mean():.3f} (" in told
    mixes = written(entries, tmp_path)["mixes-1"]
    worst = np.mean([e.run.summary["final_mix_accuracy_worst_decile"] for e in entries if e.method == "method1"])
    assert float(next(r for r in mixes if r["method"] == "method1")["mix_accuracy_worst_decile"]) == pytest.approx(
        worst
    )
    assert "worst decile p10 p25 median p75 p90" in told


def test_another_precision_is_named_and_a_score_that_is_not_defined_is_a_dash() -> None:
    entries = study(2, 1, 2)
    for entry in entries:
        entry.run.config["recall_at"] = 0.8
        entry.run.summary["final_auroc_macro"] = None if entry.method == "method0" else 0.75
    told = sections_of(entries)["scores"]
    assert "recall at precision 0.8" in told and re.search(r"method0 2 – ", told) and "0.750 (0.750 to 0.750)" in told


def test_runs_without_scores_are_said_to_have_none() -> None:
    entries = study(2, 1, 2)
    for entry in entries:
        for name in SCORES:
            del entry.run.summary[f"final_{name}"]
    assert "scores" not in sections_of(entries)


def test_of_a_calibration_error_less_is_better() -> None:
    entries = study(2, 1, 6)
    for entry in entries:
        entry.run.summary["final_ece"] = 0.1 + 0.01 * int(entry.seed) + 0.2 * (entry.method == "method1")
    told = sections_of(entries, metric="ece")
    assert "method1 loses 20.0 points (20.0 to 20.0) against method0." in told["verdict"] and "targets" not in told


# The cost of a target


def test_costs_of_targets_are_those_of_studies(tmp_path: Path) -> None:
    entries = study(2, 1, 3)
    told = written(entries, tmp_path, targets=(0.4, 0.3))["targets-1"]
    assert [(r["target"], r["method"]) for r in told[:4]] == [
        ("0.3", "method1"), ("0.3", "method0"), ("0.4", "method1"), ("0.4", "method0"),
    ]  # fmt: skip
    for row in told[:4]:
        runs = [e.run for e in entries if e.method == row["method"]]
        ends = [reach(run.rows, float(row["target"])) for run in runs]
        assert (int(row["runs"]), int(row["reached"])) == (3, sum(end.reached for end in ends))
        for name in ("rounds", "bytes", "samples", "seconds"):
            needed = [getattr(end, name) if end.reached else np.inf for end in ends]
            assert float(row[f"{name}"]) == np.median(needed)


def test_a_target_that_half_of_the_runs_miss_is_never_reached() -> None:
    entries = study(1, 1, 3)
    best = sorted(max(row["accuracy"] for row in e.run.rows) for e in entries)
    target = float(f"{(best[1] + best[2]) / 2:.6g}")  # which one of three reaches
    told = sections_of(entries, targets=[target, 0.99])["targets"]
    assert f"method0 {100 * target:g} % 1 of 3 never" in told and "method0 99 % 0 of 3 never never never never" in told


def test_targets_that_nobody_names_are_shares_of_the_best() -> None:
    entries = study(2, 1, 2)
    best = np.mean([e.run.summary["mean10_accuracy"] for e in entries if e.method == "method1"])
    told = sections_of(entries)["targets"]
    for share in (0.5, 0.75, 0.9):
        assert f"method1 {100 * float(f'{share * best:.2g}'):g} % " in told
    assert "50, 75 and 90 % of the best mean" in told


def test_a_record_that_cannot_be_added_up_is_left_out_and_said() -> None:
    entries = study(2, 1, 2)
    del entries[0].run.rows[3]
    told = sections_of(entries, targets=[0.3])["targets"]
    assert "Left out: 1 run whose costs cannot be added up (round must count 1, 2, 3" in told
    assert "method0 30 % 1 of 1" in told and "method1 30 % 2 of 2" in told


def test_a_metric_of_the_last_model_alone_has_no_target() -> None:
    told = sections_of(study(2, 1, 2), metric="final_auroc_macro")
    assert "targets" not in told and "curves" not in told


def test_a_target_that_is_none_is_one_line() -> None:
    for targets, said in (((True,), "finite numbers; got True"), (range(21), "at most 20; got 21")):
        with pytest.raises(ConfigError, match=f"targets must be {said}"):
            report.build(study(1, 1, 1), targets=targets)


# Labels of others


def test_a_setting_without_a_name_is_compared() -> None:
    entries = [
        LabelledRun(method, setting, k, made_run(f"{method}{setting}{k}", "fedavg", k, 0.4 + 0.1 * len(method)))
        for method in ("a", "bc") for setting in ("", "all") for k in range(2)
    ]  # fmt: skip
    assert "combinations" not in sections_of(entries)["cautions"]


def test_runs_whose_metric_is_missing_everywhere_but_in_one_are_compared() -> None:
    entries = study(2, 2, 2)
    for entry in entries[1:]:
        entry.run.summary["mean10_accuracy"] = None
    assert isinstance(entries[0].run, Run)
    found = sections_of(entries)
    assert "7 combinations of method, setting and seed have no value" in found["cautions"]
