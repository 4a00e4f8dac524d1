"""Deployments of which each message, write and wait may go wrong (support/simulation.py). They need no Flower.

`make test` sends a thousand messages, `make test-all` a hundred thousand (tests/attack/test_simulation.py).
scripts/simulate.py replays a seed.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import fedskew.flower
from fedskew.errors import ConfigError
from fedskew.flower import serve
from fedskew.flower.exchange import Receipts, of_receipt, receipt_in, written_to
from fedskew.flower.wire import opened, pack, read, record
from support import flower_standin
from support.chance import Chance, Strike
from support.planted import PLANTED
from support.simulation import built, config_of, deployment, shortest, simulate, talk
from support.world import Died, World


def test_a_thousand_messages() -> None:
    reports = [simulate(seed) for seed in range(2)] + [talk(seed, questions=40) for seed in range(4)]
    assert not [(report.seed, report.wrong) for report in reports if report.wrong]
    assert sum(report.messages for report in reports) >= 1000
    assert sum(len(report.struck) for report in reports) >= 100


def test_a_schedule_gives_the_same_run_again_and_none_the_plain_one() -> None:
    first, second = simulate(5), simulate(5)
    third = simulate(5, first.struck)
    assert first.struck and replace(second, seconds=0) == replace(third, seconds=0) == replace(first, seconds=0)
    plain = simulate(5, [])
    assert not plain.struck and plain.lives <= 2 and plain.rounds == plain.config["rounds"]


def test_a_planted_fault_is_found_and_its_schedule_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED["forged-line"](monkeypatch)
    seed, found = next((seed, report) for seed in range(9) if (report := simulate(seed)).wrong)
    assert "a line of the log is forged" in found.wrong
    (strike,) = shortest(seed, found.struck)
    assert strike.kind == "error"


def test_one_file_of_the_deployment_reads_the_clock() -> None:
    """The simulation replaces it there. Dates of certificates and of Flower's own records decide nothing."""
    folder = Path(fedskew.flower.__file__).parent
    reading = re.compile(r"^\s*(?:import|from) (?:time|datetime|sched|threading|asyncio)\b", re.MULTILINE)
    found = {path.name for path in folder.glob("*.py") if reading.search(path.read_text(encoding="utf-8"))}
    assert found == {"link.py", "launcher.py", "app.py"}


@contextmanager
def calm(folder: Path, *struck: Strike, liar: int = -1, **more: Any) -> Iterator[World]:
    """A small deployment of three nodes in which nothing strikes but what is named."""
    config = {**config_of(0)[0], "clients": 3, "cohort": 3, "rounds": 2, "flower.out": str(folder / "server" / "run")}
    config |= {name.replace("__", ".").replace("_", "-"): value for name, value in more.items()}
    with deployment(config, folder, Chance(0, {}, struck), liar, "") as world:
        yield world


