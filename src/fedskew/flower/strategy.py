"""A Flower strategy that adds up by a method of fedskew, in the place of Flower's FedAvg."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord
from flwr.serverapp.strategy import FedAvg

from fedskew.config.tables import method_named
from fedskew.errors import ConfigError
from fedskew.flower.functions import check_server_side, server_step
from fedskew.method import Method
from fedskew.server import State


class FedSkewStrategy(FedAvg):  # type: ignore[misc]
    """Weights, combines and steps as a method of fedskew does; samples nodes and evaluates as Flower's FedAvg.

    It takes the place of ``FedAvg`` in a project whose ClientApp is your own: a reply holds the trained model and the
    metric ``num-examples``. A method whose weights read label counts wants the metric ``label-counts``, a list of the
    rows of each class; FedNova wants ``num-steps``, the local steps.

    Args:
        method: a method or its name, all of which happens at the server: fedadam, fedla, fednova and so on.
        lr: learning rate of the clients, which FedNova's server momentum reads.
        seed: of what the server draws.
        clients_run: losses that your clients compute by themselves, by `fedskew.functional`: ("logit_calibration",).
        **options: those of Flower's FedAvg.

    Raises:
        ConfigError: the method changes what clients do, asks them or chooses them.

    Example:
        >>> FedSkewStrategy("fedla", fraction_evaluate=0.5).method.name  # doctest: +SKIP
        'fedla'
    """

    def __init__(
        self, method: str | Method, *, lr: float = 1.0, seed: int = 0, clients_run: Sequence[str] = (), **options: Any
    ) -> None:
        super().__init__(**options)
        self.method = method_named(method) if isinstance(method, str) else method
        check_server_side(self.method, clients_run)
        self.lr, self.seed, self.clients_run = lr, seed, tuple(clients_run)
        self.state: State | None = None
        self._sent: dict[str, Any] = {}

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Iterable[Any]:
        """As FedAvg; what is sent is kept, since updates are differences from it."""
        self._sent = {name: array.numpy() for name, array in arrays.items()}
        messages: Iterable[Any] = super().configure_train(server_round, arrays, config, grid)
        return messages

    def aggregate_train(self, server_round: int, replies: Iterable[Any]) -> tuple[Any, Any]:
        """The round at the server. Replies are taken in the order of their nodes' numbers, so sums do not depend on it.

        Raises:
            ConfigError: a reply lacks a metric that the method reads, or does not fit the model.
        """
        valid, _ = self._check_and_log_replies(replies, is_train=True)
        valid = sorted(valid, key=lambda reply: int(reply.metadata.src_node_id))
        if not valid:
            return None, None
        metrics = [dict(next(iter(reply.content.metric_records.values()))) for reply in valid]
        held = [next(iter(reply.content.array_records.values())) for reply in valid]
        models = [{name: array.numpy() for name, array in one.items()} for one in held]
        samples = [float(m[self.weighted_by_key]) for m in metrics]
        model, self.state = server_step(
            self.method, self.state, self._sent, models, samples, counts=_column(metrics, "label-counts"),
            steps=_column(metrics, "num-steps"), lr=self.lr, seed=self.seed, clients_run=self.clients_run,
        )  # fmt: skip
        arrays = ArrayRecord({name: Array(np.ascontiguousarray(value)) for name, value in model.items()})
        plain = [reply.content for reply in valid]
        told = self.train_metrics_aggr_fn(plain, self.weighted_by_key)
        shown = {name: value for name, value in told.items() if name not in ("label-counts", "num-steps")}
        return arrays, MetricRecord(shown)


def _column(metrics: list[dict[str, Any]], name: str) -> list[Any] | None:
    """A metric of all clients; None where nobody has it. Raises ConfigError where some lack it."""
    held = [name in m for m in metrics]
    if not any(held):
        return None
    if not all(held):
        raise ConfigError(f"the metric {name!r} must be in every reply or in none; {held.count(False)} replies lack it")
    return [m[name] for m in metrics]
