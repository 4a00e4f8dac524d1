"""Properties that every partitioner has, then what each one promises."""

import pickle
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedskew import rng
from fedskew.data.partitioners import (
    PARTITIONERS,
    DirBernoulli,
    DirClientEqual,
    DirClientNorm,
    DirExtended,
    Dirichlet,
    DirPrior,
    Double,
    ExclusiveIid,
    Feature,
    Iid,
    LabelsK,
    LongTail,
    Mix,
    Natural,
    QuantityDir,
    QuantityLognormal,
    QuantityPower,
    Shards,
    deal,
    largest_remainder,
    log_dirichlet,
)
from fedskew.errors import ConfigError, DataError

quick = settings(deadline=None, max_examples=40)
seeds = st.integers(0, 2**31)
alphas = st.floats(-3, 6).map(lambda e: 10.0**e)
CONVENTIONS = sorted(set(PARTITIONERS) - {"dirichlet", "counts", "file"})  # these two are given, not drawn
SMALL = {"longtail": LongTail(factor=5.0), "feature": Feature("site")}  # where the default needs other data
USES_ALL = [
    Iid(), Dirichlet(0.3), LabelsK(3), Double(3), Shards(2), Natural("site"), Feature("site"), Mix(0.3),
    Dirichlet(0.3, balance_guard=1.0), Dirichlet(0.3, rounding="largest_remainder"), DirBernoulli(0.3),
    DirExtended(4), DirClientNorm(0.3, "largest_remainder"), QuantityPower(), QuantityLognormal(), QuantityDir(),
]  # fmt: skip
BALANCED = np.repeat(np.arange(10), 200)


@st.composite
def tables(draw):
    """Labels of 10 classes, at least 20 rows each, in random order, with gaps in the numbering."""
    totals = np.array(draw(st.lists(st.integers(20, 80), min_size=10, max_size=10)))
    labels = np.repeat(np.arange(10) * draw(st.integers(1, 3)), totals)
    return np.random.default_rng(draw(seeds)).permutation(labels)


def columns_for(labels, clients):
    return {"client": np.arange(len(labels)) % clients, "site": np.arange(len(labels)) % clients}


def made(name):
    return SMALL.get(name) or PARTITIONERS[name]()


def histograms(partition, labels):
    return partition.counts(labels, int(labels.max()) + 1)


@pytest.mark.parametrize("name", CONVENTIONS)
@settings(deadline=None, max_examples=15)
@given(labels=tables(), clients=st.integers(1, 18), seed=seeds)
def test_every_convention_is_disjoint_inside_the_data_and_deterministic(name, labels, clients, seed):
    partitioner = made(name)
    parts = partitioner.split(labels, clients, seed, columns_for(labels, clients))
    assert parts.rows.dtype == parts.offsets.dtype == np.int64
    assert parts.offsets[0] == 0 and parts.offsets[-1] == len(parts.rows) and parts.clients == clients
    assert len(np.unique(parts.rows)) == len(parts.rows) <= len(labels)
    assert len(parts.rows) == 0 or (parts.rows.min() >= 0 and parts.rows.max() < len(labels))
    assert all((np.diff(parts.of(k)) > 0).all() for k in range(clients))
    again = pickle.loads(pickle.dumps(partitioner)).split(labels, clients, seed, columns_for(labels, clients))
    assert np.array_equal(parts.rows, again.rows) and np.array_equal(parts.offsets, again.offsets)
    counts = histograms(parts, labels)
    assert np.array_equal(counts.sum(axis=1), parts.sizes)
    assert (counts.sum(axis=0) <= np.bincount(labels)).all()


@pytest.mark.parametrize("name", [name for name in CONVENTIONS if name != "natural"])
def test_another_seed_differs(name):
    one, two = (made(name).split(BALANCED, 10, seed, columns_for(BALANCED, 10)) for seed in (0, 1))
    assert not np.array_equal(one.rows, two.rows)


def test_the_draw_is_keyed_by_seed_purpose_and_name():
    shuffle = rng.generator(rng.key(5, "partition", "iid")).permutation(2000)
    assert np.array_equal(Iid().split(BALANCED, 2, 5).of(0), np.sort(shuffle[:1000]))


