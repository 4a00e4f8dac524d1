"""The engine ray gives the bytes of `sequential`, from two nodes, whatever the method, the memory and the network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

import fedskew as fs
from fedskew.method import Component, Method
from fedskew.method.paces import Fixed
from fedskew.types import Params, View
from support.federations import RAGGED, blobs, skewed
from support.methods import NAMES, each, tiny
from support.nets import CONVOLUTIONAL, dropout_net, norm_net
from support.resuming import equal, recorded
from support.runs import measured as go

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]
SIX = ["fedavg", "scaffold", "astraea", "moon", "powerofchoice", "creff"]  # plain, memory, chains, heads, questions


def both(method: Method, folder: Path, fed: Any = None, **options: Any) -> tuple[Path, Path]:
    """The folders of the same run by `sequential` and by ray."""
    fed = fed or skewed()
    for engine in ("sequential", "ray"):
        go(fed, method, out=folder / engine, **{"rounds": 3, **options, "engine": engine})
    return folder / "sequential", folder / "ray"


@pytest.mark.parametrize("name", [n if n in SIX else pytest.param(n, marks=pytest.mark.slow) for n in NAMES])
def test_a_method_gives_the_bytes_of_sequential(name: str, tmp_path: Path) -> None:
    equal(*both(tiny(name), tmp_path, model="mlp", dtype="float32"))


@pytest.mark.parametrize("net", [norm_net, dropout_net, lambda: CONVOLUTIONAL["batch_norm"]])
def test_a_network_of_the_users_own_gives_the_bytes_of_sequential(net: Callable[[], Any], tmp_path: Path) -> None:
    equal(*both(tiny("scaffold"), tmp_path, model=net(), dtype="float32"))


def test_own_models_with_batchnorm_are_those_of_sequential(tmp_path: Path) -> None:
    """By which Ditto without a tie is local training here as well (`tests/methods/test_personal.py`)."""
    equal(*both(tiny("ditto"), tmp_path, model=norm_net(), personal_every=1))


@pytest.mark.parametrize("dp", ["client", "example"])
def test_noise_is_that_of_sequential(dp: str, tmp_path: Path) -> None:
    slots: dict[str, Any] = {"selector": fs.selectors.Poisson()} if dp == "client" else {}
    slots |= {} if dp == "client" else {"sampler": fs.samplers.PoissonBatches()}
    method = replace(tiny("fedavg"), weighting=fs.weightings.Uniform(), **slots)
    equal(*both(method, tmp_path, dp=dp, dp_clip=0.5, dp_noise=1.0, fit_logits="none"))


@pytest.mark.parametrize("memory", ["device", "ram"])
def test_the_clients_memory_is_at_home_here(memory: str, tmp_path: Path) -> None:
    equal(*both(tiny("moon"), tmp_path, memory=memory))


@pytest.mark.parametrize("workers", [1, 2])
def test_any_number_of_workers(workers: int, tmp_path: Path) -> None:
    equal(*both(tiny("fednova"), tmp_path, ray_workers=workers, cohort=6))


def test_diagnostics_and_personal_models(tmp_path: Path) -> None:
    options = {"diagnose": ("drift", "cosine", "per_class"), "personal_every": 1}
    equal(*both(tiny("perfedavg"), tmp_path, **options))


def test_values_that_are_not_finite_are_told_as_by_sequential() -> None:
    method = replace(tiny("fedavg"), pace=Fixed(epochs=2, lr=1e30, batch_size=16))
    said = []
    for engine in ("sequential", "ray"):
        with pytest.raises(fs.TrainingError) as caught:
            go(skewed(), method, engine=engine, model="mlp", dtype="float32", rounds=5)
        said.append((str(caught.value), caught.value.faults[0][:4]))
    assert said[0] == said[1] and "at client" in said[0][0]


@dataclass(frozen=True)
class Huge(Component):
    """Breaks client 2."""

    name = "huge"

    def broadcast(self, state: Any, ids: Tensor | None) -> tuple[Any, Any]:
        return {}, None if ids is None else {"scale": 1.0 + (ids == 2).double() * 1e300}

    def correct(self, grads: Params, view: View) -> Params:
        return {n: g * view.ctx.shared[self.name]["scale"] ** 2 for n, g in grads.items()}


@dataclass(frozen=True)
class Wrong(Component):
    """Raises at client 2."""

    name = "wrong"

    def broadcast(self, state: Any, ids: Tensor | None) -> tuple[Any, Any]:
        return {}, None if ids is None else {"on": ids == 2}

    def correct(self, grads: Params, view: View) -> Params:
        if view.ctx.shared[self.name]["on"]:
            raise ValueError("shapes differ\nin two lines")
        return grads


@pytest.mark.usefixtures("by_value")
def test_a_client_that_is_not_finite_is_dropped(tmp_path: Path) -> None:
    method = Method("h", parts=(Huge(),), pace=Fixed(epochs=1, batch_size=2), selector=each(0, 2, 3))
    one, two = both(method, tmp_path, fed=blobs(RAGGED), nonfinite="drop")
    equal(one, two)
    assert [d["client"] for d in recorded(two)[0]["dropped"]] == [2]


@pytest.mark.usefixtures("by_value")
def test_an_exception_of_a_component_is_located() -> None:
    method = Method("w", parts=(Wrong(),), pace=Fixed(epochs=1, batch_size=2), selector=each(0, 2))
    with pytest.raises(fs.TrainingError) as caught:
        go(blobs(RAGGED), method, engine="ray")
    said = str(caught.value)
    assert said.startswith("ValueError: shapes differ; client 2 of round 1, hook 'correct' of component 'wrong'")
    assert "\n" not in said


def test_what_cannot_be_sent_is_told_in_one_line() -> None:
    @dataclass(frozen=True)
    class Stuck(Component):
        name = "stuck"
        lock: Any = None

    import threading

    method = Method("s", parts=(Stuck(threading.Lock()),))
    with pytest.raises(fs.ConfigError, match=r"cannot send the method 's' to its workers: TypeError: .*lock") as caught:
        go(blobs(RAGGED), method, engine="ray")
    assert "\n" not in str(caught.value)


def test_more_workers_than_the_cluster_has_room_for() -> None:
    with pytest.raises(fs.ConfigError, match=r"ray_workers must fit the cluster, which has room for 2 .*; got 3"):
        go(skewed(), tiny("fedavg"), engine="ray", ray_workers=3)


def test_the_broadcast_is_packed_once_a_round(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedskew.engines.ray.packing import pack, unpack
    from fedskew.engines.ray.worker import Turn

    turns, sent, received = list[int](), list[int](), list[int]()

    def size(message: Any) -> int:
        return len(message[0]) + sum(buffer.nbytes for buffer in message[1])

    def noted(value: Any, **options: Any) -> Any:
        message = pack(value, **options)
        if isinstance(value, Turn | list):
            (turns if isinstance(value, Turn) else sent).append(size(message))
        return message

    def counted(message: Any) -> Any:
        received.append(size(message))
        return unpack(message)

    monkeypatch.setattr("fedskew.engines.ray.engine.pack", noted)
    monkeypatch.setattr("fedskew.engines.ray.pool.unpack", counted)
    result = go(skewed(), tiny("fedavg"), engine="ray", rounds=3, cohort=4, model=fs.models.MLP(hidden=400))
    model = sum(p.numel() * p.element_size() for p in result.params.values())
    assert len(turns) == 3 and len(sent) == 12
    assert 3 * model < sum(turns) < 3 * model + 60_000  # the method, the weights and the pickle's own words
    assert 12 * model < sum(received) < 12 * model + 12 * 20_000
    assert sum(sent) < 12 * 20_000
