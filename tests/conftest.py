"""What every test may rely on: one intra-op thread, seeded global generators and a watch over them, the same examples.

Where a test goes. The folders mirror src/fedskew: a test of `data/partitioners/sizes.py` is in
`data/partitioners/test_sizes.py`, one of `server.py` in `test_server.py`. A test that trains every method is in
`methods/`. Rules of the source, documents and the wheel are in `house/`.

What several files share is in `support/`, one module a subject (federations, nets, runs, strategies, ...), and
`oracle/` is a second implementation in numpy. Both are imported by name from any folder, as in
`from support.runs import go`: in pyproject.toml pytest's `pythonpath` is tests/, and its import mode is `importlib`, so
that two folders may have files of one name. A test file imports no other test file. Fixtures of one room are in its
conftest.py.
`support.paths.ROOT` is the checkout.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from support.fixtures import data_dir, one_thread, pytest_runtest_setup  # noqa: F401
from support.paths import TESTS

settings.register_profile("fedskew", deadline=None, derandomize=True, max_examples=25)
settings.register_profile("thorough", settings.get_profile("fedskew"), max_examples=200)
settings.load_profile("fedskew")

# What only `make test-all` runs, by folder or file; in other files the marker is on single tests and cases.
THOROUGH = ("attack", "house/test_doctests.py", "house/test_wheel.py")

# A shell that runs the tests in the background has them ignore Ctrl-C, and so would each command that they interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before pytest selects by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what is thorough."""
    for item in items:
        if item.path.as_posix().removeprefix(f"{TESTS}/").startswith(THOROUGH):
            item.add_marker(pytest.mark.thorough)


def _global_generators() -> dict[str, object]:
    """The states of the generators that nobody may draw from or seed."""
    import torch

    _, words, *rest = np.random.get_state()  # noqa: NPY002
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy": (words.tobytes(), *rest),
        "random": random.getstate(),
    }


@pytest.fixture
def no_global_rng() -> Iterator[None]:
    """Fails a test that moves a global generator. Not for `@given`: hypothesis itself seeds `random`."""
    before = _global_generators()
    yield
    after = _global_generators()
    moved = [name for name in before if before[name] != after[name]]
    assert not moved, f"the test moved the global generator of {', '.join(moved)}"


@pytest.fixture
def outside() -> Callable[[Any], list[str]]:
    """Finds what is clipped in a picture."""

    def find(figure: Any) -> list[str]:
        """Texts, and axes with their labels, that leave the picture."""
        inner = figure.bbox.padded(1)
        boxes = [(t.get_text(), t.get_window_extent()) for t in figure.texts]
        boxes += [(axes.get_title() or axes.get_xlabel(), axes.get_tightbbox()) for axes in figure.axes]
        return [s for s, b in boxes if b.x0 < inner.x0 or b.y0 < inner.y0 or b.x1 > inner.x1 or b.y1 > inner.y1]

    return find


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A run of two rounds by the command."""
    from support.command import SMALL, fedskew  # here, so that tests that run no command need not import it

    assert fedskew("run", "fedavg", *SMALL, "--checkpoint.every", 1, "--out", tmp_path / "run") == 0
    capsys.readouterr()
    return tmp_path / "run"
