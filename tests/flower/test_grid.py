"""Every method over Flower's messages gives the bytes of the engine sequential; what does not fit is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fedskew.errors import ConfigError, TrainingError
from fedskew.flower import serve
from fedskew.flower.wire import read
from fedskew.methods import METHODS
from support.flower_grid import Grid, alone, bits, config, interrupting, plain, served

pytestmark = pytest.mark.flower
SIX = ("fedavg", "scaffold", "fedgc", "astraea", "creff", "pfedme")  # plain, memory, written back, chains, probes, own
OTHERS = [name for name in METHODS if name not in SIX]


def same_as_sequential(tmp_path: Path, content: dict[str, Any], **options: Any) -> Any:
    expected = alone(content)
    found = served(tmp_path, content, **options)
    assert bits(found) == bits(expected)
    ours, others = plain(found.rounds), plain(expected.rounds)
    # nodes' sums are pooled: in another order, with AVX-512 other bits
    for row, other in zip(ours, others, strict=True):
        assert row.pop("local_loss", 0.0) == pytest.approx(other.pop("local_loss", 0.0), rel=1e-12)
    assert ours == others
    others = {row["client"]: row for row in expected.client_rows}  # nodes send a matrix and a loss alone
    for row in found.client_rows:
        assert row.pop("loss") == pytest.approx(others[row["client"]]["loss"], rel=1e-12)
        assert row.items() <= others[row["client"]].items()
    return found


@pytest.mark.parametrize("method", SIX)
def test_a_method_gives_the_bytes_of_sequential(method: str, tmp_path: Path) -> None:
    assert same_as_sequential(tmp_path, config(tmp_path, method)).client_rows


def test_a_client_that_is_drawn_twice_counts_twice(tmp_path: Path) -> None:
    content = config(tmp_path, "clusteredsampling", selector__clusters="none", cohort=4, rounds=1)
    assert same_as_sequential(tmp_path, content).rounds[0]["clients"] == [2, 2, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize("method", OTHERS)
def test_every_other_method_gives_the_bytes_of_sequential(method: str, tmp_path: Path) -> None:
    same_as_sequential(tmp_path, config(tmp_path, method, model="mlp"))


@pytest.mark.parametrize("method", ["scaffold", "fedbn"])
def test_a_convolutional_network_with_statistics_gives_the_bytes_too(method: str, tmp_path: Path) -> None:
    same_as_sequential(tmp_path, config(tmp_path, method, model="resnet20", rounds=2, cohort=2))


@pytest.mark.parametrize("method", ["fedper", "fedbabu"])
def test_what_stays_on_a_client_is_in_no_message(method: str, tmp_path: Path) -> None:
    seen: list[set[str]] = []

    def look(client: int, content: Any) -> Any:
        trees = read(content).trees
        if "sent" in trees:
            seen.append(set(trees["sent"]["params"]))
        return content

    same_as_sequential(tmp_path, config(tmp_path, method, model="mlp"), lie=look)
    assert len(seen) == 9 and set.union(*seen) == {"hidden1.weight", "hidden1.bias"}


@pytest.mark.parametrize(
    "more",
    [
        {"validation": 0.1, "local_test": 0.2, "clients": 4},
        {"dtype": "float64"},
        {"nonfinite": "drop", "eval_every": 2},
        {"server": "adam", "weighting": "uniform"},
        {"scores": "every", "personal_every": 1},
    ],
)
def test_options_of_a_run_mean_the_same(more: dict[str, Any], tmp_path: Path) -> None:
    same_as_sequential(tmp_path, config(tmp_path, "scaffold", **more))


def test_a_run_that_was_stopped_goes_on_from_the_servers_checkpoint(tmp_path: Path) -> None:
    content = config(tmp_path, "scaffold", rounds=6, checkpoint_every=2)
    whole = alone(content)
    served(tmp_path, content, watch=interrupting(4 + 3 * 4))  # in round 5, after the checkpoint of round 4
    assert len((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()) == 4
    found = served(tmp_path, content)
    assert bits(found) == bits(whole)
    assert plain(found.rounds) == plain(whole.rounds)
    assert served(tmp_path, content) is None  # it is finished


def test_a_server_that_goes_back_to_an_older_checkpoint_finds_the_memory_of_that_time(tmp_path: Path) -> None:
    content = config(tmp_path, "scaffold", rounds=3, checkpoint_every=1)
    served(tmp_path, content)
    shutil.copytree(tmp_path / "run", tmp_path / "older")
    longer = {**content, "rounds": 6, "checkpoint-every": 3}
    whole = served(tmp_path, longer)
    shutil.rmtree(tmp_path / "run")
    shutil.copytree(tmp_path / "older", tmp_path / "run")
    # the nodes hold memories of rounds 4 to 6 beside those of the last two checkpoints, of which round 3 is one
    assert bits(served(tmp_path, longer)) == bits(whole)


def test_memory_that_was_lost_or_altered_is_found_out(tmp_path: Path) -> None:
    content = config(tmp_path, "scaffold", rounds=2, checkpoint_every=1)
    served(tmp_path, content)
    files = sorted((tmp_path / "state").rglob("memory-*.safetensors"))
    assert files
    raw = bytearray(files[0].read_bytes())
    raw[-1] ^= 1
    for file in files:
        file.write_bytes(raw)
    with pytest.raises(TrainingError, match=r"damaged|altered"):
        served(tmp_path, {**content, "rounds": 3})
    for file in files:
        file.unlink(missing_ok=True)
    with pytest.raises(TrainingError, match="must hold what this client kept; it is missing"):
        served(tmp_path, {**content, "rounds": 3})


# permits


def test_a_node_that_tells_only_its_size_trains_a_method_that_asks_no_more(tmp_path: Path) -> None:
    content = config(tmp_path, "fedprox")
    expected = alone(content)
    found = served(tmp_path, content, nodes={k: {"allow": "none"} for k in range(4)})
    assert bits(found) == bits(expected)
    assert "head_accuracy" not in found.rounds[-1], "the server cannot know which classes are rare"


@pytest.mark.parametrize(
    ("method", "permit"),
    [("fedla", "histogram"), ("fedgc", "labels"), ("powerofchoice", "loss"), ("creff", "probe")],
)
def test_a_node_that_forbids_what_a_method_needs_is_told_before_training(
    method: str, permit: str, tmp_path: Path
) -> None:
    allowed = ",".join(p for p in ("histogram", "labels", "loss", "probe") if p != permit)
    allowed = "loss, probe" if permit == "labels" else allowed
    content = config(tmp_path, method)
    with pytest.raises(ConfigError, match=f"node 'ours' \\(client 2\\) must allow {permit} .* for {method}"):
        served(tmp_path, content, nodes={2: {"allow": allowed, "name": "ours"}})
    assert not (tmp_path / "run").exists()


def test_labels_alone_are_enough_for_fedgc(tmp_path: Path) -> None:
    found = served(tmp_path, config(tmp_path, "fedgc"), nodes={k: {"allow": "labels"} for k in range(4)})
    assert len(found.rounds) == 3


# what does not fit


def test_a_run_that_becomes_infinite_says_so_as_every_engine_does(tmp_path: Path) -> None:
    content = config(tmp_path, lr=1e30, model="mlp")
    with pytest.raises(TrainingError) as expected:
        alone(content)
    with pytest.raises(TrainingError) as found:
        served(tmp_path, content)
    assert str(found.value) == str(expected.value)


def test_a_node_that_does_not_answer_is_dropped_or_stops_the_run(tmp_path: Path) -> None:
    def silent(client: int, content: Any) -> Any:
        return None if client == 2 and read(content).facts["kind"] == "train" else content

    content = config(tmp_path, cohort=4, rounds=2, flower__wait_s=0.3, flower__missing="drop")
    found = served(tmp_path, content, lie=silent)
    assert [[d["client"] for d in row["dropped"]] for row in found.rounds] == [[2], [2]]
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(TrainingError, match=r"the node of client 2: no answer in 0.3 s; flower.missing"):
        served(tmp_path, {**content, "flower.missing": "stop"}, lie=silent)


def test_a_node_that_goes_and_comes_is_waited_for(tmp_path: Path) -> None:
    content = config(tmp_path, "scaffold", cohort=4, rounds=3, flower__wait_s=0.2)
    expected = alone(content)
    left = [3]

    def losing(client: int, content: Any) -> Any:
        if client == 1 and read(content).facts["kind"] == "train" and left[0]:
            left[0] -= 1  # trained, and its memory written, but the answer is lost
            return None
        return content

    assert bits(served(tmp_path, content, lie=losing)) == bits(expected)
    assert not left[0]


def test_a_message_that_is_sent_again_by_another_is_refused(tmp_path: Path) -> None:
    content = config(tmp_path, rounds=1)
    kept: list[Any] = []
    grid = Grid(4, content, tmp_path, watch=kept.extend)
    serve.serve(grid, content)
    again = next(m for m in kept if m.metadata.message_type == "train")
    for begun in (False, True):  # nor after the server has begun again
        if begun:
            shutil.rmtree(tmp_path / "run")
            served(tmp_path, content)
        (reply,) = grid.pull_messages(grid.push_messages([again]))
        assert "was answered before" in read(reply.content).facts["error"]


@pytest.mark.parametrize("entry", ["fedskew", "format", "method", "model", "classes", "shape"])
def test_a_node_that_does_not_agree_is_refused_before_training(
    entry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedskew.flower.node import Node

    ours = Node.contract.func  # type: ignore[attr-defined]

    def other(node: Node) -> dict[str, Any]:
        return ours(node) | ({entry: ["other"]} if node.client == 1 else {})

    monkeypatch.setattr(Node, "contract", property(other))
    serve._node.cache_clear()
    with pytest.raises(ConfigError, match=f"node .* must agree with the server: {entry} is .* at the node"):
        served(tmp_path, config(tmp_path))
    assert not (tmp_path / "run").exists()


def test_a_node_that_cannot_write_its_state_is_refused_by_the_number_of_its_client(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = "the node of client 1 must agree with the server: cannot write"
    with pytest.raises(ConfigError, match=told):
        served(tmp_path, config(tmp_path), nodes={1: {"state": str(tmp_path / "file")}})


# records and messages


def test_the_record_says_who_trained(tmp_path: Path) -> None:
    served(tmp_path, config(tmp_path, "fedla"))
    held = json.loads((tmp_path / "run" / "config.json").read_text())
    assert held["engine_used"] == "flower"
    assert held["disclosed"] == ["histogram"]


def test_the_commands_read_the_folder_as_any_other(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What repeats the run here is the engine whose bytes it has; what would go on without its nodes is refused."""
    from support.command import fedskew

    served(tmp_path, config(tmp_path, "scaffold", rounds=2))
    run, again = tmp_path / "run", tmp_path / "again"
    assert fedskew("show", run) == 0 and fedskew("evaluate", run) == 0
    assert fedskew("report", run, "--out", tmp_path / "page.html") == 0
    said = capfd.readouterr()
    assert "again: fedskew run --from" in said.out and "not one of this fedskew" not in said.out
    assert fedskew("run", "--from", run, "--out", again) == 0
    assert (run / "final.safetensors").read_bytes() == (again / "final.safetensors").read_bytes()
    capfd.readouterr()
    assert fedskew("run", "--resume", run, "--rounds", 3) == 2
    assert "whose nodes keep their memory; `sh run.sh` in the folder of its app does" in capfd.readouterr().err


def test_a_message_of_another_program_is_refused(tmp_path: Path) -> None:
    from flwr.app import ConfigRecord, RecordDict

    for content in (RecordDict(), RecordDict({"fedskew": ConfigRecord({"format": 9})}), None):
        with pytest.raises(ConfigError, match="a message must"):
            read(content)