@pytest.mark.parametrize("partitioner", USES_ALL, ids=repr)
@settings(deadline=None, max_examples=15)
@given(labels=tables(), clients=st.integers(4, 18), seed=seeds)
def test_nothing_is_lost(partitioner, labels, clients, seed):
    parts = partitioner.split(labels, clients, seed, columns_for(labels, clients))
    assert np.array_equal(np.sort(parts.rows), np.arange(len(labels)))


def test_the_table_holds_each_convention_under_its_own_name():
    assert all(PARTITIONERS[name].name == name for name in CONVENTIONS)
    assert PARTITIONERS["dirichlet"] is Dirichlet
    assert repr(DirExtended(alpha=0.1)) == "DirExtended(labels=2, alpha=0.1)" and Dirichlet(0.1) == Dirichlet(alpha=0.1)
    assert Dirichlet(0.1).options() == {"alpha": 0.1} and Iid().options() == {}


def test_partition_helpers():
    parts = deal(np.array([0, 1, 0, 1, 1]), np.array([[1, 2], [0, 0], [1, 0]]), rng.generator(0))
    assert parts.sizes.tolist() == [3, 0, 1] and len(parts.of(1)) == 0
    assert parts.counts([0, 1, 0, 1, 1], 3).tolist() == [[1, 2, 0], [0, 0, 0], [1, 0, 0]]
    for k in (-1, 3):
        with pytest.raises(IndexError):
            parts.of(k)


# helpers


@quick
@given(
    shares=st.lists(st.floats(0, 1e6), min_size=1, max_size=12).filter(lambda s: sum(s) > 0),
    total=st.integers(0, 10**6),
)
def test_largest_remainder_sums_and_stays_within_one(shares, total):
    out = largest_remainder(np.array([shares]), np.array([total]))[0]
    exact = np.array(shares) / sum(shares) * total
    assert out.sum() == total and (np.abs(out - exact) < 1 + 1e-6).all()


def test_largest_remainder_of_a_row_without_shares():
    assert largest_remainder(np.array([[0.0, 0.0], [1.0, 2.0]]), np.array([0, 4])).tolist() == [[0, 0], [1, 3]]


@quick
@given(alpha=st.floats(-300, 300).map(lambda e: 10.0**e), seed=seeds)
def test_log_dirichlet_is_normalised_for_any_concentration(alpha, seed):
    logs = log_dirichlet(np.full((5, 30), alpha), rng.generator(seed))
    assert not np.isnan(logs).any() and np.allclose(np.exp(logs).sum(axis=1), 1)


@pytest.mark.parametrize("alpha", [0.05, 0.5, 4.0])
def test_log_dirichlet_has_the_moments_of_the_distribution(alpha):
    shares = np.exp(log_dirichlet(np.full((40_000, 4), alpha), rng.generator(7)))
    variance = 0.25 * 0.75 / (4 * alpha + 1)
    assert np.allclose(shares.mean(axis=0), 0.25, atol=5 * (variance / 40_000) ** 0.5)
    assert np.allclose(shares.var(axis=0), variance, rtol=0.05)


# iid


@quick
@given(labels=tables(), clients=st.integers(1, 50), seed=seeds)
def test_iid_sizes_are_equal(labels, clients, seed):
    sizes = Iid().split(labels, clients, seed).sizes
    assert sizes.max() - sizes.min() <= 1


# dirichlet, dir_client_equal, dir_prior


@pytest.mark.parametrize("partitioner", [Dirichlet(1e6), DirClientEqual(1e6), DirPrior(1e6)], ids=lambda c: c.name)
def test_large_alpha_gives_iid_histograms(partitioner):
    counts = histograms(partitioner.split(BALANCED, 10, 0), BALANCED)
    assert np.abs(counts - 20).max() <= 2


@quick
@given(labels=tables(), clients=st.integers(1, 30), seed=seeds)
def test_alpha_towards_zero_gives_each_class_to_one_client(labels, clients, seed):
    counts = histograms(Dirichlet(1e-9).split(labels, clients, seed), labels)
    assert ((counts > 0).sum(axis=0) <= 1).all()


