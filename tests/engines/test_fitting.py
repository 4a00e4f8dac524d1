"""The control of every run: the fit on the clients' sums is that of their rows together, and changes nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import fedskew as fs
from fedskew.config.recorded import read_run
from fedskew.data.federation import Federation
from fedskew.engines import fitting
from fedskew.engines.fitting import Fit
from fedskew.functional import even_weights, fit_by_sums, logit_sums
from fedskew.records.metrics import EVALUATED
from fedskew.records.summary import FITTED
from support.federations import RAGGED, blobs, skewed
from support.methods import cases, tiny
from support.resuming import stop_after
from support.runs import measured as go
from support.runs import rows_of, same

DIRICHLET = fs.partitioners.Dirichlet(alpha=0.3)


FEDERATIONS: dict[str, Any] = {
    "digits": lambda: (skewed(), tiny("fedavg")),
    "a class missing at training": lambda: (blobs([[9, 3, 0], [2, 5, 0], [0, 0, 0]]), tiny("fedavg")),
    "two classes": lambda: (blobs([[9, 3], [2, 5], [1, 7]]), tiny("fedavg")),
    "long tail": lambda: (fs.federate("digits", DIRICHLET, clients=6, longtail=50.0, validation=0.1), tiny("fedla")),
    "held-out clients": lambda: (fs.federate("digits", DIRICHLET, clients=8, heldout_clients=0.3), tiny("fedavg")),
    "personalised": lambda: (skewed(), tiny("fedper")),
}

QUICK = {(name, "sequential") for name in FEDERATIONS}
QUICK |= {(name, "batched") for name in ("a class missing at training", "personalised")}


def logits_of(result: fs.Result, fed: Federation, k: int) -> tuple[Tensor, Tensor]:
    """Logits, up to a number of each row, and labels of a client's training rows."""
    at = torch.from_numpy(fed.rows(k))
    found = result.probabilities(fed.dataset.x[at], encoded=True) if len(at) else torch.empty(0, fed.dataset.classes)
    return found.double().log(), fed.dataset.y[at]


def by_clients(result: fs.Result, fed: Federation, objective: str, ridge: float = 1e-4) -> Tensor:
    """The fit of a server that adds what one client after another sends."""
    clients = [logits_of(result, fed, k) for k in range(fed.clients)]
    pooled, classes = fed.counts.sum(0), fed.dataset.classes
    weights = even_weights(pooled) if objective == "balanced" else torch.ones(classes, dtype=torch.float64)

    def ask(point: Tensor) -> tuple[Tensor, ...]:
        sums = [logit_sums(z, y, weights[y], point) for z, y in clients]
        return tuple(sum(part[1:], part[0]) for part in zip(*sums, strict=True))

    free = torch.ones(classes + 1, dtype=torch.bool)
    return fit_by_sums(ask, float((weights * pooled).sum()), free, ridge)[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "engine"), cases(QUICK, FEDERATIONS, ("sequential", "threaded", "batched")))
