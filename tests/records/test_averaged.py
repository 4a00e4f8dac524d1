"""The mean of the models of the last ten rounds is measured beside the last model, and changes nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fedskew as fs
from fedskew import averages as averaging
from fedskew.data.federation import Federation
from fedskew.method import Method
from fedskew.records.metrics import confusion_of, from_confusion
from fedskew.records.summary import AVERAGED, FITTED
from support.federations import skewed
from support.methods import MOST_HOOKS, tiny
from support.nets import norm_net
from support.resuming import equal, stop_after
from support.runs import go, rows_of, same
from support.runs import measured as run

ROUNDS = 13  # more than the ten of the mean


def averages(result: fs.Result) -> dict[str, Any]:
    """What the summary says of the mean model."""
    return {name: value for name, value in result.summary.items() if AVERAGED in name}


def models_of(fed: Federation, method: Method, rounds: Iterable[int], **options: Any) -> list[dict[str, Tensor]]:
    """The models that runs of so many rounds end with."""
    each = [go(fed, method, rounds=r, **options) for r in rounds]
    return [{**one.params, **one.buffers} for one in each]


def mean_of(models: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Their mean in float64; counters are those of the last."""
    return {
        name: sum(model[name].double() for model in models) / len(models) if last.is_floating_point() else last
        for name, last in models[-1].items()
    }


def logits_of(result: fs.Result, model: dict[str, Tensor], fed: Federation) -> Tensor:
    """Logits of the test rows under other parameters."""
    trained = result.trained
    params = {name: model[name].to(value) for name, value in trained.params.items()}
    buffers = {name: model[name].to(value) for name, value in trained.buffers.items()}
    other = type(trained)(trained.model, params, buffers, trained.inputs, trained.precision, {})
    return other.probabilities(fed.dataset.x_test, encoded=True).double().log()


@pytest.mark.parametrize("rounds", [ROUNDS, 4])
def test_it_is_the_mean_in_float64_on_each_engine(rounds: int) -> None:
    fed = skewed()
    mean, y = mean_of(models_of(fed, tiny("scaffold"), range(max(1, rounds - 9), rounds + 1))), fed.dataset.y_test
    for engine in ("sequential", "threaded", "batched", "debug"):
        found = run(fed, tiny("scaffold"), rounds=rounds, engine=engine)
        logits = logits_of(found, mean, fed)
        expected = from_confusion(confusion_of(y, logits.argmax(1), fed.dataset.classes))
        for name in ("accuracy", "balanced_accuracy", "macro_f1", "worst_class_recall"):
            assert found.summary[f"final_{AVERAGED}{name}"] == pytest.approx(expected[name], abs=1e-12), engine
        loss = float(torch.nn.functional.cross_entropy(logits, y))
        assert found.summary[f"final_{AVERAGED}loss"] == pytest.approx(loss, abs=1e-6), engine
        assert found.summary[f"final_{AVERAGED}{FITTED}loss"] < loss


@pytest.mark.parametrize("name", MOST_HOOKS)
def test_no_bit_of_training_changes(name: str) -> None:
    on, off = (run(skewed(), tiny(name), average_models=wanted) for wanted in ("last", "none"))
    assert same(on.params, off.params) and rows_of(on) == rows_of(off)
    assert averages(on) and not averages(off)
    others = {name: value for name, value in on.summary.items() if AVERAGED not in name and "wall" not in name}
    assert others == {name: value for name, value in off.summary.items() if "wall" not in name}


def test_statistics_of_batchnorm_are_averaged_and_counters_are_the_last() -> None:
    fed, method = skewed(), tiny("fedavg")
    found = run(fed, method, rounds=3, model=norm_net(), dtype="float32")
    mean = mean_of(models_of(fed, method, (1, 2, 3), model=norm_net(), dtype="float32"))
    logits = logits_of(found, mean, fed)
    accuracy = float((logits.argmax(1) == fed.dataset.y_test).double().mean())
    assert found.summary[f"final_{AVERAGED}accuracy"] == pytest.approx(accuracy, abs=1e-12)


@pytest.mark.parametrize(("stop", "every"), [(2, 10), (7, 3), (12, 5)])
def test_a_resumed_run_has_the_same_mean(stop: int, every: int, tmp_path: Path) -> None:
    options = {"rounds": ROUNDS, "checkpoint_every": every}
    whole = run(skewed(), tiny("scaffold"), out=tmp_path / "whole", **options)
    run(skewed(), tiny("scaffold"), out=tmp_path / "part", on_round=stop_after(stop), **options)
    part = run(skewed(), tiny("scaffold"), out=tmp_path / "part", resume=True, **options)
    equal(tmp_path / "whole", tmp_path / "part")
    assert averages(whole) == averages(part) != {}


