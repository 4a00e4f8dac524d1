"""``fedskew flower``: an app for Flower that trains a method on machines of their own, and the keys that it needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import click

from fedskew.cli.base import TYPED, Command, CommandGroup
from fedskew.cli.composed import Composed
from fedskew.cli.output import say
from fedskew.cli.values import FOLDER, POSITIVE, Value
from fedskew.errors import plural, require, some

if TYPE_CHECKING:
    from fedskew.config.experiment import Experiment
    from fedskew.data.arrays import Dataset
    from fedskew.data.inputs import Inputs


EXAMPLES = (
    "fedskew flower init scaffold --clients 5 --rounds 20 --out app",
    "fedskew flower keys --app app --nodes 5 --host server.example.org",
    "fedskew flower own app/state/run/client-2 --out own-model",
)


@click.group("flower", cls=CommandGroup, kind="action of fedskew flower", lines=EXAMPLES)
def flower() -> None:
    """Train with Flower on the machines that hold the data: write an app, certificates and keys."""


@flower.command("init", cls=Composed, lines=(EXAMPLES[0],))
@click.argument("method", required=False, metavar="METHOD")
@click.option("--out", type=FOLDER, default="app", help="the app's folder")
@click.option("--own-data", is_flag=True, help="nodes bring their own data, in the form of --data")
@click.option(
    "--encoding", type=Value(Literal["example", "nodes"]), default="example",
    help="scale and categories of a table's columns: those of the example, or of all nodes' rows, which then send sums",
)  # fmt: skip
@click.pass_context
def init(
    ctx: click.Context, method: str | None, out: str, own_data: bool, encoding: str, experiment: Experiment
) -> None:
    """Write a Flower app that trains METHOD: `flwr run` starts it, on this machine or on a SuperLink and its nodes.

    The options are those of `fedskew run`. Node k holds client k of the federation that they describe. With --own-data
    they name an example of the data, from which the app takes shapes, classes and the encoding of columns.
    """
    from dataclasses import replace
    from pathlib import Path

    from fedskew.config.words import ALIASES
    from fedskew.data.inputs import Inputs
    from fedskew.flower.app import config_of, write_app
    from fedskew.flower.options import check_for_nodes

    check_for_nodes(experiment)
    secure = experiment.secure == "sums"
    rule = "be example without --own-data, with secure sums, or where the example is no table"
    require(encoding == "example" or (own_data and not secure), "encoding", rule, encoding)
    fed = None if own_data else experiment.federation()
    data = experiment.data.load(experiment.path) if fed is None else fed.dataset
    clients = (experiment.clients or 5) if fed is None else fed.clients
    excluded = ("--out", "--encoding")
    given = {ALIASES.get(flag, flag)[2:]: _typed(value) for flag, value in ctx.meta[TYPED] if flag not in excluded}
    aliases = {full[2:]: short[2:] for short, full in ALIASES.items()}
    require(encoding == "example" or data.encoding is not None, "encoding", rule, encoding)
    config = config_of(experiment, own_data=own_data, clients=clients)
    config |= {"flower.encoding": encoding} if encoding == "nodes" else {}
    if own_data:
        given.pop("path", None)  # of the example, which inputs.json describes
    for key, value in given.items():
        config[aliases[key] if aliases.get(key) in config else key] = value
    inputs = Inputs.of(data)
    if own_data and inputs.encoding is not None:
        inputs = replace(inputs, encoding=inputs.encoding.of_example())
    files = write_app(Path(out), experiment, config, inputs, data.augment)
    say(f"{plural(len(files), 'file')} in {out} for {plural(clients, 'node')}; start with {out}/README.md")
    for note in _column_notes(data, inputs, encoding) if own_data else ():
        say(f"note: {note}")
    for line in _node_notes(experiment, encoding, tested=not own_data or bool(config["flower.test"])):
        say(line)


def _column_notes(data: Dataset, inputs: Inputs, encoding: str) -> Iterator[str]:
    """What to know of nodes' own rows, which the example does not have."""
    yield from (note for note in data.notes if not note.startswith("column "))  # of categories nobody trains on
    for column in inputs.encoding.columns if inputs.encoding else ():
        if column.unseen:
            yield f"column {column.name!r}: a blank at a node says nothing, as no training row of the example has one"
        if column.values and encoding == "example":
            other = "is refused" if "" not in column.values and column.missing is None else "counts as missing"
            known = some([value for value in column.values if value])
            yield f"column {column.name!r} has the categories {known}; another one at a node {other}"


def _node_notes(experiment: Experiment, encoding: str, tested: bool) -> Iterator[str]:
    """What a node must allow, and have where there are no test rows yet."""
    from fedskew.flower.contract import PERMITS, needs

    secure = experiment.secure == "sums"
    asking = {} if secure else needs(experiment.method)
    asking |= {"columns": "--encoding nodes"} if encoding == "nodes" else {}
    if secure:
        yield "node.sh sets SECURE: a node sends its part of sums over at least so many nodes, and nothing else"
    for permit, part in asking.items():
        yield f"a node must allow {permit}, {PERMITS[permit]}: {part} asks for it"
    if not tested and secure:
        yield "flower.test must name a file at the server"
    elif not tested:
        words = " ".join([*asking, "metrics"])
        own_rows = f'MORE="local-test=0.2" ALLOW="{words}" sh node.sh K keeps a fifth of its rows for them'
        yield f"a node must have test rows: {own_rows}, or flower.test names a file at the server"


@flower.command("keys", cls=Command, lines=(EXAMPLES[1],))
@click.option("--app", type=FOLDER, default=".", help="the app's folder")
@click.option("--nodes", type=POSITIVE, help="a whole number of nodes; unset: those of the app")
@click.option("--host", metavar="HOST", default="127.0.0.1", help="name or address by which nodes reach the server")
def keys(app: str, nodes: int | None, host: str) -> None:
    """Write the server's certificates and a key for each node into the app's folder keys.

    A new authority signs the server's certificate. The authority's key is not kept, so the certificate is made once;
    existing files stay. Give node K only keys/ca.crt and keys/node-K.
    """
    from pathlib import Path

    from fedskew.flower.app import nodes_of, write_keys

    files = write_keys(Path(app), nodes or nodes_of(Path(app)), host)
    say(f"{plural(len(files), 'new file')} in {Path(app) / 'keys'}")


@flower.command("own", cls=Command, lines=(EXAMPLES[2],))
@click.argument("state", metavar="STATE", type=FOLDER)
@click.option("--out", type=FOLDER, default="own-model", help="a new folder for the model")
def own_model(state: str, out: str) -> None:
    """Take the own model of a client out of its node's folder STATE, after a run with keep-own=true.

    STATE is the client's folder for the run, app/state/RUN/client-K; the node's log names it. The folder --out is for
    `fedskew evaluate` and fedskew.load_model. The model does not leave the node's machine.
    """
    from pathlib import Path

    from fedskew.flower.memory import take_out

    description = take_out(Path(state), Path(out))
    say(f"{description}: {out}; `fedskew evaluate {out} --data csv --path FILE` scores rows")


def _typed(value: str) -> str | int | float | bool:
    """A value of the command line as one of TOML."""
    if value in ("true", "false"):
        return value == "true"
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
