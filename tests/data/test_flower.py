"""Row lists of flwr-datasets: read, written, and its Dirichlet against ours. The last needs that package."""

import numpy as np
import pytest

from fedskew.data import Partition, from_flower, to_flower
from fedskew.data.partitioners import Dirichlet, LabelsK, Natural
from fedskew.errors import ConfigError, DataError

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 100))


class Part(dict):
    """A part of a dataset, with its columns by name."""

    column_names = property(list)


class Stub:
    """A partitioner as theirs are."""

    def __init__(self, lists):
        self.lists, self.num_partitions = lists, len(lists)

    def load_partition(self, partition_id):
        return Part(row=self.lists[partition_id])


def test_row_lists_there_and_back():
    parts = Dirichlet(0.3).split(LABELS, 8, 0)
    lists = to_flower(parts)
    assert sorted(lists) == list(range(8)) and all(type(row) is int for row in lists[0])
    back = from_flower(Stub(lists))
    assert np.array_equal(back.rows, parts.rows) and np.array_equal(back.offsets, parts.offsets)
    shuffled = from_flower(Stub({1: [3, 0], 0: [], 2: [5, 4]}))
    assert shuffled.rows.tolist() == [0, 3, 4, 5] and shuffled.sizes.tolist() == [0, 2, 2]
    assert isinstance(shuffled, Partition) and shuffled.rows.dtype == np.int64


def test_what_is_no_partitioner_or_not_disjoint_is_refused():
    with pytest.raises(DataError, match="partitions must be disjoint; row 3 is not"):
        from_flower(Stub({0: [1, 3], 1: [3]}))
    with pytest.raises(DataError, match="row -1 is not"):
        from_flower(Stub({0: [-1, 3]}))
    with pytest.raises(ConfigError, match="must be one of flwr-datasets; got dict"):
        from_flower({0: [1]})
    with pytest.raises(ConfigError, match="row_column must be a column of the partitioner's dataset; got 'place'"):
        from_flower(Stub({0: [0, 1]}), row_column="place")


@pytest.fixture
def partitioners():
    pytest.importorskip("flwr_datasets", reason="flwr-datasets is not installed: pip install flwr-datasets")
    import flwr_datasets.partitioner

    return flwr_datasets.partitioner


def hugging(labels, rows=False):
    import datasets

    columns = {"label": labels.tolist(), "site": (np.arange(len(labels)) % 7).tolist()}
    return datasets.Dataset.from_dict({**columns, "row": list(range(len(labels)))} if rows else columns)


@pytest.mark.flwr_datasets
def test_their_partitioners_are_read(partitioners):
    p = partitioners
    kinds = [
        p.DirichletPartitioner(5, "label", 0.5, min_partition_size=0),
        p.PathologicalPartitioner(10, "label", 2, class_assignment_mode="first-deterministic"),
        p.NaturalIdPartitioner("site"),
        p.LinearPartitioner(5),
    ]
    for partitioner in kinds:
        partitioner.dataset = hugging(LABELS, rows=True)
        parts = from_flower(partitioner)
        assert len(np.unique(parts.rows)) == len(parts.rows) and parts.clients == partitioner.num_partitions
        for k in range(parts.clients):
            theirs = partitioner.load_partition(k)
            assert sorted(theirs["label"]) == sorted(LABELS[parts.of(k)].tolist())
    natural = Natural().split(LABELS, 7, 0, {"site": np.arange(len(LABELS)) % 7})
    assert np.array_equal(from_flower(kinds[2]).rows, natural.rows)


@pytest.mark.flwr_datasets
@pytest.mark.filterwarnings("ignore::FutureWarning")  # of pyarrow, to their sorting
def test_a_partitioner_that_sorts_is_read_by_its_column(partitioners):
    shards = partitioners.ShardPartitioner(5, "label", num_shards_per_partition=2)
    partitioner = partitioners.IidPartitioner(5)
    for one in (shards, partitioner):
        one.dataset = hugging(LABELS, rows=True)
    assert np.array_equal(from_flower(partitioner).rows, np.arange(1000))
    parts = from_flower(shards)
    assert parts.sizes.tolist() == [200] * 5
    for k in range(5):
        assert sorted(shards.load_partition(k)["label"]) == sorted(LABELS[parts.of(k)].tolist())
    with pytest.raises(ConfigError, match="got 'rows'"):
        from_flower(partitioner, row_column="rows")


@pytest.mark.flwr_datasets
def test_our_lists_select_from_their_dataset(partitioners):
    data, parts = hugging(LABELS), LabelsK(2).split(LABELS, 10, 0)
    lists = to_flower(parts)
    assert all(data.select(lists[k])["label"] == LABELS[parts.of(k)].tolist() for k in range(10))


@pytest.mark.flwr_datasets
@pytest.mark.parametrize("alpha", [0.1, 1.0])
@pytest.mark.parametrize("guard", [False, True])
def test_our_dirichlet_has_the_distribution_of_theirs(partitioners, alpha, guard):
    """Counts of 120 splits each, by two-sample Kolmogorov-Smirnov tests of sizes and of the largest class at a client.

    The clients of one split depend on each other, so one client of each is compared: 120 against 120 independent ones.
    """
    from scipy.stats import ks_2samp

    data, splits, clients = hugging(LABELS, rows=True), 120, 10
    ours, theirs = [], []
    for seed in range(splits):
        partitioner = Dirichlet(alpha, balance_guard=1.0 if guard else None)
        ours.append(partitioner.split(LABELS, clients, seed).counts(LABELS, 10))
        partitioner = partitioners.DirichletPartitioner(
            clients, "label", alpha, min_partition_size=0, self_balancing=guard, seed=seed
        )
        partitioner.dataset = data
        theirs.append(from_flower(partitioner).counts(LABELS, 10))
    a, b = np.array(ours), np.array(theirs)  # [splits, N, C]
    for of in (lambda n: n[:, 0].sum(-1), lambda n: n[:, 0].max(-1), lambda n: n[:, 3, 5], lambda n: n.sum(2).max(1)):
        assert ks_2samp(of(a), of(b)).pvalue > 1e-4
    assert ks_2samp(spread(a), spread(b)).pvalue > 1e-4
    other = np.array([Dirichlet(alpha * 3).split(LABELS, clients, s).counts(LABELS, 10) for s in range(splits)])
    assert ks_2samp(spread(other), spread(b)).pvalue < 1e-4, "the test must see another alpha"


def spread(n):
    """Standard deviation of all cells of a split, [splits]."""
    return n.std(axis=(1, 2))
