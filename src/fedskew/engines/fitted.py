"""What a run records of its fitted model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedskew import server
from fedskew.engines.base import LocalEngine
from fedskew.engines.fitting import measured
from fedskew.method import Method
from fedskew.records.metrics import from_confusion
from fedskew.records.probabilities import RANKED
from fedskew.records.summary import FITTED, METRICS
from fedskew.records.typed import Row
from fedskew.server import State
from fedskew.types import Params

PERSONAL = ("accuracy", "macro_f1", "balanced_accuracy", "loss")  # what is recorded of what each client would use


def fitted_row(
    engine: LocalEngine,
    params: Params,
    buffers: Params,
    names: Sequence[str] = METRICS,
    recall_at: float | None = None,
    served: bool = False,
) -> Row:
    """Metrics of a run's fitted model on the test rows, ``fitted_...``; with ``recall_at`` also the fits.

    With ``served`` also ``fitted_served_...``, those on the clients' own test rows.

    Nothing where there are no test rows or no fits, or where a logit is not finite.
    """
    if not len(engine.fed.dataset.y_test):
        return {}
    logits, labels = engine.test.logits(params, buffers)
    fits = engine.fits(params, buffers) if bool(logits.isfinite().all()) else {}
    if not fits:
        return {}
    found = measured(labels, logits, fits, recall_at)
    row: Row = {f"{FITTED}{name}": found[name] for name in names}
    rows = engine.rows_of_shares(engine.fed) if served else np.empty(0, np.int64)
    if len(rows):
        if engine.fed.held is None:
            logits, labels = logits[rows], labels[rows]
        else:
            logits, labels = engine.train_set.logits(params, buffers, rows)
        found = measured(labels, logits, fits, None)
        row |= {f"{FITTED}served_{name}": found[name] for name in PERSONAL}
    return row if recall_at is None else {**row, "fit": {name: one.to_json() for name, one in fits.items()}}


def fitted_last(
    engine: LocalEngine, method: Method, state: State, params: Params, recall_at: float, served: bool
) -> Row:
    """What is measured of the last model: `fitted_row` with scores, and clients' own models with biases of their own.

    Args:
        engine: that trained it.
        method: by which.
        state: of the server.
        params: that are evaluated and deployed.
        recall_at: precision at which the recall of each class is measured.
        served: whether what each client would use is measured, too.
    """
    shared = served and not method.personal
    row = fitted_row(engine, params, state.buffers, (*METRICS, *RANKED), recall_at, shared)
    if row and method.personal:
        given = server.broadcast(method, state, None)._replace(params=params)
        matrix, loss = engine.personal(method, given, fitted=True)
        found = {**from_confusion(matrix), "loss": loss} if matrix.any() else {}
        for which in ("personal", *(["served"] if served else [])):
            row |= {f"{FITTED}{which}_{name}": found[name] for name in PERSONAL if found}
    return row
