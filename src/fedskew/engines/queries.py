"""Answers to the questions that components ask of clients or of the server's rows (`fedskew.types.Query`)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fedskew import rng, tree
from fedskew.engines.clients import ClientMemory, Clients, Source
from fedskew.engines.evaluation import Evaluator
from fedskew.engines.outcomes import Outcome, in_order
from fedskew.engines.planning import Jobs, Place, Planner
from fedskew.errors import FieldError, require
from fedskew.method import Component, Method
from fedskew.server import Broadcast
from fedskew.types import Answers, Assignment, Batch, Context, Params, Progress, Query, Tree, View

LocalRuns = Callable[[Method, list[Place]], Iterator[Outcome]]  # the engine's own, for "delta" questions


@dataclass(frozen=True, eq=False)
class Queries:
    """Answers questions by a run's rows, plans and local runs."""

    clients: Clients
    auxiliary: Source
    planner: Planner
    jobs: Jobs
    train: Evaluator  # on the training set
    local_runs: LocalRuns

    def answer(
        self, query: Query, part: Component, method: Method, broadcast: Broadcast, memory: ClientMemory
    ) -> Answers:
        """Answer one question; an answer that stays on the clients is written to ``memory``.

        Raises:
            FieldError: the question needs auxiliary rows and there are none, or a kept answer has no place in the
                memory that the component's ``init_client`` gives.
        """
        source = self.auxiliary if query.rows == "auxiliary" else self.clients.own
        if query.rows == "auxiliary" and not any(len(r) for r in source.rows):
            hint = f"{part.name!r} trains on rows that the server holds"
            raise FieldError("Experiment", "auxiliary", "be at least 1", 0, hint)
        ids = torch.arange(len(source.rows)) if isinstance(query.ids, str) else query.ids
        if query.what == "counts":
            values: Tree = self.planner.offer(method, source, broadcast)[ids]
        elif query.what == "delta":
            values = self._deltas(method.probe(), ids, broadcast, source)
        else:
            runtime = self.clients.runtime
            given = runtime.laid_out(broadcast)

            def value(k: int) -> Tree:
                ctx = self.clients.context(given, memory, k, source)
                if query.what == "loss":
                    return self.train.confusion(ctx.params, ctx.buffers, source.rows[k])[1]
                key = rng.key(self.planner.seed, broadcast.round, k, part.name, "query").to(runtime.device)
                return self._asked(query, ctx, self.clients.batch(source.rows[k]), key, broadcast.round)

            values = tree.stack(list(runtime.map(value, ids.tolist())))
        if query.keep:
            _keep(memory, part, ids, values)
        return Answers(ids, values)

    def _asked(self, query: Query, ctx: Context, whole: Batch, key: Tensor, round: int) -> Tree:
        """A function of a view, averaged over ``draws`` calls."""
        assert callable(query.what)
        net, device = self.clients.runtime.net, self.clients.runtime.device
        none, now, last = (torch.tensor(v, device=device) for v in (0, round, self.clients.task.rounds))
        progress = Progress(none, none, none, none, now, last)
        total: Tree = None
        for d in range(query.draws):
            one = rng.fold(key, d)
            batch = whole._replace(x=self.clients.store.augmented(whole.x, one)) if query.augment else whole
            with torch.no_grad():
                out, _ = net.forward(ctx.params, ctx.buffers, batch.x, batch.mask, train=False, key=one)
            view = View(net.forward, ctx.params, ctx.buffers, out, batch, ctx, ctx.memory, one, progress)
            answer = query.what(view)
            total = answer if total is None else tree.add(total, answer)
        return tree.scale(total, 1.0 / query.draws)

    def _deltas(self, method: Method, ids: Tensor, broadcast: Broadcast, source: Source) -> Params:
        """Deltas [Q, ...] of plain local runs on a source, without anything that components broadcast or kept."""
        plain = broadcast._replace(common={}, each={})
        plans = self.planner.plans(method, Assignment(ids.unsqueeze(1)), plain, source)
        plain = self.clients.runtime.laid_out(plain)
        task = self.clients.task
        newborn = ClientMemory({c.name: c.init_client(plain.params, plain.buffers, task) for c in method.components})
        places = self.jobs.places(method, [group[0] for group in plans], plain, newborn, {})
        after: Params = in_order(list(self.local_runs(method, places)), lambda one: one.params)
        return {
            name: torch.zeros_like(y) if name in broadcast.stays else y - broadcast.params[name]
            for name, y in after.items()
        }


def _keep(memory: ClientMemory, part: Component, ids: Tensor, values: Tree) -> None:
    """Write each client's answer beside what the component already keeps there."""
    has_place = any(True for _ in tree.leaves(memory.template[part.name]))
    require(has_place, f"{part.name}.init_client", "provide an entry for the kept answer", memory.template[part.name])
    for i, k in enumerate(ids.tolist()):
        memory.put(k, {part.name: {**memory.get(k)[part.name], **tree.row(values, i)}})
