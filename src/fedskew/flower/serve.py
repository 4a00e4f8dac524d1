"""The two apps of a deployment, as ``server_app.py`` and ``client_app.py`` of a Flower app make them."""

import json
import logging
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedskew import deployment as lib
from fedskew.data import Federation
from fedskew.errors import ConfigError, DataError, FedskewError, json_file, one_line, require, visible
from fedskew.fields import untyped
from fedskew.flower import columns, require_flower, rows
from fedskew.flower.contract import check_permits, column_contract, contract, needs
from fedskew.flower.declared import Hello, declared_counts, federation_of_nodes
from fedskew.flower.link import TRACE, Link
from fedskew.flower.node import Node, check_data
from fedskew.flower.options import ServerOptions, experiment_of, node_options, server_options
from fedskew.flower.remote import Remote
from fedskew.flower.wire import echoed, pack, read, record, table
from fedskew.method import Method
from fedskew.models import architecture

LOG = logging.getLogger("flwr")
Build = Callable[[Mapping[str, Any]], lib.Experiment]


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


class NodeObserver(lib.Observer):
    """Measures rounds where the server may have no test rows, and may not know the classes of the nodes' rows."""

    engine: Remote

    def row(self, *round: Any) -> lib.Row:
        """As `Observer.row`; it also names clients that were left out of a pooled metric."""
        return self._naming(lambda: super(NodeObserver, self).row(*round))

    def _evaluate(self, shown: Any) -> lib.Row:
        engine = self.engine
        row = super()._evaluate(shown) if len(self.fed.dataset.y_test) else {}
        if engine.measured or not row:
            metrics = self._metrics(*engine.at_nodes(shown.params, shown.buffers, shown.round))
            row |= {f"local_{name}": value for name, value in metrics.items()} if row else metrics
        return row

    def finals(self, shown: Any, row: lib.Row, mean: lib.MeanModel | None) -> lib.Row:
        """As `Observer.finals`, where the server has test rows; else the nodes measure the mean model, too."""
        if len(self.fed.dataset.y_test):
            return self._naming(lambda: super(NodeObserver, self).finals(shown, row, mean))
        return self._naming(lambda: self._served_once(shown, row) | (self._mean_at_nodes(mean) if mean else {}))

    def _mean_at_nodes(self, mean: lib.MeanModel) -> lib.Row:
        """Metrics of the mean of the last models on the nodes' own test rows."""
        metrics = self._metrics(*self.engine.at_nodes(mean.params, mean.buffers, mean.round))
        return {f"{lib.AVERAGED}{name}": metrics[name] for name in lib.EVALUATED}

    def _served_once(self, shown: Any, row: lib.Row) -> lib.Row:
        """As `Observer._served_once`; of a global model what the nodes have measured in the row."""
        if self.method.personal:
            return super()._served_once(shown, row)
        prefix = "local_" if len(self.fed.dataset.y_test) else ""
        return {f"served_{n}": row[f"{prefix}{n}"] for n in lib.PERSONAL if f"{prefix}{n}" in row}

    def _naming(self, measured: Callable[[], lib.Row]) -> lib.Row:
        """What was measured, with the clients that were left out of it."""
        left_out = self.engine.metrics.unmeasured
        left_out.clear()
        row = measured()
        named = {fault.client: fault.to_json() for fault in left_out}
        return {**row, "dropped": list(named.values())} if named else row

    def _metrics(self, matrix: Tensor, loss: float) -> lib.Row:
        metrics = super()._metrics(matrix, loss)
        return metrics if self.engine.counted else {n: v for n, v in metrics.items() if n not in lib.GROUPED}

    def _scores(self, matrix: Tensor, chances: Tensor) -> lib.Row:
        scores = super()._scores(matrix, chances)
        return scores if self.engine.counted else {n: v for n, v in scores.items() if not n.startswith("mix")}


def _server(
    grid: Any, experiment: lib.Experiment, options: ServerOptions, folder: Path, encoding: Any
) -> tuple[Federation, lib.Inputs]:
    """(the server's rows, what a sample is). ``encoding`` is that of a run that goes on, if its nodes have made one."""
    if not options.own_data:
        rule = "be example where nodes hold the app's dataset"
        require(options.encoding == "example", "flower.encoding", rule, options.encoding)
        fed = experiment.federation()
        return fed, lib.Inputs.of(fed.dataset)
    n = _clients(experiment)
    inputs, _ = rows.inputs_of(folder)
    if options.encoding == "nodes":
        inputs = columns.inputs_with(inputs, encoding) if encoding else _inputs_of_nodes(grid, inputs, options, n)
    data = rows.server_data(inputs, options.test)
    counts, nobody = torch.zeros(n, data.classes, dtype=torch.int64), rows.one_owner(np.empty(0), 0, n)
    return Federation(data, nobody, lib.Iid(), n, experiment.seed, counts), inputs


