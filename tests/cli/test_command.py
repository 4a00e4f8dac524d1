"""The command: what it runs, what it writes, and the one line that every mistake gets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedskew.config import experiment as config
from fedskew.config.flags import experiment_from
from fedskew.methods import METHODS
from fedskew.records.folder import TIMES, read
from support.command import SMALL, fedskew, json_of, mistake, output_of, printed
from support.methods import MOST_HOOKS


def rows_without_times(folder: Path) -> list[dict]:
    return [{k: v for k, v in row.items() if k not in TIMES} for row in read(folder)[1]]


@pytest.mark.parametrize("method", MOST_HOOKS)
def test_every_method_runs_and_again_from_its_configuration(method: str, tmp_path: Path) -> None:
    assert fedskew("run", method, *SMALL, "--out", tmp_path / "a") == 0
    assert fedskew("run", "--from", tmp_path / "a/config.json", "--out", tmp_path / "b") == 0
    assert rows_without_times(tmp_path / "a") == rows_without_times(tmp_path / "b")
    assert (tmp_path / "a/final.safetensors").read_bytes() == (tmp_path / "b/final.safetensors").read_bytes()
    assert fedskew("run", method, *SMALL, "--seed", 1, "--out", tmp_path / "c") == 0
    assert rows_without_times(tmp_path / "a") != rows_without_times(tmp_path / "c")


def test_a_run_folder_is_complete(tmp_path: Path) -> None:
    assert "fedla: accuracy" in output_of("run", "fedla", *SMALL, "--validation", 0.1, "--out", tmp_path / "a")
    names = {p.name for p in (tmp_path / "a").iterdir()}
    files = {"config.json", "env.json", "rounds.jsonl", "summary.json", "final.safetensors", "model.json"}
    files |= {"manifest.json", "clients.jsonl"}
    assert names == {*files, "checkpoint", ".lock"}
    settings, rows, summary = read(tmp_path / "a")
    measured = "accuracy macro_f1 balanced_accuracy per_class_recall loss val_accuracy"
    counted = "round clients weights samples steps upload_bytes download_bytes"
    expected = {*measured.split(), *counted.split(), *TIMES}
    assert expected <= set(rows[0])
    assert {"final_accuracy", "best_accuracy", "mean10_accuracy", "mean50_accuracy"} <= set(summary)
    assert settings["method"]["weighting"]["name"] == "label_aware" and settings["engine_used"] == "batched"


def test_slots_parts_and_fields_from_the_command_line() -> None:
    words = (
        "scaffold --weighting aggregation_balancer --weighting.beta 2 --parts proximal,local_balancer --momentum 0.9 "
        "--parts.proximal.mu=0.5 --lr 0.05 --server-lr 0.5 --data.augment true"
    )
    e = experiment_from(words.split(" "))
    assert e.method.weighting.beta == 2 and [p.name for p in e.method.parts] == ["proximal", "local_balancer"]
    assert e.method.parts[0].mu == 0.5 and e.method.pace.lr == 0.05 and e.method.local.momentum == 0.9
    assert e.method.server.lr == 0.5 and e.data.augment is True
    nova = experiment_from(["fednova", "--weighting.base", "aggregation_balancer", "--weighting.base.beta", "1"])
    assert nova.method.weighting.base.beta == 1


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_configuration_goes_to_json_and_back(method: str, tmp_path: Path) -> None:
    e = experiment_from([method, "--lr", "0.07"])
    (tmp_path / "config.json").write_text(json.dumps(e.to_json()))
    assert config.load(tmp_path / "config.json") == e


@pytest.mark.parametrize("words", [["describe", "--clients", "4"], ["plot", "."]])
def test_a_pictures_suffix_is_refused_before_anything_is_printed(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert fedskew("run", "fedavg", "--rounds", "1", "--clients", "4", "--out", "r") == 0
    said = mistake(*words, "--out", "x.txt")
    assert said == "fedskew: --out must end in .png, .svg or .pdf; got 'x.txt'\n"


def test_a_loss_that_is_not_finite_names_client_round_and_step(tmp_path: Path) -> None:
    words = ["--lr", "1e38", "--epochs", 9, "--batch-size", 8, "--out", tmp_path / "a"]
    said = printed("run", "fedavg", *SMALL, *words, code=2).err.strip().splitlines()[-1]
    assert all(word in said for word in ("client", "round 1", "step", "learning rate")), said
    assert "TrainingError" in read(tmp_path / "a")[2]["stopped"]


def test_methods_as_json() -> None:
    rows = {r["name"]: r for r in json_of("methods")}
    assert set(rows) == set(METHODS)
    for row in rows.values():
        assert set(row["slots"]) == {"parts", "sampler", "selector", "pace", "weighting", "server", "local"}
        assert row["reference"] and row["summary"]
    assert rows["fedla"]["reads"] == ["histogram (sum)"] and rows["fedla"]["suffices"] == "sum"
    assert rows["fedpals"]["suffices"] == "histogram" and rows["feddyn"]["suffices"] == "nothing"
    assert rows["scaffold"]["extra_upload"] == ["P"] == rows["scaffold"]["extra_download"]


def test_no_traceback_reaches_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault() -> None:
        raise ValueError("inside")

    monkeypatch.setattr("fedskew.catalogue.listing.catalogue", fault)
    monkeypatch.delenv("FEDSKEW_DEBUG", raising=False)
    said = printed("methods", code=1).err
    assert said.count("\n") == 1 and "a fault of fedskew itself, ValueError: inside" in said


def test_a_configuration_of_other_data_is_refused(tmp_path: Path) -> None:
    assert fedskew("run", "fedavg", *SMALL, "--out", tmp_path / "a") == 0
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads((tmp_path / "a/config.json").read_text()), "fingerprint": "00"}))
    assert "fingerprint was 00" in printed("run", "--from", path, "--out", tmp_path / "b", code=2).err


def test_options_that_a_method_does_not_read_are_noted(tmp_path: Path) -> None:
    unused = ["--auxiliary", "2", "--eval.personal", "1"]
    said = printed("run", "fedavg", *SMALL, *unused, "--out", tmp_path / "a").err
    notes = [line for line in said.splitlines() if "note" in line]
    assert len(notes) == 2 and "--auxiliary 2: fedavg does not read them" in notes[0]
    assert "--eval.personal 1: fedavg has no models of the clients' own" in notes[1]
    assert "note" not in printed("run", "fedrl", *SMALL, "--auxiliary", 2, "--out", tmp_path / "b").err
    assert "note" not in printed("run", "perfedavg", *SMALL, "--eval.personal", 1, "--out", tmp_path / "c").err
