"""The two apps of a deployment, as ``server_app.py`` and ``client_app.py`` of a Flower app make them."""

import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedskew._run import Result, launch
from fedskew.averages import Kept
from fedskew.config.experiment import Experiment
from fedskew.config.recorded import finished
from fedskew.data.federation import Federation
from fedskew.data.inputs import Inputs
from fedskew.data.partitioners import Iid
from fedskew.data.sources.folders import lost
from fedskew.engines.network import prepared_model
from fedskew.errors import ConfigError, FedskewError, json_file, require
from fedskew.fields import untyped
from fedskew.flower import require_flower
from fedskew.flower.contract import check_allowed, contract, needs, terms
from fedskew.flower.link import Link
from fedskew.flower.node import Node, Work, check_data, error_text
from fedskew.flower.options import ServerOptions, experiment_of, node_options, server_options
from fedskew.flower.remote import Remote
from fedskew.flower.rows import (
    Telling,
    check_told,
    encoding_of,
    inputs_of,
    inputs_with,
    made_of,
    of_client,
    of_node,
    raw_of,
    server_data,
)
from fedskew.flower.standin import Hello, alone, declared_counts, stand_in
from fedskew.flower.wire import echoed, pack, read, record, table
from fedskew.models import architecture
from fedskew.records.files import Hold
from fedskew.records.folder import check_config
from fedskew.records.metrics import EVALUATED, PERSONAL, named
from fedskew.records.summary import AVERAGED
from fedskew.session import Observer, Row
from fedskew.studies.work import federation_of

LOG = logging.getLogger("flwr")
Build = Callable[[Mapping[str, Any]], Experiment]


def server_app(build: Build = experiment_of, folder: str | Path = ".") -> Any:
    """The ServerApp of a Flower app that trains a method of fedskew.

    Args:
        build: makes the experiment from the run's configuration; by default its keys are the options of ``fedskew
            run``, and ``method`` names METHOD.
        folder: of the app, where ``inputs.json`` lies: ``Path(__file__).parent``.

    Returns:
        A ``flwr.serverapp.ServerApp``.
    """
    require_flower()
    from flwr.serverapp import ServerApp

    app = ServerApp()

    @app.main()  # type: ignore[untyped-decorator]
    def main(grid: Any, context: Any) -> None:
        try:
            serve(grid, context.run_config, build, Path(folder))
        except FedskewError as error:
            # Flower logs what is raised, sends that log to the user and ends the run as failed: one line is enough
            sys.tracebacklimit = 0
            error.__cause__, error.__suppress_context__ = None, True
            raise

    return app


def client_app(build: Build = experiment_of, folder: str | Path = ".") -> Any:
    """The ClientApp of a Flower app that trains a method of fedskew. Arguments are those of `server_app`."""
    require_flower()
    from flwr.app import Message
    from flwr.clientapp import ClientApp

    app = ClientApp()

    def answer(message: Any, context: Any) -> Any:
        return Message(_answer(message, context, build, Path(folder)), reply_to=message)

    for register in (app.train, app.query, app.evaluate):
        register()(answer)
    return app


# The server


class Overview(Observer):
    """Measures rounds where the server may have no test rows, and may not know the classes of the nodes' rows."""

    engine: Remote

    def row(self, *round: Any) -> Row:
        """As `Observer.row`; it also names clients that were left out of a pooled metric."""
        return self._naming(lambda: super(Overview, self).row(*round))

    def _evaluate(self, shown: Any) -> Row:
        engine = self.engine
        row: Row = {}
        if len(self.fed.dataset.y_test):
            row |= super()._evaluate(shown)
        if engine.measured or not row:
            found = self._metrics(*engine.at_nodes(shown.params, shown.buffers, shown.round))
            row |= {f"local_{name}": value for name, value in found.items()} if row else found
        return row

    def finals(self, shown: Any, row: Row, mean: Kept | None) -> Row:
        """As `Observer.finals`, where the server has test rows; else the nodes measure the mean model, too."""
        if len(self.fed.dataset.y_test):
            return self._naming(lambda: super(Overview, self).finals(shown, row, mean))
        return self._naming(lambda: self._served_once(shown, row) | (self._mean_at_nodes(mean) if mean else {}))

    def _mean_at_nodes(self, mean: Kept) -> Row:
        """Metrics of the mean of the last models on the nodes' own test rows."""
        found = self._metrics(*self.engine.at_nodes(mean.params, mean.buffers, mean.round))
        return {f"{AVERAGED}{name}": found[name] for name in EVALUATED}

    def _served_once(self, shown: Any, row: Row) -> Row:
        """As `Observer._served_once`; of a global model what the nodes have measured in the row."""
        if self.method.personal:
            return super()._served_once(shown, row)
        prefix = "local_" if len(self.fed.dataset.y_test) else ""
        return {f"served_{n}": row[f"{prefix}{n}"] for n in PERSONAL if f"{prefix}{n}" in row}

    def _naming(self, measured: Callable[[], Row]) -> Row:
        """What was measured, with the clients that were left out of it."""
        left_out = self.engine.measuring.unmeasured
        left_out.clear()
        row = measured()
        named = {bad.client: bad.to_json() for bad in left_out}
        return {**row, "dropped": list(named.values())} if named else row

    def _metrics(self, matrix: Tensor, loss: float) -> Row:
        found = super()._metrics(matrix, loss)
        return found if self.engine.counted else {n: v for n, v in found.items() if n not in GROUPED}

    def _scores(self, matrix: Tensor, chances: Tensor) -> Row:
        found = super()._scores(matrix, chances)
        return found if self.engine.counted else {n: v for n, v in found.items() if not n.startswith("mix")}


