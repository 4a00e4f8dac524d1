"""fedskew's server half in a Flower project whose clients are its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from fedskew import functional as F
from fedskew import methods, servers, weightings
from fedskew.errors import ConfigError
from fedskew.flower import aggregation_weights, server_step
from fedskew.flower.functions import check_server_side, cohort_of
from fedskew.method.parts import CrossEntropy
from fedskew.method.steps import SGD

NORM = {"fc.weight": np.zeros((2, 3), np.float32), "bn.running_mean": np.zeros(3, np.float32),
        "bn.num_batches_tracked": np.array(0)}  # fmt: skip


def trained(k: int) -> dict[str, Any]:
    return {"fc.weight": np.full((2, 3), k, np.float32), "bn.running_mean": np.full(3, k, np.float32),
            "bn.num_batches_tracked": np.array(k)}  # fmt: skip


def test_weights_are_those_of_the_weightings() -> None:
    counts = [[10, 0, 0], [0, 5, 5], [1, 1, 8]]
    samples = [10, 10, 10]
    assert aggregation_weights("size", [1, 3]).tolist() == [0.25, 0.75]
    assert aggregation_weights("uniform", [1, 3]).tolist() == [0.5, 0.5]
    expected = F.label_aware_weights(torch.tensor(counts)).double()
    np.testing.assert_allclose(aggregation_weights("label_aware", samples, counts=counts), expected)
    np.testing.assert_allclose(aggregation_weights(methods.fednova(), [1, 3], steps=[2, 6]), [0.625, 0.625])


@pytest.mark.parametrize(
    ("weighting", "told"),
    [
        ("label_aware", "counts must be given"), ("fednova", "steps must be given"), ("labelaware", "did you mean"),
        ("aggregation_balancer", "reads the clients' models"),
    ],
)  # fmt: skip
def test_what_a_weighting_reads_must_be_given(weighting: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        aggregation_weights(weighting, [1, 2])


def test_statistics_are_averaged_and_never_stepped() -> None:
    model, state = server_step("fedadam", None, NORM, [trained(1), trained(3)], [30, 10])
    assert model["bn.running_mean"].tolist() == [1.5] * 3
    assert model["bn.num_batches_tracked"] == 1  # of the client with the largest weight
    assert list(model) == list(NORM)
    assert state.round == 1


@pytest.mark.parametrize("method", ["fedavg", "fedavgm", "fedadam", "fedyogi", "fedadagrad"])
def test_steps_are_those_of_a_run(method: str) -> None:
    """Two rounds on numbers: the weighted mean through the server's own optimizer."""
    value = methods.METHODS[method]()
    model: Any = {"w": np.zeros(3)}
    state = None
    params = {"w": torch.zeros(3, dtype=torch.float64)}
    held = value.server.init_server(params, None, None)  # type: ignore[arg-type]
    for r in (1, 2):
        after = [{"w": model["w"] + r}, {"w": model["w"] - 3 * r}]
        delta = {"w": torch.full((3,), 0.75 * r - 0.25 * 3 * r, dtype=torch.float64)}
        cohort, _ = cohort_of(model, after, [30, 10], round=r)
        cohort = cohort._replace(weights=weightings.Size().weigh({}, cohort))
        params, held = value.server.update(params, delta, held, cohort)
        model, state = server_step(value, state, model, after, [30, 10])
        np.testing.assert_allclose(model["w"], params["w"].numpy(), rtol=1e-12)


@pytest.mark.parametrize("method", ["fedprox", "scaffold", "seolkim", "fedvc", "pfedme", "creff", "fedlc", "climb"])
def test_a_method_that_needs_clients_of_fedskew_says_so(method: str) -> None:
    told = f"^{method} .*`fedskew flower init {method}` writes an app whose clients do$"
    with pytest.raises(ConfigError, match=told):
        server_step(method, None, {"w": np.zeros(2)}, [{"w": np.ones(2)}], [1])


def test_what_runs_at_clients_is_known_by_what_it_does_not_by_its_name() -> None:
    @dataclass(frozen=True)
    class FromZero(SGD):
        def start(self, params: Any, ctx: Any) -> Any:
            return {name: 0 * value for name, value in params.items()}, None

    @dataclass(frozen=True)
    class Smoothed(CrossEntropy):
        def loss(self, view: Any) -> Any:
            return 0.9 * super().loss(view)

    plain = methods.fedavg()
    for own in ({"local": FromZero()}, {"parts": (Smoothed(),)}):
        with pytest.raises(ConfigError, match="changes what clients do"):
            check_server_side(plain.with_(name="own", **own))
    check_server_side(plain.with_(name="plain", parts=(CrossEntropy(),)))


