"""What each partitioner promises beyond the properties of all: its limits, its options, what it refuses."""

import hashlib
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedskew import rng
from fedskew.data import federate, from_arrays
from fedskew.data.partitioners import (
    PARTITIONERS,
    Counts,
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
    dirichlet,
    largest_remainder,
    log_dirichlet,
)
from fedskew.data.partitioners.base import argsort
from fedskew.data.partitioners.tail import long_tail
from fedskew.errors import ConfigError, DataError

few = settings(deadline=None, max_examples=15)
seeds = st.integers(0, 2**31)
alphas = st.floats(-3, 6).map(lambda e: 10.0**e)
BALANCED = np.repeat(np.arange(10), 200)
MIXED = np.random.default_rng(5).permutation(np.repeat(np.arange(10), np.arange(60, 260, 20)))
SITES = {"site": np.arange(len(MIXED)) % 7}


def counted(partitioner, labels, clients, seed=0, columns=None):
    return partitioner.split(labels, clients, seed, columns).counts(labels, int(labels.max()) + 1)


# recorded behaviour

EVERY = [
    Iid(), Dirichlet(), Dirichlet(0.3, balance_guard=1.0), Dirichlet(0.5, least=3),
    Dirichlet(rounding="largest_remainder"), DirClientEqual(), DirClientNorm(), DirBernoulli(), DirExtended(),
    DirPrior(), DirPrior(0.2), DirPrior(0, rest=4), DirPrior(1.0, prior="data"), LabelsK(), LabelsK(7, repeats=True),
    Double(), Double(3, 0.5), Shards(), Mix(), Mix(0.5, 3), ExclusiveIid(0.3, 2), LongTail(factor=5.0),
    LongTail(Shards(), 3.0, "step"), QuantityPower(), QuantityLognormal(), QuantityDir(), Feature(),
    Feature(bins=3), Natural(),
]  # fmt: skip
RECORDED = {
    "Iid()": "7527502a560a",
    "Dirichlet(alpha=0.1, balance_guard=None, least=None, rounding=None)": "66bd2c13d15a",
    "Dirichlet(alpha=0.3, balance_guard=1.0, least=None, rounding=None)": "87f2e360da3e",
    "Dirichlet(alpha=0.5, balance_guard=None, least=3, rounding=None)": "4411bbcf4df8",
    "Dirichlet(alpha=0.1, balance_guard=None, least=None, rounding='largest_remainder')": "fff6db1fb816",
    "DirClientEqual(alpha=0.1)": "a9726784fe29",
    "DirClientNorm(alpha=0.1, rounding='round')": "383678038b2d",
    "DirBernoulli(alpha=0.1, p=0.5)": "6d12e2eec7a5",
    "DirExtended(labels=2, alpha=0.5)": "f3bd006c24d1",
    "DirPrior(alpha=0.0, rest=0, alpha_rest=0.2, samples=0, prior='uniform')": "02b65194d171",
    "DirPrior(alpha=0.2, rest=0, alpha_rest=0.2, samples=0, prior='uniform')": "d7caa3c16954",
    "DirPrior(alpha=0, rest=4, alpha_rest=0.2, samples=0, prior='uniform')": "7e6252394507",
    "DirPrior(alpha=1.0, rest=0, alpha_rest=0.2, samples=0, prior='data')": "3e4f4e148f5d",
    "LabelsK(labels=2, repeats=False)": "4cca8625f678",
    "LabelsK(labels=7, repeats=True)": "1814e0162d11",
    "Double(labels=2, exponent=1.0, repeats=False)": "cfdf1a0aedab",
    "Double(labels=3, exponent=0.5, repeats=False)": "6cc724034052",
    "Shards(shards=2)": "596ab69badab",
    "Mix(homo_ratio=0.1, minority=0, minority_share=0.1)": "cdacf8838b60",
    "Mix(homo_ratio=0.5, minority=3, minority_share=0.1)": "60a22793fcc0",
    "ExclusiveIid(noniid_s=0.3, unique_c=2, samples=0)": "adbf2153f7a5",
    repr(LongTail(factor=5.0)): "30f7a79faaf4",
    "LongTail(base=Shards(shards=2), factor=3.0, profile='step')": "5c071cea3c69",
    "QuantityPower(exponent=1.0, least=1)": "038b750578fa",
    "QuantityLognormal(sigma=1.0, least=1)": "13870587f644",
    "QuantityDir(alpha=0.5, least=1)": "189c86894b07",
    "Feature(column='', alpha=0.1, bins=0)": "741b2db94426",
    "Feature(column='', alpha=0.1, bins=3)": "beec736d759e",
    "Natural(column='')": "8d1e662cc5fd",
}


