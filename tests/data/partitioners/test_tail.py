"""The long tail of a federation, and its profile."""

from __future__ import annotations

import numpy as np
import pytest

from fedskew.data import federate, from_arrays
from fedskew.data.federation import long_tail
from fedskew.data.partitioners import Dirichlet, Iid, Natural, Partitioner, Shards
from fedskew.errors import ConfigError
from support.labels import MIXED, SITES, content


@pytest.mark.parametrize("base", [Dirichlet(0.3), Shards(), Iid(sizes="power"), Natural()], ids=repr)
def test_the_partitioner_divides_what_the_long_tail_leaves(base: Partitioner) -> None:
    data = from_arrays(np.zeros((len(MIXED), 1)), MIXED, np.zeros((2, 1)), [0, 9], columns=SITES)
    fed = federate(data, base, clients=7, seed=4, longtail=6.0)
    kept = long_tail(np.bincount(MIXED), 6.0).tolist()
    assert fed.counts.sum(0).tolist() == kept and fed.report()["unused_rows"] == len(MIXED) - sum(kept)
    rows = np.sort(fed.partition.rows)
    sites = {name: values[rows] for name, values in SITES.items()}
    assert content(base.split(MIXED[rows], 7, 4, sites).masked(np.ones(len(rows), bool))) == content(
        fed.partition._replace(rows=np.searchsorted(rows, fed.partition.rows))
    )


def test_a_single_class_has_no_tail() -> None:
    with pytest.raises(ConfigError, match="two classes at least"):
        long_tail(np.full(1, 3), 2.0)
