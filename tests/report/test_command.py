"""``fedskew report``: from run folders to a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedskew import report
from fedskew.config.flags import experiment_from
from support.command import SMALL, fedskew, mistake, output_of
from support.old_format import as_format_1
from support.reports import page_of, parsed, undrawn, words_of

pytest.importorskip("jinja2", reason="jinja2 is not installed: pip install -e '.[report]'")
pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install -e '.[plot]'")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods under two settings, two seeds, in the folders of a store."""
    root = tmp_path_factory.mktemp("study")
    for i, (method, alpha, seed) in enumerate(
        (m, a, s) for m in ("fedavg", "fedbal") for a in ("0.1", "0.5") for s in "01"
    ):
        words = [method, *(alpha if w == "0.5" else w for w in SMALL), "--seed", seed]
        experiment_from(words).run(root / "runs" / f"{i:08x}")
    return root


def test_folders_are_parted_into_methods_settings_and_seeds(runs: Path) -> None:
    found = [entry[:3] for entry in report.from_folders([runs])]
    wanted = [(m, f"alpha {a}", s) for m in ("fedavg", "fedbal") for a in ("0.1", "0.5") for s in (0, 1)]
    assert sorted(found) == wanted


def test_runs_that_differ_in_another_seed_are_told_apart(tmp_path: Path) -> None:
    for seed in "12":
        experiment_from(["fedavg", *SMALL, "--seed.model", seed]).run(tmp_path / seed)
    assert [e.seed for e in report.from_folders([tmp_path])] == ["seed 0, seed.model 1", "seed 0, seed.model 2"]


@undrawn()
def test_the_command_writes_the_page(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "deep" / "page.html"
    said = output_of(capsys, "report", runs, "--out", out, "--title", "My <study>", "--tables", tmp_path / "t")
    assert said.startswith(f"report: {out} (8 runs, ") and "tables: " in said
    told = words_of(parsed(out.read_text()))
    assert "My <study>" in told and "6 clients hold 1,438 training rows" in told  # the split, made again


@undrawn()
def test_targets_are_taken_from_the_command(runs: Path, tmp_path: Path) -> None:
    assert fedskew("report", runs, "--out", tmp_path / "r.html", "--targets", "0.9, 0.05") == 0
    told = words_of(parsed((tmp_path / "r.html").read_text()))
    assert "fedavg 5 % 2 of 2" in told and "fedavg 90 % 0 of 2" in told and "50, 75 and 90 %" not in told


def test_a_split_that_cannot_be_made_again_is_said(runs: Path, tmp_path: Path) -> None:
    experiment_from(["fedavg", *SMALL]).run(tmp_path / "run")
    config = json.loads((as_format_1(tmp_path / "run") / "config.json").read_text())
    (tmp_path / "run" / "config.json").write_text(json.dumps({**config, "fingerprint": "other"}))
    told = words_of(page_of(report.from_folders([tmp_path])))
    assert "it cannot be made again here: the data 'digits' are not those of the run" in told


def test_mistakes_are_one_line(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    cases: dict[tuple[Any, ...], str] = {
        (): "fedskew report needs at least one run folder",
        (tmp_path / "no",): "there is no run at",
        (tmp_path,): "no run folder found",
        (runs, "--metric", "acc"): "unknown metric 'acc'",
        (runs, "--baseline", "fedbl"): "unknown baseline 'fedbl'; did you mean 'fedbal'?",
        (runs, "--targets", "0.5,x"): "--targets must be numbers between commas, such as 0.5,0.8; got '0.5,x'",
        (runs, "--targets", "inf"): "--targets must be finite numbers; got inf",
        (runs, "--out", tmp_path / "a.pdf"): "--out must end in .html",
        (runs, "--outt", "x"): "did you mean '--out'?",
    }
    for words, said in cases.items():
        assert said in mistake(capsys, "report", *words)
    assert not list(tmp_path.iterdir())
