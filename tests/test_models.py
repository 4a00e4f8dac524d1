"""The networks: parameter counts of the papers' protocols, shapes, and weights that depend on the seed alone."""

import dataclasses
import pickle
import random
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import yaml
from torch import nn

from fedskew.errors import ConfigError
from fedskew.models.architectures import (
    MLP,
    MODELS,
    TFCNN,
    ConvNet,
    EmnistCNN,
    ResNet9,
    ResNet20,
    SeolKimCNN,
    TwoNN,
    build,
)
from fedskew.models.prepare import prepare

CIFAR, MNIST, TINY, DIGITS = (3, 32, 32), (1, 28, 28), (3, 64, 64), (1, 8, 8)
SMALL = {
    "tfcnn": CIFAR, "lenet": CIFAR, "seolkim_cnn": CIFAR, "emnist_cnn": MNIST, "pfllib_cnn": MNIST, "resnet9": CIFAR,
}  # fmt: skip
NARROW = {"resnet9": ResNet9(width=8)}  # thirty million weights take seconds to draw


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def protocols():
    text = (Path(__file__).parents[1] / "docs/protocols/protocols.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


def size(model, shape, classes):
    return sum(p.numel() for p in build(model, shape, classes, 0).parameters())


def stated(text):
    """The numbers written as "<n> params" in a line of the protocols."""
    return [int(n) for n in re.findall(r"(\d+) params", text)]


def test_parameter_counts_fedbal(protocols):
    params = protocols["fedbal"]["model_main"]["params"]
    assert size("convnet", CIFAR, 10) == params["C10"] == 482506
    assert size("convnet", CIFAR, 100) == params["C100"] == 3811876
    fc = build("convnet", CIFAR, 10, 0).fc
    assert fc.weight.numel() + fc.bias.numel() == params["classifier_C10"]
    assert fc.in_features == 36992


def test_parameter_counts_fedga(protocols):
    models = protocols["fedga"]["models"]
    assert [size("mlp", MNIST, 10)] == stated(models["MNIST"]) == [101770]
    assert [size("lenet", CIFAR, 10)] == stated(models["CIFAR-10"]) == [62006]
    assert f"{size('resnet20', CIFAR, 100)} params" in models["CIFAR-100"]
    assert [size("resnet20", TINY, 200)] == stated(models["Tiny-ImageNet"]) == [282072]
    assert size(ResNet20(norm="group"), CIFAR, 100) == 275572  # as many as with batch normalisation


def test_parameter_counts_seol_kim(protocols):
    models = protocols["seol_kim"]["models"]
    assert [size(SeolKimCNN(pools=2), CIFAR, 10)] == stated(models["CIFAR-10"]) == [1514826]
    assert [size("logistic", MNIST, 10)] == stated(models["MNIST"]) == [7850]
    one = build(SeolKimCNN(pools=1), CIFAR, 10, 0)
    assert one.hidden1.in_features == 128 * 12 * 12
    assert sum(isinstance(layer, nn.MaxPool2d) for layer in one) == 1


def test_parameter_counts_fedgr(protocols):
    text = protocols["fedgr"]["model"]
    assert f"{size('tfcnn', CIFAR, 10)} params" in text
    assert f"{size(TFCNN(form='tutorial'), CIFAR, 10)} params" in text
    assert (size("tfcnn", CIFAR, 10), size(TFCNN(form="tutorial"), CIFAR, 10)) == (66560, 122570)
    assert build("tfcnn", CIFAR, 10, 0).fc.bias is None


def test_parameter_counts_fedla(protocols):
    assert stated(protocols["fedla"]["tasks"]["EMNIST-balanced"]["model"]) == [23727]
    assert size("emnist_cnn", MNIST, 47) == 23727


def test_2nn_is_the_network_of_mcmahan_et_al():
    assert size("2nn", MNIST, 10) == 199210


def test_table_names_its_entries():
    expected = {"logistic", "mlp", "2nn", "lenet", "convnet", "tfcnn", "seolkim_cnn", "emnist_cnn", "resnet20"}
    assert set(MODELS) == expected | {"resnet9", "resnet18", "pfl_cnn", "pfllib_cnn"}
    assert all(name == kind.name and dataclasses.is_dataclass(kind) for name, kind in MODELS.items())


@pytest.mark.parametrize("name", MODELS)
def test_every_model_builds_prepares_and_gives_logits(name):
    shape = SMALL.get(name, DIGITS)
    module = build(NARROW.get(name, name), shape, 7, seed=3)
    model = prepare(module, MODELS[name].head, shape, 7)
    x, mask = torch.rand(3, *shape), torch.ones(3)
    out, _ = model.forward(model.params, model.buffers, x, mask, train=False, key=torch.tensor(1))
    assert out.logits.shape == (3, 7)
    assert out.features.shape == (3, model.features)
    assert torch.allclose(out.logits, module.eval()(x), atol=1e-6)
    assert torch.allclose(module.fc(out.features), out.logits, atol=1e-6)
    assert MODELS[name]().head == prepare(module, None, shape, 7).head  # the guess finds it too


@pytest.mark.parametrize(
    "options", [TFCNN(form="tutorial"), SeolKimCNN(pools=1), ResNet20(norm="group"), MLP(hidden=5)]
)
def test_options_are_values(options):
    assert pickle.loads(pickle.dumps(options)) == options
    assert type(options).__name__ in repr(options)
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.name = "other"
    build(options, CIFAR, 10, 0)


@pytest.mark.parametrize("name", ["logistic", "mlp", "2nn"])
def test_dense_models_take_tables(name):
    assert build(name, (13,), 2, 0)(torch.zeros(4, 13)).shape == (4, 2)
    assert build(TwoNN(hidden=3), (13,), 2, 0).hidden2.weight.shape == (3, 3)


@pytest.mark.parametrize("name", ["convnet", "resnet20", "tfcnn"])
def test_conv_models_take_the_8x8_digits(name):
    assert build(name, DIGITS, 10, 0).eval()(torch.zeros(2, *DIGITS)).shape == (2, 10)


@pytest.mark.parametrize("form", ["code", "tutorial"])
def test_tfcnn_pads_28_to_32(form):
    small, large = build(TFCNN(form=form), MNIST, 10, 0), build(TFCNN(form=form), (1, 32, 32), 10, 0)
    x = torch.rand(2, *MNIST)
    assert torch.allclose(small(x), large(F.pad(x, (2, 2, 2, 2))))
    assert size(TFCNN(form=form), MNIST, 10) == size(TFCNN(form=form), CIFAR, 10) - 2 * 9 * 32


def test_resnet_shortcut_is_option_a():
    block = build("resnet20", CIFAR, 10, 0).stage2_block1
    for conv in (block.conv1, block.conv2):
        nn.init.zeros_(conv.weight)
    x = torch.rand(2, 16, 8, 8)
    out = block(x)
    assert out.shape == (2, 32, 4, 4)
    assert torch.equal(out[:, 8:24], x[:, :, ::2, ::2])
    assert not out[:, :8].any() and not out[:, 24:].any()


def test_emnist_cnn_has_both_dropouts_and_no_log_softmax():
    net = build(EmnistCNN(dropout=0.25), MNIST, 47, 0)
    assert [type(layer) for layer in net if hasattr(layer, "p")] == [nn.Dropout2d, nn.Dropout]
    assert all(layer.p == 0.25 for layer in net if hasattr(layer, "p"))
    assert not torch.allclose(net(torch.rand(2, *MNIST)).exp().sum(1), torch.ones(2))


def states():
    numpy = np.random.get_state()  # noqa: NPY002
    return torch.get_rng_state().tolist(), numpy[1].tolist(), numpy[2], random.getstate()


@pytest.mark.parametrize("name", MODELS)
def test_building_leaves_every_global_generator_alone(name):
    before = states()
    build(NARROW.get(name, name), SMALL.get(name, DIGITS), 10, seed=5)
    assert states() == before


def test_weights_depend_on_the_seed_alone():
    torch.manual_seed(1)
    one = build("lenet", CIFAR, 10, seed=4)
    torch.manual_seed(2)
    two = build("lenet", CIFAR, 10, seed=4)
    other = build("lenet", CIFAR, 10, seed=5)
    for (name, a), b, c in zip(one.named_parameters(), two.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b), name
        assert not torch.equal(a, c), name


def test_trunk_does_not_depend_on_the_classes():
    ten, hundred = build("convnet", DIGITS, 10, 0), build("convnet", DIGITS, 100, 0)
    assert torch.equal(ten.conv3.weight, hundred.conv3.weight)


def test_uniform_weights_follow_torch():
    """torch's rule for linear and convolution layers: uniform in +-1/sqrt(fan_in), weight and bias."""
    ours = build("lenet", CIFAR, 10, seed=0)
    for layer in (ours.conv2, ours.hidden1):
        bound = layer.weight[0].numel() ** -0.5
        values = layer.weight.detach().flatten()
        assert values.abs().max() <= bound
        assert values.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)
        assert abs(values.mean().item()) < 0.1 * bound
        assert layer.bias.abs().max() <= bound


