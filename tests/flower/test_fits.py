"""The fit of a model over Flower is that of sequential; a node must allow it, and a lie costs its author."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedskew.config.recorded import read_run
from fedskew.data.federation import Federation
from fedskew.engines.fitting import ClientLogits, Fit, fit, triangle_of, whole_of
from fedskew.errors import FedskewError
from fedskew.flower.contract import permits_of
from fedskew.flower.exchange import check_sums
from fedskew.flower.options import experiment_of
from fedskew.flower.wire import read
from fedskew.functional import even_weights, logit_sums
from fedskew.records.summary import AVERAGED, FITTED
from support.flower_grid import alone, bits, config, heard, served
from support.lies import LIAR, Change, lying, other_facts, small

pytestmark = pytest.mark.flower


RUNS: dict[str, dict[str, Any]] = {
    "classes missing at clients": {"partition__alpha": 0.05},
    "a class missing at training": {"clients": 2, "cohort": 2, "partition": "labels_k", "partition__labels": 3,
                                    "partition__alpha": ""},
    "personalised": {"method": "fedper", "model": "mlp", "local_test": 0.2},
    "rows aside, every round": {"validation": 0.1, "fit_logits": "every", "rounds": 2},
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_the_fit_is_that_of_sequential(name: str, tmp_path: Path) -> None:
    content = config(tmp_path, **RUNS[name])
    expected, found = alone(content), served(tmp_path, content)
    assert bits(found) == bits(expected), "training is what it was"
    ours, others = ({n: v for n, v in r.summary.items() if FITTED in n} for r in (found, expected))
    if "final_personal_accuracy" not in found.summary:
        others = {n: v for n, v in others.items() if "served_" not in n}  # the server does not know whose its rows are
    recalls = [numbers.pop("final_fitted_per_class_recall") for numbers in (ours, others)]
    assert ours == pytest.approx(others, abs=1e-6) and "final_fitted_accuracy" in ours
    assert recalls[0] == pytest.approx(recalls[1], abs=1e-6)
    for objective, one in expected.trained.fits.items():
        got = found.trained.fits[objective]
        assert [*got.b, got.a] == pytest.approx([*one.b, one.a], abs=1e-6)
        assert (got.clients, got.upload_bytes, got.exchanges) == (one.clients, one.upload_bytes, one.exchanges)


# the operator's permission


def test_no_node_is_asked_where_one_does_not_allow_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "flwr")
    content = config(tmp_path, fit_logits="every")
    told: list[Any] = []
    shy = {2: {"allow": "histogram labels loss probe metrics"}}
    found = served(tmp_path, content, nodes=shy, lie=heard(told))
    assert bits(found) == bits(alone(content)) and not [one for one in told if one.facts["kind"] == "fit"]
    assert not found.trained.fits and not [n for n in found.summary if FITTED in n or n == "final_fit"]
    said = [r.getMessage() for r in caplog.records if "not fitted" in r.getMessage()]
    assert said == [
        "fedskew: the model is not fitted, which takes all 4 nodes: the node of client 2 does not allow fit"
    ]


def test_the_permission_implies_what_the_sums_tell(tmp_path: Path) -> None:
    """With weight 1 for class c and 0 for others, at a = 0, a gradient is n_c (p - y)."""
    assert permits_of("fit") == {"fit", "histogram", "labels"} and "fit" not in permits_of("histogram metrics")
    z, y = torch.randn(50, 3), torch.randint(3, (50,), generator=torch.Generator().manual_seed(0))
    counts = torch.bincount(y, minlength=3)
    _, gradient, _ = logit_sums(z, y, torch.eye(3)[1][y], torch.zeros(4))
    assert float(gradient[0]) == pytest.approx(float(counts[1]) / 3)


def test_a_model_is_sent_once_and_its_logits_are_kept_until_the_next_message(tmp_path: Path) -> None:
    sent: list[int] = []

    def look(client: int, reply: Any) -> Any:
        if client == 0 and read(reply).facts["kind"] == "fit":
            sent.append(len(list((tmp_path / "state").rglob("client-0/logits-*"))))
        return reply

    models: list[bool] = []

    def keep(messages: list[Any]) -> None:
        opened = [read(m.content) for m in messages]
        models.extend("shared" in e.trees for e in opened if e.facts["kind"] == "fit" and e.facts["client"] == 0)

    found = served(tmp_path, config(tmp_path, fit_logits="every", rounds=2), lie=look, watch=keep)
    exchanges = sum(fit.exchanges for fit in found.trained.fits.values())
    assert models.count(True) == 3 and len(models) >= 3 + exchanges, "those of both rounds, and their mean"
    assert models[-exchanges:] == [True, *[False] * (exchanges - 1)], "the last round's fit is not asked for twice"
    assert set(sent) == {1}


# lies of a node


def summed(**changes: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    """Some of the sums are others."""

    def change(facts: dict[str, Any], trees: dict[str, Any]) -> None:
        trees["sums"] = {name: changes.get(name, torch.clone)(leaf) for name, leaf in trees["sums"].items()}

    return change


def ending(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """Another last number."""
    return lambda leaf: torch.cat([leaf[:-1], torch.full_like(leaf[-1:], value)])


LIES: dict[str, tuple[Change, str]] = {
    "rows of others": (summed(gradient=lambda g: torch.cat([g[:-1].roll(1), g[-1:]])), "be of the rows of each class"),
    "more rows": (summed(**dict.fromkeys(("loss", "gradient", "triangle"), lambda leaf: 10 * leaf)),
                  "its gradient must be of the rows"),
    "endless": (summed(triangle=ending(float("nan"))), "its sums must be finite"),
    "below zero": (summed(loss=lambda loss: loss - 1e6), "its loss must be from 0"),
    "other loss": (summed(loss=lambda loss: loss + 1e6), "must be of the same rows"),
    "steep": (summed(gradient=ending(-1e9)), "must be of the same rows"),
    "hollow": (summed(triangle=torch.neg), "its Hessian must be of the rows"),
    "bent": (summed(triangle=lambda t: torch.cat([t[:-1], 1e6 * t[-1:]])), "curvature must be that of probabilities"),
    "indefinite": (summed(triangle=ending(0.0)), "must be positive semidefinite"),
    "narrow": (summed(gradient=lambda g: g[:-1]), "gradient must be torch.float64 (11,)"),
    "single": (summed(triangle=lambda t: t.float()), "triangle must be torch.float64 (66,)"),
    "whole": (summed(triangle=lambda t: t.new_zeros(11, 11)), "triangle must be torch.float64 (66,)"),
    "no receipt": (other_facts(logits=""), "which logits it keeps"),
    "path": (other_facts(logits="../" * 10), "a receipt must have 32 hex digits"),
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
def test_sums_that_cannot_be_cost_their_author_alone(name: str, tmp_path: Path) -> None:
    """The liar is honest in the first exchanges: what it gave there is in no sum of the fit, either."""
    lie, reason = LIES[name]
    content = config(tmp_path, cohort=4, rounds=1, flower__bad="drop", fit_logits="every")
    with small():
        found = served(tmp_path, content, lie=lying("fit", lie, first=2))
    for named in (found.rounds[0]["dropped"], found.summary["final_dropped"]):
        assert [d["client"] for d in named] == [LIAR] and reason in named[0]["tensor"]
    assert bits(found) == bits(alone(content)), "it takes part in training still"
    fed = experiment_of(content).federation()
    for objective, one in found.trained.fits.items():
        assert one.clients == 3 and one.converged
        others = replace(fed, counts=fed.counts * (torch.arange(4) != LIAR).unsqueeze(1))
        expected = pooled_fit(found, others, objective)
        assert [*one.b, one.a] == pytest.approx([*expected.b, expected.a], abs=1e-6)
    read_run(tmp_path / "run")
    stop = {**content, "flower.bad": "stop", "flower.out": str(tmp_path / "stop"), "fit-logits": "last"}
    with pytest.raises(FedskewError, match="the node of client 1: ") as ended:
        served(tmp_path, stop, lie=lying("fit", lie))
    assert "\n" not in str(ended.value)


def pooled_fit(result: Any, fed: Federation, objective: str) -> Fit:
    """The fit on the rows of the clients that have counts, as one."""
    at = torch.cat([torch.from_numpy(fed.rows(k)) for k in range(fed.clients) if int(fed.counts[k].sum())])
    logits = result.trained.logits(fed.dataset.x[at], fed.dataset.y[at])
    return fit(ClientLogits(logits, fed.dataset.y[at]), fed.counts, objective)  # type: ignore[arg-type]


def test_liars_without_an_end_leave_no_fit_and_no_ruin(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    content = config(tmp_path, rounds=1, flower__bad="drop")

    def lie(client: int, reply: Any) -> Any:
        return lying("fit", LIES["endless"][0])(LIAR, reply)

    found = served(tmp_path, content, lie=lie)
    assert "final_fit" not in found.summary and [d["client"] for d in found.summary["final_dropped"]] == [0, 1, 2, 3]
    assert "the model is not fitted: no node gave sums of use" in caplog.text


@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("a", [1e-5, 0.3, 1.0, 1e4])
@pytest.mark.parametrize("classes", [2, 10])
def test_honest_sums_are_taken(scale: float, a: float, classes: int) -> None:
    g = torch.Generator().manual_seed(0)
    for rows, shift in ((1, 0.0), (400, 0.0), (400, 1e3)):
        z = scale * torch.randn(rows, classes, generator=g) + shift
        y = torch.randint(classes - (classes > 2), (rows,), generator=g)
        counts = torch.bincount(y, minlength=classes)
        for weights in (torch.ones(classes).double(), even_weights(counts)):
            for spread in (0, 5, 1e3):
                b = spread * torch.randn(classes, generator=g)
                point = torch.cat([b - b.mean(), torch.tensor([a])]).double()
                loss, gradient, hessian = logit_sums(z, y, weights[y], point)
                check_sums((loss, gradient, whole_of(triangle_of(hessian), classes + 1)), point, weights, counts)


# what a server can ask


def test_a_server_asks_for_so_many_exchanges_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedskew.flower.node.MOST_FITTED", 3)
    with pytest.raises(FedskewError, match="a fit may take 6 exchanges of this run; the server asks for more"):
        served(tmp_path, config(tmp_path, rounds=1))


def test_a_node_without_the_logits_says_so(tmp_path: Path) -> None:
    def lose(client: int, reply: Any) -> Any:
        for file in (tmp_path / "state").rglob("client-2/logits-*"):
            file.unlink()
        return reply

    with pytest.raises(FedskewError, match=r"the node of client 2: .* must hold the logits of this node"):
        served(tmp_path, config(tmp_path, rounds=1), lie=lose)
    found = served(tmp_path, config(tmp_path, rounds=1))  # the run goes on: only the fit is left
    assert "final_fit" in found.summary


def test_the_mean_of_the_last_models_is_that_of_sequential(tmp_path: Path) -> None:
    content = config(tmp_path, rounds=3, average=2)
    expected, found = alone(content), served(tmp_path, content)
    assert bits(found) == bits(expected), "the mean of two models is served"
    means = [{n: v for n, v in r.summary.items() if AVERAGED in n} for r in (found, expected)]
    assert means[0] == pytest.approx(means[1], abs=1e-9) and means[0]
