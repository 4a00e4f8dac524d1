"""What the files of a run hold: the entries of a configuration, a round and a summary, and their types.

Other entries may stand beside those that are named here: a later fedskew writes more.
"""

from typing import TypedDict

from fedskew.fields import plain_types
from fedskew.method.component import SLOTS
from fedskew.records.folder import TIMES
from fedskew.records.metrics import EACH, EVALUATED, GROUPED, PER_CLASS, SCORES
from fedskew.records.summary import ONCE, PREFIXES, TOTALS
from fedskew.records.typed import Number, Real, Whole, entries
from fedskew.settings import Division, Settings

BOUNDED = {int: Whole, float: Real, int | None: Whole | None, float | None: Number}
CLASSES = (*PER_CLASS, "support")  # a number for each


class NamedSpec(TypedDict):
    """An ingredient with its options."""

    name: str


class Collapsed(TypedDict):
    """Rounds in which training had collapsed."""

    measure: str
    limit: Real
    rounds: list[list[Whole]]
    worst: Real
    round: Whole


Method = entries("Method", {"name": str}, {"parts": list[NamedSpec], "preset": str, **dict.fromkeys(SLOTS, NamedSpec)})
Config = entries("Config", {}, {
    "method": str | Method, **dict.fromkeys(("data", "partition", "model"), str | NamedSpec),
    **{name: BOUNDED.get(plain, plain) for kind in (Settings, Division) for name, plain in plain_types(kind).items()},
    **dict.fromkeys(("label_names", "processors", "disclosed"), list[str]), "fingerprint": str, "started_by": str,
    "counts": list[list[Whole]], "own_data": bool,
})  # fmt: skip

Numbers = list[Number]
Recalls = entries("Recalls", {
    **dict.fromkeys(("before", "after", "local"), Numbers), "clients": dict[str, Numbers],
    "owned": dict[str, list[Whole]],
}, {"models": Whole})  # fmt: skip
Asymmetry = entries("Asymmetry", {
    "each": Numbers, "ratio": Number, "train_counts": list[Whole],
}, {"local": entries("LocalAsymmetry", {}, {"each": Numbers, "ratio": Number})})  # fmt: skip
Cosine = entries("Cosine", {"layers": list[str], "global": Numbers, "local": dict[str, Numbers]})
Drift = entries("Drift", {"norms": list[Real], "update": Real, "cancellation": Number})
Coverage = entries("Coverage", {"classes": Whole, "used": list[Whole]})
Features = entries("Features", {"file": str})
Diagnostics = entries("Diagnostics", {}, {
    "per_class": Recalls, "asymmetry": Asymmetry, "cosine": Cosine, "drift": Drift, "coverage": Coverage,
    "oversampling": dict[str, dict[str, list[Real]]], "features": Features,
})  # fmt: skip
NAMES = [prefix + name for prefix in PREFIXES for name in (*EVALUATED, *GROUPED)]
Round = entries("Round", {"round": Whole}, {
    **dict.fromkeys([*NAMES, *SCORES, "train_loss", "epsilon"], Number),
    **dict.fromkeys((*TOTALS, *TIMES), Real), "rounds": Whole,
    **dict.fromkeys([prefix + name for prefix in PREFIXES for name in CLASSES], list[Real]),
    **dict.fromkeys(EACH, Numbers), "clients": list[Whole | list[Whole]], "weights": list[Real],
    "diagnostics": Diagnostics,
})  # fmt: skip

Fit = entries("Fit", {
    "a": Real, "b": list[Real], "objective": str, "ridge": Real, "exchanges": Whole, "upload_bytes": Whole,
    "download_bytes": Whole,
}, {"of": str, "converged": bool, "clients": Whole})  # fmt: skip
Fits = entries("Fits", {"prior": Fit, "balanced": Fit})
Worst = entries("Worst", {"class": Whole, "name": str, "recall": Real, "unrecognised": Whole, "classes": Whole})
Best = entries("Best", {
    "monitor": str, "round": Whole, "value": Real, "accuracy": Real, "stopped_early": bool,
}, {name: Number for name in EVALUATED if name != "accuracy"})  # fmt: skip
Privacy = entries("Privacy", {
    **dict.fromkeys(("unit", "sampling", "neighbour", "released"), str),
    **dict.fromkeys(("epsilon", "delta", "clip", "noise"), Real),
})  # fmt: skip
Summary = entries("Summary", {"rounds": Whole, "stopped": str}, {
    **dict.fromkeys([f"{span}_{name}" for span in ("final", "best", "mean10", "mean50") for name in NAMES], Number),
    **dict.fromkeys([f"final_{name}" for name in (*SCORES, *ONCE)], Number),
    **dict.fromkeys([f"final_{name}" for name in EACH], Numbers), **dict.fromkeys([f"total_{n}" for n in TOTALS], Real),
    "final_fit": Fits, "final_fitted_per_class_recall": list[Real], "final_confusion": list[list[Whole]],
    "worst_class": Worst | None, "collapsed": list[Collapsed], "best": Best, "privacy": Privacy,
})  # fmt: skip