@pytest.mark.parametrize(("before", "rounds"), [(5, 12), (12, 14), pytest.param(11, 30, marks=pytest.mark.thorough)])
def test_more_rounds_move_the_window(before: int, rounds: int, tmp_path: Path) -> None:
    whole = run(skewed(), tiny("fedavg"), rounds=rounds)
    run(skewed(), tiny("fedavg"), rounds=before, out=tmp_path)
    assert averages(run(skewed(), tiny("fedavg"), rounds=rounds, out=tmp_path, resume=True)) == averages(whole) != {}


def test_an_early_stop_has_the_mean_of_the_rounds_before_it() -> None:
    fed = fs.federate("digits", fs.partitioners.Dirichlet(alpha=0.1), clients=6, validation=0.2)
    stopped = run(fed, tiny("fedavg"), rounds=60, monitor="val_accuracy", patience=4)
    rounds = len(stopped.rounds)
    assert 10 < rounds < 60, "the run ends early, after more rounds than the mean has"
    assert averages(stopped) == averages(run(fed, tiny("fedavg"), rounds=rounds, monitor="val_accuracy")) != {}


def test_large_models_are_left_out_unless_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedskew.settings.LARGE", 100)
    assert not averages(run(skewed(), tiny("fedavg")))
    assert averages(run(skewed(), tiny("fedavg"), average_models="last"))


def test_a_checkpoint_of_an_earlier_version_has_no_mean_until_ten_rounds_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(averaging.Averages, "keep", lambda *_: None)
        for folder in ("soon", "late"):
            run(skewed(), tiny("fedavg"), rounds=20, out=tmp_path / folder, on_round=stop_after(6))
    assert not averages(run(skewed(), tiny("fedavg"), rounds=12, out=tmp_path / "soon", resume=True))
    late = run(skewed(), tiny("fedavg"), rounds=16, out=tmp_path / "late", resume=True)
    assert averages(late) == averages(run(skewed(), tiny("fedavg"), rounds=16)) != {}


# A mean that is served


@pytest.mark.parametrize("engine", ["sequential", "batched"])
@pytest.mark.parametrize("net", ["logistic", "norm"])
def test_the_mean_of_the_last_models_is_served(engine: str, net: str, tmp_path: Path) -> None:
    fed, method = skewed(), tiny("fedavg")
    options: dict[str, Any] = {"model": norm_net() if net == "norm" else net, "dtype": "float32"}
    found = run(fed, method, rounds=5, average=3, engine=engine, out=tmp_path, **options)
    models = models_of(fed, method, (3, 4, 5), engine=engine, **options)
    wanted = {name: value.to(models[-1][name]) for name, value in mean_of(models).items()}
    assert same({**found.params, **found.buffers}, wanted)
    again = fs.load_model(tmp_path, model=options["model"] if net == "norm" else None)
    assert torch.equal(again.predict(fed.dataset.x_test, encoded=True), found.predict(fed.dataset.x_test, encoded=True))
    assert same(found.state.params, {n: models[-1][n] for n in found.params}), "training goes on with the last model"
    accuracy = float((found.predict(fed.dataset.x_test, encoded=True) == fed.dataset.y_test).double().mean())
    assert found.rounds[-1]["accuracy"] == found.summary["final_accuracy"] == pytest.approx(accuracy, abs=1e-12)


def test_a_mean_with_decay_is_served() -> None:
    fed, method = skewed(), tiny("fedavg")
    models, weights = models_of(fed, method, (2, 3, 4, 5)), [0.8**3, 0.8**2, 0.8, 1]
    for name, value in run(fed, method, rounds=5, average=4, average_decay=0.8).params.items():
        mean = sum(w * model[name] for w, model in zip(weights, models, strict=True)) / sum(weights)
        assert torch.allclose(value, mean, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["scaffold", "ditto", "ccvr"])
def test_a_served_mean_survives_a_stop(name: str, tmp_path: Path) -> None:
    options = {"rounds": 6, "checkpoint_every": 2, "personal_every": 1, "average": 5, "average_decay": 0.7}
    run(skewed(), tiny(name), out=tmp_path / "whole", **options)
    run(skewed(), tiny(name), out=tmp_path / "part", on_round=stop_after(3), **options)
    run(skewed(), tiny(name), out=tmp_path / "part", resume=True, **options)
    equal(tmp_path / "whole", tmp_path / "part")


def test_a_decay_without_a_mean_is_refused() -> None:
    with pytest.raises(fs.FedskewError, match=r"average_decay must be 1 unless average is above 1; got 0\.5"):
        run(skewed(), tiny("fedavg"), average_decay=0.5)
