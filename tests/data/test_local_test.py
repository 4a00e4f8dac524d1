"""Rows that each client keeps for its own test: drawn by key, never trained on, carried by partition files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import fedskew as fs
from fedskew.data import load_partition, save_partition
from fedskew.data.federation import hold_out
from fedskew.data.partitioners import Partition
from fedskew.errors import ConfigError, DataError
from fedskew.records.folder import read
from support.command import fedskew, mistake, output_of, refused

ALPHA = fs.partitioners.Dirichlet(0.3)


def test_each_client_keeps_its_share_and_trains_on_the_rest() -> None:
    plain = fs.federate("digits", ALPHA, clients=12, seed=3)
    fed = fs.federate("digits", ALPHA, clients=12, seed=3, local_test=0.2)
    for k in range(12):
        train, test, own = fed.rows(k), fed.local_test_rows(k), plain.rows(k)
        assert np.array_equal(np.sort(np.concatenate([train, test])), own) and not set(train) & set(test)
        assert len(test) == min(int(0.2 * len(own) + 0.5), max(len(own) - 1, 0))
        assert np.all(np.diff(train) > 0) and np.all(np.diff(test) > 0)
    assert torch.equal(fed.counts, torch.from_numpy(fed.partition.counts(fed.dataset.y.numpy(), 10)))
    assert np.array_equal(fed.local_test_rows(), np.sort(np.concatenate([fed.local_test_rows(k) for k in range(12)])))
    assert fed.report()["local_test"] == 0.2 and fed.report()["local_test_rows"] == len(fed.local_test_rows())
    assert fed.report()["unused_rows"] == 0 and "local_test" not in plain.report()


def test_the_draw_is_keyed_by_seed_and_client() -> None:
    rows = Partition(np.arange(100), np.array([0, 50, 100]))
    (_, a), (_, b), (_, c) = (hold_out(rows, 0.2, seed) for seed in (0, 0, 1))
    assert np.array_equal(a.rows, b.rows) and not np.array_equal(a.rows, c.rows)
    assert not np.array_equal(a.of(0), a.of(1) - 50)
    alone = hold_out(Partition(np.arange(50), np.array([0, 50])), 0.2, 0)[1]
    assert np.array_equal(alone.of(0), a.of(0))  # whatever other clients there are


def test_a_client_with_rows_keeps_one_to_train_on() -> None:
    left, held = hold_out(Partition(np.arange(6), np.array([0, 1, 3, 3, 6])), 0.9, 0)
    assert left.sizes.tolist() == [1, 1, 0, 1] and held.sizes.tolist() == [0, 1, 0, 2]


@pytest.mark.parametrize("value", [-0.1, 1.0, "a", True])
def test_a_share_that_is_none_is_one_line(value: object) -> None:
    with pytest.raises(ConfigError, match=r"local_test must be a fraction in \[0, 1\)"):
        fs.federate("digits", ALPHA, clients=4, local_test=value)


def test_own_models_and_the_global_one_are_tested_on_the_rows_that_were_held_out(tmp_path: Path) -> None:
    fed = fs.federate("digits", ALPHA, clients=6, seed=1, local_test=0.25)
    result = fs.run(fed, fs.methods.perfedavg(), model="logistic", rounds=2, cohort=3, out=tmp_path / "a")
    row = result.rounds[-1]
    rows = fed.local_test_rows()
    predicted = result.predict(fed.dataset.x[rows])
    assert row["local_accuracy"] == pytest.approx(float((predicted == fed.dataset.y[rows]).double().mean()))
    assert sum(row["local_support"]) == len(rows) and sum(row["support"]) == len(fed.dataset.y_test)
    assert result.summary["final_local_accuracy"] == row["local_accuracy"]
    assert read(tmp_path / "a")[0]["local_test"] == 0.25
    plain = fs.run(
        fs.federate("digits", ALPHA, clients=6, seed=1), fs.methods.perfedavg(), model="logistic", rounds=2, cohort=3
    )
    assert row["personal_loss"] != plain.rounds[-1]["personal_loss"]


def test_own_models_see_no_row_of_their_test() -> None:
    """With wrong labels in every row that is held out, what clients learn stays the same."""
    fed = fs.federate("digits", ALPHA, clients=6, seed=1, local_test=0.25)
    from dataclasses import replace

    y = fed.dataset.y.clone()
    y[fed.local_test_rows()] = (y[fed.local_test_rows()] + 1) % 10
    other = replace(fed, dataset=replace(fed.dataset, y=y))
    one, two = (fs.run(f, fs.methods.pfedme(), model="logistic", rounds=2, cohort=3) for f in (fed, other))
    assert all(torch.equal(one.params[n], two.params[n]) for n in one.params)
    assert one.rounds[-1]["personal_accuracy"] != two.rounds[-1]["personal_accuracy"]


def test_a_partition_file_carries_the_local_test(tmp_path: Path) -> None:
    fed = fs.federate("digits", ALPHA, clients=6, seed=1, local_test=0.25)
    save_partition(tmp_path / "s.npz", fed)
    content = load_partition(tmp_path / "s.npz", fed.dataset)
    assert content.header["version"] == 2 and content.header["local_test"] == 0.25
    for asked in (0.0, 0.25):
        back = fs.federate("digits", tmp_path / "s.npz", seed=9, local_test=asked)
        assert back.local_test == 0.25 and all(np.array_equal(back.rows(k), fed.rows(k)) for k in range(6))
        assert all(np.array_equal(back.local_test_rows(k), fed.local_test_rows(k)) for k in range(6))
    with pytest.raises(ConfigError, match=r"local_test must be left out or be that of .*, 0.25; got 0.5"):
        fs.federate("digits", tmp_path / "s.npz", local_test=0.5)


def test_a_file_without_one_takes_a_local_test_of_the_seed(tmp_path: Path) -> None:
    save_partition(tmp_path / "s.npz", fs.federate("digits", ALPHA, clients=6, seed=1))
    assert load_partition(tmp_path / "s.npz").header["version"] == 1
    one, two = (fs.federate("digits", tmp_path / "s.npz", seed=s, local_test=0.25) for s in (1, 2))
    assert np.array_equal(
        one.local_test_rows(0), fs.federate("digits", ALPHA, clients=6, seed=1, local_test=0.25).local_test_rows(0)
    )
    assert not np.array_equal(one.local_test_rows(0), two.local_test_rows(0))


def test_a_file_whose_version_and_arrays_disagree_is_refused(tmp_path: Path) -> None:
    save_partition(tmp_path / "s.npz", fs.federate("digits", ALPHA, clients=6, seed=1, local_test=0.25))
    with np.load(tmp_path / "s.npz") as content:
        arrays = dict(content)
    header = json.loads(arrays["header"].tobytes())
    for change in ({"version": 1}, {"local_test": None}):
        arrays["header"] = np.frombuffer(json.dumps({**header, **change}).encode(), np.uint8)
        np.savez(tmp_path / "t.npz", **arrays)
        refused(lambda: load_partition(tmp_path / "t.npz"), "its header lacks 'local_test'", kind=DataError)


def test_the_command_divides_describes_and_repeats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--clients", 6, "--partition.alpha", 0.5, "--local-test", 0.2]
    said = " ".join(output_of(capsys, "describe", *words, "--out", tmp_path / "d.png").split())
    assert "6 clients, local test 0.2, seed 0" in said and "0.2 of each client's rows" in said
    assert "kept by clients for a test" in output_of(capsys, "partition", "make", *words, "--out", tmp_path / "s.npz")
    common = ["--cohort", 3, "--rounds", 2, "--model", "logistic"]
    assert "clients' own tests" in output_of(capsys, "run", "fedavg", *words, *common, "--out", tmp_path / "a")
    assert fedskew("run", "--from", tmp_path / "a", "--out", tmp_path / "b") == 0
    file = ["--partition", "file", "--partition.path", tmp_path / "s.npz"]
    assert fedskew("run", "fedavg", *file, *common, "--out", tmp_path / "c") == 0
    bits = [(tmp_path / run / "final.safetensors").read_bytes() for run in "abc"]
    assert bits[0] == bits[1] == bits[2] and read(tmp_path / "c")[0]["local_test"] == 0.2
    said = mistake(capsys, "run", "fedavg", *file, "--local-test", 0.4, "--out", tmp_path / "e")
    assert "--local-test must be left out or be that of" in said
    assert "--local-test must be in [0, 1)" in mistake(capsys, "run", "fedavg", "--local-test", 1)
