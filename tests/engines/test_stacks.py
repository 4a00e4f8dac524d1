"""Stacks of ragged clients: how they are cut, how they narrow, and that none of it shows in what is trained."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedskew as fs
from fedskew.engines import stacks as cuts
from fedskew.engines.stacks import Length, Price, cut, legs
from fedskew.method.paces import Fixed
from support.federations import UNEVEN, blobs
from support.methods import MOST_HOOKS, each, tiny
from support.runs import gap, go, rows_of, same

ENDS = {"a stack a client": (0.0, 1e-3), "one stack": (1e9, 0.0), "some stacks": (0.05, 1e-3)}  # STEP, PRODUCT
lengths = st.lists(st.builds(Length, st.integers(0, 60), st.integers(1, 50)), min_size=1, max_size=400)


prices = st.builds(Price, st.floats(0, 1000), st.floats(0, 10), st.floats(0, 10))


@given(lengths, st.integers(1, 5), st.integers(1, 50), prices)
def test_a_cohort_is_cut_into_sorted_stacks(found: list[Length], threads: int, most: int, price: Price) -> None:
    parts = cut(found, threads, most, price)
    assert sorted(i for part in parts for i in part) == list(range(len(found)))
    for part in parts:
        steps = [found[i].steps for i in part]
        assert steps == sorted(steps, reverse=True) and len(part) <= most


def test_stacks_are_cut_where_it_pays() -> None:
    def sizes(found: list[Length], threads: int, *price: float) -> list[int]:
        return sorted(len(part) for part in cut(found, threads, 1000, Price(*price)))

    even, wide = [Length(10, 10)] * 8, [Length(10, 10)] * 4 + [Length(10, 1000)] * 4
    assert sizes(even, 1, 100.0, 1.0, 0.1) == [8] and sizes(even, 2, 100.0, 50.0, 5.0) == [4, 4]
    assert sizes(even, 2, 100.0, 1.0, 0.1, True) == [8], "two threads that wait for Python in turns"
    assert sizes(wide, 1, 100.0, 0.0, 0.1) == [4, 4], "rows are not padded to a thousand"
    assert sizes(wide, 1, 1e6, 0.0, 0.1) == [8], "operators that cost more than padded rows"
    ragged = [Length(t, 10) for t in (60, 10, 5, 5, 5, 5, 5, 5)]
    assert sizes(ragged, 1, 50.0, 0.0, 1.0) == [8], "a client that has ended costs nothing"
    assert cut(ragged, 2, 1000, Price(1.0, 0.0, 1.0)) == [[0], list(range(1, 8))], "the longest runs beside the others"


def test_a_stack_narrows_as_clients_end() -> None:
    exact = legs([5, 3, 3, 1], 5, few=False)
    assert [(leg.width, leg.times, leg.ended) for leg in exact] == [
        (4, [0], False), (3, [1, 2], False), (1, [3, 4], False),
    ]  # fmt: skip
    widths = [1, 3, 5, 9, 11, 17, 33, 100]
    coarse = [legs([2] * n + [1] * 200, 2, few=True)[-1].width for n in widths]
    assert coarse == [1, 3, 5, 10, 12, 20, 40, 112]
    few = legs([2] * 9 + [1] * 2, 2, few=True)
    assert [(leg.width, leg.ended) for leg in few] == [(11, False), (10, True)], "no wider than its stack"
    assert legs([2, 1], 3, few=False)[-1] == (1, [1, 2], True), "a step beyond the longest run has ended clients"


@pytest.fixture(
    params=[v if n == "some stacks" else pytest.param(v, marks=pytest.mark.thorough) for n, v in ENDS.items()],
    ids=ENDS,
)
def priced(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stacks of one client, one stack, and something between."""
    monkeypatch.setattr(cuts, "STEP", dict.fromkeys(cuts.STEP, request.param[0]))
    monkeypatch.setattr(cuts, "PRODUCT", request.param[1])


@pytest.mark.usefixtures("priced")
@pytest.mark.parametrize("name", MOST_HOOKS)
def test_ragged_clients_agree_with_the_reference(name: str) -> None:
    fed, options = blobs(UNEVEN, auxiliary=2), {"cohort": 4 if name == "powerofchoice" else 8, "threads": 2}
    method = replace(tiny(name), pace=replace(tiny(name).pace, batch_size=4)) if _batched(name) else tiny(name)
    runs = [go(fed, method, engine=e, **options) for e in ("sequential", "batched", "threaded")]
    assert gap(runs[0].params, runs[1].params) <= 1e-8 and gap(runs[0].buffers, runs[1].buffers) <= 1e-8
    assert same(runs[0].params, runs[2].params) and rows_of(runs[0]) == rows_of(runs[2])
    for one, two in zip(rows_of(runs[0]), rows_of(runs[1]), strict=True):
        assert one["clients"] == two["clients"] and one["steps"] == two["steps"]
        assert one["loss"] == pytest.approx(two["loss"], abs=1e-8)


def _batched(name: str) -> bool:
    return hasattr(tiny(name).pace, "batch_size")


def test_the_first_fault_is_that_of_the_cohort() -> None:
    """Client 1 is the longest, and trains first in its stack; client 0 comes first in the cohort."""
    method = replace(fs.methods.fedavg(), pace=Fixed(epochs=3, batch_size=2, lr=1e38), selector=each(0, 1, 4))
    told = []
    for engine in ("sequential", "batched", "chained"):
        with pytest.raises(fs.TrainingError) as caught:
            go(blobs(UNEVEN), method, engine=engine, threads=1, dtype="float32")
        told.append(str(caught.value))
    assert told[0] == told[1] == told[2]
