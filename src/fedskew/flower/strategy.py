"""A Flower strategy that adds up by a method of fedskew, in the place of Flower's FedAvg."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord
from flwr.serverapp.strategy import FedAvg

from fedskew import deployment as lib
from fedskew.errors import ConfigError, require
from fedskew.flower.functions import check_server_side, server_step
from fedskew.method import Method

LOG = logging.getLogger("flwr")


class FedSkewStrategy(FedAvg):  # type: ignore[misc]
    """Weights, combines and steps as a method of fedskew does; samples nodes and evaluates as Flower's FedAvg.

    It takes the place of ``FedAvg`` in a project whose ClientApp is your own: a reply holds the trained model and the
    metric ``num-examples``. A method whose weights read label counts wants the metric ``label-counts``, a list of the
    rows of each class; FedNova wants ``num-steps``, the local steps.

    Args:
        method: a method or its name, all of which happens at the server: fedadam, fedla, fednova and so on.
        lr: learning rate of the clients, which FedNova's server momentum reads.
        seed: of what the server draws.
        nonfinite: what a reply costs whose model or metrics hold a NaN or an infinity: "stop" ends the run, "drop"
            leaves the reply out and logs its node. Where all are left out, the model stays as it was.
        **options: those of Flower's FedAvg.

    Raises:
        ConfigError: the method changes what clients do, asks them or chooses them, or ``nonfinite`` is another word.

    Example:
        >>> FedSkewStrategy("fedla", fraction_evaluate=0.5).method.name  # doctest: +SKIP
        'fedla'
    """

    def __init__(
        self, method: str | Method, *, lr: float = 1.0, seed: int = 0, nonfinite: Literal["stop", "drop"] = "stop",
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(**options)
        require(nonfinite in ("stop", "drop"), "nonfinite", "be stop or drop", nonfinite)
        self.method = lib.method_named(method) if isinstance(method, str) else method
        check_server_side(self.method)
        self.lr, self.seed, self.nonfinite = lr, seed, nonfinite
        self.state: lib.State | None = None
        self._sent: dict[str, Any] = {}

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Iterable[Any]:
        """As FedAvg; what is sent is kept, since updates are differences from it."""
        self._sent = {name: array.numpy() for name, array in arrays.items()}
        messages: Iterable[Any] = super().configure_train(server_round, arrays, config, grid)
        return messages

    def aggregate_train(self, server_round: int, replies: Iterable[Any]) -> tuple[Any, Any]:
        """The round at the server. Replies are taken in the order of their nodes' numbers, so sums do not depend on it.

        Raises:
            ConfigError: a reply lacks a metric that the method reads, does not fit the model, or is not finite and
                ``nonfinite`` is "stop".
        """
        valid, _ = self._check_and_log_replies(replies, is_train=True)  # one record of each kind, of the same names
        used: list[tuple[Any, Any, dict[str, Any]]] = []
        for reply in sorted(valid, key=lambda reply: int(reply.metadata.src_node_id)):
            kinds = reply.content.metric_records, reply.content.array_records
            metrics, arrays = (next(iter(records.values())) for records in kinds)
            model = {name: array.numpy() for name, array in arrays.items()}
            if self._is_finite(reply.metadata.src_node_id, metrics, model):
                used.append((reply.content, metrics, model))
        if not used:
            return None, None
        contents, each, models = zip(*used, strict=True)
        columns = {name: [metrics[name] for metrics in each] for name in each[0]}
        model, self.state = server_step(
            self.method, self.state, self._sent, models, columns[self.weighted_by_key],
            counts=columns.get("label-counts"), steps=columns.get("num-steps"), lr=self.lr, seed=self.seed,
        )  # fmt: skip
        # ascontiguousarray would give a number of batches, which has no axes, one
        arrays = ArrayRecord({name: Array(np.asarray(value, order="C")) for name, value in model.items()})
        means = self.train_metrics_aggr_fn(list(contents), self.weighted_by_key)
        shown = {name: value for name, value in means.items() if name not in ("label-counts", "num-steps")}
        return arrays, MetricRecord(shown)

    def _is_finite(self, node: int, metrics: Mapping[str, Any], model: Mapping[str, Any]) -> bool:
        """Whether a reply counts. Raises ConfigError where it is not finite and that is to stop the run."""
        read = {name: metrics.get(name, 0) for name in (self.weighted_by_key, "label-counts", "num-steps")}
        odd = [name for name, value in {**model, **read}.items() if not np.isfinite(value).all()]
        if odd and self.nonfinite == "stop":
            hint = 'nonfinite="drop" leaves such a reply out'
            raise ConfigError(f"{odd[0]} of node {node} must be finite; got a value that is not; {hint}")
        if odd:
            LOG.warning("fedskew: the reply of node %d is left out: %s is not finite", node, odd[0])
        return not odd
