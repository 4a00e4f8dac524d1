"""Secure sums over Flower's messages: the model of a plain run, and a server to which nothing of one client comes."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedskew import deployment as lib
from fedskew import simulated, tree
from fedskew.errors import ConfigError, FedskewError, TrainingError
from fedskew.flower import serve
from fedskew.flower.link import Link
from fedskew.flower.memory import NodeMemory, receipt_of
from fedskew.flower.options import experiment_of
from fedskew.flower.wire import opened, pack, read, record
from fedskew.privacy import PHASES
from support.flower_grid import NODES, Grid, alone, config, heard, interrupting, own_data, served
from support.forms import forms
from support.lies import alteration, lying, small
from support.runs import gap

pytestmark = pytest.mark.flower
WEIGHTS, UPDATE = ("weights", 0), ("update",)


def secure(folder: Path, method: str = "fedla", **options: Any) -> dict[str, Any]:
    return config(folder, method, **{"secure": "sums", "cohort": 4, "rounds": 2, **options})


def silent(client: int, phase: str, place: tuple[str | int, ...], number: int = 1) -> Callable[[int, Any], Any]:
    """A lie: the client's message of one phase of one sum is lost."""

    def lie(k: int, content: Any) -> Any:
        facts = read(content).facts
        here = facts.get("place") == [number, *place] and facts.get("phase") == phase
        return None if k == client and here else content

    return lie


# Equal to a plain run


@pytest.mark.parametrize("method", ["fedla", "fednova", "feddisco", "scaffold", "fedir", "ccvr", "fednh", "fedper"])
def test_sums_over_messages_give_the_model_of_a_plain_run(method: str, tmp_path: Path) -> None:
    content = secure(tmp_path, method)
    found, plain = served(tmp_path, content), alone(content, secure="none")
    assert gap(found.params, plain.params) < 1e-5
    for row, other in zip(found.rounds, plain.rounds, strict=True):
        assert row["clients"] == other["clients"] and row["samples"] == other["samples"]
        assert row["train_loss"] == pytest.approx(other["train_loss"], rel=1e-6)


def test_statistics_and_cohorts_too(tmp_path: Path) -> None:
    content = secure(tmp_path, "fedla", model="resnet20", cohort=3, dtype="float64")
    found, plain, simulated_ = served(tmp_path, content), alone(content, secure="none"), alone(content)
    assert gap(found.params, plain.params) < 1e-6 and gap(found.params, simulated_.params) < 1e-6
    assert [row["upload_bytes"] for row in found.rounds] == [row["upload_bytes"] for row in simulated_.rounds]


def test_nodes_with_data_of_their_own_need_test_rows_of_the_server(tmp_path: Path) -> None:
    content, nodes = own_data(tmp_path, 4, secure="sums")
    with pytest.raises(ConfigError, match="somebody must have test rows that may be used; got none; name test rows of"):
        served(tmp_path, content, nodes=nodes, app=tmp_path)
    np.savez(tmp_path / "test.npz", x=np.array([[0, 0], [3, 0], [0, 3.0]]), y=np.array(["a", "b", "c"]))
    content["flower.test"] = str(tmp_path / "test.npz")
    found = served(tmp_path, content, nodes=nodes, app=tmp_path)
    assert sum(found.rounds[-1]["support"]) == 3 and "local_accuracy" not in found.rounds[-1]
    plain = {**content, "secure": "none", "flower.out": str(tmp_path / "plain")}
    assert gap(found.params, served(tmp_path, plain, nodes=nodes, app=tmp_path).params) < 1e-5


def test_a_node_keeps_its_part_of_a_sum_in_files(tmp_path: Path) -> None:
    """Flower starts a process for each message."""

    def killed(client: int, content: Any) -> Any:
        serve._node.cache_clear()
        return content

    content = secure(tmp_path, "scaffold")
    assert gap(served(tmp_path, content, lie=killed).params, alone(content).params) < 1e-6
    state = tmp_path / "state" / "run" / "client-1"
    assert not list(state.glob("*sum.json")), "no key is left after the last phase"


# Nodes that drop out


