"""`prepare`: equal to torch where torch is defined, blind to padding, pure, and safe under torch.func."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import grad, grad_and_value, vmap

import fedskew as fs
from fedskew import rng, tree
from fedskew.errors import ConfigError
from fedskew.models.architectures import build
from fedskew.models.prepare import Model, prepare

KEY = rng.key(0, "test")
D = torch.float64


def rand(*shape, seed=0, dtype=D):
    return rng.normal(rng.key(seed, "data"), shape, dtype)


def run(model, x, mask=None, train=True, key=KEY, params=None, buffers=None):
    mask = x.new_ones(len(x)) if mask is None else mask
    params = model.params if params is None else params
    return model.forward(params, model.buffers if buffers is None else buffers, x, mask, train=train, key=key)


class Made(nn.Module):
    """A network of these layers, by default a classifier of four numbers, whose forward is this function."""

    def __init__(self, forward, **layers):
        super().__init__()
        self.run = forward
        for name, layer in (layers or {"fc": nn.Linear(4, 3)}).items():
            setattr(self, name, layer)

    def forward(self, x):
        return self.run(self, x)


@pytest.fixture
def net():
    return build_net()


def build_net(p=0.5):
    """Everything that is converted, in one small network."""

    def forward(m, x):
        x = m.drop2(torch.relu(m.bn(m.conv(x)))).flatten(1)
        return m.fc(m.drop(torch.relu(m.bn1(m.hidden(x)))))

    module = Made(
        forward, conv=nn.Conv2d(1, 4, 3), bn=nn.BatchNorm2d(4), drop2=nn.Dropout2d(p), hidden=nn.Linear(4 * 16, 8),
        bn1=nn.BatchNorm1d(8), drop=nn.Dropout(p), fc=nn.Linear(8, 3),
    ).double()  # fmt: skip
    with torch.no_grad():
        for i, value in enumerate(module.parameters()):
            value.copy_(rand(*value.shape, seed=i) * 0.4 + 0.1)
    return module


def norm(kind, shape, **options):
    """A model made of one BatchNorm, as the features, and a head."""
    module = nn.Sequential(kind(shape[0], **options), nn.Flatten(), nn.Linear(int(np.prod(shape)), 2)).double()
    with torch.no_grad():
        for i, value in enumerate(module.parameters()):
            value.copy_(rand(*value.shape, seed=10 + i))
    return module


# --- facts, heads -----------------------------------------------------------------------------------------------------


def test_facts(net):
    model = prepare(net, "fc", (1, 6, 6), 3)
    assert (model.head, model.classes, model.features, model.shape) == ("fc", 3, 8, (1, 6, 6))
    assert list(model.params) == [name for name, _ in net.named_parameters()]
    assert list(model.buffers) == [name for name, _ in net.named_buffers()]
    assert model.parameter_count == sum(p.numel() for p in net.parameters())
    assert model.layer_kinds == {"Conv2d", "BatchNorm2d", "BatchNorm1d", "Dropout", "Dropout2d", "Linear"}
    task = model.task(clients=5, rounds=2)
    assert (task.weight, task.features, task.clients) == ("fc.weight", 8, 5)
    assert "head='fc'" in repr(model) and "\n" not in repr(model)


def test_values_are_independent_of_the_module(net):
    model = prepare(net, "fc", (1, 6, 6), 3)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    for value in model.params.values():
        assert not value.requires_grad and type(value) is torch.Tensor
        value.zero_()
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert type(net.bn) is nn.BatchNorm2d and type(net.drop) is nn.Dropout
    assert not net.fc._forward_pre_hooks


@pytest.mark.parametrize("head", ["fc", None])
def test_features_are_what_enters_the_head(net, head):
    model = prepare(net, head, (1, 6, 6), 3)
    out, _ = run(model, rand(5, 1, 6, 6))
    assert torch.allclose(F.linear(out.features, net.fc.weight, net.fc.bias), out.logits)
    assert out.features.requires_grad is False


def test_module_that_is_its_own_head():
    model = prepare(nn.Linear(4, 3), None, (4,), 3)
    assert model.head == "" and list(model.params) == ["weight", "bias"]
    x = rand(2, 4, dtype=torch.float32)
    assert torch.equal(run(model, x)[0].features, x)


def test_head_may_be_any_layer_with_a_matrix():
    cosine = Made(lambda m, x: F.normalize(x) @ F.normalize(m.weight).T, weight=nn.Parameter(torch.randn(3, 4)))
    assert prepare(nn.Sequential(nn.Linear(4, 4), cosine), "1", (4,), 3).features == 4


def test_head_called_by_keyword():
    assert prepare(Made(lambda m, x: m.fc(input=x)), "fc", (4,), 3).features == 4


def two_layers(**layers):
    return nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3))


def frozen_head():
    module = two_layers()
    module[1].weight.requires_grad_(False)
    return module


BAD_HEADS = {
    "unknown head 'fc1'; did you mean 'fc'": (build_net, "fc1", (1, 6, 6)),
    "head must be a layer with its own trainable weight [classes, features]; got 'conv (Conv2d)'": (
        build_net, "conv", (1, 6, 6)),
    "head 'hidden' must have weight [3, features]; got (8, 64)": (build_net, "hidden", (1, 6, 6)),
    "head '0' must have weight [3, features]": (two_layers, "0", (4,)),
    "trainable weight [classes, features]; got '1 (Linear)'": (frozen_head, "1", (4,)),
    "head must name the classifier layer; got None": (lambda: nn.Conv2d(1, 3, 3), None, (1, 6, 6)),
    "head 'fc' must be called in forward": (lambda: Made(lambda m, x: F.linear(x, m.fc.weight)), "fc", (4,)),
    "model must return logits [B, 3]; got 'tuple'": (lambda: Made(lambda m, x: (m.fc(x),)), "fc", (4,)),
    "model must return logits [B, 3]; got (2, 1)": (lambda: Made(lambda m, x: m.fc(x)[:, :1]), "fc", (4,)),
    "model must return logits [B, 3]; got (2, 7, 3)": (two_layers, "1", (7, 4)),
    "model must accept rows of shape (9,); got RuntimeError": (two_layers, "1", (9,)),
}  # fmt: skip


@pytest.mark.parametrize("message", BAD_HEADS)
def test_head_errors(message):
    make, head, shape = BAD_HEADS[message]
    with pytest.raises(ConfigError) as caught:
        prepare(make(), head, shape, 3)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


# --- dropout ----------------------------------------------------------------------------------------------------------


def dropper(layer, shape):
    return prepare(nn.Sequential(layer, nn.Flatten(), nn.Linear(int(np.prod(shape)), 2)), "2", shape, 2)


def test_dropout_keeps_its_share_and_scale():
    model = dropper(nn.Dropout(0.3), (50,))
    kept = run(model, torch.ones(400, 50))[0].features
    assert kept.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    assert (kept > 0).float().mean().item() == pytest.approx(0.7, abs=0.01)


def test_dropout_depends_on_the_key_alone():
    model = dropper(nn.Dropout(0.5), (50,))
    x = torch.ones(4, 50)
    before = torch.get_rng_state()
    one, two = run(model, x)[0].features, run(model, x)[0].features
    assert torch.equal(one, two)
    assert torch.equal(one, run(model.clone(), x)[0].features)
    assert not torch.equal(one, run(model, x, key=rng.fold(KEY, 1))[0].features)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Dropout(0.5), (6,)),
        (nn.Dropout(0.5), (3, 4, 4)),
        (nn.Dropout1d(0.5), (6, 4)),
        (nn.Dropout2d(0.5), (6, 4, 4)),
        (nn.Dropout3d(0.5), (6, 2, 2, 2)),
    ],
)
def test_padded_rows_change_no_draw(layer, shape):
    model = dropper(layer, shape)
    x = torch.ones(3, *shape)
    padded = torch.cat([x, torch.zeros(4, *shape)])
    mask = torch.tensor([1.0] * 3 + [0.0] * 4)
    assert torch.equal(run(model, x)[0].features, run(model, padded, mask)[0].features[:3])


@pytest.mark.parametrize(
    ("layer", "shape"), [(nn.Dropout1d, (40, 3)), (nn.Dropout2d, (40, 3, 2)), (nn.Dropout3d, (40, 2, 2, 2))]
)
def test_channel_dropout_takes_whole_channels(layer, shape):
    model = dropper(layer(0.5), shape)
    kept = run(model, torch.ones(20, *shape))[0].features.reshape(20, 40, -1)
    assert ((kept == 0).all(2) | (kept == 2).all(2)).all()
    assert (kept > 0).float().mean().item() == pytest.approx(0.5, abs=0.06)


def test_dropout_is_the_identity_in_evaluation_and_at_p_0():
    x = torch.rand(4, 50)
    assert torch.equal(run(dropper(nn.Dropout(0.5), (50,)), x, train=False)[0].features, x)
    assert torch.equal(run(dropper(nn.Dropout(0.0), (50,)), x)[0].features, x)
    assert not run(dropper(nn.Dropout(1.0), (50,)), x)[0].features.any()


def test_one_dropout_used_twice_draws_twice():
    twice = Made(lambda m, x: m.fc(torch.cat([m.drop(x), m.drop(x)], 1)), drop=nn.Dropout(0.5), fc=nn.Linear(128, 2))
    a, b = run(prepare(twice, None, (64,), 2), torch.ones(8, 64))[0].features.split(64, 1)
    assert not torch.equal(a, b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_row_drops_the_same_elements_in_every_precision(dtype):
    model = dropper(nn.Dropout(0.4), (300,))
    expected = run(model, torch.ones(4, 300))[0].features > 0
    got = run(model.to(dtype), torch.ones(4, 300, dtype=dtype))[0].features
    assert got.dtype == dtype
    assert torch.equal(got > 0, expected)


def test_subclass_that_keeps_forward_is_converted():
    class Mine(nn.Dropout):
        pass

    assert (run(dropper(Mine(0.5), (50,)), torch.ones(2, 50))[0].features == 0).any()


# --- BatchNorm --------------------------------------------------------------------------------------------------------

NORMS = [(nn.BatchNorm1d, (3,)), (nn.BatchNorm1d, (3, 5)), (nn.BatchNorm2d, (3, 4, 2)), (nn.BatchNorm3d, (3, 2, 2, 3))]
OPTIONS = [
    {}, {"momentum": 0.3}, {"momentum": None}, {"affine": False}, {"track_running_stats": False}, {"eps": 0.1},
]  # fmt: skip
SMALL_NET = ((1, 6, 6), 3)


def slow(x):
    """A mask of ones that takes the masked formula: one more row, padded."""
    return torch.cat([x, torch.full_like(x[:1], 7.0)]), torch.cat([x.new_ones(len(x)), x.new_zeros(1)])


@pytest.mark.parametrize("padded", [False, True], ids=["fused", "masked"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("kind", "shape"), NORMS)
def test_batch_norm_equals_torch_over_steps(kind, shape, options, padded):
    """Outputs, gradients and running statistics, over three steps of different sizes, then in evaluation mode."""
    module = norm(kind, shape, **options)
    model = prepare(module, "2", shape, 2)
    buffers = model.buffers
    params = {name: value.clone().requires_grad_() for name, value in model.params.items()}
    for step, rows in enumerate((5, 2, 9)):
        x = rand(rows, *shape, seed=step) * (step + 1) + step
        ours, mask = slow(x) if padded else (x, x.new_ones(rows))
        out, buffers = run(model, ours, mask, params=params, buffers=buffers)
        expected = module(x)
        assert torch.allclose(out.logits[:rows], expected, atol=1e-10)
        got = torch.autograd.grad((out.logits[:rows] ** 2).sum(), list(params.values()))
        for a, b in zip(got, torch.autograd.grad((expected**2).sum(), list(module.parameters())), strict=True):
            assert torch.allclose(a, b, atol=1e-7)
        assert set(buffers) == {name for name, _ in module.named_buffers()}
        for name, value in module.named_buffers():
            assert buffers[name].dtype == value.dtype and not buffers[name].requires_grad
            assert torch.allclose(buffers[name], value, atol=1e-10), name
    module.eval()
    if options.get("track_running_stats", True):  # without them, torch's statistics would include the padded row
        ours, mask = slow(x)
        out, after = run(model, ours, mask, train=False, buffers=buffers)
        assert torch.allclose(out.logits[: len(x)], module(x), atol=1e-10)
        assert after is buffers
    assert torch.allclose(run(model, x, train=False, buffers=buffers)[0].logits, module(x), atol=1e-10)


def test_batch_norm_in_float32_equals_torch_to_1e_6():
    module = norm(nn.BatchNorm2d, (3, 8, 8)).float()
    model = prepare(module, "2", (3, 8, 8), 2)
    x = rand(16, 3, 8, 8, dtype=torch.float32) * 0.02  # a variance near eps is the hard case for the fused kernel
    expected = module[0](x).flatten(1)
    for ours, mask in ((x, torch.ones(16)), slow(x)):
        out, buffers = run(model, ours, mask)
        assert torch.allclose(out.features[:16], expected, atol=1e-6, rtol=1e-5)
        for name, value in module.named_buffers():
            assert torch.allclose(buffers[name], value, atol=1e-6), name


def test_padded_row_may_stand_anywhere(net):
    model = prepare(build_net(p=0.0), "fc", *SMALL_NET)
    x = rand(4, 1, 6, 6)
    mask = torch.tensor([1.0, 0.0, 1.0, 1.0], dtype=D)
    keep = mask.bool()
    one, two = run(model, x, mask), run(model, x[keep])
    assert torch.allclose(one[0].logits[keep], two[0].logits, atol=1e-10)
    assert all(torch.allclose(one[1][n], two[1][n], atol=1e-10) for n in one[1])


def test_fully_masked_batch_changes_nothing():
    """Twenty BatchNorms in a row: without care padded rows would grow by 1/sqrt(eps) at each."""
    model = prepare(build("resnet20", (1, 8, 8), 10, 0), "fc", (1, 8, 8), 10)
    params = {name: value.clone().requires_grad_() for name, value in model.params.items()}
    x, mask = torch.rand(3, 1, 8, 8), torch.zeros(3)
    out, buffers = run(model, x, mask, params=params)
    assert out.logits.isfinite().all()
    assert all(torch.equal(buffers[n], model.buffers[n]) for n in buffers)
    loss = (out.logits.sum(1) * mask).sum()
    assert all(g.isfinite().all() for g in torch.autograd.grad(loss, list(params.values())))


@pytest.mark.parametrize("padded", [False, True], ids=["fused", "masked"])
def test_one_real_element_stays_finite(padded):
    """torch refuses to train on one value; here var = 0 normalises it and the running variance stays."""
    module = norm(nn.BatchNorm1d, (3,))
    model = prepare(module, "2", (3,), 2)
    x = rand(1, 3)
    with pytest.raises(ValueError, match="Expected more than 1 value"):
        module(x)
    ours, mask = slow(x) if padded else (x, x.new_ones(1))
    params = {name: value.clone().requires_grad_() for name, value in model.params.items()}
    out, buffers = run(model, ours, mask, params=params)
    assert torch.allclose(out.features[0], module[0].bias)
    assert torch.equal(buffers["0.running_var"], torch.ones(3, dtype=D))
    assert torch.allclose(buffers["0.running_mean"], 0.1 * x[0])
    assert buffers["0.num_batches_tracked"] == 1
    assert all(g.isfinite().all() for g in torch.autograd.grad((out.logits[0] ** 2).sum(), list(params.values())))


def test_one_batch_norm_used_twice_updates_twice():
    module = Made(lambda m, x: m.fc(m.bn(m.bn(x) + 1)), bn=nn.BatchNorm1d(4), fc=nn.Linear(4, 2)).double()
    model = prepare(module, None, (4,), 2)
    x = rand(6, 4)
    out, buffers = run(model, x)
    assert torch.allclose(out.logits, module(x))
    assert all(torch.allclose(buffers[n], b) for n, b in module.named_buffers())
    assert buffers["bn.num_batches_tracked"] == 2


def test_inputs_are_never_written(net):
    model = prepare(net, "fc", *SMALL_NET)
    params, buffers = tree.map_tree(torch.clone, model.params), tree.map_tree(torch.clone, model.buffers)
    for train in (True, False):
        run(model, rand(5, 1, 6, 6), train=train, params=params, buffers=buffers)
    assert all(torch.equal(params[n], model.params[n]) for n in params)
    assert all(torch.equal(buffers[n], model.buffers[n]) for n in buffers)


def test_batch_norm_where_axis_0_is_not_the_batch_is_refused():
    def forward(m, x):  # [B, T, 4]
        return m.fc(m.bn(x.flatten(0, 1)).reshape(x.shape).mean(1))

    with pytest.raises(ConfigError, match="layer 'bn' must see one row a sample"):
        prepare(Made(forward, bn=nn.BatchNorm1d(4), fc=nn.Linear(4, 2)), None, (5, 4), 2)


# --- torch.func -------------------------------------------------------------------------------------------------------


def per_client(model, K=3, B=5, shape=(1, 6, 6)):
    """K clients' parameters, buffers, rows, ragged masks and keys, stacked."""
    params = {n: torch.stack([v + 0.05 * rand(*v.shape, seed=k) for k in range(K)]) for n, v in model.params.items()}
    buffers = {
        n: torch.stack([v + (k if v.is_floating_point() else 0) for k in range(K)]) for n, v in model.buffers.items()
    }
    masks = torch.stack([(torch.arange(B) < B - k).to(D) for k in range(K)])
    keys = torch.stack([rng.key(1, k) for k in range(K)])
    return params, buffers, rand(K, B, *shape), masks, keys