@pytest.mark.parametrize("kind", [Dirichlet, DirClientEqual, DirPrior])
@settings(deadline=None, max_examples=20)
@given(labels=tables(), alpha=alphas, clients=st.integers(1, 20), seed=seeds)
def test_no_alpha_breaks_a_dirichlet(kind, labels, alpha, clients, seed):
    parts = kind(alpha).split(labels, clients, seed)
    assert len(np.unique(parts.rows)) == len(parts.rows) > 0


@pytest.mark.parametrize(("alpha", "low", "high"), [(0.05, 0.8, 0.95), (0.1, 0.06, 0.17), (0.5, 0.0, 0.0)])
def test_how_often_class_wise_dirichlet_leaves_a_client_empty(alpha, low, high):
    labels = np.repeat(np.arange(10), 6000)
    empty = [(Dirichlet(alpha).split(labels, 100, seed).sizes == 0).any() for seed in range(200)]
    assert low <= np.mean(empty) <= high  # about 0.88, 0.11 and 0


@quick
@given(labels=tables(), alpha=alphas, clients=st.integers(1, 20), seed=seeds)
def test_fedga_sizes_are_near_equal_and_the_scarcest_class_is_used_up(labels, alpha, clients, seed):
    counts = histograms(DirClientEqual(alpha).split(labels, clients, seed), labels)
    left = np.bincount(labels) - counts.sum(axis=0)
    assert np.ptp(counts.sum(axis=1)) <= 10  # a rounding of one half for each of 10 classes
    assert left[np.unique(labels)].min() <= clients / 2


def test_seol_kim_cases():
    cifar, mnist = np.repeat(np.arange(10), 5000), np.repeat(np.arange(10), 6000)
    case1 = histograms(DirPrior(0).split(cifar, 200, 0), cifar)
    assert ((case1 > 0).sum(axis=1) == 1).all() and (case1.sum(axis=1) == 250).all()
    case2 = histograms(DirPrior(alpha=0, rest=20, alpha_rest=0.2).split(cifar, 200, 0), cifar)
    assert ((case2[:180] > 0).sum(axis=1) == 1).all() and ((case2[180:] > 0).sum(axis=1) > 1).any()
    case3 = DirPrior(0.2).split(cifar, 100, 0)
    assert (case3.sizes == 500).all()
    case4 = histograms(DirPrior(0).split(mnist, 200, 0), mnist)
    assert (case4.max(axis=1) == 300).all() and (case4.sum(axis=1) == 300).all()


@quick
@given(labels=tables(), clients=st.integers(1, 40), seed=seeds, rest=st.integers(0, 40))
def test_dir_prior_sizes_are_equal_and_alpha_zero_gives_one_class(labels, clients, seed, rest):
    rest = min(rest, clients)
    counts = histograms(DirPrior(0, rest=rest, alpha_rest=0.5).split(labels, clients, seed), labels)
    assert np.ptp(counts.sum(axis=1)) == 0 and counts.sum(axis=1)[0] > 0
    assert ((counts[: clients - rest] > 0).sum(axis=1) == 1).all()


def test_dir_prior_largest_size_is_tight_and_the_data_prior_follows_the_data():
    labels = np.repeat(np.arange(3), [100, 50, 10])
    best = int(DirPrior(0).split(labels, 7, 0).sizes[0])  # 100//20 + 50//20 + 10//20 = 7, at 21 it is 6
    assert best == 20
    with pytest.raises(ConfigError, match="at most 20 here; got 21; use 20 or 0"):
        DirPrior(0, samples=21).split(labels, 7, 0)
    counts = histograms(DirPrior(1e6, samples=16, prior="data").split(labels, 10, 0), labels)
    assert np.array_equal(counts, np.tile([10, 5, 1], (10, 1)))


# labels_k, double, shards