@pytest.mark.parametrize("place", [WEIGHTS, UPDATE], ids=["weights", "update"])
@pytest.mark.parametrize("phase", PHASES)
def test_a_sum_goes_on_without_a_node_that_does_not_answer(
    phase: str, place: tuple[str | int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = secure(tmp_path, flower__missing="drop", flower__wait_s=0.3)
    found = served(tmp_path, content, lie=silent(1, phase, place))
    gone = {(1, *place): {1: phase}}
    monkeypatch.setattr(simulated, "absent", lambda at, clients: gone.get(at, {}))
    expected = alone(content, tmp_path / "alone")
    assert [row["clients"] for row in found.rounds] == [row["clients"] for row in expected.rounds]
    assert (1 in found.rounds[0]["clients"]) == (phase == "unmask")  # then its input has arrived
    assert gap(found.params, expected.params) < 1e-6


def test_whoever_is_lost_in_training_is_in_no_sum(tmp_path: Path) -> None:
    """It is waited for once a round."""
    asked: list[str] = []

    def lie(client: int, content: Any) -> Any:
        kind = read(content).facts["kind"]
        asked.extend([kind] * (client == 1))
        return None if client == 1 and kind != "hello" else content

    content = secure(tmp_path, "fedavg", flower__missing="drop", flower__wait_s=0.3)
    found = served(tmp_path, content, lie=lie)
    assert [row["clients"] for row in found.rounds] == [[0, 2, 3]] * 2
    assert [[d["client"] for d in row["dropped"]] for row in found.rounds] == [[1]] * 2
    assert asked == ["hello", "train", "train"]
    plain = {**content, "secure": "none", "flower.out": str(tmp_path / "plain")}
    assert gap(found.params, served(tmp_path, plain, lie=lie).params) < 1e-6


@pytest.mark.parametrize("method", ["fedla", "fedavg"])
def test_training_that_is_not_finite_costs_its_client_alone(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays in the sums that weights rest on, as in a plain run."""
    run = lib.ClientEngine.run

    def bad(engine: Any, of: Any, job: Any) -> Any:
        outcome, _ = run(engine, of, job)
        if (job.plan.client, int(job.job.shared.round)) != (1, 2):
            return outcome, None
        nan = {n: torch.full_like(p, torch.nan) for n, p in outcome.params.items()}
        return outcome._replace(params=nan), lib.Fault(1, 2, 1, 1, "parameter fc.weight")

    monkeypatch.setattr(lib.ClientEngine, "run", bad)
    content = secure(tmp_path, method, nonfinite="drop")
    found = served(tmp_path, content)
    assert found.rounds[1]["clients"] == [0, 2, 3]
    assert found.rounds[1]["dropped"] == [{"client": 1, "tensor": "parameter fc.weight"}]
    (tmp_path / "plain").mkdir()
    plain = served(tmp_path / "plain", secure(tmp_path / "plain", method, nonfinite="drop", secure="none"))
    assert plain.rounds[1]["clients"] == [0, 2, 3] and gap(found.params, plain.params) < 1e-5
    stop = {**content, "nonfinite": "stop", "flower.out": str(tmp_path / "stop")}
    with pytest.raises(TrainingError, match=r"^client 1: parameter fc.weight is not finite$"):
        served(tmp_path, stop)


@pytest.mark.parametrize("phase", PHASES)
def test_below_the_threshold_the_run_ends_in_one_line(phase: str, tmp_path: Path) -> None:
    content = secure(tmp_path, clients=5, cohort=5, flower__missing="drop", flower__wait_s=0.3)
    first, second = silent(1, phase, UPDATE, 2), silent(2, phase, UPDATE, 2)
    said = rf"^phase '{phase}' .* at least 4 clients, its threshold; got 3, in round 2: client 1: no answer in 0.3 s$"
    with pytest.raises(TrainingError, match=said):
        served(tmp_path, content, lie=lambda k, c: first(k, c) and second(k, c))
    assert len((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize("option", ["missing", "bad"])
def test_a_node_whose_answer_is_of_no_use_stops_the_run_or_not(option: str, tmp_path: Path) -> None:
    def lie(client: int, content: Any) -> Any:
        envelope = read(content)
        if client != 1 or envelope.facts.get("phase") != "share":
            return content
        return None if option == "missing" else record(envelope.facts, sent=pack({"message": {"0": torch.zeros(1)}}))

    content = secure(tmp_path, rounds=1, flower__wait_s=0.3) | {f"flower.{option}": "drop"}
    assert served(tmp_path, content, lie=lie).rounds[0]["clients"] == [0, 2, 3]
    stop = {**content, f"flower.{option}": "stop", "flower.out": str(tmp_path / "stop")}
    with pytest.raises(TrainingError, match=r"the node of client 1: .*flower.* = .drop. leaves such a client out"):
        served(tmp_path, stop, lie=lie)


@pytest.mark.parametrize("number", range(12))
def test_a_message_that_was_altered_is_one_line_at_most(number: int, tmp_path: Path) -> None:
    """Other bytes in the right place spoil the sum, which nobody sees; all else costs its author alone."""
    _, alter = alteration(random.Random(number))
    content = secure(tmp_path, rounds=1, flower__bad="drop", flower__missing="drop", flower__wait_s=0.2)
    try:
        with small():
            served(tmp_path, content, lie=lying("sum", lambda facts, trees: alter(facts, pack(trees))[1]))
    except FedskewError as error:
        assert str(error).isprintable() and len(str(error)) < 1000


def test_answers_that_are_added_up_go_with_no_drop(tmp_path: Path) -> None:
    for option in ("missing", "bad"):
        said = f"flower.{option} must not be drop with secure sums for ccvr, whose .* adds up answers before training"
        with pytest.raises(ConfigError, match=said):
            served(tmp_path, secure(tmp_path, "ccvr") | {f"flower.{option}": "drop"})


# A server that goes, or asks again


def keys_in(told: list[Any]) -> list[bytes]:
    """The public keys of each sum."""
    messages = [one.trees["message"] for one in told if one.facts.get("phase") == "advertise"]
    return [next(iter(message.values())).numpy().tobytes() for message in messages]


def test_a_sum_that_was_begun_is_begun_anew_with_other_keys(tmp_path: Path) -> None:
    content = secure(tmp_path, rounds=3, checkpoint_every=1)
    each = 4 * (1 + 2 * len(PHASES))  # messages of a round
    first, then = list[Any](), list[Any]()
    stop = interrupting(4 + each + 4 * 7)  # in the second sum of round 2, before its masks
    served(tmp_path, content, lie=heard(first), watch=stop)
    assert len((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()) == 1
    found = served(tmp_path, content, lie=heard(then))
    assert gap(found.params, alone(content).params) < 1e-6
    before, after = keys_in(first), keys_in(then)
    assert len(before) == 4 * 4 and len(after) == 4 * 4 and len({*before, *after}) == len(before) + len(after)


@pytest.mark.parametrize("phase", PHASES)
def test_no_phase_is_answered_twice(phase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a server says that it is: a new message, in the same session, of the same sum."""
    message = Link.message

    def spaced(link: Link, *args: Any, **more: Any) -> Any:
        link.turn += 1
        return message(link, *args, **more)

    monkeypatch.setattr(Link, "message", spaced)
    content = secure(tmp_path, rounds=1)
    grid = Grid(4, content, tmp_path)
    pushed, said = grid.push_messages, []

    def push(messages: Any) -> Any:
        messages = list(messages)
        names = pushed(messages)
        for one in messages:
            sealed = opened(one.content)
            if one.metadata.dst_node_id == NODES + 1 and sealed.facts.get("phase") == phase:
                one.content = record({**sealed.facts, "turn": sealed.facts["turn"] + 1}, **sealed.parts)
                (again,) = pushed([one])
                (reply,) = grid.pull_messages([again])
                said.append(read(reply.content))
        return names

    grid.push_messages = push  # type: ignore[method-assign]
    with pytest.raises(TrainingError) if phase in ("share", "masked") else nullcontext():  # it has left the sum
        serve.serve(grid, content)
    assert said and not any(one.trees for one in said)
    told = "be taken once in a run of the server" if phase == "advertise" else "once, in order"
    assert all(told in one.facts["error"] for one in said)


def test_what_stays_the_same_is_added_up_over_the_same_nodes(tmp_path: Path) -> None:
    """Else the difference of two sums is the histogram of one node."""
    content = secure(tmp_path, "fedir", rounds=1, flower__missing="drop", flower__wait_s=0.3)
    served(tmp_path, content)
    for out in ("run", "again/run"):  # a server that begins anew, and one that goes on
        again = {**content, "rounds": 2, "flower.out": str(tmp_path / out)}
        said = "a sum of counts must be over the clients of the first one, or differ from it by 3 or more; got \\[1\\]"
        with pytest.raises(TrainingError, match=said):
            served(tmp_path, again, lie=silent(1, "masked", ("counts",), number=0))
        assert len(served(tmp_path, again).rounds) == 2


# What a node insists on


def test_a_node_for_secure_sums_is_in_no_other_run(tmp_path: Path) -> None:
    said = "the node of client 1 must agree with the server: secure must be sums for this node"
    with pytest.raises(ConfigError, match=said):
        served(tmp_path, config(tmp_path, "fedavg"), nodes={1: {"secure": 3}})
    said = "the node of client 1 must agree with the server: secure of this node must be at least 3 for this run; got 0"
    with pytest.raises(ConfigError, match=said):
        served(tmp_path, secure(tmp_path), nodes={1: {"secure": 0}})
    with pytest.raises(ConfigError, match="secure must be 0, or at least 3 clients of a sum; got 2"):
        served(tmp_path, secure(tmp_path), nodes={1: {"secure": 2}})
    assert not (tmp_path / "run").exists()


def test_a_node_insists_on_its_own_number_of_clients(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="the node of client 1: least must be a whole number from 5 to 4; got 3"):
        served(tmp_path, secure(tmp_path), nodes={1: {"secure": 5}})


def changed(change: Callable[[dict[str, Any]], None]) -> Any:
    """A server that alters the facts of its messages of a sum."""

    def message(link: Link, node: int, life: str, request: Any, at: int = -1) -> Any:
        facts = dict(request.facts)
        if facts["kind"] == "sum":
            change(facts)
        return ours(link, node, life, request._replace(facts=facts), at)

    ours = Link.message
    return message


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "threshold": (lambda facts: facts.update(least=2), "least must be a whole number from 3 to 4; got 2"),
    "half": (lambda facts: facts.update(least=3, of=6), "fewer than 6 clients, twice its threshold; got 6"),
    "round": (lambda facts: facts.update(place=[9, *facts["place"][1:]]), "must hold what is added up, of"),
    "place": (lambda facts: facts.update(place="update"), "the place of a secure sum must be a round"),
    "stage": (lambda facts: facts.update(place=[1, "weights", 1]), "must be of the sums before it"),
    "name": (lambda facts: facts.update(place=[1, "fedsam", "answer"]), "must hold what is added up, of"),
    "phase": (lambda facts: facts.update(phase="again"), "must be one of advertise, share, masked, unmask"),
    "sum": (lambda facts: facts.update(sum="0" * 32 if facts["phase"] == "share" else facts["sum"]), "no such sum"),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGES)
def test_a_server_that_asks_for_another_sum_is_refused(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, said = CHANGES[case]
    monkeypatch.setattr(Link, "message", changed(change))
    clients = 6 if case == "half" else 4
    with pytest.raises(TrainingError) as error:
        served(tmp_path, secure(tmp_path, clients=clients, cohort=clients))
    assert said in str(error.value) and "\n" not in str(error.value)


def test_a_node_for_secure_sums_answers_nothing_else(tmp_path: Path) -> None:
    kept: list[Any] = []
    grid = Grid(4, secure(tmp_path, rounds=1), tmp_path, watch=kept.extend)
    serve.serve(grid, grid.config)
    last, sealed = kept[-1], opened(kept[-1].content)
    for kind in ("evaluate", "personal", "fit", "own"):
        last.content = record({**sealed.facts, "turn": sealed.facts["turn"] + 9, "kind": kind}, **sealed.parts)
        (reply,) = grid.pull_messages(grid.push_messages([last]))
        assert "the kind of a message must be one of train, ask, sum; got" in read(reply.content).facts["error"]


def test_the_columns_of_one_node_are_not_asked_for(tmp_path: Path) -> None:
    said = "flower.encoding must be example with secure sums: nodes would tell sums over their own rows"
    with pytest.raises(ConfigError, match=said):
        content = secure(tmp_path) | {"flower.encoding": "nodes"}
        serve._node(json.dumps([content, {"client": 0, "secure": 3}, ".", None]), experiment_of)


# What comes to the server


class Watched:
    """A run, all that came to its server, all that this has kept and logged, and what each client had to hide."""

    def __init__(self, folder: Path, content: dict[str, Any], monkeypatch: pytest.MonkeyPatch, log: Any) -> None:
        self.secrets: dict[str, Any] = {}
        received: list[bytes] = []
        run = lib.ClientEngine.run

        def spy(engine: Any, method: Any, job: Any) -> Any:
            outcome, fault = run(engine, method, job)
            k, number = job.plan.client, int(job.job.shared.round)
            self.secrets[f"histogram {k}"] = job.plan.used
            for name, leaf in outcome.params.items():
                self.secrets[f"{name} {k} {number}"] = leaf
                self.secrets[f"update of {name} {k} {number}"] = leaf[0] - job.job.shared.params[name]
            return outcome, fault

        def look(client: int, reply: Any) -> Any:
            sealed = opened(reply)
            received.append(json.dumps(sealed.facts).encode())
            received.extend(part for packed in sealed.parts.values() for part in (packed.leaves.encode(), packed.data))
            return reply

        monkeypatch.setattr(lib.ClientEngine, "run", spy)
        self.result = served(folder, content, lie=look)
        kept = [path.read_bytes() for path in (folder / "run").rglob("*") if path.is_file()]
        logged = [one.getMessage().encode() for one in log.records]
        self.seen = {"received": b"\n".join(received), "kept": b"\n".join(kept), "logged": b"\n".join(logged)}

    def found(self) -> set[tuple[str, str]]:
        """(what a client had to hide, where it stands at the server)."""
        return {
            (name.partition(" ")[0], where)
            for name, values in self.secrets.items()
            for where, seen in self.seen.items()
            if any(form in seen for form in forms(values))
        }


@pytest.mark.parametrize("method", ["fedla", "fedir"])
def test_nothing_of_one_client_comes_to_the_server(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No histogram, no update and no model of a client, in bytes of any form, is received, kept or logged."""
    caplog.set_level(logging.DEBUG)
    watched = Watched(tmp_path, secure(tmp_path, method, checkpoint_every=1), monkeypatch, caplog)
    assert len(watched.secrets) == 4 + 4 * 2 * 2 * 2 and len(watched.seen["received"]) > 50_000
    assert watched.found() == set()
    whole = sum(np.asarray(v) for name, v in watched.secrets.items() if name.startswith("histogram")).tolist()
    assert whole == [int(n) for n in whole]


def test_the_same_search_finds_them_in_a_plain_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = Watched(tmp_path, secure(tmp_path, secure="none"), monkeypatch, caplog).found()
    assert {("histogram", "received"), ("fc.weight", "received")} <= found


def test_a_hello_tells_no_rows(tmp_path: Path) -> None:
    told: list[Any] = []
    served(tmp_path, secure(tmp_path, rounds=1, local_test=0.2), lie=heard(told))
    hellos = [one.facts for one in told if one.facts["kind"] == "hello"]
    assert [(one["rows"], one["test_rows"]) for one in hellos] == [(1, 0)] * 4
    assert not any({"counts", "labels", "columns"} & one.keys() for one in hellos)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["disclosed"] == []


def test_a_receipt_does_not_tell_what_can_be_guessed(tmp_path: Path) -> None:
    memory = {"part": {"rows": torch.tensor([3, 0, 7])}}
    template = tree.zeros_like(memory)
    one, other = (NodeMemory(tmp_path / name, template, salted=True) for name in "ab")
    receipts = [kept.save(memory) for kept in (one, other)]
    assert len({*receipts, receipt_of(memory)}) == 3
    assert torch.equal(one.load(receipts[0])["part"]["rows"], memory["part"]["rows"])


def test_a_number_outside_the_range_is_not_quoted(tmp_path: Path) -> None:
    with pytest.raises(TrainingError) as error:
        served(tmp_path, secure(tmp_path, lr=1e13))
    said = "its data do not fit; the node's own log says more, and tells it here with trace=true"
    assert said in str(error.value) and "e+" not in str(error.value)