@pytest.mark.parametrize("train", [True, False])
def test_vmap_of_gradients_equals_a_loop(net, train):
    model = prepare(net, "fc", *SMALL_NET)
    args = per_client(model)

    def loss(params, buffers, x, mask, key):
        out, new = model.forward(params, buffers, x, mask, train=train, key=key)
        return (out.logits.square().sum(1) * mask).sum() + (out.features.norm(dim=1) * mask).sum(), (out, new)

    grads, (value, (out, new)) = vmap(grad_and_value(loss, has_aux=True))(*args)
    for k in range(3):
        mine = [tree.row(a, k) for a in args]
        params = {n: v.clone().requires_grad_() for n, v in mine[0].items()}
        expected, (out_k, new_k) = loss(params, *mine[1:])
        assert torch.allclose(value[k], expected, atol=1e-10)
        real = args[3][k].bool()
        assert torch.allclose(out.logits[k][real], out_k.logits[real], atol=1e-10)
        g = torch.autograd.grad(expected, list(params.values()))
        assert all(torch.allclose(grads[n][k], b, atol=1e-8) for n, b in zip(params, g, strict=True))
        assert all(torch.allclose(new[n][k], new_k[n], atol=1e-10) for n in new_k)


def test_vmap_with_a_common_mask(net):
    """A mask that is not batched can be read inside vmap: the fused kernel must work there too."""
    model = prepare(net, "fc", *SMALL_NET)
    params, buffers, x, _, keys = per_client(model)
    call = lambda p, b, x, key: run(model, x, key=key, params=p, buffers=b)
    out, new = vmap(call)(params, buffers, x, keys)
    for k in range(3):
        one, new_k = call(tree.row(params, k), tree.row(buffers, k), x[k], keys[k])
        assert torch.allclose(out.logits[k], one.logits, atol=1e-10)
        assert all(torch.allclose(new[n][k], new_k[n], atol=1e-10) for n in new_k)


