"""What a run records of its fitted model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedskew.engines.fitting import Fitting, fit, measured
from fedskew.types import Params

if TYPE_CHECKING:
    from fedskew.engines.base import LocalEngine

__all__ = ["fitted_row"]

Row = dict[str, Any]


def fitted_row(
    engine: LocalEngine, params: Params, buffers: Params, names: Sequence[str], recall_at: float | None = None
) -> Row:
    """Metrics of a run's fitted model on the test rows, ``fitted_...``; with ``recall_at`` also its scores and fits.

    Nothing where the engine cannot ask clients for sums, or where a logit is not finite.
    """
    ask = engine.logit_sums(params, buffers)
    logits, labels = engine.test.logits(params, buffers)
    if ask is None or not bool(logits.isfinite().all()):
        return {}
    prior = fit(ask, engine.fed.counts)
    balanced = fit(ask, engine.fed.counts, Fitting(objective="balanced"), prior)
    fits = {"prior": prior, "balanced": balanced}
    found = measured(labels, logits, fits, recall_at)
    row: Row = {f"fitted_{name}": found[name] for name in names}
    return row if recall_at is None else {**row, "fit": {name: one.to_json() for name, one in fits.items()}}
