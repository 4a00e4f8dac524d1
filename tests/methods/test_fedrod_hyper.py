"""FedRoD's personal heads out of a network: whom they belong to, what is sent, and clients that never trained."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedskew as fs
from fedskew import methods as m
from fedskew import rng
from fedskew.engines import measures
from fedskew.method import Method
from fedskew.method.paces import Fixed
from fedskew.methods.fedrod import GeneratedHead
from fedskew.models import MLP
from fedskew.types import Task
from oracle.model import forward
from oracle.personal import generated
from support.command import refused
from support.federations import blobs, skewed, small_digits
from support.nets import keyed
from support.replay import numpy
from support.runs import go


def hyper(width: int = 6) -> Method:
    return replace(m.fedrod(hyper=width), pace=Fixed(epochs=2, batch_size=16))


def parted(**options: Any) -> fs.Federation:
    split = fs.partitioners.Dirichlet(alpha=0.5)
    return fs.federate(small_digits(), split, clients=8, seed=1, heldout_clients=0.4, **options)


@pytest.mark.parametrize("local_test", [0.0, 0.25])
@pytest.mark.parametrize("engine", ["sequential", "threaded", "batched"])
def test_own_models_are_those_of_the_class_shares(engine: str, local_test: float) -> None:
    """Of clients that trained, and of those that never did: computed again in numpy from what the server holds."""
    fed = parted(local_test=local_test)
    assert fed.unseen is not None
    result = go(fed, hyper(), model=MLP(hidden=5), engine=engine, rounds=3)
    w, data = numpy(result.state.params), fed.dataset
    net = {n: v for n, v in w.items() if not n.startswith("generated_head.")}
    for which, some in (("personal", fed), ("heldout_personal", fed.unseen)):
        right, loss, count = 0, 0.0, 0
        for k in torch.nonzero(some.sizes).flatten().tolist():
            v, c, *_ = generated(w, (some.counts[k] / some.counts[k].sum()).numpy().astype(float))
            held = some.test_rows(k) if some.held is None else some.local_test_rows(k)
            x, y = (data.x_test, data.y_test) if some.held is None else (data.x, data.y)
            z, h, _ = forward(net, ((x[held].double().numpy() / 255 - 0.3) / 0.4).reshape(len(held), -1))
            logits, labels = z + h @ v.T + c, y[held].numpy()
            shifted = logits - logits.max(1, keepdims=True)
            told = np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(labels)), labels]
            right, loss, count = right + (logits.argmax(1) == labels).sum(), loss + told.sum(), count + len(labels)
        last = result.rounds[-1]
        assert last[f"{which}_accuracy"] == pytest.approx(right / count)
        assert last[f"{which}_loss"] == pytest.approx(loss / count, rel=1e-6)


def test_a_client_that_never_trained_makes_no_local_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def joined(*args: Any) -> Tensor:
        raise AssertionError("a local run")

    monkeypatch.setattr(measures.Observer, "_joined", joined)
    assert "heldout_personal_loss" in go(parted(), hyper()).rounds[-1]
    with pytest.raises(AssertionError, match="a local run"):
        go(parted(), m.fedrod())


def test_a_client_without_rows_has_a_finite_model() -> None:
    part = GeneratedHead(4)
    result = go(blobs([[4, 2, 0], [0, 1, 5]]), Method("one", (part,), pace=Fixed(batch_size=4)), cohort=2)
    ctx: Any = type("C", (), {"task": result.task, "owned": torch.tensor([0, 0, 0])})
    assert all(p.isfinite().all() for p in part.personalize(result.state.params, ctx, lambda p: p).values())


@pytest.mark.parametrize("width", [1, 6])
def test_what_is_sent_is_counted(width: int) -> None:
    bare, rod, made = (
        go(skewed(), replace(x, pace=Fixed(batch_size=16)), rounds=1).rounds[0]
        for x in (m.fedavg(), m.fedrod(), hyper(width))
    )
    classes, features, cohort = 10, 64, 3
    more = width * (classes + 1) + (width + 1) * classes * (features + 1)
    for way in ("upload_bytes", "download_bytes"):
        assert bare[way] == rod[way] and made[way] - bare[way] == 8 * cohort * more


def test_a_classifier_without_a_bias_gets_no_bias() -> None:
    net = keyed(nn.Sequential(nn.Flatten(), nn.Linear(64, 7), nn.ReLU(), nn.Linear(7, 10, bias=False)))
    result = go(parted(), hyper(), model=net)
    assert result.state.params["generated_head.second.bias"].shape == (70,)
    assert "heldout_personal_loss" in result.rounds[-1]


def test_it_stands_beside_what_a_head_that_stays_may_not() -> None:
    """All of it is averaged once, and a chain may pass it on."""
    for beside in (m.scaffold(), m.astraea()):
        assert "personal_loss" in go(skewed(), beside.with_(parts=(*beside.parts, GeneratedHead(4)))).rounds[-1]
        refused(lambda b=beside: go(skewed(), b.with_(parts=(*b.parts, fs.parts.PersonalHead()))), "must not")


@pytest.mark.parametrize("width", [-1, True, 2.5, "8", None])
def test_another_width_is_refused_in_one_line(width: Any) -> None:
    refused(lambda: m.fedrod(hyper=width), f"hyper must be a whole number, at least 0; got {width!r}")


def test_both_layers_begin_within_one_over_the_root_of_what_enters_them() -> None:
    params = {"fc.weight": torch.zeros(3, 40), "fc.bias": torch.zeros(3)}
    drawn = list(GeneratedHead(width=16).init_params(params, Task("fc", 3, 40, 5, 9), rng.key(0)).values())
    for draw, entering in zip(drawn, (3, 3, 16, 16), strict=True):
        assert 0.5 * entering**-0.5 < float(draw.abs().max()) <= entering**-0.5
        assert float(draw.min()) < 0 < float(draw.max())
