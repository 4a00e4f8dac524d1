"""Partition files: the same bits back, and nothing else accepted."""

import json
import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedskew.data import (
    Dataset,
    Partition,
    federate,
    from_arrays,
    from_indices,
    load_partition,
    save_partition,
    verify_partition,
)  # fmt: skip
from fedskew.data.partitioners import Dirichlet, File, Iid, Partitioner, Shards, Shared
from fedskew.data.partitioners.file import content_digest, json_array
from fedskew.errors import ConfigError, DataError
from support.command import fedskew, mistake, output_of, refused

MIXED = np.random.default_rng(5).permutation(np.repeat(np.arange(4), [70, 60, 50, 40]))


def dataset(shift: float = 0.0, labels: np.ndarray = MIXED) -> Dataset:
    sites = np.array(["north", "south", "west"])[np.arange(len(labels)) % 3]
    x = np.arange(len(labels), dtype=float)[:, None] + shift
    return from_arrays(x, labels, np.zeros((4, 1)), np.arange(4), name="mine", columns={"site": sites})


@pytest.fixture(scope="module")
def data() -> Dataset:
    return dataset()


@pytest.fixture
def file(tmp_path: Path, data: Dataset) -> Path:
    fed = federate(data, Dirichlet(0.3), clients=6, seed=4, validation=0.1, auxiliary=2, longtail=2.0)
    save_partition(tmp_path / "split.npz", fed)
    return tmp_path / "split.npz"


def altered(file: Path, change) -> Path:
    """A copy whose arrays went through ``change``, its hash left as it was."""
    with np.load(file, allow_pickle=False) as content:
        arrays = {name: content[name] for name in content.files}
    header = json.loads(arrays["header"].tobytes())
    change(arrays, header)
    if "header" in arrays:
        arrays["header"] = np.frombuffer(json.dumps(header, sort_keys=True, separators=(",", ":")).encode(), np.uint8)
    copy = file.with_name("altered.npz")
    np.savez(copy, **arrays)
    return copy


def test_a_federation_comes_back_to_the_bit(file: Path, data: Dataset) -> None:
    made = federate(data, Dirichlet(0.3), clients=6, seed=4, validation=0.1, auxiliary=2, longtail=2.0)
    for source in (file, str(file), File(str(file))):
        back = federate(data, source, seed=9, validation=0.1, auxiliary=2, clients=6)
        for name in ("validation_rows", "auxiliary_rows"):
            assert np.array_equal(getattr(back, name), getattr(made, name))
        assert np.array_equal(back.partition.rows, made.partition.rows) and back.partition.rows.dtype == np.int64
        assert back.counts.tolist() == made.counts.tolist() and back.seed == 9
    content = load_partition(file, data)
    told = {"name": "dirichlet", "alpha": 0.3, "balance_guard": None, "least": None}
    assert content.header["convention"] == told and content.header["longtail"] == 2.0


@given(
    labels=st.lists(st.integers(0, 5), min_size=12, max_size=60),
    clients=st.integers(1, 12),
    seed=st.integers(0, 2**31),
)
def test_any_partition_of_labels_comes_back(tmp_path_factory, labels, clients, seed) -> None:
    path = tmp_path_factory.mktemp("parts") / "p.npz"
    parts = Dirichlet(0.2).split(labels, clients, seed)
    digest = save_partition(path, parts, labels=labels, partitioner=Dirichlet(0.2), seed=seed)
    back = load_partition(path)
    assert np.array_equal(back.partition.rows, parts.rows) and np.array_equal(back.partition.offsets, parts.offsets)
    assert np.array_equal(back.counts, parts.counts(labels, max(labels) + 1))
    assert back.header["sha256"] == digest and back.header["convention"]["alpha"] == 0.2


@dataclass(frozen=True)
class Loose(Partitioner):
    """A user's: some rows in any order, clients without rows, arrays of any type."""

    name: ClassVar[str] = "loose"
    kind: str = "i8"

    def draw(self, table: Any, clients: int, gen: np.random.Generator) -> Partition:
        rows, ends = gen.permutation(len(table.codes))[:40], np.r_[0, np.sort(gen.integers(0, 41, clients - 1)), 40]
        if self.kind == "torch":
            return Partition(torch.from_numpy(rows), torch.from_numpy(ends))  # type: ignore[arg-type]
        return Partition(rows.astype(self.kind), ends.astype(self.kind))


FEDERATIONS: list[tuple[Any, dict[str, Any]]] = [
    *((Loose(kind), {"clients": 9}) for kind in ("i8", "u2", "torch")),
    (Loose(), {"clients": np.int64(5), "local_test": np.float32(0.3)}),
    ("iid", {"clients": 200}),
    (Iid(), {"clients": 3, "longtail": np.float32(1.5)}),
    (Shared(Loose(), alpha=1.0), {"clients": 4, "local_test": 0.2}),
    (Dirichlet(np.float32(0.1)), {"clients": 4, "validation": 0.1}),
]