def test_resnet_weights_are_kaiming_normal():
    net = build("resnet20", CIFAR, 100, seed=0)
    for weight in (net.stage3_block2.conv1.weight, net.fc.weight):
        assert weight.std().item() == pytest.approx((2 / weight[0].numel()) ** 0.5, rel=0.05)
    assert torch.equal(net.norm1.weight, torch.ones(16)) and not net.norm1.bias.any()
    assert net.norm1.num_batches_tracked == 0 and torch.equal(net.norm1.running_var, torch.ones(16))


def test_group_norm_has_no_buffers():
    assert not list(build(ResNet20(norm="group"), CIFAR, 10, 0).buffers())


def test_parameters_are_real_and_trainable():
    net = build("resnet20", DIGITS, 10, 0)
    assert all(p.device.type == "cpu" and p.requires_grad and p.isfinite().all() for p in net.parameters())


BAD = {
    "unknown model 'lenett'; did you mean 'lenet'?": lambda: build("lenett", CIFAR, 10, 0),
    "large enough for model 'lenet'; got (1, 8, 8); try": lambda: build("lenet", DIGITS, 10, 0),
    "large enough for model 'seolkim_cnn'": lambda: build("seolkim_cnn", DIGITS, 10, 0),
    "large enough for model 'emnist_cnn'": lambda: build("emnist_cnn", DIGITS, 10, 0),
    "large enough for model 'tfcnn'": lambda: build(TFCNN(form="tutorial"), DIGITS, 10, 0),
    "be (channels, height, width); got (13,); model 'convnet'": lambda: build(ConvNet(), (13,), 10, 0),
    "shape must hold positive sizes": lambda: build("mlp", (0,), 10, 0),
    "classes must be at least 2; got 1": lambda: build("mlp", (4,), 1, 0),
    "MLP.hidden must be at least 1": lambda: MLP(hidden=0),
    "TFCNN.form must be one of code, tutorial": lambda: TFCNN(form="paper"),
    "SeolKimCNN.pools must be one of 1, 2; got 3": lambda: SeolKimCNN(pools=3),
    "EmnistCNN.dropout must be in [0, 1)": lambda: EmnistCNN(dropout=1.0),
    "ResNet20.norm must be one of batch, group": lambda: ResNet20(norm="layer"),
    "ResNet20.groups must divide 16; got 3": lambda: ResNet20(norm="group", groups=3),
}


@pytest.mark.parametrize("message", BAD)
def test_errors_are_one_line(message):
    with pytest.raises(ConfigError) as caught:
        BAD[message]()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_options_of_ones_own_must_be_initialisable():
    class Odd(MLP):
        def build(self, shape, classes):
            return nn.Sequential(nn.Flatten(), nn.PReLU(), nn.Linear(4, classes))

    with pytest.raises(ConfigError, match=r"layer '1' \(PReLU\) has no keyed initialisation"):
        build(Odd(), (4,), 3, 0)
