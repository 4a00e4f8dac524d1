"""How an `Advice` looks in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedskew.advice.adviser import NEAR, NEAREST, Advice, Neighbour, Recommendation
from fedskew.advice.margins import Margin
from fedskew.errors import plural

__all__ = ["advice_table"]


def advice_table(advice: Advice) -> RenderableType:
    """Recommendations, the measured federations that they rest on, and what limits them."""
    what = f"{advice.title}: what to try first, by {_measure(advice.measure)} (mean of the last ten rounds)"
    body: list[RenderableType] = [Text(what, style="bold")]
    if advice.recommendations:
        body.append(_recommended(advice))
        worse = [f"{r.method} {_points(r.gain)}" for r in advice.others]
        body += [Text(f"measured nearby, and behind these: {', '.join(worse)}", style="dim")] if worse else []
    body += _measured(advice)
    body += [Text(f"note: {note}") for note in advice.notes]
    return Group(*body)


def _recommended(advice: Advice) -> Table:
    view = Table(
        title="\nworth trying first (gains in points, over the stronger of FedAvg and FedAvg with uniform weights)",
        title_justify="left",
        show_lines=True,
    )
    view.add_column("method", no_wrap=True)
    for head in ("gain", "evidence", "on each federation, points", "leaves the client; needs"):
        view.add_column(head, overflow="fold")
    for r in advice.recommendations:
        gains = "\n".join(f"{_measure(m)} {_points(v)}" for m, v in r.gains.items())
        gains += f"\n90 %: {_points(r.likely[0])} to {_points(r.likely[1])}" if r.likely else ""
        margins = "\n".join(_margins(r.margins))
        view.add_row(Text(r.method), gains, Text(f"{r.confidence}: {r.reason}"), Text(margins), Text(needs(r)))
    return view


def _measure(name: str) -> str:
    return name.replace("_f1", "-F1").replace("_", " ")


def _margins(margins: Sequence[Margin]) -> list[str]:
    """The nearest ones in full, and the range of the others."""
    lines = [f"[{m.place}] {_margin(m)}" for m in margins[:NEAREST]]
    if rest := [m.mean for m in margins[NEAREST:]]:
        ends = f"{_points(min(rest))} to {_points(max(rest))}" if len(rest) > 1 else _points(rest[0])
        lines.append(f"{len(rest)} more: {ends}")
    return lines


def _margin(m: Margin) -> str:
    """The margin by the measure of the advice with its interval, by the others, and the worst class's recall."""
    if m.low is None or m.high is None:
        told = [f"{_points(m.mean)}, {'one seed' if m.seeds == 1 else f'{m.seeds} seeds'}, no interval"]
    else:
        told = [f"{_points(m.mean)}, 95 % {_points(m.low)} to {_points(m.high)}, {m.seeds} seeds"]
    if m.fitted:
        ends = f", 95 % {_points(m.fitted['low'])} to {_points(m.fitted['high'])}" if m.fitted["verdict"] else ""
        told.append(f"fitted {_points(m.fitted['mean'])}{ends}{': ' * bool(ends)}{m.fitted['verdict']}")
    told += [f"{_measure(name)} {_points(v)}" for name, v in m.others.items()]
    if m.worst_recall is not None and m.worst_recall_baseline is not None:
        told.append(f"worst recall {m.worst_recall:.2f} (baseline {m.worst_recall_baseline:.2f})")
    return "; ".join(told)


def needs(r: Recommendation) -> str:
    """What leaves the client beside the model, what more is sent, and what the server must hold."""
    told = [", ".join(r.discloses) or "nothing beside the model"]
    told += [f"uploads {', '.join(r.uploads)} more"] if r.uploads else []
    told += [f"downloads {', '.join(r.downloads)} more"] if r.downloads else []
    told += [f"NEEDS {r.server_rows} rows of each class at the server"] if r.server_rows else []
    told += ["made for models of the clients' own"] if r.personal else []
    return "; ".join(told)


def _measured(advice: Advice) -> list[Text]:
    """Two lines a federation: which, how far and what was run there; what differs by more than a unit."""
    shown = [n for n in advice.neighbours if n.near] or list(advice.neighbours[:NEAREST])
    lines = [Text(f"\nmeasured federations, nearest first (near: a distance of at most {NEAR:g})", style="italic")]
    for i, n in enumerate(shown, 1):
        seeds = f"{plural(n.methods, 'method')}, {plural(n.seeds, 'seed')}"
        lines.append(Text(f"[{i}] {n.name}{_other(n)}: distance {n.distance:.2f}{'' if n.near else ', far'}"))
        lines.append(Text(f"    {seeds}; {n.baseline}: {n.baseline_score:.3f}{_apart(n)}; {n.source}", style="dim"))
    lines += [Text(f"    {name}: {meaning}", style="dim") for name, meaning in advice.terms.items()]
    return [*lines, Text("")]


def _other(n: Neighbour) -> str:
    if n.yours:
        return " (your data and your split)"
    other = [what for what, same in (("data", n.same_data), ("network", n.same_model)) if same is False]
    return f" (other {' and '.join(other)})" if other else ""


def _apart(n: Neighbour) -> str:
    told = [f"{name} {here:.3g} here, {there:.3g} there" for name, (here, there) in n.differs.items()]
    return f"; apart: {', '.join(told)}" if told else ""


def _points(value: float) -> str:
    return f"{100 * value:+.1f}"
