"""Beside the equations: the logits that are served."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedskew as fs
from fedskew.method import Method
from fedskew.method.paces import Fixed
from fedskew.methods import METHODS
from support.federations import blobs
from support.runs import go


@pytest.mark.parametrize(
    "method",
    [METHODS["fednh"](), METHODS["fednh"](trained=True), METHODS["fedetf"]()],
    ids=["fednh", "fednh trained", "fedetf"],
)
def test_what_is_served_is_the_softmax_of_the_loss(method: Method, tmp_path: Path) -> None:
    """Scaled cosines, by numpy from the file of the model; as are the loss of the record and a loaded model."""
    method, fed = replace(method, pace=Fixed(epochs=2, lr=0.1, batch_size=4)), blobs([[9, 3, 1], [2, 2, 8]])
    result = go(fed, method, model="mlp", cohort=2, rounds=3, out=tmp_path / "run")
    params = {n: p.numpy() for n, p in result.params.items()}
    x, y = fed.dataset.x_test.double().numpy(), fed.dataset.y_test.numpy()
    h = np.maximum(x @ params["hidden1.weight"].T + params["hidden1.bias"], 0)
    if "fc.out.weight" in params:  # FedETF's linear projection
        h = h @ params["fc.out.weight"].T + params["fc.out.bias"]
    rows = params[result.task.weight]
    lengths = np.linalg.norm(h, axis=1, keepdims=True) * np.linalg.norm(rows, axis=1)
    scales = [float(v) for n, v in params.items() if n.endswith("scale") and n != "cosine_scale"]
    z = (scales[0] if scales else 30.0) * (h @ rows.T) / lengths
    chances = np.exp(z - z.max(1, keepdims=True))
    chances /= chances.sum(1, keepdims=True)
    assert result.rounds[-1]["loss"] == pytest.approx(-np.log(chances[np.arange(len(y)), y]).mean(), rel=1e-9)
    for trained in (result.trained, fs.load_model(tmp_path / "run")):
        found = trained.probabilities(fed.dataset.x_test, encoded=True)
        np.testing.assert_allclose(found.numpy(), chances, rtol=0, atol=1e-9)
