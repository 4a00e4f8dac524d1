"""Diagnostics: checked by hand on tiny federations, no effect on a run, kept by resuming, drawn from the record."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fedskew as fs
from fedskew.config import experiment as config
from fedskew.config.flags import experiment_from
from fedskew.errors import ConfigError
from fedskew.method.paces import Fixed
from fedskew.records import diagnostics
from fedskew.records import folder as records
from fedskew.records.diagnostics import DIAGNOSTICS, Diagnostics, RoundSnapshot
from fedskew.types import Cohort, Params, Report, Task, Weights
from support.command import mistake
from support.federations import blobs, skewed
from support.methods import FixedCohort, each, spied, tiny
from support.nets import norm_net
from support.resuming import stop_after
from support.runs import go, rows_of, same

ALL = tuple(DIAGNOSTICS)
UNWRITTEN = tuple(name for name in ALL if name != "features")  # these need no run folder


def fedavg() -> fs.Method:
    return replace(fs.methods.fedavg(), pace=Fixed(epochs=1, lr=0.1, batch_size=4))


def told(result: fs.Result, name: str, number: int = -1) -> Any:
    return result.rounds[number]["diagnostics"][name]


def a_moment(deltas: Params, weights: list[float], before: Params, after: Params) -> RoundSnapshot:
    """A round of two clients, of which only what parameters say is real."""
    k = len(weights)
    used = torch.tensor([[4, 0, 0], [1, 3, 0]])
    zeros = torch.zeros(k)
    chains = torch.arange(k).unsqueeze(1)
    task = Task("fc", 3, 2, 5, 1)
    cohort = Cohort(
        task, chains[:, 0], used * 2, used, used, Report(zeros, zeros, zeros, zeros, zeros), before, 1, chains, {}
    )

    def nothing(*_: Any) -> Any:
        raise AssertionError("no model is asked")

    return RoundSnapshot(
        1, cohort, Weights(torch.tensor(weights), torch.tensor(weights)), before, after, after, {}, {}, {},
        torch.ones(3), deltas, nothing, nothing, torch.zeros(1), nothing,
    )  # fmt: skip


def vectors(*values: list[float]) -> Tensor:
    return torch.tensor(values)


# Values, by hand


def test_drift_of_two_updates_at_a_right_angle() -> None:
    moment = a_moment({"w": vectors([3.0, 0.0], [0.0, 4.0])}, [0.5, 0.5], {"w": torch.zeros(2)}, {"w": torch.ones(2)})
    row = diagnostics.DIAGNOSTICS["drift"](moment, ())
    assert row["norms"] == [3.0, 4.0]
    assert row["update"] == pytest.approx(2.5)  # ||(1.5, 2)||
    assert row["cancellation"] == pytest.approx(1 - 2.5 / 3.5)
    assert row["spread"] == pytest.approx(2.5)  # both are (1.5, -2) from the mean, up to the sign
    assert row["cosine"] == pytest.approx(0.0)
    assert row["server"] == pytest.approx(2**0.5)


def test_cancellation_runs_from_agreement_to_opposition_and_is_null_where_nobody_moves() -> None:
    def drift(first: list[float], second: list[float]) -> Any:
        still = {"w": torch.zeros(2)}
        return diagnostics.drift(a_moment({"w": vectors(first, second)}, [0.5, 0.5], still, still), ())

    assert drift([3.0, 0.0], [3.0, 0.0])["cancellation"] == pytest.approx(0.0)
    assert drift([3.0, 0.0], [-3.0, 0.0])["cancellation"] == pytest.approx(1.0)
    row = drift([0.0, 0.0], [0.0, 0.0])
    assert row["cancellation"] is None and row["cosine"] is None and row["norms"] == [0.0, 0.0]
    json.dumps(row, allow_nan=False)


def test_cosine_goes_layer_by_layer() -> None:
    before = {"a.weight": torch.tensor([[1.0, 0.0]]), "a.bias": torch.zeros(1), "fc.weight": torch.tensor([[1.0, 0.0]])}
    after = {"a.weight": torch.tensor([[1.0, 0.0]]), "a.bias": torch.ones(1), "fc.weight": torch.tensor([[0.0, 2.0]])}
    deltas = {
        "a.weight": torch.zeros(2, 1, 2),
        "a.bias": torch.zeros(2, 1),
        "fc.weight": torch.tensor([[[0.0, 0.0]], [[-2.0, 0.0]]]),
    }
    row = diagnostics.cosine(a_moment(deltas, [0.5, 0.5], before, after), ())
    assert row["layers"] == ["a", "fc"]
    assert row["global"] == pytest.approx([2**-0.5, 0.0])  # weight and bias of a layer are one vector
    assert row["local"]["mean"] == pytest.approx([1.0, 0.0])
    assert row["local"]["min"] == pytest.approx([1.0, -1.0]) and row["local"]["max"] == pytest.approx([1.0, 1.0])


def test_coverage_counts_classes_used() -> None:
    row = diagnostics.coverage(a_moment({}, [0.5, 0.5], {}, {}), ())
    assert row["classes"] == 2 and row["share"] == pytest.approx(2 / 3) and row["each"] == [1, 2]
    assert row["used"] == [5, 3, 0] and row["owned"] == [10, 6, 0]
    p = torch.tensor([5 / 8, 3 / 8])
    assert row["kl"] == pytest.approx(float((p * (3 * p).log()).sum()))
    each = [math.log(3), math.log(3) + 0.25 * math.log(0.25) + 0.75 * math.log(0.75)]  # of the two clients
    assert row["kl_clients"] == pytest.approx(sum(each) / 2)


def test_rows_for_features_are_spread_over_the_classes() -> None:
    labels = torch.tensor([0] * 10 + [1] * 2 + [2] * 10)
    assert diagnostics.spread_rows(labels, 9).tolist() == [0, 1, 2, 10, 11, 12, 13, 14]
    assert diagnostics.spread_rows(labels, 1000).tolist() == list(range(22))


# Values, against a run of which everything is known


def test_local_models_are_those_that_were_trained() -> None:
    """One client a round under uniform weights: its model after training *is* the next global model."""
    fed = blobs([[8, 0, 2], [3, 3, 3]])
    method = replace(fedavg(), selector=each(0))
    result = go(
        fed, method, cohort=1, diagnose=Diagnostics(("per_class", "asymmetry", "drift", "cosine"), clients=(0, 1))
    )
    row = result.rounds[-1]
    found = row["diagnostics"]["per_class"]
    assert list(found["clients"]) == ["0"]  # client 1 did not take part
    assert found["clients"]["0"] == found["after"] == row["per_class_recall"]
    assert found["before"] == result.rounds[0]["per_class_recall"]
    assert found["owned"] == {"0": [8, 0, 2]}
    skew = row["diagnostics"]["asymmetry"]
    assert skew["clients"]["0"]["each"] == pytest.approx(skew["each"])
    assert skew["ratio"] == pytest.approx(max(skew["each"]) / min(skew["each"]))
    assert skew["train_counts"] == [11, 3, 5]
    assert row["diagnostics"]["drift"]["cancellation"] == pytest.approx(0.0, abs=1e-12)
    layer = row["diagnostics"]["cosine"]
    assert layer["local"]["mean"] == pytest.approx(layer["global"], abs=1e-9)


def test_means_are_over_the_local_models_of_the_whole_cohort() -> None:
    """FedGA's figures 5 and 6 show the mean over a round's ten clients: not the global model, not three of them."""
    fed = blobs([[8, 1, 1], [1, 8, 1], [1, 1, 8], [4, 4, 1], [1, 4, 4]])
    method, names = replace(fedavg(), selector=each(0, 1, 2, 3, 4)), ("asymmetry", "per_class")
    row = go(fed, method, cohort=5, diagnose=names).rounds[-1]["diagnostics"]
    named = go(fed, method, cohort=5, diagnose=Diagnostics(names, clients=(0, 1, 2, 3, 4))).rounds[-1]["diagnostics"]
    own = list(named["asymmetry"]["clients"].values())
    assert len(row["asymmetry"]["clients"]) == 3 and len(own) == 5
    found = row["asymmetry"]["local"]
    assert found["models"] == row["per_class"]["models"] == 5
    assert found["ratio"] == pytest.approx(sum(c["ratio"] for c in own) / 5)
    assert found["each"] == pytest.approx([sum(c["each"][i] for c in own) / 5 for i in range(3)])
    assert abs(found["ratio"] - row["asymmetry"]["ratio"]) > 0.1
    recall = named["per_class"]["clients"].values()
    assert row["per_class"]["local"] == pytest.approx([sum(r[i] for r in recall) / 5 for i in range(3)])
    assert named["asymmetry"]["local"] == found


def test_means_are_over_the_named_clients_that_took_part() -> None:
    fed = blobs([[8, 1, 1], [1, 8, 1], [1, 1, 8]])
    method = replace(fedavg(), selector=each(0, 1))
    row = go(fed, method, cohort=2, diagnose=Diagnostics(("asymmetry",), clients=(1, 2))).rounds[-1]
    found = row["diagnostics"]["asymmetry"]
    assert list(found["clients"]) == ["1"] and found["local"] == {**found["clients"]["1"], "models": 1}
    nobody = go(fed, method, cohort=2, diagnose=Diagnostics(("asymmetry", "per_class"), clients=(2,))).rounds[-1]
    assert nobody["diagnostics"]["asymmetry"]["local"] == {"each": [], "ratio": None, "models": 0}
    assert nobody["diagnostics"]["per_class"]["local"] == []


def test_drift_is_that_of_the_stacked_deltas() -> None:
    method, seen = spied(tiny("fedavg"))
    result = go(skewed(), method, diagnose=("drift",))
    deltas = torch.cat([d.flatten(1) for d in seen[-1].deltas.values()], 1)  # type: ignore[union-attr]
    assert told(result, "drift")["norms"] == pytest.approx(deltas.norm(dim=1).tolist())
    whole = float((seen[-1].weights.update.double() @ deltas).norm())  # type: ignore[union-attr]
    assert told(result, "drift")["update"] == pytest.approx(whole)


def test_asymmetry_of_a_binary_classifier_is_that_of_its_sigmoid() -> None:
    fed = blobs([[30, 6], [20, 4]])
    result = go(fed, fedavg(), cohort=2, diagnose=("asymmetry",))
    y, weight = fed.dataset.y_test, result.params
    name = result.task.weight
    x = fed.dataset.x_test  # blobs have no mean and std to subtract
    logits = x.flatten(1).double() @ weight[name].T + weight[result.task.bias]
    p = torch.sigmoid(logits[:, 1] - logits[:, 0])
    expected = (1 - p[y == 1].mean()) / p[y == 0].mean()
    assert told(result, "asymmetry")["each"][1] == pytest.approx(float(expected), rel=1e-5)


def test_oversampling_shows_rows_before_and_after() -> None:
    fed = blobs([[20, 2, 0], [2, 20, 0], [5, 5, 12]])
    result = go(fed, tiny("seolkim"), diagnose=Diagnostics(("oversampling",), clients=(0, 1, 2)))
    rows = [row["diagnostics"]["oversampling"] for row in result.rounds]
    first = next(iter(rows[0].values()))
    k = int(next(iter(rows[0])))
    assert first["owned"] == fed.counts[k].tolist()
    t = -(-sum(first["owned"]) // 3)  # the mean over classes, rounded up: delta is small in round 1
    assert first["offered"] == [n if n == 0 else max(n, t) for n in first["owned"]]
    assert all(u <= o for u, o in zip(first["used"], first["offered"], strict=True))


def test_features_are_written_beside_the_rounds(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    fed = skewed()
    result = go(fed, tiny("fedavg"), diagnose=("features",), out=tmp_path / "run", model="mlp")
    row = told(result, "features")
    found = load_file(tmp_path / "run" / row["file"])
    assert found["features"].shape == (row["rows"], row["features"]) == (40, result.task.features)
    y = fed.dataset.y_test
    assert torch.equal(found["labels"], y)
    weight, bias = result.params[result.task.weight], result.params[result.task.bias]
    predicted = (found["features"].double() @ weight.T + bias).argmax(1)
    assert torch.equal(predicted, found["predictions"])
    accuracy = float((predicted == y).double().mean())
    assert accuracy == pytest.approx(result.rounds[-1]["accuracy"])


# No effect


@pytest.mark.parametrize("engine", ["sequential", "threaded", "batched"])
@pytest.mark.parametrize("name", ["fedbal", "scaffold", "astraea"])
def test_a_diagnosed_run_is_the_same_to_the_bit(name: str, engine: str) -> None:
    fed, method = skewed(), tiny(name)
    options = {"engine": engine, "model": "mlp", "dtype": "float32", "threads": 2, "cohort": 4}
    plain = go(fed, method, **options)
    watched = go(fed, method, **options, diagnose=UNWRITTEN)
    assert same(plain.params, watched.params) and same(plain.buffers, watched.buffers)
    rows = rows_of(watched)
    assert all(set(row.pop("diagnostics")) == set(UNWRITTEN) for row in rows)
    assert rows == rows_of(plain)


def test_batch_norm_statistics_of_local_models_are_their_own() -> None:
    fed, method = skewed(), replace(tiny("fedavg"), selector=each(0))
    plain = go(fed, method, model=norm_net(), head="4", cohort=1)
    watched = go(fed, method, model=norm_net(), head="4", cohort=1, diagnose=("per_class",))
    assert same(plain.params, watched.params) and same(plain.buffers, watched.buffers)
    found = told(watched, "per_class")
    assert next(iter(found["clients"].values())) == found["after"]


def test_a_chain_counts_as_one_client() -> None:
    method = replace(tiny("astraea"), selector=FixedCohort(((0, 1), (2, 3))))
    result = go(skewed(), method, cohort=4, diagnose=Diagnostics(("drift", "per_class", "coverage"), clients=(1, 2)))
    assert len(told(result, "drift")["norms"]) == 2
    assert list(told(result, "per_class")["clients"]) == ["1", "2"]


def test_rounds_between_diagnoses() -> None:
    result = go(skewed(), tiny("fedavg"), rounds=5, diagnose=Diagnostics(("coverage",), every=2))
    assert [row["round"] for row in result.rounds if "diagnostics" in row] == [2, 4, 5]


def test_a_record_holds_no_nan(tmp_path: Path) -> None:
    """Classes without test rows, and clients that stand still, are null."""
    fed = skewed()
    dataset = replace(fed.dataset, x_test=fed.dataset.x_test[:3], y_test=fed.dataset.y_test[:3])
    go(replace(fed, dataset=dataset), tiny("fedavg"), diagnose=ALL, out=tmp_path / "run")
    for line in (tmp_path / "run/rounds.jsonl").read_text().splitlines():
        json.dumps(json.loads(line)["diagnostics"], allow_nan=False)


# Records


def test_resuming_keeps_the_diagnostics(tmp_path: Path) -> None:
    options = {"rounds": 4, "checkpoint_every": 2, "diagnose": Diagnostics(ALL, clients=(0, 1, 2))}
    whole = go(skewed(), tiny("scaffold"), out=tmp_path / "whole", **options)
    go(skewed(), tiny("scaffold"), out=tmp_path / "parted", on_round=stop_after(3), **options)
    resumed = go(skewed(), tiny("scaffold"), out=tmp_path / "parted", resume=True, **options)
    assert rows_of(resumed) == rows_of(whole)
    read = [records.read(tmp_path / folder)[1] for folder in ("whole", "parted")]
    assert rows_of(read[0]) == rows_of(read[1])
    files = [sorted((tmp_path / folder / "features").iterdir()) for folder in ("whole", "parted")]
    assert [f.name for f in files[0]] == [f.name for f in files[1]] and len(files[0]) == 4
    assert all(a.read_bytes() == b.read_bytes() for a, b in zip(*files, strict=True))


def test_a_configuration_file_says_what_is_diagnosed(tmp_path: Path) -> None:
    words = ["fedavg", "--diagnose", "drift,cosine", "--diagnose.clients", "0,3", "--diagnose.every", "5"]
    experiment = experiment_from(words)
    assert experiment.diagnose == Diagnostics(("drift", "cosine"), (0, 3), 5)
    (tmp_path / "config.json").write_text(json.dumps(experiment.to_json()))
    assert config.load(tmp_path / "config.json") == experiment
    assert experiment_from(["--from", str(tmp_path / "config.json"), "--diagnose.every", "2"]).diagnose.every == 2


# Mistakes


def test_mistakes_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for words, told in {
        ("drfit",): "unknown diagnostic 'drfit'; did you mean 'drift'?",
        ("drift,drift",): "--diagnose must name a diagnostic once; got ('drift', 'drift')",
        ("drift", "--diagnose.every", "0"): "--diagnose.every must be at least 1; got 0",
        ("drift", "--diagnose.clients", "a"): "--diagnose.clients must be a whole number; got 'a'",
        ("drift", "--diagnose.clients=-1"): "--diagnose.clients must be at least 0; got (-1,)",
    }.items():
        assert told in mistake(capsys, "run", "fedavg", "--diagnose", *words)


def test_a_run_from_python_tells_mistakes_before_it_trains(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Diagnostics.clients must be below the number of clients, 6; got \(9,\)"):
        go(skewed(), tiny("fedavg"), diagnose=Diagnostics(("per_class",), clients=(9,)))
    with pytest.raises(ConfigError, match=r"Diagnostics\.names must name features only with a run folder"):
        go(skewed(), tiny("fedavg"), diagnose="features")
    with pytest.raises(ConfigError, match=r"diagnose must be .*nmes"):
        Diagnostics.from_json({"nmes": []})
