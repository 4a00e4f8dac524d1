"""What a run's rounds come to: final, best and mean values, the worst class, totals, and whether training collapsed."""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from fedskew.errors import unknown
from fedskew.records.metrics import EACH, EVALUATED, RANKED, SCORES, metric_of
from fedskew.records.typed import Row

TOTALS = ("upload_bytes", "download_bytes", "contacts", "samples", "steps", "wall_s")
FITTED = "fitted_"  # of the model with fitted biases and temperature
AVERAGED = "averaged_"  # of the mean of the models of the last ten rounds
TAIL = 10  # rounds of the first mean that a summary has
MEANS = {"mean10": TAIL, "mean50": 50}
LOSS_LIMIT = 10.0  # times ln C, the cross-entropy of a guess: no training that works is so far above it
CHANCE = 1.1  # times 1 / C, the balanced accuracy of one and the same answer
PATIENCE = 10  # evaluations in a row: a run may begin at chance
AT_END = 5  # evaluations in a row that suffice where they are the last: what the run leaves is at chance


PREFIXES = (  # of the rows that a metric is of
    "", "val_", "local_", "personal_", "served_", "heldout_", "heldout_personal_", "heldout_served_", FITTED,
    f"{FITTED}personal_", f"{FITTED}served_", AVERAGED, f"{AVERAGED}{FITTED}",
)  # fmt: skip


HOW = {
    "final": "at the last evaluation",
    "best": "the best round, chosen on the test rows",
    "total": "the sum over all rounds",
}  # of what numbers of a summary begin with; `span_words` has those of means
WHOSE = {
    "": "",
    "personal_": " of the clients' own models",
    "served_": " of what each client would use (own model where the method has one)",
}


# scores of the fitted and of the mean model, which are measured once, after the last round
ONCE = tuple(f"{model}{name}" for model in (FITTED, AVERAGED, f"{AVERAGED}{FITTED}") for name in RANKED)


def summary_names() -> tuple[str, ...]:
    """The numbers that a summary may hold, but those of one class.

    Example:
        >>> from fedskew.records.summary import summary_names
        >>> {"mean10_accuracy", "final_ece", "total_upload_bytes"} <= set(summary_names())
        True
    """
    spans = ("final", "best", *MEANS)
    rounds = [f"{span}_{prefix}{name}" for prefix in PREFIXES for name in EVALUATED for span in spans]
    scores = *SCORES, *ONCE
    return *rounds, *(f"final_{name}" for name in scores), *(f"total_{name}" for name in TOTALS)


def fitted_name(metric: str) -> str:
    """The number of a summary that stands beside a metric.

    Raises:
        ConfigError: The metric has no fitted form.

    Example:
        >>> from fedskew.records.summary import fitted_name
        >>> fitted_name("mean10_accuracy")
        'mean10_fitted_accuracy'
    """
    span, _, name = metric.partition("_")
    made = metric if name.startswith(FITTED) else f"{span}_{FITTED}{name}"
    if made not in summary_names():
        known = [n for n in summary_names() if n.replace(FITTED, "", 1) in summary_names() and FITTED in n]
        raise unknown("fitted metric", made, known)
    return made


def prefix_of(metric: str) -> str:
    """Of which rows and models a metric of a round is: "personal_" of "personal_accuracy".

    Example:
        >>> from fedskew.records.summary import prefix_of
        >>> prefix_of("heldout_served_macro_f1"), prefix_of("accuracy")
        ('heldout_served_', '')
    """
    return max((prefix for prefix in PREFIXES if metric.startswith(prefix)), key=len)


def metric_words(name: str) -> str:
    """A metric of a round in words: "macro F1", "accuracy of what each client would use (...)"."""
    before, which, metric = name.rpartition("served_")
    if not which:
        before, which, metric = name.rpartition("personal_")
    known = metric_of(metric)
    before += metric.removesuffix(known.name) if known else metric
    words = before.replace("_", " ") + (known.title if known else "")
    words = words.replace("val ", "validation ", 1) if words.startswith("val ") else words
    return words + WHOSE[which]


class Tail(NamedTuple):
    """What a mean over the last rounds of a run is of."""

    rounds: int  # a run may have fewer than the name says
    evaluations: int | None  # None where the record does not tell: an archive keeps some rounds and metrics


