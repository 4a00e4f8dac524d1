"""What each client would use: one metric for methods with models of the clients' own and for global ones."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedskew as fs
from fedskew.cli.tables import _edge
from fedskew.config.recorded import Run
from fedskew.methods import METHODS
from fedskew.records.clients import last_clients, read_clients
from fedskew.records.summary import collapses
from fedskew.report.compared import compare
from fedskew.report.entries import LabelledRun, from_folders, of_study
from fedskew.report.figures import Detail, recalls
from fedskew.report.listings import compact, results
from fedskew.report.page import sections
from fedskew.report.sentences import cautions, measured, verdict
from fedskew.studies.differences import differences
from fedskew.studies.scores import Scores
from support.command import fedskew, output_of
from support.federations import skewed
from support.runs import go

SERVED = ("served_accuracy", "served_macro_f1", "served_balanced_accuracy", "served_loss")


def test_methods_say_what_clients_use() -> None:
    found = {name: made().serves for name, made in METHODS.items()}
    own = {"fedamp", "fedbn", "fedper", "fedrep", "ifca", "lgfedavg", "localonly", "perfedavg"}
    both = {"apfl", "ditto", "fedbabu", "fedetf", "fedgc", "fedloge", "fedrod", "pfedme"}
    assert {n for n, s in found.items() if s == "own"} == own
    assert {n for n, s in found.items() if s == "both"} == both
    assert fs.methods.fedavg().with_(parts=(fs.parts.Private(),)).serves == "own"


@pytest.mark.parametrize("name", ["fedavg", "fedper", "ditto"])
@pytest.mark.parametrize("options", [{}, {"local_test": 0.3}, {"heldout_clients": 0.25}])
def test_served_is_the_own_model_or_the_global_one_on_the_same_rows(name: str, options: dict[str, Any]) -> None:
    fed = fs.federate("digits", fs.partitioners.Dirichlet(alpha=0.3), clients=8, **options)
    settings: dict[str, Any] = {"model": "logistic", "rounds": 3, "cohort": 4, "served": "tail", "eval_every": 2}
    runs = {e: fs.run(fed, METHODS[name](), engine=e, **settings) for e in ("sequential", "threaded", "batched")}
    row, last = runs["sequential"].rounds[0], runs["sequential"].rounds[-1]
    assert not any("served" in key for key in row) and all(key in last for key in SERVED)
    assert ("heldout_served_loss" in last) == ("heldout_clients" in options)
    if METHODS[name]().personal:
        own = {key: value for key, value in last.items() if "personal_" in key}
        assert own and own == {key.replace("served_", "personal_"): v for key, v in last.items() if "served_" in key}
    else:
        of, data = (fed.local_test_rows, fed.dataset) if fed.held is not None else (fed.test_rows, fed.dataset)
        rows = np.concatenate([of(k) for k in range(fed.clients) if len(fed.partition.of(k))])
        x, y = (data.x, data.y) if fed.held is not None else (data.x_test, data.y_test)
        right = np.asarray(runs["sequential"].predict(x[rows])) == y[rows].numpy()
        assert last["served_accuracy"] == pytest.approx(right.mean())
    for engine in ("threaded", "batched"):
        assert runs[engine].rounds[-1]["served_accuracy"] == last["served_accuracy"]
        assert runs[engine].rounds[-1]["served_loss"] == pytest.approx(last["served_loss"], rel=1e-5)


def test_when_it_is_measured() -> None:
    def measured(**options: Any) -> list[int]:
        rows = go(skewed(), fs.methods.fedavg(), rounds=12, **options).rounds
        return [row["round"] for row in rows if "served_loss" in row]

    assert measured() == [] and measured(served="none") == []
    assert measured(served="tail") == [*range(3, 13)] and measured(served="every") == [*range(1, 13)]
    once, never = (go(skewed(), fs.methods.fedavg(), rounds=2, served=when).summary for when in ("last", "none"))
    assert once["final_served_accuracy"] == once["mean10_served_accuracy"] and "final_served_accuracy" not in never


def test_a_model_that_is_not_trained_does_not_collapse() -> None:
    base = {"support": [5, 5], "per_class_recall": [1.0, 0.0], "balanced_accuracy": 0.5, "train_loss": 0.1}
    rows = [{**base, "round": r, "personal_balanced_accuracy": 0.9} for r in range(1, 12)]
    assert collapses(rows) and not collapses(rows, "own")
    low = [{**row, "personal_balanced_accuracy": 0.5} for row in rows]
    assert "of the clients' own models" in collapses(low, "own")[0].words


def _judged(folder: Path, *words: str) -> tuple[str, str]:
    """(table, report's verdict) of a comparison of these, checked against a computation from the scores."""
    code = fedskew("compare", "localonly", "fedavg", "fedper", *words, "--store", folder / "s", "--out", folder / "o")
    assert code == 0
    entries, asked = of_study(folder / "o")
    found = compare(entries, asked["metric"], asked["baseline"])
    runs = [(e.method, "all", int(e.seed), e.run.summary["mean10_served_accuracy"]) for e in entries]
    scores = Scores.of(runs, metric="mean10_served_accuracy")
    for gap in differences(scores, "localonly"):
        told = found.difference(gap.method, "")
        assert told is not None and told.mean == gap.mean and told.gain == gap.gain and told.verdict == gap.verdict
    assert not any("ollapsed" in line for line in cautions(found))
    return asked["metric"], " ".join(verdict(found))


@pytest.mark.thorough
def test_local_training_is_judged_by_its_own_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ("--clients", 5, "--partition.alpha", 0.1, "--model", "logistic", "--rounds", 12, "--cohort", 5)
    metric, told = _judged(tmp_path, *map(str, data), "--seeds", "0-1")
    out = " ".join(capsys.readouterr().out.split())
    assert metric == "mean10_served_accuracy" and "behind localonly; two seeds are too few for a verdict" in told
    assert "ccuracy of what each client would use (own model where the method has one), the mean over" in out


def test_a_row_is_of_one_model_at_one_range_of_rounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--clients", 5, "--partition.alpha", 0.1, "--model", "logistic", "--rounds", 5, "--seeds", "0-1")
    store = ("--store", tmp_path / "s", "--out", tmp_path / "o")
    out = " ".join(output_of(capsys, "compare", "localonly", "fedavg", "ditto", *words, *store).split())
    assert "the mean over the last 5 rounds" in out and "last 10" not in out
    entries, asked = of_study(tmp_path / "o")
    found = compare(entries, asked["metric"], asked["baseline"])
    table = results(found, "")
    by = {record["method"]: record for record in table.records}
    assert "final" not in table.head and "macro F1" in table.head and "G-mean" not in table.head
    for method in ("localonly", "fedavg", "ditto"):
        runs = [entry.run for entry in entries if entry.method == method]
        own = np.mean([run.summary["mean10_served_macro_f1"] for run in runs])
        assert by[method]["mean10_served_macro_f1_mean"] == pytest.approx(own)
        assert not any(key.startswith("mean10_macro_f1") for key in by[method])
    heat = recalls(found, "", found.methods)
    assert heat is not None and "by the model that each client would use" in heat.title
    for method, row in zip(heat.rows, heat.cells, strict=True):  # weighted by test rows they are the final accuracy
        runs = [entry.run for entry in entries if entry.method == method]
        support = np.sum([each["support"] for each in last_clients(read_clients(runs[0].folder))], axis=0)
        served = np.mean([run.summary["final_served_accuracy"] for run in runs])
        assert (row * support).sum() / support.sum() == pytest.approx(served)
    other = compare(entries, "final_accuracy", asked["baseline"])
    heat = recalls(other, "", other.methods)
    assert heat is not None and "by the global model" in heat.title
    assert compact(found).caption.startswith("Accuracy of what each client would use")
    folder = str(entries[0].run.folder)
    told = output_of(capsys, "show", folder)
    assert "mean of last 5" in told and "mean of last 10" not in told and "mean of last 50" not in told
    assert "recall of each class by the global model" in told


def test_what_was_measured_once_is_no_mean_over_rounds(tmp_path: Path) -> None:
    for seed in (0, 1):
        go(skewed(), fs.methods.ditto(), rounds=3, seed=seed, served="last", out=tmp_path / str(seed))
    found = compare(from_folders([tmp_path]), "served_accuracy")
    assert found.key == "mean10_served_accuracy" and measured(found).endswith("at the last evaluation")


def test_a_verdict_has_one_metric_one_range_of_rounds_and_one_unit(tmp_path: Path) -> None:
    """The fits are of the last evaluation alone: the table of gains under the controls says so."""
    for name in ("fedavg", "scaffold"):
        for seed in (0, 1, 2):
            go(skewed(), METHODS[name](), rounds=4, seed=seed, fit_logits="last", out=tmp_path / name / str(seed))
    found = compare(from_folders([tmp_path]))
    told = " ".join(verdict(found))
    assert "fitted" not in told and re.search(r"\d+\.\d points \(\S+ to \S+\)", told)
    for metric, of in (("accuracy", "the last model, with fitted biases"), ("final_accuracy", "the same, with")):
        section = next(s for s in sections(compare(found.entries, metric), Detail()) if s.key == "results")
        (table,) = section.parts
        assert of in " ".join(table.notes)


def test_further_numbers_are_of_the_rows_of_the_metric() -> None:
    summary = {"rounds": 5, "mean10_val_accuracy": 0.6, "mean10_macro_f1": 0.1, "best_accuracy": 0.9}
    row = {"round": 5, "accuracy": 0.5, "val_accuracy": 0.6}
    entries = [LabelledRun("a", "", 0, Run(Path("r"), {}, [row], summary))]
    for metric in ("val_accuracy", "best_accuracy"):
        table = results(compare(entries, metric), "")
        assert "macro F1" not in table.head and not any("macro_f1" in name for name in table.records[0])


def test_controls_by_name_and_equal_epochs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ("--clients", 5, "--partition.alpha", 0.3, "--model", "logistic", "--rounds", 2, "--store", tmp_path / "s")
    assert fedskew("compare", "fedavg", "--controls", "local,centralised", *data, "--out", tmp_path / "o") == 0
    entries, asked = of_study(tmp_path / "o")
    label, rows = "control: all rows in one place", {e.method: e.run.config for e in entries}
    assert [*rows] == ["fedavg", "control: each client alone", label] and rows[label]["clients"] == 1
    assert asked["metric"] == "mean10_served_accuracy" and "--controls local,centralised" in asked["command"]
    capsys.readouterr()
    assert fedskew("compare", "fedavg", "fedrep", "--epochs", 2, *data) == 0
    assert "as a multiple of fedavg's method steps contacts bytes fedrep ×1.00" in " ".join(
        capsys.readouterr().out.split()
    )
    assert fedskew("compare", "fedavg", "fedrep", *data) == 0
    assert "as a multiple of fedavg's method steps contacts bytes fedrep ×5.50" in " ".join(
        capsys.readouterr().out.split()
    )
    assert fedskew("compare", "fedavg", "--controls", "local,centre", *data) == 2
    assert "unknown control 'centre'" in capsys.readouterr().err
    from fedskew.cli.compare import CONTROLS as NAMES
    from fedskew.studies.spec import CONTROLS, LONGER

    assert {*CONTROLS, LONGER} == NAMES


def test_own_models_are_tuned_on_rows_that_clients_hold_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--clients", 4, "--model", "logistic", "--rounds", 2, "--tune", "lr=log:0.01..0.3", "--tune-trials", 2)
    study = fs.study(["localonly", "fedavg"], tune="lr=log:0.01..0.3", tune_trials=2, clients=4, store=tmp_path / "s")
    assert all(one.cell.experiment and one.cell.experiment.local_test == 0.1 for one in study.trials())
    told = " ".join(output_of(capsys, "compare", "localonly", "fedavg", *words, "--store", tmp_path / "s").split())
    assert "tuned: localonly: lr 0." in told and "of 2 values" in told
    assert fedskew("compare", "localonly", *words, "--local-test", 0.2, "--store", tmp_path / "s") == 2


def test_a_tuned_value_at_the_edge_of_those_tried_says_so() -> None:
    assert _edge(0.1, [0.01, 0.1, 1.0]) == ""
    assert _edge(1, [0.01, 0.1, 1.0]) == ", the largest of 3 values"
    assert _edge(0.01, [0.01, 0.1, 1.0]) == ", the smallest of 3 values"


@pytest.mark.slow
@pytest.mark.skipif("FEDSKEW_DATA" not in os.environ, reason="Heart Disease is not at hand")
def test_a_hospital_on_its_own_is_no_collapse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("ditto", "scaffold", "--data", "heart_disease", "--partition", "natural", "--seeds", "0-4")
    metric, told = _judged(tmp_path, *words)
    assert metric == "mean10_served_accuracy" and "+0.273" not in told
    assert "localonly" in capsys.readouterr().out
