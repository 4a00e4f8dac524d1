"""Decisions by a threshold on the probability of one class: its choice, and what the decisions are worth.

Pure functions of numpy arrays in float64. The n rows have y, whether a row is of the positive class, and p, its
predicted probability of that class. A row is decided positive where p >= t. P rows are positive, N are negative.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fedskew import rng
from fedskew.errors import ConfigError, DataError, plural, require, unknown
from fedskew.records.metrics import BINS
from fedskew.records.typed import Row

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

FEW = 5  # rows of a class: with fewer, no AUROC and no AUPRC are shown
SMALL = 30  # hits or misses of a share: with fewer, its interval is Wilson's and not the bootstrap's
DRAWS = 1000  # of the bootstrap
LEVEL = 0.95  # of every interval
Z = 1.959963984540054  # the normal quantile of (1 + LEVEL) / 2
CELLS = 1 << 21  # draws times rows that are looked at together
SHARES = ("sensitivity", "specificity", "ppv", "npv")
NUMBER = r"(\d+\.?\d*(?:e-?\d+)?)"
KINDS = {
    "recall@specificity": f"recall@specificity={NUMBER}", "specificity@recall": f"specificity@recall={NUMBER}",
    "costs": f"fp={NUMBER},fn={NUMBER}", "prevalence": f"prevalence(?:={NUMBER})?", "number": NUMBER,
}  # fmt: skip
RULES = "recall@specificity=0.9, specificity@recall=0.9, fp=1,fn=5, prevalence, prevalence=0.2, or a number in [0, 1]"


@dataclass(frozen=True)
class Decision:
    """A threshold on the probability of one class, and how it was chosen.

    Attributes:
        positive: Name of the class.
        column: Its column in the probabilities.
        threshold: A row is decided positive where its probability of the class is this or more.
        rule: How the threshold was chosen; see `choose_threshold`.
        chosen_on: The rows that it was chosen on, "validation"; "" where it was given as a number.
        rows: Their number.
        positives: The number of them that are of the class.
        fitted: Whether the probabilities are those of the fitted model.
        client: Name of the client whose rows they are; "" for those of all clients.
        each: Of each client with a threshold of its own that decision, by name; all other rows have the one above.

    Example:
        >>> import numpy as np
        >>> from fedskew.records.decisions import Decision
        >>> Decision("ill", 0, 0.3, "0.3")(np.array([[0.4, 0.6], [0.2, 0.8]])).tolist()
        [True, False]
    """

    positive: str
    column: int
    threshold: float
    rule: str
    chosen_on: str = ""
    rows: int = 0
    positives: int = 0
    fitted: bool = False
    client: str = ""
    each: Mapping[str, "Decision"] = field(default_factory=dict)

    def __call__(self, probabilities: Any, clients: Sequence[str] | None = None) -> Bools:
        """Which rows are decided positive, bool [n], by probabilities [n, C] of a model with the same classes.

        ``clients`` has the name of each row's client, "" for none, where clients have thresholds of their own.
        """
        p = np.asarray(probabilities)[:, self.column]
        return np.asarray(p >= self.thresholds([""] * len(p) if clients is None else clients))

    def of(self, client: str) -> "Decision":
        """What decides the rows of a client: its own decision, else this one."""
        return self.each.get(client, self)

    def thresholds(self, clients: Sequence[str]) -> Floats:
        """The threshold of each row, [n], by the name of its client."""
        return np.array([self.of(client).threshold for client in clients], dtype=np.float64)


class RowsByClient(dict[str, Row]):
    """Rows of clients by name. A name that is not there is a ConfigError, with the one that was probably meant."""

    def __missing__(self, name: object) -> Row:
        raise unknown("client", str(name), self)


def choose_threshold(y: npt.ArrayLike, p: npt.ArrayLike, rule: str | float) -> float:
    """The threshold that serves a rule best on rows with labels.

    Candidates lie in the middle between neighbouring probabilities that occur; the lowest decides every row positive,
    the highest none. With recall r(t) = TP / P, specificity s(t) = TN / N and D(t) rows decided positive:

        recall@specificity=v   max r(t)  subject to  s(t) >= v
        specificity@recall=v   max s(t)  subject to  r(t) >= v
        fp=a,fn=b              min a FP(t) + b FN(t); of several, the nearest to a / (a + b), the threshold that
                               calibrated probabilities would have
        prevalence=v           min |D(t) - v n|; ``prevalence`` alone takes v = P / n
        0.3                    t = 0.3, without a look at the rows

    Of several that serve the first two alike, the one with the greater specificity or recall is taken.

    Args:
        y: Whether each row is of the class, bool [n].
        p: Predicted probability of the class, [n].
        rule: One of the above.

    Returns:
        The threshold, in [0, 1]; just above 1 where only a decision for no row will do and a probability is 1.

    Raises:
        ConfigError: The rule is none.
        DataError: The shapes differ, a value is no probability, or the rows lack one of the two classes.

    Example:
        >>> from fedskew.records.decisions import choose_threshold
        >>> y, p = [False, True, False, True], [0.1, 0.4, 0.6, 0.8]
        >>> round(choose_threshold(y, p, "recall@specificity=1"), 6), round(choose_threshold(y, p, "fp=1,fn=5"), 6)
        (0.7, 0.25)
    """
    kind, values = parsed_rule(rule)
    if kind == "number":
        return values[0]
    labels, scores = _checked(y, p)
    positives, rows = int(labels.sum()), len(labels)
    if not 0 < positives < rows:
        raise DataError(f"a threshold must be chosen on rows of both classes; got {positives} positive rows of {rows}")
    order, starts = _ties(scores)
    levels, ends = scores[order][starts], np.append(starts[1:], rows)
    called = np.append(0, ends)
    hits = np.append(0, labels[order].cumsum()[ends - 1])
    upper, lower = np.append(np.nextafter(1.0, 2.0), levels), np.append(levels, 0.0)
    middle = (upper + lower) / 2
    thresholds = np.where(middle > lower, middle, upper)
    recall, specificity = hits / positives, (rows - positives - called + hits) / (rows - positives)
    allowed, first, second = np.ones(len(called), bool), recall, specificity
    if kind == "recall@specificity":
        allowed = specificity >= values[0]
    elif kind == "specificity@recall":
        allowed, first, second = recall >= values[0], specificity, recall
    elif kind == "costs":
        fp, fn = values
        first, second = -(fp * (called - hits) + fn * (positives - hits)), -np.abs(thresholds - fp / (fp + fn))
    else:
        first, second = -np.abs(called - (values[0] * rows if values else positives)), -called
    return float(thresholds[np.lexsort((second, first, allowed))[-1]])


def client_names(owners: npt.NDArray[np.int64], names: Sequence[str] = ()) -> list[str]:
    """The name of each row's client, "" for none, by its number; names are numbers unless given."""
    return ["" if k < 0 else names[k] if names else str(k) for k in owners.tolist()]


