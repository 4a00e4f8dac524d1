"""How an `Advice` looks in a terminal."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedskew.advice.adviser import NEAR, Advice, Rule, Suggestion, is_strong
from fedskew.advice.evidence import WORST, Gain
from fedskew.errors import plural
from fedskew.records.summary import FITTED


def advice_table(advice: Advice) -> RenderableType:
    """The nearest federations, the methods that helped there, the rule, and what limits all of it."""
    name = advice.measure.replace("_f1", "-F1")
    body: list[RenderableType] = [Text(f"{advice.title}: what was measured nearby, by {name}", style="bold")]
    for place, near in enumerate(advice.neighbours, 1):
        far = "" if near.distance <= NEAR else ", too far to use"
        body.append(Text(f"[{place}] {near.federation.name}: distance {near.distance:.2f}{far}"))
        told = f"{plural(len(near.federation.gains), 'method')} beside {near.federation.baseline}, whose accuracy is"
        fit = (
            ""
            if near.federation.fitted is None
            else f"; of the better weighting after the fit {near.federation.fitted:.3f}"
        )
        body.append(Text(f"    {told} {near.federation.level:.3f}{fit} ({near.federation.source})", style="dim"))
    if advice.worth_trying:
        body.append(_worth(advice))
    else:
        why = (
            "no method measured here beats FedAvg; fit its logits, and compare local training: "
            "fedskew compare fedavg localonly --fitted"
            if any(n.distance <= NEAR for n in advice.neighbours)
            else "nothing measured helps here: no measured federation is near; fedskew compare measures yours"
        )
        body.append(Text(f"\n{why}"))
    others = [f"{method} {_points(gain)}" for method, gain in advice.others.items()]
    body += [Text(f"measured nearby, and not worth trying: {', '.join(others)}", style="dim")] if others else []
    body += [Text(_rule(advice.rule, is_strong(advice.descriptors)))] if advice.rule else []
    return Group(*body, *(Text(f"note: {note}") for note in advice.notes))


def _worth(advice: Advice) -> Table:
    view = Table(
        title="\nworth trying (points over the better weighting of FedAvg; the mean after the fit where measured)",
        title_justify="left",
        show_lines=True,
    )
    view.add_column("method", no_wrap=True)
    for head in ("mean", "on each federation, 95 % interval", "leaves the client; needs"):
        view.add_column(head, overflow="fold")
    for one in advice.worth_trying:
        cells = [_on(one, place, advice.measure) for place in one.on]
        view.add_row(Text(one.method), _points(one.gain), Text("\n".join(cells)), Text(one.needs))
    return view


def _on(one: Suggestion, place: int, measure: str) -> str:
    """As in "[1] raw +4.5 (+3.1 to +5.9), fitted +0.2 (-0.1 to +0.5), 3 seeds: ...; worst recall +10.0"."""
    by = one.on[place]
    told = f"[{place}] raw {_gain(by[measure])}"
    if fitted := by.get(f"{FITTED}{measure}"):
        told += f", fitted {_gain(fitted)}"
    told += f", {plural(by[measure].seeds, 'seed')}{': ' * (place in one.after_fit)}{one.after_fit.get(place, '')}"
    return f"{told}; worst recall {_points(by[WORST].mean)}" if WORST in by else told


def _gain(gain: Gain) -> str:
    ends = f" ({_points(gain.low)} to {_points(gain.high)})" if gain.low is not None and gain.high is not None else ""
    return f"{_points(gain.mean)}{ends}"


def _rule(rule: Rule, strong: bool) -> str:
    """The rule in a sentence, and whether it speaks of this federation."""
    where = f"{plural(rule.federations, 'federation')} of {plural(rule.datasets, 'dataset')}"
    told = (
        f"rule: under strong label skew use {rule.method}, after the fit the best on average whichever dataset is left "
        f"out ({_points(rule.gain)} points on {where}, above 0 on {rule.helps}; the best method of each: "
        f"{_points(rule.best)}). Under weaker skew it has {_points(rule.weaker)}, and no method has more than "
        f"{_points(rule.weaker_best)} on average. "
    )
    return told + ("The skew here is strong." if strong else "The skew here is weaker: the rule says FedAvg.")


def _points(value: float) -> str:
    return f"{100 * value:+.1f}"
