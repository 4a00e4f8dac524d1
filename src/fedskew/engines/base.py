"""What every local engine shares: planning a round, handing out jobs, and collecting what comes back.

An engine composes objects that each have one job: `Runtime` (device, threads, layout), `Clients` (rows), `Planner`
(plans of rounds), `Jobs` (what each client is given), `ClientMemory`, `Stepper` (local steps), `Reduction` (deltas to
results) and `Evaluator`. A subclass says how local runs are mapped over clients, in `run_clients`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedskew import client as rounds
from fedskew import rng, tree
from fedskew.client import PRIVATE, Job
from fedskew.data.federation import Federation
from fedskew.data.inputs import RowStore
from fedskew.engines.clients import ClientMemory, Clients, RowSource, auxiliary_source, client_source
from fedskew.engines.evaluation import Evaluator, Models, Tested, personal_model, shares_of, tested
from fedskew.engines.fitting import LIMIT, ClientLogits, Fit, check_limit, fits_by
from fedskew.engines.guard import Guard, unguarded
from fedskew.engines.network import features_of, head_alone
from fedskew.engines.outcomes import (
    FiniteChecks,
    Outcome,
    Reduction,
    Settle,
    chained,
    identity,
    in_order,
    require_finite,
)
from fedskew.engines.planning import ClientJob, Jobs, Planner
from fedskew.engines.programs import StepFunction
from fedskew.engines.runtime import Runtime
from fedskew.engines.stepper import StepMode, Stepper
from fedskew.errors import FieldError, require
from fedskew.method import Component, Method
from fedskew.models.prepare import Model
from fedskew.server import Broadcast
from fedskew.settings import Settings
from fedskew.types import (
    Answers,
    Assignment,
    Batch,
    Carry,
    Cohort,
    Context,
    Params,
    Progress,
    Query,
    Report,
    Results,
    Task,
    Tree,
    View,
    Weights,
)


def _keep(memory: ClientMemory, part: Component, ids: Tensor, values: Tree) -> None:
    """Write each client's answer beside what the component already keeps there."""
    has_place = any(True for _ in tree.leaves(memory.template[part.name]))
    require(has_place, f"{part.name}.init_client", "provide an entry for the kept answer", memory.template[part.name])
    for i, k in enumerate(ids.tolist()):
        memory.put(k, {part.name: {**memory.get(k)[part.name], **tree.row(values, i)}})


Array = np.ndarray[Any, Any]
Map = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]


