"""What one registered node can do to a run by the content of its messages: it costs its own client, or ends the run."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from fedskew.errors import FedskewError, TrainingError
from fedskew.flower import serve
from fedskew.flower.wire import Packed, pack
from support.flower_grid import Grid, bits, config, plain, served
from support.lies import LIAR, Change, lying, other_facts, small

pytestmark = pytest.mark.flower


def dropping(folder: Path, method: str = "fedavg", **more: Any) -> dict[str, Any]:
    usual = {"cohort": 4, "rounds": 2, "flower__bad": "drop", "flower__wait_s": 0.4}
    return config(folder, method, **usual | more)


@pytest.fixture(scope="module")
def without_liar(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The run in which each of the client's trained models is refused for one plain reason."""
    folder = tmp_path_factory.mktemp("plain")
    return served(folder, dropping(folder), lie=lying("train", other_facts(steps=-1)))


# the pooled metric


def gone_round(facts: dict[str, Any], trees: dict[str, Any]) -> None:
    """Entries of 2**62 whose int64 sum comes round to the declared number."""
    rows = int(trees["matrix"].sum())
    trees["matrix"] = torch.full((10, 10), 0, dtype=torch.int64)
    trees["matrix"][0, :4] = 1 << 62
    trees["matrix"][0, 0] += rows


def more_rows(facts: dict[str, Any], trees: dict[str, Any]) -> None:
    trees["matrix"] = torch.zeros(10, 10, dtype=torch.int64)
    trees["matrix"][0, 1] = 10**9


def other_classes(facts: dict[str, Any], trees: dict[str, Any]) -> None:
    trees["matrix"] = trees["matrix"].roll(1, 0)


