"""IFCA: the models that the clusters start from."""

from __future__ import annotations

from typing import Any

import torch

from fedskew.methods.ifca import ClusterIdentity


def test_models_start_apart_with_the_same_entries() -> None:
    params = {"fc.weight": torch.arange(12.0).view(3, 4), "fc.bias": torch.zeros(3)}
    models: Any = ClusterIdentity(3).init_server(params, None, None)["models"]  # type: ignore[arg-type]
    assert torch.equal(models["fc.weight"][0], params["fc.weight"])
    for j in range(3):
        assert models["fc.weight"][j].flatten().sort().values.tolist() == list(range(12))
    assert len({tuple(w.flatten().tolist()) for w in models["fc.weight"]}) == 3