def test_a_loss_that_clients_run_by_themselves_is_theirs() -> None:
    fedlc = methods.fedlc().with_(parts=())
    model, _ = server_step(fedlc, None, {"w": np.zeros(2)}, [{"w": np.ones(2)}], [1])
    assert model["w"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("after", "samples", "told"),
    [
        ([], [], "after must hold a model"), ([np.ones(2)], [1, 2], "samples must have 1 numbers"),
        ([np.ones(3)], [1], "must have shape"), ([np.array([1, np.nan])], [1], "must be finite"),
        ([np.ones(2)], [0], "not all 0"),
    ],
)  # fmt: skip
def test_models_that_do_not_agree_are_refused(after: Any, samples: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        server_step("fedavg", None, {"w": np.zeros(2)}, [{"w": value} for value in after], samples)
    with pytest.raises(ConfigError, match="must have the names of the global model"):
        server_step("fedavg", None, {"w": np.zeros(2)}, [{"v": np.ones(2)}], [1])


def test_a_composition_may_replace_the_servers_half() -> None:
    method = methods.fedavg().with_(weighting=weightings.Uniform(), server=servers.Momentum(beta=0.5))
    model, state = server_step(method, None, {"w": np.zeros(1)}, [{"w": np.ones(1)}, {"w": 3 * np.ones(1)}], [9, 1])
    model, state = server_step(method, state, model, [model, model], [9, 1])
    assert model["w"].tolist() == [3.0]  # 2, then half of it again


class Served:
    """A ServerApp of a user's own, over a grid that answers by a ClientApp: each client trains a network a little."""

    def __init__(self, model: Any, reply: Any = None) -> None:
        from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
        from flwr.clientapp import ClientApp
        from flwr.supercore.task_identity import TaskIdentity

        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 1
        self.model, self.client = model, ClientApp()
        self.context = Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={})

        @self.client.train()
        def train(message: Any, context: Any) -> Any:
            k = message.metadata.dst_node_id
            self.model.load_state_dict(message.content["arrays"].to_torch_state_dict())  # strict
            self.model.train()(torch.full((8, 4), float(k)))
            metrics: dict[str, Any] = {"num-examples": 10 * k, "label-counts": [k, 1]}
            state = dict(self.model.state_dict())
            for told, change in [reply(k)] if reply else ():
                state |= told
                metrics |= change
            content = {"arrays": ArrayRecord(state), "metrics": MetricRecord(metrics)}
            return Message(RecordDict(content), reply_to=message)

    def get_node_ids(self) -> list[int]:
        return [1, 2, 3]

    def send_and_receive(self, messages: Any, timeout: float | None = None) -> list[Any]:
        found = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(message.metadata.dst_node_id)
            found.append(self.client(message, self.context))
        return found

    def run(self, strategy: Any) -> dict[str, Any]:
        """The arrays after three rounds of Flower's own loop; the metrics of the last one are kept."""
        from flwr.app import ArrayRecord
        from flwr.serverapp import ServerApp

        app, found = ServerApp(), []

        @app.main()
        def main(grid: Any, context: Any) -> None:
            start = ArrayRecord(self.model.state_dict())
            found.append(strategy.start(grid=grid, initial_arrays=start, num_rounds=3))

        app(self, self.context)  # type: ignore[arg-type]
        self.metrics = found[0].train_metrics_clientapp[3]
        return {name: array.numpy() for name, array in found[0].arrays.items()}


def normed() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))