def tail_of(key: str, summary: Row, rows: Sequence[Row]) -> Tail | None:
    """Of which rounds a mean of a summary is, such as ``mean10_accuracy``; None of another number.

    Example:
        >>> from fedskew.records.summary import tail_of
        >>> tail_of("mean10_accuracy", {"rounds": 3}, [{"round": r, "accuracy": 0.5} for r in (1, 2, 3)])
        Tail(rounds=3, evaluations=3)
    """
    span, _, metric = key.partition("_")
    if span not in MEANS:
        return None
    done = summary.get("rounds") or MEANS[span]
    rounds = min(MEANS[span], done)
    evaluations = sum(metric in row for row in rows if row["round"] > done - rounds)
    if evaluations and len(rows) == done:
        return Tail(rounds, evaluations)
    # the mean of what is measured of the last model alone is that one value
    once = not evaluations and key in summary and summary[key] == summary.get(f"final_{metric}")
    return Tail(rounds, 1 if once else None)


def span_words(key: str, tails: Iterable[Tail]) -> str:
    """The rounds that a number of summaries is of, such as "the mean over the last 5 rounds".

    Args:
        key: The number.
        tails: `tail_of` each run, of a mean.

    Example:
        >>> from fedskew.records.summary import Tail, span_words
        >>> span_words("mean50_accuracy", [Tail(5, 5)]), span_words("final_accuracy", [])
        ('the mean over the last 5 rounds', 'at the last evaluation')
    """
    span, held = key.partition("_")[0], list(tails)
    if span not in MEANS:
        return HOW[span]
    if held and all(tail.evaluations == 1 for tail in held):
        return HOW["final"]
    rounds = sorted({tail.rounds for tail in held}) or [MEANS[span]]
    ends = f"{rounds[0]} to {rounds[-1]}" if len(rounds) > 1 else str(rounds[0])
    return f"the mean over the last {ends} rounds"


class Collapse(NamedTuple):
    """Rounds in which training had collapsed."""

    measure: str  # "train_loss", "balanced_accuracy" or "personal_balanced_accuracy"
    limit: float
    rounds: list[list[int]]  # [first, last] of each spell
    worst: float
    round: int  # of the worst value

    @property
    def words(self) -> str:
        """As in "training loss 3.2e+09 in round 5 (a guess has 2.3)"."""
        spells = ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in self.rounds)
        where = f"round{'s' * (len(self.rounds) > 1 or self.rounds[0][0] != self.rounds[0][1])} {spells}"
        if self.measure == "train_loss":
            above = f"training loss above {self.limit:.3g}, ten times that of a guess, in {where}"
            return f"{above} ({self.worst:.2g} in round {self.round})"
        whose = "" if self.measure == "balanced_accuracy" else " of the clients' own models"
        return f"balanced accuracy{whose} below {self.limit:.3g}, 1.1 times that of a guess, in {where}"


def summarise(
    rows: Sequence[Row],
    stopped: str = "",
    class_names: Sequence[str] = (),
    finals: Row | None = None,
    serves: str = "global",
) -> Row:
    """Summarise rounds: final, best and mean values of every metric, the worst class, collapses, and totals.

    Means are over the last 10 and 50 rounds; they cover the rounds among these that were evaluated.

    Args:
        rows: Rounds, as rounds.jsonl holds them.
        stopped: Why the run stopped early, if it did.
        class_names: Names of the classes, for the worst one.
        finals: What was measured once, of the last model; where it is not given, the last evaluated row's scores.
        serves: What clients use, `Method.serves`: collapses are those of a model that is used.

    Returns:
        The summary.

    Example:
        >>> from fedskew.records.summary import summarise
        >>> costs = {"upload_bytes": 8, "download_bytes": 8, "samples": 4, "steps": 2, "wall_s": 0.1}
        >>> found = summarise([{"round": r, "accuracy": r / 10, **costs} for r in (1, 2, 3)])
        >>> found["final_accuracy"], round(found["mean10_accuracy"], 4), found["total_upload_bytes"]
        (0.3, 0.2, 24)
    """
    out: Row = {"rounds": rows[-1]["round"] if rows else 0, "stopped": stopped}
    for name in [prefix + name for prefix in PREFIXES for name in EVALUATED]:
        out |= _spans(rows, name)
    scores = {name: value for name, value in _last(rows).items() if name in (*SCORES, *EACH)}
    out |= {f"final_{name}": value for name, value in (finals or scores).items()}
    once = {name: value for name, value in (finals or {}).items() if name.startswith(("served_", "heldout_served_"))}
    out |= {key: value for name, value in once.items() if (key := f"mean10_{name}") not in out}
    out["worst_class"] = worst_class(_last(rows), class_names)
    out["collapsed"] = [sign._asdict() for sign in collapses(rows, serves)]
    out |= _diagnosed(rows)
    for name in TOTALS:
        if all(name in row for row in rows):  # rounds of earlier versions have no contacts
            out[f"total_{name}"] = sum(row[name] for row in rows)
    return out


