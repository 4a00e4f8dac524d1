"""What every local engine shares: it owns the data, plans the rows, and maps the client round that `client` defines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedskew import client as rounds
from fedskew import rng, tree
from fedskew.client import Job
from fedskew.data.store import Store
from fedskew.engines.evaluation import Evaluator
from fedskew.engines.memory import ClientMemory, home
from fedskew.engines.planning import Plan, Source, offer, plan_client, plan_pace
from fedskew.engines.programs import Stepper
from fedskew.engines.workers import Workers
from fedskew.errors import ConfigError, require
from fedskew.functional import cross_entropy
from fedskew.method import Component, Method
from fedskew.models.prepare import Model
from fedskew.server import Broadcast, aggregate
from fedskew.tree import Tree
from fedskew.types import (
    Answers,
    Assignment,
    Batch,
    Cohort,
    Context,
    Params,
    Progress,
    Query,
    Report,
    Results,
    Task,
    View,
    Weights,
)

if TYPE_CHECKING:
    from fedskew.data.federation import Federation

Array = np.ndarray[Any, Any]

__all__ = ["LocalEngine", "Outcome", "Place", "Settle", "as_it_is"]


class Place(NamedTuple):
    """A client's place in the round: what it is given and the rows it will train on."""

    job: Job
    plan: Plan
    keys: Tensor  # [T, D] one for each mini-batch


class Outcome(NamedTuple):
    """What came out of one or more finished local runs, leaves [k, ...]."""

    params: Params
    buffers: Params
    uploads: dict[str, Tree]
    memories: dict[str, Tree]
    reports: Report


Settle = Callable[[int, Outcome], Outcome]


def as_it_is(at: int, outcome: Outcome) -> Outcome:
    """No settling."""
    return outcome


