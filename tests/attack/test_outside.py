"""Pipes, devices and folders where a file should stand, and small files that would become more than the memory."""

from __future__ import annotations

import gzip
import io
import json
import re
import shutil
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedskew as fs
from fedskew.config.experiment import load as configured
from fedskew.data import federate, load, load_partition, save_partition
from fedskew.data.counts import read_counts
from fedskew.data.partitioners.file import content_digest, json_array
from fedskew.data.sources import cache
from fedskew.data.sources.published import IDX
from fedskew.data.values import ROOM
from fedskew.errors import DataError, FedskewError
from fedskew.methods import fedavg
from support.attack import Line, outcome, stand
from support.bounds import bounded
from support.command import fedskew, mistake
from support.data_files import encoded
from support.federations import skewed
from support.paths import ROOT

# Pipes, devices and folders


STANDS = ("pipe", "device", "folder")
DATA = {
    "own.npz": "npz", "own.csv": "csv", "own.parquet": "parquet", "own.dat": "keel", "own.txt": "shakespeare",
    "folder/x_train.npy": "npz", "folder/one.csv": "csv", "folder/one.npz": "npz",
    "folder/train-0.parquet": "parquet", "folder/train.csv": "csv", "folder/fars.dat": "fars",
    "folder/text.txt": "shakespeare", "folder/test_batch.bin": "cifar10",
    "folder/cat/1.png": "images", **{f"folder/{name}": "mnist" for name in IDX[:1]},
    "folder/adult.data": "adult",
}  # fmt: skip


