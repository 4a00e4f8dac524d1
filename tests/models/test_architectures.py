"""The table of architectures: options are values, every entry builds and is prepared, and mistakes are one line."""

import dataclasses

import pytest
import torch
from torch import nn

import fedskew as fs
from fedskew.errors import ConfigError
from fedskew.methods import METHODS
from fedskew.models.architectures import (
    MLP,
    MODELS,
    TFCNN,
    ConvNet,
    PFLlibCNN,
    ResNet9,
    ResNet18,
    ResNet20,
    TwoNN,
    build,
)
from fedskew.models.networks import allocate
from fedskew.models.prepare import prepare
from support.command import refused
from support.federations import skewed
from support.networks import BUILT, CIFAR, DIGITS, MNIST, NARROW, SHAPES, TOKENS, NarrowResNet18
from support.runs import go


def test_table_names_its_entries():
    expected = {"logistic", "mlp", "2nn", "lenet", "convnet", "tfcnn", "seolkim_cnn", "emnist_cnn", "resnet20"}
    assert set(MODELS) == expected | {"resnet9", "resnet18", "pfl_cnn", "pfllib_cnn", "hf", *TOKENS}
    assert all(name == kind.name and dataclasses.is_dataclass(kind) for name, kind in MODELS.items())


@pytest.mark.parametrize("name", ["logistic", "mlp", "2nn"])
def test_dense_models_take_tables(name):
    assert build(name, (13,), 2, 0)(torch.zeros(4, 13)).shape == (4, 2)
    assert build(TwoNN(hidden=3), (13,), 2, 0).hidden2.weight.shape == (3, 3)


BAD = {
    "unknown model 'lenett'; did you mean 'lenet'?": lambda: build("lenett", CIFAR, 10, 0),
    "large enough for model 'lenet'; got (1, 8, 8); try": lambda: build("lenet", DIGITS, 10, 0),
    "large enough for model 'seolkim_cnn'": lambda: build("seolkim_cnn", DIGITS, 10, 0),
    "large enough for model 'emnist_cnn'": lambda: build("emnist_cnn", DIGITS, 10, 0),
    "large enough for model 'tfcnn'": lambda: build(TFCNN(form="tutorial"), DIGITS, 10, 0),
    "be (channels, height, width); got (13,); model 'convnet'": lambda: build(ConvNet(), (13,), 10, 0),
    "shape must hold positive sizes": lambda: build("mlp", (0,), 10, 0),
    "classes must be at least 2; got 1": lambda: build("mlp", (4,), 1, 0),
    "ResNet20.groups must divide 16; got 3": lambda: ResNet20(norm="group", groups=3),
    "shape must be large enough for model 'resnet9'; got (1, 28, 28); try": lambda: build(ResNet9(), MNIST, 10, 0),
    "large enough for model 'pfl_cnn'; got (1, 4, 4)": lambda: build("pfl_cnn", (1, 4, 4), 10, 0),
    "large enough for model 'pfllib_cnn'; got (1, 8, 8)": lambda: build("pfllib_cnn", (1, 8, 8), 10, 0),
    "be (channels, height, width); got (13,); model 'resnet18'": lambda: build("resnet18", (13,), 10, 0),
    "be (channels, height, width); got (13,); model 'resnet9'": lambda: build("resnet9", (13,), 10, 0),
    "be (channels, height, width); got (13,); model 'pfl_cnn'": lambda: build("pfl_cnn", (13,), 10, 0),
    "be (channels, height, width); got (28, 28); model 'pfllib": lambda: build("pfllib_cnn", (28, 28), 10, 0),
    "unknown model 'resnet-18'; did you mean 'resnet18'?": lambda: build("resnet-18", CIFAR, 10, 0),
    "ResNet18.groups must divide 64; got 48": lambda: ResNet18(norm="group", groups=48),
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


def test_a_model_is_an_instance() -> None:
    fed = skewed()
    refused(lambda: go(fed, METHODS["fedavg"](), model=fs.models.MLP), "got the class MLP; use MLP(...)")
    refused(lambda: go(fed, METHODS["fedavg"](), model=torch.nn.Linear), "got the class Linear")
    refused(lambda: go(fed, METHODS["fedavg"](), model=3), "got 3")


NETWORKS = {name: (NARROW.get(name, MODELS[name]()), SHAPES.get(name, DIGITS)) for name in BUILT} | {
    "resnet18_group": (NarrowResNet18(norm="group"), (3, 8, 8)),
    "resnet18_imagenet": (NarrowResNet18(stem="imagenet", norm="group", groups=4), (3, 16, 16)),
    "resnet20_group": (ResNet20(norm="group"), DIGITS),
    "pfllib_cnn_narrow": (PFLlibCNN(hidden=9), MNIST),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_model_builds_prepares_and_gives_logits(name):
    options, shape = NETWORKS[name]
    module = build(options, shape, 7, seed=3)
    model = prepare(module, options.head, shape, 7)
    x, mask = torch.rand(3, *shape), torch.ones(3)
    out, _ = model.forward(model.params, model.buffers, x, mask, train=False, key=torch.tensor(1))
    assert out.logits.shape == (3, 7)
    assert out.features.shape == (3, model.features)
    assert torch.allclose(out.logits, module.eval()(x), atol=1e-5)
    assert torch.allclose(module.fc(out.features), out.logits, atol=1e-5)
    assert options.head == prepare(module, None, shape, 7).head  # the guess finds it too


@pytest.mark.parametrize("dtype", [None, torch.float64])
def test_memory_for_a_network_of_the_meta_device(dtype: torch.dtype | None) -> None:
    """Of the kinds of a network that was made where the memory is; buffers keep their type."""

    def made() -> nn.Module:
        net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(2, 3, bias=False))
        net[2].weight.requires_grad_(False)
        return net

    with torch.device("meta"):
        ours = made()
    assert allocate(ours, dtype=dtype) is ours
    theirs = made()
    assert {n: t.shape for n, t in ours.state_dict().items()} == {n: t.shape for n, t in theirs.state_dict().items()}
    for t, like in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert (t.device, t.requires_grad, t.dtype) == (like.device, like.requires_grad, dtype or like.dtype)
    assert [(b.device, b.dtype) for b in ours.buffers()] == [(b.device, b.dtype) for b in theirs.buffers()]
