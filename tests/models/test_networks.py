"""The networks: parameter counts of the papers' protocols, layers, and weights that depend on the seed alone."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedskew.models.architectures import (
    MLP,
    TFCNN,
    ConvNet,
    EmnistCNN,
    LeNet,
    Logistic,
    PflCNN,
    PFLlibCNN,
    ResNet9,
    ResNet18,
    ResNet20,
    SeolKimCNN,
    TwoNN,
    build,
)
from support.networks import CIFAR, DIGITS, MNIST, NARROW, TINY, NarrowResNet18
from support.paths import ROOT

COUNTS = [
    (ResNet18(), CIFAR, 10, 11173962),
    (ResNet18(norm="group"), CIFAR, 10, 11173962),
    (ResNet18(stem="imagenet"), CIFAR, 10, 11181642),
    (ResNet18(stem="imagenet"), (3, 224, 224), 1000, 11689512),  # the well-known number
    (ResNet18(), TINY, 200, 11271432),
    (ResNet9(), CIFAR, 100, 30441528),
    (PflCNN(), CIFAR, 10, 1626442),
    (PflCNN(), MNIST, 62, 1206590),
    (PFLlibCNN(), MNIST, 10, 582026),
    (PFLlibCNN(), CIFAR, 10, 878538),
    (TwoNN(), MNIST, 10, 199210),  # of McMahan et al.
    (ConvNet(), CIFAR, 10, 482506),
    (ConvNet(), CIFAR, 100, 3811876),
    (MLP(), MNIST, 10, 101770),
    (LeNet(), CIFAR, 10, 62006),
    (ResNet20(), CIFAR, 100, 275572),
    (ResNet20(norm="group"), CIFAR, 100, 275572),  # as many as with batch normalisation
    (ResNet20(), TINY, 200, 282072),
    (SeolKimCNN(pools=2), CIFAR, 10, 1514826),
    (SeolKimCNN(pools=1), CIFAR, 10, 7363914),
    (Logistic(), MNIST, 10, 7850),
    (TFCNN(), CIFAR, 10, 66560),
    (TFCNN(form="tutorial"), CIFAR, 10, 122570),
    (EmnistCNN(), MNIST, 47, 23727),
]


def size(model, shape, classes):
    return sum(p.numel() for p in build(model, shape, classes, 0).parameters())


@pytest.mark.parametrize(("options", "shape", "classes", "count"), COUNTS, ids=lambda v: str(v))
def test_parameter_counts(options, shape, classes, count):
    with torch.device("meta"):  # counted without drawing thirty million weights
        module = options.build(shape, classes)
    assert sum(p.numel() for p in module.parameters()) == count


def test_every_count_of_the_protocols_is_compared():
    text = (ROOT / "notes/protocols.yaml").read_text(encoding="utf-8")
    stated = re.findall(r"(\d+) params", text) + re.findall(r"\bC100?: (\d+)", text)
    assert 482506 in (found := {int(number) for number in stated}) and len(found) > 10
    assert found <= {count for *_, count in COUNTS}


# Layers


def test_pfl_research_drops_a_quarter_and_a_half():
    with torch.device("meta"):
        net = PflCNN().build(CIFAR, 10)
    assert [layer.p for layer in net if isinstance(layer, nn.Dropout)] == [0.25, 0.5]


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


def test_resnet18_s_shortcut_is_option_b():
    net = build(NARROW["resnet18"], (3, 8, 8), 10, 0).eval()
    assert isinstance(net.stage1_block1.shortcut, nn.Identity)
    block = net.stage2_block1
    for conv in (block.conv1, block.conv2):
        nn.init.zeros_(conv.weight)
    x = torch.rand(2, 64, 8, 8)
    out = block(x)
    assert out.shape == (2, 64, 4, 4)
    assert torch.allclose(out, F.relu(block.shortcut.conv(x)), atol=1e-4)  # fresh statistics are 0 and 1


@pytest.mark.parametrize(("stem", "side"), [("cifar", 32), ("imagenet", 8)])
def test_the_stem_decides_the_first_size(stem, side):
    net = NarrowResNet18(stem=stem).build(CIFAR, 10)
    trunk = net[: list(dict(net.named_children())).index("stage1_block1")]
    assert trunk(torch.zeros(1, *CIFAR)).shape == (1, 64, side, side)


def test_emnist_cnn_has_both_dropouts_and_no_log_softmax():
    net = build(EmnistCNN(dropout=0.25), MNIST, 47, 0)
    assert [type(layer) for layer in net if hasattr(layer, "p")] == [nn.Dropout2d, nn.Dropout]
    assert all(layer.p == 0.25 for layer in net if hasattr(layer, "p"))
    assert not torch.allclose(net(torch.rand(2, *MNIST)).exp().sum(1), torch.ones(2))


def test_group_norm_keeps_no_statistics():
    with torch.device("meta"):
        net = ResNet18(norm="group").build(CIFAR, 10)
    groups = {m.num_groups for m in net.modules() if isinstance(m, nn.GroupNorm)}
    assert groups == {32} and not list(net.buffers())


# Weights


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


def test_weights_are_drawn_as_the_options_say():
    pfl, lib = build("pfl_cnn", (3, 12, 12), 10, 0), build("pfllib_cnn", MNIST, 10, 0)
    for layer in (pfl.conv2, pfl.hidden1):
        bound = (6 / (layer.weight[0].numel() + layer.weight[:, 0].numel())) ** 0.5
        assert 0.98 * bound < layer.weight.abs().max() <= bound
        assert layer.bias.abs().max() <= layer.weight[0].numel() ** -0.5
    assert 0.98 < lib.hidden1.weight.abs().max() * 1024**0.5 <= 1
    assert torch.equal(pfl.conv2.weight, build("pfl_cnn", (3, 12, 12), 99, 0).conv2.weight)
    weight = build(NARROW["resnet18"], (3, 8, 8), 10, 0).stage4_block2.conv1.weight
    assert weight.std().item() == pytest.approx((2 / weight[0].numel()) ** 0.5, rel=0.01)
