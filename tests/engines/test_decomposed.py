"""The decomposition of a model's error, and its head beside scikit-learn's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import fedskew as fs
from fedskew.engines.trained import STEPS, pooled_head
from support.command import fedskew, output_of


def test_the_head_is_that_of_scikit_learn() -> None:
    gen = torch.Generator().manual_seed(3)
    f = torch.randn(200, 6, generator=gen).double() * torch.tensor([1.0, 5.0, 0.1, 1.0, 2.0, 0.0]) + 3
    y = torch.randint(4, (200,), generator=gen)
    weight, bias = pooled_head(f, y, 4, ridge=0.01)
    s = (f - f.mean(0)) / torch.where(f.std(0, correction=0) > 0, f.std(0, correction=0), 1.0)
    other = LogisticRegression(C=1 / (200 * 0.01), tol=1e-9, max_iter=10_000).fit(s.numpy(), y.numpy())
    mine = (f @ weight.T + bias).softmax(1).numpy()
    assert np.abs(mine - other.predict_proba(s.numpy())).max() < 1e-5


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A skewed run of the digits."""
    folder = tmp_path_factory.mktemp("decomposed") / "run"
    words = ("--partition.alpha", "0.1", "--clients", "10", "--cohort", "3", "--rounds", "6", "--model", "mlp")
    assert fedskew("run", "fedavg", "--data", "digits", "--partition", "dirichlet", *words, "--out", folder) == 0
    return folder


def test_each_step_mends_what_it_says(made: Path) -> None:
    run, fed = fs.load_model(made), fs.federate("digits", fs.partitioners.Dirichlet(alpha=0.1), clients=10, seed=0)
    found = fs.decompose(run, fed)
    assert list(found) == list(STEPS)
    raw, biases, both, head = (found[step] for step in ("raw", "biases", "both", "features"))
    plain, summary = run.evaluate(fed.dataset), run.evaluate(fed.dataset, fitted=True)
    assert raw == {name: pytest.approx(plain[name], abs=1e-6) for name in raw}
    assert both["accuracy"] == summary["accuracy"] and both["loss"] == pytest.approx(summary["loss"], abs=1e-6)
    assert found["temperature"]["accuracy"] == raw["accuracy"] and found["temperature"]["loss"] < raw["loss"]
    assert raw["accuracy"] + 0.05 < biases["accuracy"] and both["accuracy"] < head["accuracy"]
    assert head["loss"] < both["loss"] <= biases["loss"] + 1e-3
    x, y = run.test_rows(fed.dataset)
    assert raw["auroc_macro"] == pytest.approx(
        roc_auc_score(y.numpy(), run.of_samples(x).numpy(), multi_class="ovr", average="macro")
    )


def test_the_command_prints_every_step_and_takes_no_other_rows(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = output_of(capsys, "evaluate", made, "--decompose")
    assert all(step in said for step in STEPS) and "ECE" in said
    assert fedskew("evaluate", made, "--decompose", "--data", "digits") == 2
    assert "--decompose must be used without --data" in capsys.readouterr().err
    with pytest.raises(fs.ConfigError, match="ridge must be above 0; got 0"):
        fs.decompose(fs.load_model(made), fs.federate("digits", "iid", clients=4), ridge=0)
