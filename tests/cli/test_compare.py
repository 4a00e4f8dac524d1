"""``fedskew compare``: what it does, says and refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fedskew.studies.progress import duration
from support.command import fedskew, mistake, output_of, printed
from support.scheduling import without_workers

SMALL = ("--clients", "5", "--cohort", "2", "--rounds", "2", "--model", "logistic")


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Runs are done in this process, one after another; the store is the test's own."""
    without_workers(monkeypatch)
    monkeypatch.setenv("FEDSKEW_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)


def test_a_study_is_done_once_and_then_there_is_nothing_to_do(tmp_path: Path) -> None:
    words = ("compare", "fedavg", "fedla", *SMALL, "--partition.alpha", "0.1,1", "--out", "study")
    said = printed(*words)
    assert "[4/4]" in said.err and "partition.alpha 0.1" in said.out and "over fedavg" in said.out
    held = json.loads((tmp_path / "study" / "study.json").read_text())
    assert len(held["runs"]) == 4 and held["command"].startswith("fedskew compare fedavg fedla --clients 5")
    assert "nothing to do: every run is in the store" in output_of(*words)


@pytest.mark.thorough
def test_the_folder_of_a_study_is_taken_where_runs_are(tmp_path: Path) -> None:
    alphas = [*map(str, range(1, 10))]
    words = ("compare", "fedavg", "fedla", *SMALL, "--seeds", "0-1")
    assert fedskew(*words, "--partition.alpha", "0.1,1", "--out", "study", "--title", "Two") == 0
    assert len(output_of("runs", "study", "--columns", "method,seed").splitlines()) == 9
    said = output_of("show", "study")
    *lines, again = said.splitlines()
    assert all(len(line) <= 100 for line in lines) and said.count("over fedavg") >= 2
    assert said.startswith("Two: ") and again.startswith("again: fedskew compare fedavg fedla")
    assert fedskew(*words[:-1], "0", "--partition.alpha", ",".join(alphas), "--out", "wide") == 0
    lines = output_of("show", "wide").splitlines()
    assert fedskew("advise", "--clients", 5, "--from", "study") == 2 and fedskew("plot", "study", "--out", "a.png") == 0
    assert (tmp_path / "a.png").is_file()
    assert len([line for line in lines if line.startswith("partition.alpha ")]) >= 9
    assert fedskew("report", "study", "--tables", "tables") == 0
    best = (tmp_path / "tables" / "compact-1.tex").read_text()
    assert best.count("textbf") == 2 and r"$\pm$" in best and (tmp_path / "tables" / "compact-1.csv").is_file()


def test_a_dry_run_does_nothing(tmp_path: Path) -> None:
    said = output_of("compare", "fedavg", *SMALL, "--seeds", "0-2", "--dry-run")
    assert "3 runs: 0 done, 3 missing, 0 refused" in said
    assert not list((tmp_path / "store" / "runs").iterdir())
    assert fedskew("compare", "fedavg", *SMALL) == 0
    said = output_of("compare", "fedavg", *SMALL, "--seeds", "0-2", "--dry-run")
    assert "1 done, 2 missing" in said and re.search(r"about \d+ s with", said)
    said = printed("compare", "fedavg", *SMALL, "--seeds", "5", "--dry-run").err
    assert "--seeds 5 is one seed, which gives no interval; 0-4 are five" in said


def test_a_run_that_two_methods_share_is_missing_once_and_not_done() -> None:
    said = output_of("compare", "fedavg", "fedla", "--controls", *SMALL, "--dry-run")
    assert "4 runs: 0 done, 3 missing, 0 refused; 1 the same as others" in said


def test_tuning(tmp_path: Path) -> None:
    words = ("compare", "fedavg", *SMALL, "--tune", "lr=log:0.01..0.5", "--tune-trials", "2", "--out", "study")
    assert "tuning: 2 trials, 2 of them missing" in output_of(*words, "--dry-run")
    assert fedskew(*words) == 0
    trials = json.loads((tmp_path / "study" / "study.json").read_text())["trials"]
    assert [list(t["options"]) for t in trials] == [["lr"], ["lr"]] and sum(t["chosen"] for t in trials) == 1
    assert "lr" in (tmp_path / "study" / "report.html").read_text()
    assert "nothing to do" in output_of(*words, "--dry-run")


def test_what_is_refused_and_what_fails_is_said_and_the_rest_goes_on() -> None:
    said = printed("compare", "fedavg", "fedavg(cohort=50)", "fedavg(lr=1e30, model=mlp)", *SMALL)
    assert ": refused: " in said.out and ": failed: " in said.out and "[3/3]" in said.err
    assert fedskew("compare", "fedavg", "fedavg(cohort=50)", *SMALL, "--retry") == 0


def test_a_shard_after_which_no_setting_is_whole_has_no_ranks() -> None:
    words = (*SMALL[:4], *SMALL[6:], "--rounds", "1,2", "--shard", "2/2", "--out", "study")
    said = printed("compare", "fedavg", "fedprox", "--controls", *words)
    assert "runs not finished" in said.out and "fault" not in said.err


def test_a_shard_does_its_part(tmp_path: Path) -> None:
    assert "[2/2]" in printed("compare", "fedavg", *SMALL, "--seeds", "0-4", "--shard", "2/3").err
    assert len(list((tmp_path / "store" / "runs").iterdir())) == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "needs at least one METHOD"),
        (["fedavg", "--seeds", "x"], "--seeds must be numbers such as 0-4"),
        (["fedavg", "--lr", "0.1,,2"], "--lr must name each value once"),
        (["fedavg", "--shard", "3/2"], "--shard must be PART/PARTS"),
        (["fedavg", "--tune", "lr"], "--tune must be OPTION=LOW..HIGH"),
        (["fedavg", "--tune-trials", "3"], "--tune-trials must be used with --tune"),
        (["fedavg", "--baseline", "fedla"], "baseline"),
        (["fedavg,fedla"], "METHOD must be one name; got 'fedavg,fedla'; write fedavg fedla"),
        (["fedavg", "--out", "held"], "--out must be a new folder, or that of this study; got 'held'"),
        (["none.toml"], "cannot read the study"),
        (["fedavg("], "method must be a name, or NAME(option=value, ...)"),
        (["fedavg", "--store", "file"], "writable folder"),
        (["fedavg", "--processes", "1" * 5_000], "--processes must be a whole number"),
        (["fedavg", "--shard", "²/2"], "--shard must be PART/PARTS"),
        (["fedavg", "--tune", "lr=0..1", "--tune-trials", "9" * 18], "--tune-trials must be at most 10000"),
        (["trials.toml"], "trials.toml: tune_trials must be at most 10000"),
        (["deep.toml"], "'deep.toml' is not a study: it is nested too deep"),
        (["options.toml"], "options.toml: options must be a table of options; got 'x'"),
        (["plain.toml", "--rounds", "3"], "must be used alone"),
        (["plain.toml", "fedla"], "must be used alone"),
        (["fedavg", "--metric", "total_upload_bytes", "--fitted"], "unknown fitted metric"),
        (["fedavg", "fedla(lrr=3)"], "unknown option '--lrr'"),
        (["method.toml"], "unknown method '3'"),
        (["control.toml"], "unknown control 'no'; known: "),
    ],
)
def test_a_mistake_is_one_line(words: list[str], told: str, tmp_path: Path) -> None:
    (tmp_path / "held").mkdir()
    (tmp_path / "held" / "study.json").write_text('{"runs": [{"address": "other", "label": "fedprox"}]}')
    (tmp_path / "file").write_text("")
    files = {
        "deep": "methods = " + "[" * 50_000, "trials": f'tune_trials = 1{"0" * 30}\ntune = {{lr = "0..1"}}',
        "options": 'options = "x"', "plain": "", "method": "[method.x]\nmethod = 3", "control": 'controls = "no"',
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / f"{name}.toml").write_text(text if name == "deep" else f'methods = ["fedavg"]\n{text}\n')
    assert told in mistake("compare", *words)
    assert not (tmp_path / "store" / "runs").exists() or not list((tmp_path / "store" / "runs").iterdir())


