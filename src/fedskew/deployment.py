"""The seam of a deployment: the names of the library's insides that `fedskew.flower` uses, and no others.

Whoever runs methods on machines of their own by another framework builds on the same names. Beside them a deployment
uses the public rooms and the ground: `fedskew.data`, `fedskew.functional`, `fedskew.method`, `fedskew.models`,
`fedskew.slots`, `fedskew.errors`, `fedskew.fields`, `fedskew.rng`, `fedskew.tree` and `fedskew.types`.

A client job, and how it is run:
    `Shared`, `Own` and `Job` are what a client is given; a `ClientJob` is a job with the plan of its local run.
    A `Planner` makes a `Plan` from a `Pace` and a `Member` of a chain; `ClientRows` are the rows that it reads.
    `steps_of` counts local steps without rows; `JobMaker` makes jobs of plans.
    `Sequential` runs jobs at the server, a `ClientEngine` at a node, for the one client whose rows are there.
    An `Outcome` is what a job gives, with a `FiniteCheck` that names a `Fault`; `first_infinite` looks at other trees.
    `guarded` and `unguarded`: a method whose hooks say where a mistake is, and the method itself.
    `ClientMemory` is what clients keep between rounds.

How a cohort is reduced:
    `Broadcast` goes down, `State` is the server's, `close_round` makes the next one. `Settle` is applied to each
    outcome where it arrives, `identity` for none; `chained_report` adds up the reports of a chain.

What a run is:
    `Experiment` and `Settings` say what is trained; `experiment_of_flags`, `flags_of`, `method_named` and `make` read
    them from words; `federation_of` and `prepared_model` make the rows and the network, a `Model`, whose
    `frozen_digests` do not train. `Iid` divides rows that are not the server's. `does_no_more` compares ingredients.
    `launch` trains and gives a `Result`; `arithmetic` sets the precision of a thread.

What is measured:
    An `Observer` makes a `Row` of a round; `METRICS` and `PERSONAL` name what is measured, `AVERAGED` and `TAIL` when.
    `Tested` is what one client measured, `pooled` adds up, a `MeanModel` is that of the last rounds.
    `ClientLogits` gives the `Sums` of a `Fit`, `fits_by` asks for them, at most `FIT_EXCHANGES` times for a fit, of at
    most `FIT_CLASSES` classes; `triangle_of` and `whole_of` turn a Hessian into what is sent, and back.

The record:
    `Hold` keeps others out of a run folder, `finished` and `check_config` look into it, a `Record` writes it.
    `TrainedModel` and `described` are a model with what its user must know; `summarise` ends a record.
    `save_tree`, `load_tree`, `write_atomic`, `writing`, `object_of` and `digests` write and read single files.

The encoding of data:
    `Inputs` say what a sample is, an `Encoding` has the `Column`s of a table, `PLAIN` its usual notation.
    `read_rows` reads a file of `TABLE_FILES` for inputs, as `FileRows`; `image_files` and `decode_images` a folder.
    `spelt`, `spellings`, `plain_values`, `missing_rows` and `is_absent` settle what a cell of words says.
    `draw_whole` draws rows of which some belong together; `left_out_words` tells of files that are not read.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

from fedskew import tree
from fedskew._run import Result, launch
from fedskew.averages import Kept as MeanModel
from fedskew.client import Job, Shared
from fedskew.config.experiment import Experiment
from fedskew.config.flags import experiment_of as experiment_of_flags
from fedskew.config.recorded import finished
from fedskew.config.tables import make, method_named
from fedskew.config.words import flags_of
from fedskew.data.arrays import draw_whole
from fedskew.data.encoding import PLAIN, Column, Encoding, is_absent, spellings, spelt
from fedskew.data.federation import Federation
from fedskew.data.inputs import Inputs
from fedskew.data.inputs import Rows as FileRows
from fedskew.data.inputs import rows_of as read_rows
from fedskew.data.partitioners import Iid
from fedskew.data.sources.delimited import Csv
from fedskew.data.sources.folders import image_files
from fedskew.data.sources.folders import lost as left_out_words
from fedskew.data.sources.pictures import decode_images
from fedskew.data.sources.table import Npz, Parquet
from fedskew.data.values import lacking as missing_rows
from fedskew.data.values import plain as plain_values
from fedskew.engines.clients import ClientMemory
from fedskew.engines.clients import Source as ClientRows
from fedskew.engines.evaluation import Tested, pooled
from fedskew.engines.fitting import LIMIT as FIT_CLASSES
from fedskew.engines.fitting import ClientLogits, Fit, fits_by, triangle_of, whole_of
from fedskew.engines.guard import guarded, unguarded
from fedskew.engines.guard import infinite as first_infinite
from fedskew.engines.measures import PERSONAL
from fedskew.engines.network import frozen as frozen_digests
from fedskew.engines.network import initial_params, prepared_model
from fedskew.engines.outcomes import Fault, Outcome, Settle, check
from fedskew.engines.outcomes import as_it_is as identity
from fedskew.engines.outcomes import chained as chained_report
from fedskew.engines.planning import Jobs as JobMaker
from fedskew.engines.planning import Member, Pace, Plan, Planner
from fedskew.engines.planning import Place as ClientJob
from fedskew.engines.planning import length_of as steps_of
from fedskew.engines.sequential import Sequential, Threaded
from fedskew.engines.trained import Trained as TrainedModel
from fedskew.engines.trained import described
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
from fedskew.records.summary import AVERAGED, METRICS, TAIL, summarise
from fedskew.records.typed import Row, object_of
from fedskew.server import Broadcast, State, close_round
from fedskew.session import Observer
from fedskew.settings import Settings
from fedskew.studies.work import federation_of
from fedskew.types import Tree

__all__ = [
    "AVERAGED", "FIT_CLASSES", "FIT_EXCHANGES", "METRICS", "PERSONAL", "PLAIN", "TABLE_FILES", "TAIL", "Broadcast",
    "ClientEngine", "ClientJob", "ClientLogits", "ClientMemory", "ClientRows", "Column", "Encoding", "Experiment",
    "Fault", "FileRows", "Fit", "Hold", "Iid", "Inputs", "JobMaker", "MeanModel", "Member",
    "Model", "Observer", "Outcome", "Pace", "Plan", "Planner", "Record", "Result", "Row", "Sequential",
    "Settings", "Settle", "Shared", "State", "Sums", "Tested", "TrainedModel", "arithmetic", "chained_report",
    "check_config", "close_round", "decode_images", "described", "digests", "does_no_more", "draw_whole",
    "experiment_of_flags", "federation_of", "finished", "first_infinite", "fits_by", "flags_of", "frozen_digests",
    "guarded", "identity", "image_files", "is_absent", "launch", "left_out_words", "load_tree", "make",
    "method_named", "missing_rows", "object_of", "plain_values", "pooled", "prepared_model", "read_rows", "save_tree",
    "spellings", "spelt", "steps_of", "summarise", "triangle_of", "unguarded", "whole_of", "write_atomic", "writing",
]  # fmt: skip

TABLE_FILES: dict[str, Any] = {".csv": Csv, ".npz": Npz, ".parquet": Parquet}  # readers of a node's own rows, by suffix


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
        engine.birth(method, params, model.buffers, "ram")
        return engine

    def job(
        self, method: Method, shared: Shared, each: Mapping[str, Tree], member: Member, pace: Pace, memory: ClientMemory
    ) -> ClientJob:
        """The client's job in a round, planned from its own rows by the server's pace.

        Args:
            method: what is trained.
            shared: what all clients of the round are given.
            each: what this client alone is given, by component.
            member: the client in its chain, and the rows of each class that it can and may train on.
            pace: of the server.
            memory: what the client keeps.
        """
        layout, number, source = self.runtime.layout, int(shared.round), self.clients.own
        params, buffers, common = layout(shared.params), layout(shared.buffers), layout(shared.common)
        plan = self.planner.plan(method, source, member, pace, common.get(method.sampler.name, {}), number)
        rows = tree.map_tree(lambda leaf: leaf.unsqueeze(0), dict(each))
        given = Broadcast(number, params, buffers, common, rows)
        (place,) = self.jobs.places(method, [plan], given, memory, {member.client: 0}, member.member)
        shared = Shared(params, buffers, common, shared.round, shared.rounds)
        return place._replace(job=Job(shared, place.job.own._replace(each=dict(each))))

    def run(self, method: Method, job: ClientJob) -> tuple[Outcome, Fault | None]:
        """(what a job gives, what in it is not finite)."""
        self.guard.begin(int(job.job.shared.round))
        self.ready(method, [job])
        outcome = self.run_client(method, job)
        try:
            check([outcome.watches])
        except TrainingError as error:
            fault: Fault = error.faults[0]
            return outcome, fault
        return outcome, None