def test_vmap_over_a_fully_masked_client(net):
    model = prepare(net, "fc", *SMALL_NET)
    params, buffers, x, masks, keys = per_client(model)
    masks[1] = 0
    call = lambda p, b, x, mask, key: run(model, x, mask, params=p, buffers=b, key=key)
    out, new = vmap(call)(params, buffers, x, masks, keys)
    assert out.logits.isfinite().all()
    assert all(torch.equal(new[n][1], buffers[n][1]) for n in new)


def test_second_derivatives():
    """Per-FedAvg differentiates through a gradient step."""
    model = prepare(build_net(0.0), "fc", *SMALL_NET)
    x = rand(5, 1, 6, 6)

    def penalty_gradient(x, mask):
        params = {n: v.clone().requires_grad_() for n, v in model.params.items()}
        loss = run(model, x, mask, params=params)[0].logits[:5].square().sum()
        first = torch.autograd.grad(loss, list(params.values()), create_graph=True)
        return torch.autograd.grad(sum((g * g).sum() for g in first), list(params.values()))

    fused, masked = penalty_gradient(x, torch.ones(5, dtype=D)), penalty_gradient(*slow(x))
    for a, b in zip(fused, masked, strict=True):
        assert torch.allclose(a, b, rtol=1e-6, atol=1e-6)
    first = grad(lambda p: run(model, x, params=p)[0].logits.square().sum())
    nested = grad(lambda p: sum((g * g).sum() for g in first(p).values()))(model.params)
    for a, b in zip(fused, nested.values(), strict=True):
        assert torch.allclose(a, b, rtol=1e-6, atol=1e-6)


