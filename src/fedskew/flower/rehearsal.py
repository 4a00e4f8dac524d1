"""What answers of use look like: the server trains and asks one client of its own, on one made-up row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fedskew import tree
from fedskew.client import Shared
from fedskew.data.federation import Federation
from fedskew.engines.outcomes import Outcome
from fedskew.engines.sequential import Sequential
from fedskew.flower.standin import alone
from fedskew.flower.wire import Layout, layout_of, travelling
from fedskew.method import Component, Method
from fedskew.models.prepare import Model
from fedskew.server import Broadcast
from fedskew.settings import Settings
from fedskew.types import Assignment, Params, Query, Task

__all__ = ["Rehearsal"]


class Rehearsal:
    """Names, shapes and types of what nodes send. They depend on the method and the model, never on the rows."""

    def __init__(self, model: Model, fed: Federation, task: Task, settings: Settings) -> None:
        """``fed`` is that of the run; of its rows the shape is taken, and each value is 0."""
        data = fed.dataset
        x, y = data.x.new_zeros(1, *data.x.shape[1:]), torch.zeros(1, dtype=torch.int64)
        counts = torch.zeros(task.clients, task.classes, dtype=torch.int64)
        counts[0, 0] = 1
        data = replace(data, x=x, y=y, columns={}, column_names={})
        none = np.empty(0, np.int64)
        fed = replace(
            fed,
            dataset=data,
            partition=alone(np.zeros(1), 0, task.clients),
            counts=counts,
            validation_rows=none,
            auxiliary_rows=none,
        )
        self.engine = Sequential(model, fed, task, replace(settings, threads=1))
        self._sent: dict[tuple[Any, ...], Layout] = {}  # by what is sent down

    def birth(self, method: Method, params: Params, buffers: Params) -> None:
        """As `LocalEngine.birth`."""
        self.engine.birth(method, params, buffers, "ram")

    def trained(self, method: Method, shared: Shared) -> Layout:
        """The answer of a client that trains."""
        key = (id(method), *layout_of(shared.common).items())
        if key not in self._sent:
            found = self._outcome(method, shared)
            report = tree.map_tree(lambda leaf: leaf.reshape(1), found.reports._asdict())
            stays = self.engine.stays
            params, buffers = (travelling(getattr(found, n), stays) for n in ("params", "buffers"))
            sent = {"params": params, "buffers": buffers, "uploads": found.uploads, "report": report}
            self._sent = {key: layout_of({"sent": sent})}
        return self._sent[key]

    def _outcome(self, method: Method, shared: Shared) -> Outcome:
        """A local run that is over before its first step."""
        engine, given = self.engine, Broadcast(1, shared.params, shared.buffers, shared.common, {})
        assignment = Assignment(torch.zeros(1, 1, dtype=torch.int64))
        ((plan,),) = engine.planner.plans(method, assignment, given, engine.clients.own)
        (place,) = engine.jobs.places(method, [plan], given, engine.memory, {0: 0})
        over = plan._replace(batches=plan.batches[:0], epoch=plan.epoch[:0])
        return engine.run_client(method, place._replace(plan=over, keys=place.keys[:0]))

    def asked(self, query: Query, part: Component, method: Method, broadcast: Broadcast) -> Layout:
        """The answer to a question."""
        if query.keep:
            return layout_of({"values": {}})
        query = query._replace(ids=torch.zeros(1, dtype=torch.int64), draws=1)
        return layout_of({"values": self.engine.query(query, part, method, broadcast).values})
