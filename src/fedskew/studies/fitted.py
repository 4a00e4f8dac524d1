"""A gain beside the same gain under fitted biases and a temperature: what of it is a bias of the logits."""

from __future__ import annotations

from fedskew.errors import plural, unknown
from fedskew.records.summary import FITTED, summary_names
from fedskew.studies.differences import Difference

__all__ = ["beside", "fitted_name"]

POINT = 1.0  # a gain that is surely within one point of none counts as none


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
    told = f"{raw.method}: {_gain(raw)} raw, {_gain(fitted)} fitted, {plural(seeds, 'seed')}"
    return f"{told}: {_verdict(raw, fitted) if seeds > 1 else NONE}"


NONE = "no verdict; that takes two seeds that both methods have"


def _verdict(raw: Difference, fitted: Difference) -> str:
    low, high = _ends(raw)
    if low <= 0 <= high:
        side = _side(fitted)
        return {
            1: "a gain shows only after the fit, which takes a bias away from all methods",
            -1: "it is worse once biases are fitted to all methods",
            0: "neither shows a difference",
        }[side]
    what, sign = ("gain", 1) if low > 0 else ("loss", -1)
    if _side(fitted) == sign:
        return f"its {what} stays after the fit"
    near, far = sorted(sign * end for end in _ends(fitted))
    if far <= _unit(fitted):
        return f"its {what} is a bias of the logits" + ("" if far > 0 else ", and turns round without it")
    return f"after the fit no {what} is shown, and these seeds do not exclude one"


def _side(gap: Difference) -> int:
    """1 where the interval lies above zero, -1 below, 0 where it holds zero; above is better."""
    low, high = _ends(gap)
    return 1 if low > 0 else -1 if high < 0 else 0


def _ends(gap: Difference) -> tuple[float, float]:
    """The interval, oriented so that more is better."""
    ends = (gap.low or 0.0, gap.high or 0.0) if gap.higher_is_better else (-(gap.high or 0.0), -(gap.low or 0.0))
    return ends


def _in_points(gap: Difference) -> bool:
    return not gap.metric.endswith("loss")


def _unit(gap: Difference) -> float:
    """One point, in the metric's own unit; of a loss a hundredth of a nat."""
    return POINT / 100


def _gain(gap: Difference) -> str:
    """As in "+5.9 points (+1.0 to +9.9)"."""
    if gap.mean is None:
        return "no pair"
    scale, digits = (100, 1) if _in_points(gap) else (1, 3)
    span = "" if gap.low is None or gap.high is None else f" ({scale * gap.low:+.{digits}f} to {scale * gap.high:+.{digits}f})"
    return f"{scale * gap.mean:+.{digits}f}{' points' if _in_points(gap) else ''}{span}"
