"""The seam of a deployment: the names of the library's insides that `fedskew.flower` uses, and no others.

Whoever runs methods on machines of their own by another framework builds on the same names. Beside them a deployment
uses the public rooms and the ground: `fedskew.data`, `fedskew.functional`, `fedskew.method`, `fedskew.models`,
`fedskew.privacy`, `fedskew.slots`, `fedskew.errors`, `fedskew.fields`, `fedskew.rng`, `fedskew.tree`, `fedskew.types`.

A client job, and how it is run:
    `RoundInputs` is what all clients of a round are given, a `ClientJob` what one is given, with the plan of its run.
    A `Pace` and a `Member` of a chain are what the plan is made from. `ClientMemory` is kept between rounds.
    A `ClientEngine` makes and runs the jobs of one client where its rows are; an `Outcome` is what comes back, a
    `Fault` what in it is not finite. `first_infinite` looks at other trees.
    A `RemoteEngine` is the server's: clients train elsewhere. It plans without rows, and memory does not follow what
    clients declare.
    `guarded` and `unguarded`: a method whose hooks say where a mistake is, and the method itself.

How a cohort is reduced:
    `RemoteEngine` adds up as every engine does. `Broadcast` goes down, `State` is the server's, `close_round` makes the
    next one from results that came in another way.

How a server sees sums alone:
    `sums` has the halves of a client and of the server. A `ClientEngine` gives the numbers of its client.

What a run is:
    `Experiment` and `Settings` say what is trained; `experiment_of_flags`, `flags_of`, `method_named` and `make` read
    them from words; `federation_of` and `prepared_model` make the rows and the network, a `Model`, whose
    `frozen_digests` tell of what does not train. `Iid` divides rows that are not the server's. `does_no_more` compares
    ingredients. `launch` trains and gives a `Result`; `arithmetic` sets the precision of a thread.

What is measured:
    An `Observer` makes a `Row` of a round; `EVALUATED`, `GROUPED`, `PERSONAL` and `named` say what is measured,
    `AVERAGED` and `TAIL` when.
    `Tested` is what one client measured, `pooled` adds up, a `MeanModel` is that of the last rounds.
    `ClientLogits` gives the `Sums` of a `Fit`, `fits_by` asks for them, at most `FIT_EXCHANGES` times for a fit, of at
    most `FIT_CLASSES` classes; `triangle_of` and `whole_of` turn a Hessian into what is sent, and back.

The record:
    `Hold` keeps others out of a run folder, `finished` and `check_config` look into it, `write_model` makes one.
    `save_tree`, `load_tree`, `write_atomic`, `writing` and `digests` write and read single files.

The encoding of data:
    `Inputs` say what a sample is, an `Encoding` has the `Column`s of a table, `PLAIN` its usual notation.
    `read_rows` reads a file of `TABLE_FILES` for inputs; `image_files` and `decode_images` a folder.
    `spelt`, `spellings`, `plain_values` and `missing_rows` settle what a cell of words says.
    `draw_whole` draws rows of which some belong together; `left_out_words` tells of files that are not read.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from fedskew import sums, tree
from fedskew._run import Result, launch
from fedskew.averages import Kept as MeanModel
from fedskew.client import Job, RoundInputs
from fedskew.config.experiment import Experiment
from fedskew.config.flags import experiment_of as experiment_of_flags
from fedskew.config.recorded import finished
from fedskew.config.tables import make, method_named
from fedskew.config.words import flags_of
from fedskew.data.arrays import draw_whole
from fedskew.data.encoding import PLAIN, Column, Encoding, spellings
from fedskew.data.federation import Federation
from fedskew.data.inputs import Inputs
from fedskew.data.inputs import rows_of as read_rows
from fedskew.data.partitioners import Iid
from fedskew.data.sources.delimited import Csv
from fedskew.data.sources.folders import image_files
from fedskew.data.sources.folders import lost as left_out_words
from fedskew.data.sources.pictures import decode_images
from fedskew.data.sources.table import Npz, Parquet
from fedskew.data.values import lacking as missing_rows
from fedskew.data.values import plain as plain_values
from fedskew.data.values import spelt
from fedskew.engines.clients import ClientMemory
from fedskew.engines.counted import StepPlanner, declared_rows
from fedskew.engines.evaluation import Tested, pooled
from fedskew.engines.fitting import LIMIT as FIT_CLASSES
from fedskew.engines.fitting import ClientLogits, Fit, fits_by, triangle_of, whole_of
from fedskew.engines.guard import guarded, unguarded
from fedskew.engines.guard import infinite as first_infinite
from fedskew.engines.measures import Observer
from fedskew.engines.network import frozen as frozen_digests
from fedskew.engines.network import initial_params, prepared_model
from fedskew.engines.outcomes import Fault, Outcome, Settle, chained, identity, require_finite
from fedskew.engines.planning import ClientJob, Jobs, Member, Pace, Plan
from fedskew.engines.sequential import Sequential, Threaded
from fedskew.engines.trained import Trained, described
from fedskew.errors import TrainingError
from fedskew.functional.fitting import MOST as FIT_EXCHANGES
from fedskew.functional.fitting import Sums
from fedskew.method import Method
from fedskew.method.component import does_no_more
from fedskew.models.precision import arithmetic
from fedskew.models.prepare import Model
from fedskew.records import digests
from fedskew.records.files import Hold, load_tree, save_tree, write_atomic, writing
from fedskew.records.folder import Record, check_config
from fedskew.records.metrics import EVALUATED, GROUPED, PERSONAL, named
from fedskew.records.summary import AVERAGED, TAIL, summarise
from fedskew.records.typed import Row
from fedskew.server import Broadcast, State, close_round
from fedskew.settings import Settings
from fedskew.studies.work import federation_of
from fedskew.types import Assignment, Cohort, Params, Report, Task, Tree

__all__ = [
    "AVERAGED", "EVALUATED", "FIT_CLASSES", "FIT_EXCHANGES", "GROUPED", "PERSONAL", "PLAIN", "TABLE_FILES", "TAIL",
    "Broadcast", "ClientEngine", "ClientJob", "ClientLogits", "ClientMemory", "Column", "Encoding", "Experiment",
    "Fault", "Fit", "Hold", "Iid", "Inputs", "MeanModel", "Member", "Model", "Observer", "Outcome", "Pace",
    "RemoteEngine", "Result", "RoundInputs", "Row", "Settings", "State", "Sums", "Tested", "arithmetic", "check_config",
    "close_round", "decode_images", "digests", "does_no_more", "draw_whole", "experiment_of_flags", "federation_of",
    "finished", "first_infinite", "fits_by", "flags_of", "frozen_digests", "guarded", "image_files",
    "launch", "left_out_words", "load_tree", "make", "method_named", "missing_rows", "named",
    "plain_values", "pooled", "prepared_model", "read_rows", "save_tree", "spellings", "spelt", "sums", "triangle_of",
    "unguarded", "whole_of", "write_atomic", "write_model", "writing",
]  # fmt: skip

TABLE_FILES: dict[str, Any] = {".csv": Csv, ".npz": Npz, ".parquet": Parquet}  # readers of a node's own rows, by suffix


# At the server: clients train elsewhere


class KeylessJobs(Jobs):
    """Jobs of clients that train elsewhere, and fold the keys of their steps for themselves."""

    def keys(self, plans: list[Plan], round: int, m: int) -> list[Tensor]:
        """None."""
        return [torch.empty(0, 0, dtype=torch.int64)] * len(plans)


class RemoteEngine(Sequential):
    """Clients train elsewhere, with the bits of `Sequential`: `trained` brings what they send, the rest is done here.

    Updates come back singly and are added in the order of the cohort.
    """

    rows_of = staticmethod(declared_rows)

    def __init__(self, model: Model, fed: Federation, task: Task, settings: Settings) -> None:
        """As `LocalEngine`; of the federation's rows only the server's are there, and counts of the clients'."""
        super().__init__(model, fed, task, settings)
        self.planner, self.jobs = StepPlanner(task, settings.seed), KeylessJobs(self.runtime, task, settings.seed)

    def trained(self, method: Method, jobs: list[ClientJob]) -> Iterator[Outcome]:
        """Outcomes of clients that train at the same time, in order."""
        raise NotImplementedError

    def outcome(
        self, job: ClientJob, model: tuple[Params, Params], uploads: Tree, kept: Tree, loss: Tensor, fault: Fault | None
    ) -> Outcome:
        """What a job gave elsewhere. Of its report only the loss is the client's to tell.

        Args:
            job: what the client was given.
            model: its trained parameters and buffers, leaves [1, ...].
            uploads: by component, leaves [1, ...].
            kept: in the place of its memory.
            loss: [1].
            fault: what it says was not finite.
        """
        known = {name: getattr(job.job.own, name).reshape(1) for name in Report._fields if name != "loss"}
        check = self.finite_checks.of([job], torch.zeros(1, 1, dtype=self.dtype), *model, uploads, {})
        memories = tree.map_tree(lambda leaf: leaf.unsqueeze(0), kept)
        return Outcome(*model, uploads, memories, Report(**known, loss=loss), (check._replace(reported=fault),))

    def adder(self, share: float) -> sums.Adder:
        """What adds up what clients keep, if the server sees sums alone; ``share`` of a round's clients must stay."""
        raise NotImplementedError

    def run_clients(self, method: Method, places: list[ClientJob], settle: Settle = identity) -> Iterator[Outcome]:
        """One outcome a client, in order."""
        for at, outcome in enumerate(self.trained(method, places)):
            yield settle([at], outcome)

    def run_chains(self, method: Method, chains: list[list[ClientJob]], settle: Settle = identity) -> Iterator[Outcome]:
        """One outcome a chain, in order: the first members of all chains train, then the second ones, and so on."""
        done: list[list[Outcome]] = [[] for _ in chains]
        for m in range(max(map(len, chains))):
            here = [g for g, group in enumerate(chains) if len(group) > m]
            jobs = [chains[g][m] for g in here]
            if m:
                jobs = [job.after(*done[g][-1][:2]) for g, job in zip(here, jobs, strict=True)]
            for g, outcome in zip(here, self.trained(method, jobs), strict=True):
                done[g].append(outcome)
        for g, members in enumerate(done):
            yield settle([g], chained(members))

    def probes(self, method: Method, places: list[ClientJob]) -> Iterator[Outcome]:
        """Local runs on the server's own rows."""
        yield from Sequential.run_clients(self, method, places)