def test_the_fit_of_a_run_is_that_of_its_clients_sums(name: str, engine: str) -> None:
    fed, method = FEDERATIONS[name]()
    result = go(fed, method, engine=engine, cohort=2)
    clients = int((fed.sizes > 0).sum())
    for objective, found in result.trained.fits.items():
        point = by_clients(result, fed, objective)
        assert torch.allclose(torch.tensor([*found.b, found.a]).double(), point, atol=1e-6), objective
        classes = fed.dataset.classes
        sent = found.exchanges * (1 + classes + 1 + (classes + 1) * (classes + 2) // 2)
        sent += classes * (objective == "balanced")
        assert found.converged and found.upload_bytes == 8 * clients * sent and found.clients == clients
    assert set(result.trained.fits) == {"prior", "balanced"}


def test_it_reads_no_test_row_and_no_row_that_is_set_aside() -> None:
    fed = fs.federate("digits", DIRICHLET, clients=8, heldout_clients=0.3, validation=0.2, local_test=0.2)
    own = np.concatenate([fed.rows(k) for k in range(fed.clients)])
    data = fed.dataset
    y, away = data.y.clone(), torch.ones(len(data.y), dtype=torch.bool)
    away[own] = False
    y[away] = 0  # the labels of all other rows
    other = replace(fed, dataset=replace(data, y=y, y_test=data.y_test.flip(0)))
    a, b = (go(f, tiny("fedavg"), engine="batched").trained.fits for f in (fed, other))
    assert a == b


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fedper"])
def test_the_run_is_the_same_with_and_without(method: str, tmp_path: Path) -> None:
    runs = {when: go(skewed(), tiny(method), rounds=3, out=tmp_path / when, fit_logits=when) for when in WHEN}
    plain = runs["none"]
    assert not plain.trained.fits and not [n for n in plain.summary if FITTED in n or n == "final_fit"]
    for when in WHEN[1:]:
        bare = [{n: v for n, v in row.items() if not n.startswith(FITTED)} for row in rows_of(runs[when])]
        assert bare == rows_of(plain) and same(runs[when].params, plain.params), when
        names = (f"{folder}/final.safetensors" for folder in ("none", when))
        assert len({(tmp_path / name).read_bytes() for name in names}) == 1
        raw = {
            n: v for n, v in runs[when].summary.items() if FITTED not in n and n not in ("final_fit", "total_wall_s")
        }
        assert raw == {n: v for n, v in plain.summary.items() if n != "total_wall_s"}
        read_run(tmp_path / when)  # every entry is one that a run may have
    assert rows_of(runs["last"]) == rows_of(plain), "its numbers are in the summary"
    assert all(f"fitted_{name}" in row for row in runs["every"].rounds for name in EVALUATED)
    assert runs["every"].rounds[-1]["fitted_loss"] == runs["last"].summary["final_fitted_loss"]


WHEN = ("none", "last", "tail", "every")


def test_the_tail_has_a_mean_of_ten_and_no_mean_of_fifty() -> None:
    found = go(blobs(RAGGED), fs.methods.fedavg(), rounds=13, eval_every=2, fit_logits="tail")
    assert [r["round"] for r in found.rounds if "fitted_accuracy" in r] == [4, 6, 8, 10, 12, 13]
    values = [r["fitted_accuracy"] for r in found.rounds if "fitted_accuracy" in r]
    assert found.summary["mean10_fitted_accuracy"] == pytest.approx(sum(values) / 6)
    assert "mean50_fitted_accuracy" not in found.summary and "best_fitted_accuracy" not in found.summary
    whole = go(blobs(RAGGED), fs.methods.fedavg(), rounds=13, fit_logits="every").summary
    assert {"mean50_fitted_accuracy", "best_fitted_accuracy"} <= set(whole)


def test_fitted_metrics_are_those_of_the_fitted_logits() -> None:
    fed = skewed()
    result = go(fed, tiny("fedavg"))
    x, y, summary = fed.dataset.x_test, fed.dataset.y_test, result.summary
    z, fits = result.probabilities(x).log(), result.trained.fits
    chances = result.probabilities(x, fitted=True)
    assert torch.allclose(chances, fits["prior"].logits(z).softmax(1), atol=1e-9)
    own, even = result.predict(x, fitted="prior"), result.predict(x, fitted="balanced")
    assert summary["final_fitted_accuracy"] == float((own == y).double().mean())
    told = fs.metrics.from_confusion(fs.metrics.confusion(y, even, fed.dataset.classes))
    assert summary["final_fitted_balanced_accuracy"] == told["balanced_accuracy"]
    assert summary["final_fitted_macro_f1"] == told["macro_f1"]
    assert summary["final_fitted_per_class_recall"] == told["per_class_recall"]
    assert summary["final_fitted_ece"] == pytest.approx(fs.metrics.calibration_error(y, chances), abs=1e-9)
    assert summary["final_fitted_loss"] < summary["final_loss"]


def test_biases_of_each_client_serve_its_own_model() -> None:
    fed = fs.federate("digits", DIRICHLET, clients=6, local_test=0.3)
    found = go(fed, tiny("fedper"), rounds=3).summary
    assert found["final_fitted_personal_loss"] < found["final_personal_loss"]
    assert "final_fitted_personal_accuracy" not in go(fed, tiny("fedavg")).summary


def test_more_classes_than_the_limit_are_not_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "LIMIT", 2)
    monkeypatch.setattr("fedskew.engines.base.LIMIT", 2)
    assert "final_fit" not in go(blobs(RAGGED), fs.methods.fedavg()).summary
    with pytest.raises(
        fs.FieldError, match=r"Settings.fit_logits must be last or none beside 3 classes: .* got 'tail'"
    ):
        go(blobs(RAGGED), fs.methods.fedavg(), fit_logits="tail")


