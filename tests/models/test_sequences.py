"""Networks that read tokens: their formulas, every engine, evaluation, and what they refuse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedskew as fs
from fedskew import rng
from fedskew.data.arrays import from_arrays
from fedskew.method.paces import Fixed
from fedskew.models.architectures import build
from fedskew.models.sequences import Attention, CharLSTM, CharTransformer, Recurrent, _Fused, _recurrence
from support.command import refused
from support.federations import Owners
from support.methods import tiny
from support.networks import TOKENS
from support.runs import gap, go, same

SMALL = {
    "char_lstm": CharLSTM(vocabulary=12, embedding=4, hidden=6, layers=2),
    "char_transformer": CharTransformer(vocabulary=12, width=8, heads=2),
}


def later(name: str) -> Any:
    """A case of `make test-all` only."""
    return pytest.param(name, marks=pytest.mark.thorough)


def words(dtype: Any = np.float32) -> Any:
    """Three clients of unequal size; the class is the token before the last."""
    x = rng.generator(0, "tokens").integers(0, 12, (40, 6))
    x[:, -2] = np.arange(40) % 3
    data = from_arrays(x.astype(dtype), x[:, -2], x[:12].astype(dtype), x[:12, -2])
    return fs.federate(data, Owners((0,) * 24 + (1,) * 13 + (2,) * 3), clients=3)


def test_the_recurrence_is_torch_s_lstm() -> None:
    ours, theirs, x = Recurrent(5, 7), nn.LSTM(5, 7, batch_first=True), torch.randn(3, 9, 5)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(ours.input.weight)
        theirs.bias_ih_l0.copy_(ours.input.bias)
        theirs.weight_hh_l0.copy_(ours.state.weight)
        theirs.bias_hh_l0.zero_()
    assert torch.allclose(ours(x), theirs(x)[0], atol=1e-6)


@pytest.mark.parametrize("frozen", [(), (0,), (0, 2), (1, 3)])
def test_torch_s_recurrence_has_the_derivatives_of_the_one_that_is_written_out(frozen: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    given = [torch.randn(*s, dtype=torch.float64) for s in ((3, 4, 5), (8, 5), (8,), (8, 2))]
    free = [g.requires_grad_() for i, g in enumerate(given) if i not in frozen]

    def derivatives(run: Any) -> list[torch.Tensor]:
        first = torch.autograd.grad(run(*given).square().sum(), free, create_graph=True)
        return [*first, *torch.autograd.grad(sum(g.square().sum() for g in first), free)]

    for one, two in zip(derivatives(_Fused.apply), derivatives(_recurrence), strict=True):
        assert torch.allclose(one, two, rtol=1e-10, atol=1e-12)
    plain = [torch.autograd.grad(run(*given).square().sum(), free) for run in (_Fused.apply, _recurrence)]
    assert all(torch.allclose(a, b, rtol=1e-10, atol=1e-12) for a, b in zip(*plain, strict=True))
    assert not _Fused.apply(*(g.detach() for g in given)).requires_grad


def test_the_block_is_torch_s_encoder_layer_with_its_norm_first() -> None:
    ours, x = Attention(8, 2), torch.randn(3, 5, 8)
    theirs = nn.TransformerEncoderLayer(8, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
    with torch.no_grad():
        theirs.self_attn.in_proj_weight.copy_(ours.mix.weight)
        theirs.self_attn.in_proj_bias.copy_(ours.mix.bias)
        for mine, other in (
            (ours.out, theirs.self_attn.out_proj), (ours.up, theirs.linear1), (ours.down, theirs.linear2),
            (ours.norm1, theirs.norm1), (ours.norm2, theirs.norm2),
        ):  # fmt: skip
            other.weight.copy_(mine.weight)
            other.bias.copy_(mine.bias)
    assert torch.allclose(ours(x), theirs(x), atol=1e-6)


@pytest.mark.parametrize("name", TOKENS)
def test_weights_are_keyed_and_counted(name: str) -> None:
    one, two = (build(name, (80,), 80, seed) for seed in (0, 1))
    assert sum(p.numel() for p in one.parameters()) == {"char_lstm": 24528, "char_transformer": 33232}[name]
    assert not torch.equal(one.tokens.weight, two.tokens.weight)
    assert torch.equal(one.tokens.weight, build(name, (80,), 3, 0).tokens.weight)
    assert abs(float(one.tokens.weight.detach().std()) - 1) < 0.2  # torch's rule for embeddings
    big = build(CharLSTM(layers=2, hidden=256), (80,), 80, 0)
    assert sum(p.numel() for p in big.parameters()) == 817872


@pytest.mark.parametrize("method", ["scaffold", "creff", *map(later, ("fedavg", "fedbal", "pfedme"))])
@pytest.mark.parametrize("name", TOKENS)
def test_every_engine_trains_them_alike(name: str, method: str) -> None:
    fed = words()
    runs = {e: go(fed, tiny(method), model=SMALL[name], engine=e) for e in ("sequential", "threaded", "batched")}
    assert same(runs["sequential"].params, runs["threaded"].params)
    assert gap(runs["sequential"].params, runs["batched"].params) <= 1e-8
    assert all(np.isfinite(row["loss"]) for row in runs["batched"].rounds)


@pytest.mark.parametrize("name", ["char_lstm", later("char_transformer")])
def test_they_learn_and_predict_from_a_run_folder(name: str, tmp_path: Path) -> None:
    fed = words()
    method = replace(fs.methods.fedavg(), pace=Fixed(epochs=2, batch_size=8, lr=0.3))
    made = fs.run(fed, method, model=SMALL[name], rounds=50, out=tmp_path / "run")
    assert made.rounds[-1]["accuracy"] > 0.7  # a third by guessing
    trained = fs.load_model(tmp_path / "run")
    found = trained.predict(fed.dataset.x_test)
    assert int((found == fed.dataset.y_test).sum()) == round(made.rounds[-1]["accuracy"] * 12)
    assert torch.equal(found, trained.predict(fed.dataset.x_test.numpy().astype(np.int64)))


def test_narrow_floats_hold_the_tokens() -> None:
    runs = [go(words(), tiny("fedavg"), model=SMALL["char_lstm"], dtype=d) for d in ("float32", "bfloat16")]
    assert gap(runs[0].params, runs[1].params) < 0.1


def test_other_samples_are_refused() -> None:
    images = from_arrays(np.zeros((9, 3, 3), np.uint8), np.arange(9) % 3, np.zeros((3, 3, 3), np.uint8), np.arange(3))
    fed = fs.federate(images, "iid", clients=3)
    refused(lambda: go(fed, tiny("fedavg"), model="char_lstm"), "model must have tokens to read; got uint8 images")
    for value, said in ((0.5, "whole numbers 0..11; got 0.5"), (12, "0..11; got 12.0"), (-1, "got -1.0; the options")):
        x = np.full((9, 4), value, np.float32)
        fed = fs.federate(from_arrays(x, np.arange(9) % 3, x[:3], np.arange(3)), "iid", clients=3)
        refused(lambda fed=fed: go(fed, tiny("fedavg"), model=SMALL["char_lstm"]), said)
    refused(lambda: CharTransformer(width=9, heads=2), "CharTransformer.heads must divide the width, 9; got 2")
