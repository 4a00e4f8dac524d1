"""The verdict in words, and what the numbers do not allow."""

from fedskew.config.recorded import Run
from fedskew.errors import plural
from fedskew.plots.groups import title_of
from fedskew.records.summary import Collapse, collapses, metric_words, privacy_words
from fedskew.report.compared import Compared
from fedskew.report.controls import Controlled, controlled
from fedskew.report.entries import LabelledRun, ended_early
from fedskew.report.figures import listed, words
from fedskew.report.tables import gain, level, levels
from fedskew.studies.scores import NO_VERDICT, gain_words, in_points
from fedskew.studies.verdicts import LOSS, OPEN, OWN, RAW, UNDONE

LISTED = 8  # most runs that a caution names
UNDER = {"averaged": "both are averaged", "fitted": "both are fitted", "both": "both are averaged and fitted",
         "work": "{baseline} trains as much"}  # fmt: skip
JUDGED = {
    OWN: ". It stays when both are averaged and fitted", LOSS: "",
    OPEN: ". Whether it stays when both are averaged and fitted is open",
}  # fmt: skip
FEW = ("no", "one", "two", "three", "four")


def measured(compared: Compared) -> str:
    """What is compared, of which model and which rounds: "accuracy, the mean over the last 10 rounds"."""
    return f"{metric_words(compared.metric)}, {compared.span}"


def compared_what(compared: Compared) -> str:
    """The first sentence of the page."""
    what = f"{plural(len(compared.methods), 'method')} under {plural(len(compared.settings), 'setting')}"
    runs = f"{plural(len(compared.seeds), 'seed')}, {plural(len(compared.entries), 'run')}"
    return f"{what}, {runs}: {title_of([entry.run for entry in compared.entries])}."


def headline(compared: Compared) -> str:
    """What the picture and the sentences below it are about."""
    what = words(compared.metric)
    over = f" over {plural(len(compared.settings), 'setting')}" if len(compared.settings) > 1 else ""
    if len(compared.methods) == 1:
        return f"{what[:1].upper()}{what[1:]}, {compared.span}."
    return f"Gains over {compared.baseline} in {what}{over}: {plural(len(compared.seeds), 'seed')}, {compared.span}."


def verdict(compared: Compared) -> list[str]:
    """A sentence for each method: its gain over the baseline, of all settings together, and what the rule says."""
    if len(compared.methods) > 1:
        return [_judged(compared, control) for control in controlled(compared, compared.whole)]
    sentences = []
    for setting in compared.settings:
        summary = compared.summary(compared.methods[0], setting)
        ends = f" (95 % interval {levels(summary.low, summary.high, compared.key)})" if summary.low is not None else ""
        share = " %" * in_points(compared.key)
        seeds = plural(summary.runs, "seed")
        sentences.append(f"{setting or summary.method}: {level(summary.mean, compared.key)}{share}{ends}, {seeds}.")
    return sentences


def _judged(compared: Compared, control: Controlled) -> str:
    """As in "scaffold gains 5.0 points (3.6 to 6.3) over fedavg; three seeds are too few for a verdict, run five"."""
    raw = control.of.get(RAW)
    if raw is None:
        return f"{control.method} has no seed in common with {compared.baseline}."
    size = gain_words(abs(raw.mean), compared.key)[1:] + " points" * in_points(compared.key)
    apart, before, after = (
        raw.pairs > 1 and (raw.gains or raw.high < 0),
        "is",
        "ahead of" if raw.mean >= 0 else "behind",
    )
    low, high = (raw.low, raw.high) if raw.mean >= 0 else (-raw.high, -raw.low)
    if apart:
        before, after = ("gains", "over") if raw.gains else ("loses", "against")
    span = " ({} to {})".format(*(gain(end, compared.key).removeprefix("+") for end in (low, high))) * (raw.pairs > 1)
    start = f"{control.method} {before} {size}{span} {after} {compared.baseline}"
    if control.verdict == NO_VERDICT:
        few = min(each.pairs for each in control.of.values())
        which = f"{FEW[few]} seed{'s are' if few != 1 else ' is'}"
        return f"{start}; {which} too few for a verdict, run five."
    undone = next((name for name, what in UNDONE.items() if what == control.verdict), "")
    if undone:
        when = UNDER[undone].format(baseline=compared.baseline)
        return f"{start}. Nothing of it is left when {when}: {control.verdict}."
    return f"{start}{JUDGED.get(control.verdict, f'; {control.verdict}')}."