# --- copies, threads, precision ---------------------------------------------------------------------------------------


WAYS = {
    "clone": Model.clone,
    "deepcopy": copy.deepcopy,
    "pickle": lambda m: pickle.loads(pickle.dumps(m)),
    "to": lambda m: m.to(D),
}


@pytest.mark.parametrize("way", WAYS)
def test_copies_keep_what_a_model_was_made_with(way):
    net, again = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4), nn.Linear(4, 3)), WAYS[way]
    model = prepare(net, None, (4,), 3, narrow=torch.bfloat16).clone(unpadded=True)
    for other in (again(model), again(again(model))):
        assert other.narrow is torch.bfloat16 and other.unpadded is True
        assert other.clone(unpadded=False).unpadded is False and other.unpadded is True


def test_a_narrow_model_is_probed_in_its_own_precision():
    """A module of float64, which autocast does not round, is still taken."""
    model = prepare(nn.Linear(3, 2).double(), "", (3,), 2, narrow=torch.bfloat16)
    assert model.params["weight"].dtype == torch.float64 and model.narrow is torch.bfloat16


@pytest.mark.parametrize("way", WAYS)
def test_copies_are_equal_and_independent(way):
    net = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(36), nn.Dropout(0.5), nn.Linear(36, 3)).double()
    model, again = prepare(net, None, *SMALL_NET), WAYS[way]
    other = again(model)
    x = rand(5, 1, 6, 6)
    assert torch.equal(run(model, x)[0].logits, run(other, x)[0].logits)
    expected = run(model, x)[0].logits
    assert other._call is not model._call
    for value in other.params.values():
        value.zero_()
    assert torch.equal(run(model, x)[0].logits, expected)
    assert not run(other, x)[0].logits.any()