def test_a_study_file_runs_elsewhere(tmp_path: Path) -> None:
    """What decides no number may differ from the file, also where a setting or a method has it."""
    (tmp_path / "s.toml").write_text("""
[options]
clients = 5
cohort = 2
rounds = 1
model = "logistic"
[[settings]]
name = "one"
engine = "batched"
[[settings]]
name = "two"
partition = {name = "iid"}
[method.own]
method = "fedavg"
engine = "debug"
""")
    assert fedskew("compare", "s.toml", "--engine", "sequential", "--out", "study") == 0
    configs = [json.loads(file.read_text()) for file in (tmp_path / "store" / "runs").glob("*/config.json")]
    assert {c["engine"] for c in configs} == {"sequential"} and len(configs) == 2
    held = json.loads((tmp_path / "study" / "study.json").read_text())
    assert held["command"] == "fedskew compare s.toml --engine sequential"
    assert "[2/2]" in printed("compare", "s.toml", "--engine", "sequential", "--seeds", "0-1").err


@pytest.mark.parametrize("name", ["label", "seed", "final_acuracy"])
def test_a_metric_that_no_summary_has_is_one_line(name: str) -> None:
    """Which there are is known once a run has ended; the runs are kept, so the next try is immediate."""
    said = printed("compare", "fedavg", *SMALL, "--metric", name, code=2).err
    assert said.splitlines()[-1].startswith(f"fedskew: unknown metric '{name}'")


