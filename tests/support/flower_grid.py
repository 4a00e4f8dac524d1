"""Flower's grid without processes or a network: messages are answered where they are pushed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fedskew import tree
from fedskew.flower import serve
from fedskew.flower.options import experiment_of

NODES = 1000  # ids of nodes begin here, so that none is a client's number

Lie = Callable[[int, Any], Any]  # (client, reply's content) -> content, or None for no answer


class Grid:
    """Nodes k = 0..n-1 with configurations of their own; ``lie`` alters what they send."""

    def __init__(
        self, n: int, config: Mapping[str, Any], folder: Path, nodes: Mapping[int, Mapping[str, Any]] | None = None,
        lie: Lie | None = None, app: Path = Path("."),
    ) -> None:  # fmt: skip
        from flwr.supercore.task_identity import TaskIdentity

        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 1
        self.n, self.config, self.folder, self.nodes, self.lie = n, dict(config), folder, dict(nodes or {}), lie
        self.replies: dict[str, Any] = {}
        self.pushed: list[tuple[int, str]] = []
        self.gone: set[int] = set()
        self.app = app

    def get_nodes(self) -> list[Any]:
        """Those that are there."""
        there = [NODES + k for k in range(self.n) if k not in self.gone]
        return [SimpleNamespace(node_id=node, last_activated_at="") for node in there]

    def push_messages(self, messages: Iterable[Any]) -> list[str]:
        """Answer each message at once."""
        from flwr.app import Context, Message, RecordDict

        names = []
        for message in messages:
            name, k = f"message {len(self.pushed)}", message.metadata.dst_node_id - NODES
            message.metadata.__dict__["_message_id"] = name
            self.pushed.append((k, message.metadata.message_type))
            names.append(name)
            own = {"client": k, "allow": "all", "state": str(self.folder / "state"), **self.nodes.get(k, {})}
            if self.config.get("secure") == "sums":
                own = {"secure": 3, **own}
            context = Context(run_id=1, node_id=NODES + k, node_config=own, state=RecordDict(), run_config=self.config)
            content = serve._answer(message, context, experiment_of, self.app)
            if self.lie is not None:
                content = self.lie(k, content)
            if content is not None:
                reply = Message(content, reply_to=message)
                reply.metadata.__dict__["_reply_to_message_id"] = name
                self.replies[name] = reply
        return names

    def pull_messages(self, names: Iterable[str]) -> list[Any]:
        """The replies that are there."""
        return [self.replies.pop(name) for name in names if name in self.replies]


def config(folder: Path, method: str = "fedavg", **options: Any) -> dict[str, Any]:
    """The configuration of a small run; an underscore of a name is a dash, two are a dot."""
    usual = {
        "method": method, "data": "digits", "partition": "dirichlet", "partition.alpha": 0.5, "clients": 4, "cohort": 3,
        "rounds": 3, "epochs": 2 if method == "fedrep" else 1, "model": "logistic", "seed": 1,
        "flower.out": str(folder / "run"), "flower.poll-s": 0.01,
    }  # fmt: skip
    return usual | {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}


def served(folder: Path, content: Mapping[str, Any], **options: Any) -> Any:
    """The result of a run over such a grid."""
    app = options.get("app", Path("."))
    return serve.serve(Grid(int(content["clients"]), content, folder, **options), content, folder=app)


def alone(content: Mapping[str, Any], out: Path | None = None, **options: Any) -> Any:
    """The result of the same run by the engine sequential."""
    usual = {name: value for name, value in content.items() if not name.startswith("flower.")}
    return experiment_of({**usual, "engine": "sequential", **options}).run(out)


def plain(rounds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rounds without seconds."""
    return [{name: value for name, value in row.items() if not name.endswith("_s")} for row in rounds]


def bits(result: Any) -> list[bytes]:
    """The model and the server's state."""
    held = {"params": result.params, "buffers": result.buffers, "parts": result.state.parts}
    return [leaf.contiguous().view(-1).numpy().tobytes() for leaf in tree.leaves(held)]
