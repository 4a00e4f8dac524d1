"""Row lists of other libraries, read and written; flwr-datasets' Dirichlet against ours, which needs that package."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedskew.data import Partition, from_flower, from_indices, to_flower
from fedskew.data.partitioners import Dirichlet, Natural
from fedskew.errors import ConfigError, DataError
from support.command import refused

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
    refused(lambda: from_flower(Stub({0: [1, 3], 1: [3]})), "clients 0 and 1 both have row 3", kind=DataError)
    refused(lambda: from_flower(Stub({0: [-1, 3]})), "client 0 has row -1", kind=DataError)
    refused(lambda: from_flower({0: [1]}), "must be one of flwr-datasets; got dict")
    with pytest.raises(ConfigError, match="row_column must be a column of the partitioner's dataset; got 'place'"):
        from_flower(Stub({0: [0, 1]}), row_column="place")


FORMS = [
    list, tuple, set, lambda rows: np.array(rows, np.int64), lambda rows: np.array(rows, np.uint16), torch.tensor,
    lambda rows: np.array(rows, float), lambda rows: [*map(torch.tensor, rows)], lambda rows: [*map(np.int64, rows)],
    lambda rows: np.array(rows, object),
]  # fmt: skip


@given(st.lists(st.integers(-1, 4), max_size=30), st.lists(st.sampled_from(FORMS), min_size=5, max_size=5))
def test_row_lists_of_any_form_are_read(owners, forms):
    lists = [np.random.default_rng(0).permutation(np.flatnonzero(np.array(owners) == k)).tolist() for k in range(5)]
    if not any(lists):
        return
    given_ = [form(rows) for form, rows in zip(forms, lists, strict=True)]
    for indices in (given_, iter(given_), dict(enumerate(given_)), {str(4 - k): given_[4 - k] for k in range(5)}):
        parts = from_indices(indices, rows=30)
        assert [parts.of(k).tolist() for k in range(5)] == [sorted(rows) for rows in lists]
        assert parts.rows.dtype == parts.offsets.dtype == np.int64


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([[0], [*range(50_000), 7]], "each row once; client 1 has row 7 twice$"),
        ({0: [4, 2], 1: [], 2: np.array([3, 4])}, "each row to one client; clients 0 and 2 both have row 4$"),
        ([[0], [1, 60_000]], r"rows of the data; client 1 has row 60000, outside 0\.\.49999$"),
        ([[0], [-3, 1]], "counted from 0; client 1 has row -3$"),
        ([[0], [2**70]], f"client 1 has row {2**70}$"),
        ([[0], [1e300]], "client 1 has row 1e[+]300$"),
        ([[0], torch.tensor([1, 2.5])], "whole row numbers; client 1 has 2.5$"),
        ([[0], [1, float("nan")]], "whole row numbers; client 1 has nan$"),
        ([[0], ["1"]], "whole row numbers; client 1 has '1'$"),
        ([[0], [None, 1]], "whole row numbers; client 1 has None$"),
        ([[0], np.ones(50_000, bool)], "whole row numbers; client 1 has True$"),
        ([[0], [[1], [2, 3]]], r"client 1 has \[\[1\], \[2, 3\]\]$"),
        ([[0], np.ones((50_000, 1))], r"a vector of row numbers for each client; client 1 has array\(\[\[1"),
        ([0, 1, 1, 0], "client 0 has 0$"),
        ([{"train": [0], "test": [1]}], r"client 0 has {'train': \[0\], 'test': \[1\]}; give one of its lists$"),
        ({0: [1], 2: [0]}, r"the keys 0\.\.1; 1 is missing; a client without rows has an empty list"),
        ({"north": [1]}, r"0 is missing; .*list\(indices.values\(\)\) numbers clients in their order"),
        ({0: [1], "0": [2]}, "1 is missing"),
        ([[], []], "got none of"),
        ([], "got no client"),
        ("split.npz", "got str"),
        (torch.utils.data.random_split(torch.utils.data.TensorDataset(torch.arange(6)), [3, 3]), "give its indices$"),
        (7, "got int"),
    ],
)
def test_what_is_no_row_list_is_told_with_its_client(indices, message):
    with pytest.raises(DataError, match=message) as caught:
        from_indices(indices, rows=50_000)
    assert len(str(caught.value)) < 250 and "\n" not in str(caught.value)


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
