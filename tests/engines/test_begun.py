"""Runs that begin from a model of another run: what they begin with, what is recorded, and what is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import fedskew as fs
from fedskew import methods as m
from fedskew.config.experiment import Experiment, load
from fedskew.config.recorded import Run
from fedskew.engines.network import digest_of
from fedskew.errors import RecordError
from fedskew.flower.options import check_for_nodes
from fedskew.method import Method
from fedskew.method.paces import Fixed
from fedskew.records.manifest import Manifest
from fedskew.settings import Settings
from fedskew.studies.address import asked
from support.command import fedskew, mistake, refused
from support.federations import skewed
from support.methods import spied
from support.nets import norm_net
from support.runs import gap, go, rows_of, same

PACE = Fixed(batch_size=16)


@pytest.fixture
def warm(tmp_path: Path) -> Path:
    """A run of two rounds with a network that has BatchNorm, float32."""
    go(skewed(), replace(m.fedavg(), pace=PACE), model=norm_net(), dtype="float32", out=tmp_path / "warm")
    return tmp_path / "warm"


def begun(source: Any, method: Method | None = None, **options: Any) -> tuple[fs.Result, Any]:
    """(the run, its first cohort)."""
    spy, seen = spied(replace(method or m.fedavg(), pace=PACE))
    result = go(skewed(), spy, init_from=source, **{"model": norm_net(), "rounds": 1, **options})
    return result, seen[0]


def altered(make: Any, expected: str) -> None:
    with pytest.raises(RecordError) as error:
        make()
    assert "\n" not in str(error.value) and expected in str(error.value), error.value


@pytest.mark.parametrize(
    ("engine", "named"),
    [("sequential", lambda folder: folder), ("batched", lambda folder: str(folder / "final.safetensors"))],
)
def test_it_begins_with_the_values_of_the_other(engine: str, named: Any, warm: Path) -> None:
    """Of parameters and of BatchNorm statistics, in the run's own dtype; the user's module stays as it is."""
    net = norm_net()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    result, first = begun(named(warm), model=net, engine=engine)
    held = load_file(warm / "final.safetensors")
    assert all(torch.equal(p, held[name].double()) for name, p in first.before.items())
    assert same(before, dict(net.state_dict()))
    plain, other = begun(None, model=net, engine=engine)
    assert gap(first.before, other.before) > 1e-3
    mean = "2.running_mean"
    assert not torch.equal(result.state.buffers[mean], plain.state.buffers[mean])


def test_what_a_method_puts_into_the_model_comes_after(tmp_path: Path) -> None:
    go(skewed(), m.fedrod(), out=tmp_path / "a", model="mlp")  # its file has a head of the method, too
    held = load_file(tmp_path / "a" / "final.safetensors")
    _, first = begun(tmp_path / "a", m.fedrod(), model="mlp")
    assert torch.equal(first.before["personal_head.weight"], held["fc.weight"])
    with pytest.raises(RecordError, match=r"must have 'fc\.out\.weight'"):  # the projection is a layer of its own
        begun(tmp_path / "a", m.fedetf(), model="mlp")
    _, first = begun(tmp_path / "a", m.fedetf(projection=0), model="mlp")
    assert torch.equal(first.before["hidden1.weight"], held["hidden1.weight"])
    rows = first.before["fc.weight"]
    assert torch.allclose(rows @ rows.T, 10 / 9 * torch.eye(10).double() - 1 / 9, atol=1e-6)


def test_private_parameters_of_every_client_begin_so(tmp_path: Path) -> None:
    go(skewed(), m.fedavg(), out=tmp_path / "a", model="mlp", rounds=1)
    found = [
        go(skewed(), m.lgfedavg().with_("pace", lr=1e-12), model="mlp", rounds=1, init_from=s).rounds[-1]
        for s in (str(tmp_path / "a"), None)
    ]
    last = json.loads((tmp_path / "a" / "rounds.jsonl").read_text().splitlines()[-1])
    assert found[0]["loss"] == pytest.approx(last["loss"], rel=1e-6) != found[1]["loss"]
    assert found[0]["personal_loss"] != pytest.approx(found[1]["personal_loss"], rel=1e-3)


def test_a_resumed_run_has_the_same_bytes(warm: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"model": norm_net(), "init_from": str(warm), "checkpoint_every": 2}
    whole = go(skewed(), m.fedavgm(), rounds=4, **options)
    go(skewed(), m.fedavgm(), rounds=2, out=tmp_path / "b", **options)
    half = go(skewed(), m.fedavgm(), rounds=4, out=tmp_path / "b", resume=True, **options)
    assert rows_of(whole) == rows_of(half) and same(whole.params, half.params)
    other = {**options, "init_from": None}
    altered(lambda: go(skewed(), m.fedavgm(), rounds=5, out=tmp_path / "b", resume=True, **other), "init_from was")


def test_the_record_and_the_address_say_the_content(warm: Path, tmp_path: Path) -> None:
    go(skewed(), m.fedavg(), model=norm_net(), out=tmp_path / "b", init_from=str(warm))
    config = json.loads((tmp_path / "b" / "config.json").read_text())
    digest = digest_of(Settings(init_from=str(warm)))
    assert config["init_from"] == str(warm) and config["init_digest"] == digest and len(digest) == 32
    go(skewed(), m.fedavg(), model=norm_net(), out=tmp_path / "c")
    plain = json.loads((tmp_path / "c" / "config.json").read_text())
    assert "init_from" not in plain and "init_digest" not in plain
    assert Run(tmp_path, config, [], {}).settings != Run(tmp_path, plain, [], {}).settings

    shutil.copy(warm / "final.safetensors", tmp_path / "copy.safetensors")
    told = [asked(Experiment(m.fedavg(), init_from=str(p))) for p in (warm, tmp_path / "copy.safetensors")]
    assert told[0] == told[1] and told[0]["init"] == digest
    bare = asked(Experiment(m.fedavg()))
    assert "init" not in bare and {n: v for n, v in told[0].items() if n != "init"} == bare
    assert asked(Experiment(m.fedavg(), init_from="gone", init_digest=digest)) == told[0]  # a record without its file


def test_what_cannot_be_is_refused_in_one_line(warm: Path, tmp_path: Path) -> None:
    for source, said in (
        ("nowhere", "init_from must be a run folder or a .safetensors file; got 'nowhere'"),
        (warm / "config.json", "init_from must be a run folder or a .safetensors file"),
        (tmp_path, "init_from must be a run folder with final.safetensors"),
        ("", "init_from must name a run folder or a .safetensors file; got ''"),
        (3, "init_from must be a word"),
    ):
        refused(lambda source=source: begun(source), said)
    refused(lambda: Settings(init_digest="ab"), "init_digest must be used with init_from; got 'ab'")
    altered(
        lambda: begun(warm, model="mlp"),
        "must have 'hidden1.weight' of shape (128, 64), as the run's network; got nothing",
    )
    held = load_file(warm / "final.safetensors")
    for name, value, said in (
        ("nan", held["1.weight"] * torch.nan, "must have values that are finite in float64; '1.weight' has others"),
        ("wide", held["1.weight"][:, :3].contiguous(), "must have '1.weight' of shape"),
    ):
        file = tmp_path / f"{name}.safetensors"
        save_file({**held, "1.weight": value}, file)
        altered(lambda file=file: begun(file), said)
    large = tmp_path / "large.safetensors"
    save_file({**held, "1.weight": held["1.weight"].double() + 1e300}, large)
    altered(lambda: begun(large, dtype="float32"), "finite in float32")
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"no tensors")
    altered(lambda: begun(broken), "broken.safetensors is damaged")
    altered(
        lambda: begun(large, init_digest="0" * 32),
        "must be the file that the run begins from, digest 00000000000000000000000000000000; got",
    )
    (warm / "final.safetensors").write_bytes(large.read_bytes())
    with pytest.raises(RecordError, match="was altered after the run wrote it"):
        begun(warm)
    refused(lambda: check_for_nodes(Experiment(m.fedavg(), init_from="a")), "must be unset where clients are nodes")


WORDS = ("--data", "digits", "--partition", "shared", "--partition.beta", 0.1, "--model", "logistic", "--cohort")


def test_a_warm_up_model_of_shared_data_takes_two_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Zhao et al.: a model is trained on the shared rows at the server, and the federation begins from it."""
    first = (*WORDS, 1, "--partition.base", "iid", "--partition.divides", "shared", "--clients", 1, "--rounds", 5)
    second = (*WORDS, 4, "--partition.base", "labels_k", "--clients", 8, "--rounds", 1)
    assert fedskew("run", "fedavg", *first, "--out", tmp_path / "warm") == 0
    assert fedskew("run", "fedavg", *second, "--out", tmp_path / "cold") == 0
    assert fedskew("run", "fedavg", *second, "--init-from", tmp_path / "warm", "--out", tmp_path / "zhao") == 0
    accuracy = {
        name: json.loads((tmp_path / name / "rounds.jsonl").read_text().splitlines()[0])["accuracy"]
        for name in ("cold", "zhao")
    }
    assert accuracy["zhao"] > accuracy["cold"] + 0.1
    experiment = load(tmp_path / "zhao")
    assert experiment.init_from == str(tmp_path / "warm") and len(experiment.init_digest) == 32
    assert fedskew("run", "--from", tmp_path / "zhao", "--out", tmp_path / "again") == 0
    rows = [(tmp_path / n / "rounds.jsonl").read_text().splitlines() for n in ("zhao", "again")]
    assert rows_of([json.loads(s) for s in rows[0]]) == rows_of([json.loads(s) for s in rows[1]])
    assert fedskew("run", "--resume", tmp_path / "zhao", "--rounds", 2) == 0

    assert fedskew("run", "--resume", tmp_path / "warm", "--rounds", 6) == 0  # another model now
    said = mistake(capsys, "run", "fedavg", "--init-from", "nowhere", "--out", tmp_path / "other")
    assert said.startswith("fedskew: --init-from must be a run folder or a .safetensors file; got 'nowhere'")
    said = mistake(capsys, "run", "--from", tmp_path / "zhao", "--out", tmp_path / "other")
    assert "must be the file that the run begins from" in said


def test_weights_of_a_file_are_floats(tmp_path: Path) -> None:
    run = tmp_path / "run"
    fed = fs.federate("digits", "iid", clients=3, validation=0.2)
    go(fed, m.ditto(), model="logistic", rounds=1, monitor="val_accuracy", keep_own=True, out=run)
    reads = {
        "final": lambda: fs.load_model(run), "best": lambda: fs.load_model(run, best=True),
        "own": lambda: fs.load_model(run, client="1"),
        "init": lambda: go(fed, m.fedavg(), model="logistic", rounds=1, init_from=str(run / "final.safetensors")),
    }  # fmt: skip
    manifest = Manifest.read(run)
    for (name, read), kind in product(reads.items(), (torch.int64, torch.complex64, torch.float8_e4m3fn)):
        file = run / f"{name.replace('init', 'final')}.safetensors"
        before = file.read_bytes()
        save_file({n: t.to(kind) for n, t in load_file(file).items()}, file)
        manifest.vouch([file.name], manifest.last)
        altered(read, f"as floats of 16 to 64 bits; got {str(kind).removeprefix('torch.')}")
        file.write_bytes(before)
        manifest.vouch([file.name], manifest.last)
        read()
