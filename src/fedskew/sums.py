"""Rounds of which the server sees sums alone, ``secure="sums"``: the halves of a client and of the server.

A client multiplies what it sends by its own weight, and the protocol of `fedskew.privacy` adds it up. Server hooks then
see one client that stands for all: its rows, numbers, uploads and answers are the sums. Hooks that read no more than
sums, as `Component.reads` declares, give on it what they give on all clients.

An `Adder` is the server's half, whatever carries the messages. `of_answer`, `of_weights` and `of_update` are what one
client adds. They are the same functions in a simulation, which calls them for each client, and at a node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedskew import tree
from fedskew.errors import TrainingError
from fedskew.method import Component, Method, Selector, Weighting
from fedskew.method.component import Sums, in_halves, undeclared
from fedskew.privacy import FixedPoint
from fedskew.settings import Settings
from fedskew.types import Answers, Cohort, Federation, Params, Report, Results, Tree, Weights

if TYPE_CHECKING:
    from fedskew.server import State

LEAST = 3  # clients of a sum: of two, each would know what the other sent
COARSE, FINE = 8, 20  # bits after the point of a coarse part; and by which the rest is enlarged
ROOM = 34  # bits before the point of a sum, and its sign
ROWS = ("owned", "offered", "used")
SENT = {  # at the end of a round, in the words of an error
    "factors": "the weight", "delta": "the weighted update of parameter", "buffers": "the weighted buffer",
    "uploads": "the weighted upload", "reports": "the report", "rows": "the rows",
}  # fmt: skip
INSTEAD = {Weighting: "the weightings label_aware, size and uniform need no more than a sum", Selector: "take random"}


AGAIN = "a second sum, without a dropped client, would tell what this one answered"


def check(method: Method, settings: Settings, cohort: int, joins: bool = False) -> None:
    """Raise FieldError where a method reads more than sums, or a sum would be over too few clients.

    ``joins`` says whether held-out clients take part after the run.
    """
    for _, part in reversed(list(method.ingredients())):  # what stands inside another one first
        who = f"be none for {method.name}, whose {part.name!r}"
        hint = next((instead for kind, instead in INSTEAD.items() if isinstance(part, kind)), "")
        hint = hint or "`fedskew methods` lists the methods for which a sum suffices"
        for read in part.reads:
            what = f" ({read.what})" * bool(read.what)
            settings.demand("secure", read.form == "sum", f"{who} reads the {read.word} of each client{what}", hint)
        if hook := undeclared(part):
            rule = f"{who} does not declare what its {hook!r} reads"
            settings.demand("secure", False, rule, "set `reads` in its class, () where it reads nothing of clients")
        whole = isinstance(part, Weighting) and not in_halves(part)
        settings.demand("secure", not whole, f"{who} weighs all clients at once", "define `mass` in place of `weigh`")
    why = undroppable(method)
    settings.demand("nonfinite", settings.nonfinite == "stop" or not why, f"be stop with secure sums {why}", AGAIN)
    crossed = method.selector.chained or method.selector.repeats or bool(method.having("combine"))
    settings.demand("secure", not crossed, f"be none for {method.name}, which does not add up one update a client")
    settings.demand("secure", not settings.diagnose.names, "be none with diagnostics, which look at single clients")
    unlisted = settings.clients_every is None
    settings.demand("clients_every", unlisted, "be unset with secure sums, of which a record lists no client")
    settings.demand("keep_own", not settings.keep_own, "be false with secure sums: it keeps each client's own model")
    joins = joins and method.personal and bool(method.having("ask"))
    settings.demand("secure", not joins, f"be none for {method.name} with held-out clients, which answer one by one")
    rule = f"be at least {LEAST} with secure sums: of two clients each knows what the other sent"
    settings.demand("cohort", cohort >= LEAST, rule)


def undroppable(method: Method) -> str:
    """Why a round of a method cannot be run again without a client, in words; "" where it can."""
    for part in method.having("ask"):
        if any(read.word not in ("rows", "upload") for read in part.reads):
            return f"for {method.name}, whose {part.name!r} adds up answers before training"
    return ""


Addend = Callable[[int], Tree]  # what a client adds, by its number
Sum = tuple[list[Tensor], tuple[int, ...], tuple[int, int]]  # (total, who is in it, bytes up and down)


@dataclass(eq=False)
class Adder:
    """Adds up what the clients of a run send. A subclass carries the messages of the protocol, in `added`."""

    share: float  # of the clients that entered a round's first sum, which must stay until the end of the last one
    spent: dict[tuple[int | str, ...], tuple[int, int]] = field(default_factory=dict)  # bytes up and down of each sum

    def added(self, addend: Addend, given: Tree, clients: Sequence[int], least: int, *place: int | str) -> Sum:
        """One sum of the protocol. Raises TrainingError where too few clients stay.

        Args:
            addend: what a client adds. Where clients are elsewhere, its value is of no use, but has the right shapes.
            given: what clients must know for it, beside what they have.
            clients: that are asked.
            least: threshold.
            *place: the round, and which sum of the round it is.
        """
        raise NotImplementedError

    def add(
        self, addend: Addend, clients: Sequence[int], *place: int | str, given: Tree = None, entered: int | None = None
    ) -> tuple[Tree, tuple[int, ...]]:
        """The sum, float64, and who is in it.

        Args:
            addend: as in `added`, a tree.
            clients: that are asked.
            *place: the round, and which sum of the round it is.
            given: as in `added`.
            entered: clients that entered the round; None: those that are asked.

        Raises:
            TrainingError: there are too few clients, or too few stay.
        """
        least = max(LEAST, math.ceil(self.share * (entered or len(clients)) - 1e-9))
        if len(clients) < least:
            rule = f"a secure sum must be over at least {least} clients" + f" of {entered}" * bool(entered)
            raise TrainingError(f"{rule}; got {len(clients)}, in round {place[0]}")
        total, left, self.spent[place] = self.added(addend, given or {}, clients, least, *place)
        return shaped(total, addend(clients[0])), left

    def bytes_of(self, number: int) -> tuple[int, int]:
        """Bytes up and down of a round; the first has what was added up before it."""
        done = [spent for place, spent in self.spent.items() if place[0] == number or (number == 1 and place[0] == 0)]
        self.spent.clear()
        return sum(up for up, _ in done), sum(down for _, down in done)

    def known(self, fed: Federation) -> Federation:
        """What a server knows of a federation. What is asked of it is added up once, before the first round."""
        return Known(fed, self)  # type: ignore[return-value]

    def answered(self, part: Component, answers: Answers, has_rows: Tensor, number: int) -> Answers:
        """One row that stands for all who answered, whose ids it has: the total."""
        each = {int(k): tree.row(answers.values, i) for i, k in enumerate(answers.ids) if has_rows[k]}
        sent = {k: of_answer(part, answer) for k, answer in each.items()}
        total, left = self.add(sent.get, list(sent), number, part.name, "answer")
        whole, like = tree.add(total["coarse"], total["fine"], 2.0**-FINE), next(iter(each.values()))
        values = tree.map_tree(lambda new, old: new.to(old).unsqueeze(0), part.from_sum(whole), like)
        return Answers(torch.tensor(left), values)

    def closed(self, method: Method, state: State, results: Results, entered: Cohort) -> Results:
        """What the server sees of a round: first the sums that the weights rest on, then that of what clients send.

        Args:
            method: by which the clients have trained.
            state: of the server, which clients know as far as it is broadcast.
            results: of local training, each client's.
            entered: the clients that entered the round; some may have gone since.
        """
        weighting, number = method.weighting, entered.round
        of_server, left = state.parts[weighting.name], tuple(entered.ids.tolist())
        cohorts, began = {k: _row(entered, i) for i, k in enumerate(left)}, len(left)
        sums: Sums = ()

        def given() -> Tree:
            return {"state": of_server, "sums": {str(i): total for i, total in enumerate(sums)}}

        for stage in range(weighting.stages):
            each = {k: of_weights(method, of_server, cohorts[k], sums) for k in left}
            total, left = self.add(each.get, left, number, "weights", stage, given=given(), entered=began)
            sums += (total,)
        at = {k: i for i, k in enumerate(results.cohort.ids.tolist())}
        trained = moving(results.cohort.deltas, results.buffers, results.cohort.uploads, state.stays)

        def update(k: int) -> Tree:
            return of_update(method, of_server, _row(results.cohort, at[k]), sums, tree.row(trained, at[k]))

        left = tuple(k for k in at if k in left)
        total, left = self.add(update, left, number, "update", given=given(), entered=began)
        return _of_sum(total, left, results, factors_of(method), state.buffers)


class Known:
    """A federation as a server knows it: sums over all clients stand in the place of one client's numbers."""

    def __init__(self, fed: Federation, adder: Adder) -> None:
        self._fed, self._adder = fed, adder
        self.clients, self.has_rows, self.auxiliary_rows = fed.clients, fed.has_rows, fed.auxiliary_rows

    def _sum(self, name: str) -> Tensor:
        values, clients = getattr(self._fed, name), self.has_rows.nonzero().flatten().tolist()
        total: Tensor = self._adder.add(lambda k: values[k], clients, 0, name)[0]
        return total.round().long().unsqueeze(0)

    @cached_property
    def counts(self) -> Tensor:
        """Rows of each class, [1, C]."""
        return self._sum("counts")

    @cached_property
    def sizes(self) -> Tensor:
        """Rows, [1]."""
        return self._sum("sizes")


