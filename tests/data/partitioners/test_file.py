"""Partition files: the same bits back, and nothing else accepted."""

from __future__ import annotations

import json
import re
import tracemalloc
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fedskew as fs
from fedskew.config import experiment as config
from fedskew.data import (
    Dataset,
    Partition,
    federate,
    from_arrays,
    from_indices,
    load_partition,
    save_partition,
    verify_partition,
)
from fedskew.data.partitioners import Dirichlet, File, Iid, Partitioner, Shards, Shared
from fedskew.data.partitioners.file import content_digest, json_array
from fedskew.errors import DataError
from support.command import fedskew, mistake, output_of, refused
from support.paths import ROOT

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
    ("natural", {}),
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
    assert load_partition(path).client_names == back.client_names == fed.client_names
    for given_ in ({"dataset": data}, {"labels": data.y}):
        save_partition(path, fed.partition, partitioner=fed.partitioner, seed=np.int64(3), **given_)
        assert federate(data, path).counts.tolist() == fed.counts.tolist()
    assert verify_partition(path, data)["data"] == "same labels"


def test_a_file_of_labels_fits_data_with_more_classes(tmp_path: Path) -> None:
    data = from_arrays(np.zeros((4, 1)), [0, 1, 0, 1], np.zeros((4, 1)), [0, 1, 2, 2], classes=3)
    parts = from_indices([[1, 0], [], np.array([3], np.uint8)])
    save_partition(tmp_path / "p.npz", parts, labels=data.y)
    assert federate(data, tmp_path / "p.npz").counts.tolist() == [[1, 1, 0], [0, 0, 0], [0, 1, 0]]
    hint = "; from_indices makes"
    refused(lambda: save_partition(tmp_path / "q.npz", [[0], [1]], dataset=data), "got 'list'", hint)
    refused(lambda: federate(data, parts), "got 'Partition", hint)


def test_equal_contents_give_equal_files(tmp_path: Path, data: Dataset) -> None:
    fed = federate(data, Shards(), clients=5, seed=1)
    one, two = save_partition(tmp_path / "a.npz", fed), save_partition(tmp_path / "deep" / "b.npz", fed)
    assert one == two and (tmp_path / "a.npz").read_bytes() == (tmp_path / "deep/b.npz").read_bytes()
    assert save_partition(tmp_path / "c.npz", federate(data, Shards(), clients=5, seed=2)) != one
    assert not [p for p in tmp_path.iterdir() if ".part" in p.name]


def test_other_data_are_refused(file: Path) -> None:
    padded, relabelled = dataset(shift=1.0), dataset(labels=np.sort(MIXED))
    told = "was made for 'mine', fingerprint ", "the labels agree: use match='labels'"
    refused(lambda: federate(padded, file), *told, kind=DataError)
    assert federate(padded, File(str(file), match="labels")).clients == 6
    refused(lambda: load_partition(file, relabelled), "with other labels", kind=DataError)
    refused(lambda: load_partition(file, relabelled, "labels"), "with other labels", kind=DataError)


def test_what_contradicts_the_file_is_refused(file: Path, data: Dataset) -> None:
    for asked, holds in (
        ({"clients": 5}, "6; got 5"), ({"longtail": 3.0}, "2.0; got 3.0"), ({"validation": 0.3}, "22 rows; got 0.3"),
        ({"auxiliary": 3}, "8 rows; got 3"),
    ):  # fmt: skip
        told = f"{next(iter(asked))} must be left out or be that of ", f"split.npz, {holds}"
        refused(partial(federate, data, file, **asked), *told)


HASH = "was altered or damaged: its content does not have the hash "


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a, h: a.update(rows=np.roll(a["rows"], 1)), HASH),
        (lambda a, h: a.update(labels=a["labels"][:-1]), HASH),
        (lambda a, h: h.update(clients=7), HASH),
        (lambda a, h: h.update(seed=5), HASH),
        (lambda a, h: a.pop("header"), "no header of format 'fedskew-partition'"),
        (lambda a, h: h.update(format="other"), "no header of format"),
        (lambda a, h: h.update(version=3), "has version 3 of the format; this fedskew reads 1 and 2"),
        (lambda a, h: h.update(version=2), "its header lacks 'local_test'"),
        (lambda a, h: h.update(local_test=0.5), "its header lacks 'local_test'"),
        (lambda a, h: h.pop("clients"), "its header lacks 'clients'"),
        (lambda a, h: h.update(classes=True), "its header lacks 'classes'"),
        (lambda a, h: a.pop("rows"), "array 'rows' is missing"),
        (lambda a, h: a.update(rows=a["rows"].astype(float)), "array 'rows' is missing or not a vector of integers"),
        (lambda a, h: a.update(offsets=a["offsets"][None]), "array 'offsets' is missing or not a vector"),
    ],
)
def test_altered_and_other_files_are_refused(file: Path, change, message: str) -> None:
    refused(lambda: load_partition(altered(file, change)), message, kind=DataError)


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
        refused(lambda: load_partition(file), message, kind=DataError)
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


PAGE = (ROOT / "docs/reference/partition-file.md").read_text(encoding="utf-8")


def _written(folder: Path) -> fs.data.Federation:
    aside = {"validation": 0.1, "auxiliary": 2, "local_test": 0.2}
    fed = fs.federate("digits", fs.partitioners.Dirichlet(alpha=0.2), clients=7, **aside)
    save_partition(folder / "split.npz", fed)
    return fed


def test_the_page_names_every_array_and_every_field(tmp_path: Path) -> None:
    _written(tmp_path)
    arrays = dict(np.load(tmp_path / "split.npz"))
    header = json.loads(arrays["header"].tobytes())
    first, second = PAGE.split("| field of the header")
    listed = set(re.findall(r"^\| `(\w+)` \|", first, re.M)), set(re.findall(r"^\| `(\w+)` \|", second, re.M))
    assert listed == ({*arrays, "names"}, {*header, "overlaps"})


def test_the_reader_of_the_page_reads_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = _written(tmp_path)
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    assert "import fedskew" not in code
    found: dict[str, object] = {}
    exec(code, found)
    assert np.array_equal(found["counts"], fed.counts.numpy())
    assert all(np.array_equal(rows, fed.rows(k)) for k, rows in enumerate(found["clients"]))  # type: ignore[arg-type]
    altered = dict(np.load("split.npz"))
    altered["labels"] = np.roll(altered["labels"], 1)
    np.savez("split.npz", **altered)
    with pytest.raises(AssertionError):
        exec(code, {})


def test_a_run_goes_with_the_file_that_it_was_made_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another split under the same name is refused, by --from as by --resume, with nothing written."""

    split, run = tmp_path / "split.npz", tmp_path / "run"
    save_partition(split, fs.federate("digits", fs.partitioners.Iid(), clients=5))
    words = ["--model", "logistic", "--partition", "file", "--partition.path", split, "--cohort", 2, "--rounds", 2]
    assert fedskew("run", "fedavg", *words, "--out", run) == 0
    recorded = json.loads((tmp_path / "run/config.json").read_text())["partition"]["sha256"]
    assert fedskew("run", "--from", run, "--out", tmp_path / "again") == 0
    assert config.load(str(run)).federation().partitioner.sha256 == recorded and len(recorded) == 16
    save_partition(split, fs.federate("digits", fs.partitioners.Iid(), clients=5, seed=1))
    for again in (("--from", run, "--out", tmp_path / "other"), ("--resume", run, "--rounds", 3)):
        assert f"must be the file of the run, sha256 {recorded}" in mistake(capsys, "run", *again)
    assert not (tmp_path / "other").exists()
