"""A cluster of two nodes on this machine, which the tests of a file share."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from support.paths import ROOT

# sockets and processes that Ray leaves to the collector
RAYS_OWN = "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Warnings of Ray's own are no errors of these tests."""
    item.add_marker(pytest.mark.filterwarnings(*RAYS_OWN))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes with a core each; the tests' process is connected to the first."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    # what a run is made of must be known to the workers: these tests' methods are
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT / "src"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    )
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.add_node(num_cpus=1)
    with warnings.catch_warnings():  # as fedskew's own `Cluster` does: Ray 2.50 tells of a default to come
        warnings.filterwarnings("ignore", "Tip: In future versions of Ray", FutureWarning)
        ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def by_value(cluster: Any, request: pytest.FixtureRequest) -> Iterator[None]:
    """Components of a test's file go to the workers by value, as those of a user's main program do."""
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)