GROUPED = ("head_accuracy", "mid_accuracy", "tail_accuracy")


def _server(
    grid: Any, experiment: Experiment, options: ServerOptions, folder: Path, encoding: Any
) -> tuple[Federation, Inputs]:
    """(the server's rows, what a sample is). ``encoding`` is that of a run that goes on, if its nodes have made one."""
    if not options.own_data:
        rule = "be example where nodes hold the app's dataset"
        require(options.encoding == "example", "flower.encoding", rule, options.encoding)
        fed = experiment.federation()
        return fed, Inputs.of(fed.dataset)
    n = _clients(experiment)
    inputs, _ = inputs_of(folder)
    if options.encoding == "nodes":
        inputs = inputs_with(inputs, encoding) if encoding else _of_nodes(grid, inputs, options, n)
    data = server_data(inputs, options.test)
    counts, nobody = torch.zeros(n, data.classes, dtype=torch.int64), alone(np.empty(0), 0, n)
    return Federation(data, nobody, Iid(), n, experiment.seed, counts), inputs


def _clients(experiment: Experiment) -> int:
    """The number of nodes that bring their own data."""
    if experiment.clients is None:
        raise ConfigError("clients must say how many nodes there are, since they bring their own data; got none")
    return experiment.clients


def _encoding_of_run(out: Path, options: ServerOptions) -> Any:
    """The encoding that the nodes made for the run of a folder, or None. Raises where another one is asked for."""
    check_config(out)
    found = json_file(out / "config.json").get("encoding")
    whose = "nodes" if found else "example"
    if whose != options.encoding:
        raise ConfigError(f"flower.encoding must be {whose}, that of the run in {out}; got {options.encoding}")
    return found


def _of_nodes(grid: Any, inputs: Inputs, options: ServerOptions, clients: int) -> Inputs:
    """The inputs with scale and categories of all nodes' rows, which say hello for this. Raises ConfigError."""
    link = Link(grid, terms(inputs), options, partial(check_told, encoding=encoding_of(inputs)))
    LOG.info("fedskew: the columns are scaled by the rows of %d nodes, which is waited for", clients)
    link.meet(clients)
    made = made_of(inputs, [hello for k, hello in sorted(link.clients.items()) if k not in link.left_out])
    LOG.info("fedskew: the encoding of all nodes' rows: %s", json.dumps(untyped(made.encoding)))
    return made


def serve(
    grid: Any, config: Mapping[str, Any], build: Build = experiment_of, folder: Path = Path(".")
) -> Result | None:
    """Train over Flower's grid until the run's last round; the run folder at the server says what was done.

    Args:
        grid: Flower's.
        config: the run's configuration.
        build: makes the experiment of it.
        folder: of the app.

    Returns:
        The result; None where the run folder holds this run, finished.

    Raises:
        FedskewError: nodes and server do not agree, a node does not permit what the method needs, or as `fedskew.run`.
    """
    experiment, options = build(config), server_options(config)
    settings = replace(experiment.settings, memory="ram", engine="flower")
    method, out = experiment.method, Path(options.out).expanduser()
    begun = (out / "rounds.jsonl").exists()
    # own models may be asked for later: nodes then keep them anew
    if begun and not settings.keep_own and finished(out, settings.rounds, settings.patience):
        LOG.info("fedskew: the run in %s is finished", out)
        return None
    if out.exists():
        Hold(out).release()  # another server may train in this folder: it is told before the nodes are asked
    model = architecture(experiment.model, method.projection)
    known, inputs = _server(grid, experiment, options, folder, _encoding_of_run(out, options) if begun else None)
    prepared = prepared_model(known, model, None, settings, method.projection)
    agreed = contract(method, prepared, inputs, settings)
    made = inputs.encoding if options.encoding == "nodes" else None
    encoding = {"encoding": untyped(made)} if made else {}

    def checked(hello: Hello) -> None:
        declared_counts(hello.facts, known.dataset.classes)
        check_allowed(method, hello.facts["permits"], hello.name)

    LOG.info("fedskew: %s waits for %d nodes", method.name, known.clients)
    link = Link(grid, {**agreed, **encoding}, options, checked)
    link.meet(known.clients)
    _declared(link)
    local = options.own_data or known.held is not None
    if not len(known.dataset.y_test) and not link.measuring:
        hint = 'let nodes allow="metrics" and keep local-test rows, or name test rows of the server by flower.test'
        raise ConfigError(f"somebody must have test rows that may be used; got none; {hint}")
    fed = stand_in(known, [link.clients[k] for k in range(known.clients)])
    # that of the run, whoever is refused today: a server that goes on may meet other nodes
    cohort = experiment.cohort_of(fed.clients, fed.clients - len(fed.empty) + len(link.left_out), method.share)
    if link.left_out and settings.cohort:
        settings = replace(settings, cohort=min(settings.cohort, fed.clients - len(fed.empty)))

    told = needs(method)
    facts = {
        **replace(experiment, clients=fed.clients, cohort=cohort, model=model).to_json(known.dataset.fingerprint),
        "started_by": "flower", "disclosed": sorted(told), **({"own_data": True} if options.own_data else {}),
        **encoding,
    }  # fmt: skip
    result = launch(
        fed, method, settings, model=model, out=out, resume=begun, on_round=_told, config=facts,
        made=partial(Remote, link=link, local=local),
        observer=Overview,
    )  # fmt: skip
    sizes = f"{link.turn} messages, {link.down} bytes to the nodes, {link.up} bytes back"
    LOG.info("fedskew: %s; %s; %s", result, sizes, out.resolve())
    return result


