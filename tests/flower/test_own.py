"""A client's own model stays at its node, where the node's operator takes it out."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedskew as fs
from fedskew.data import from_table
from fedskew.data.inputs import Inputs
from fedskew.flower.link import Link
from fedskew.flower.memory import OWN
from fedskew.flower.rows import inputs_text
from fedskew.flower.wire import pack
from fedskew.records.files import load_tree, save_tree
from fedskew.records.folder import troubles
from support.command import fedskew
from support.flower_grid import alone, config, heard, served

pytestmark = pytest.mark.flower


def taken(tmp_path: Path, k: int, out: str = "own") -> Any:
    """The own model of client k, by the node's command."""
    folder = tmp_path / "state" / "run" / f"client-{k}"
    assert fedskew("flower", "own", folder, "--out", tmp_path / f"{out}-{k}") == 0
    assert troubles(tmp_path / f"{out}-{k}")[1] == []
    return fs.load_model(tmp_path / f"{out}-{k}")


def simulated(tmp_path: Path, content: dict[str, Any]) -> Path:
    folder = tmp_path / f"simulated-{content['rounds']}"
    alone(content, folder, **{"keep-own": True})
    return folder


@pytest.mark.parametrize("method", ["ditto", "fedper", "fedbabu", "perfedavg"])
def test_it_has_the_bytes_of_the_simulated_runs(method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "flwr")
    content = config(tmp_path, method, model="resnet20" if method == "ditto" else "mlp", keep_own=True, rounds=2)
    told: list[Any] = []
    found = served(tmp_path, content, nodes={1: {"allow": "none"}}, lie=heard(told))
    assert not (found.folder / "own.safetensors").exists()
    said = [answer for answer in told if answer.facts["kind"] == "own"]
    assert len(said) == 4
    assert all(not set(one.facts) - {"kind", "session", "turn", "client"} and not one.trees for one in said)
    expected = simulated(tmp_path, content)
    for k in range(4):
        mine, other = taken(tmp_path, k), fs.load_model(expected, client=k)
        assert mine.label_names == other.label_names and mine.params.keys() == other.params.keys()
        for one, two in ((mine.params, other.params), (mine.buffers, other.buffers)):
            assert all(torch.equal(one[name], two[name]) for name in two)
        assert f"`fedskew flower own {tmp_path / 'state' / 'run' / f'client-{k}'} --out FOLDER`" in caplog.text


def test_a_run_that_goes_on_keeps_it_anew_and_a_finished_one_later(tmp_path: Path) -> None:
    content = config(tmp_path, "ditto", rounds=2)
    served(tmp_path, content)
    folder = tmp_path / "state" / "run" / "client-0"
    assert fedskew("flower", "own", folder, "--out", tmp_path / "own") == 2 and not (tmp_path / "own").exists()
    for rounds in (2, 4):
        served(tmp_path, {**content, "keep-own": True, "rounds": rounds})
        mine = taken(tmp_path, 0, f"after-{rounds}")
        other = fs.load_model(simulated(tmp_path, {**content, "rounds": rounds}), client=0)
        assert all(torch.equal(mine.params[name], other.params[name]) for name in other.params)
    assert served(tmp_path, {**content, "rounds": 4}) is None


def test_a_method_without_own_models_keeps_none(tmp_path: Path) -> None:
    served(tmp_path, config(tmp_path, keep_own=True))
    assert not list((tmp_path / "state").rglob(OWN))


def test_it_is_evaluated_on_the_nodes_rows(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    draw = np.random.default_rng(0)
    age, sex = draw.normal(50, 10, 90), draw.choice(["f", "m"], 90)
    label = np.where(age + 10 * (sex == "m") + draw.normal(0, 5, 90) > 55, "ill", "well")
    data = from_table({"age": age, "sex": sex, "label": label}, categories="sex")
    (tmp_path / "inputs.json").write_text(inputs_text(Inputs.of(data), ()))
    for k in range(3):
        lines = [f"{a},{s},{y}" for a, s, y in zip(age[k::3], sex[k::3], label[k::3], strict=True)]
        (tmp_path / f"{k}.csv").write_text("\n".join(["age,sex,label", *lines]))
    content = {
        "method": "ditto", "clients": 3, "cohort": 3, "rounds": 2, "model": "logistic", "keep-own": True,
        "flower.out": str(tmp_path / "run"), "flower.own-data": True, "flower.poll-s": 0.01,
    }  # fmt: skip
    nodes = {k: {"data": str(tmp_path / f"{k}.csv"), "local-test": 0.2} for k in range(3)}
    served(tmp_path, content, nodes=nodes, app=tmp_path)
    model = taken(tmp_path, 2)
    assert "own model of client 2 after round 2: " in (said := capfd.readouterr().out) and said.count("\n") == 1
    words = ("evaluate", tmp_path / "own-2", "--data", "csv", "--path", tmp_path / "2.csv")
    assert fedskew(*words) == 0
    right = model.predict({"age": age[2::3], "sex": sex[2::3]}) == model.inputs.labels(label[2::3])
    told = capfd.readouterr()
    assert f"30 rows, accuracy {float(right.double().mean()):.4f}" in told.out and not told.err
    assert fedskew("show", tmp_path / "own-2") == 0
    assert fedskew("evaluate", tmp_path / "own-2") == 2
    assert fedskew("flower", "own", tmp_path / "state" / "run" / "client-2", "--out", tmp_path / "own-2") == 2
    assert "out must be a folder without a run" in capfd.readouterr().err


def test_a_server_cannot_make_a_node_keep_another_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = config(tmp_path, "ditto", rounds=1, keep_own=True)
    plain, seen = Link.ask, []

    def ask(link: Any, requests: Any) -> Any:
        if requests and requests[0].facts["kind"] == "own":
            more = pack({"shared": {"params": {"weight": torch.zeros(2)}, "buffers": {}, "common": {},
                                    "round": torch.tensor(2)}})  # fmt: skip
            requests = [one._replace(parts={**one.parts, "shared": more}) for one in requests]
            seen.append(len(requests))
        return plain(link, requests)

    monkeypatch.setattr(Link, "ask", ask)
    served(tmp_path, content)
    assert seen == [4] and not list((tmp_path / "state").rglob(OWN))


def test_a_file_that_is_no_own_model_is_one_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for content, facts in (({"model": {"w": torch.zeros(1)}}, {}), ({}, {"config": {"own_model": {}}, "model": 3})):
        save_tree(tmp_path / OWN, content, facts)
        assert load_tree(tmp_path / OWN)[1] == facts
        assert fedskew("flower", "own", tmp_path, "--out", tmp_path / "out") == 2
        assert "is not what a node keeps" in capfd.readouterr().err
    (tmp_path / OWN).write_bytes(b"no tensors")
    assert fedskew("flower", "own", tmp_path, "--out", tmp_path / "out") == 2
    assert "is damaged" in capfd.readouterr().err and not (tmp_path / "out").exists()