def content(parts):
    return hashlib.sha256(parts.offsets.astype("<i8").tobytes() + parts.rows.astype("<i8").tobytes()).hexdigest()[:12]


@pytest.mark.parametrize("partitioner", EVERY, ids=repr)
def test_the_split_is_that_on_record(partitioner):
    """Also on any machine: a change of these is a change of every result that was published with them."""
    assert content(partitioner.split(MIXED, 7, 11, SITES)) == RECORDED[repr(partitioner)]


@pytest.mark.parametrize("partitioner", EVERY, ids=repr)
def test_the_split_does_not_depend_on_how_labels_are_stored(partitioner):
    expected = content(partitioner.split(MIXED, 7, 3, SITES))
    wide = np.zeros((len(MIXED), 3), np.int32)
    wide[:, 1] = MIXED
    for stored in (MIXED.astype(np.uint8), MIXED.astype(">i8"), wide[:, 1], torch.from_numpy(MIXED), MIXED.tolist()):
        assert content(partitioner.split(stored, 7, 3, SITES)) == expected


def test_labels_that_are_renumbered_give_the_same_rows():
    for labels in (MIXED * 3, MIXED - 100, MIXED + 2**40):
        assert content(Dirichlet().split(labels, 7, 3)) == content(Dirichlet().split(MIXED, 7, 3))