def test_one_copy_refuses_two_threads(net):
    model = prepare(net, "fc", *SMALL_NET)
    model._call.active = True
    with pytest.raises(RuntimeError, match=r"Model\.clone"):
        run(model, rand(2, 1, 6, 6))


def test_an_error_leaves_the_model_usable(net):
    model = prepare(net, "fc", *SMALL_NET)
    with pytest.raises(RuntimeError):
        run(model, rand(2, 1, 5, 5))
    with pytest.raises(KeyError):
        run(model, rand(2, 1, 6, 6), params={})
    assert run(model, rand(2, 1, 6, 6))[0].logits.isfinite().all()
    assert all(torch.equal(p, v) for p, v in zip(model.module.parameters(), model.params.values(), strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("padded", [False, True], ids=["fused", "masked"])
def test_precisions(net, dtype, padded):
    exact = prepare(net, "fc", *SMALL_NET)
    model = exact.to(dtype)
    x = rand(6, 1, 6, 6)
    expected, expected_buffers = run(exact, *(slow(x) if padded else (x,)))
    x = x.to(dtype)
    params = {n: v.clone().requires_grad_() for n, v in model.params.items()}
    out, buffers = run(model, *(slow(x) if padded else (x,)), params=params)
    assert out.logits.dtype == out.features.dtype == dtype
    tolerance = 0.2 if dtype == torch.bfloat16 else 1e-4
    assert torch.allclose(out.logits[:6].double(), expected.logits[:6], atol=tolerance, rtol=tolerance)
    assert all(buffers[n].dtype == model.buffers[n].dtype for n in buffers)
    assert torch.allclose(buffers["bn.running_var"].double(), expected_buffers["bn.running_var"], rtol=0.05)
    assert all(g.isfinite().all() for g in torch.autograd.grad(out.logits.sum(), list(params.values())))
    assert exact.params["fc.weight"].dtype == torch.float64  # `to` copies
    assert run(model, x, train=False)[0].logits.dtype == dtype


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_gives_the_same_numbers(net):
    model = prepare(net, "fc", *SMALL_NET)
    there = model.to(device="cuda")
    x = rand(5, 1, 6, 6)
    one, two = run(model, x), run(there, x.cuda(), key=KEY.cuda())
    assert torch.allclose(one[0].logits, two[0].logits.cpu())
    assert all(torch.allclose(one[1][n], two[1][n].cpu()) for n in one[1])


# --- the module's own ways --------------------------------------------------------------------------------------------


def test_shared_parameters_have_one_entry_named_after_the_head():
    module = Made(lambda m, ids: m.fc(m.embed(ids).mean(1)), embed=nn.Embedding(7, 4), fc=nn.Linear(4, 7, bias=False))
    module.fc.weight = module.embed.weight
    model = prepare(module, None, (3,), 7)
    assert list(model.params) == ["fc.weight"]
    ids = torch.tensor([[1, 2, 3], [4, 5, 6]])
    double = {"fc.weight": 2 * model.params["fc.weight"]}
    out, _ = model.forward(double, {}, ids, torch.ones(2), train=True, key=KEY)
    assert torch.allclose(out.logits, 4 * module(ids), atol=1e-5)
    g = grad(lambda p: model.forward(p, {}, ids, torch.ones(2), train=True, key=KEY)[0].logits.sum())(model.params)
    module(ids).sum().backward()
    assert torch.allclose(g["fc.weight"], module.embed.weight.grad, atol=1e-6)


def test_frozen_parameters_are_constants_which_clones_share():
    module = two_layers()
    module[0].requires_grad_(False)
    model = prepare(module, None, (4,), 3)
    assert list(model.params) == ["1.weight", "1.bias"] and list(model.constants) == ["0.weight", "0.bias"]
    assert not model.buffers
    x = torch.rand(2, 4)
    assert torch.equal(run(model, x)[0].logits, module(x))
    module.load_state_dict({**model.params, **model.constants})
    other = model.clone()
    assert other.constants["0.weight"].data_ptr() == model.constants["0.weight"].data_ptr()
    assert other.params["1.weight"].data_ptr() != model.params["1.weight"].data_ptr()
    assert model.constants["0.weight"].data_ptr() != module[0].weight.data_ptr()


def test_a_forward_must_not_change_a_frozen_parameter():
    def forward(self, x):
        self.scale.data.mul_(2)
        return self.fc(x * self.scale)

    module = Made(forward, fc=nn.Linear(4, 3), scale=nn.Parameter(torch.ones(4), requires_grad=False))
    with pytest.raises(ConfigError, match="a forward that changes buffer 'scale'"):
        prepare(module, "fc", (4,), 3)


def test_constants_outside_the_state_dict_stay_in_the_module():
    module = Made(lambda m, x: m.fc((x + m.shift) * m.scale))
    module.register_buffer("shift", torch.arange(4.0), persistent=False)
    module.register_buffer("scale", torch.ones(4))
    model = prepare(module, None, (4,), 3)
    assert list(model.constants) == ["scale"] and not model.buffers
    assert run(model.to(D), rand(2, 4))[0].logits.dtype == D


def test_a_forward_that_reads_training_follows_the_call():
    module = Made(lambda m, x: m.fc(x if m.training else 2 * x)).eval()
    model = prepare(module, None, (4,), 3)
    x = torch.rand(2, 4)
    for train in (True, False, True):
        assert torch.equal(run(model, x, train=train)[0].features, x if train else 2 * x)
    assert module.training is False


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # fused attention has no batching rule on the CPU
@pytest.mark.parametrize("train", [True, False])
def test_attention_without_dropout_works_under_vmap(train):
    encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    module = Made(lambda m, x: m.fc(m.encoder(x).mean(1)), encoder=encoder, fc=nn.Linear(8, 3)).double()
    model = prepare(module, "fc", (5, 8), 3)
    x = rand(2, 4, 5, 8)
    params = tree.expand(model.params, 2)
    out, _ = vmap(lambda p, x: run(model, x, params=p, train=train))(params, x)
    assert torch.allclose(out.logits[1], module(x[1]), atol=1e-8)


class OwnForward(nn.Dropout):
    def forward(self, x):
        return x


def old_spectral_norm():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some versions of torch call it deprecated
        return nn.utils.spectral_norm(nn.Linear(4, 4))


IMAGE, TIME = (1, 6, 6), (5, 4)
REFUSED = [  # a layer's class, the layer, what its message advises, and the shape of a row
    ("AlphaDropout", nn.AlphaDropout, "use nn.Dropout", (4,)),
    ("FeatureAlphaDropout", nn.FeatureAlphaDropout, "use nn.Dropout", (4,)),
    ("RReLU", nn.RReLU, "use nn.LeakyReLU", (4,)),
    ("FractionalMaxPool2d", lambda: nn.FractionalMaxPool2d(2, 2), "nn.MaxPool2d", IMAGE),
    ("InstanceNorm2d", lambda: nn.InstanceNorm2d(1, track_running_stats=True), "=False", IMAGE),
    ("SyncBatchNorm", lambda: nn.SyncBatchNorm(4), "nn.BatchNorm2d", (4,)),
    ("LSTM", lambda: nn.LSTM(4, 4, 2, dropout=0.1), "dropout=0", (4,)),
    ("MultiheadAttention", lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1), "dropout=0", TIME),
    ("LazyBatchNorm1d", nn.LazyBatchNorm1d, "run one batch", (4,)),
    ("_SpectralNorm", lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)), "spectral_norm", (4,)),
    ("Linear", old_spectral_norm, "spectral_norm", (4,)),
    ("Embedding", lambda: nn.Embedding(4, 4, max_norm=1.0), "max_norm=None", (4,)),
    ("Embedding", lambda: nn.Embedding(4, 4, sparse=True), "sparse=False", (4,)),
    ("OwnForward", OwnForward, "use the class of torch.nn", (4,)),
]


