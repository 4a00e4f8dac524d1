"""Clients that never train: they have no rows in the federation that trains, and models are evaluated on theirs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import fedskew as fs
from fedskew import functional
from fedskew.config.flags import experiment_from
from fedskew.data import save_partition
from fedskew.engines import LocalEngine
from fedskew.errors import TrainingError
from fedskew.methods import METHODS
from fedskew.studies.clients import by_client
from support.command import fedskew, refused
from support.federations import small_digits
from support.runs import measured as go
from support.runs import rows_of, same


def parted(fraction: float = 0.3, seed: int = 1, **options: float) -> fs.Federation:
    return fs.federate(
        small_digits(), fs.partitioners.Dirichlet(alpha=0.5), clients=8, seed=seed, heldout_clients=fraction, **options
    )


@pytest.mark.parametrize("local_test", [0.0, 0.25])
def test_their_rows_leave_the_federation_and_nobody_elses(local_test: float) -> None:
    whole = fs.federate(small_digits(), fs.partitioners.Dirichlet(alpha=0.5), clients=8, seed=1, local_test=local_test)
    fed = parted(local_test=local_test)
    assert fed.unseen is not None and fed.heldout_clients == 0.3
    out = [k for k in range(8) if len(fed.unseen.rows(k))]
    assert len(out) == int(0.3 * (8 - len(whole.empty)) + 0.5)
    for k in range(8):
        mine, other = (fed.unseen, fed) if k in out else (fed, fed.unseen)
        assert np.array_equal(mine.rows(k), whole.rows(k)) and not len(other.rows(k))
        assert torch.equal(mine.counts[k], whole.counts[k]) and not other.counts[k].any()
        assert np.array_equal(mine.local_test_rows(k), whole.local_test_rows(k)) and not len(other.local_test_rows(k))
    assert fed.report()["heldout_clients_rows"] == sum(len(whole.rows(k)) + len(whole.local_test_rows(k)) for k in out)
    assert fed.report()["unused_rows"] == whole.report()["unused_rows"]


def test_the_seed_of_the_partition_draws_them_and_somebody_always_trains() -> None:
    def out(seed: int) -> list[int]:
        unseen = parted(seed=seed).unseen
        assert unseen is not None
        return torch.nonzero(unseen.sizes).flatten().tolist()

    assert out(1) == out(1) and len({tuple(out(s)) for s in range(6)}) > 1
    assert len(parted(0.99).sizes.nonzero()) == 1
    assert len(parted(0.001).unseen.sizes.nonzero()) == 1  # type: ignore[union-attr]
    refused(lambda: parted(1.0), "heldout_clients must be a fraction in [0, 1)")
    alone = fs.partitioners.Iid()
    refused(lambda: fs.federate(small_digits(), alone, clients=1, heldout_clients=0.5), "heldout_clients must be 0")


@pytest.mark.parametrize("name", ["fedavg", "seolkim", "powerofchoice", "fedrep", "ditto", "creff"])
def test_they_never_train_and_are_evaluated(name: str) -> None:
    fed = parted()
    assert fed.unseen is not None
    out = set(torch.nonzero(fed.unseen.sizes).flatten().tolist())
    result = go(fed, METHODS[name](), rounds=3, cohort=4, personal_every=1)
    assert not out & {k for row in result.rounds for c in row["clients"] for k in (c if isinstance(c, list) else [c])}
    last = result.rounds[-1]
    assert 0 <= last["heldout_accuracy"] <= 1 and last["heldout_loss"] > 0
    assert ("heldout_personal_accuracy" in last) == METHODS[name]().personal
    rows = np.sort(fed.unseen.partition.rows)
    right = result.predict(fed.dataset.x[rows]) == fed.dataset.y[rows]
    assert last["heldout_accuracy"] == pytest.approx(float(right.double().mean()), abs=1e-12)


@pytest.mark.parametrize("name", ["fedavg", "ditto", "perfedavg"])
def test_each_has_a_row_after_those_that_train(name: str, tmp_path: Path) -> None:
    fed, options = parted(local_test=0.25), {"rounds": 2, "cohort": 4, "clients_every": 1}
    done = go(fed, METHODS[name](), **options, out=tmp_path / "run")
    bare = go(replace(fed, unseen=None, heldout_clients=None), METHODS[name](), **options)
    assert fed.unseen is not None and fs.read_clients(tmp_path / "run") == done.client_rows
    assert [row for row in done.client_rows if "heldout" not in row] == bare.client_rows
    last = [row for row in done.client_rows if row["round"] == 2]
    assert [row.get("heldout", False) for row in last] == sorted("heldout" in row for row in last)
    theirs = [row for row in last if "heldout" in row]
    assert [row["rows"] for row in theirs] == [n for k in range(8) if (n := len(fed.unseen.local_test_rows(k)))]
    for metric in ("accuracy", "loss"):
        whole = sum(row[metric] * row["rows"] for row in theirs) / sum(row["rows"] for row in theirs)
        assert whole == pytest.approx(done.summary[f"final_heldout_served_{metric}"], rel=1e-9)
    found = by_client([(name, "all", done.client_rows)])
    assert {one.client for one in found if one.client.endswith(" (held out)")} == {
        f"{row['name']} (held out)" for row in theirs
    }
    assert all(one.low < one.accuracy < one.high for one in found if 0 < one.accuracy < 1)


@pytest.mark.parametrize(
    "name", ["fedper", "fedrod", "ditto", "apfl", "ifca", "fedamp", "pfedme", "fedbabu", "fedgc", "fedloge"]
)
def test_they_make_one_local_run_that_the_server_never_sees(name: str) -> None:
    fed = parted(local_test=0.25)
    settings = {"cohort": 4, "personal_every": 2, "dtype": "float64"}
    ways = [go(fed, METHODS[name](), rounds=2, engine=e, **settings) for e in ("sequential", "threaded", "batched")]
    last = [way.rounds[-1] for way in ways]
    assert last[0]["heldout_personal_loss"] == last[1]["heldout_personal_loss"]
    assert last[2]["heldout_personal_loss"] == pytest.approx(last[0]["heldout_personal_loss"], rel=1e-7)
    bare = go(
        replace(fed, unseen=None, heldout_clients=None), METHODS[name](), rounds=2, engine="sequential", **settings
    )
    assert same(ways[0].params, bare.params)


@pytest.mark.parametrize("name", ["fedavg", "fedbabu"])
def test_the_command_records_repeats_and_resumes_it(name: str, tmp_path: Path) -> None:
    words = ["run", name, "--clients", 6, "--cohort", 3, "--rounds", 2, "--heldout-clients", 0.3]
    assert fedskew(*words, "--out", tmp_path / "a") == 0
    assert json.loads((tmp_path / "a" / "config.json").read_text())["heldout_clients"] == 0.3
    assert fedskew("run", "--from", tmp_path / "a", "--out", tmp_path / "b") == 0
    first, again = ([json.loads(s) for s in (tmp_path / n / "rounds.jsonl").read_text().splitlines()] for n in "ab")
    assert rows_of(first) == rows_of(again) and "heldout_accuracy" in first[-1]
    assert ("heldout_personal_accuracy" in first[-1]) == (name == "fedbabu")
    assert fedskew("run", "--resume", tmp_path / "a", "--rounds", 3) == 0


def test_a_partition_file_does_not_hold_them(tmp_path: Path) -> None:
    refused(lambda: save_partition(tmp_path / "a.npz", parted()), "heldout_clients must be 0 in a partition file")


def test_the_n_of_the_equations_is_that_of_the_clients_that_may_train(monkeypatch: pytest.MonkeyPatch) -> None:
    fed, seen, known = parted(), [], functional.feddyn_server_state
    stay = int((fed.sizes > 0).sum())
    whole, part = METHODS["scaffold"](), METHODS["scaffold"]().with_("control_variate", spread="cohort")
    ends = [go(fed, m, rounds=3, cohort=stay, engine="sequential") for m in (whole, part)]
    assert same(ends[0].params, ends[1].params)  # all of them take part: N is the size of the cohort

    def spied(h: Any, delta: Any, alpha: float, m: int, n: int) -> Any:
        seen.append((m, n))
        return known(h, delta, alpha, m, n)

    monkeypatch.setattr(functional, "feddyn_server_state", spied)
    go(fed, METHODS["feddyn"](), rounds=2, cohort=3)
    assert {*seen} == {(3, stay)} and stay < fed.clients


def test_a_share_is_one_of_the_clients_that_may_train() -> None:
    fed = fs.federate(small_digits(), fs.partitioners.Iid(), clients=10, seed=0, heldout_clients=0.5)
    half = replace(METHODS["fedavg"](), share=0.4)
    assert len(go(fed, half, rounds=1, cohort=None).rounds[0]["clients"]) == 2
    words = ["fedbal", "--preset", "authors", "--clients", "10", "--heldout-clients", "0.5", "--rounds", "1"]
    experiment = experiment_from([*words, "--model", "logistic"])
    share = experiment.method.share
    assert share and len(experiment.run().rounds[0]["clients"]) == max(1, round(share * 5)) != round(share * 10)


def test_one_that_diverges_is_left_out_or_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = parted()
    assert fed.unseen is not None
    first, *others = torch.nonzero(fed.unseen.sizes).flatten().tolist()
    probes, asked = LocalEngine.probes, []

    def failing(engine: Any, method: Any, places: Any) -> Any:
        asked.append([place.plan.client for place in places])
        if first in asked[-1]:
            raise TrainingError("client diverged", (SimpleNamespace(client=first),))
        return probes(engine, method, places)

    monkeypatch.setattr(LocalEngine, "probes", failing)
    last = go(fed, METHODS["fedper"](), rounds=1, cohort=4, nonfinite="drop").rounds[-1]
    assert "heldout_personal_loss" in last and asked == [[first, *others], others]
    with pytest.raises(TrainingError, match="evaluation of held-out clients: client diverged"):
        go(fed, METHODS["fedper"](), rounds=1, cohort=4)