@pytest.mark.flower
def test_the_strategy_takes_the_place_of_fedavg() -> None:
    """Each client adds its number to the model."""
    from flwr.serverapp.strategy import FedAvg

    from fedskew.flower import FedSkewStrategy

    def added(k: int) -> Any:
        told = {"loss": float(k), "label-counts": [10, 0] if k == 1 else [5, 5]}
        return {name: leaf + k for name, leaf in served.model.state_dict().items()}, told

    def run(strategy: Any) -> tuple[Any, Any]:
        torch.nn.init.zeros_(served.model.bias)
        return served.run(strategy)["bias"], served.metrics

    served = Served(torch.nn.Linear(4, 2), added)
    plain, metrics = run(FedAvg(fraction_evaluate=0.0))
    same, told = run(FedSkewStrategy("fedavg", fraction_evaluate=0.0))
    np.testing.assert_allclose(same, plain)
    assert told["loss"] == pytest.approx(metrics["loss"])
    aware, _ = run(FedSkewStrategy("fedla", fraction_evaluate=0.0))
    weights = aggregation_weights("label_aware", [10, 20, 30], counts=[[10, 0], [5, 5], [5, 5]])
    np.testing.assert_allclose(aware, np.full(2, 3 * weights @ [1, 2, 3]), rtol=1e-6)
    with pytest.raises(ConfigError, match="scaffold changes what clients do"):
        FedSkewStrategy("scaffold")


@pytest.mark.flower
@pytest.mark.parametrize("method", ["fedavg", "fedadam"])
def test_a_network_with_batch_statistics_trains_in_a_server_app(method: str) -> None:
    """Its number of batches has no axes; it came back with one, and the second round ended."""
    from flwr.serverapp.strategy import FedAvg

    from fedskew.flower import FedSkewStrategy

    found = Served(normed()).run(FedSkewStrategy(method, fraction_evaluate=0.0))
    start = {name: leaf.numpy() for name, leaf in normed().state_dict().items()}
    assert {n: (a.shape, a.dtype) for n, a in found.items()} == {n: (a.shape, a.dtype) for n, a in start.items()}
    if method == "fedavg":
        plain = Served(normed()).run(FedAvg(fraction_evaluate=0.0))
        np.testing.assert_allclose(found["1.running_mean"], plain["1.running_mean"], rtol=1e-6)
    assert found["1.num_batches_tracked"] == 3


@pytest.mark.flower
@pytest.mark.parametrize("where", ["arrays", "metrics"])
def test_a_reply_that_is_not_finite_stops_the_run_or_is_left_out(where: str, caplog: pytest.LogCaptureFixture) -> None:
    from fedskew.flower import FedSkewStrategy

    def reply(k: int) -> Any:
        bad = {"0.bias": torch.full((4,), float("nan"))} if where == "arrays" else {}
        return (bad, {} if bad else {"num-examples": float("inf")}) if k == 2 else ({}, {})

    name = "0.bias" if where == "arrays" else "num-examples"
    with pytest.raises(ConfigError, match=f"{name} of node 2 must be finite; .*nonfinite"):
        Served(normed(), reply).run(FedSkewStrategy("fedavg", fraction_evaluate=0.0))
    with caplog.at_level("WARNING", logger="flwr"):
        found = Served(normed(), reply).run(FedSkewStrategy("fedavg", fraction_evaluate=0.0, nonfinite="drop"))
    assert all(np.isfinite(a).all() for a in found.values()) and found["1.num_batches_tracked"] == 3
    assert f"the reply of node 2 is left out: {name} is not finite" in caplog.text
    with pytest.raises(ConfigError, match="nonfinite must be stop or drop; got 'skip'"):
        FedSkewStrategy("fedavg", nonfinite="skip")  # type: ignore[arg-type]


def test_rows_of_counts_of_other_lengths_are_one_line() -> None:
    with pytest.raises(ConfigError, match=r"counts must have a number for each class in every row; got \[1, 2\]"):
        aggregation_weights("label_aware", [30, 30], counts=[[30], [5, 25]])


@pytest.mark.parametrize("given", [{"samples": [1.0, float("inf")]}, {"samples": [1.0, float("nan")]},
                                   {"counts": [[1, 2], [-1, 3]]}, {"steps": [1.0, float("nan")]},
                                   {"steps": [1.0, -1.0]}])  # fmt: skip
def test_numbers_of_a_client_that_cannot_be_are_refused(given: dict[str, Any]) -> None:
    """A client's own report would take the whole average, or leave a model that is not finite."""
    from fedskew.flower import server_step

    model = {"w": np.zeros((2, 2), np.float32)}
    usual: dict[str, Any] = {"samples": [1.0, 2.0], "counts": [[1, 2], [3, 4]], "steps": [1.0, 2.0]}
    with pytest.raises(ConfigError, match=f"{next(iter(given))} must be finite"):
        server_step("fednova", None, model, [model, model], **{**usual, **given})
