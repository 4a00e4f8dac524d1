"""Parameters that stay on clients or stand still, and the methods that are made of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import fedskew as fs
from fedskew import methods as m
from fedskew import tree
from fedskew.client import PRIVATE
from fedskew.errors import ConfigError, FieldError
from fedskew.method import Method
from fedskew.method.keeping import Frozen, Private
from fedskew.method.paces import Fixed
from fedskew.method.parts import InitialHead
from fedskew.method.servers import Adam, Momentum, Plain
from fedskew.method.steps import SGD, AdamW
from fedskew.methods.fedrep import Alternating
from fedskew.records.files import load_tree
from oracle.personal import Personal, run_personal
from support.command import fedskew, mistake
from support.federations import blobs, skewed
from support.methods import spied, tiny
from support.nets import norm_net
from support.personal import CASES, HEAVY
from support.replay import agree, record
from support.runs import go, rows_of, same


@pytest.mark.parametrize("engine", ["sequential", pytest.param("threaded", marks=pytest.mark.thorough), "batched"])
@pytest.mark.parametrize("name", CASES)
def test_rounds_agree_with_the_oracle(name: str, engine: str) -> None:
    method, options = CASES[name]
    replay, told = record(method, engine), Personal(**options)
    history = run_personal(replay.problem, replay.plans, told)
    for r, (seen, expected) in enumerate(zip(replay.rounds, history, strict=True), 1):
        agree(seen.after, expected, f"round {r}")
    for k, kept in told.kept.items():
        memory = replay.engine.memory.get(k)
        if told.private:
            agree(tree.map_tree(torch.Tensor.numpy, memory[PRIVATE]["params"]), kept["private"], f"private of {k}")
        if told.tie is not None or told.mix:
            agree(tree.map_tree(torch.Tensor.numpy, memory[method.local.name]["own"]), kept["v"], f"v of client {k}")
        if told.mix:
            assert float(memory["mixed"]["alpha"]) == pytest.approx(kept["alpha"], abs=1e-10)


# ---------------------------------------------------------------------------------------------------------------------
# Private parameters


def plain(*parts: Any, **slots: Any) -> Method:
    return Method("plain", parts=parts, pace=Fixed(epochs=2, batch_size=16), **slots)


@pytest.mark.parametrize("server", [Plain(), Adam(), Momentum(), Plain(0.5)])
def test_the_server_never_moves_what_stays(server: Any) -> None:
    method, seen = spied(plain(Private(("norm", "4")), server=server))
    result = go(skewed(), method, model=norm_net(), rounds=3)
    begin = go(skewed(), plain(), model=norm_net(), rounds=1)
    first = seen[0].before
    moved = [n for n, p in result.state.params.items() if not torch.equal(p, first[n])]
    assert moved == ["1.weight", "1.bias"]
    assert torch.equal(result.state.buffers["2.running_mean"], torch.zeros(12, dtype=torch.float64))
    assert not torch.equal(begin.state.buffers["2.running_mean"], torch.zeros(12, dtype=torch.float64))
    for cohort in seen:
        assert cohort.deltas is not None
        assert all(not cohort.deltas[n].any() for n in ("2.weight", "2.bias", "4.weight", "4.bias"))


def test_only_what_travels_is_counted() -> None:
    fed = skewed()
    whole, per, bn, babu, local = (
        go(fed, replace(x, pace=Fixed(batch_size=16)), model=norm_net(), rounds=1).rounds[0]
        for x in (m.fedavg(), m.fedper(), m.fedbn(), m.fedbabu(), m.localonly())
    )
    head, norm = 8 * (12 * 10 + 10), 8 * (4 * 12) + 8  # float64, and an int64 that counts batches
    assert whole["upload_bytes"] - per["upload_bytes"] == 3 * head == whole["upload_bytes"] - babu["upload_bytes"]
    assert whole["upload_bytes"] - bn["upload_bytes"] in (3 * norm, 3 * (norm - 8))
    assert whole["download_bytes"] - per["download_bytes"] == 3 * head
    assert local["upload_bytes"] == local["download_bytes"] == 0


def test_a_pull_is_towards_the_clients_own_values() -> None:
    """Where all stays on the client and a round is one whole-batch step, FedProx's pull is 0."""
    local = plain(Private(("*",))).with_("pace", epochs=1, batch_size=0)
    pulled = plain(Private(("*",)), *m.fedprox(5.0).parts[1:]).with_("pace", epochs=1, batch_size=0)
    a, b = (go(skewed(), x, model="mlp", rounds=4, cohort=6).rounds[-1]["personal_loss"] for x in (local, pulled))
    assert a == b


