"""The options of a deployment: the server's in the app's configuration, the node's in the node's."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from fedskew import deployment as lib
from fedskew.errors import ConfigError, FieldError, require, unknown
from fedskew.fields import AtLeast, Within, check, demand
from fedskew.flower.contract import PERMITS, permits_of
from fedskew.flower.wire import MOST_ROWS

PREFIX = "flower."  # of the app's configuration that is not the run's
T = TypeVar("T", "ServerOptions", "NodeOptions")
NAME = 200  # bytes of a folder's name; file systems take 255


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """What the server of a deployment does beside the run. Raises FieldError."""

    out: str = "run"
    """run folder at the server; a run that stands there is gone on with"""
    own_data: bool = False
    """each node brings data of its own; else node k holds client k of the named dataset"""
    encoding: Literal["example", "nodes"] = "example"
    """scale and categories of a table's columns: those of the example, or of all nodes' rows, which send sums and sets
    of categories first"""
    test: str = ""
    """file of test rows at the server, for nodes with data of their own; empty: nodes evaluate on rows of their own"""
    missing: Literal["wait", "drop", "stop"] = "wait"
    """when a node does not answer: wait for it, drop its client from the round, or stop the run"""
    bad: Literal["stop", "drop"] = "stop"
    """when an answer is late, damaged or of another shape: stop the run, or drop the client from the round"""
    wait_s: Annotated[float, AtLeast(0)] = 600.0
    """seconds that a node may take for an answer before it counts as missing; with missing = wait it is asked again"""
    poll_s: Annotated[float, AtLeast(0.001)] = 0.2
    """longest pause between two looks for answers"""
    most_rows: Annotated[int, Within(1, 1 << 40)] = MOST_ROWS
    """rows that one node may declare; nobody can count them, and they are its weight in the average"""

    def __post_init__(self) -> None:
        check(self)
        name = Path(self.out).name
        plain = name != ".." and name.isprintable() and len(name.encode()) <= NAME
        demand(self, "out", plain, "end in a plain name: nodes call their folder so")


@dataclass(frozen=True, kw_only=True)
class NodeOptions:
    """What the operator of a node decides. Raises ConfigError."""

    client: int | None = None
    """number of this node's client, from 0"""
    name: str = ""
    """name in messages and in the server's record"""
    allow: str = "none"
    """what may leave the node beside trained models and the number of rows: words of `contract.PERMITS`, all or none"""
    state: str = "fedskew-state"
    """folder for what the client keeps between rounds"""
    secure: Annotated[int, AtLeast(0)] = 0
    """fewest clients of a secure sum that the node is in, at least 3: it trains in runs with secure sums alone, and
    tells nothing of its own. 0: it trains in other runs alone"""
    data: str = ""
    """a csv, npz or parquet file, a folder of images by class, or module:function; empty: the app's dataset"""
    y_column: str = ""
    """column of labels in a csv or parquet file"""
    local_test: Annotated[float, AtLeast(0)] = 0.0
    """fraction of the node's rows that are kept for its own test"""
    threads: Annotated[int, AtLeast(0)] = 1
    """threads that train"""
    trace: bool = False
    """send the details of mistakes to the server, which may quote the node's data; else they stay in the node's log"""
    run: str = ""

    def __post_init__(self) -> None:
        check(self)
        demand(self, "local_test", self.local_test < 1, "be below 1")
        least = lib.sums.LEAST
        demand(self, "secure", self.secure == 0 or self.secure >= least, f"be 0, or at least {least} clients of a sum")
        permits_of(self.allow)

    @property
    def permits(self) -> frozenset[str]:
        """What the node allows."""
        return permits_of(self.allow)

    def check_run(self, secure: str, encoding: str) -> None:
        """Raise ConfigError where a run asks for other sums than this node is for: none, or none but secure ones."""
        if secure == "sums":
            rule, hint = f"be at least {lib.sums.LEAST} for this run", "where its operator agrees to secure sums"
            hint = f"start it with SECURE={lib.sums.LEAST}, {hint}"
            require(self.secure > 0, "secure of this node", rule, self.secure, hint)
            rule = "be example with secure sums: nodes would tell sums over their own rows"
            require(encoding == "example", "flower.encoding", rule, encoding)
        rule = f"be sums for this node, which is started with secure={self.secure} and sends nothing else"
        require(not self.secure or secure == "sums", "secure", rule, secure)

    def check_permit(self, permit: str) -> None:
        """Raise ConfigError where the node does not allow what is asked; "" is what every node allows."""
        if permit and permit not in self.permits:
            raise ConfigError(f"this node does not allow {permit}, {PERMITS[permit]}")

    def hello(self, client: int, rows: int, test_rows: int) -> dict[str, Any]:
        """What every node tells of itself."""
        who = {"client": client, "name": self.name, "permits": sorted(self.permits)}
        return {**who, "rows": rows, "test_rows": test_rows}

    def folder(self, client: int) -> Path:
        """The folder of a client's memory in this run."""
        return Path(self.state).expanduser() / (self.run or "run") / f"client-{client}"