@pytest.mark.parametrize(("kind", "make", "advice", "shape"), REFUSED, ids=[kind for kind, *_ in REFUSED])
def test_layers_with_hidden_randomness_or_state_are_refused(kind, make, advice, shape):
    with pytest.raises(ConfigError) as caught:
        prepare(nn.Sequential(nn.Sequential(make()), nn.Linear(4, 3)), None, shape, 3)
    message = str(caught.value)
    assert f"got {kind} at layer '0.0" in message and advice in message and "\n" not in message


def counts_in_place(m, x):
    m.count += 1
    return m.fc(x)


def counts_anew(m, x):
    m.count = m.count + 1
    return m.fc(x)


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda m, x: m.fc(F.dropout(x, 0.5, m.training)), "draws from torch's global generator"),
        (lambda m, x: m.fc(x + torch.rand_like(x)), "draws from torch's global generator"),
        (lambda m, x: m.fc(x) * np.random.default_rng().random(), "two different outputs"),
        (counts_in_place, "changes buffer 'count'"),
        (counts_anew, "changes buffer 'count'"),
    ],
)
def test_hidden_randomness_and_state_of_a_forward_are_found(forward, message):
    module = Made(forward)
    module.register_buffer("count", torch.zeros(()))
    before = torch.get_rng_state()
    with pytest.raises(ConfigError, match=message):
        prepare(module, "fc", (4,), 3)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("forward", [lambda m, x: m.fc(x.unsqueeze(1).squeeze()), lambda m, x: m.fc(x).squeeze()])
