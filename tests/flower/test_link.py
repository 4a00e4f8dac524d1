"""Who is which client while nodes come, go, are killed and come again. The grid has no processes and no time."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Timer
from types import SimpleNamespace
from typing import Any

import pytest

from fedskew.errors import ConfigError
from fedskew.flower.declared import Hello
from fedskew.flower.link import Link, Request
from fedskew.flower.options import ServerOptions
from fedskew.flower.wire import echoed, pack, read, record
from support import flower_grid

pytestmark = pytest.mark.flower
Say = Callable[[int, dict[str, Any]], dict[str, Any] | None]


class Grid(flower_grid.Grid):
    """Nodes by number, each with the time since when it is there; ``say`` answers a message, or not (None)."""

    def __init__(self, there: dict[int, str], say: Say) -> None:
        super().__init__(0, {}, Path())
        self.there, self.say = there, say
        self.asked: list[tuple[int, str]] = []
        self.looks: list[Callable[[], None]] = []  # what happens at the next looks for nodes

    def get_nodes(self) -> list[Any]:
        if self.looks:
            self.looks.pop(0)()
        return [SimpleNamespace(node_id=node, last_activated_at=life) for node, life in self.there.items()]

    def answer(self, k: int, message: Any) -> Any:
        node, facts = message.metadata.dst_node_id, read(message.content).facts
        self.asked.append((node, facts["kind"]))
        told = self.say(node, facts)
        return None if told is None else record({**echoed(facts), **told}, sent=pack({}))


def hello(client: int, **more: Any) -> dict[str, Any]:
    return {"client": client, "rows": 5, "test_rows": 0, "permits": [], **more}


def linked(grid: Grid, wait_s: float = 5.0, bad: Any = "stop") -> Link:
    return Link(grid, {}, ServerOptions(wait_s=wait_s, poll_s=0.01, missing="stop", bad=bad), lambda hello: None)


def met(link: Link, count: int) -> list[Hello]:
    seen: list[Hello] = []
    link.accept = seen.append
    link.meet(count)
    return seen


def ask(link: Link, clients: Iterable[int]) -> list[tuple[int, str]]:
    requests = [Request(k, {"kind": "train"}, {"own": pack({})}) for k in clients]
    answers = zip(requests, link.ask(requests), strict=True)
    return [(request.client, getattr(answer, "tensor", "")) for request, answer in answers]


def test_a_node_that_dies_at_its_hello_holds_up_nobody() -> None:
    """Flower lists a node that was killed for a minute."""
    grid = Grid({7: "1", 10: "1", 11: "1"}, lambda node, facts: None if node == 7 else hello(node - 10))
    link = linked(grid)
    assert sorted(one.node for one in met(link, 2)) == [10, 11]
    assert ask(link, [0, 1]) == [(0, ""), (1, "")]


def test_what_a_killed_node_forgot_is_asked_again_in_its_next_life() -> None:
    """It has the same number, and nobody saw it away."""
    grid = Grid({10: "1", 11: "1"}, lambda node, facts: hello(node - 10))
    link = linked(grid)
    met(link, 2)
    plain, lost = grid.say, []

    def dying(node: int, facts: dict[str, Any]) -> dict[str, Any] | None:
        if node == 11 and not lost:
            lost.append(facts["turn"])
            grid.looks.append(lambda: grid.there.update({11: "2"}))
            return None
        return plain(node, facts)

    grid.say = dying
    assert ask(link, [0, 1]) == [(0, ""), (1, "")]
    assert grid.asked[2:] == [(10, "train"), (11, "train"), (11, "train")], "no second hello, nobody else asked again"


def test_a_node_that_comes_with_a_new_number_takes_its_place_once_the_old_one_is_gone() -> None:
    grid = Grid({10: "1", 11: "1"}, lambda node, facts: hello(node % 10))
    link = linked(grid)
    met(link, 2)
    grid.there = {10: "1", 21: "2"}
    assert ask(link, [0, 1]) == [(0, ""), (1, "")]
    assert link.clients[1].node == 21


def test_two_nodes_that_are_one_client_are_refused() -> None:
    grid = Grid({10: "1", 20: "1"}, lambda node, facts: hello(0))
    with pytest.raises(ConfigError, match="two nodes say that they are client 0; give each its own number"):
        met(linked(grid), 2)


def test_a_client_whose_node_does_not_come_back_is_missing() -> None:
    grid = Grid({10: "1", 11: "1"}, lambda node, facts: hello(node - 10))
    link = linked(grid, 0.2)
    met(link, 2)
    del grid.there[11]
    assert ask(link, [0, 1]) == [(0, ""), (1, "no node for 0.2 s")]


# nodes that are refused


def open_link(grid: Grid) -> Link:
    return linked(grid, 0.2, "drop")


def test_a_second_node_of_a_client_is_refused_and_the_first_one_stays() -> None:
    grid = Grid({10: "1", 11: "1"}, lambda node, facts: hello(node % 10))
    link = open_link(grid)
    met(link, 2)
    grid.there[21] = "1"
    assert ask(link, [0, 1]) == [(0, ""), (1, "")]
    assert ask(link, [0, 1]) == [(0, ""), (1, "")]
    assert link.clients[1].node == 11
    grid.there.pop(11)
    assert ask(link, [0, 1]) == [(0, ""), (1, "no node for 0.2 s")], "what was refused is not taken later"


@pytest.mark.parametrize("drops", [False, True])
def test_a_node_of_another_contract_that_comes_late_costs_at_most_its_client(drops: bool) -> None:
    grid = Grid({10: "1", 11: "1"}, lambda node, facts: hello(node % 10))
    link = linked(grid, 0.2, "drop" if drops else "stop")
    met(link, 2)
    plain = grid.say
    grid.say = lambda node, facts: (
        {"client": 1, "fatal": True, "differs": "method"} if node == 21 else plain(node, facts)
    )
    grid.there = {10: "1", 21: "2"}
    if drops:
        assert ask(link, [0, 1]) == [(0, ""), (1, "no node for 0.2 s")]
        return
    with pytest.raises(ConfigError, match=r"the node of client 1 must agree with the server: method"):
        ask(link, [0, 1])


@pytest.mark.parametrize("call", ["push_messages", "pull_messages"])
def test_a_signal_ends_a_server_that_waits_for_a_superlink_that_died(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower sends again and again, and raises the signal in a thread of its own."""
    grid, again = Grid({10: "1"}, lambda node, facts: hello(node - 10)), threading.Event()
    link = linked(grid)
    met(link, 1)

    def stuck(_: Any) -> list[Any]:
        Timer(0.1, signal.raise_signal, [signal.SIGINT]).start()
        again.wait(20)
        return []

    monkeypatch.setattr(grid, call, stuck)
    began = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            ask(link, [0])
        assert time.monotonic() - began < 10
    finally:
        again.set()


def test_errors_of_flower_are_logged_once_a_node_and_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    grid = Grid({10: "1", 11: "1"}, lambda node, facts: hello(node - 10))
    link = open_link(grid)
    met(link, 2)
    wrong = SimpleNamespace(code=1, reason="x\n\x1b[2J" * 10**4)
    for number in range(5):
        wrong.reason += str(number)
        message = SimpleNamespace(error=wrong)
        assert link.failed("client 1", 11, message).isprintable()
    assert len([r for r in caplog.records if "Flower's error" in r.getMessage()]) == 1
    assert all(len(r.getMessage()) < 500 for r in caplog.records)