METRICS: dict[str, tuple[Change, str]] = {
    "gone round": (gone_round, "must count its"), "more rows": (more_rows, "must count its"),
    "endless loss": (other_facts(loss="inf"), "loss must be a finite number"),
    "loss below zero": (other_facts(loss="-0x1p+300"), "its mean loss must be a number from 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", METRICS)
def test_a_matrix_that_does_not_fit_the_hello_is_in_no_pooled_metric(name: str, tmp_path: Path) -> None:
    lie, reason = METRICS[name]
    tested = {"cohort": 4, "rounds": 2, "local_test": 0.3, "validation": 0.1}
    shy = {LIAR: {"allow": "histogram"}}  # it permits no metrics, so it is in none
    expected = served(tmp_path, config(tmp_path, **tested, flower__out=str(tmp_path / "shy")), nodes=shy)
    content = config(tmp_path, **tested, flower__bad="drop")
    found = served(tmp_path, content, lie=lying("evaluate", lie))
    for row, other in zip(found.rounds, expected.rounds, strict=True):
        assert [(d["client"], reason in d["tensor"]) for d in row["dropped"]] == [(LIAR, True)]
        assert row["local_accuracy"] == other["local_accuracy"] and row["local_loss"] == other["local_loss"]
    assert bits(found) == bits(expected), "it takes part in training still"
    stop = {**content, "flower.bad": "stop", "flower.out": str(tmp_path / "stop")}
    with pytest.raises(FedskewError, match=f"the node of client 1: .*{reason}"):
        served(tmp_path, stop, lie=lying("evaluate", lie))


def test_test_rows_stay_what_they_were(tmp_path: Path) -> None:
    content = config(tmp_path, cohort=4, rounds=3, local_test=0.3, flower__bad="drop")
    rows = served(tmp_path, content, lie=lying("evaluate", other_classes, first=1)).rounds
    assert [bool(row.get("dropped")) for row in rows] == [False, True, True]
    assert "the test rows of each class that it had before" in rows[1]["dropped"][0]["tensor"]


def test_a_node_that_nobody_believes_a_metric_leaves_none_ends_the_run_in_one_line(tmp_path: Path) -> None:
    content = config(tmp_path, cohort=4, local_test=0.3, flower__bad="drop")
    with pytest.raises(FedskewError, match="at least one node must send a usable metric; got none of 1 in round 1"):
        nodes = {k: {"allow": "histogram"} for k in range(4) if k != LIAR}
        served(tmp_path, content, nodes=nodes, lie=lying("evaluate", more_rows))


# what is trained


def expanded(shape: list[int], strides: list[int]) -> Change:
    """An upload that nobody asked for, of few bytes and many elements."""

    def change(facts: dict[str, Any], trees: dict[str, Any]) -> Packed:
        packed = pack(trees)
        leaves = json.loads(packed.leaves)
        leaves.append([["sent", "uploads", "more", "w"], "float32", shape, strides, 0])
        return Packed(json.dumps(leaves), packed.data + bytes(4))

    return change


def added(path: list[str]) -> Change:
    """A leaf at a path of the author's own."""

    def change(facts: dict[str, Any], trees: dict[str, Any]) -> Packed:
        packed = pack(trees)
        leaves = [*json.loads(packed.leaves), [path, "float32", [1], [1], 0]]
        return Packed(json.dumps(leaves), packed.data + bytes(4))

    return change


def extra_upload(facts: dict[str, Any], trees: dict[str, Any]) -> None:
    trees["sent"]["uploads"] = {**trees["sent"]["uploads"], "scaffold": {"w": torch.zeros(1, 3)}}


def reported(name: str, value: float) -> Change:
    def change(facts: dict[str, Any], trees: dict[str, Any]) -> None:
        trees["sent"]["report"][name] = torch.full_like(trees["sent"]["report"][name], value)

    return change


def nothing(facts: dict[str, Any], trees: dict[str, Any]) -> Packed:
    return pack({})


def nan(facts: dict[str, Any], trees: dict[str, Any]) -> None:
    params = trees["sent"]["params"]
    params.update({n: torch.full_like(p, float("nan")) for n, p in params.items()})


def wrong_shape(facts: dict[str, Any], trees: dict[str, Any]) -> None:
    params = trees["sent"]["params"]
    params.update({n: p[..., :-1] for n, p in params.items()})


def lost_name(facts: dict[str, Any], trees: dict[str, Any]) -> None:
    trees["sent"]["params"].popitem()


def late(facts: dict[str, Any], trees: dict[str, Any]) -> None:
    facts["turn"] -= 1


def fewer_steps(facts: dict[str, Any], trees: dict[str, Any]) -> None:
    facts["steps"] -= 1


TRAINED: dict[str, tuple[Change, str]] = {
    "stride 0": (expanded([1, 1 << 37], [0, 0]), "its own bytes for each element"),
    "overlap": (expanded([1 << 18, 1 << 18], [1, 1]), "its own bytes for each element"),
    "no element": (expanded([1 << 40, 0], [1, 1]), "its own bytes for each element"),
    "upload": (extra_upload, "sent.uploads.scaffold.w must be nothing; got torch.float32 (1, 3)"),
    "below a leaf": (added(["sent", "params", "fc.weight", "more"]), "stands below another"),
    "twice": (added(["sent", "params", "fc.weight"]), "named twice"),
    "no name": (added([]), "must have a name"),
    "empty name": (added(["sent", ""]), "`str` of length >= 1"),
    "deep": (added(["a"] * 1000), "`array` of length <= 16"),
    "long name": (added(["sent", "a" * 1_000_000]), "`str` of length <= 200"),
    "nothing": (nothing, "must be torch.float32 (1, 10, 64); got nothing"),
    "lost name": (lost_name, "must be torch.float32 (1, 10); got nothing"),
    "shape": (wrong_shape, "must be torch.float32"),
    "late": (late, "is to another message"), "fewer steps": (fewer_steps, "what it trained must be"),
    "steps": (other_facts(steps=float("nan")), "steps must be a whole number"),
    "digits": (other_facts(steps=10**4000), "steps must be a whole number"),
    "samples": (other_facts(samples=-5), "samples must be a whole number"),
    "receipt": (other_facts(receipt="../" * 10), "a receipt must have 32 hex digits"),
    "needless receipt": (other_facts(receipt="0" * 32), "its receipt must be empty, as the method keeps nothing"),
    "client": (other_facts(client=10**12), "the answer is of client"),
    "fault": (other_facts(fault={"step": 10**9, "tensor": "loss", "value": "nan"}), "step must be a whole number"),
    "no fault": (other_facts(fault={"step": 1, "tensor": "loss", "value": "1" * 10**6}), "must be not finite"),
    "error": (other_facts(error="x\nround 9 \x1b[2J" * 100_000), "x round 9 \\x1b[2J"),
    "endless loss": (reported("loss", float("nan")), "the report's loss must be finite"),
    "not finite": (nan, "parameter"),
}  # fmt: skip


@pytest.mark.parametrize("name", TRAINED)
def test_an_answer_of_no_use_costs_its_author_alone(name: str, without_liar: Any, tmp_path: Path) -> None:
    change, reason = TRAINED[name]
    with small():
        found = served(tmp_path, dropping(tmp_path), lie=lying("train", change))
    assert bits(found) == bits(without_liar)
    ours, others = plain(found.rounds), plain(without_liar.rounds)
    for row in [*ours, *others]:
        row["dropped"] = [d["client"] for d in row["dropped"]]
    assert ours == others
    for row in found.rounds:
        (one,) = row["dropped"]
        assert one["client"] == LIAR and reason in one["tensor"]
        assert len(one["tensor"]) < 500 and one["tensor"].isprintable()
    with pytest.raises(FedskewError) as ended:
        served(tmp_path, dropping(tmp_path, flower__bad="stop", flower__out=str(tmp_path / "stop")),
               lie=lying("train", change))  # fmt: skip
    said = str(ended.value)
    assert "client 1" in said and reason in said and "\n" not in said and len(said) < 700


def test_an_update_that_is_not_finite_goes_by_the_runs_own_rule(tmp_path: Path) -> None:
    content = config(tmp_path, cohort=4, rounds=2)
    with pytest.raises(TrainingError, match=r"parameter .* is not finite at client 1"):
        served(tmp_path, content, lie=lying("train", nan))
    found = served(
        tmp_path, {**content, "nonfinite": "drop", "flower.out": str(tmp_path / "drop")}, lie=lying("train", nan)
    )
    assert [[d["client"] for d in row["dropped"]] for row in found.rounds] == [[LIAR], [LIAR]]


def test_the_others_are_not_asked_again_when_one_is_dropped(tmp_path: Path) -> None:
    content = dropping(tmp_path, rounds=1)
    grid = Grid(4, content, tmp_path, lie=lying("train", wrong_shape))
    serve.serve(grid, content)
    assert sorted(k for k, kind in grid.pushed if kind == "train") == [0, 1, 2, 3]


@pytest.mark.parametrize("method", ["scaffold", "creff", "powerofchoice", "climb", "ccvr"])
def test_uploads_and_values_of_another_shape_cost_their_author_alone(method: str, tmp_path: Path) -> None:
    """The liar is the first of the cohort, whose shape nobody takes for that of the others."""

    def narrow(tree: Any) -> Any:
        return {n: narrow(v) for n, v in tree.items()} if isinstance(tree, dict) else tree[..., :1]

    def wrong(facts: dict[str, Any], trees: dict[str, Any]) -> None:
        if "values" in trees:
            plain = isinstance(trees["values"], torch.Tensor)
            trees["values"] = trees["values"].double().repeat(2) if plain else narrow(trees["values"])
        else:
            trees["sent"]["uploads"] = narrow(trees["sent"]["uploads"])

    lie = lying("train" if method == "scaffold" else "ask", wrong)
    content = dropping(tmp_path, method)
    found = served(tmp_path, content, lie=lambda k, c: lie(1 if k == 0 else 0, c))
    assert [d["client"] for d in found.rounds[0]["dropped"]] == [0]


def test_details_of_a_mistake_forge_no_line_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "flwr")
    details = "Traceback\nfedskew: round 1 {}\r\x1b[2J" + "y" * 10**6

    def lie(facts: dict[str, Any], trees: dict[str, Any]) -> None:
        facts.update(error="no", trace=details)

    served(tmp_path, dropping(tmp_path), lie=lying("train", lie))
    shown = [record.getMessage() for record in caplog.records]
    assert all(line.isprintable() for line in shown)
    assert sum(map(len, shown)) < 50_000
    assert not [line for line in shown if line.startswith("fedskew: round 1 {}")]


