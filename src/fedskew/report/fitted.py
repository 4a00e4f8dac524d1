"""The fitted models of a comparison beside the raw ones: what of a difference is a bias of the logits."""

import dataclasses
from typing import NamedTuple

from fedskew.records.summary import FITTED
from fedskew.report.compared import Compared, gaps, once
from fedskew.report.parts import TEXTS
from fedskew.studies.fitted import beside, fitted_labels, fitted_summary


@once
def twice(found: Compared) -> Compared:
    """The comparison with the fitted models of each method as a method of their own; the same one where none have."""
    labels = fitted_labels(((entry.method, entry.run.summary) for entry in found.entries), found.key)
    more = tuple(
        e._replace(method=labels[e.method], run=dataclasses.replace(e.run, summary=fitted_summary(e.run.summary)))
        for e in found.entries if e.method in labels
    )  # fmt: skip
    methods = (*found.methods, *(labels[m] for m in found.methods if m in labels))
    by = {label: method for method, label in labels.items()}
    return dataclasses.replace(found, entries=(*found.entries, *more), methods=methods, fitted=by) if by else found


@once
def fitted_alone(found: Compared) -> Compared | None:
    """The fitted models against the raw baseline: a family of comparisons of its own. None where none have any."""
    both = twice(found)
    kept = (found.baseline, *both.fitted)
    entries = tuple(entry for entry in both.entries if entry.method in kept)
    return dataclasses.replace(both, entries=entries, methods=kept) if both.fitted else None


class Pair(NamedTuple):
    """Numbers of a summary that stand beside each other, of one span of rounds."""

    raw: str
    fitted: str


@once
def _pair(found: Compared) -> Pair | None:
    """The metric and its fitted form; those of the last model where the rounds have none. None without any."""
    span, _, name = found.key.partition("_")
    if found.fitted:
        return None  # its fitted models are methods already
    for one in (Pair(found.key, f"{span}_{FITTED}{name}"), Pair(f"final_{name}", f"final_{FITTED}{name}")):
        if any(found.has(setting, one.fitted) for setting in found.settings):
            return one
    return None


def fitted_words(found: Compared, most: int) -> list[str]:
    """A sentence on each method under each setting, at most so many: its gain, raw and fitted."""
    pair = _pair(found)
    if pair is None:
        return []
    raw, fitted = gaps(found, pair.raw), gaps(found, pair.fitted)
    told = [f"{f'{at}: ' if at else ''}{beside(raw[m, at], gap)}." for (m, at), gap in fitted.items() if at is not None]
    more = [f"The table of results holds {len(told) - most} more."] if len(told) > most else []
    return [*([TEXTS["intervals"]] if told else []), *told[:most], *more]