def _diagnosed(rows: Sequence[Row]) -> Row:
    """The mean over rounds of each number that a diagnostic has; its lists and tables stay in the rounds."""
    numbers: dict[str, list[float]] = {}
    for name, entries in (pair for row in rows for pair in row.get("diagnostics", {}).items()):
        for entry, value in entries.items():
            if isinstance(value, int | float):
                numbers.setdefault(f"mean_{name}_{entry}", []).append(value)
    return {name: sum(values) / len(values) for name, values in numbers.items()}


def _spans(rows: Sequence[Row], name: str) -> Row:
    """Final, best and mean values of a metric.

    A fit may have been made in some evaluations only: their mean or best value is none beside that of all.
    """
    seen = {row["round"]: row[name] for row in rows if name in row}
    lacking = [row["round"] for row in rows if "accuracy" in row and name not in row]
    missing = max(lacking, default=0) if FITTED in name else 0
    if not seen or missing > max(seen):
        return {}
    ends = rows[-1]["round"]
    out: Row = {f"final_{name}": seen[max(seen)]}
    if not missing:
        out[f"best_{name}"] = (max if more_is_better(name) else min)(seen.values())
    for span, rounds in MEANS.items():
        last = [v for r, v in seen.items() if r > ends - rounds]
        if missing <= max(ends - rounds, 0):
            out[f"{span}_{name}"] = sum(last) / len(last) if last else None
    return out


def _last(rows: Sequence[Row]) -> Row:
    """The last evaluated round."""
    return next((row for row in reversed(rows) if "per_class_recall" in row), {})


def worst_class(row: Row, class_names: Sequence[str] = ()) -> Row | None:
    """The class with the smallest recall among those with test rows, the first of several.

    Args:
        row: An evaluated round.
        class_names: Names of the classes.

    Returns:
        ``class``, its number; ``name``; ``recall``; ``unrecognised``, how many classes have recall 0, in which case the
        G-mean is 0; ``classes``, how many have test rows. None where nothing was evaluated.

    Example:
        >>> from fedskew.records.summary import worst_class
        >>> worst_class({"per_class_recall": [0.9, 0.2, 0.0], "support": [5, 5, 0]}, ["cat", "dog", "fox"])
        {'class': 1, 'name': 'dog', 'recall': 0.2, 'unrecognised': 0, 'classes': 2}
    """
    recalls = row.get("per_class_recall") or []
    support = row.get("support") or [1] * len(recalls)
    seen = [(recall, c) for c, (recall, n) in enumerate(zip(recalls, support, strict=True)) if n]
    if not seen:
        return None
    recall, c = min(seen)
    name = str(class_names[c]) if c < len(class_names) else str(c)
    zero = sum(r == 0 for r, _ in seen)
    return {"class": c, "name": name, "recall": recall, "unrecognised": zero, "classes": len(seen)}


def worst_words(summary: Row) -> str:
    """As in "worst class 6 (Shirt) with recall 0.4120, G-mean 0.7612"; "" where nothing was evaluated."""
    worst = summary.get("worst_class")
    if not worst:
        return ""
    named = str(worst["class"]) if worst["name"] == str(worst["class"]) else f"{worst['class']} ({worst['name']})"
    if not worst["unrecognised"]:
        return f"worst class {named} with recall {worst['recall']:.4f}, G-mean {summary['final_g_mean']:.4f}"
    zero = f"{worst['unrecognised']} of {worst['classes']} classes have" if worst["unrecognised"] > 1 else "1 class has"
    return f"worst class {named} with recall 0, G-mean 0 ({zero} recall 0)"


def privacy_words(summary: Row) -> str:
    r"""What differential privacy a run's models have; "" where they have none.

    Example:
        >>> from fedskew.records.summary import privacy_words
        >>> spent = {"epsilon": 2.95, "delta": 1e-5, "clip": 1.0, "noise": 0.99, "released": "models of all rounds"}
        >>> spent |= {"sampling": "poisson, 3 of 20 clients", "neighbour": "one client added or removed"}
        >>> print(privacy_words({"privacy": spent}).replace("; ", ";\n"))
        epsilon 2.95, delta 1e-05 for one client added or removed, of the models of all rounds;
        clip 1, noise 0.99;
        poisson, 3 of 20 clients;
        tuning is not counted
    """
    if not (p := summary.get("privacy")):
        return ""
    bound = f"epsilon {p['epsilon']:.4g}, delta {p['delta']:g} for {p['neighbour']}, of the {p['released']}"
    return f"{bound}; clip {p['clip']:g}, noise {p['noise']:.4g}; {p['sampling']}; tuning is not counted"


# Collapses