# The run folder


def test_a_run_folder_gives_the_fitted_model_again(tmp_path: Path) -> None:
    fed = skewed()
    result = go(fed, tiny("fedavg"), out=tmp_path / "a")
    trained, x = fs.load_model(tmp_path / "a"), fed.dataset.x_test
    assert trained.fits == result.trained.fits
    assert torch.equal(trained.probabilities(x, fitted=True), result.probabilities(x, fitted=True))
    found = trained.evaluate(fed.dataset, fitted=True)
    assert {n: found[n] for n in EVALUATED} == {n: result.summary[f"final_fitted_{n}"] for n in EVALUATED}


def test_a_folder_without_a_fit_still_predicts(tmp_path: Path) -> None:
    go(skewed(), tiny("fedavg"), out=tmp_path / "a", fit_logits="none")
    trained, x = fs.load_model(tmp_path / "a"), skewed().dataset.x_test
    assert len(trained.predict(x)) == len(x)
    with pytest.raises(fs.ConfigError, match="fitted must be false: the model has no fit on record"):
        trained.predict(x, fitted=True)
    with pytest.raises(fs.ConfigError, match=r"fitted must be one of prior, balanced.*; got 'even'"):
        trained.predict(x, fitted="even")


GOOD = Fit(1.0, (0.5, -0.5), "both", "prior", 1e-4, 3, True, 2, 8, 8).to_json()


@pytest.mark.parametrize(
    "content",
    [
        [], {"prior": GOOD}, {"prior": GOOD, "balanced": 3}, {"prior": GOOD, "balanced": {**GOOD, "a": 0.0}},
        {"prior": GOOD, "balanced": {**GOOD, "b": [1.0]}}, {"prior": GOOD, "balanced": {**GOOD, "b": ["x", 1]}},
        {"prior": GOOD, "balanced": {**GOOD, "b": [float("nan"), 0]}}, {"prior": GOOD, "balanced": {**GOOD, "more": 1}},
        {"prior": GOOD, "balanced": {**GOOD, "a": "1"}}, {"prior": GOOD, "balanced": {**GOOD, "b": [10**400, 0]}},
        {"prior": GOOD, "balanced": {**GOOD, "a": None}},
    ],
)  # fmt: skip
def test_a_damaged_fit_is_told_in_one_line(content: Any) -> None:
    if content:
        assert fitting.fits_of({"fit": {"prior": GOOD, "balanced": GOOD}}, 2)["prior"].b == (0.5, -0.5)
    else:
        content = ["prior"]
    with pytest.raises(fs.RecordError, match="its fit") as caught:
        fitting.fits_of({"fit": content}, 2)
    assert "\n" not in str(caught.value)


def test_a_stopped_run_has_no_fit_until_it_is_resumed(tmp_path: Path) -> None:
    half = go(skewed(), tiny("fedavg"), out=tmp_path / "a", on_round=stop_after(1))
    assert "final_fit" not in half.summary and not half.trained.fits
    whole, again = go(skewed(), tiny("fedavg")), go(skewed(), tiny("fedavg"), out=tmp_path / "a", resume=True)
    assert again.summary["final_fit"] == whole.summary["final_fit"]