def parsed_rule(rule: str | float) -> tuple[str, tuple[float, ...]]:
    """(kind, numbers) of a rule of `choose_threshold`. Raises ConfigError for another text or number."""
    for kind, pattern in KINDS.items():
        if match := re.fullmatch(pattern, str(rule).replace(" ", "")):
            values = tuple(float(text) for text in match.groups() if text)
            if sum(values) > 0 if kind == "costs" else all(value <= 1 for value in values):
                return kind, values
    raise ConfigError(
        f"threshold must be {RULES}; got {rule!r}; shares are from 0 to 1, and one cost is above 0; "
        "recall is the sensitivity, and specificity@recall=0.9 finds nine of ten with the fewest false alarms"
    )


def wilson(hits: float, rows: float) -> tuple[float, float]:
    """Wilson's interval of a share at 95 %, which holds for few rows and for shares near 0 and 1, too.

        (h + z^2 / 2 -+ z sqrt(h (n - h) / n + z^2 / 4)) / (n + z^2)

    Args:
        hits: h, rows that count.
        rows: n, at least 1.

    Returns:
        (low, high), in [0, 1].

    Example:
        >>> from fedskew.records.decisions import wilson
        >>> [round(end, 4) for end in wilson(8, 10)]
        [0.4902, 0.9433]

    References:
        Wilson 1927, Probable Inference, the Law of Succession, and Statistical Inference. JASA 22(158).
    """
    half = Z * math.sqrt(hits * (rows - hits) / rows + Z**2 / 4)
    low, high = ((hits + Z**2 / 2 + sign * half) / (rows + Z**2) for sign in (-1, 1))
    return max(low, 0.0), min(high, 1.0)


def net_benefit(y: npt.ArrayLike, p: npt.ArrayLike, thresholds: npt.ArrayLike) -> Floats:
    """Net benefit of deciding by threshold probabilities: a decision curve.

        NB(t) = TP(t) / n - FP(t) / n * t / (1 - t)

    A threshold of t says that one true positive is worth (1 - t) / t false ones. Treating all has P / n - N / n * t /
    (1 - t), which is this with p = 1; treating none has 0.

    Args:
        y: Whether each row is of the class, bool [n].
        p: Predicted probability of the class, [n].
        thresholds: t, [T], in [0, 1).

    Returns:
        Net benefits, float64 [T].

    Raises:
        ConfigError: A threshold is not in [0, 1).
        DataError: As for `choose_threshold`.

    Example:
        >>> from fedskew.records.decisions import net_benefit
        >>> net_benefit([False, True, False, True], [0.1, 0.4, 0.6, 0.8], [0.2, 0.5]).tolist()
        [0.4375, 0.0]

    References:
        Vickers and Elkin 2006, Decision Curve Analysis: A Novel Method for Evaluating Prediction Models. Medical
        Decision Making 26(6).
    """
    labels, scores = _checked(y, p)
    t = np.asarray(thresholds, dtype=np.float64)
    require(bool(((t >= 0) & (t < 1)).all()), "thresholds", "be in [0, 1)", thresholds)
    above, hits = (len(s) - np.searchsorted(np.sort(s), t) for s in (scores, scores[labels]))
    return np.asarray((hits - (above - hits) * t / (1 - t)) / len(labels))