SMALL = Fixed(epochs=2, batch_size=16)
RESUMED = {name: tiny(name) for name in ("fedper", "fedbn", "fedrep", "fedrod", "ditto", "apfl")} | {
    "a generated head": replace(m.fedrod(hyper=6), pace=SMALL),
    "draws by updates": replace(m.clusteredsampling("similarity"), pace=SMALL),
    "a weighting in another": replace(m.fednova(fs.weightings.Dual(primal_rounds=1, apply="loss")), pace=SMALL),
}


@pytest.mark.parametrize("name", RESUMED)
@pytest.mark.parametrize("memory", ["device", pytest.param("ram", marks=pytest.mark.thorough)])
def test_a_resumed_run_has_the_same_bytes(name: str, memory: str, tmp_path: Path) -> None:
    def run(out: str, **options: Any) -> fs.Result:
        settings = {"model": norm_net(), "memory": memory, "personal_every": 1, "checkpoint_every": 2}
        return go(skewed(), RESUMED[name], out=tmp_path / out, **(settings | options))

    whole = run("whole", rounds=4)
    run("halves", rounds=2)
    halves = run("halves", rounds=4, resume=True)
    assert rows_of(whole) == rows_of(halves) and same(whole.params, halves.params)


def test_a_file_names_layers_and_the_record_names_what_stays(tmp_path: Path) -> None:
    typed = ["--parts", "private,proximal", "--parts.private.names", "hidden1,norm", "--rounds", "1", "--cohort", "3"]
    data = ["--data", "digits", "--clients", "6", "--model", "mlp", "--out", str(tmp_path / "a")]
    assert fedskew("run", "fedavg", *data, *typed) == 0
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    assert config["on_clients"] == ["hidden1.bias", "hidden1.weight"]
    assert fedskew("run", "--resume", tmp_path / "a", "--rounds", 2) == 0
    assert fedskew("run", "--from", tmp_path / "a", "--out", tmp_path / "b") == 0
    rows = [(tmp_path / n / "rounds.jsonl").read_text().splitlines() for n in "ab"]
    assert [len(r) for r in rows] == [2, 2]


@pytest.mark.parametrize("name", ["scaffold", "feddyn", "fedcm", "fedgc", "fedsmoo", "fedspeed", "fedlesam"])
def test_what_follows_the_mean_of_all_parameters_is_refused(name: str) -> None:
    method = tiny(name)
    with pytest.raises(ConfigError, match="must not keep parameters on clients beside"):
        go(skewed(), method.with_(parts=(*method.parts, Private())))


def test_mediators_are_refused() -> None:
    with pytest.raises(FieldError, match="not pass a model from client to client beside private"):
        go(skewed(), replace(m.astraea(), parts=(Private(),)))


@pytest.mark.parametrize("part", [Private, Frozen])
def test_a_layer_that_is_not_there_is_named(part: Callable[..., Any]) -> None:
    with pytest.raises(
        FieldError, match=r"names must name layers of the model; did you mean 'hidden1'\?; got 'hiden1'"
    ):
        go(skewed(), plain(part(("hiden1",))), model="mlp")


# ---------------------------------------------------------------------------------------------------------------------
# What does not move


@pytest.mark.parametrize("engine", ["sequential", "batched"])
@pytest.mark.parametrize("local", [SGD(**HEAVY), m.fedsam().local, m.pfedme().local, m.perfedavg().local])
def test_frozen_parameters_keep_their_bits(local: Any, engine: str) -> None:
    method = plain(Frozen(("1", "norm")), *m.fedprox(1.0).parts[1:], local=local, server=Adam())
    result = go(skewed(), method.with_("pace", lr=0.01), model=norm_net(), engine=engine)
    begin = go(skewed(), plain(Frozen(("*",))), model=norm_net()).params
    held = [n for n in begin if torch.equal(begin[n], result.params[n])]
    assert held == ["1.weight", "1.bias", "2.weight", "2.bias"]
    assert not result.state.buffers["2.running_mean"].any()