# the hello


def introduced(**more: Any) -> Any:
    return lying("hello", other_facts(**more))


HELLOS: dict[str, tuple[dict[str, Any], str]] = {
    "rows": ({"rows": 10**10, "counts": [10**10, *[0] * 9]}, "must have at most 10000000 rows"),
    "test rows": ({"test_rows": 10**10}, "must have at most 10000000 test_rows"),
    "negative": ({"rows": -1}, "must say who it is: rows must be a whole number"),
    "digits": ({"rows": 10**4000}, "must say who it is: rows must be a whole number"),
    "truth": ({"rows": True}, "must say who it is: rows must be a whole number"),
    "client": ({"client": 10**9}, "client must be a whole number from 0 to 3"),
    "below": ({"client": -3}, "client must be a whole number from 0 to 3"),
    "name": ({"name": ["x"]}, "name must be a text"),
    "permits": ({"permits": ["everything"]}, "permits must be a list of"),
    "no permits": ({"permits": None}, "must say who it is: permits must be a list of"),
    "no number": ({"client": "one"}, "must say who it is: client must be a whole number"),
    "counts": ({"counts": [1] * 10**5}, "must tell 10 counts"), "words": ({"counts": "many"}, "must tell 10 counts"),
    "sums": ({"counts": [1 << 63, -(1 << 63), *[0] * 8]}, "must tell 10 counts"),
    "labels": ({"counts": None, "labels": [0] * 100}, "must tell which of 10 classes"),
    "no labels": ({"counts": None, "labels": []}, "must tell which of 10 classes its"),
    "contract": ({"fatal": True, "differs": "a\nb\x1b[2J" * 10**5}, "must agree with the server: a b\\x1b[2J"),
}  # fmt: skip