def _clients(experiment: lib.Experiment) -> int:
    """The number of nodes that bring their own data."""
    if experiment.clients is None:
        raise ConfigError("clients must say how many nodes there are, since they bring their own data; got none")
    return experiment.clients


def _encoding_of_run(out: Path, options: ServerOptions) -> Any:
    """The encoding that the nodes made for the run of a folder, or None. Raises where another one is asked for."""
    lib.check_config(out)
    encoding = json_file(out / "config.json").get("encoding")
    whose = "nodes" if encoding else "example"
    require(whose == options.encoding, "flower.encoding", f"be {whose}, that of the run in {out}", options.encoding)
    return encoding


def _inputs_of_nodes(grid: Any, inputs: lib.Inputs, options: ServerOptions, clients: int) -> lib.Inputs:
    """The inputs with scale and categories of all nodes' rows, which say hello for this. Raises ConfigError."""
    accept = partial(columns.check_columns, encoding=columns.encoding_of(inputs))
    link = Link(grid, column_contract(inputs), options, accept)
    LOG.info("fedskew: the columns are scaled by the rows of %d nodes, which is waited for", clients)
    link.meet(clients)
    met = [hello for k, hello in sorted(link.clients.items()) if k not in link.left_out]
    pooled = columns.pooled_inputs(inputs, met)
    LOG.info("fedskew: the encoding of all nodes' rows: %s", json.dumps(untyped(pooled.encoding)))
    return pooled


def serve(
    grid: Any, config: Mapping[str, Any], build: Build = experiment_of, folder: Path = Path(".")
) -> lib.Result | None:
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
    if begun and not settings.keep_own and lib.finished(out, settings.rounds, settings.patience):
        LOG.info("fedskew: the run in %s is finished", out)
        return None
    if out.exists():
        lib.Hold(out).release()  # another server may train in this folder: it is told before the nodes are asked
    _check_drops(method, settings, options)
    model = architecture(experiment.model, method.projection)
    known, inputs = _server(grid, experiment, options, folder, _encoding_of_run(out, options) if begun else None)
    prepared = lib.prepared_model(known, model, None, settings, method.projection)
    agreed = contract(method, prepared, inputs, settings)
    encoding = {"encoding": untyped(inputs.encoding)} if options.encoding == "nodes" else {}
    first: dict[int, Hello] = {}  # with which the run began

    def accept(hello: Hello) -> None:
        """Raise ConfigError for a node that lacks a permit, or comes again with other rows."""
        before = first.get(hello.client, hello).facts
        now, then = (declared_counts(facts, known.dataset.classes) for facts in (hello.facts, before))
        if not torch.equal(now, then) or hello.facts["test_rows"] != before["test_rows"]:
            raise ConfigError(f"{hello.name} must hold the rows that it had when the run began: its counts are others")
        if settings.secure == "none":
            check_permits(method, hello.facts["permits"], hello.name)

    link = Link(grid, {**agreed, **encoding}, options, accept)
    link.meet(known.clients)
    first |= link.clients
    if settings.secure == "none":
        _log_rows(link)
    if not len(known.dataset.y_test) and not link.measuring:
        hint = 'let nodes allow="metrics" and keep local-test rows, or ' * (settings.secure == "none")
        hint += "name test rows of the server by flower.test"
        raise ConfigError(f"somebody must have test rows that may be used; got none; {hint}")
    fed = federation_of_nodes(known, [link.clients[k] for k in range(known.clients)])
    # that of the run, whoever is refused today: a server that goes on may meet other nodes
    cohort = experiment.cohort_of(fed.clients, fed.clients - len(fed.empty) + len(link.left_out), method.share)
    if link.left_out and settings.cohort:
        settings = replace(settings, cohort=min(settings.cohort, fed.clients - len(fed.empty)))

    disclosed = sorted(needs(method)) if settings.secure == "none" else []
    facts = {
        **replace(experiment, clients=fed.clients, cohort=cohort, model=model).to_json(known.dataset.fingerprint),
        "started_by": "flower", "disclosed": disclosed, **({"own_data": True} if options.own_data else {}),
        **encoding,
    }  # fmt: skip
    result = lib.launch(
        fed, method, settings, model=model, out=out, resume=begun, on_round=_log_round, config=facts,
        made=partial(Remote, link=link, local=options.own_data or known.held is not None), observer=NodeObserver,
    )  # fmt: skip
    LOG.info("fedskew: %s; %d messages; %s", result, link.turn, out.resolve())
    return result


def _check_drops(method: Method, settings: lib.Settings, options: ServerOptions) -> None:
    """Raise ConfigError where nodes may be dropped from a round that cannot be run again without them."""
    if settings.secure == "sums" and (why := lib.sums.undroppable(method)):
        for option in ("missing", "bad"):
            value = getattr(options, option)
            rule = f"not be drop with secure sums {why}"
            require(value != "drop", f"flower.{option}", rule, value, lib.sums.AGAIN)