@pytest.mark.parametrize(("partitioner", "options"), FEDERATIONS)
def test_every_federation_comes_back(tmp_path: Path, data: Dataset, partitioner: Any, options: dict[str, Any]) -> None:
    """Also its partition alone, written with the data or with their labels, whatever is not known of the features."""
    path, fed = tmp_path / "split.npz", federate(data, partitioner, **options)
    save_partition(path, fed)
    back = federate(data, path)
    for one, two in zip((back.partition, back.held), (fed.partition, fed.held), strict=True):
        assert (one is None) is (two is None)
        assert one is None or all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert back.counts.tolist() == fed.counts.tolist() and back.longtail == fed.longtail
    for given_ in ({"dataset": data}, {"labels": data.y}):
        save_partition(path, fed.partition, partitioner=fed.partitioner, seed=np.int64(3), **given_)
        assert federate(data, path).counts.tolist() == fed.counts.tolist()
    assert verify_partition(path, data)["data"] == "same labels"


def test_a_file_of_labels_fits_data_with_more_classes(tmp_path: Path) -> None:
    data = from_arrays(np.zeros((4, 1)), [0, 1, 0, 1], np.zeros((4, 1)), [0, 1, 2, 2], classes=3)
    parts = from_indices([[1, 0], [], np.array([3], np.uint8)])
    save_partition(tmp_path / "p.npz", parts, labels=data.y)
    assert federate(data, tmp_path / "p.npz").counts.tolist() == [[1, 1, 0], [0, 0, 0], [0, 1, 0]]
    for wrong, call in (
        ("list", lambda: save_partition(tmp_path / "q.npz", [[0], [1]], dataset=data)),  # type: ignore[arg-type]
        ("Partition", lambda: federate(data, parts)),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigError, match=rf"got '{wrong}.*'; from_indices makes"):
            call()


def test_equal_contents_give_equal_files(tmp_path: Path, data: Dataset) -> None:
    fed = federate(data, Shards(), clients=5, seed=1)
    one, two = save_partition(tmp_path / "a.npz", fed), save_partition(tmp_path / "deep" / "b.npz", fed)
    assert one == two and (tmp_path / "a.npz").read_bytes() == (tmp_path / "deep/b.npz").read_bytes()
    assert save_partition(tmp_path / "c.npz", federate(data, Shards(), clients=5, seed=2)) != one
    assert not [p for p in tmp_path.iterdir() if ".part" in p.name]


def test_natural_names_are_kept(tmp_path: Path, data: Dataset) -> None:
    save_partition(tmp_path / "n.npz", federate(data, "natural"))
    assert load_partition(tmp_path / "n.npz").client_names == ("north", "south", "west")
    assert federate(data, tmp_path / "n.npz").client_names == ("north", "south", "west")


def test_other_data_are_refused(file: Path) -> None:
    padded, relabelled = dataset(shift=1.0), dataset(labels=np.sort(MIXED))
    with pytest.raises(
        DataError, match=r"was made for 'mine', fingerprint \w{16}; .*the labels agree: use match='labels'"
    ):
        federate(padded, file)
    assert federate(padded, File(str(file), match="labels")).clients == 6
    refused(lambda: load_partition(file, relabelled), "with other labels", kind=DataError)
    refused(lambda: load_partition(file, relabelled, "labels"), "with other labels", kind=DataError)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"clients": 5}, "clients must be left out or be that of .*split.npz, 6; got 5"),
        ({"longtail": 3.0}, "longtail must be left out"),
        ({"validation": 0.3}, "validation must be left out or be that of .*, 22 rows; got 0.3"),
        ({"auxiliary": 3}, "auxiliary must be left out or be that of .*, 8 rows; got 3"),
    ],
)
def test_what_contradicts_the_file_is_refused(file: Path, data: Dataset, asked: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        federate(data, file, **asked)


def swap(arrays, header):
    arrays["rows"][:2] = arrays["rows"][1::-1]


def owners(arrays, header):
    header["clients"] = 7


def seedless(arrays, header):
    header["seed"] = 5


def lost(arrays, header):
    arrays["labels"] = arrays["labels"][:-1]


@pytest.mark.parametrize("change", [swap, owners, seedless, lost])
def test_any_alteration_is_noticed(file: Path, change) -> None:
    with pytest.raises(DataError, match=r"was altered or damaged: its content does not have the hash \w{16}…"):
        load_partition(altered(file, change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a, h: a.pop("header"), "no header of format 'fedskew-partition'"),
        (lambda a, h: h.update(format="other"), "no header of format"),
        (lambda a, h: h.update(version=3), "has version 3 of the format; this fedskew reads 1 and 2"),
        (lambda a, h: h.pop("clients"), "its header lacks 'clients'"),
        (lambda a, h: h.update(classes=True), "its header lacks 'classes'"),
        (lambda a, h: a.pop("rows"), "array 'rows' is missing"),
        (lambda a, h: a.update(rows=a["rows"].astype(float)), "array 'rows' is missing or not a vector of integers"),
        (lambda a, h: a.update(offsets=a["offsets"][None]), "array 'offsets' is missing or not a vector"),
    ],
)
def test_other_files_are_refused(file: Path, change, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load_partition(altered(file, change))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "offsets", "message"),
    [
        ([0, 1, 1], [0, 2, 3], "must give each row to one client; clients 0 and 1 both have row 1"),
        ([0, 1, 1], [0, 1, 3], "must give a client each row once; client 1 has row 1 twice"),
        ([0, 1, 2], [0, 2, 2], "cut by its offsets; got .* broken offsets"),
        ([0, 1, 2], [0, 3, 2, 3], "broken offsets"),
        ([0, 1, 2], np.array([0, 3, 2, 3], np.uint64), "broken offsets"),
        ([0, 1.5, 2], [0, 2, 3], "must have a vector of row numbers"),
        ([0, 1, 9], [0, 2, 3], r"client 1 has row 9, outside 0\.\.3"),
    ],
)
def test_no_broken_partition_is_written(tmp_path: Path, rows, offsets, message) -> None:
    with pytest.raises(DataError, match=message):
        save_partition(tmp_path / "p.npz", Partition(np.array(rows), np.array(offsets)), labels=[0, 1, 0, 1])
    assert not list(tmp_path.iterdir())


