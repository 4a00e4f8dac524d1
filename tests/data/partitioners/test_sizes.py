"""Client sizes: one option, the same for every partitioner that takes it."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fedskew as fs
from fedskew.config.flags import experiment_from
from fedskew.config.tables import make
from fedskew.data import load_partition, save_partition
from fedskew.data.partitioners import PARTITIONERS, DirPrior, Iid, QuantityDir, Shards, Sized
from fedskew.errors import ConfigError
from fedskew.method.component import spec
from support.command import refused
from support.labels import BALANCED, MIXED, content, counted
from support.strategies import seeds

TAKERS = [Iid(), DirPrior(), DirPrior(0.3), DirPrior(0, rest=3), DirPrior(0.3, serve="together")]
LISTED = (5, 40, 0, 17, 1, 30, 60)


def test_every_partitioner_that_takes_sizes_is_tested_here():
    assert {type(p).name for p in TAKERS} == {n for n, kind in PARTITIONERS.items() if issubclass(kind, Sized)}


@pytest.mark.parametrize("partitioner", TAKERS, ids=repr)
@pytest.mark.parametrize(
    "given_", [list(LISTED), LISTED, np.array(LISTED), torch.tensor(LISTED)], ids=lambda g: type(g).__name__
)
def test_a_list_of_sizes_is_met_exactly(partitioner, given_):
    parts = replace(partitioner, sizes=given_).split(MIXED, 7, 3)
    assert parts.sizes.tolist() == list(LISTED) and len(np.unique(parts.rows)) == sum(LISTED)


@pytest.mark.parametrize("partitioner", TAKERS, ids=repr)
def test_equal_sizes_by_name_are_the_rows_of_the_default(partitioner):
    default, equal, power = (replace(partitioner, sizes=law).split(MIXED, 10, 3) for law in (None, "equal", "power"))
    assert content(equal) == content(default) and not np.array_equal(power.sizes, default.sizes)


@given(clients=st.integers(1, 60), seed=seeds, law=st.sampled_from(["lognormal", "power"]), skew=st.floats(0, 4))
def test_every_client_of_a_law_has_a_row_and_no_class_more_than_it_has(clients, seed, law, skew):
    for partitioner in TAKERS:
        partitioner = replace(partitioner, sizes=law, size_skew=skew)
        if getattr(partitioner, "rest", 0) > clients:
            continue
        counts = counted(partitioner, MIXED, clients, seed)
        assert counts.sum(axis=1).min() >= 1 and (counts.sum(axis=0) <= np.bincount(MIXED)).all()


@given(clients=st.integers(1, 60), seed=seeds, skew=st.floats(0, 2))
def test_one_class_clients_of_unequal_sizes_stay_one_class_clients(clients, seed, skew):
    counts = counted(DirPrior(sizes="lognormal", size_skew=skew), MIXED, clients, seed)
    assert ((counts > 0).sum(axis=1) == 1).all()


def test_one_class_clients_use_nearly_every_row_where_classes_are_balanced():
    labels = np.repeat(np.arange(10), 5000)
    sizes = DirPrior(sizes="lognormal", size_skew=0.3).split(labels, 200, 0).sizes
    assert sizes.sum() > 0.99 * len(labels) and abs(sizes.std() / sizes.mean() - 0.3) < 0.05


def test_samples_are_the_mean_of_a_law():
    for partitioner in (DirPrior(0.3, samples=50), DirPrior(0, samples=50)):
        sizes = replace(partitioner, sizes="lognormal", size_skew=0.2).split(BALANCED, 10, 0).sizes
        assert abs(sizes.mean() - partitioner.samples) <= 1 and np.ptp(sizes) > 3
    told = "DirPrior.samples must be at most ", " here, the mean of these sizes; got 200"
    refused(lambda: DirPrior(0, samples=200, sizes="power").split(BALANCED, 10, 0), *told)


@pytest.mark.parametrize("partitioner", TAKERS, ids=repr)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sizes": [1, 2]}, "clients must equal the 2 sizes that are given; got 5; use 2"),
        ({"sizes": [1999, 2, 1, 0, 0]}, "sizes must fit the data: the 2000 rows .*; got 2002; scaled by 0.999 they"),
        ({"sizes": [1, 2, 3, -4, 5]}, "sizes must be whole numbers of rows, at least 0 and not all 0; got -4"),
        ({"sizes": [1, 2.5, 3, 4, 5]}, "sizes must be whole numbers of rows, at least 0 and not all 0; got 2.5"),
        ({"sizes": [0] * 5}, "sizes must be whole numbers of rows, at least 0 and not all 0; got 0"),
        ({"sizes": []}, "sizes must be whole numbers of rows, at least 0 and not all 0; got 0"),
        ({"sizes": "lognormall"}, "sizes must be one of equal, lognormal, power or .*did you mean 'lognormal'"),
        ({"sizes": 7}, "sizes must be one of equal, lognormal, power or a tuple"),
        ({"size_skew": 1.0}, "size_skew must be unset, except where sizes is lognormal or power; got 1.0"),
        ({"sizes": [1] * 5, "size_skew": 1.0}, "size_skew must be unset, except where"),
    ],
)
def test_sizes_that_cannot_be_met_are_one_short_line(partitioner, options, message):
    with pytest.raises(ConfigError, match=message) as caught:
        replace(partitioner, **options).split(BALANCED, 5, 0)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 250


def test_sizes_that_no_class_can_hold_are_refused():
    told = "sizes must fit the data: the 200 rows ", "; got 201"
    refused(lambda: DirPrior(0, sizes=[201, 1]).split(BALANCED, 2, 0), *told)
    refused(lambda: DirPrior(samples=3, sizes=[3, 3]), "samples must be 0 if sizes are a list; got 3; leave it out")


def test_sizes_are_typed_on_the_command_line_and_come_back_from_json():
    words = ["fedavg", "--partition", "dir_prior", "--clients", "3", "--partition.sizes"]
    listed = experiment_from([*words, "30,20,10"])
    assert listed.partition.sizes == (30, 20, 10)
    law = experiment_from([*words, "power", "--partition.size_skew", "0.5"])
    assert (law.partition.sizes, law.partition.size_skew) == ("power", 0.5)
    assert experiment_from([*words, "none"]).partition.sizes is None
    for experiment in (listed, law):
        assert type(experiment).from_json(experiment.to_json()) == experiment
    refused(
        lambda: experiment_from([*words, "powr"]),
        "--partition.sizes must be one of equal, ",
        "; got 'powr'; did you mean 'power'",
    )


def test_records_and_files_of_splits_without_sizes_are_as_before(tmp_path):
    """Options that were added later are absent while unset, so hashes of files and configurations stay."""
    assert spec(DirPrior(0.2)) == {
        "name": "dir_prior", "alpha": 0.2, "rest": 0, "alpha_rest": 0.2, "samples": 0, "prior": "uniform",
    }  # fmt: skip
    assert spec(Iid()) == {"name": "iid"} and make("partition", spec(Shards(3))) == Shards(3)
    fed = fs.federate("digits", DirPrior(0.2), clients=5)
    digest = save_partition(tmp_path / "a.npz", fed)
    assert load_partition(tmp_path / "a.npz").header["convention"] == spec(DirPrior(0.2))
    assert digest.startswith("af28d6de987e9e31")  # of the version before there were sizes
    given_ = fs.federate("digits", Iid(sizes=[10] * 5), clients=5)
    save_partition(tmp_path / "b.npz", given_)
    assert load_partition(tmp_path / "b.npz").header["convention"] == {"name": "iid", "sizes": "given"}
    assert "sizes given" in fs.data.describe.counted(given_).title


@pytest.mark.parametrize(
    "partitioner", [*(pytest.param(p, marks=pytest.mark.thorough) for p in TAKERS[:-1]), TAKERS[-1]], ids=repr
)
def test_unequal_sizes_of_a_hundred_thousand_clients_take_seconds(partitioner):
    labels = np.arange(1_000_000) % 10
    start = time.process_time()
    replace(partitioner, sizes="lognormal").split(labels, 100_000, 0)
    assert time.process_time() - start < 20


LIMITS = [  # no skew, the extreme
    (Iid(sizes="power", size_skew=0.0), Iid(sizes="power", size_skew=60.0)),
    (Iid(sizes="lognormal", size_skew=0.0), Iid(sizes="lognormal", size_skew=1e4)),
    (QuantityDir(1e9), QuantityDir(1e-6)),
]


@pytest.mark.parametrize(("equal", "extreme"), LIMITS, ids=repr)
def test_quantity_skew_has_its_limits_and_leaves_the_others_their_least(equal, extreme):
    assert np.ptp(equal.split(MIXED, 37, 0).sizes) <= 1 and np.ptp(Iid().split(MIXED, 37, 0).sizes) <= 1
    sizes = np.sort(extreme.split(MIXED, 20, 0).sizes)
    assert (sizes[:-1] == 1).all() and sizes.sum() == len(MIXED)


@given(clients=st.integers(1, 60), seed=seeds, a=st.floats(0, 3))
def test_power_law_sizes_are_those_of_the_formula(clients, seed, a):
    sizes = np.sort(Iid(sizes="power", size_skew=a).split(MIXED, clients, seed).sizes)[::-1]
    law = np.arange(1, clients + 1) ** -a
    assert np.abs(sizes - 1 - (len(MIXED) - clients) * law / law.sum()).max() < 1 + 1e-9


def test_quantity_skew_leaves_labels_iid():
    counts = counted(Iid(sizes="power", size_skew=1.0), np.repeat(np.arange(10), 6000), 10)
    q = counts / counts.sum(1, keepdims=True)
    assert np.abs(q - 0.1).max() < 5 * (0.09 / counts.sum(1).min()) ** 0.5