def _declared(link: Link) -> None:
    """Log the rows that nodes declare: a share of the rows is a share of the model, and nobody can count them."""
    rows = {k: hello.facts["rows"] for k, hello in sorted(link.clients.items())}
    whole = max(sum(rows.values()), 1)
    most = sorted(rows, key=lambda k: -rows[k])[:10]
    told = ", ".join(f"{link.clients[k].name} {rows[k]} ({rows[k] / whole:.1%})" for k in most)
    LOG.info("fedskew: rows that nodes declare, the most first: %s", told)


def _told(row: Row) -> None:
    shown = {name: row[name] for name in named(where="brief") if name in row}
    gone = [f"client {d['client']}: {d['tensor']}" for d in row.get("dropped", ())]
    LOG.info("fedskew: round %d %s%s", row["round"], json.dumps(shown), f"; dropped {gone}" if gone else "")


# The node


def _answer(message: Any, context: Any, build: Build, folder: Path) -> Any:
    """The record that goes back; a mistake goes back too, in one line."""
    try:
        envelope = read(message.content)
    except FedskewError as error:
        return record({"error": str(error)})
    echo = echoed(envelope.facts)
    try:
        encoding = table(envelope.facts, "contract").get("encoding")
        key = json.dumps([dict(context.run_config), dict(context.node_config), str(folder), encoding], sort_keys=True)
        facts, packed = _node(key, build).answer(envelope)
    except _Spare:
        return record({**echo, "spare": True})
    except (FedskewError, OSError) as error:
        own = context.node_config.get("client")
        if echo["client"] in (None, -1) and isinstance(own, int):
            echo["client"] = own  # a hello has no client; its answer says whose mistake it is
        return record({**echo, "error": error_text(error, bool(context.node_config.get("trace")))}, sent=pack({}))
    return record(facts, sent=packed)


class _Spare(Exception):
    """A simulated node for which there is no client: Flower simulates as many as its configuration says."""


@lru_cache(maxsize=64)
def _node(key: str, build: Build) -> Node | Telling:
    """The node of a configuration; a process of a simulation answers for many, one after another."""
    run_config, node_config, where, encoding = json.loads(key)
    if "partition-id" not in node_config:
        check_data(run_config, Path(where))
    experiment, server = build(run_config), server_options(run_config)
    options = node_options(node_config, server.out)
    if options.client is None:
        raise ConfigError('client must be the number of this node, from 0, as in --node-config "client=0"; got none')
    fed = None if options.data or server.own_data else federation_of(experiment)
    clients = _clients(experiment) if fed is None else fed.clients
    if "partition-id" in node_config and options.client >= clients:
        raise _Spare
    rule = f"be at least 0 and below {clients}, the run's clients"
    require(0 <= options.client < clients, "client", rule, options.client)
    if fed is not None:
        rows = of_client(fed, options.client)
        _say_left_out(options.client, fed.dataset.reading.left_out)
    else:
        inputs, augment = inputs_of(Path(where))
        raw = raw_of(inputs, options, getattr(experiment.data, "split_by", None) or "")
        if encoding is None:  # else the node has said it with its columns
            _say_left_out(options.client, raw.left_out)
        if server.encoding == "nodes":
            options.check_permit("columns")
            if encoding is None:
                return Telling(inputs, raw, options.client, options)
            inputs = inputs_with(inputs, encoding)
        rows = of_node(inputs, raw, options, augment)
    model = architecture(experiment.model, experiment.method.projection)
    return Node(Work(experiment.method, model, experiment.settings, clients), rows, options.client, options)


def _say_left_out(client: int, left_out: Sequence[tuple[str, int]]) -> None:
    """Say in the node's own log which files of its data are not read."""
    if left_out:
        LOG.info("fedskew: client %d: %s", client, "; ".join(lost(left_out)))