# What one client adds, and what it must fit


def encoding_of(clients: int) -> FixedPoint:
    """The encoding of a sum over so many clients, which leaves `ROOM` bits before the point to the sum."""
    return FixedPoint(range=2.0 ** (ROOM - (clients - 1).bit_length()))


def demand_room(summand: Tree, range: float, client: int, *place: int | str) -> None:
    """Raise TrainingError, naming what a client adds, where a number of it is outside the range of the sum."""
    for path, leaf in tree.flatten(summand):
        if leaf is not None and len(outside := leaf[~(leaf.abs() <= range)]):  # NaN, too
            what = repr(" ".join(map(str, (*place[1:], *path))))
            if place[1:] == ("update",):
                what = f"{SENT[path[0]]} {'.'.join(path[1:])!r}"
            rule = f"{what} of client {client} must be in [-{range:g}, {range:g}], the range of a secure sum"
            raise TrainingError(f"{rule}; got {float(outside[0]):g}, in round {place[0]}")


def listed(summand: Tree) -> list[Tensor]:
    """The leaves of what a client adds, in the order of their names: that of a tree depends on who has made it."""
    return [leaf for _, leaf in _sorted(summand) if leaf is not None]


def shaped(total: Sequence[Tensor], like: Tree) -> Tree:
    """The tree of such leaves; undoes `listed`."""
    leaves = iter(total)
    return tree.unflatten((path, None if leaf is None else next(leaves)) for path, leaf in _sorted(like))["sum"]