def test_what_is_missing_is_told(tmp_path: Path, data: Dataset) -> None:
    parts = Iid().split(MIXED, 3, 0)
    refused(lambda: save_partition(tmp_path / "p.npz", parts), "must be given a dataset or labels")
    refused(lambda: save_partition(tmp_path / "p.json", parts, labels=MIXED), "must end in .npz")
    refused(lambda: load_partition(tmp_path / "p.npz"), "must exist", kind=DataError)
    refused(lambda: federate(data, "file"), "File.path must name a partition file")
    (tmp_path / "p.npz").write_bytes(b"PK no zip")
    refused(lambda: federate(data, tmp_path / "p.npz"), "must be an npz file", kind=DataError)
    (tmp_path / "folder").write_text("a file in the way")
    refused(lambda: save_partition(tmp_path / "folder" / "p.npz", parts, labels=MIXED), "cannot write", kind=DataError)


def test_a_file_takes_memory_as_its_size(file: Path) -> None:
    """What is compressed is refused before it is read, and more rows than the header allows before they are widened."""
    zeros = np.zeros(1 << 24, np.uint8)
    with np.load(file) as content:
        arrays = dict(content)
    np.savez_compressed(file, header=arrays["header"], rows=zeros)
    tracemalloc.start()
    refused(lambda: load_partition(file), "its arrays are compressed", kind=DataError)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    for message, changed in (
        ("no header of format", {"header": zeros}),
        ("'other' is none of the format", {"other": zeros}),
        ("array 'rows' must have at most 220 rows; got 16777216", {"rows": zeros}),
    ):
        np.savez(file, **{**arrays, **changed})
        tracemalloc.start()
        with pytest.raises(DataError, match=message):
            load_partition(file)
        assert tracemalloc.get_traced_memory()[1] < 2 * len(zeros)
        tracemalloc.stop()


def test_rows_beyond_the_data_are_no_traceback(file: Path, data: Dataset) -> None:
    """A header may say the data's labels and more rows."""
    with np.load(file) as content:
        arrays = dict(content)
    header = {**json.loads(arrays.pop("header").tobytes()), "training_rows": 10**6}
    arrays["rows"] = arrays["rows"].astype(np.uint32)
    arrays["rows"][-1] = 10**6 - 1
    header["sha256"] = content_digest(header, arrays)
    np.savez(file, header=json_array(header), **arrays)
    refused(lambda: federate(data, file), "with other labels", kind=DataError)


def test_verify_says_what_was_checked(file: Path, data: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify_partition(file)["data"] == "no dataset was given"
    facts = verify_partition(file, data)
    assert facts["data"] == "same dataset" and facts["content"] == "intact" and facts["clients"] == 6
    line = output_of(capsys, "partition", "verify", file)
    assert line.startswith(f"{file}: intact, sha256 ")
    assert "dirichlet" in line and "seed 4, 6 clients" in line and "of mine; no dataset was given" in line


def test_make_show_and_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--clients", 4, "--partition.alpha", 0.5, "--validation", 0.1, "--local-test", 0.1)
    make = ("partition", "make", "--partition", "dirichlet", *words, "--out", tmp_path / "made")
    line = output_of(capsys, *make)
    assert line.startswith(f"{tmp_path / 'made'}.npz: 4 clients, ") and ", 145 validation, " in line
    assert " kept by clients for a test, 0.0 MB, sha256 " in line
    assert "--out must be a new file" in mistake(capsys, *make)
    assert fedskew("partition", "verify", tmp_path / "made.npz", "--data", "digits") == 0
    assert capsys.readouterr().out.endswith(" of digits; same dataset\n")
    picture = tmp_path / "split.png"
    assert fedskew("describe", tmp_path / "made.npz", "--json", "--out", picture) == 0
    said = capsys.readouterr()
    facts = json.loads(said.out)
    assert facts["clients"] == 4 and facts["partition"] == "dirichlet"
    assert facts["partition_options"] == {"alpha": 0.5} and facts["sha256"][:16] in line
    assert said.err == f"heat map: {picture}\n" and picture.read_bytes().startswith(b"\x89PNG")