class LocalEngine:
    """Simulates clients in this process. Subclasses define `run_clients` and `step_function`."""

    name: ClassVar[str] = "local"
    parallel: ClassVar[bool] = False  # several clients, or stacks of them, train at the same time
    unpadded: ClassVar[bool] = False  # rows are never padded
    channels_last: ClassVar[tuple[str, ...]] = ()  # on these types of device convolutions see channels-last tensors
    watchful: ClassVar[bool] = False  # everything that a hook reads and gives is looked at
    rows_of: ClassVar[staticmethod[[Federation], RowSource]] = staticmethod(client_source)  # from which it plans

    def __init__(self, model: Model, fed: Federation, task: Task, settings: Settings) -> None:
        """Bring the data to the device.

        Args:
            model: a prepared network, on the device.
            fed: who owns which rows.
            task: facts of the run.
            settings: the seed, on which every draw depends beside the round and the client; the device; and the worker
                threads on a CPU, where 0 takes every core.
        """
        self.network, self.model = model, model  # the latter trains: the head alone, where all else is a constant
        check_limit(settings, task.classes)
        self.task, self.fed = task, fed
        self.runtime = Runtime.of(self.model, settings.device, settings.threads, self.channels_last)
        stores = _stores(fed, self.runtime)
        if alone := head_alone(model, bool(fed.dataset.augment)):
            stores = features_of(self.runtime, stores, task.classes, settings.precision)
            self.runtime.workers.close()
            self.model = alone
        if self.unpadded and not self.model.unpadded:
            self.model = self.model.clone(unpadded=True)
        if self.model is not model:
            self.runtime = Runtime.of(self.model, settings.device, settings.threads, self.channels_last)
        self.workers, self.device, self.dtype = self.runtime.workers, self.runtime.device, self.runtime.dtype
        # results in the order of the items, from all threads where the engine is parallel
        self.train_map: Map = self.workers.map if self.parallel else map
        self.store, test = stores
        self.test = Evaluator(self.runtime, test, task.classes, keep=True)
        self.train_set = Evaluator(self.runtime, self.store, task.classes, keep=False)
        self.clients = Clients(self.runtime, self.store, task, self.rows_of(fed))
        self.planner, self.jobs = Planner(task, settings.seed), Jobs(self.runtime, task, settings.seed)
        self.probing = self.planner, self.jobs  # of local runs that answer questions: their rows are here in any engine
        self.memory = ClientMemory({})
        self.initial: dict[str, Params] = {}  # of the model, "params" and "buffers"; by `init_clients`
        self.stays: frozenset[str] = frozenset()  # of these, what keeps its initial value wherever nobody has his own
        self.finite_checks = FiniteChecks()
        self.guard = Guard(full=self.watchful)
        self.steppers: list[tuple[Method, Stepper]] = []
        self.auxiliary = auxiliary_source(fed)
        # of their histograms [N, C], what clients tell; None: all
        self.noisy_histograms: Callable[[Tensor], Tensor] | None = None
        self.noisy_fits: dict[str, Fit] = {}  # where clients tell what biases come of, with noise, and no sums of rows

    def init_clients(self, method: Method, params: Params, buffers: Params, where: str = "device") -> None:
        """Give every client the memory that it has before it ever takes part.

        Args:
            method: its components say what they keep on a client.
            params: initial parameters.
            buffers: initial BatchNorm statistics.
            where: memories lie on the "device" that trains, or in "ram", from which they are copied to it.
        """
        place = self.device if where == "device" else torch.device("cpu")
        made = {c.name: c.init_client(params, buffers, self.task) for c in method.components}
        self.initial, names = {"params": params, "buffers": buffers}, (*params, *buffers)
        if private := method.named("private", names, self.task):
            made[PRIVATE] = {kind: {n: v for n, v in of.items() if n in private} for kind, of in self.initial.items()}
        self.stays = private | method.named("frozen", names, self.task)
        template = tree.map_tree(lambda t: t.to(place), made)
        self.finite_checks.begin(template)
        self.memory = ClientMemory(template)

    def close(self) -> None:
        """End the threads and release the data and what was recorded of steps.

        The engine is not used again. Without steppers, which hold it in turn, its tensors go when it goes: Python's
        collector of cycles does not know that a GPU is full.
        """
        self.workers.close()
        del self.steppers

    def stepper(self, method: Method) -> Stepper:
        """What runs the local steps of a method, made when it is first asked for.

        Methods are compared by ``==``, so that they need no hash: one with a tensor in a field has none.
        """
        for known, stepper in self.steppers:
            if known is method or known == method:
                return stepper
        mode = self.step_mode(self.device.type, self.model, unguarded(method), bool(self.store.augmentation))
        self.steppers.append((method, Stepper(self.step_function(method, mode), mode)))
        return self.steppers[-1][1]

    # what a subclass defines

    @classmethod
    def step_mode(cls, device: str, model: Model, method: Method, augmented: bool) -> StepMode:
        """What runs the steps of a method on a device; ``augmented`` says whether training rows are."""
        return StepMode.AUTOGRAD

    def step_function(self, method: Method, mode: StepMode) -> StepFunction:
        """One local step of a method, on what `run_clients` gives to its stepper."""
        raise NotImplementedError

    def run_clients(self, method: Method, clients: list[ClientJob], settle: Settle = identity) -> Iterator[Outcome]:
        """Local runs of independent clients; an outcome may hold several of them, which need not be neighbours.

        ``settle`` (places of the outcome's clients, outcome) runs where the client was trained.
        """
        raise NotImplementedError

    def run_chains(self, method: Method, chains: list[list[ClientJob]], settle: Settle = identity) -> Iterator[Outcome]:
        """As `run_clients`, of chains: the outcome of each, in order."""
        yield from self.train_map(lambda g: settle((g,), chain(self, method, chains[g])), range(len(chains)))

    def ready(self, method: Method, clients: list[ClientJob]) -> None:
        """Prepare for local runs of these clients, before any thread has begun one."""

    def finished(
        self, method: Method, client: ClientJob, job: Job, ctx: Context, carry: Carry, losses: Tensor
    ) -> Outcome:
        """The outcome of one client after its last step; ``losses`` [T] of its steps."""
        losses = losses if len(losses) else losses.new_zeros(1)
        uploads, memories, report = rounds.finish(method, ctx, carry, job, losses.mean())
        report = Report(*(value.unsqueeze(0) for value in report))
        check = self.finite_checks.of([client], losses.unsqueeze(0), carry.params, carry.buffers, uploads, memories)
        return Outcome(
            _as_row(carry.params), _as_row(carry.buffers), _as_row(uploads), _as_row(memories), report, (check,)
        )

    # training

    def train(
        self,
        method: Method,
        assignment: Assignment,
        broadcast: Broadcast,
        weigh: Callable[[Cohort], Weights | None] | None = None,
        *,
        keep_deltas: bool = False,
    ) -> Results:
        """Local training of a cohort.

        Args:
            method: what the clients train by.
            assignment: who trains, in which chain.
            broadcast: what the server sends down.
            weigh: gives the aggregation weights of a cohort that has not trained yet. Deltas then come back as their
                weighted sum, ``Results.delta``; without weights they come back stacked, in ``Results.cohort.deltas``.
            keep_deltas: hand back every delta in ``Results.kept``, on the host, in the order of the cohort.

        Raises:
            TrainingError: something that a client trained is not finite.
        """
        # plan
        plans = self.planner.plans(method, assignment, broadcast, self.clients.source)
        cohort = self.planner.cohort(method, plans, broadcast)
        if weigh is not None:
            cohort = cohort._replace(weights=weigh(cohort))  # type: ignore[arg-type]
        laid_out = self.runtime.laid_out(broadcast)
        chains = self.jobs.chains(method, plans, laid_out, self.memory)
        clients = [client for chain in chains for client in chain]
        self.ready(method, clients)
        # step and map
        reduction = Reduction(laid_out.params, cohort.weights, keep_deltas, laid_out.stays)
        alone = max(map(len, chains)) == 1
        if alone:
            outcomes = self.run_clients(method, clients, reduction.settle)
        else:
            outcomes = self.run_chains(method, chains, reduction.settle)
        # reduce
        for outcome in outcomes:
            if alone:
                self.memory.put_all([clients[at].plan.client for at in outcome.at], outcome.memories)
            reduction.add(outcome)
        return reduction.results(cohort)

    def probes(self, method: Method, clients: list[ClientJob]) -> Iterator[Outcome]:
        """Local runs outside of a round: of questions, of evaluation. Raises TrainingError if they are not finite."""
        self.ready(method, clients)
        checks = []
        for outcome in self.run_clients(method, clients):
            checks.append(outcome.checks)
            yield outcome
        require_finite(checks)

    # questions and evaluation

    def query(self, query: Query, part: Component, method: Method, broadcast: Broadcast) -> Answers:
        """Answer a component's question; see `answer`."""
        return self.answer(query, part, method, broadcast, self.memory, self.clients)

    def answer(
        self, query: Query, part: Component, method: Method, broadcast: Broadcast, memory: ClientMemory, who: Clients
    ) -> Answers:
        """Answer a question by rows, plans and local runs; an answer that stays on clients is written to ``memory``.

        Raises:
            FieldError: the question needs auxiliary rows and there are none, or a kept answer has no place in the
                memory that the component's ``init_client`` gives.
        """
        source = self.auxiliary if query.rows == "auxiliary" else who.source
        if query.rows == "auxiliary" and not any(len(r) for r in source.rows):
            hint = f"{part.name!r} trains on rows that the server holds"
            raise FieldError("Experiment", "auxiliary", "be at least 1", 0, hint)
        ids = torch.arange(len(source.rows)) if isinstance(query.ids, str) else query.ids
        if query.what == "counts":
            if self.noisy_histograms and query.rows == "own":
                source = source._replace(counts=self.noisy_histograms(source.counts))
            values: Tree = self.planner.offer(method, source, broadcast)[ids]
        elif query.what == "delta":
            values = self._deltas(method.probe(), ids, broadcast, source)
        else:
            laid_out = self.runtime.laid_out(broadcast)

            def value(k: int) -> Tree:
                ctx = who.context(laid_out, memory, k, source)
                if query.what == "loss":
                    return self.train_set.confusion(ctx.params, ctx.buffers, source.rows[k])[1]
                key = rng.key(self.planner.seed, broadcast.round, k, part.name, "query").to(self.device)
                return self._asked(query, ctx, who.batch(source.rows[k]), key, broadcast.round)

            values = tree.stack(list(self.workers.map(value, ids.tolist())))
        if query.keep:
            _keep(memory, part, ids, values)
        return Answers(ids, values)

    def _asked(self, query: Query, ctx: Context, whole: Batch, key: Tensor, round: int) -> Tree:
        """A function of a view, averaged over ``draws`` calls."""
        assert callable(query.what)
        net = self.runtime.net
        zero, now, last = (torch.tensor(v, device=self.device) for v in (0, round, self.task.rounds))
        progress = Progress(zero, zero, zero, zero, now, last)
        total: Tree = None
        for d in range(query.draws):
            draw_key = rng.fold(key, d)
            batch = whole._replace(x=self.store.augmented(whole.x, draw_key)) if query.augment else whole
            with torch.no_grad():
                out, _ = net.forward(ctx.params, ctx.buffers, batch.x, batch.mask, train=False, key=draw_key)
            view = View(net.forward, ctx.params, ctx.buffers, out, batch, ctx, ctx.memory, draw_key, progress)
            answer = query.what(view)
            total = answer if total is None else tree.add(total, answer)
        return tree.scale(total, 1.0 / query.draws)

    def _deltas(self, method: Method, ids: Tensor, broadcast: Broadcast, source: RowSource) -> Params:
        """Deltas [Q, ...] of plain local runs on a source, without anything that components broadcast or kept."""
        plain, (planner, makes) = broadcast._replace(common={}, each={}), self.probing
        plans = planner.plans(method, Assignment(ids.unsqueeze(1)), plain, source)
        plain = self.runtime.laid_out(plain)
        first = {c.name: c.init_client(plain.params, plain.buffers, self.task) for c in method.components}
        jobs = [job for (job,) in makes.chains(method, plans, plain, ClientMemory(first))]
        after: Params = in_order(list(self.probes(method, jobs)), lambda outcome: outcome.params)
        return {
            name: torch.zeros_like(y) if name in broadcast.stays else y - broadcast.params[name]
            for name, y in after.items()
        }

    def evaluate(
        self, params: Params, buffers: Params, rows: Array | None = None, *, on: str = "test"
    ) -> tuple[Tensor, float]:
        """Evaluate one model.

        Args:
            params: of the model.
            buffers: its BatchNorm statistics.
            rows: positions in the set; None takes all.
            on: "test" or "train".

        Returns:
            The confusion matrix [C, C] on the host, and the mean cross-entropy.
        """
        matrix, loss = (self.test if on == "test" else self.train_set).confusion(params, buffers, rows)
        return matrix.cpu(), float(loss)

    def fits(self, params: Params, buffers: Params) -> dict[str, Fit]:
        """A model's fits by objective, from exchanges with all clients that have training rows.

        Here one pass gives the logits of their rows, which stay for all exchanges. There is no fit of more than `LIMIT`
        classes, and where a logit is not finite.
        """
        if self.noisy_fits or self.task.classes > LIMIT:
            return self.noisy_fits
        rows = np.concatenate(self.clients.source.rows)
        logits = ClientLogits(*self.train_set.logits(params, buffers, rows))
        return fits_by(logits, self.fed.counts) if bool(logits.logits.isfinite().all()) else {}

    def tested(self, method: Method, broadcast: Broadcast, *, fitted: bool = False) -> Iterator[Tested]:
        """What each client would use on its own test rows: its own model where the method has one, else the global.

        Each is tested on the rows that its client keeps for this, else on its share of the test set. With ``fitted`` it
        first gets biases and a temperature of its client's own.
        """
        shares, fitted_on = shares_of(self.clients.source, self.fed), self.train_set if fitted else None
        test, model = self.test_of(self.fed), self.models(method, broadcast)
        yield from tested(self.clients, test, model, shares, fitted_on)

    def models(
        self, method: Method, broadcast: Broadcast, clients: Clients | None = None, memory: ClientMemory | None = None
    ) -> Models:
        """(parameters, buffers) of what a client would use, in the layout of the runtime.

        Without ``clients`` and ``memory``, it is one of the run's own, with what it keeps.
        """
        laid_out, who, kept = self.runtime.laid_out(broadcast), clients or self.clients, memory or self.memory
        if method.personal:
            return lambda k: personal_model(who, method, laid_out, kept, k)
        return lambda k: (laid_out.params, laid_out.buffers)

    def own_models(self, method: Method, broadcast: Broadcast) -> Iterator[tuple[int, Params]]:
        """(client, what of its own model is not as in the broadcast one, on the host) of all with training rows.

        At least one tensor of each, so that a client that is missing from a file is not taken for one without changes.
        """
        model, shared = self.models(method, broadcast), {**broadcast.params, **broadcast.buffers}

        def own_model(k: int) -> tuple[int, Params]:
            params, buffers = model(k)
            changed = {n: v.cpu() for n, v in (params | buffers).items() if not torch.equal(v, shared[n])}
            return k, changed or {n: params[n].cpu() for n in list(params)[:1]}

        yield from self.workers.map(own_model, [k for k, rows in enumerate(self.clients.source.rows) if len(rows)])

    def shared(self, params: Params, buffers: Params, number: int) -> tuple[Tensor, float]:
        """As `pooled` of `tested`, of the global model after a round: one evaluation on all clients' test rows."""
        return self.on_shares(params, buffers, self.fed)

    def on_shares(self, params: Params, buffers: Params, fed: Federation) -> tuple[Tensor, float]:
        """(confusion matrix, mean cross-entropy) of one model on the own test rows of a federation's clients."""
        return self.evaluate(params, buffers, self.rows_of_shares(fed), on="test" if fed.held is None else "train")

    def rows_of_shares(self, fed: Federation) -> Array:
        """The own test rows of a federation's clients one after another, places in the set that holds them."""
        return np.concatenate([*shares_of(self.rows_of(fed), fed).values(), np.empty(0, np.int64)])

    def test_of(self, fed: Federation) -> Evaluator:
        """Of the set that holds the own test rows of a federation's clients."""
        return self.test if fed.held is None else self.train_set


def chain(engine: LocalEngine, method: Method, clients: list[ClientJob]) -> Outcome:
    """The outcome of a chain; each member begins from what the one before it has trained."""
    done: list[Outcome] = []
    for client in clients:
        if done:
            client = client.after(done[-1].params, done[-1].buffers)
            done[-1] = done[-1]._replace(params={}, buffers={}, uploads={}, memories={})  # nobody else reads them
        done += engine.run_clients(method, [client])
    return chained(done)


def _as_row(values: Tree) -> Tree:
    """Leaves [...] as leaves [1, ...]."""
    return tree.map_tree(lambda leaf: leaf.detach().unsqueeze(0), values)


def _stores(fed: Federation, runtime: Runtime) -> tuple[RowStore, RowStore]:
    """The training set and the test set, on the device."""
    data, device, dtype = fed.dataset, runtime.device, runtime.dtype
    train = RowStore(data.x.to(device), data.y.to(device), data.mean, data.std, dtype, data.augment)
    return train, RowStore(data.x_test.to(device), data.y_test.to(device), data.mean, data.std, dtype)