def _sorted(summand: Tree) -> list[tuple[tuple[str, ...], Tensor | None]]:
    return sorted(tree.flatten({"sum": summand}), key=itemgetter(0))


def of_answer(part: Component, answer: Tree) -> Tree:
    """In the place of an answer before training."""
    return _in_two(part.to_sum(_double(answer)))


def of_weights(method: Method, state: Tree, client: Cohort, sums: Sums) -> Tree:
    """For the next sum that the weights rest on.

    Args:
        method: its weighting says what.
        state: of the weighting, at the server.
        client: this client alone, as a cohort.
        sums: those before it.
    """
    return tree.row(method.weighting.adds(state, client, sums), 0)


def of_update(method: Method, state: Tree, client: Cohort, sums: Sums, trained: Tree) -> Tree:
    """At the end of a round; ``trained`` has the client's ``delta``, ``buffers`` and ``uploads``, as far as they move.

    The other arguments are those of `of_weights`.
    """
    return _sent(client, method.weighting.mass(state, client, sums), trained, factors_of(method))


def factors_of(method: Method) -> dict[str, str]:
    """What each component's upload is multiplied by."""
    return {part.name: r.by for part in method.components for r in part.reads if r.word == "upload"}


def _double(values: Tree) -> Tree:
    return tree.map_tree(lambda leaf: leaf.detach().cpu().double(), values)


def _counts(buffer: Tensor) -> bool:
    """Whether a buffer is a counter, such as that of batches."""
    return not buffer.is_floating_point()


def _in_two(values: Tree) -> Tree:
    """Numbers as a coarse part, which a sum keeps exactly, and the rest, enlarged: covariances need these bits."""
    coarse = tree.map_tree(lambda leaf: (leaf * 2.0**COARSE).round() / 2.0**COARSE, values)
    return {"coarse": coarse, "fine": tree.scale(tree.sub(values, coarse), 2.0**FINE)}