def reliability(y: npt.ArrayLike, p: npt.ArrayLike, bins: int = BINS) -> tuple[Floats, Floats, Floats]:
    """Rows, mean probability and share of positives of each bin of the probability that holds a row.

    Args:
        y: Whether each row is of the class, bool [n].
        p: Predicted probability of the class, [n].
        bins: Bins of equal width over [0, 1], each with its upper end; the first one holds 0, too.

    Returns:
        (rows, mean p, share), float64 [b] each, b bins.

    Raises:
        DataError: As for `choose_threshold`.

    Example:
        >>> from fedskew.records.decisions import reliability
        >>> [values.tolist() for values in reliability([False, True, True], [0.25, 0.25, 0.75], bins=2)]
        [[2.0, 1.0], [0.25, 0.75], [0.5, 1.0]]
    """
    labels, scores = _checked(y, p)
    place = _bins(scores, bins)
    rows, chance, share = (np.bincount(place, w, bins) for w in (np.ones(len(scores)), scores, labels.astype(float)))
    seen = rows > 0
    return rows[seen].astype(np.float64), chance[seen] / rows[seen], share[seen] / rows[seen]


def report(
    labels: Any, probabilities: Any, column: int, threshold: float | Floats | None = None,
    owners: npt.NDArray[np.int64] | None = None, names: Sequence[str] = (),
) -> Row:  # fmt: skip
    """What probabilities of a class and decisions are worth, with 95 % intervals: of all rows, and of each client's.

        sensitivity TP / P    specificity TN / N    PPV TP / (TP + FP)    NPV TN / (TN + FN)
        F1 2 TP / (2 TP + FP + FN)    Brier score sum (p - y)^2 / n
        ECE of p: sum_b n_b / n |share of positives_b - mean p_b|, over 15 bins

    AUROC and AUPRC (average precision) are those of `fedskew.metrics`. An interval is the middle 95 % of 1000
    bootstrap draws: n of the n rows with replacement, a client's within it. The interval of a share with fewer than 30
    hits or 30 misses is that of `wilson`, since draws of few rows are too alike. Draws of the
    ECE are shifted to have the value as their mean; of few rows it is itself too large, since chance moves every bin.
    Rows are taken as independent.

    Args:
        labels: True classes, integers [n].
        probabilities: Predicted probabilities, [n, C].
        column: The class that is positive; y are its rows, p its probabilities.
        threshold: Decides a row positive where p is this or more, one or [n]; None leaves these decisions out.
        owners: Client of each row, [n]; -1 for none. None leaves the clients out.
        names: Name of each client.

    Returns:
        ``rows``, ``positives``; ``brier``, ``ece_positive``, ``auroc`` and ``auprc``; under ``argmax``, which decides
        by the most probable class, and ``threshold`` the number ``decided`` positive, the shares and ``f1``; ``notes``.
        A metric is {value, low, high, by}, and None where it is not defined, or where a class has fewer than 5 rows and
        the metric ranks. ``clients`` has the same of each client with rows.

    Raises:
        DataError: As for `choose_threshold`.

    Example:
        >>> import numpy as np
        >>> from fedskew.records.decisions import report
        >>> p = np.linspace(0.1, 0.9, 8)
        >>> found = report([0, 1, 0, 0, 0, 0, 0, 1], np.stack([1 - p, p], 1), 1, 0.5)
        >>> found["threshold"]["sensitivity"]["value"], found["auroc"], found["notes"]
        (0.5, None, ['2 positive rows: no AUROC is shown'])
    """
    chances = np.asarray(probabilities, dtype=np.float64)
    y, p = _checked(np.asarray(labels) == column, chances[:, column])
    decided = {"argmax": chances.argmax(1) == column} | ({} if threshold is None else {"threshold": p >= threshold})
    out = _reported(y, p, decided)
    if owners is not None:
        out["clients"] = RowsByClient()
        for k in np.unique(owners[owners >= 0]).tolist():
            at = owners == k
            of_client = _reported(y[at], p[at], {name: chosen[at] for name, chosen in decided.items()})
            out["clients"][names[k] if names else str(k)] = of_client
    return out


