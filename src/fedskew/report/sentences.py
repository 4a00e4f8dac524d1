"""The verdict in words, and what the numbers do not allow."""

from collections import Counter
from itertools import chain

from fedskew.config.recorded import Run
from fedskew.errors import plural
from fedskew.plots.groups import title_of
from fedskew.records.summary import Collapse, collapses, metric_words
from fedskew.report.compared import Compared
from fedskew.report.controls import controlled, verdicts_over
from fedskew.report.entries import Entry, ended_early
from fedskew.report.figures import listed, words
from fedskew.report.tables import fixed
from fedskew.studies.differences import Difference
from fedskew.studies.scores import FEWEST, FOR_RANKS, NO_VERDICT, gain_words, in_points

SPELT = 8  # most settings that have a sentence of their own
LISTED = 8  # most runs that a caution names


def measured(found: Compared) -> str:
    """What is compared, of which model and which rounds: "accuracy, the mean over the last 10 rounds"."""
    return f"{metric_words(found.metric)}, {found.span}"


def compared_what(found: Compared) -> str:
    """The first sentence of the page."""
    what = f"{plural(len(found.methods), 'method')} under {plural(len(found.settings), 'setting')}"
    runs = f"{plural(len(found.seeds), 'seed')}, {plural(len(found.entries), 'run')}"
    return f"{what}, {runs}: {title_of([entry.run for entry in found.entries])}."


def verdict(found: Compared) -> list[str]:
    """What the numbers say, the whole first, then each setting: one metric, one range of rounds, one unit."""
    told = _gains(found) if len(found.methods) > 1 else []
    if (ranks := found.ranks) is not None and len(found.settings) > 1:
        told.append(ranks.conclusion)
    told += [_of(found, setting) for setting in found.settings[:SPELT] if found.present(setting)]
    more = len(found.settings) - SPELT
    return told + ([f"The table of results holds {plural(more, 'more setting')}."] if more > 0 else [])


def _gains(found: Compared) -> list[str]:
    """What the gain over the baseline of each method is, by setting and over all; from eight seeds on, rank tests."""
    pairs = [gap.pairs for s in found.settings for m in found.methods if (gap := found.difference(m, s)) is not None]
    if max(pairs, default=0) < 2:
        return [f"Differences from {found.baseline} cannot be judged: both methods need two common seeds."]
    if max(pairs) < FEWEST:
        return [f"{plural(max(pairs), 'seed')}: {NO_VERDICT}, which takes {FEWEST} common seeds."]
    others, several = [m for m in found.order if m != found.baseline], len(found.settings) > 1
    counts = {method: Counter[str]() for method in others}
    for one in chain.from_iterable(controlled(found, setting) for setting in found.settings):
        counts[one.method][one.verdict] += 1
    of = {m: ", ".join(f"{word}{f' in {n}' * several}" for word, n in counts[m].most_common()) for m in others}
    head = f"Gains over {found.baseline}{f' in {len(found.settings)} settings' * several}: "
    lines = [listed(head, [f"{method}: {told}" for method, told in of.items() if told])]
    if several:
        gaps = {method: gap for method in others if (gap := found.difference(method, None)) is not None}
        over = [f"{method}: {gap.words}, {verdicts_over(found)[method]}" for method, gap in gaps.items()]
        lines.append(listed("Over all settings together: ", over))
    return [*lines, _ranked(found)] if found.most_pairs >= FOR_RANKS else lines


def _ranked(found: Compared) -> str:
    """In how many settings the rank test finds that a method differs from the baseline."""
    gaps = [gap for s in found.settings for m in found.methods if (gap := found.difference(m, s)) is not None]
    counts = Counter((gap.ranked, gap.method) for gap in gaps if gap.significant and gap.pairs >= FOR_RANKS)
    of = f" of {len(found.settings)} settings" if len(found.settings) > 1 else ""
    sides = [
        f"{method} is significantly {word} than {found.baseline}{of and f' in {n}{of}'}"
        for (word, method), n in sorted(counts.items(), key=lambda item: (item[0][0] == "worse", -item[1]))
    ]
    return listed("By the rank test, corrected by Holm: ", sides or [f"no method is told apart from {found.baseline}"])


def _level(found: Compared, value: float | None) -> str:
    """A mean in the unit of the differences: hundredths of a share."""
    return fixed(value, 3) if value is None or not in_points(found.key) else f"{fixed(100 * value, 1)} %"


def _of(found: Compared, setting: str) -> str:
    """The best method of a setting, and how sure that is."""
    order = found.present(setting)
    best = found.summary(order[0], setting)
    head = f"{setting}: " if setting else ""
    word = "highest" if found.higher else "lowest"
    interval = (
        f" (95 % interval {_level(found, best.low)} to {_level(found, best.high)}, {plural(best.runs, 'seed')})"
        if best.runs > 1
        else " (1 seed)"
    )
    if len(order) == 1:
        return f"{head}{order[0]} has the mean {_level(found, best.mean)}{interval}."
    told = f"{head}{order[0]} has the {word} mean, {_level(found, best.mean)}{interval}"
    if order[0] == found.baseline:
        following = found.difference(order[1], setting)
        return f"{told}; {order[1]} follows{_against(found, following)}."
    return f"{told}{_against(found, found.difference(order[0], setting))}."


