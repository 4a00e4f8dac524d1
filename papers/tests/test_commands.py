"""`fedskew reproduce` and `fedskew ledger`."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from fedskew.cli.output import show
from fedskew_papers.cli import beside
from fedskew_papers.printed import printed
from fedskew_papers.rows import Row
from fedskew_papers.runs import Runs
from fedskew_papers.tables import Scale, protocol
from support.command import fedskew, mistake
from support.paths import ROOT
from support.scheduling import without_workers

SMOKE = ["reproduce", "fedga-table1-mnist", "--scale", "smoke"]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    without_workers(monkeypatch)


def test_the_studies_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert fedskew("reproduce") == 0
    said = capsys.readouterr().out
    assert "fedga-table1-mnist" in said and "FedGA Table 1, MNIST" in said
    assert "niid-bench-cifar10" in said and "NIID-Bench by" in said


def test_a_table_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert fedskew(*SMOKE, "--dry-run") == 0
    said = capsys.readouterr().out
    assert "6 runs: 0 done, 6 missing" in said and "public code" in said
    assert said.startswith("Smoke test of fedga-table1-mnist on digits") and "MNIST" not in said
    assert fedskew(*SMOKE, "--processes", 1, "--out", "out") == 0
    capsys.readouterr()
    assert len(list(csv.DictReader((tmp_path / "out/runs.csv").read_text().splitlines()))) == 6
    assert fedskew(*SMOKE, "--dry-run") == 0
    assert "nothing to do" in capsys.readouterr().out


def test_a_part_of_a_table_on_another_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    part = [*SMOKE, "--methods", "FedAvg; FedGA", "--settings", "alpha=0.05", "--precision", "bfloat16"]
    assert fedskew(*part, "--processes", 1) == 0
    capsys.readouterr()
    configs = [json.loads(file.read_text()) for file in (tmp_path / "runs/store/runs").glob("*/config.json")]
    assert sorted(c["method"]["name"] for c in configs) == ["fedavg", "fedga"]
    assert {c["precision"] for c in configs} == {"bfloat16"}
    assert fedskew(*part, "--dry-run") == 0 and "nothing to do" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fedga-table1-mnist", "--methods", "FedXX"], "unknown method 'FedXX'"),
        (["fedga-table1-mnist", "--settings", "alpha=9"], "unknown setting 'alpha=9'"),
        (["fedga-table1-mnist", "--device", "gpu"], "device must be cpu, cuda or cuda:NUMBER; got 'gpu'"),
        (["fedga-table1-mnist", "--precision", "int8"], "--precision must be one of"),
        (["fedga-table1-mnist", "--device", "gpu", "--dry-run"], "--device must be cpu, cuda"),
        (["fedga-table1-mnist", "--methods", ";"], "--methods must name at least one"),
        (["fedga-table1-mnist", "--settings", ""], "--settings must name at least one"),
        (["--methods", "FedAvg"], "--methods must be used with the NAME of a study"),
        (["--device", "cuda"], "--device must be used with the NAME of a study"),
        (["--retry"], "--retry must be used with the NAME of a study"),
        (["--seeds", "3"], "--seeds must be used with the NAME of a study; got '3'"),
        (["--out", "here", "--dry-run"], "--out must be used with the NAME"),
        (["--scale", "big"], "unknown scale 'big'"),
        (["fedga-table1-mnist", "--scale", "big"], "unknown scale 'big'"),
        (["fedga-table1-mnist", "--seeds", "x", "--scale", "smoke"], "seeds must"),
        (["fedga-table1-mnis"], "did you mean 'fedga-table1-mnist'"),
        (["nothing-like-it"], "`fedskew reproduce` lists them"),
    ],
)
def test_a_part_that_there_is_not(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in mistake(capsys, "reproduce", *words)


def test_the_printed_numbers_stand_beside_ours(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of committed runs, none of which is computed again."""
    monkeypatch.chdir(tmp_path)
    words = ["reproduce", "fedga-table1-mnist", "--scale", "paper", "--seeds", "0", "--store", "store"]
    assert fedskew(*words, "--archives", ROOT / "results/papers") == 0
    said = capsys.readouterr().out
    assert "nothing to do" in said and not list((tmp_path / "store/runs").iterdir())
    beside = [line for line in said.splitlines() if "accuracy" in line and "FedAvg" in line and "alpha=0.05" in line]
    one = protocol(words[1])
    (number,) = (p for p in one.numbers() if (p.method, p.metric, p.setting) == ("FedAvg", "accuracy", "alpha=0.05"))
    (cell,) = (c for c in one.spec.cells() if (c.label, c.setting, c.seed) == ("FedAvg", "alpha=0.05", 0))
    ours = Runs.of(ROOT / "results/papers").get(cell.experiment)
    assert ours is not None and len(beside) == 1 and "1 of 1" in beside[0]
    assert f"{number.mean:g} ±" in beside[0]
    assert f"{ours.summary['final_accuracy']:.4g}" in beside[0]


def test_a_ledger_of_no_paper_and_of_no_folder_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "archives must be a folder; got 'none'" in mistake(capsys, "ledger", "--archives", "none")
    assert "did you mean 'FedGA'" in mistake(capsys, "ledger", "--paper", "FedGAs")


@pytest.mark.thorough
def test_the_ledger_is_counted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    assert fedskew("ledger", "--paper", "FedLA") == 0
    said = capsys.readouterr().out
    counts = dict(re.findall(r"(?m)^(all five|Flower|FedLA) .* (\d+) *$", said))
    assert counts["all five"] == "1039" and counts["Flower"] == "60" and counts["FedLA"] == "299"
    with (ROOT / "results/ledger.csv").open(encoding="utf-8", newline="") as opened:
        ours = [row for row in csv.DictReader(opened) if row["ours"] and row["paper"] != "Flower"]
    assert f"all five: {len(ours)} with our number" in said and "Flower: " in said


@pytest.mark.thorough
def test_seeds_that_are_named_stand_beside_the_printed_numbers(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seeds that the protocol has not, too."""
    monkeypatch.chdir(tmp_path)
    one = protocol("fedga-table1-mnist")
    quick = Scale((("rounds", "1"), ("model", "logistic")), (0,), ("alpha=10",), ("FedAvg", "FedNTD"))
    monkeypatch.setattr("fedskew_papers.tables.protocol", lambda name: replace(one, scales={"small": quick}))
    assert fedskew("reproduce", "fedga-table1-mnist", "--seeds", "7-8", "--processes", 1) == 0
    said = capsys.readouterr().out
    assert said.count("2 of 2") == 4 and "printed" in said


@pytest.mark.thorough
def test_a_paper_without_runs_is_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "none").mkdir()
    assert fedskew("ledger", "--paper", "FedGR", "--archives", "none") == 0
    said = capsys.readouterr().out
    assert "no number of FedGR was run" in said and said.count("printed") == 1, "the head of the counts"
    assert fedskew("ledger") == 0
    said = capsys.readouterr()
    assert "results/papers does not exist" in said.err and "all five: 18 with our number" in said.out


def test_metrics_are_told_whole_in_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    number = next(p for p in printed() if p.id == "seolkim-033")
    show(beside([Row(number, ours=21.0, low=19.123, high=23.456, seeds=10, planned=10)]))
    said = capsys.readouterr().out
    assert all(word in said for word in re.split(r"[ _]", number.metric)) and max(map(len, said.splitlines())) <= 80
