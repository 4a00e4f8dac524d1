"""A gain beside the same gain under fitted biases and a temperature: what of it is a bias of the logits.

A method's fitted models are a method of their own, too: "fedavg, fitted", derived from the runs of "fedavg".
"""

from collections.abc import Iterable, Mapping
from typing import Any

from fedskew.errors import plural, unknown
from fedskew.records.summary import FITTED, summary_names
from fedskew.records.typed import Row
from fedskew.studies.differences import Difference
from fedskew.studies.scores import FEWEST, NO_VERDICT
from fedskew.studies.verdicts import POINT

KEPT = ("rounds", "stopped", "total_")  # how names begin that hold for a run's fitted model, too

HIDDEN = {
    0: "neither shows a difference", 1: "a gain shows only after the fit", -1: "a loss shows only after the fit",
}  # fmt: skip
NONE = f"{NO_VERDICT}: the methods need {FEWEST} common seeds"


def fitted_name(metric: str) -> str:
    """The number of a summary that stands beside a metric.

    Raises:
        ConfigError: the metric has no fitted form.

    Example:
        >>> from fedskew.studies.fitted import fitted_name
        >>> fitted_name("mean10_accuracy")
        'mean10_fitted_accuracy'
    """
    span, _, name = metric.partition("_")
    made = metric if name.startswith(FITTED) else f"{span}_{FITTED}{name}"
    if made not in summary_names():
        known = [n for n in summary_names() if n.replace(FITTED, "", 1) in summary_names() and FITTED in n]
        raise unknown("fitted metric", made, known)
    return made


def fitted_summary(summary: Mapping[str, Any]) -> Row:
    """The summary of a run's fitted model: its metrics under their plain names, and what the fits sent beside the run.

    Example:
        >>> from fedskew.studies.fitted import fitted_summary
        >>> fitted_summary({"rounds": 9, "final_accuracy": 0.8, "final_fitted_accuracy": 0.9, "final_ece": 0.2})
        {'rounds': 9, 'final_accuracy': 0.9}
    """
    found = {name: value for name, value in summary.items() if name.startswith(KEPT)}
    for one in summary.get("final_fit", {}).values():
        for name in ("upload_bytes", "download_bytes"):
            found[f"total_{name}"] = found.get(f"total_{name}", 0) + one[name]
    return found | {name.replace(FITTED, "", 1): value for name, value in summary.items() if FITTED in name}


def fitted_labels(runs: Iterable[tuple[str, Mapping[str, Any]]], metric: str) -> dict[str, str]:
    """What the fitted models of each method are called, where every run that has the metric has its fitted form.

    A method with runs of before the fits has none: it would be compared on other settings and seeds than its raw one.

    Args:
        runs: (method, summary) of each run.
        metric: Number of a summary that is compared.

    Returns:
        Label by method, "fedavg, fitted" of fedavg; with a mark where a method is called so itself.

    Example:
        >>> from fedskew.studies.fitted import fitted_labels
        >>> raw = {"final_accuracy": 0.8}
        >>> runs = [("fedavg", raw | {"final_fitted_accuracy": 0.9}), ("fedla", raw)]
        >>> fitted_labels(runs, "final_accuracy")
        {'fedavg': 'fedavg, fitted'}
    """
    whole: dict[str, bool] = {}
    for method, summary in runs:
        if isinstance(summary.get(metric), int | float):
            fitted = isinstance(fitted_summary(summary).get(metric), int | float)
            whole[method] = whole.get(method, True) and fitted and not metric.startswith(KEPT)
        else:
            whole.setdefault(method, True)
    found: dict[str, str] = {}
    for method in (name for name, has in whole.items() if has):
        label = f"{method}, fitted"
        while label in whole:
            label += "'"
        found[method] = label
    return found


def beside(raw: Difference, fitted: Difference) -> str:
    """The verdict on a method: its gain over the baseline, raw and fitted, and whether the gain is a bias.

    A gain is shown where Student's 95 % interval of the paired differences lies on one side of zero. A fitted gain
    whose interval reaches no further than one point to that side is none.

    Args:
        raw: the method less the baseline.
        fitted: the same of the fitted models.

    Returns:
        A sentence, as in "fedga: +5.9 points raw (+1.0 to +9.9), -1.0 fitted (-2.0 to +0.1), 5 seeds: its gain is a
        bias of the logits".
    """
    seeds = min(raw.pairs, fitted.pairs)
    summary = f"{raw.method}: {_told(raw)} raw, {_told(fitted)} fitted, {plural(seeds, 'seed')}"
    return f"{summary}: {verdict(_ends(raw), _ends(fitted), seeds)}"


def verdict(raw: tuple[float, float], fitted: tuple[float, float], seeds: int) -> str:
    """What two intervals of a difference say together, oriented so that more is better.

    Args:
        raw: Ends of the interval of the raw difference.
        fitted: The same of the fitted models.
        seeds: Pairs of each; below `FEWEST` there is no verdict.

    Example:
        >>> from fedskew.studies.fitted import verdict
        >>> verdict((0.01, 0.1), (-0.02, 0.001), seeds=5), verdict((0.01, 0.1), (-0.02, 0.001), seeds=3)
        ('its gain is a bias of the logits', 'no verdict: the methods need 5 common seeds')
    """
    if seeds < FEWEST:
        return NONE
    low, high = raw
    if low <= 0 <= high:
        return HIDDEN[_side(fitted)]
    what, sign = ("gain", 1) if low > 0 else ("loss", -1)
    if _side(fitted) == sign:
        return f"its {what} stays after the fit"
    far = max(sign * end for end in fitted)
    if far <= POINT:
        return f"its {what} is a bias of the logits" + ("" if far > 0 else ", and its sign changes after the fit")
    return f"after the fit no {what} is shown, but these seeds do not exclude one"


def _side(ends: tuple[float, float]) -> int:
    """1 where the interval lies above zero, -1 below, 0 where it holds zero; above is better."""
    low, high = ends
    return 1 if low > 0 else -1 if high < 0 else 0


def _ends(gap: Difference) -> tuple[float, float]:
    """The interval, oriented so that more is better."""
    low, high = gap.low or 0.0, gap.high or 0.0
    return (low, high) if gap.higher_is_better else (-high, -low)


def _told(gap: Difference) -> str:
    """As in "+5.9 points (+1.0 to +9.9)"."""
    return f"{gap.words} ({gap.interval})" if gap.interval else gap.words
