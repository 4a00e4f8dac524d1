"""A projection head is part of the network: its classifier, its features, its weights, and the model that is saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import fedskew as fs
from fedskew.data.inputs import RowStore
from fedskew.errors import ConfigError
from fedskew.models import MLP, MODELS, build, projected
from fedskew.models.prepare import prepare
from support.federations import skewed
from support.nets import norm_net
from support.networks import BUILT, DIGITS, NARROW, SHAPES

WEIGHTS = ("weight", "bias")


@pytest.mark.usefixtures("no_global_rng")
@pytest.mark.parametrize("name", BUILT)
def test_every_network_takes_a_projection_head(name: str) -> None:
    shape = SHAPES.get(name, DIGITS)
    options: Any = NARROW.get(name, MODELS[name]())
    kind = type(options)
    with_head = build(kind(**{**vars(options), "projection": 6}), shape, 7, seed=3)
    without = build(options, shape, 7, seed=3)
    model = prepare(with_head, None, shape, 7)
    assert (model.head, model.features) == ("fc.classifier", 6)
    ours, theirs = with_head.state_dict(), without.state_dict()
    below = [n for n in theirs if not n.startswith("fc.")]
    assert below == [n for n in ours if not n.startswith("fc.")]
    assert all(torch.equal(ours[n], theirs[n]) for n in below)  # the same start below the classifier


@pytest.mark.parametrize(("projection", "layers"), [(4, ("hidden", "out")), ("linear", ("out",))])
def test_the_classifier_reads_the_projection_and_every_layer_has_a_bias(projection: Any, layers: tuple[str]) -> None:
    """A linear one is one layer of the width of the classes."""
    network = build(MLP(hidden=5, projection=projection), (8,), 3, seed=0)
    model, x = prepare(network, None, (8,), 3), torch.rand(2, 8)
    out, _ = model.forward(model.params, model.buffers, x, torch.ones(2), train=False, key=torch.tensor(0))
    p = {n.removeprefix("fc."): v for n, v in model.params.items()}
    assert list(p) == [f"{n}.{w}" for n in ("hidden1", *layers, "classifier") for w in WEIGHTS]
    linear = lambda x, name: x @ p[f"{name}.weight"].T + p[f"{name}.bias"]
    z = torch.relu(linear(x, "hidden1"))
    for name in layers[:-1]:
        z = torch.relu(linear(z, name))
    z = linear(z, "out")
    assert p["classifier.weight"].shape == (3, z.shape[1]) and model.features == (3 if projection == "linear" else 4)
    assert torch.allclose(out.features, z, atol=1e-6)
    assert torch.allclose(out.logits, linear(z, "classifier"), atol=1e-6)


def test_new_layers_start_as_torch_would_and_keyed_by_the_seed() -> None:
    one, other = (projected(nn.Linear(400, 3), None, 50, seed)[0].state_dict() for seed in (0, 1))
    for name, bound in (("hidden.weight", 0.05), ("out.weight", 0.05), ("classifier.weight", 50**-0.5)):
        w = one[name]
        assert float(w.abs().max()) <= bound and float(w.abs().max()) == pytest.approx(bound, rel=0.05)
        assert not torch.equal(w, other[name])
    assert not torch.equal(one["hidden.weight"][:50], one["out.weight"])


def test_a_network_of_your_own_gets_the_head_and_stays_as_it_is() -> None:
    network = norm_net()
    names = list(network.state_dict())
    whole, head = projected(network, None, 6, seed=0)
    assert list(network.state_dict()) == names and head == "4.classifier"
    assert all(torch.equal(whole.state_dict()[n], network.state_dict()[n]) for n in names if not n.startswith("4."))
    result = fs.run(skewed(), fs.methods.moon(projection=6), model=network, rounds=1, cohort=2)
    assert "4.classifier.weight" in result.params and result.task.features == 6
    named = fs.run(skewed(), fs.methods.moon(projection=6), model=network, head="4", rounds=1, cohort=2)
    assert named.task.head == "4.classifier"


def test_the_networks_own_option_goes_before_the_methods_wish() -> None:
    def features(model: Any, method: fs.Method) -> int:
        return fs.run(skewed(), method, model=model, rounds=1, cohort=2).task.features

    assert features(MLP(hidden=5), fs.methods.moon(projection=7)) == 7
    assert features(MLP(hidden=5, projection=3), fs.methods.moon(projection=7)) == 3
    assert features(MLP(hidden=5, projection=0), fs.methods.moon(projection=7)) == 5
    assert features(MLP(hidden=5), fs.methods.fedavg()) == 5
    assert fs.run(skewed(), fs.methods.moon(), model="mlp", head="fc", rounds=1, cohort=2).task.features == 256


def test_the_saved_model_is_the_network_with_its_head(tmp_path: Path) -> None:
    """config.json says how to build it again, and it gives the accuracy of the record."""
    fed = skewed()
    result = fs.run(fed, fs.methods.moon(projection=6), model=MLP(hidden=5), rounds=2, cohort=3, out=tmp_path / "run")
    saved = load_file(tmp_path / "run" / "final.safetensors")
    told = json.loads((tmp_path / "run" / "config.json").read_text())["model"]
    assert told == {"name": "mlp", "projection": 6}
    network = build(
        MLP(hidden=5, projection=told["projection"]), tuple(fed.dataset.x.shape[1:]), fed.dataset.classes, 0
    )
    network.load_state_dict(saved)
    data = fed.dataset
    rows = RowStore(data.x_test, data.y_test, data.mean, data.std, torch.float32).floats(slice(None))
    right = (network(rows).argmax(1) == fed.dataset.y_test).float().mean()
    assert float(right) == pytest.approx(result.summary["final_accuracy"], abs=1e-6)


@pytest.mark.parametrize("own", [False, True], ids=["of the table", "of your own"])
def test_a_run_with_a_linear_projection_is_read_again(own: bool, tmp_path: Path) -> None:
    """The model and the configuration of the folder name it, and give the probabilities of the run."""
    fed, network = skewed(), norm_net() if own else "mlp"
    result = fs.run(fed, fs.methods.fedetf(), model=network, rounds=1, cohort=2, out=tmp_path / "run")
    assert result.task.features == fed.dataset.classes
    assert json.loads((tmp_path / "run" / "config.json").read_text())["model"]["projection"] == "linear"
    trained = fs.load_model(tmp_path / "run", network if own else None)
    x = fed.dataset.x_test
    assert torch.equal(trained.probabilities(x, encoded=True), result.trained.probabilities(x, encoded=True))


def test_the_command_takes_a_number_or_linear() -> None:
    from fedskew.config.experiment import Experiment
    from fedskew.config.flags import experiment_from

    words = ["fedetf", "--model.hidden", "16"]
    assert experiment_from([*words, "--model.projection", "12"]).network == MLP(hidden=16, projection=12)
    assert experiment_from([*words, "--parts.cosine_softmax.projection", "0"]).network == MLP(hidden=16)
    linear = experiment_from([*words, "--model.projection", "linear"])
    assert Experiment.from_json(linear.to_json()).network == MLP(hidden=16, projection="linear")
    with pytest.raises(ConfigError, match="projection must be a whole number or one of linear; got 'liner'; did you"):
        experiment_from([*words, "--model.projection", "liner"])
    with pytest.raises(ConfigError, match="projection must be at least 0; got -1"):
        experiment_from([*words, "--model.projection", "-1"])


def test_of_two_wishes_the_wider_head_is_taken_and_a_number_before_linear() -> None:
    both = (fs.methods.fedetf().parts[0], fs.methods.moon(projection=7).parts[-1])
    for parts in (both, both[::-1]):
        assert fs.Method("both", parts=parts).projection == 7
    assert fs.Method("one", parts=(both[0], fs.methods.moon(projection=0).parts[-1])).projection == "linear"


def test_a_head_that_is_no_linear_layer_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"must be an nn\.Linear behind a projection head; got 'Conv1d'"):
        projected(nn.Sequential(nn.Conv1d(1, 2, 3)), "0", 4, 0)
    with pytest.raises(ConfigError, match="unknown head 'fd'"):
        projected(norm_net(), "fd", 4, 0)
    with pytest.raises(ConfigError, match="projection must be at least 0"):
        MLP(projection=-1)
