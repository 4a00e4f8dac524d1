"""Every method on a device that is not there: nothing meets tensors of the CPU, and the host looks at little."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import fedskew as fs
from fedskew.engines.programs import HostError, NoHost
from fedskew.records.diagnostics import DIAGNOSTICS
from support.far import NAME, Device, far_device
from support.federations import skewed
from support.methods import MOST_HOOKS, cases, tiny
from support.nets import CONVOLUTIONAL, dropout_net, norm_net
from support.runs import gap, go, rows_of, same


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    """The device, which a run takes for one that is there. Steps that are written out are a CPU's alone: left out."""
    monkeypatch.setattr("fedskew._run.check_device", lambda name: None)
    monkeypatch.setattr("fedskew.engines.batched.Dense.of", lambda model: None)
    with far_device() as made:
        yield made


def brought(result: fs.Result) -> fs.Result:
    """A result whose parameters are near."""
    assert all(p.device.type == NAME for p in result.params.values())
    return replace(result, **{n: {k: v.cpu() for k, v in getattr(result, n).items()} for n in ("params", "buffers")})


def runs(name: str, **options: Any) -> tuple[fs.Result, fs.Result]:
    """The same run there and here."""
    # of six clients four a round: newcomers and those who were there before meet in a stack
    options = {"engine": "batched", "threads": 1, "cohort": 4, "rounds": 2} | options
    far = go(skewed(), tiny(name), device=NAME, **options)
    return brought(far), go(skewed(), tiny(name), **options)


def test_the_device_refuses_what_a_gpu_refuses(device: Device) -> None:
    far, near = torch.ones(3).to(NAME), torch.ones(3)
    assert (far * 2 + torch.tensor(1.0)).device.type == NAME and float((near * 2).sum()) == 6
    assert device.traffic == {"sent": 1}
    with pytest.raises(RuntimeError, match="same device"):
        far + near
    assert float(far.sum()) == 3 and device.traffic == {"sent": 1, "read": 1}


@pytest.mark.parametrize("name", MOST_HOOKS)
def test_every_method_gives_the_same_there(name: str, device: Device) -> None:
    far, near = runs(name)
    assert same(far.params, near.params) and rows_of(far) == rows_of(near)


@pytest.mark.parametrize("engine", ["batched", "chained"])
@pytest.mark.parametrize("name", MOST_HOOKS)
def test_what_is_read_and_sent_does_not_grow_with_the_steps(name: str, engine: str, device: Device) -> None:
    """Three times as many steps are read and sent as often."""
    method, traffic, steps = tiny(name), [], []
    for epochs in (2, 6):
        device.traffic.clear()
        paced = replace(method, pace=replace(method.pace, epochs=epochs))
        steps.append(go(skewed(), paced, engine=engine, device=NAME, rounds=1).rounds[0]["steps"])
        traffic.append(dict(device.traffic))
    assert steps[0] * 3 == steps[1] and traffic[0] == traffic[1]


def test_a_round_is_read_a_few_times(device: Device) -> None:
    reads = []
    for rounds in (1, 3):
        device.traffic.clear()
        go(skewed(), tiny("fedavg"), engine="batched", device=NAME, rounds=rounds, model="mlp")
        reads.append(device.traffic["read"])
    # whether the sum is finite, losses to check and to report, confusion matrix, test loss
    assert (reads[1] - reads[0]) / 2 <= 5


# torch's own group normalisation takes the process down on a device of Python's
NETWORKS = {"convolutions": CONVOLUTIONAL["convolutions"], "batch_norm": norm_net(), "dropout": dropout_net()}


QUICK = {("batched", "dropout"), ("sequential", "convolutions"), ("chained", "batch_norm")}


@pytest.mark.parametrize(("engine", "net"), cases(QUICK, ("batched", "sequential", "chained"), NETWORKS))
def test_networks_give_the_same_there(engine: str, net: str, device: Device) -> None:
    far, near = runs("scaffold", model=NETWORKS[net], engine=engine)
    assert gap(far.params, near.params) < 1e-12 and gap(far.buffers, near.buffers) < 1e-12  # other memory formats


@pytest.mark.parametrize("name", ["scaffold", pytest.param("pfedme", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("memory", ["device", "ram"])
def test_memories_and_checkpoints_there(memory: str, name: str, device: Device, tmp_path: Path) -> None:
    options: dict[str, Any] = {"memory": memory, "engine": "batched", "device": NAME, "cohort": 4, "rounds": 2}
    whole = brought(go(skewed(), tiny(name), **options))
    go(skewed(), tiny(name), **(options | {"rounds": 1}), out=tmp_path / "run")
    rest = brought(go(skewed(), tiny(name), **options, out=tmp_path / "run", resume=True))
    assert same(whole.params, rest.params) and rows_of(whole)[-1] == rows_of(rest)[-1]


def test_diagnostics_there(device: Device, tmp_path: Path) -> None:
    # one thread, as a device has: a stack a thread sums in another order
    options: Any = {"diagnose": tuple(DIAGNOSTICS), "engine": "batched", "threads": 1, "model": "mlp"}
    far, near = (go(skewed(), tiny("fedavg"), out=tmp_path / where, device=where, **options) for where in (NAME, "cpu"))
    assert len(far.rounds[0]["diagnostics"]) > 3 and rows_of(far) == rows_of(near)


@pytest.mark.parametrize(
    "moves",
    [lambda far: far.cpu(), lambda far: torch.ones(1).to(NAME), lambda far: torch.tensor([1.0], device=NAME),
     lambda far: far.copy_(torch.ones(3)), lambda far: torch.ones(3).copy_(far)],
)  # fmt: skip
def test_what_goes_to_the_host_or_comes_from_it_is_noticed(moves: Any, device: Device) -> None:
    far = torch.ones(3).to(NAME)
    with NoHost():  # type: ignore[no-untyped-call]
        assert (far.double().clone() + 1).device.type == NAME
    with pytest.raises(HostError, match="between the host and the device"), NoHost():  # type: ignore[no-untyped-call]
        moves(far)