@pytest.mark.parametrize("name", HELLOS)
def test_a_hello_that_cannot_be_costs_its_client_alone(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The others train without it, as if its client had no rows; under stop the run ends before it begins."""
    caplog.set_level(logging.WARNING, "flwr")
    change, reason = HELLOS[name]
    with pytest.raises(FedskewError) as ended, small():
        served(tmp_path, config(tmp_path, flower__wait_s=0.3), lie=introduced(**change))
    assert reason in str(ended.value) and "\n" not in str(ended.value) and len(str(ended.value)) < 700
    assert not (tmp_path / "run").exists()
    if "client" in change:
        return  # nobody knows whose place is empty: the run waits for that client, or ends
    with small():
        found = served(tmp_path, dropping(tmp_path), lie=introduced(**change))
    assert [row["clients"] for row in found.rounds] == [[0, 2, 3]] * 2
    said = " ".join(record.getMessage() for record in caplog.records)
    assert reason in said and said.isprintable() and "begins without clients [1]" in said


def test_a_client_beyond_the_federation_takes_the_place_of_nobody(tmp_path: Path) -> None:
    content = dropping(tmp_path, flower__missing="drop")
    with pytest.raises(FedskewError, match=r"nodes of all 4 clients must be there; those of \[1\] have not come"):
        served(tmp_path, content, lie=introduced(client=10**9))


def test_the_name_of_a_node_is_one_short_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "flwr")
    served(tmp_path, dropping(tmp_path, rounds=1), lie=introduced(name="a\n\x1b[31mround 1 {}\r" + "b" * 10**6))
    assert all(r.getMessage().isprintable() and len(r.getMessage()) < 1000 for r in caplog.records)


def test_more_rows_than_the_server_allows_are_an_option(tmp_path: Path) -> None:
    """Memory does not follow what a node claims, whatever is allowed."""
    counts = [10**10, *[0] * 9]
    content = dropping(tmp_path, flower__most_rows=1 << 40)
    with small():
        found = served(tmp_path, content, lie=introduced(rows=10**10, counts=counts))
    assert [[d["client"] for d in row["dropped"]] for row in found.rounds] == [[LIAR], [LIAR]]
    assert "offered must be numbers from 0 to" in found.rounds[0]["dropped"][0]["tensor"]