@pytest.mark.parametrize(("first", "then"), [(1, -1), (-1, 1)])
def test_a_run_goes_on_whose_nodes_are_refused_or_no_longer(
    first: int, then: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asked for another cohort than the run's, and ended, as long as the nodes were others than at its begin."""
    more = {"clients": 4, "cohort": 4, "rounds": 3, "checkpoint_every": 1, "flower__bad": "drop"}

    def told(row: Any) -> None:
        if row["round"] == 1 and not seen:
            seen.append(row)
            raise Died

    seen: list[Any] = []
    monkeypatch.setattr(serve, "_log_round", told)
    with calm(tmp_path, liar=first, **more) as world:
        world.hello_lie = lambda facts, packed: ({**facts, "rows": -1}, packed)
        with pytest.raises(Died):
            serve.serve(world, world.config, built)
        world.liar = then
        world.quiet()
        result = serve.serve(world, world.config, built)
    assert [row["round"] for row in result.rounds] == [1, 2, 3]


def test_no_run_begins_without_a_client_whose_disk_was_full_as_it_said_hello(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """There may be room in the next moment. Under drop the server gave its place up, and went on later with others."""
    with calm(tmp_path, Strike("node 1", 0, "full"), flower__missing="drop", flower__bad="drop") as world:
        with pytest.raises(ConfigError, match=r"nodes of all 3 clients must be there; those of \[1\] have not come"):
            serve.serve(world, world.config, built)
        assert "the node of client 1 must agree with the server: cannot write" in caplog.text
        world.reboot(random.Random(0))
        result = serve.serve(world, world.config, built)
    assert len(result.rounds) == 2 and not any("dropped" in row for row in result.rounds)


def test_a_run_that_ends_between_two_checkpoints_finds_the_memory_of_its_last_round(tmp_path: Path) -> None:
    """Nodes kept that of the round under way and those of two checkpoints; what a run writes at its end was gone."""

    def rounds(folder: Path, ends: bool) -> list[Any]:
        with calm(folder, rounds=4, checkpoint_every=4, local_test=0.2) as world:
            pull, waiting = world.pull_messages, [0] * ends
            done = folder / "server" / "run" / "rounds.jsonl"

            def pulled(names: Any) -> list[Any]:
                found = pull(names)
                measured = any(reply.metadata.message_type == "evaluate" for reply in found)
                if waiting and measured and done.read_text().count("\n") == 2:
                    waiting.pop()
                    raise KeyboardInterrupt
                return found

            world.pull_messages = pulled  # type: ignore[method-assign]
            result = serve.serve(world, world.config, built)
            if ends:
                assert result.stopped == "interrupted" and len(result.rounds) == 2
                result = serve.serve(world, world.config, built)
        return [(row["round"], row["loss"], row["local_loss"]) for row in result.rounds]

    assert rounds(tmp_path / "ended", True) == rounds(tmp_path / "whole", False)


def test_a_message_that_is_late_by_a_session_removes_no_memory_of_the_next(tmp_path: Path) -> None:
    """A node that had answered the hello of that session alone took it for a new one."""
    late: list[Any] = []
    with calm(tmp_path) as world:
        push = world.push_messages

        def pushed(messages: Any) -> Any:
            sent = list(messages)
            if not late and sent[0].metadata.message_type == "train":
                late.extend(sent)
                raise Died
            return push(sent)

        world.push_messages = pushed  # type: ignore[method-assign]
        with pytest.raises(Died):
            serve.serve(world, world.config, built)
        world.reboot(random.Random(0))
        serve.serve(world, world.config, built)
        node = next(node for node in world.nodes if node.number == late[0].metadata.dst_node_id)
        own = {"client": node.client, "allow": "all", "state": str(node.machine.folder)}
        before = {path.name for path in node.machine.folder.rglob("memory-*")}
        answer = world.answer(late[0], flower_standin.context(own, world.config), node.build)
        assert "was answered before: it is late" in opened(answer).facts["error"]
        assert before and before == {path.name for path in node.machine.folder.rglob("memory-*")}


def test_a_hello_that_is_lost_is_said_again() -> None:
    """A server that waits for ever has no other end of its wait."""
    seed = next(seed for seed in range(99) if config_of(seed)[0]["flower.missing"] == "wait")
    report = simulate(seed, [Strike("push", 0, "lost")])
    assert (report.wrong, report.lives) == ("", 1) and len(report.struck) == 1


def test_what_components_write_to_a_client_stands_side_by_side_until_its_node_has_it() -> None:
    kept, first, second = Receipts(), of_receipt("ab" * 16), of_receipt("cd" * 16)
    kept.begin(1)
    for memory in (first, {"a": {"x": torch.ones(1)}}, {"b": {"x": torch.zeros(1)}}):
        kept.put(0, memory)
    assert receipt_in(kept.get(0)) == "ab" * 16 and written_to(kept.get(0)).keys() == {"a", "b"}
    kept.put(0, second)
    assert receipt_in(kept.get(0)) == "cd" * 16 and not written_to(kept.get(0))


@pytest.mark.thorough
def test_a_method_of_which_two_components_are_written_to_has_the_bytes_of_sequential() -> None:
    report = simulate(next(seed for seed in range(99) if config_of(seed)[0]["method"] == "fedgc"), [])
    assert not report.wrong and report.rounds > 1


@pytest.mark.flower
def test_the_stand_in_is_like_flower() -> None:
    app = pytest.importorskip("flwr.app")
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 1

    def seen(module: Any) -> Any:
        content = record({"kind": "train"}, sent=pack({"a": {}}), more=pack({}))
        message = module.Message(content, dst_node_id=7, message_type="train")
        message.metadata.__dict__["_message_id" if module is app else "message_id"] = "first"
        reply = module.Message(content, reply_to=message)
        failed = module.Message(error=module.Error(5, "it broke"), reply_to=message)
        about = [(m.metadata.dst_node_id, m.metadata.message_type, m.has_error()) for m in (message, reply, failed)]
        read(reply.content)
        told = opened(reply.content)
        return about, told, reply.metadata.reply_to_message_id, (failed.error.code, failed.error.reason)

    real = seen(app)
    with flower_standin.installed():
        assert seen(flower_standin) == real