def test_scaffold_beside_frozen_layers() -> None:
    """The control variates of what does not move stay 0."""
    result = go(skewed(), plain(*m.scaffold().parts, Frozen(("hidden1",))), model="mlp", rounds=3)
    c = result.state.parts["control_variate"]["c"]
    assert not c["hidden1.weight"].any() and c["fc.weight"].any()


def test_an_epoch_for_the_head_and_one_for_the_body() -> None:
    """More epochs for the head than there are leave the body one; with none, the head does not move."""
    fed, pace = skewed(), Fixed(epochs=2, batch_size=16)
    all_head = go(fed, Method("a", (Alternating(2),), pace=pace), model="mlp")
    one_each = go(fed, Method("c", (Alternating(1),), pace=pace), model="mlp")
    no_head = go(fed, Method("b", (Alternating(0),), pace=pace), model="mlp")
    other = go(fed, Method("d", (Frozen(("head",)),), pace=pace), model="mlp")
    assert same(all_head.params, one_each.params) and same(no_head.params, other.params)
    with pytest.raises(FieldError, match=r"Fixed.epochs must be at least 2: one epoch moves the head, one the body"):
        go(fed, m.fedrep().with_("pace", epochs=1), model="mlp")


# ---------------------------------------------------------------------------------------------------------------------
# The classifier's initial value


@pytest.mark.parametrize(("rows", "cosine"), [("simplex", -1 / 9), ("orthogonal", 0.0)])
def test_the_initial_head(rows: Any, cosine: float) -> None:
    method = plain(InitialHead(rows, norm=2.0), Frozen())
    found = [go(skewed(), method, model="mlp", rounds=1, seed_model=s).params for s in (0, 0, 1)]
    weight = found[0]["fc.weight"]
    wanted = 4 * (torch.eye(10) * (1 - cosine) + cosine).double()
    assert torch.allclose(weight @ weight.T, wanted, atol=1e-12) and not found[0]["fc.bias"].any()
    assert torch.equal(weight, found[1]["fc.weight"]) and not torch.equal(weight, found[2]["fc.weight"])
    trained = go(skewed(), plain(InitialHead(rows, norm=2.0)), model="mlp", rounds=1).params["fc.weight"]
    assert not torch.equal(trained, weight)


@pytest.mark.parametrize(("rows", "needed"), [("simplex", 9), ("orthogonal", 10)])
def test_the_initial_head_needs_features(rows: Any, needed: int) -> None:
    rule = f"InitialHead.rows must have at least {needed} features before the classifier, for 10 classes; got 8"
    with pytest.raises(FieldError, match=rule):
        go(skewed(), plain(InitialHead(rows)), model=fs.models.MLP(hidden=8))
    if needed == 9:
        go(skewed(), plain(InitialHead(rows)), model=fs.models.MLP(hidden=9), rounds=1)


# ---------------------------------------------------------------------------------------------------------------------
# Own models


def test_fine_tuning_is_gradient_descent() -> None:
    part = m.fedbabu(lr=0.25, steps=3).parts[-1]
    task = fs.types.Task("fc", 2, 2, 1, 1)
    params = {"fc.weight": torch.tensor([4.0]), "body": torch.tensor([8.0])}
    ctx: Any = type("C", (), {"task": task})
    found = {
        tuned: replace(part, tuned=tuned).personalize(params, ctx, lambda p: {n: v - 0 for n, v in p.items()})  # type: ignore[call-arg]
        for tuned in ("all", "head", "body")
    }
    low = 0.75**3
    assert [float(v["fc.weight"]) for v in found.values()] == [4 * low, 4 * low, 4]
    assert [float(v["body"]) for v in found.values()] == [8 * low, 8, 8 * low]


THOROUGH = pytest.mark.thorough
ALL = {"momentum": 0.9, "weight_decay": 0.02, "clip": 0.3}
RULES = [{}, ALL, *(pytest.param({name: value}, marks=THOROUGH) for name, value in ALL.items())]