def experiment_of(config: Mapping[str, Any]) -> lib.Experiment:
    """The experiment of an app's configuration: the words of ``fedskew run``, with ``method`` for METHOD.

    Raises ConfigError, with one line, for a key that is no option or a value that breaks a rule.
    """
    given = {key: value for key, value in config.items() if not key.startswith(PREFIX) and value != ""}
    method = [str(given.pop("method"))] if "method" in given else []
    return check_for_nodes(lib.experiment_of_flags(method, lib.flags_of(given.items())))


def check_for_nodes(experiment: lib.Experiment) -> lib.Experiment:
    """The experiment. Raises FieldError where it asks for what nodes cannot do."""
    rule = "be 0 where clients are nodes: a node that is not to train is not started"
    demand(experiment, "heldout_clients", not experiment.heldout_clients, rule)
    rule = "be unset where clients are nodes: they lack the file"
    demand(experiment, "init_from", experiment.init_from is None, rule)
    if experiment.secure == "sums":
        lib.sums.check(experiment.method, experiment.settings, experiment.cohort or lib.sums.LEAST)
    return experiment


def server_options(config: Mapping[str, Any]) -> ServerOptions:
    """Those of an app's configuration. Raises ConfigError."""
    given = {key.removeprefix(PREFIX): value for key, value in config.items() if key.startswith(PREFIX)}
    return _made(ServerOptions, given, PREFIX)


def node_options(config: Mapping[str, Any], out: str = "run", secure: str = "none") -> NodeOptions:
    """Those of a node's configuration.

    In a simulation, where Flower numbers the nodes by ``partition-id``, node k is client k, allows everything, is for
    the sums that the run asks for, ``secure``, and keeps its state in ``out``, the run folder.
    """
    given = {key: value for key, value in config.items() if key != "num-partitions"}
    if "partition-id" in given:
        least = lib.sums.LEAST * (secure == "sums")
        simulated = {"client": given.pop("partition-id"), "allow": "all", "state": f"{out}/nodes", "secure": least}
        given = {**simulated, "trace": True, **given}
    return _made(NodeOptions, {**given, "run": Path(out).name}, "")


def _made(kind: type[T], given: Mapping[str, Any], prefix: str) -> T:
    names = {f.name.replace("_", "-"): f.name for f in dataclasses.fields(kind)}
    for key in given:
        if key not in names:
            raise unknown("key of the configuration", f"{prefix}{key}", [f"{prefix}{k}" for k in names if k != "run"])
    try:
        return kind(**{names[key]: value for key, value in given.items()})
    except FieldError as error:
        raise ConfigError(error.named(f"{prefix}{error.field.replace('_', '-')}")) from None
