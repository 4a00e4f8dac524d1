"""How an `Advice` looks in a terminal."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedskew.advice.adviser import NEAR, Advice, Rule, Suggestion, is_strong, strongest
from fedskew.advice.evidence import MODELS, WORST, Gain
from fedskew.errors import plural
from fedskew.studies.scores import FEWEST
from fedskew.studies.verdicts import POINT, RAW
from fedskew.studies.work import Work

CALLED = {
    RAW: "FedAvg as trained",
    "averaged": "FedAvg averaged",
    "fitted": "FedAvg fitted",
    "both": "FedAvg averaged and fitted",
    "work": "FedAvg trained longer, averaged and fitted",
}


def advice_table(advice: Advice) -> RenderableType:
    """What follows first; then the nearest federations, the rule, and what limits all of it."""
    name = advice.measure.replace("_f1", "-F1")
    body: list[RenderableType] = [Text(f"{advice.title}: what follows, by {name}", style="bold"), Text(_first(advice))]
    if advice.fedavg or advice.worth_trying:
        body.append(_tried(advice))
    if advice.unmeasured:
        absent = ", ".join(CALLED[control] for control in advice.unmeasured)
        hint = "fedskew compare fedavg METHOD --controls rounds measures yours"
        body.append(Text(f"not measured there: {absent}; {hint}"))
    for title, gains in (
        ("means without a verdict", advice.unjudged),
        ("measured there, and not worth trying", advice.others),
    ):
        listed = ", ".join(f"{method} {_points(gain)}" for method, gain in gains.items())
        body += [Text(f"{title}: {listed}", style="dim")] if gains else []
    body += [Text(_rule(advice.rule, is_strong(advice.descriptors)))] if advice.rule else []
    body.append(Text("\nmeasured nearest:"))
    for place, near in enumerate(advice.neighbours, 1):
        far = "" if near.distance <= NEAR else ", too far to use"
        body.append(Text(f"[{place}] {near.federation.name}: distance {near.distance:.2f}{far}"))
        beside = f"{plural(len(near.federation.gains), 'method')} beside {near.federation.baseline}, whose accuracy is"
        body.append(Text(f"    {beside} {near.federation.level:.3f} ({near.federation.source})", style="dim"))
    return Group(*body, *(Text(f"note: {note}") for note in advice.notes))


def _first(advice: Advice) -> str:
    """What to do, in a sentence."""
    if not any(near.distance <= NEAR for near in advice.neighbours):
        return "nothing measured helps here: no measured federation is near; fedskew compare measures yours"
    cheap = [means for means in advice.fedavg if means.name != "work"]  # what needs no more training
    best = max((means.gain for means in cheap), default=0.0)
    opening = "first FedAvg"
    if best > 0:
        first = next(first for first in cheap if first.gain >= best - POINT)
        opening = f"first {CALLED[first.name]}, {_points(first.gain)} points on average"
    if advice.worth_trying:
        method = advice.worth_trying[0]
        over = {strongest(by, advice.measure) for by in method.on.values()}
        whose = CALLED[over.pop()] if len(over) == 1 else "FedAvg under the strongest control on record"
        return f"{opening}; then {method.method}, {_points(method.gain)} over {whose}"
    if advice.unjudged and not advice.others:
        return f"{opening}; no method has a verdict there, which takes {FEWEST} seeds: their means stand below"
    return f"{opening}; no gain of a method over it is shown there ({FEWEST} seeds)"


def _tried(advice: Advice) -> Table:
    title = "\npoints over FedAvg as trained; the mean of a method is over FedAvg under the strongest control on record"
    view = Table(title=title, title_justify="left", show_lines=True)
    view.add_column("try", overflow="fold")
    for head in ("mean", "on each federation, 95 % interval", "costs; leaves the client"):
        view.add_column(head, overflow="fold")
    for means in advice.fedavg:
        cells = [f"[{place}] {_gain(gain)}, {plural(gain.seeds, 'seed')}" for place, gain in means.on.items()]
        view.add_row(Text(CALLED[means.name]), _points(means.gain), Text("\n".join(cells)), Text(means.cost))
    for tried in advice.worth_trying:
        cells = [_on(tried, place, advice.measure) for place in tried.on]
        view.add_row(Text(tried.method), _points(tried.gain), Text("\n".join(cells)), Text(_costs(tried)))
    return view


def _costs(suggestion: Suggestion) -> str:
    """As in "steps ×1.00, bytes ×1.99; nothing beside the model"."""
    known = [[ratio for ratio in each if ratio is not None] for each in zip(*suggestion.work.values(), strict=True)]
    spans = {name: (min(each), max(each)) for name, each in zip(Work._fields, known, strict=False) if each}
    multiples = [f"{name} ×{low:g}" + f" to ×{high:g}" * (high > low) for name, (low, high) in spans.items()]
    return "; ".join([*[", ".join(multiples)][: len(multiples)], suggestion.needs])


def _on(suggestion: Suggestion, place: int, measure: str) -> str:
    """As in "[1] raw +4.5 (+3.1 to +5.9), fitted +0.2 (-0.1 to +0.5), 5 seeds: a bias; worst recall +10.0"."""
    by = suggestion.on[place]
    known = {model: by[name] for model, prefix in MODELS.items() if (name := f"{prefix}{measure}") in by}
    line = f"[{place}] " + ", ".join(f"{model} {_gain(gain)}" for model, gain in known.items())
    line += f", {plural(by[measure].seeds, 'seed')}: {suggestion.verdicts[place]}"
    return f"{line}; worst recall {_points(by[WORST].mean)}" if WORST in by else line


def _gain(gain: Gain) -> str:
    ends = f" ({_points(gain.low)} to {_points(gain.high)})" if gain.low is not None and gain.high is not None else ""
    return f"{_points(gain.mean)}{ends}"


def _rule(rule: Rule, strong: bool) -> str:
    """The rule in a sentence, and whether it speaks of this federation."""
    where = f"{plural(rule.federations, 'federation')} of {plural(rule.datasets, 'dataset')}"
    text = (
        f"rule: under strong label skew {rule.method} has the greatest mean gain over FedAvg fitted, whichever dataset "
        f"is left out ({_points(rule.gain)} points on {where}, above 0 on {rule.helps}; the best method of each: "
        f"{_points(rule.best)}). Under weaker skew it has {_points(rule.weaker)}, and no method has more than "
        f"{_points(rule.weaker_best)} on average. "
    )
    return text + ("The skew here is strong." if strong else "The skew here is weaker: the rule says FedAvg.")


def _points(value: float) -> str:
    return f"{100 * value:+z.1f}"
