"""ResNet-18, ResNet-9 and the networks of two libraries: counts, layers, prepared copies, vmap, errors."""

import dataclasses
import pickle
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import yaml
from torch import nn

from fedskew.errors import ConfigError
from fedskew.models.architectures import MODELS, PflCNN, PFLlibCNN, ResNet9, ResNet18, build
from fedskew.models.prepare import prepare

CIFAR, MNIST, TINY = (3, 32, 32), (1, 28, 28), (3, 64, 64)
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
]
# one of each kind, small enough for a test
SMALL = {
    "resnet18": (ResNet18(), (3, 8, 8)),
    "resnet18_group": (ResNet18(norm="group"), (3, 8, 8)),
    "resnet18_imagenet": (ResNet18(stem="imagenet", norm="group", groups=4), (3, 16, 16)),
    "resnet9": (ResNet9(width=12), CIFAR),
    "pfl_cnn": (PflCNN(), (3, 12, 12)),
    "pfllib_cnn": (PFLlibCNN(hidden=9), MNIST),
}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("options", "shape", "classes", "count"), COUNTS, ids=lambda v: str(v))
def test_parameter_counts(options, shape, classes, count):
    with torch.device("meta"):  # counted without drawing thirty million weights
        module = options.build(shape, classes)
    assert sum(p.numel() for p in module.parameters()) == count


def test_resnet9_is_the_network_of_the_protocols():
    text = (Path(__file__).parents[1] / "docs/protocols/protocols.yaml").read_text(encoding="utf-8")
    stated = yaml.safe_load(text)["fedla"]["tasks"]["CIFAR-100"]["model"]
    assert re.search(r"\((\d+) params", stated)[1] == "30441528"
    with torch.device("meta"):
        net = ResNet9().build(CIFAR, 100)
    convolutions = [m for m in net.modules() if isinstance(m, nn.Conv2d)]
    assert [c.out_channels for c in convolutions] == [64, 128, 128, 128, 256, 512, 512, 512, 1028, 1028, 1028]
    assert all(c.bias is not None and c.kernel_size == (3, 3) for c in convolutions)
    assert sum(isinstance(m, nn.BatchNorm2d) for m in net.modules()) == 11 and net.fc.in_features == 1028


def test_the_flattened_widths_are_those_of_the_libraries():
    with torch.device("meta"):
        assert PFLlibCNN().build(MNIST, 10).hidden1.in_features == 1024
        assert PFLlibCNN().build(CIFAR, 10).hidden1.in_features == 1600
        assert PflCNN().build(CIFAR, 10).hidden1.in_features == 14 * 14 * 64
        dropouts = [layer.p for layer in PflCNN().build(CIFAR, 10) if isinstance(layer, nn.Dropout)]
    assert dropouts == [0.25, 0.5]


@pytest.mark.parametrize("name", SMALL)
def test_prepared_networks_give_the_module_s_logits(name):
    options, shape = SMALL[name]
    module = build(options, shape, 7, seed=3)
    model = prepare(module, options.head, shape, 7)
    x, mask = torch.rand(3, *shape), torch.ones(3)
    out, _ = model.forward(model.params, model.buffers, x, mask, train=False, key=torch.tensor(1))
    assert out.logits.shape == (3, 7) and out.features.shape == (3, model.features)
    assert torch.allclose(out.logits, module.eval()(x), atol=1e-5)
    assert torch.allclose(module.fc(out.features), out.logits, atol=1e-5)
    assert prepare(module, None, shape, 7).head == "fc"


@pytest.mark.parametrize("name", [name for name in SMALL if name != "resnet18_group"])
def test_vmap_of_grad_equals_a_loop(name):
    """Two clients with weights, rows and keys of their own, one batch each, one padded row."""
    options, shape = SMALL[name]
    model = prepare(build(options, shape, 5, seed=0), "fc", shape, 5).to(torch.float64)
    stacked = {k: torch.stack([v, v * 1.01]) for k, v in model.params.items()}
    buffers = {k: torch.stack([v] * 2) for k, v in model.buffers.items()}
    x = torch.rand(2, 3, *shape, dtype=torch.float64)
    hot = torch.eye(5, dtype=torch.float64)[torch.arange(6).reshape(2, 3) % 5]
    mask, keys = torch.tensor([1.0, 1, 0], dtype=torch.float64).expand(2, 3), torch.tensor([1, 2])

    def loss(params, buffers, x, hot, mask, key):
        out, after = model.forward(params, buffers, x, mask, train=True, key=key)
        rows = -(hot * F.log_softmax(out.logits, 1)).sum(1)
        return (rows * mask).sum() / mask.sum(), after

    grad = torch.func.grad(loss, has_aux=True)
    together = torch.func.vmap(grad)(stacked, buffers, x, hot, mask, keys)
    for i in range(2):
        alone = grad(*({k: v[i] for k, v in d.items()} for d in (stacked, buffers)), x[i], hot[i], mask[i], keys[i])
        for mine, theirs in zip(together, alone, strict=True):
            for key, value in theirs.items():
                assert torch.allclose(mine[key][i], value, rtol=1e-8, atol=1e-9), key