def _against(found: Compared, difference: Difference | None) -> str:
    if difference is None or difference.mean is None:
        return ""
    gap = f", {difference.words} from {found.baseline}"
    if difference.pairs < 2:
        return f"{gap} in the one seed that both have"
    return f"{gap} ({difference.interval})"


def p_value(p: float | None) -> str:
    """A p value: "0.032", "< 0.001", a dash where there is none."""
    return "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def cautions(found: Compared) -> list[str]:
    """What the numbers do not allow, and runs to look at before anything is concluded."""
    told = []
    least = min((found.summary(m, s).runs for m in found.methods for s in found.settings), default=0)
    pairs = [d.pairs for m in found.methods for s in found.settings if (d := found.difference(m, s)) and d.pairs]
    few = min(pairs, default=least)
    if len(found.methods) > 1 and few < 2:
        told.append("Some comparisons have only one seed, so they have no interval and no test.")
    if len(found.methods) == 1 and least < 2:
        told.append("With one seed, the spread over seeds is unknown.")
    if len(found.methods) > 1 and (unseen := _unseen(found)):
        told.append(unseen)
    told += [*_served(found), *_evaluations(found)]
    if found.key.startswith("best_"):
        told.append("The best round is chosen on the test rows: its value is not a fair estimate.")
    missing = len(found.methods) * len(found.settings) * len(found.seeds) - sum(
        found.summary(m, s).runs for m in found.methods for s in found.settings
    )
    if missing:
        many = plural(missing, "combination")
        verb = "has" if missing == 1 else "have"
        told.append(f"{many} of method, setting and seed {verb} no value; means are over the other seeds.")
    early = [f"{_called(e)}: {why}" for e in found.entries if (why := ended_early(e.run))]
    if early:
        head = "Some runs ended early, and their values are from the rounds that they ran: "
        told.append(listed(head, early, LISTED))
    lost = [f"{_called(e)}: {c.words}" for e in found.entries for c in collapses_of(e.run)]
    if lost:
        told.append(listed("Training collapsed in some runs: ", lost, LISTED))
    return told


def collapses_of(run: Run) -> list[Collapse]:
    """When training collapsed: by the rounds, of an archive, which keeps no recalls, as the summary has it."""
    return collapses(run.rows, run.serves) or [Collapse(**sign) for sign in run.summary.get("collapsed", ())]


def _served(found: Compared) -> list[str]:
    """Methods whose metric is of a model that their clients do not use, or that were not measured by it."""
    own = {entry.method for entry in found.entries if entry.run.serves == "own"}
    named = ", ".join(sorted(own))
    if "served_" not in found.metric and "personal_" not in found.metric:
        told = f"clients of {named} use models of their own, and this metric is of a global model that nobody uses"
        return [f"Do not judge {named} here: {told}. The metric served_accuracy joins all methods."] if own else []
    lacking = [m for m in found.methods if not any(found.summary(m, s).runs for s in found.settings)]
    return [f"No {words(found.metric)} is on record of {', '.join(lacking)}."] if lacking and own else []


def _evaluations(found: Compared) -> list[str]:
    """How many evaluations the means are of, where methods differ."""
    by: dict[int, list[str]] = {}
    for method, tails in found.tails.items():
        if counts := [tail.evaluations for tail in tails if tail.evaluations is not None]:
            by.setdefault(min(counts), []).append(method)
    told = "; ".join(f"{plural(n, 'evaluation')} of {', '.join(methods)}" for n, methods in sorted(by.items()))
    return [f"The means are over {told}."] if len(by) > 1 else []


def _unseen(found: Compared) -> str:
    """How small a difference these seeds do not show; "" without an interval."""
    gaps = [d for m in found.methods for s in found.settings if (d := found.difference(m, s)) and d.pairs > 1]
    widths = sorted((d.high - d.low) / 2 for d in gaps if d.low is not None and d.high is not None)
    if not widths:
        return ""
    few = min(gap.pairs for gap in gaps)
    told = f"With {plural(few, 'seed')} there is no verdict: it takes {FEWEST}. " if few < FEWEST else ""
    reach = gain_words(widths[len(widths) // 2], found.key)[1:] + " points" * in_points(found.key)
    return (
        f"{told}Intervals of differences reach {reach} to both sides (median) and take differences between seeds as "
        "normal. “No gain shown” does not mean that there is none."
    )


def _called(entry: Entry) -> str:
    return ", ".join([entry.method, *([entry.setting] if entry.setting else []), f"seed {entry.seed}"])