@pytest.mark.parametrize(
    "engine", ["sequential", *(pytest.param(name, marks=THOROUGH) for name in ("debug", "threaded")), "batched"]
)
@pytest.mark.parametrize("model", [pytest.param("mlp", marks=THOROUGH), norm_net()], ids=["mlp", "batchnorm"])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: " ".join(rule) or "plain")
def test_an_own_model_without_a_tie_is_trained_as_alone(rule: dict[str, float], model: Any, engine: str) -> None:
    """Bit for bit, and on `batched` up to rounding; clients come again, and leave rounds out."""
    pace, limit = Fixed(epochs=2, batch_size=5, decay=0.9), 1e-9 if engine == "batched" else 0.0
    dtype = "float64" if engine == "batched" else "float32"
    fed, options = skewed(), {"model": model, "cohort": 4, "rounds": 4, "engine": engine, "dtype": dtype}
    alone, ditto, apfl, shared = (
        go(fed, replace(x, pace=pace).with_("local", **rule), **options, personal_every=1).rounds
        for x in (m.localonly(), m.ditto(0.0), m.apfl(1.0, False), m.fedavg())
    )
    for one, other, third, fourth in zip(alone, ditto, apfl, shared, strict=True):
        for row in (other, third):
            assert abs(row["personal_loss"] - one["personal_loss"]) <= limit
            assert row["personal_accuracy"] == one["personal_accuracy"]
            assert abs(row["loss"] - fourth["loss"]) <= limit


@pytest.mark.parametrize("name", ["ditto", "apfl", "pfedme", "perfedavg"])
def test_the_step_of_own_models_is_not_replaced(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without it the method would be FedAvg under another name."""
    method = m.METHODS[name]()
    rule = f"must stay {method.local.name!r} in {name}: it makes the clients' own models; got"
    for other in ("adamw", "sgd"):
        said = mistake(capsys, "run", name, "--data", "digits", "--local", other)
        assert f"--local {rule} {other!r}; set its own fields (" in said
    for local in (AdamW(), SGD(momentum=0.9), m.fedsam().local):
        with pytest.raises(FieldError, match=rf"Method\.local {re.escape(rule)} {local.name!r}"):
            method.with_(local=local)
    assert method.with_(local=replace(method.local, clip=1.0)) == method.with_("local", clip=1.0)


@pytest.mark.parametrize("name", ["pfedme", "perfedavg"])
def test_steps_without_momentum_refuse_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = mistake(capsys, "run", name, "--data", "digits", "--momentum", "0.9")
    assert "--momentum has no meaning here: local is set by an ingredient without 'momentum'" in said


@pytest.mark.parametrize("name", ["ditto", "apfl", "fedamp"])
def test_statistics_of_own_models_are_those_that_torch_has(name: str, tmp_path: Path) -> None:
    """After one pass over all rows, from the initial model."""
    fed, net = blobs([[6, 3, 1], [2, 2, 6]]), norm_net(3, 5)
    method = replace(m.METHODS[name](), pace=Fixed(epochs=1, batch_size=0))
    go(fed, method, model=net, rounds=1, cohort=2, out=tmp_path / "a")
    content, _ = load_tree(tmp_path / "a" / "checkpoint" / "state.safetensors")
    for k, memory in content["memory"].items():
        kept = memory[{"ditto": "tethered", "apfl": "mixed", "fedamp": "attentive_messages"}[name]]
        twin = deepcopy(net).double().train()
        twin(torch.as_tensor(fed.dataset.x[fed.rows(int(k))]).double())
        statistics = kept["model" if name == "fedamp" else "statistics"]
        for one in ("running_mean", "running_var"):
            torch.testing.assert_close(statistics[f"2.{one}"], getattr(twin[2], one))


def test_apfl_mixes_by_the_clients_share() -> None:
    part = m.apfl(0.25).local
    kept = {"own": {"w": torch.tensor([12.0])}, "alpha": torch.tensor(0.25)}
    ctx: Any = SimpleNamespace(memory={part.name: kept})
    assert part.personalize({"w": torch.tensor([4.0])}, ctx, None)["w"].tolist() == [6.0]  # type: ignore[arg-type]