def _reported(y: Bools, p: Floats, decided: Mapping[str, Bools]) -> Row:
    """`report` of the rows of one client, or of all."""
    n, positives = len(y), int(y.sum())
    gen, size = rng.generator(0, "bootstrap of decisions"), max(1, CELLS // n)
    chunks = []
    for draws in np.diff([*range(0, DRAWS, size), DRAWS]).tolist():
        at = gen.integers(n, size=(draws, n)) + n * np.arange(draws)[:, None]
        chunks.append(_measured(y, p, decided, np.bincount(at.ravel(), minlength=draws * n).reshape(draws, n)))
    few = [(count, kind) for count, kind in ((positives, "positive"), (n - positives, "negative")) if count < FEW]
    notes = [f"{plural(count, f'{kind} row')}: no AUROC is shown" for count, kind in few]
    out: Row = {"rows": n, "positives": positives, "notes": notes}
    out |= {name: {"decided": int(chosen.sum())} for name, chosen in decided.items()}
    for name, ((part,), (whole,)) in _measured(y, p, decided, np.ones((1, n))).items():
        kind, _, metric = name.rpartition(" ")
        with np.errstate(invalid="ignore"):  # a draw without a row of the class
            drawn = np.concatenate([np.divide(*chunk[name]) for chunk in chunks])
        measured = None
        if whole and not (few and metric in ("auroc", "auprc")):
            value, by = float(part / whole), "bootstrap"
            if metric == "ece_positive":  # draws repeat rows, which adds to every bin: they may all lie above the value
                drawn = np.maximum(drawn - drawn.mean() + value, 0)
            low, high = np.nanquantile(drawn, ((1 - LEVEL) / 2, (1 + LEVEL) / 2)).tolist()
            if metric in SHARES and min(part, whole - part) < SMALL:
                (low, high), by = wilson(float(part), float(whole)), "wilson"
            measured = {"value": value, "low": low, "high": high, "by": by}
        (out[kind] if kind else out)[metric] = measured
    return out


def _measured(
    y: Bools, p: Floats, decided: Mapping[str, Bools], weights: npt.NDArray[Any]
) -> dict[str, tuple[Floats, Floats]]:
    """Every metric under B weightings of the rows, [B, n], as (part, whole) of a ratio, float64 [B] each."""
    w = weights.astype(np.float64)
    rows, positives = w.sum(1), w @ y
    negatives = rows - positives
    gaps = np.zeros((len(p), BINS))
    gaps[np.arange(len(p)), _bins(p, BINS)] = y - p
    order, starts = _ties(p)
    sorted_y, sorted_w = y[order], w[:, order]
    hits, misses = (np.add.reduceat(sorted_w * kind, starts, axis=1) for kind in (sorted_y, ~sorted_y))
    hits_above = hits.cumsum(1)
    precision = hits_above / np.maximum(hits_above + misses.cumsum(1), 1)
    out = {
        "brier": (w @ (p - y) ** 2, rows),
        "ece_positive": (np.abs(w @ gaps).sum(1), rows),
        "auroc": ((misses * (hits_above - hits / 2)).sum(1), positives * negatives),
        "auprc": ((hits * precision).sum(1), positives),
    }
    for name, chosen in decided.items():
        called, both = w @ chosen, w @ (chosen & y)
        right = negatives - called + both
        ratios = (both, positives), (right, negatives), (both, called), (right, rows - called)
        out |= {f"{name} {share}": ratio for share, ratio in zip(SHARES, ratios, strict=True)}
        out[f"{name} f1"] = 2 * both, called + positives
    return out


def _ties(p: Floats) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(rows from the highest probability on, the first place of each that differs from the one before)."""
    order = np.argsort(-p, kind="stable")
    return order, np.append(0, np.flatnonzero(np.diff(p[order])) + 1)


def _bins(p: Floats, bins: int) -> npt.NDArray[np.int64]:
    """Bin of each probability: of equal width over [0, 1], each with its upper end."""
    return np.searchsorted(np.arange(1, bins) / bins, p)


def _checked(y: npt.ArrayLike, p: npt.ArrayLike) -> tuple[Bools, Floats]:
    """(y, p) as arrays [n]. Raises DataError."""
    labels, scores = np.asarray(y).astype(bool), np.asarray(p, dtype=np.float64)
    if labels.ndim != 1 or labels.shape != scores.shape or not len(labels):
        raise DataError(f"y and p must be [n], with a row; got shapes {labels.shape} and {scores.shape}")
    if not bool(((scores >= 0) & (scores <= 1)).all()):
        raise DataError("p must hold probabilities, in [0, 1]")
    return labels, scores