def readers(place: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """(file that is read, what reads it)."""
    for name, kind in DATA.items():
        file = place / name
        path = file if file.parent == place else place / "folder"
        yield name, lambda kind=kind, path=path: load(kind, str(path))
    for name in ("counts.csv", "counts.npy"):
        yield name, lambda name=name: read_counts(place / name)
    yield "split.npz", lambda: load_partition(place / "split.npz")
    yield "config.json", lambda: configured(place / "config.json")
    begun = place / "begun.safetensors"
    yield begun.name, lambda: fs.run(skewed(), fedavg(), rounds=1, init_from=str(begun))


@pytest.mark.parametrize("what", STANDS)
def test_what_is_no_file_is_one_line_at_once(what: str, tmp_path: Path) -> None:
    with Line("files", f"a {what} in the place of a file") as line, bounded():
        for name, read in readers(tmp_path):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            stand(tmp_path / name, what)
            line.refused(name, read)
            shutil.rmtree(tmp_path)
            tmp_path.mkdir()


@pytest.mark.parametrize("what", STANDS)
def test_a_run_folder_that_holds_what_is_no_file_is_one_line(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    fs.run(skewed(), fedavg(), rounds=1, out=run)
    read = {
        "config.json": ["plot", run], "rounds.jsonl": ["plot", run], "summary.json": ["plot", run],
        "model.json": ["evaluate", run], "final.safetensors": ["evaluate", run],
    }  # fmt: skip
    with Line("files", f"a {what} in a run folder") as line:
        for name, words in read.items():
            shutil.move(run / name, tmp_path / "aside")
            stand(run / name, what)
            message = outcome(lambda words=words: mistake(capsys, *map(str, words)))
            line.check(isinstance(message, str), f"{name}: {message!r}"[:300])
            stand(run / name, "nothing")
            (tmp_path / "aside").replace(run / name)
        assert fedskew("evaluate", str(run), "--data", "digits") in (0, 2)


OPENS = re.compile(r"(?<![\w.])open\(|\.(?:read_bytes|read_text|open)\(|\b(?:load_file|safe_open|np\.load)\((?!reg)")
OWN = {  # files of the package, of the system, or that the process itself wrote
    "data/sources/cache.py", "engines/ray/worker.py", "engines/clients.py", "report/page.py",
    "advice/evidence.py", "records/files.py", "cli/output.py", "cli/command.py", "__init__.py",
    "catalogue/citations.py", "config/presets/__init__.py",
}  # fmt: skip
OTHERS = ("flower", "studies")  # rooms with openers of their own


def test_every_reader_opens_regular_files_alone() -> None:
    package = ROOT / "src" / "fedskew"
    lines = [
        f"{name}:{number}: {line.strip()}"
        for file in sorted(package.rglob("*.py"))
        if (name := file.relative_to(package).as_posix()) not in OWN and name.partition("/")[0] not in OTHERS
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if OPENS.search(line) and not line.lstrip().startswith((">>>", "with archive.open", "def "))
    ]
    known = (
        "os.open(path",
        "readers.read_bytes",
        "open(waiting",
        "open(self.file",
        "Record.open",
        "library.open(file, formats=formats)",
        "archive.open(",
        'safe_open(file, framework="np")',  # features_file has looked
    )
    left = [line for line in lines if not any(word in line for word in known)]
    assert not left, "use fedskew.errors.opened, content_of, text_of or regular:\n" + "\n".join(left)


# Small files that become large


def packed(folder: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """(what it is, what reads it): gz and zip."""
    sizes = struct.pack(">4B3I", 0, 0, 8, 3, 1 << 16, 1 << 8, 1 << 8)
    zeros = gzip.compress(sizes + bytes(1 << 20), mtime=0) + gzip.compress(bytes(1 << 24), mtime=0) * 200
    (folder / "idx").mkdir()
    for file in IDX:
        (folder / "idx" / f"{file}.gz").write_bytes(zeros)
    yield "idx, 3 GB of zeros in members of a gzip file", lambda: load("mnist", str(folder / "idx"), verify=False)
    bomb = folder / "many.npz"
    inner = io.BytesIO()
    np.save(inner, np.zeros(1 << 22))
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr("x.npy", inner.getvalue())
        for i in range(60):  # names of one member, as in overlapping archives
            archive.filelist.append(_again(archive.filelist[0], f"x{i}.npy"))
    yield "zip, 60 names of one member", lambda: load("npz", str(bomb))


def _again(info: zipfile.ZipInfo, name: str) -> zipfile.ZipInfo:
    other = zipfile.ZipInfo(name)
    for key in ("compress_type", "CRC", "compress_size", "file_size", "header_offset", "flag_bits"):
        setattr(other, key, getattr(info, key))
    return other


def tables(folder: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """(what it is, what reads it): rows and categories that multiply."""
    words = [f"{i},w{i},{i % 2}" for i in range(60_000)]
    (folder / "words.csv").write_text("\n".join(["a,b,label", *words]))
    yield "csv, 60 000 categories", lambda: load("csv", str(folder / "words.csv"), categories="b")
    names = ",".join(f"c{i}" for i in range(200_000))
    (folder / "wide.csv").write_text(f"{names},c7,label\n{','.join('1' * 200_001)},0\n")
    yield "csv, 200 000 columns and a name that occurs twice", lambda: load("csv", str(folder / "wide.csv"))
    kinds = ",".join(f"v{i}" for i in range(100_000))
    rows = "v0,a\nv1,b\n" * 20_000
    (folder / "many.dat").write_text(f"@attribute v {{{kinds}}}\n@attribute y {{a,b}}\n@data\n{rows}")
    yield "KEEL, 100 000 values of 40 000 rows", lambda: load("keel", str(folder / "many.dat"))
    save_partition(folder / "split.npz", federate("digits", "iid", clients=50))
    with np.load(folder / "split.npz") as file:
        arrays = dict(file)
    header = {**json.loads(arrays.pop("header").tobytes()), "classes": 1 << 33}
    header["sha256"] = content_digest(header, arrays)
    np.savez(folder / "split.npz", header=json_array(header), **arrays)
    yield "partition of 2^33 classes", lambda: load_partition(folder / "split.npz").counts


def pictures(folder: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """(what it is, what reads it): images of few bytes and many pixels."""
    pytest.importorskip("PIL.Image")
    content = encoded(np.zeros((3000, 3000), np.uint8), "PNG")
    for name in ("cat", "dog"):
        (folder / "pets" / name).mkdir(parents=True)
        for i in range(100):
            (folder / "pets" / name / f"{i}.png").write_bytes(content)
    yield "200 images of 9 million pixels", lambda: load("images", str(folder / "pets"), colours="rgb")
    large = folder / "large" / "cat"
    large.mkdir(parents=True)
    raw = bytearray(content)
    raw[16:24] = struct.pack(">II", 60_000, 60_000)
    (large / "1.png").write_bytes(bytes(raw))
    yield "an image that declares 3.6 billion pixels", lambda: load("images", str(folder / "large"))


def arrows(folder: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """(what it is, what reads it): parquet files in which a word stands for many rows."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    rows = 2_000_000
    places, word = pa.array(np.zeros(rows, np.int32)), pa.array(["x" * 100_000])
    label = (np.arange(rows) % 2).astype(np.int8)
    for by_schema in (False, True):
        path = str(folder / f"dictionary-{by_schema}.parquet")
        table = pa.table({"a": pa.DictionaryArray.from_arrays(places, word), "label": label})
        pq.write_table(table, path, store_schema=by_schema, row_group_size=rows)
        yield (
            f"parquet, a word of 100 kB in {rows} rows" + ", a dictionary by its schema" * by_schema,
            lambda path=path: load("parquet", path, categories="auto"),
        )
    path = str(folder / "numbers.parquet")
    pq.write_table(pa.table({"a": pa.nulls(200_000_000), "label": pa.nulls(200_000_000)}), path)
    yield "parquet, 200 million rows of nothing", lambda: load("parquet", path)


KINDS = {"packed": packed, "tables": tables, "pictures": pictures, "parquet": arrows}


@pytest.mark.parametrize("kind", KINDS)
def test_small_files_that_become_large(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "fetch", lambda key: None)
    monkeypatch.setattr(cache, "store", lambda key, data: None)
    with Line("files", f"becomes more than memory, {kind}") as line, bounded(3 * ROOM):
        for what, read in KINDS[kind](tmp_path):
            given = outcome(read)
            fine = isinstance(given, FedskewError) and "\n" not in str(given) and "Memory" not in str(given)
            line.check(fine and "malloc" not in str(given), f"{what}: {given!r}"[:300])


def test_what_is_refused_says_what_a_file_may_become(tmp_path: Path) -> None:
    (tmp_path / "words.csv").write_text("\n".join(["b,label", *(f"w{i},{i % 2}" for i in range(200_000))]))
    with pytest.raises(DataError, match=r"one-hot .* must fit into half of the memory, [\d,]+ MiB; got 152,587 MiB"):
        load("csv", str(tmp_path / "words.csv"), categories="b")
