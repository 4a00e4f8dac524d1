"""What every test may rely on, wherever it stands: one thread, seeded global generators, the folder of the datasets."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """More threads than pytest's workers have cores make small tensors slower, and sums depend on their number."""
    import torch  # here, so that the process that only hands out tests does not pay for it

    torch.set_num_threads(1)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Seeds the global generators: a network that a test builds with torch alone is the same in each run.

    What needs Flower is skipped where there is none.
    """
    if item.get_closest_marker("flower"):
        pytest.importorskip("flwr")
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of the real datasets."""
    folder = os.environ.get("FEDSKEW_DATA")
    if not folder:
        pytest.skip("FEDSKEW_DATA is unset: it names the folder that holds mnist, cifar10 and the other datasets")
    if not Path(folder).is_dir():
        pytest.fail(f"FEDSKEW_DATA must be a folder; got {folder!r}")
    return Path(folder)