@quick
@given(labels=tables(), clients=st.integers(1, 40), seed=seeds, wanted=st.integers(1, 10))
def test_labels_k_gives_exactly_l_labels_split_equally(labels, clients, seed, wanted):
    partitioner = LabelsK(wanted)
    counts = histograms(partitioner.split(labels, clients, seed), labels)
    held = (counts > 0).sum(axis=1)
    owners = -(-clients * wanted // 10)
    assert (held == wanted).all() if owners <= 20 else (held <= wanted).all()
    for column in counts.T:
        assert np.ptp(column[column > 0]) <= 1 if column.any() else True
    literal = histograms(replace(partitioner, repeats=True).split(labels, clients, seed), labels)
    assert ((literal > 0).sum(axis=1) <= wanted).all()


def test_the_literal_deal_repeats_labels_and_ours_does_not():
    labels = np.repeat(np.arange(10), 1000)
    held = [(histograms(LabelsK(7, repeats=r).split(labels, 50, 0), labels) > 0).sum(axis=1) for r in (True, False)]
    assert held[0].min() < 7 and (held[1] == 7).all()


def test_double_follows_the_power_law():
    labels = np.repeat(np.arange(4), 2500)
    counts = histograms(Double(labels=4, exponent=1.0).split(labels, 50, 3), labels)
    ranks = np.arange(1, 51) ** -1.0
    for column in counts.T:
        assert np.abs(np.sort(column)[::-1] - 2500 * ranks / ranks.sum()).max() <= 1
    assert len({tuple(np.argsort(-column)) for column in counts.T}) == 4  # each label has its own order
    level = histograms(Double(labels=4, exponent=0.0).split(labels, 50, 3), labels)
    assert (level == 50).all()


@quick
@given(labels=tables(), clients=st.integers(1, 40), seed=seeds, shards=st.integers(1, 4))
def test_shards_are_contiguous_in_the_sorted_labels(labels, clients, seed, shards):
    parts = Shards(shards).split(labels, clients, seed)
    counts = histograms(parts, labels)
    per_shard = -(-len(labels) // (clients * shards))
    # a shard of at most m rows touches at most 2 + (m - 2) / 20 classes of at least 20 rows
    assert ((counts > 0).sum(axis=1) <= shards * (2 + per_shard // 20)).all()
    assert np.ptp(parts.sizes) <= shards


# exclusive_iid


@quick
@given(labels=tables(), clients=st.integers(1, 12), seed=seeds, share=st.floats(0, 1), unique=st.integers(1, 3))
def test_exclusive_labels_have_one_owner_and_sizes_are_equal(labels, clients, seed, share, unique):
    alone = int(clients * share + 0.5)
    partitioner = ExclusiveIid(share, unique)
    if alone * unique > 10 - (alone < clients):
        with pytest.raises(ConfigError, match="unique_c"):
            partitioner.split(labels, clients, seed)
        return
    counts = histograms(partitioner.split(labels, clients, seed), labels)
    owned = counts > 0
    assert np.ptp(counts.sum(axis=1)) == 0 and counts.sum(axis=1)[0] > 0
    assert (owned[:alone].sum(axis=1) == unique).all()
    assert (owned[:, owned[:alone].any(axis=0)].sum(axis=0) == 1).all()
    assert all(np.ptp(row[row > 0]) <= 1 for row in counts[:alone])
    assert (np.ptp(counts[alone:], axis=0) <= 1).all() if alone < clients else True


@pytest.mark.parametrize(("unique", "samples", "alone", "iid"), [(1, 0, 1 / 43, 20 / 43), (6, 2400, 6 / 23, 2.5 / 23)])
def test_fedla_emnist_design_gives_the_papers_weights(unique, samples, alone, iid):
    labels = np.repeat(np.arange(47), 2400)
    parts = ExclusiveIid(noniid_s=0.7, unique_c=unique, samples=samples).split(labels, 10, 0)
    assert (parts.sizes == 2400).all()
    cohort = parts.counts(labels, 47)[[0, 1, 2, 7, 8]]
    held = cohort.sum(axis=0)
    weights = (cohort[:, held > 0] / held[held > 0]).sum(axis=1) / (held > 0).sum()
    assert np.allclose(weights, [alone] * 3 + [iid] * 2, atol=1e-12)


def test_fedla_cifar100_default_size():
    labels = np.repeat(np.arange(100), 500)
    assert (ExclusiveIid(0.7, 2).split(labels, 10, 0).sizes == 1000).all()


# natural


def test_natural_groups_rows_by_value():
    site = np.array(["b", "a", "b", "c", "a"])
    partitioner = Natural("site")
    assert partitioner.count({"site": site}) == 3
    parts = partitioner.split([0, 1, 0, 1, 1], 3, 0, {"site": site})
    assert [parts.of(k).tolist() for k in range(3)] == [[1, 4], [0, 2], [3]]


# what cannot be met


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: Dirichlet(0.0), "Dirichlet.alpha must be positive; got 0.0; use 0.001"),
        (lambda: Dirichlet(float("nan")), "Dirichlet.alpha must be a number; got nan"),
        (lambda: DirClientEqual(float("inf")), "DirClientEqual.alpha must be finite; got inf"),
        (lambda: DirClientEqual(1).split([0, 0, 1], 2, 0), "clients must be at most the 1 rows of the scarcest class"),
        (lambda: DirPrior(-1), "DirPrior.alpha must be at least 0; got -1"),
        (lambda: DirPrior(prior="unifrom"), "did you mean 'uniform'"),
        (lambda: DirPrior(rest=11).split(BALANCED, 10, 0), "rest must be at most the 10 clients; got 11; use 10"),
        (lambda: DirPrior(0).split([0, 1], 3, 0), "clients must leave every client at least one row"),
        (lambda: LabelsK(0), "LabelsK.labels must be at least 1; got 0"),
        (lambda: LabelsK(11).split(BALANCED, 5, 0), "labels must be at most the 10 classes; got 11; use 10"),
        (lambda: Double(11).split(BALANCED, 5, 0), "labels must be at most the 10 classes; got 11; use 10"),
        (lambda: Double(2, -1.0), "Double.exponent must be at least 0; got -1.0"),
        (lambda: Shards(3).split(BALANCED, 1000, 0), "one of the 2000 rows; got 3; use 2"),
        (lambda: Shards(1).split(BALANCED, 2001, 0), "got 1; use 1 and at most 2000 clients"),
        (lambda: Iid().split(BALANCED, 0, 0), "clients must be a whole number of at least 1; got 0"),
        (lambda: Iid().split(BALANCED, 2.5, 0), "clients must be a whole number of at least 1; got 2.5"),
        (lambda: Iid().split(BALANCED, 2001, 0), "clients must be at most the 2000 rows; got 2001; use 2000"),
        (lambda: ExclusiveIid(1.5), r"noniid_s must be in \[0, 1\]; got 1.5"),
        (lambda: ExclusiveIid(0.5, 2).split(BALANCED, 10, 0), "got 2; use 1$"),
        (lambda: ExclusiveIid(0.5, 2).split(BALANCED, 40, 0), "got 2; use 1, and noniid_s at most 0.225"),
        (lambda: ExclusiveIid(0.5, 1, 300).split(BALANCED, 4, 0), "samples must be at most 200 here; got 300"),
        (lambda: Natural("sit").split(BALANCED, 3, 0, {"site": BALANCED}), "did you mean 'site'"),
        (lambda: Natural("site").split(BALANCED, 3, 0, {"site": BALANCED}), "got 3; use 10"),
    ],
)
def test_an_impossible_request_is_one_line_with_a_suggestion(attempt, message):
    with pytest.raises(ConfigError, match=message) as caught:
        attempt()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("hinted", [ExclusiveIid(0.225, 1), ExclusiveIid(0.5, 1)])
def test_suggested_settings_are_feasible(hinted):
    assert hinted.split(BALANCED, 40 if hinted.noniid_s == 0.225 else 10, 0).sizes.min() > 0


@pytest.mark.parametrize("labels", [[], [[0, 1]], [0.5, 1.0]])
def test_labels_must_be_a_vector_of_integers(labels):
    with pytest.raises(DataError, match="labels must be a non-empty vector of integers"):
        Iid().split(labels, 1, 0)
    with pytest.raises(DataError, match=r"column 'client' must hold \(2,\) values; got \(3,\)"):
        Natural().split([0, 1], 2, 0, {"client": np.arange(3)})


@pytest.mark.parametrize("name", CONVENTIONS)
def test_a_thousand_clients_take_well_under_a_second(name):
    labels = np.repeat(np.arange(10), 6000)
    partitioner = PARTITIONERS[name]()
    start = time.perf_counter()
    partitioner.split(labels, 1000, 0, {"client": np.arange(60_000) % 1000})
    assert time.perf_counter() - start < 1.0
