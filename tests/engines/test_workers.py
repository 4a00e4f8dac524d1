"""Threads of an engine: no model is shared, the order is kept, and whatever ends the caller ends them, too."""

from __future__ import annotations

import _thread
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn

import fedskew as fs
from fedskew.engines.runtime import Workers
from fedskew.models.prepare import prepare
from support.bounds import within
from support.federations import RAGGED, blobs
from support.lives import wait_for
from support.methods import PACE
from support.runs import go


@contextmanager
def no_thread_is_left() -> Iterator[None]:
    before = _thread._count()
    yield
    wait_for(lambda: _thread._count() == before)


@contextmanager
def interrupted(at: int) -> Iterator[list[int]]:
    """Raise KeyboardInterrupt before the instruction ``at`` of Python in this thread, as a signal may; counts them."""
    seen = [0]

    def local(frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_opcodes = True
        if event == "opcode":
            seen[0] += 1
            if seen[0] == at:
                raise KeyboardInterrupt
        return local

    before = sys.gettrace()
    sys.settrace(local)
    try:
        yield seen
    finally:
        sys.settrace(before)


def workers(count: int) -> Workers:
    return Workers(prepare(nn.Linear(3, 2), "", (3,), 2), count)


def test_threads_share_no_model_and_keep_the_order() -> None:
    three, gate = workers(3), threading.Barrier(3)

    def work(i: int) -> tuple[int, int, bool, bool]:
        gate.wait(10)
        return i, id(three.model), torch.is_grad_enabled(), three.inside

    with no_thread_is_left():
        done = list(three.map(work, range(3)))
        three.close()
    assert [d[0] for d in done] == [0, 1, 2] and len({d[1] for d in done} | {id(three.model)}) == 4
    assert not any(d[2] for d in done) and all(d[3] for d in done) and not three.inside


def test_an_error_in_a_thread_comes_through_and_the_threads_end() -> None:
    method = replace(fs.methods.fedavg(), pace=replace(PACE, lr=1e38, epochs=3))
    with no_thread_is_left(), pytest.raises(fs.TrainingError, match="loss became"):
        go(blobs(RAGGED), method, engine="threaded", threads=2, dtype="float32")


def test_what_has_not_begun_is_dropped_where_one_raises() -> None:
    two, begun = workers(2), list[int]()

    def work(i: int) -> None:
        begun.append(i)
        if i == 0:
            raise ValueError("the first")
        gate.wait(10)

    gate = threading.Event()
    with no_thread_is_left():
        with pytest.raises(ValueError, match="the first"):
            list(two.map(work, range(50)))
        gate.set()
        two.close()
    assert len(begun) < 10


def test_the_threads_end_whenever_their_caller_is_interrupted() -> None:
    """Before any instruction of its own or of the standard library's, which locks of Python's own do not survive."""

    def life(at: int) -> int:
        two = workers(2)
        two.map(abs, [1, 2])  # the copies of the model are made, and the threads begun
        try:
            with interrupted(at) as seen:
                assert list(two.map(abs, range(-4, 0))) == [4, 3, 2, 1]
        except KeyboardInterrupt:
            pass
        with within(20):
            two.close()
        return seen[0]

    with no_thread_is_left():
        last = life(0)
        assert last > 100
        for at in range(1, last + 1):
            life(at)