def _log_rows(link: Link) -> None:
    """Log the rows that nodes declare: a share of the rows is a share of the model, and nobody can count them."""
    declared = [(hello.facts["rows"], -k, hello.name) for k, hello in link.clients.items()]
    whole = max(sum(n for n, *_ in declared), 1)
    shown = ", ".join(f"{name} {n} ({n / whole:.1%})" for n, _, name in sorted(declared, reverse=True)[:10])
    LOG.info("fedskew: rows that nodes declare, the most first: %s", shown)


def _log_round(row: lib.Row) -> None:
    shown = {name: row[name] for name in lib.named(where="brief") if name in row}
    gone = [f"client {d['client']}: {d['tensor']}" for d in row.get("dropped", ())]
    LOG.info("fedskew: round %d %s%s", row["round"], json.dumps(shown), f"; dropped {gone}" if gone else "")


# The node


def _answer(message: Any, context: Any, build: Build, folder: Path) -> Any:
    """The record that goes back; a mistake goes back too, in one line."""
    echo, config, node = dict[str, Any](), dict(context.node_config), None
    try:
        envelope = read(message.content)
        echo = echoed(envelope.facts)
        encoding = table(envelope.facts, "contract").get("encoding")
        key = json.dumps([dict(context.run_config), config, str(folder), encoding], sort_keys=True)
        node = _node(key, build)
        facts, trees = node.answer(envelope)
        return record({**echo, **facts}, sent=pack(trees))
    except Exception as error:  # a component of the user's own may raise anything
        if echo.get("client") in (None, -1) and isinstance(config.get("client"), int):
            # a hello has no client: its answer says whose mistake it is, and whether it may pass, as a full disk does
            echo |= {"client": config["client"], "passing": node is not None}
        trace = bool(config.get("trace", "partition-id" in config))  # a simulation has no node whose secret it is
        noted = node.engine.guard.noted if isinstance(node, Node) and "engine" in vars(node) else ""
        return record({**echo, **_mistake(error, noted, trace)}, sent=pack({}))


def _mistake(error: Exception, noted: str, trace: bool) -> dict[str, str]:
    """What the server is told of a mistake: all, or without what may quote the node's data, which its log has.

    Args:
        error: what was raised.
        noted: the hook in which it was, in words.
        trace: all is told.
    """
    ours, line = isinstance(error, FedskewError | OSError), one_line(error) or "no message"
    text, details = (line, "") if ours else (f"{type(error).__name__}: {line}", traceback.format_exc())
    for part in details[-TRACE:].splitlines():
        LOG.error("fedskew: %s", visible(part))
    if not trace and (not ours or isinstance(error, DataError)):
        LOG.error("fedskew: %s", text)
        what = "its data do not fit" if ours else f"{type(error).__name__} was raised"
        text = f"{what}; the node's own log says more, and tells it here with trace=true"
    if ours:
        return {"error": text}
    return {"error": f"{text}; {noted}" if noted else text, "trace": details if trace else ""}


@lru_cache(maxsize=64)
def _node(key: str, build: Build) -> Node | columns.ColumnNode:
    """The node of a configuration; a process of a simulation answers for many, one after another."""
    run_config, node_config, where, encoding = json.loads(key)
    if "partition-id" not in node_config:
        check_data(run_config, Path(where))
    experiment, server = build(run_config), server_options(run_config)
    options = node_options(node_config, server.out, experiment.secure)
    options.check_run(experiment.secure, server.encoding)
    if options.client is None:
        raise ConfigError('client must be the number of this node, from 0, as in --node-config "client=0"; got none')
    fed = None if options.data or server.own_data else lib.federation_of(experiment)
    clients = _clients(experiment) if fed is None else fed.clients
    rule = f"be at least 0 and below {clients}, the run's clients"
    require(0 <= options.client < clients, "client", rule, options.client)
    if fed is not None:
        data = rows.rows_of_client(fed, options.client)
        _log_left_out(options.client, fed.dataset.reading.left_out)
    else:
        inputs, augment = rows.inputs_of(Path(where))
        raw = rows.read_raw(inputs, options, getattr(experiment.data, "split_by", None) or "")
        if encoding is None:  # else the node has said it with its columns
            _log_left_out(options.client, raw.left_out)
        if server.encoding == "nodes":
            options.check_permit("columns")
            if encoding is None:
                return columns.ColumnNode(inputs, raw, options.client, options)
            inputs = columns.inputs_with(inputs, encoding)
        data = rows.rows_of_node(inputs, raw, options, augment)
    model = architecture(experiment.model, experiment.method.projection)
    return Node(replace(experiment, model=model, clients=clients), data, options.client, options)


def _log_left_out(client: int, left_out: Sequence[tuple[str, int]]) -> None:
    """Say in the node's own log which files of its data are not read."""
    if left_out:
        LOG.info("fedskew: client %d: %s", client, "; ".join(lib.left_out_words(left_out)))
