"""What a component sees of a few rows, without a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fedskew import rng
from fedskew.types import Batch, Context, Output, Task, View

TASK = Task("fc", 3, 4, 5, 9)


def view(labels: list[int], **changes: Any) -> View:
    """What a component sees of these rows: seeded logits, features and parameters, everything else as given."""
    draw = np.random.default_rng(4)
    params = {n: torch.as_tensor(draw.normal(size=s)) for n, s in {"fc.weight": (3, 4), "fc.bias": (3,)}.items()}
    features = torch.as_tensor(draw.normal(size=(len(labels), 4)))
    out = Output(features @ params["fc.weight"].T + params["fc.bias"], features)
    counts = torch.tensor([16, 1, 81])
    lr, y = torch.tensor(0.1, dtype=torch.float64), torch.tensor(labels)
    ctx = Context(TASK, params, {}, {}, {}, counts, counts, lr)
    whole = Batch(features, y, torch.ones(len(labels), dtype=torch.float64))
    seen: Any = View(None, params, {}, out, whole, ctx, {}, rng.key(0), None)  # type: ignore[arg-type]
    return seen._replace(**changes)  # type: ignore[no-any-return]
