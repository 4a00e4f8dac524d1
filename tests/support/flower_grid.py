"""Flower's grid without processes or a network: messages are answered where they are pushed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from fedskew import tree
from fedskew.data import from_arrays
from fedskew.data.inputs import Inputs
from fedskew.flower import serve
from fedskew.flower.options import experiment_of
from fedskew.flower.rows import inputs_text
from fedskew.flower.wire import Envelope, read

NODES = 1000  # ids of nodes begin here, so that none is a client's number

Lie = Callable[[int, Any], Any]  # (client, reply's content) -> content, or None for no answer


class Grid:
    """Nodes k = 0..n-1 with configurations of their own; ``lie`` alters what they send, ``watch`` sees what comes."""

    def __init__(
        self, n: int, config: Mapping[str, Any], folder: Path, nodes: Mapping[int, Mapping[str, Any]] | None = None,
        lie: Lie | None = None, app: Path = Path("."), watch: Callable[[list[Any]], object] = list,
    ) -> None:  # fmt: skip
        from flwr.supercore.task_identity import TaskIdentity

        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 1
        self.n, self.config, self.folder, self.nodes, self.lie = n, dict(config), folder, dict(nodes or {}), lie
        self.replies: dict[str, Any] = {}
        self.pushed: list[tuple[int, str]] = []
        self.gone: set[int] = set()
        self.app, self.watch = app, watch

    def get_nodes(self) -> list[Any]:
        """Those that are there."""
        there = [NODES + k for k in range(self.n) if k not in self.gone]
        return [SimpleNamespace(node_id=node, last_activated_at="") for node in there]

    def push_messages(self, messages: Iterable[Any]) -> list[str]:
        """Answer each message at once."""
        from flwr.app import Message

        names, listed = [], list(messages)
        self.watch(listed)
        for message in listed:
            name, k = f"message {len(self.pushed)}", message.metadata.dst_node_id - NODES
            message.metadata.__dict__["_message_id"] = name
            self.pushed.append((k, message.metadata.message_type))
            names.append(name)
            if (content := self.answer(k, message)) is not None:
                reply = Message(content, reply_to=message)
                reply.metadata.__dict__["_reply_to_message_id"] = name
                self.replies[name] = reply
        return names

    def answer(self, k: int, message: Any) -> Any:
        """What a node sends back; None where nothing comes."""
        node_config = {"client": k, "allow": "all", "state": str(self.folder / "state"), **self.nodes.get(k, {})}
        if self.config.get("secure") == "sums":
            node_config = {"secure": 3, **node_config}
        context: Any = SimpleNamespace(node_config=node_config, run_config=self.config)
        content = serve._answer(message, context, experiment_of, self.app)
        return content if self.lie is None else self.lie(k, content)

    def pull_messages(self, names: Iterable[str]) -> list[Any]:
        """The replies that are there."""
        return [self.replies.pop(name) for name in names if name in self.replies]


def heard(answers: list[Envelope]) -> Lie:
    """A lie that is none: it notes what nodes answer."""

    def look(client: int, content: Any) -> Any:
        answers.append(read(content))
        return content

    return look


def interrupting(after: int) -> Callable[[list[Any]], None]:
    """What watches messages, and interrupts the server once it has sent so many."""
    sent: list[Any] = []

    def look(messages: list[Any]) -> None:
        if len(sent) >= after:
            raise KeyboardInterrupt
        sent.extend(messages)

    return look


def config(folder: Path, method: str = "fedavg", **options: Any) -> dict[str, Any]:
    """The configuration of a small run; an underscore of a name is a dash, two are a dot."""
    usual = {
        "method": method, "data": "digits", "partition": "dirichlet", "partition.alpha": 0.5, "clients": 4, "cohort": 3,
        "rounds": 3, "epochs": 2 if method == "fedrep" else 1, "model": "logistic", "seed": 1,
        "flower.out": str(folder / "run"), "flower.poll-s": 0.01,
    }  # fmt: skip
    return usual | {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}


def own_data(folder: Path, nodes: int = 3, **options: Any) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """(configuration, nodes) of an app in the folder whose nodes bring files: points around three places."""
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(60 * nodes, 2)), np.tile(["a", "b", "c"], 20 * nodes)
    x += np.array([[0, 0], [3, 0], [0, 3]])[np.arange(len(y)) % 3]
    (folder / "inputs.json").write_text(inputs_text(Inputs.of(from_arrays(x, y)), ()))
    for k in range(nodes):
        np.savez(folder / f"{k}.npz", x=x[k::nodes].astype(np.float32), y=y[k::nodes])
    content = {
        "method": "fedla", "clients": nodes, "cohort": nodes, "rounds": 3, "epochs": 2, "model": "logistic",
        "flower.out": str(folder / "run"), "flower.own-data": True, "flower.poll-s": 0.01, **options,
    }  # fmt: skip
    return content, {k: {"data": str(folder / f"{k}.npz"), "local-test": 0.2} for k in range(nodes)}


def served(folder: Path, content: Mapping[str, Any], **options: Any) -> Any:
    """The result of a run over such a grid."""
    app = options.get("app", Path("."))
    return serve.serve(Grid(int(content["clients"]), content, folder, **options), content, folder=app)


def alone(content: Mapping[str, Any], out: Path | None = None, **options: Any) -> Any:
    """The result of the same run by the engine sequential. Without a folder it trains once for all who ask."""
    usual = {name: value for name, value in content.items() if not name.startswith("flower.")}
    return _alone(json.dumps({**usual, "engine": "sequential", **options}), out)


@cache
def _alone(content: str, out: Path | None) -> Any:
    return experiment_of(json.loads(content)).run(out)


def plain(rounds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rounds without seconds."""
    return [{name: value for name, value in row.items() if not name.endswith("_s")} for row in rounds]


def bits(result: Any) -> list[bytes]:
    """The model and the server's state."""
    held = {"params": result.params, "buffers": result.buffers, "parts": result.state.parts}
    return [leaf.contiguous().view(-1).numpy().tobytes() for leaf in tree.leaves(held)]
