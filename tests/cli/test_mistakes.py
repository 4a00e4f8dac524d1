"""Mistakes on the command line: each is one line and exit code 2, and nothing is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.command import SMALL, fedskew, mistake
from support.old_format import as_format_1

LINES = {
    "device": (["fedavg", "--device", "tpu"], "--device must be cpu, cuda or cuda:NUMBER; got 'tpu'"),
    "no such GPU": (["fedavg", "--device", "cuda:99"], "--device must be"),
    "rounds": (["fedavg", "--rounds", "0"], "--rounds must be at least 1; got 0"),
    "cohort": (["fedavg", "--cohort", "0"], "--cohort must be at least 1; got 0"),
    "personal": (["fedavg", "--eval.personal", "-1"], "--eval.personal must be at least 0; got -1"),
    "huge whole number": (["fedavg", "--rounds", "9" * 30], "--rounds must be a whole number"),
    "beyond float32": (["fedadam", "--server.tau", "1e300"], "--server.tau must be a number that float32 holds"),
    "beyond its square": (["fedadam", "--server.tau", "1e20"], "--server.tau must be at most 1.8e+19, or inf"),
    "server lr": (["fedavg", "--server-lr", "0"], "--server-lr must be positive; got 0.0"),
    "negative mu": (["fedprox", "--parts.proximal.mu", "-1"], "--parts.proximal.mu must be at least 0"),
    "flag twice": (["fedavg", "--lr", "0.1", "--lr", "0.2"], "--lr must be given once; got '--lr 0.1' and '--lr 0.2'"),
    "alias twice": (["fedavg", "--lr=0.1", "--pace.lr", "0.2"], "--pace.lr must be given once"),
    "parts twice": (["fedavg", "--parts", "proximal", "--parts", "ldam"], "--parts must be given once"),
    "out twice": (["fedavg", "--out", "a", "--out=b"], "--out must be given once; got '--out a' and '--out b'"),
    "alpha": (["fedavg", "--alpha", "0.1"], "unknown option '--alpha'; did you mean '--partition.alpha'?"),
    "mu": (["fedprox", "--mu", "1"], "unknown option '--mu'; did you mean '--parts.proximal.mu'?"),
    "optimizer": (["fedavg", "--optimizer", "adam"], "did you mean '--local' or '--server'?"),
    "gamma of a part": (["fedavg", "--parts.unbalanced_softmax.gamma", "one"], "add --parts unbalanced_softmax, or"),
    "mu elsewhere": (["fedavg", "--mu", "1"], "--parts.proximal.mu with --parts proximal"),
    "one dash": (["fedavg", "-lr", "0.1"], "unknown option '-lr'; did you mean '--lr'?"),
    "no number": (["fedavg", "--rounds"], "--rounds must be followed by a value"),
    "no number before a flag": (["fedbal", "--weighting.beta", "--lr", "1"], "--weighting.beta must be followed"),
    "no name": (["fedavg", "--model"], "--model must be followed by a value"),
    "no folder": (["fedavg", "--out"], "--out must be followed by a value, a folder"),
    "no run": (["--from"], "--from must be followed by a value, a run folder or its config.json"),
}  # fmt: skip


MISSPELT = {
    "run": (["run", "fedavg", "--roundss"], "unknown option '--roundss'; did you mean '--rounds'?"),
    "report": (["report", "a", "--outt"], "unknown option '--outt' of fedskew report; did you mean '--out'?"),
    "show": (["show", "a", "--qqq", "1"], "it takes --metric, --ascii; see `fedskew show --help`"),
    "no command": (["--qqq"], "unknown option '--qqq'; options follow a command: see `fedskew COMMAND --help`"),
    "a group": (["study", "--qqq"], "see `fedskew study COMMAND --help`"),
    "compare": (["compare", "fedavg", "fedprox", "--sees"], "unknown option '--sees'; did you mean '--seeds'?"),
    "a second method": (["compare", "fedavg", "fedprox", "--parts.proximal.mu"], "mu must be followed by a value"),
}


def test_a_flag_of_the_method_of_another_run_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fedskew("run", "fedprox", *SMALL, "--out", tmp_path / "prox") == 0
    capsys.readouterr()
    said = mistake(capsys, "run", "--from", tmp_path / "prox", "--parts.proximal.mu")
    assert "--parts.proximal.mu must be followed by a value" in said


@pytest.mark.parametrize("case", MISSPELT)
def test_a_flag_that_ends_the_line_is_looked_up_before_its_value_is_missed(
    case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words, expected = MISSPELT[case]
    assert expected in mistake(capsys, *words)


@pytest.mark.parametrize("case", LINES)
def test_a_mistake_is_one_line(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words, expected = LINES[case]
    assert expected in mistake(capsys, "run", *words)
    assert not list(tmp_path.iterdir())


def test_a_device_that_is_not_there_can_be_overruled(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run of a GPU can be run again on a machine that has none."""
    file = as_format_1(run) / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "device": "cuda:99"}))
    assert "--device must be" in mistake(capsys, "run", "--from", run, "--out", run.parent / "b")
    assert fedskew("run", "--from", run, "--device", "cpu", "--out", run.parent / "b") == 0