def test_a_study_of_which_nothing_came_to_an_end_has_no_page(tmp_path: Path) -> None:
    """So it is with a part of the runs whose first are done by others, and where every method is refused."""
    said = printed("compare", "fedavg", *SMALL, "--shard", "2/2", "--out", "study")
    assert said.err.endswith("note: no report: a report needs an evaluated round; there is none\n")
    assert json.loads((tmp_path / "study" / "study.json").read_text())["runs"][0]["state"] == "missing"


def test_durations() -> None:
    assert [duration(s) for s in (40, 720, 12600)] == ["40 s", "12 min", "3.5 h"]


def test_gains_are_shown_under_the_controls(tmp_path: Path) -> None:
    words = ("compare", "fedavg", "fedla", *SMALL, "--seeds", "0-1")
    said = " ".join(output_of(*words, "--fitted", "--out", "study").split())
    assert "method seeds mean sd raw averaged fitted both fed" in said and "two seeds are too few for a verdict" in said
    assert json.loads((tmp_path / "study" / "study.json").read_text())["command"].endswith("--fitted")
    page = (tmp_path / "study" / "report.html").read_text()
    assert "Gains over fedavg in accuracy: 2 seeds" in page and "two seeds are too few for a verdict" in page
    said = output_of(*words)
    assert "fitted" not in said and "over fedavg" in said and "too few" in said
    said = " ".join(output_of("compare", "fedavg", *SMALL, "--fit-logits", "none", "--fitted").split())
    assert "no run of fedavg has fitted numbers; --fit-logits last measures them" in said
    said = output_of(*words, "--fit-logits", "tail", "--metric", "mean10_macro_f1", "--fitted")
    assert "Macro F1, the mean over the last 2 rounds, %" in said and "average rank" not in said  # of one setting
    said = " ".join(output_of(*words, "--metric", "mean10_accuracy", "--fitted").split())
    assert "averaged: the mean of the last ten global models; fitted: the last model, with fitted biases" in said
    assert "Fitted accuracy, at the last evaluation" in output_of(*words, "--metric", "final_fitted_accuracy")


def test_a_comparison_under_controls_has_no_line_of_prose_for_a_method() -> None:
    """Two tables: results with the gains, and work with what a method is worth in rounds."""
    said = output_of("compare", "fedavg", "fedga", "scaffold", *SMALL, "--seeds", "0-4", "--controls", "rounds")
    heads = [line.split() for line in said.splitlines() if line.startswith("method")]
    assert [head[1] for head in heads] == ["seeds", "steps"] and heads[1][-1] == "worth"
    assert not any(line.startswith(("fedga:", "scaffold:", "work of")) for line in said.splitlines())
    assert max(map(len, said.splitlines())) <= 80


def test_what_a_time_limit_stopped_has_no_result(tmp_path: Path) -> None:
    words = ["--clients", 5, "--rounds", 400, "--max-minutes", 0.0001, "--seeds", "0-1", "--processes", 1]
    said = printed("compare", "fedavg", "fedprox", *words, "--store", tmp_path / "s", code=1)
    assert "interrupted: time limit" in said.err and "mean10_accuracy 0." not in said.err
    assert "missing" not in said.out and "4 runs not finished (fedavg; fedprox)" in " ".join(said.out.split())
    (line,) = [line for line in said.err.splitlines() if "tries again" in line]
    assert line.startswith("fedskew: 4 runs not finished: time limit")


def test_a_dataset_that_is_not_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDSKEW_DATA", raising=False)
    words = ["compare", "fedavg", "fedprox", "--data", "adult", "--partition.alpha", "0.1,1,10", "--seeds", "0-4"]
    for more in (["--dry-run"], []):
        said = " ".join(output_of(*words, *more, "--store", tmp_path / "s").split())
        assert said.count("was not found") == 1 and said.startswith("30 runs refused: dataset 'adult' was not found")
        assert "every run is in the store" not in said
