"""A deployment on this machine: SuperLink and nodes are processes, which speak over TLS.

What a node may send that is of no use is tested without processes, in test_lies.py, and one that differs from the
server in test_grid.py. Nodes that are killed are in
tests/attack/test_flower_nodes.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.deployment import NODES, Deployment
from support.kills import alone, differs

pytestmark = pytest.mark.flower
CONFIG: dict[str, Any] = {
    "method": "scaffold", "data": "digits", "model": "logistic", "partition": "dirichlet", "partition.alpha": 0.5,
    "clients": NODES, "cohort": NODES, "rounds": 2, "epochs": 1, "checkpoint-every": 1,
}  # fmt: skip
WORDS = [f"--{name}={value}" for name, value in CONFIG.items() if name not in ("method", "clients")]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """One for all tests of this file, which leave its nodes as they were."""
    with Deployment(tmp_path_factory.mktemp("deployment"), "scaffold", *WORDS) as made:
        made.begin()
        yield made


def test_a_run_over_tls_has_the_bytes_of_sequential(deployment: Deployment, tmp_path: Path) -> None:
    said = deployment.ended(deployment.run("plain", seed=1), code=0)
    assert "round 2" in said and "Traceback" not in said
    assert differs(deployment.app / "plain", alone(tmp_path / "alone", {**CONFIG, "seed": 1})) == ""


def test_what_is_typed_a_second_time_says_what_stands_already(deployment: Deployment) -> None:
    said = deployment.output("sh", "register.sh")
    assert [line.split(": ")[1] for line in said.splitlines()] == ["it is registered already"] * NODES
    assert "node 0 runs already" in deployment.output("sh", "node.sh", 0, code=2)


def test_a_superlink_that_is_killed_and_begun_again_loses_nothing(deployment: Deployment, tmp_path: Path) -> None:
    options = {"seed": 2, "rounds": 3}
    first = deployment.run("killed", **options)
    deployment.until(lambda: deployment.rounds("killed") >= 1, "superlink")
    deployment.kill("superlink", alone=True)  # its server finds out by itself
    deployment.kill(first)
    deployment.until(lambda: deployment.free("killed"), "node-0")
    done = deployment.rounds("killed")
    deployment.superlink()
    said = deployment.ended(deployment.run("killed", name="again", **options))
    assert done < 3 and f"round {done + 1} " in said and "round 1 " not in said
    assert differs(deployment.app / "killed", alone(tmp_path / "alone", {**CONFIG, **options})) == ""


def test_a_node_that_is_not_registered_is_refused(deployment: Deployment) -> None:
    deployment.start("stranger", "sh", "node.sh", NODES, env={"AGAIN": "0", "ALLOW": "none"})
    said = deployment.ended("stranger")
    assert "Failed to activate SuperNode" in said


@pytest.mark.slow
def test_a_second_run_in_the_same_folder_is_refused_and_a_stopped_one_goes_on(
    deployment: Deployment, tmp_path: Path
) -> None:
    first = deployment.run("twice", seed=3, rounds=50)
    deployment.until(lambda: deployment.rounds("twice") >= 1, "superlink")
    said = deployment.ended(deployment.run("twice", name="second", seed=3, rounds=50))
    assert "twice is in use by process" in one_line(said, "is in use")
    deployment.stop(first)
    assert "Traceback" not in deployment.ended(first)
    deployment.until(lambda: not (deployment.app / "twice" / ".owner.json").exists(), "superlink")
    options = {"seed": 3, "rounds": deployment.rounds("twice") + 1}
    deployment.ended(deployment.run("twice", name="third", **options))
    assert differs(deployment.app / "twice", alone(tmp_path / "alone", {**CONFIG, **options})) == ""


def test_a_node_that_forbids_histograms_refuses_a_method_that_asks_for_them(deployment: Deployment) -> None:
    deployment.end("node-0")
    deployment.node(0, "none")
    said = deployment.ended(deployment.run("forbidden", method="fedla"), code=1)
    line = one_line(said, "must allow")
    assert "the node of client 0 must allow histogram (the rows of each class that the client holds) for fedla" in line
    assert not (deployment.app / "forbidden").exists()
    deployment.end("node-0")
    deployment.node(0)


@pytest.mark.slow
def test_nodes_with_tables_make_one_encoding_and_keep_their_own_models(tmp_path: Path) -> None:
    lines = [[f"{40 + 10 * k + i},{'fm'[i % 2]},{('ill', 'well')[i // 2 % 2]},{i // 3}" for i in range(30)]
             for k in range(2)]  # fmt: skip
    for name, rows in {"0": lines[0], "1": [line.replace("m", "x") for line in lines[1]], "example": lines[0]}.items():
        (tmp_path / f"{name}.csv").write_text("\n".join(["age,sex,label,patient", *rows]))
    words = ("--own-data", "--data", "csv", "--path", tmp_path / "example.csv", "--data.categories", "sex",
             "--split-by", "patient", "--encoding", "nodes", "--model", "logistic", "--rounds", 2, "--cohort", 2,
             "--keep-own", "true")  # fmt: skip
    with Deployment(tmp_path, "ditto", *words, nodes=2) as made:
        env = {k: {"DATA": str(tmp_path / f"{k}.csv"), "MORE": "local-test=0.3"} for k in range(2)}
        made.begin(allow=dict.fromkeys(range(2), "columns metrics"), env=env)
        said = made.ended(made.run("run"), code=0)
        assert "round 2" in said and "Traceback" not in said
        made.until(lambda: all("takes it out" in made.log(f"node-{k}") for k in range(2)), "superlink", 60)
        for k in range(2):
            out = tmp_path / f"own-{k}"
            assert "after round 2" in made.output("fedskew", "flower", "own", f"state/run/client-{k}", "--out", out)
            scores = made.output("fedskew", "evaluate", out, "--data", "csv", "--path", tmp_path / f"{k}.csv")
            assert "30 rows, accuracy" in scores
            made.output("fedskew", "evaluate", out, "--data", "csv", "--path", tmp_path / f"{1 - k}.csv")
        about = json.loads((tmp_path / "own-1" / "model.json").read_text())["inputs"]["encoding"]["columns"]
        assert [column["values"] for column in about] == [[], ["f", "m", "x"]]
        assert not (made.app / "run" / "own.safetensors").exists()


def one_line(said: str, words: str) -> str:
    """The only line with these words, of a run that ended without a traceback."""
    (line,) = [line for line in said.splitlines() if words in line]
    assert "Traceback" not in said and "round 1 " not in said
    return line


def test_processes_write_who_they_are(deployment: Deployment) -> None:
    """The guide ends them by these files, and so ends nobody else's."""
    homes = deployment.app / ".flwr"

    def runs(name: str) -> bool:
        program = b"superlink" if name == "server" else b"supernode"
        try:
            words = Path(f"/proc/{int((homes / name / 'pid').read_text())}/cmdline").read_bytes()
        except (OSError, ValueError):  # a node that is refused waits, and begins again
            return False
        return b"fedskew.flower.launcher\0" + program in words

    for name in ("server", *(f"node-{k}" for k in range(NODES))):
        deployment.until(lambda name=name: runs(name), "superlink")