def test_a_network_that_drops_the_axis_of_one_row_is_refused(forward):
    with pytest.raises(ConfigError, match=r"model must return logits \[B, 3\]; got \(3,\); B was 1; name the axis"):
        prepare(Made(forward), "fc", (4,), 3)


def embeds(cast=True):
    forward = lambda m, x: m.head(m.table(x.long() if cast else x).flatten(1))
    return Made(forward, table=nn.Embedding(9, 5), head=nn.Linear(20, 3))


@pytest.mark.parametrize(
    ("cast", "low", "high", "told"),
    [
        (False, 0, 9, "train in float32; got RuntimeError: .* at layer 'table' .*; samples are floats: an nn.Emb"),
        (True, -3, 9, "accept the rows of the data; got IndexError: .* at layer 'table' .*; samples are floats"),
        (True, 0, 10, "accept the rows of the data; got IndexError: .* at layer 'table' .*; samples are floats"),
        (True, 0, 9, ""),
    ],
)  # fmt: skip
def test_an_embedding_that_cannot_look_up_the_samples_is_refused(cast, low, high, told):
    numbers = np.arange(360).reshape(90, 4) % (high - low) + low
    data = fs.from_arrays(numbers, np.arange(90) % 3)
    fed = fs.federate(data, "iid", clients=3)
    if not told:
        fs.run(fed, fs.methods.fedavg(), model=embeds(), rounds=1, cohort=1)
        return
    with pytest.raises(ConfigError, match=f"model must {told}"):
        fs.run(fed, fs.methods.fedavg(), model=embeds(cast), rounds=1)