def collapses(rows: Sequence[Row], serves: str = "global") -> list[Collapse]:
    """Whether training collapsed, and when.

    Two signs, with C classes: a training loss above 10 ln C, in any round; a balanced accuracy of the test rows under
    1.1 / C, C the classes with test rows, in ten evaluations in a row, or in the last five or more. Nothing is said of
    a run that was not evaluated.

    Args:
        rows: Rounds, as rounds.jsonl holds them.
        serves: What clients use, `Method.serves`. With "own" the balanced accuracy is that of the clients' own models:
            the method trains no other.

    Returns:
        A `Collapse` for each sign that was seen.

    Example:
        >>> from fedskew.records.summary import collapses
        >>> row = {"support": [5, 5], "per_class_recall": [1.0, 0.0], "balanced_accuracy": 0.5}
        >>> for seen in collapses([{**row, "round": r, "train_loss": 0.7 if r != 2 else 1e9} for r in range(1, 12)]):
        ...     print(seen.words)
        training loss above 6.93, ten times that of a guess, in round 2 (1e+09 in round 2)
        balanced accuracy below 0.55, 1.1 times that of a guess, in rounds 1 to 11
    """
    support = _last(rows).get("support") or []
    tested = sum(n > 0 for n in support)
    if tested < 2:
        return []
    metric = "personal_balanced_accuracy" if serves == "own" else "balanced_accuracy"
    most, least = LOSS_LIMIT * math.log(len(support)), CHANCE / tested

    def sign(name: str, limit: float, bad: Callable[[float], bool], rounds: int, worst_of: Any) -> list[Collapse]:
        """Of the spells of at least so many evaluations in a row whose values are bad; fewer suffice at the end."""
        pairs = [(row["round"], row[name]) for row in rows if row.get(name) is not None]
        every = [list(some) for is_bad, some in groupby(pairs, key=lambda pair: bad(pair[1])) if is_bad]
        spells = [s for s in every if len(s) >= (min(rounds, AT_END) if s[-1] == pairs[-1] else rounds)]
        if not spells:
            return []
        at, worst = worst_of((pair for spell in spells for pair in spell), key=lambda pair: pair[1])
        return [Collapse(name, limit, [[spell[0][0], spell[-1][0]] for spell in spells], worst, at)]

    high = sign("train_loss", most, lambda loss: not loss <= most, 1, max)
    return high + sign(metric, least, lambda score: score < least, PATIENCE, min)


class Best(NamedTuple):
    """A round and its value."""

    round: int
    value: float


def more_is_better(metric: str) -> bool:
    """Whether more of a metric is better: not of a loss, a calibration error or what a run costs.

    Example:
        >>> from fedskew.records.summary import more_is_better
        >>> [more_is_better(m) for m in ("final_accuracy", "mean10_loss", "final_ece", "total_upload_bytes")]
        [True, False, False, False]
    """
    known = metric_of(metric)
    return known.higher_is_better if known else not metric.startswith("total_")


class MetricMonitor(NamedTuple):
    """What is known of a metric after some rounds.

    Attributes:
        metric: Name of the metric in a round's row, such as ``val_loss``.
        best: The best round; the first of equals.
        idle: Evaluations since.
    """

    metric: str
    best: Best | None = None
    idle: int = 0

    def after(self, row: Row) -> "MetricMonitor":
        """The monitor after one more round. A value that is not a number improves nothing."""
        value = row.get(self.metric)
        if value is None:
            return self
        than = self.best.value if self.best else math.nan
        better = value > than if more_is_better(self.metric) else value < than
        if better or (self.best is None and not math.isnan(value)):
            return self._replace(best=Best(row["round"], value), idle=0)
        return self._replace(idle=self.idle + 1)


def monitored(rows: Iterable[Row], metric: str) -> MetricMonitor:
    """The monitor after these rounds.

    Example:
        >>> from fedskew.records.summary import monitored
        >>> rows = [{"round": r, "val_loss": v} for r, v in enumerate([0.9, 0.5, 0.6, 0.7], 1)]
        >>> monitored(rows, "val_loss").best, monitored(rows, "val_loss").idle
        (Best(round=2, value=0.5), 2)
    """
    monitor = MetricMonitor(metric)
    for row in rows:
        monitor = monitor.after(row)
    return monitor


def best_of(rows: Sequence[Row], monitor: MetricMonitor) -> Row:
    """The best round as summary.json has it: the metric, the round, its value, and what its model had on the test set.

    Example:
        >>> from fedskew.records.summary import best_of, monitored
        >>> rows = [{"round": 1, "val_loss": 0.9, "accuracy": 0.6}, {"round": 2, "val_loss": 1.1, "accuracy": 0.7}]
        >>> best_of(rows, monitored(rows, "val_loss"))
        {'monitor': 'val_loss', 'round': 1, 'value': 0.9, 'accuracy': 0.6}
    """
    if monitor.best is None:
        return {}
    best, row = monitor.best, rows[monitor.best.round - 1]
    return {"monitor": monitor.metric, **best._asdict(), **{name: row[name] for name in EVALUATED if name in row}}