def _row(cohort: Cohort, i: int) -> Cohort:
    """What one client knows of itself before it has trained."""
    named = {name: getattr(cohort, name)[i : i + 1] for name in ("ids", "chains", *ROWS)}
    reports = Report(*(column[i : i + 1] for column in cohort.reports))
    return cohort._replace(**named, reports=reports, uploads={}, deltas=None)  # type: ignore[arg-type]


def moving(deltas: Params, buffers: Params, uploads: Tree, stays: frozenset[str]) -> Tree:
    """What clients send: updates and statistics, without those that stay where they are, and uploads."""
    kinds = {"delta": deltas, "buffers": buffers}
    moved = {kind: {n: v for n, v in values.items() if n not in stays} for kind, values in kinds.items()}
    return {**moved, "uploads": uploads}


def _sent(client: Cohort, mass: Weights, trained: Tree, by: Mapping[str, str]) -> Tree:
    """What one client adds to the sum at the end of a round: everything but counters times a weight of its own."""
    update, average = mass.update[0].double(), mass.average[0].double()
    samples, steps, lr, loss, _ = (column[0].double() for column in client.reports)
    factors = {"update": update, "average": average, "size": samples, "one": torch.ones_like(samples)}
    values = _double(trained)
    # a counter is not weighed: times the rows of a client it would leave the range after a few rounds
    weighed = {n: values["buffers"][n] * (1.0 if _counts(b) else average) for n, b in trained["buffers"].items()}
    return {
        "factors": factors,
        "delta": tree.scale(values["delta"], update),
        "buffers": weighed,
        "uploads": {name: tree.scale(values["uploads"][name], factors[how]) for name, how in by.items()},
        "reports": {"steps": steps, "lr": lr, "reach": average * steps * lr, "loss": samples * loss},
        "rows": {name: getattr(client, name).sum() for name in ROWS},
    }


def _of_sum(total: Tree, left: Sequence[int], results: Results, by: Mapping[str, str], before: Params) -> Results:
    """The round of one client that stands for all: a sum is divided by the sum of what it was multiplied by.

    Buffers that no client sends are those ``before`` the round.
    """
    cohort, factors, report_sums = results.cohort, total["factors"], total["reports"]
    whole, clients = factors["average"], len(left)
    if not bool(whole > 0):
        raise TrainingError(f"the weights of round {cohort.round} must add up to more than 0; got {float(whole):g}")

    def mean(sums: Tree, like: Tree, factor: Tensor | int) -> Tree:
        def mean_leaf(leaf: Tensor, old: Tensor) -> Tensor:
            new = leaf / factor
            return (new if old.is_floating_point() else new.round()).to(old)

        return tree.map_tree(mean_leaf, sums, like)

    changed = mean(total["delta"], tree.row(cohort.deltas, 0), whole)
    delta = {n: changed.get(n, torch.zeros_like(x)) for n, x in cohort.before.items()}
    buffers = dict(before)
    for name, sum_ in total["buffers"].items():
        buffers[name] = mean(sum_, buffers[name], clients if _counts(buffers[name]) else whole)
    divisors = {name: torch.where(sum_ == 0, 1.0, sum_) for name, sum_ in factors.items()} | {"one": torch.ones(())}
    uploads = {n: mean(total["uploads"][n], tree.row(cohort.uploads[n], 0), divisors[how]) for n, how in by.items()}
    lr, samples = report_sums["lr"] / clients, factors["size"]
    loss = report_sums["loss"] / samples.clamp(min=1)
    # steps in units of the mean rate, so that their product is the mean reach of local runs
    values = (samples, report_sums["reach"] / (whole * lr).clamp(min=1e-300), lr, loss, torch.zeros_like(lr))
    reports = Report(*(value.reshape(1) for value in values))
    ids = torch.tensor(left)
    seen = cohort._replace(
        ids=ids, chains=ids.unsqueeze(1), reports=reports, uploads=tree.expand(uploads, 1),
        weights=Weights((factors["update"] / whole).reshape(1), torch.ones(1, dtype=torch.float64)), deltas=None,  # type: ignore[arg-type]
        **{name: rows.reshape(1, 1) for name, rows in total["rows"].items()},
    )  # fmt: skip
    recorded = seen._replace(reports=reports._replace(steps=report_sums["steps"].reshape(1)))
    return Results(seen, delta, tree.expand(buffers, 1), recorded=recorded)