def test_resnet18_s_shortcut_is_option_b():
    net = build("resnet18", (3, 8, 8), 10, 0).eval()
    assert isinstance(net.stage1_block1.shortcut, nn.Identity)
    block = net.stage2_block1
    for conv in (block.conv1, block.conv2):
        nn.init.zeros_(conv.weight)
    x = torch.rand(2, 64, 8, 8)
    out = block(x)
    assert out.shape == (2, 128, 4, 4)
    assert torch.allclose(out, F.relu(block.shortcut.conv(x)), atol=1e-4)  # fresh statistics are 0 and 1


@pytest.mark.parametrize(("stem", "side"), [("cifar", 32), ("imagenet", 8)])
def test_the_stem_decides_the_first_size(stem, side):
    with torch.device("meta"):
        net = ResNet18(stem=stem).build(CIFAR, 10)
        trunk = net[: list(dict(net.named_children())).index("stage1_block1")]
        assert trunk(torch.empty(1, *CIFAR)).shape == (1, 64, side, side)


def test_group_norm_keeps_no_statistics():
    with torch.device("meta"):
        net = ResNet18(norm="group").build(CIFAR, 10)
    groups = {m.num_groups for m in net.modules() if isinstance(m, nn.GroupNorm)}
    assert groups == {32} and not list(net.buffers())


def test_weights_are_drawn_as_the_options_say():
    pfl, lib = build("pfl_cnn", (3, 12, 12), 10, 0), build("pfllib_cnn", MNIST, 10, 0)
    for layer in (pfl.conv2, pfl.hidden1):
        bound = (6 / (layer.weight[0].numel() + layer.weight[:, 0].numel())) ** 0.5
        assert 0.98 * bound < layer.weight.abs().max() <= bound
        assert layer.bias.abs().max() <= layer.weight[0].numel() ** -0.5
    assert 0.98 < lib.hidden1.weight.abs().max() * 1024**0.5 <= 1
    assert torch.equal(pfl.conv2.weight, build("pfl_cnn", (3, 12, 12), 99, 0).conv2.weight)
    weight = build("resnet18", (3, 8, 8), 10, 0).stage4_block2.conv1.weight
    assert weight.std().item() == pytest.approx((2 / weight[0].numel()) ** 0.5, rel=0.01)


def test_the_options_are_values_of_the_table():
    for options in (ResNet18(stem="imagenet"), ResNet9(width=8), PflCNN(dropout=0), PFLlibCNN(hidden=3)):
        assert MODELS[options.name] is type(options)
        assert pickle.loads(pickle.dumps(options)) == options and type(options).__name__ in repr(options)
        with pytest.raises(dataclasses.FrozenInstanceError):
            options.name = "other"


BAD = {
    "shape must be large enough for model 'resnet9'; got (1, 28, 28); try": lambda: build(ResNet9(), MNIST, 10, 0),
    "large enough for model 'pfl_cnn'; got (1, 4, 4)": lambda: build("pfl_cnn", (1, 4, 4), 10, 0),
    "large enough for model 'pfllib_cnn'; got (1, 8, 8)": lambda: build("pfllib_cnn", (1, 8, 8), 10, 0),
    "be (channels, height, width); got (13,); model 'resnet18'": lambda: build("resnet18", (13,), 10, 0),
    "be (channels, height, width); got (13,); model 'resnet9'": lambda: build("resnet9", (13,), 10, 0),
    "be (channels, height, width); got (13,); model 'pfl_cnn'": lambda: build("pfl_cnn", (13,), 10, 0),
    "be (channels, height, width); got (28, 28); model 'pfllib": lambda: build("pfllib_cnn", (28, 28), 10, 0),
    "unknown model 'resnet-18'; did you mean 'resnet18'?": lambda: build("resnet-18", CIFAR, 10, 0),
    "ResNet18.stem must be one of cifar, imagenet; got 'tiny'": lambda: ResNet18(stem="tiny"),
    "ResNet18.norm must be one of batch, group; got 'layer'": lambda: ResNet18(norm="layer"),
    "ResNet18.groups must divide 64; got 48": lambda: ResNet18(norm="group", groups=48),
    "ResNet9.width must be at least 1; got 0": lambda: ResNet9(width=0),
    "PflCNN.dropout must be in [0, 1); got 1": lambda: PflCNN(dropout=1),
    "PflCNN.dropout_conv must be in [0, 1); got -0.1": lambda: PflCNN(dropout_conv=-0.1),
    "PFLlibCNN.hidden must be at least 1; got 0": lambda: PFLlibCNN(hidden=0),
}


@pytest.mark.parametrize("message", BAD)
def test_errors_are_one_line(message):
    with pytest.raises(ConfigError) as caught:
        BAD[message]()
    assert message in str(caught.value) and "\n" not in str(caught.value)