class LocalEngine:
    """Runs clients in this process. Subclasses say how, in `run_places`."""

    name = "local"
    parallel = False  # whether several clients, or stacks of them, are trained at a time
    unpadded = False  # whether rows are never padded
    channels_last = False  # whether convolutions on a CPU see channels-last tensors: half the time there
    trace_after: float = float("inf")  # steps of one shape before it is traced

    def __init__(
        self, model: Model, fed: Federation, task: Task, *, seed: int, device: str = "cpu", threads: int = 0
    ) -> None:
        self.model, self.fed, self.task, self.seed, self.device = model, fed, task, seed, torch.device(device)
        model.unpadded = self.unpadded
        self.dtype = next(iter(model.params.values())).dtype
        self.workers = Workers(model, (threads or Workers.cores()) if self.device.type == "cpu" else 1)
        self.nhwc = self.channels_last and self.device.type == "cpu" and "Conv2d" in model.layer_kinds
        self.convolves = any(kind.startswith("Conv") for kind in model.layer_kinds)
        data, dtype = fed.dataset, self.dtype
        self.store = Store(data.x.to(self.device), data.y.to(self.device), data.mean, data.std, dtype, data.augment)
        test = Store(data.x_test.to(self.device), data.y_test.to(self.device), data.mean, data.std, dtype)
        self.on_test, self.on_train = Evaluator(self, test, keep=True), Evaluator(self, self.store, keep=False)
        labels = data.y.numpy()
        self.own = Source([fed.rows(k) for k in range(fed.clients)], labels, fed.counts)
        self.auxiliary = self._auxiliary(labels, data.classes)
        self.memory = ClientMemory({})
        self._steppers: list[tuple[Method, Stepper]] = []
        self.deltas: dict[int, Params] | None = None  # {first place: [k, ...]} beside their sum, for diagnostics

    @property
    def net(self) -> Model:
        """The model, this thread's own copy of it."""
        return self.workers.model

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """Results in the order of the items, from all threads."""
        return self.workers.map(function, items)

    def train_map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """The same for training, where the engine says that it is parallel."""
        return self.map(function, items) if self.parallel else map(function, items)

    def layout(self, tree_: Tree) -> Tree:
        """Images and kernels channels-last where that is faster."""
        if not self.nhwc:
            return tree_

        def one(leaf: Tensor) -> Tensor:
            return leaf.contiguous(memory_format=torch.channels_last) if leaf.dim() == 4 else leaf

        return tree.map_tree(one, tree_)

    def stepper(self, method: Method, step: Callable[..., Any]) -> Stepper:
        """What runs the steps of a method; made once."""
        for known, stepper in self._steppers:
            if known is method or known == method:
                return stepper
        # the interpreter takes no list of truth values, which the backward pass of a convolution asks for
        self._steppers.append((method, Stepper(step, float("inf") if self.convolves else self.trace_after)))
        return self._steppers[-1][1]

    def close(self) -> None:
        """Let the threads and the clients' memories go."""
        self.workers.close()
        self.memory.home.close()

    def _auxiliary(self, labels: Array, classes: int) -> Source:
        rows = np.asarray(self.fed.auxiliary_rows)
        by_class = [rows[labels[rows] == c] for c in range(classes)]
        return Source(by_class, labels, torch.diag(torch.tensor([len(r) for r in by_class])))

    def birth(
        self, method: Method, params: Params, buffers: Params, where: str = "device", folder: Path | None = None
    ) -> None:
        """Give every client the memory it has before it ever took part; ``where`` names the home of what it keeps."""
        place = self.device if where == "device" else torch.device("cpu")
        made = {c.name: c.init_client(params, buffers, self.task) for c in method.components}
        template = tree.map_tree(lambda t: t.to(place), made)
        self.memory = ClientMemory(template, home(where, template, folder))

    # training

    def ready(self, method: Method, places: list[Place]) -> None:
        """Prepare for local runs of these places, before any thread has begun one."""

    def run_places(self, method: Method, places: list[Place], settle: Settle = as_it_is) -> Iterator[Outcome]:
        """Local runs of independent clients, in order; an outcome may hold several.

        ``settle`` (first place, outcome) is called where the client was trained, while its parameters are at hand.
        """
        raise NotImplementedError

    def train(
        self,
        method: Method,
        assignment: Assignment,
        broadcast: Broadcast,
        weigh: Callable[[Cohort], Weights] | None = None,
    ) -> Results:
        """Local training of the cohort. With ``weigh``, weights are asked for beforehand and deltas come reduced."""
        plans = self._plans(method, assignment, broadcast, self.own)
        cohort = self._cohort(method, plans, broadcast)._replace(averaged=assignment.averaged)
        if weigh is not None:
            cohort = cohort._replace(weights=weigh(cohort))
        given = self._given(broadcast)
        return self._reduce(cohort, self._chains(method, plans, given, self._settler(cohort.weights, given)))

    def _settler(self, weights: Weights | None, given: Broadcast) -> Settle:
        """Parameters as deltas; where the weights are known, as the weighted sum of deltas, [1, ...]."""

        names, before = list(given.params), list(given.params.values())

        def settle(at: int, outcome: Outcome) -> Outcome:
            leaves = [outcome.params[n] for n in names]
            if self.deltas is not None and weights is not None:
                # on the host: a stack's size follows the device's memory
                self.deltas[at] = {n: (y - x).cpu() for n, y, x in zip(names, leaves, before, strict=True)}
            if weights is None:
                change = [y - x for y, x in zip(leaves, before, strict=True)]
            elif len(outcome.reports.loss) == 1:  # the same bits as below, by two calls for all parameters
                moved = torch._foreach_sub([leaf[0] for leaf in leaves], before)
                torch._foreach_mul_(moved, float(weights.update[at].to(self.dtype)))
                change = [leaf.unsqueeze(0) for leaf in moved]
            else:
                share = weights.update[at : at + len(outcome.reports.loss)]
                change = [aggregate(y - x, share).unsqueeze(0) for y, x in zip(leaves, before, strict=True)]
            return outcome._replace(params=dict(zip(names, change, strict=True)))

        return settle

    def _given(self, broadcast: Broadcast) -> Broadcast:
        """A broadcast in the layout in which clients train."""
        whole = {n: self.layout(getattr(broadcast, n)) for n in ("params", "buffers", "common")}
        return broadcast._replace(**whole)

    def _plans(self, method: Method, assignment: Assignment, broadcast: Broadcast, source: Source) -> list[list[Plan]]:
        """Plans by group and place; padding is left out."""
        offered = offer(method, source.counts, broadcast.common, broadcast.round, self.seed)
        used, pace = plan_pace(method, offered, assignment, broadcast.round, self.task.rounds)
        shared = broadcast.common.get(method.sampler.name, {})
        members = assignment.chains.shape[1]
        groups: list[list[Plan]] = []
        for g, chain in enumerate(assignment.chains.tolist()):
            group = []
            for m, k in enumerate(chain):
                if k < 0:
                    continue
                i = g * members + m
                key = rng.seed_of(self.seed, broadcast.round, k, "plan")
                paced = (int(pace.batch[i]), int(pace.epochs[i]), int(pace.steps[i]), float(pace.lr[i]))
                group.append(plan_client(method, source, k, m, offered[k], used[i], paced, shared, key))
            groups.append(group)
        return groups

    def _cohort(self, method: Method, plans: list[list[Plan]], broadcast: Broadcast) -> Cohort:
        """What is known of the round before anyone has trained."""
        steps = torch.tensor([sum(len(p.batches) for p in group) for group in plans])
        lr = torch.tensor([group[0].lr for group in plans], dtype=torch.float64)
        zero = torch.zeros(len(plans), dtype=torch.float64)
        samples = torch.tensor([sum(p.samples for p in group) for group in plans])
        a_norm = method.local.a_norm(steps, lr, method.proximal).double()
        longest = max(len(group) for group in plans)
        chains = torch.tensor([[p.client for p in g] + [-1] * (longest - len(g)) for g in plans])

        def total(histogram: str) -> Tensor:
            return torch.stack([torch.stack([getattr(p, histogram) for p in group]).sum(0) for group in plans])

        report = Report(samples, steps, lr, zero, a_norm)
        owned, offered, used = total("owned"), total("offered"), total("used")
        return Cohort(
            self.task, chains[:, 0], owned, offered, used, report, broadcast.params, broadcast.round, chains, uploads={}
        )

    def _chains(
        self, method: Method, plans: list[list[Plan]], broadcast: Broadcast, settle: Settle
    ) -> Iterator[Outcome]:
        """Outcomes of the groups. A chain hands parameters and buffers from member to member."""
        position = {int(k): i for i, k in enumerate(dict.fromkeys(p.client for group in plans for p in group))}
        if max(len(group) for group in plans) == 1:
            places, done = self._places(method, [group[0] for group in plans], broadcast, position), 0
            self.ready(method, places)
            for outcome in self.run_places(method, places, settle):
                for i in range(len(outcome.reports.loss)):
                    self.memory.put(places[done + i].plan.client, tree.row(outcome.memories, i))
                done += len(outcome.reports.loss)
                yield outcome
            return

        self.ready(method, self._places(method, [p for group in plans for p in group], broadcast, position))

        def chain(g: int) -> Outcome:
            return settle(g, self._chain(method, plans[g], broadcast, position))

        yield from self.train_map(chain, range(len(plans)))

    def _chain(self, method: Method, group: list[Plan], broadcast: Broadcast, position: dict[int, int]) -> Outcome:
        reports = []
        for m, plan in enumerate(group):
            (outcome,) = self.run_places(method, self._places(method, [plan], broadcast, position, m))
            broadcast = broadcast._replace(params=tree.row(outcome.params, 0), buffers=tree.row(outcome.buffers, 0))
            reports.append(outcome.reports)
        return outcome._replace(reports=_chained(reports))

    def _places(
        self, method: Method, plans: list[Plan], broadcast: Broadcast, position: dict[int, int], m: int = 0
    ) -> list[Place]:
        """Jobs on the host; what all clients share is made once."""
        steps = torch.tensor([len(p.batches) for p in plans])
        lr = torch.tensor([p.lr for p in plans], dtype=torch.float64)
        a_norm = method.local.a_norm(steps, lr, method.proximal).to(self.dtype).unbind()
        each = {"lr": lr.to(self.dtype).unbind(), "a_norm": a_norm, "steps": steps.unbind()}
        each["epochs"] = torch.tensor([p.epochs for p in plans]).unbind()
        each["samples"] = torch.tensor([p.samples for p in plans]).unbind()
        now, last = torch.tensor(broadcast.round), torch.tensor(self.task.rounds)
        keys = self._keys(plans, broadcast.round, m)

        def place(i: int, plan: Plan) -> Place:
            job = Job(
                params=broadcast.params,
                buffers=broadcast.buffers,
                common=broadcast.common,
                each=self.layout(tree.row(broadcast.each, position[plan.client])) if broadcast.each else {},
                memory=self.layout(self.memory.get(plan.client)),
                owned=plan.owned,
                used=plan.used,
                round=now,
                rounds=last,
                **{name: values[i] for name, values in each.items()},
            )
            return Place(job, plan, keys[i])

        return [place(i, plan) for i, plan in enumerate(plans)]

    def _keys(self, plans: list[Plan], round: int, m: int) -> list[Tensor]:
        """A key for each mini-batch of each client, [T, D]: a counter folded into the client's own."""
        own = [rng.folded(rng.seed_of(self.seed, round, p.client, "train"), m) for p in plans]
        shapes = [p.batches.shape[:2] for p in plans]
        counter = torch.arange(max((t * d for t, d in shapes), default=0))
        keys = rng.fold(torch.tensor(own).unsqueeze(1), counter)
        return [row[: t * d].reshape(t, d) for row, (t, d) in zip(keys.unbind(), shapes, strict=True)]

    def _to_device(self, job: Job) -> Job:
        """What was made on the host, on the device."""
        if self.device.type == "cpu":
            return job
        moved: Job = Job(*(tree.map_tree(lambda t: t.to(self.device, non_blocking=True), field) for field in job))
        return moved

    def _reduce(self, cohort: Cohort, outcomes: Iterable[Outcome]) -> Results:
        """Weighted deltas summed as they come, or deltas stacked where the server must see each."""
        delta: Params | None = None
        deltas, buffers, uploads, losses = [], [], [], []
        for outcome in outcomes:
            if cohort.weights is None:
                deltas.append(outcome.params)
            else:
                share = tree.row(outcome.params, 0)
                if delta is None:
                    delta = share
                else:
                    torch._foreach_add_(list(delta.values()), list(share.values()))
            buffers.append(outcome.buffers)
            uploads.append(outcome.uploads)
            losses.append(outcome.reports.loss)
        report = cohort.reports._replace(loss=torch.cat(losses).double().cpu())
        cohort = cohort._replace(reports=report, uploads=tree.concatenate(uploads))
        if cohort.weights is None:
            cohort = cohort._replace(deltas=tree.concatenate(deltas))
        return Results(cohort, delta, tree.concatenate(buffers))

    # questions

    def query(self, query: Query, part: Component, method: Method, broadcast: Broadcast) -> Answers:
        """Answer a component's question on the clients, or on the server's auxiliary rows."""
        source = self.auxiliary if query.rows == "auxiliary" else self.own
        if query.rows == "auxiliary" and not any(len(r) for r in source.rows):
            raise ConfigError(f"auxiliary must be at least 1: {part.name!r} trains on rows that the server holds")
        ids = torch.arange(len(source.rows)) if isinstance(query.ids, str) else query.ids
        given = self._given(broadcast)
        if query.what == "counts":
            values: Tree = offer(method, source.counts, broadcast.common, broadcast.round, self.seed)[ids]
        elif query.what == "delta":
            values = self._probe(method.probe(), Assignment(ids.unsqueeze(1)), broadcast, source)
        elif query.what == "loss":
            values = torch.stack(list(self.map(lambda k: self._loss(given, source.rows[k]), ids.tolist())))
        else:
            values = tree.stack(list(self.map(lambda k: self._ask_client(query, part, given, source, k), ids.tolist())))
        if query.keep:
            place = any(True for _ in tree.leaves(self.memory.template[part.name]))
            require(place, f"{part.name}.init_client", "give the kept answer a place", self.memory.template[part.name])
            for i, k in enumerate(ids.tolist()):
                kept = {**self.memory.get(k)[part.name], **tree.row(values, i)}
                self.memory.put(k, {part.name: kept})
        return Answers(ids, values)

    def _probe(self, method: Method, assignment: Assignment, broadcast: Broadcast, source: Source) -> Params:
        """Deltas [Q, ...] of plain local runs on a source."""
        plain = broadcast._replace(common={}, each={})
        plans = self._plans(method, assignment, plain, source)
        plain = self._given(plain)
        memory = {c.name: c.init_client(plain.params, plain.buffers, self.task) for c in method.components}
        places = self._places(method, [g[0] for g in plans], plain, {g[0].client: 0 for g in plans})
        places = [p._replace(job=p.job._replace(memory=memory)) for p in places]
        self.ready(method, places)
        after: Params = tree.concatenate([o.params for o in self.run_places(method, places)])
        return {n: y - broadcast.params[n] for n, y in after.items()}

    def _loss(self, broadcast: Broadcast, rows: Array) -> Tensor:
        """Mean cross-entropy of the broadcast model on rows, in evaluation mode; 0 without rows."""
        return self.on_train(broadcast.params, broadcast.buffers, rows)[1]

    def _ask_client(self, query: Query, part: Component, broadcast: Broadcast, source: Source, k: int) -> Tree:
        assert callable(query.what)
        ctx = self._context(broadcast, k, source, part)
        key = rng.key(self.seed, broadcast.round, k, part.name, "query").to(self.device)
        whole = self._whole(source.rows[k])
        total: Tree = None
        for d in range(query.draws):
            one = rng.fold(key, d)
            batch = whole._replace(x=self.store.augmented(whole.x, one)) if query.augment else whole
            with torch.no_grad():
                out, _ = self.net.forward(
                    broadcast.params, broadcast.buffers, batch.x, batch.mask, train=False, key=one
                )
            none, now, last = (torch.tensor(v, device=self.device) for v in (0, broadcast.round, self.task.rounds))
            progress = Progress(none, none, none, none, now, last)
            view = View(
                self.net.forward, broadcast.params, broadcast.buffers, out, batch, ctx, ctx.memory, one, progress
            )
            answer = query.what(view)
            total = answer if total is None else tree.add(total, answer)
        return tree.scale(total, 1.0 / query.draws)

    def _whole(self, rows: Array) -> Batch:
        at = torch.from_numpy(np.ascontiguousarray(rows)).to(self.device)
        mask = torch.ones(len(rows), dtype=self.dtype, device=self.device)
        return Batch(self.layout(self.store.floats(at)), self.store.y[at], mask)

    def _context(self, broadcast: Broadcast, k: int, source: Source, part: Component | None = None) -> Context:
        memory = self.memory.get(k) if source is self.own else self.memory.template
        memory = tree.map_tree(lambda t: t.to(self.device), memory)
        shared = {n: dict(t) for n, t in broadcast.common.items()}
        counts = source.counts[k].to(self.device)
        lr = torch.zeros((), dtype=self.dtype, device=self.device)
        return Context(self.task, broadcast.params, broadcast.buffers, shared, memory, counts, counts, lr)

    # evaluation

    def evaluate(
        self, params: Params, buffers: Params, rows: Array | None = None, *, on: str = "test"
    ) -> tuple[Tensor, float]:
        """(confusion matrix [C, C], mean cross-entropy) on rows of the test set, or of the training set."""
        matrix, loss = (self.on_test if on == "test" else self.on_train)(params, buffers, rows)
        return matrix.cpu(), float(loss)

    def outputs(self, params: Params, buffers: Params, at: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(probabilities [R, C] float64, features [R, F]) of a model on test rows; features only of chosen rows."""
        given, statistics = self.layout(params), self.layout(buffers)

        def one(chunk: Tensor | slice) -> tuple[Tensor, Tensor]:
            x = self.on_test.rows(chunk)
            mask, key = x.new_ones(len(x)), self.on_test.store.y.new_zeros(())
            out, _ = self.net.forward(given, statistics, x, mask, train=False, key=key)
            return out.logits.double().softmax(1).cpu(), out.features[: 0 if at is None else None].cpu()

        found = self.map(one, self.on_test.chunks(None if at is None else at.numpy()))
        probabilities, features = (torch.cat(list(column)) for column in zip(*found, strict=True))
        return probabilities, features

    def personal(self, method: Method, broadcast: Broadcast) -> tuple[Tensor, float]:
        """Pooled (confusion, loss) of every client's own model on its own share of the test set."""
        shares = {k: self.fed.test_rows(k) for k in range(self.fed.clients) if len(self.own.rows[k])}
        shares = {k: rows for k, rows in shares.items() if len(rows)}
        given = self._given(broadcast)

        def one(k: int) -> tuple[Tensor, float]:
            return self.evaluate(self.personalized(method, given, k), given.buffers, shares[k])

        matrix = torch.zeros(self.task.classes, self.task.classes, dtype=torch.int64)
        total = 0.0
        for (found, loss), rows in zip(self.map(one, shares), shares.values(), strict=True):
            matrix, total = matrix + found, total + loss * len(rows)
        return matrix, total / max(sum(map(len, shares.values())), 1)

    def personalized(self, method: Method, broadcast: Broadcast, k: int) -> Params:
        """The parameters of client k's own model."""
        ctx, rows = self._context(broadcast, k, self.own), self._whole(self.own.rows[k])

        def gradient(params: Params) -> Params:
            def objective(p: Params) -> tuple[Tensor, tuple[Batch, Params]]:
                out, _ = self.net.forward(
                    p, broadcast.buffers, rows.x, rows.mask, train=False, key=ctx.owned.new_zeros(())
                )
                return rows.mean(cross_entropy(out.logits, rows.y)), (rows, {})

            return rounds.autograd(objective, params)[0]

        params = broadcast.params
        for part in method.having("personalize"):
            params = part.personalize(params, ctx, gradient)
        return params


def _chained(reports: list[Report]) -> Report:
    """A chain counts as one client: samples, steps and reach add up, the loss is the mean over its steps."""
    samples, steps, loss, a_norm = (
        torch.cat([getattr(r, n) for r in reports]) for n in ("samples", "steps", "loss", "a_norm")
    )

    def total(values: Tensor) -> Tensor:
        return values.sum(0, keepdim=True)

    return Report(
        total(samples), total(steps), reports[0].lr, total(loss * steps) / total(steps).clamp(min=1), total(a_norm)
    )