def p_value(p: float | None) -> str:
    """A p value: "0.032", "< 0.001", a dash where there is none."""
    return "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def cautions(compared: Compared) -> list[str]:
    """What the numbers do not allow, and runs to look at before anything is concluded."""
    entries, notes = compared.entries, list[str]()
    seeds = [compared.summary(method, setting).runs for method in compared.methods for setting in compared.settings]
    several, missing = len(compared.methods) > 1, len(seeds) * len(compared.seeds) - sum(seeds)
    if several and min((gap.pairs for gap in compared.differences), default=min(seeds)) < 2:
        notes.append("Some comparisons have only one seed, so they have no interval and no test.")
    if not several and min(seeds) < 2:
        notes.append("With one seed, the spread over seeds is unknown.")
    notes += [*_unseen(compared), *_served(compared), *_evaluations(compared)]
    if compared.key.startswith("best_"):
        notes.append("The best round is chosen on the test rows: its value is not a fair estimate.")
    noise = sorted({e.run.config["histogram_epsilon"] for e in entries if "histogram_noise" in e.run.config})
    if noise:
        notes.append(f"Servers knew label histograms with differential privacy, epsilon {', '.join(map(str, noise))}.")
    if missing:
        many = plural(missing, "combination")
        verb = "has" if missing == 1 else "have"
        notes.append(f"{many} of method, setting and seed {verb} no value; means are over the other seeds.")
    early = [f"{_called(e)}: {why}" for e in entries if (why := ended_early(e.run))]
    private = dict.fromkeys(f"{e.method}: {how}" for e in entries if (how := privacy_words(e.run.summary)))
    collapsed = [f"{_called(e)}: {collapse.words}" for e in entries for collapse in collapses_of(e.run)]
    for head, runs in (
        ("Some runs ended early, and their values are from the rounds that they ran: ", early),
        ("Models with differential privacy: ", list(private)),
        ("Training collapsed in some runs: ", collapsed),
    ):
        notes += [listed(head, runs, LISTED)] if runs else []
    return notes


def collapses_of(run: Run) -> list[Collapse]:
    """When training collapsed: by the rounds, of an archive, which keeps no recalls, as the summary has it."""
    return collapses(run.rows, run.serves) or [Collapse(**sign) for sign in run.summary.get("collapsed", ())]


def _served(compared: Compared) -> list[str]:
    """Methods whose metric is of a model that their clients do not use, or that were not measured by it."""
    personal = {entry.method for entry in compared.entries if entry.run.serves == "own"}
    named = ", ".join(sorted(personal))
    if "served_" not in compared.metric and "personal_" not in compared.metric:
        why = f"clients of {named} use models of their own, and this metric is of a global model that nobody uses"
        return [f"Do not judge {named} here: {why}. The metric served_accuracy joins all methods."] if personal else []
    lacking = [m for m in compared.methods if not any(compared.summary(m, s).runs for s in compared.settings)]
    return [f"No {words(compared.metric)} is on record of {', '.join(lacking)}."] if lacking and personal else []


def _evaluations(compared: Compared) -> list[str]:
    """How many evaluations the means are of, where methods differ."""
    by: dict[int, list[str]] = {}
    for method, tails in compared.tails.items():
        if counts := [tail.evaluations for tail in tails if tail.evaluations is not None]:
            by.setdefault(min(counts), []).append(method)
    counted = "; ".join(f"{plural(n, 'evaluation')} of {', '.join(methods)}" for n, methods in sorted(by.items()))
    return [f"The means are over {counted}."] if len(by) > 1 else []


def _unseen(compared: Compared) -> list[str]:
    """How small a difference these seeds do not show, where there are intervals."""
    gaps = compared.differences
    widths = sorted((gap.high - gap.low) / 2 for gap in gaps if gap.low is not None and gap.high is not None)
    if not widths:
        return []
    reach = gain_words(widths[len(widths) // 2], compared.key)[1:] + " points" * in_points(compared.key)
    return [
        f"The median interval is ± {reach}. Intervals assume normally distributed differences. “No gain shown” does "
        "not mean that there is none."
    ]


def _called(entry: LabelledRun) -> str:
    return ", ".join([entry.method, *([entry.setting] if entry.setting else []), f"seed {entry.seed}"])