@few
@given(bound=st.sampled_from([1, 60, 1 << 16, (1 << 16) + 1, 10**7, 1 << 33]), n=st.integers(0, 400), seed=seeds)
def test_the_radix_order_is_the_stable_order(bound, n, seed):
    keys = np.random.default_rng(seed).integers(0, bound, n)
    keys[: n // 2 : 3] = bound - 1
    assert np.array_equal(argsort(keys, bound), np.argsort(keys, kind="stable"))


# dirichlet


@few
@given(alpha=alphas, clients=st.integers(1, 60), seed=seeds)
def test_largest_remainders_and_the_cut_round_the_same_shares(alpha, clients, seed):
    cut = counted(Dirichlet(alpha), MIXED, clients, seed)
    largest = counted(Dirichlet(alpha, rounding="largest_remainder"), MIXED, clients, seed)
    assert np.abs(cut - largest).max() <= 1 and np.array_equal(cut.sum(0), largest.sum(0))


@few
@given(alpha=alphas, clients=st.integers(1, 60), seed=seeds, guard=st.floats(1, 3))
def test_the_guard_closes_clients_that_have_enough(alpha, clients, seed, guard):
    counts = counted(Dirichlet(alpha, balance_guard=guard), MIXED, clients, seed)
    before = np.cumsum(counts, axis=1) - counts  # what a client had when class c was split
    assert (counts[before >= guard * len(MIXED) / clients] == 0).all()
    assert np.array_equal(counts.sum(0), np.bincount(MIXED))


def test_the_guard_closes_a_client_that_has_exactly_its_part():
    labels = np.repeat([0, 1, 2], 40)
    for seed in range(6):
        counts = counted(Dirichlet(1e-9, balance_guard=1.0), labels, 3, seed)
        assert sorted(counts.tolist(), reverse=True) == [[40, 0, 0], [0, 40, 0], [0, 0, 40]]


def test_the_guard_evens_sizes_out():
    plain, guarded = (Dirichlet(0.5, balance_guard=g).split(BALANCED, 20, 1).sizes for g in (None, 1.0))
    assert guarded.max() < plain.max() and guarded.max() <= 100 + 200


def test_least_draws_again_a_bounded_number_of_times_and_names_what_is_possible(monkeypatch):
    assert Dirichlet(0.5, least=10).split(BALANCED, 20, 0).sizes.min() >= 10
    drawn = []
    monkeypatch.setattr(dirichlet, "log_dirichlet", lambda *a: drawn.append(1) or log_dirichlet(*a))
    with pytest.raises(ConfigError, match=r"Dirichlet\.least must be met by one of 100 draws at alpha 0.05") as caught:
        Dirichlet(0.05, least=50).split(BALANCED, 30, 0)
    assert len(drawn) == 100
    feasible = int(str(caught.value).split("use ")[1].split(",")[0])
    assert Dirichlet(0.05, least=feasible).split(BALANCED, 30, 0).sizes.min() >= feasible


def test_without_least_nothing_is_drawn_twice(monkeypatch):
    drawn = []
    monkeypatch.setattr(dirichlet, "log_dirichlet", lambda *a: drawn.append(1) or log_dirichlet(*a))
    assert (Dirichlet(1e-3).split(BALANCED, 1000, 0).sizes == 0).any() and len(drawn) == 1


# other Dirichlets


@pytest.mark.parametrize(
    "partitioner",
    [
        DirClientNorm(1e6),
        DirExtended(10, 1e6),
        DirBernoulli(1e6, 1.0),
        Dirichlet(1e6, balance_guard=1.5),
        Dirichlet(1e6, rounding="largest_remainder"),
    ],
    ids=repr,
)
def test_large_alpha_gives_iid_histograms(partitioner):
    counts = counted(partitioner, BALANCED, 10)
    assert np.abs(counts - 20).max() <= 2 and np.abs(counts.sum(1) - 200).max() <= 10


@few
@given(clients=st.integers(1, 40), seed=seeds)
def test_alpha_towards_zero_gives_one_class_a_client_where_clients_draw(clients, seed):
    equal, norm = (counted(kind(1e-9), MIXED, clients, seed) for kind in (DirClientEqual, DirClientNorm))
    assert ((equal > 0).sum(1) <= 1).all()
    shared = (norm > 0).sum(0) > 1  # a class that none drew goes to one client whole, beside the client's own
    assert ((norm[:, shared] > 0).sum(1) <= 1).all() and (norm.sum(1) > 0).sum() + 10 > (norm > 0).sum()


@few
@given(clients=st.integers(1, 40), seed=seeds, labels=st.integers(1, 10), alpha=st.sampled_from([1e-9, 0.3, 1e9]))
def test_extended_dirichlet_is_between_one_owner_and_equal_shares(clients, seed, labels, alpha):
    counts = counted(DirExtended(labels, alpha), MIXED, clients, seed)
    assert ((counts > 0).sum(1) <= labels).all()
    owned = counts.any(axis=0)
    assert np.array_equal(counts.sum(0)[owned], np.bincount(MIXED)[owned])
    assert owned.sum() == min(10, clients * labels)
    if alpha == 1e-9:
        assert ((counts > 0).sum(0) <= 1).all()
    if alpha == 1e9:
        owners = (counts > 0).sum(0)[owned]
        assert (np.abs(counts[:, owned].max(0) - np.bincount(MIXED)[owned] / owners) < 1.01).all()


@pytest.mark.parametrize("p", [0.01, 0.3, 1.0])
def test_bernoulli_owners(p):
    for clients in (1, 7, 40):
        counts = counted(DirBernoulli(1e9, p), MIXED, clients)
        assert (counts.sum(1) > 0).all() and np.array_equal(counts.sum(0), np.bincount(MIXED))
    many = counted(DirBernoulli(1e9, p), np.repeat(np.arange(10), 3000), 1000)
    expected = p + (1 - p) ** 10 / 10  # who drew none gets one of ten
    assert abs((many > 0).mean() - expected) < 5 * (expected * (1 - expected) / 10_000) ** 0.5 + 1e-9


@few
@given(clients=st.integers(1, 80), seed=seeds, alpha=alphas, samples=st.integers(0, 9), block=st.integers(1, 9))
def test_dir_prior_serves_blocks_as_it_would_serve_one_client_after_the_other(clients, seed, alpha, samples, block):
    gens = rng.generator(seed), rng.generator(seed)
    left, size = np.bincount(MIXED) // 4, max(samples, 1)
    size = min(size, int(left.sum()) // clients)
    order, p = np.random.default_rng(seed).permutation(clients), np.bincount(MIXED) / len(MIXED)
    one, rest = np.zeros((clients, 10), np.int64), left.copy()
    apart = np.random.Generator(np.random.PCG64(int(gens[0].integers(2**63))))
    a = np.maximum(alpha * p, 1e-300)
    for k in order:
        logs = np.log(gens[0].standard_gamma(a + 1.0)) - apart.standard_exponential(a.shape) / a
        one[k] = dirichlet._serve(rest, dirichlet.normalised(logs[None])[0], size)
        rest -= one[k]
    blocks, monkeypatch = np.zeros((clients, 10), np.int64), pytest.MonkeyPatch()
    with monkeypatch.context() as patch:
        patch.setattr(dirichlet, "BLOCK", block)
        dirichlet._serve_all(blocks, order, np.full(clients, alpha), p, size, left, gens[1])
    assert np.array_equal(one, blocks)


@pytest.mark.parametrize(
    "made",
    [
        lambda a: Dirichlet(a, balance_guard=1.0), lambda a: Dirichlet(a, rounding="largest_remainder"), DirClientNorm,
        lambda a: DirClientNorm(a, "largest_remainder"), DirBernoulli, lambda a: DirExtended(3, a), QuantityDir,
        lambda a: LongTail(Dirichlet(a), 3.0), lambda a: Feature(alpha=a), lambda a: DirPrior(a, prior="data"),
    ],
)  # fmt: skip
@few
@given(alpha=alphas, clients=st.integers(1, 60), seed=seeds)
def test_no_alpha_breaks_a_partitioner(made, alpha, clients, seed):
    parts = made(alpha).split(MIXED, clients, seed, SITES)
    assert len(np.unique(parts.rows)) == len(parts.rows) > 0 and parts.clients == clients


# labels


@pytest.mark.parametrize("clients", [1, 2, 3, 9, 10, 11, 19, 20, 37, 100, 191])
def test_exclusive_iid_works_at_its_defaults_with_ten_classes(clients):
    counts = counted(ExclusiveIid(), MIXED, clients)
    owners = (counts > 0).sum(0)
    assert (counts.sum(1) > 0).all() and np.ptp(counts.sum(1)) == 0
    assert (owners == 1).any() or clients == 1
    if clients in (2, 10):
        assert np.array_equal(counts, counted(ExclusiveIid(0.5), MIXED, clients))
    if clients >= 20:
        assert counts[5:].any(axis=0).sum() == 5  # the others keep half of the labels


@few
@given(clients=st.integers(1, 50), seed=seeds, h=st.floats(0, 1))
def test_mix_spreads_a_part_and_cuts_the_rest(clients, seed, h):
    parts = Mix(h).split(MIXED, clients, seed)
    assert np.ptp(parts.sizes) <= 2
    sorted_ = Mix(0.0).split(MIXED, clients, seed)
    held = [np.unique(MIXED[sorted_.of(k)]) for k in range(clients)]
    assert all(a[-1] <= b[0] for a, b in itertools.pairwise(held))
    assert np.ptp(Mix(1.0).split(MIXED, clients, seed).sizes) <= 1


def test_mix_makes_labels_rare_before_it_divides():
    counts = counted(Mix(0.2, minority=3, minority_share=0.1), BALANCED, 10).sum(0)
    assert counts.tolist() == [20] * 3 + [200] * 7
    assert counted(Mix(0.2, minority=10, minority_share=0.0), BALANCED, 2).sum(0).tolist() == [1] * 10


# quantities


@pytest.mark.parametrize("partitioner", [QuantityPower(0.0, 0), QuantityLognormal(0.0), QuantityDir(1e9)], ids=repr)
def test_no_quantity_skew_gives_equal_sizes(partitioner):
    assert np.ptp(partitioner.split(MIXED, 37, 0).sizes) <= 1


@pytest.mark.parametrize("partitioner", [QuantityPower(60.0), QuantityLognormal(1e4), QuantityDir(1e-6)], ids=repr)
def test_extreme_quantity_skew_leaves_the_others_their_least(partitioner):
    sizes = np.sort(partitioner.split(MIXED, 20, 0).sizes)
    assert (sizes[:-1] == 1).all() and sizes.sum() == len(MIXED)


@few
@given(clients=st.integers(1, 60), seed=seeds, least=st.integers(0, 20), a=st.floats(0, 3))
def test_power_law_sizes_are_those_of_the_formula(clients, seed, least, a):
    sizes = np.sort(QuantityPower(a, least).split(MIXED, clients, seed).sizes)[::-1]
    law = np.arange(1, clients + 1) ** -a
    assert np.abs(sizes - least - (len(MIXED) - clients * least) * law / law.sum()).max() < 1 + 1e-9


def test_quantity_skew_leaves_labels_iid():
    counts = counted(QuantityPower(1.0), np.repeat(np.arange(10), 6000), 10)
    q = counts / counts.sum(1, keepdims=True)
    assert np.abs(q - 0.1).max() < 5 * (0.09 / counts.sum(1).min()) ** 0.5


# long tail


@pytest.mark.parametrize("base", [Dirichlet(0.3), Shards(), QuantityPower(), DirBernoulli(), Feature()], ids=repr)
@pytest.mark.parametrize("profile", ["exp", "step"])
def test_the_long_tail_of_a_convention_is_the_long_tail_of_the_federation(base, profile):
    data = from_arrays(np.zeros((len(MIXED), 1)), MIXED, np.zeros((2, 1)), [0, 9], columns=SITES)
    one = federate(data, LongTail(base, 6.0, profile), clients=7, seed=4)
    two = federate(data, base, clients=7, seed=4, longtail=6.0, longtail_profile=profile)
    assert content(one.partition) == content(two.partition)
    assert one.counts.sum(0).tolist() == long_tail(np.bincount(MIXED), 6.0, profile).tolist()


def test_the_profiles():
    assert long_tail(np.full(5, 100), 10, "step").tolist() == [100, 100, 100, 10, 10]
    assert long_tail(np.full(3, 100), 100).tolist() == [100, 10, 1]
    with pytest.raises(
        ConfigError, match=r"LongTail\.factor must leave a row of each class; got 300.0; use at most 200"
    ):
        LongTail(factor=300.0).split(BALANCED, 5, 0)
    with pytest.raises(ConfigError, match="two classes at least"):
        LongTail().split([0, 0, 0], 2, 0)


def test_natural_clients_survive_the_long_tail_even_empty():
    site = np.where(MIXED == 9, 3, np.arange(len(MIXED)) % 3)  # the fourth site has only the last class
    parts = LongTail(Natural(), 200.0).split(
        np.repeat(np.arange(10), 200), 4, 0, {"site": np.repeat([0, 1, 2, 3], 500)}
    )
    assert parts.clients == 4
    whole = Natural().split(MIXED, 4, 0, {"site": site})
    thin = LongTail(Natural(), 20.0).split(MIXED, 4, 0, {"site": site})
    assert all(set(thin.of(k)) <= set(whole.of(k)) for k in range(4)) and 0 < len(thin.of(3)) < len(whole.of(3))
    assert LongTail(Natural()).decides and LongTail(Natural()).count({"site": site}) == 4 and not LongTail().decides


# what is given


def test_the_only_column_is_guessed_and_natural_names_are_kept():
    x, names = np.zeros((6, 1)), ["b", "a", "b", "c", "a", "c"]
    data = from_arrays(x, [0, 1, 0, 1, 0, 1], x[:2], [0, 1], columns={"writer": names})
    fed = federate(data, "natural")
    assert fed.client_names == ("a", "b", "c") and fed.rows(1).tolist() == [0, 2]
    assert federate(data, LongTail(Natural(), 1.0)).client_names == ("a", "b", "c")
    assert federate(data, "iid", clients=2).client_names == ()
    two = {"writer": np.arange(6), "site": np.arange(6)}
    with pytest.raises(ConfigError, match="must name a column of the data; got ''; use one of writer, site"):
        Natural().count(two)
    assert Natural().count({**two, "client": np.zeros(6)}) == 1
    with pytest.raises(ConfigError, match="the data have none: from_arrays takes columns="):
        Feature().split([0, 1], 1, 0)


@few
@given(clients=st.integers(1, 30), seed=seeds, alpha=alphas, bins=st.integers(0, 9))
def test_feature_skew_divides_the_values_of_a_column(clients, seed, alpha, bins):
    value = np.random.default_rng(seed).normal(size=300).round(1)
    parts = Feature(alpha=alpha, bins=bins).split(np.arange(300) % 3, clients, seed, {"brightness": value})
    assert len(parts.rows) == 300 == len(np.unique(parts.rows))
    one = Feature(alpha=1e-9, bins=bins).split(np.arange(300) % 3, clients, seed, {"brightness": value})
    owner = np.empty(300, int)
    owner[one.rows] = np.repeat(np.arange(clients), one.sizes)
    assert all(len(set(owner[value == v])) == 1 for v in np.unique(value))
    if bins:
        groups = Feature(bins=bins)._groups(value)
        assert groups.max() < bins and (np.diff(groups[np.argsort(value)]) >= 0).all()
        assert np.abs(np.bincount(groups) - 300 / bins).max() < 40  # a value has some thirty rows at most


def test_too_many_values_are_refused_with_bins_that_fit(monkeypatch):
    from fedskew.data.partitioners import given as module

    monkeypatch.setattr(module, "CELLS", 1000)
    columns = {"x": np.arange(200)}
    with pytest.raises(ConfigError, match=r"Feature\.bins must make at most 50 groups of the 200 values .* use 50"):
        Feature().split(np.arange(200) % 2, 20, 0, columns)
    assert Feature(bins=50).split(np.arange(200) % 2, 20, 0, columns).clients == 20


def test_a_matrix_is_dealt_exactly():
    matrix = [[3, 0, 5], [0, 0, 0], [7, 2, 1]]
    labels = np.repeat([0, 1, 2], [10, 4, 6])
    parts = Counts(matrix=matrix).split(labels, 3, 0)
    assert parts.counts(labels, 3).tolist() == matrix and Counts(matrix=np.array(matrix)) == Counts(matrix=matrix)
    assert hash(Counts(matrix=matrix)) == hash(Counts(matrix=np.array(matrix, dtype=float)))
    with pytest.raises(ConfigError, match=r"at most the 5 rows of class 0; got 10; scaled by 0\.5 it would fit"):
        Counts(matrix=matrix).split(np.repeat([0, 1, 2], [5, 4, 6]), 3, 0)
    with pytest.raises(ConfigError, match="clients must equal the rows of the matrix of counts; got 2; use 3"):
        Counts(matrix=matrix).split(labels, 2, 0)
    with pytest.raises(DataError, match=r"has 3 columns, labels 0\.\.2; the data have 0\.\.3"):
        Counts(matrix=matrix).split([0, 3], 3, 0)
    absent = Counts(matrix=[[1, 0, 2]]).split([0, 2, 2, 0], 1, 0)  # a class without rows keeps its column
    assert len(absent.rows) == 3


@pytest.mark.parametrize("bad", [[[1.5]], [[-1]], [[0, 0]], [1, 2], [["a"]]])
def test_a_matrix_must_hold_whole_numbers(bad):
    with pytest.raises(DataError, match=r"Counts\.matrix must be a matrix \[clients, classes\] of whole numbers"):
        Counts(matrix=bad)


def test_a_matrix_comes_from_a_file(tmp_path):
    matrix = np.array([[3, 0, 5], [7, 2, 1]])
    labels = np.repeat([0, 1, 2], [10, 4, 6])
    np.save(tmp_path / "m.npy", matrix)
    np.savez(tmp_path / "m.npz", counts=matrix, other=np.zeros(2))
    (tmp_path / "m.csv").write_text("cat, dog, cow\n3,0,5\n\n7,2,1\n")
    (tmp_path / "plain.csv").write_text("3,0,5\n7,2,1.0\n")
    data = from_arrays(np.zeros((20, 1)), labels, np.zeros((3, 1)), [0, 1, 2])
    for name in ("m.npy", "m.npz", "m.csv", "plain.csv"):
        assert federate(data, Counts(path=str(tmp_path / name))).counts.tolist() == matrix.tolist()
    for name, text, message in (
        ("a.csv", "1,2\n3\n", "as many numbers on each line"),
        ("b.csv", "x,y\n1,z\n", "line 2: a count must be a whole number; got 'z'"),
        ("c.csv", "1,2.5\n", "whole numbers"),
        ("d.csv", "", "as many numbers on each line"),
        ("e.txt", "1", r"must end in .csv, .npy or .npz"),
        ("f.npy", "1", "not a readable npy file"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(DataError, match=message):
            Counts(path=str(tmp_path / name)).load()
    with pytest.raises(DataError, match="cannot be read"):
        Counts(path=str(tmp_path / "absent.csv")).load()
    with pytest.raises(ConfigError, match=r"Counts\.path must name a csv, npy or npz file"):
        Counts().load()
    with pytest.raises(ConfigError, match="give one of both"):
        Counts("m.csv", ((1,),))


# what cannot be met


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (
            lambda: Dirichlet(0.1, balance_guard=0.5),
            "Dirichlet.balance_guard must be at least 1; got 0.5; use 1: below 1",
        ),
        (lambda: Dirichlet(0.1, least=-1), "Dirichlet.least must be at least 0; got -1"),
        (lambda: Dirichlet(0.1, least=300).split(BALANCED, 10, 0), "least must be at most 200 here.*got 300; use 200"),
        (lambda: Dirichlet(0.1, rounding="cutt"), "did you mean 'cut'"),
        (lambda: Dirichlet("a"), "Dirichlet.alpha must be a number; got 'a'"),
        (lambda: DirBernoulli(p=0.0), r"DirBernoulli.p must be in \(0, 1\]; got 0.0"),
        (lambda: DirClientNorm(rounding="up"), "DirClientNorm.rounding must be one of round, .*; got 'up'"),
        (lambda: DirExtended(11).split(BALANCED, 5, 0), "labels must be at most the 10 classes; got 11; use 10"),
        (lambda: DirPrior(0).split(BALANCED, 2001, 0), "one row under this partition; got 2001; use at most 2000"),
        (lambda: ExclusiveIid(1.0).split(BALANCED, 11, 0), "got 1; use 1, and noniid_s at most 0.818"),
        (lambda: ExclusiveIid(0.0).split(BALANCED, 2001, 0), "use at most 2000"),
        (lambda: Mix(1.5), r"Mix.homo_ratio must be in \[0, 1\]; got 1.5"),
        (lambda: Mix(minority=11).split(BALANCED, 5, 0), "minority must be at most the 10 labels; got 11; use 10"),
        (lambda: Mix(0.5).split(BALANCED, 1001, 0), "at most the 1000 rows of the larger part; got 1001; use 1000"),
        (lambda: QuantityPower(least=5).split(BALANCED, 1000, 0), "least must be at most 2 here.*got 5; use 2"),
        (lambda: QuantityPower().split(BALANCED, 2001, 0), "clients must be at most the 2000 rows; got 2001; use 2000"),
        (lambda: QuantityLognormal(-1.0), "QuantityLognormal.sigma must be at least 0; got -1.0"),
        (lambda: LongTail(factor=0.1), "factor must be n_max / n_min of at least 1; got 0.1; use 10, the inverse"),
        (lambda: LongTail(Counts()), "base must be a partitioner that draws; got 'counts'"),
        (lambda: LongTail(LongTail()), "base must be a partitioner that draws; got 'longtail'"),
        (lambda: LongTail(profile="exo"), "LongTail.profile must be one of exp, step; got 'exo'; did you mean 'exp'"),
        (lambda: Dirichlet().split(BALANCED, 10**12, 0), "at most 214748364 for 10 classes: .*; use 214748364"),
        (lambda: LongTail(factor=2.0).split(BALANCED, 10**12, 0), "use 214748364"),
        (lambda: Iid().count({}), "takes any number"),
    ],
)
def test_a_request_that_cannot_be_met_is_one_line_with_a_suggestion(attempt, message):
    with pytest.raises((ConfigError, TypeError), match=message) as caught:
        attempt()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("partitioner", "clients"),
    [
        (Dirichlet(0.1, least=200, balance_guard=1.0), 1),
        (DirPrior(0), 2000),
        (ExclusiveIid(0.818), 11),
        (ExclusiveIid(0.0), 2000),
        (Mix(0.5), 1000),
        (QuantityPower(least=2), 1000),
        (QuantityPower(), 2000),
    ],
    ids=repr,
)
def test_suggested_settings_work(partitioner, clients):
    assert (partitioner.split(BALANCED, clients, 0).sizes > 0).all()


@pytest.mark.parametrize("name", sorted(set(PARTITIONERS) - {"dirichlet"}))
def test_every_convention_says_what_it_is(name):
    kind = PARTITIONERS[name]
    for text in (kind.formula, kind.users, kind.limits, (kind.__doc__ or "").split("\n")[0]):
        assert len(text) >= 5 and "\n" not in text


def test_largest_remainder_is_exact_where_shares_are_whole():
    assert largest_remainder(np.array([[1.0, 2.0, 3.0]]), np.array([60])).tolist() == [[10, 20, 30]]