# Where the rows are


class ClientEngine(Threaded):
    """Runs the jobs of one client, on the machine that has its rows: the bits of `Sequential`."""

    @classmethod
    def of(cls, experiment: Experiment, fed: Federation, threads: int) -> Self:
        """The engine of a federation in which one client has rows.

        Args:
            experiment: its method, its settings and its model, an architecture.
            fed: the federation.
            threads: that train.
        """
        method = experiment.method
        settings = replace(experiment.settings, engine="threaded", threads=threads, memory="ram")
        model = prepared_model(fed, experiment.model, None, settings, method.projection)
        task = model.task(fed.clients, settings.rounds)
        engine = cls(model, fed, task, settings)
        params = initial_params(method, model.params, task, settings.seed_of("model"))
        engine.init_clients(method, params, model.buffers, "ram")
        return engine

    def job(
        self, method: Method, shared: RoundInputs, each: Mapping[str, Tree], member: Member, pace: Pace,
        memory: ClientMemory,
    ) -> ClientJob:  # fmt: skip
        """The client's job in a round, planned from its own rows by the server's pace.

        Args:
            method: what is trained.
            shared: what all clients of the round are given.
            each: what this client alone is given, by component.
            member: the client in its chain, and the rows of each class that it can and may train on.
            pace: of the server.
            memory: what the client keeps.
        """
        layout, number, source = self.runtime.layout, int(shared.round), self.clients.source
        params, buffers, common = layout(shared.params), layout(shared.buffers), layout(shared.common)
        plan = self.planner.plan(method, source, member, pace, common.get(method.sampler.name, {}), number)
        rows = tree.map_tree(lambda leaf: leaf.unsqueeze(0), dict(each))
        given = Broadcast(number, params, buffers, common, rows)
        (client_job,) = self.jobs.of(method, [plan], given, memory, {member.client: 0}, member.member)
        shared = RoundInputs(params, buffers, common, shared.round, shared.rounds)
        return client_job._replace(job=Job(shared, client_job.job.own._replace(each=dict(each))))

    def run(self, method: Method, job: ClientJob) -> tuple[Outcome, Fault | None]:
        """(what a job gives, what in it is not finite)."""
        self.guard.begin(int(job.job.shared.round))
        self.ready(method, [job])
        outcome = self.run_client(method, job)
        try:
            require_finite([outcome.checks])
        except TrainingError as error:
            fault: Fault = error.faults[0]
            return outcome, fault
        return outcome, None

    def own_pace(self, method: Method, client: int, shared: RoundInputs) -> tuple[Member, Pace]:
        """The client in a round, and its pace, by its own rows: where the server sees sums alone it knows neither."""
        ((plan,),) = self._planned(method, client, shared)
        return Member(client, 0, plan.offered, plan.used), plan.pace

    def _planned(self, method: Method, client: int, shared: RoundInputs) -> list[list[Plan]]:
        given = Broadcast(int(shared.round), shared.params, shared.buffers, shared.common, {})
        return self.planner.plans(method, Assignment(torch.tensor([[client]])), given, self.clients.source)

    def summand(self, method: Method, job: ClientJob, outcome: Outcome) -> Tree:
        """What a client adds to the sums of a round before it is weighed, with its own numbers, which weigh it."""
        before, after = job.job.shared.params, outcome.params
        given = Broadcast(int(job.job.shared.round), before, {}, {}, {})
        cohort = self.planner.cohort(method, [[job.plan]], given)
        reports = cohort.reports._replace(loss=outcome.reports.loss.double())
        deltas = {n: after[n] - x for n, x in before.items()}
        sent = sums.moving(deltas, outcome.buffers, outcome.uploads, self.stays)
        numbers = {"rows": {name: getattr(cohort, name) for name in sums.ROWS}, "reports": reports._asdict()}
        return {"own": numbers, **tree.row(sent, 0)}

    def own_cohort(self, client: int, round: int, numbers: Tree) -> Cohort:
        """A client as a cohort of its own, from its numbers in a summand."""
        ids = torch.tensor([client])
        known: dict[str, Any] = {"ids": ids, "chains": ids.unsqueeze(1), "reports": Report(**numbers["reports"])}
        return Cohort(self.task, **known, **numbers["rows"], before={}, round=round, uploads={})

    def outcome_without_steps(self, method: Method, shared: RoundInputs) -> Outcome:
        """What client 0 gives after a local run that is over before its first step: names, shapes and types."""
        ((plan,),) = self._planned(method, 0, shared)
        given = Broadcast(1, shared.params, shared.buffers, shared.common, {})
        (client_job,) = self.jobs.of(method, [plan], given, self.memory, {0: 0})
        over = plan._replace(batches=plan.batches[:0], epoch=plan.epoch[:0])
        return self.run_client(method, client_job._replace(plan=over, keys=client_job.keys[:0]))

    def own_model(
        self, method: Method, given: Broadcast, experiment: Experiment, inputs: Inputs
    ) -> tuple[Params, dict[str, Any]]:
        """(the client's own model, what its user must know of it), as a run folder keeps them."""
        ((_, changed),) = self.own_models(method, given)
        params, buffers = ({n: changed.get(n, v) for n, v in kind.items()} for kind in (given.params, given.buffers))
        data, number, width = self.fed.dataset, given.round - 1, experiment.method.projection
        trained = Trained(self.network, params, buffers, inputs, experiment.precision)
        about = described(trained, experiment.model, data, number, experiment.dtype, width)
        return {**params, **buffers}, about


def write_model(folder: Path, config: Mapping[str, Any], model: Params, about: Mapping[str, Any]) -> None:
    """Write a model as the run folder of a run without rounds. Raises RecordError where the folder holds a run."""
    record = Record.create(folder, config)
    try:
        record.finish(summarise([]), {"final": model}, {"model": about})
    finally:
        record.close()
