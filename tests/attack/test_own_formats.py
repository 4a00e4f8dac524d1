"""Files of a user's own in formats with natural clients, with bytes flipped, cut, added: one line, or other data.

What such a file should hold nobody knows, so a change may give other data; but no crash, no traceback, no hang.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedskew.data import load
from fedskew.data.counts import read_counts
from fedskew.errors import FedskewError
from support.attack import Line, some
from support.bounds import bounded

GEN = np.random.Generator(np.random.PCG64(1))
ROWS = range(24)
TABLE = [f"{'' if i % 5 == 2 else i},{'fm'[i % 2]},{('low', 'high')[i % 3 // 2]},{'xy'[i % 4 // 2]}" for i in ROWS]


def text(place: Path) -> tuple[Path, Callable[[], Any]]:
    file = place / "play.txt"
    file.write_text("\n\n".join(f"{who}:\n{'To be, or not to be. ' * 30}" for who in ("HAMLET", "Clown")))
    return file, lambda: load("shakespeare", str(place), stride=9)


def keel(place: Path) -> tuple[Path, Callable[[], Any]]:
    file = place / "t.dat"
    head = "@relation t\n@attribute A {f,m}\n@attribute B real [0,99]\n@attribute C {x,y}\n@data\n"
    file.write_text(head + "\n".join(f"{'fm'[i % 2]}, {i}, {'xy'[i % 4 // 2]}" for i in ROWS))
    return file, lambda: load("keel", str(file))


OPTIONS: Any = {"categories": "auto", "ordinal": "grade=low<high", "missing": "fill"}


def csv(place: Path) -> tuple[Path, Callable[[], Any]]:
    for name in ("north", "south"):
        (place / f"{name}.csv").write_text("\n".join(["age,sex,grade,label", *TABLE]))
    return place / "south.csv", lambda: load("csv", str(place), **OPTIONS)


def parquet(place: Path) -> tuple[Path, Callable[[], Any]]:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    cells = [row.split(",") for row in TABLE]
    table = {name: [row[i] or None for row in cells] for i, name in enumerate(("age", "sex", "grade", "label"))}
    table["age"] = [None if age is None else float(age) for age in table["age"]]
    pq.write_table(pa.table(table), place / "t.parquet")
    return place / "t.parquet", lambda: load("parquet", str(place / "t.parquet"), **OPTIONS)


def images(place: Path) -> tuple[Path, Callable[[], Any]]:
    image = pytest.importorskip("PIL.Image")
    for k, c, i in ((k, c, i) for k in "ab" for c in ("cat", "dog") for i in range(3)):
        (place / k / c).mkdir(parents=True, exist_ok=True)
        image.fromarray(GEN.integers(0, 256, (6, 6, 3)).astype(np.uint8)).save(place / f"{k}/{c}/{i}.png")
    return place / "a/dog/1.png", lambda: load("images", str(place))


def mapped(place: Path) -> tuple[Path, Callable[[], Any]]:
    x, y = GEN.normal(size=(24, 3)).astype(np.float32), np.arange(24) % 2
    for name, array in (("x_train", x), ("y_train", y), ("x_test", x[:6]), ("y_test", y[:6])):
        np.save(place / f"{name}.npy", array)
    return place / "x_train.npy", lambda: load("npz", str(place))


def packed(place: Path) -> tuple[Path, Callable[[], Any]]:
    y = np.array(["a", "b", "c"])[np.arange(30) % 3]
    np.savez_compressed(place / "t.npz", x=GEN.integers(0, 9, (30, 3)).astype(np.uint8), y=y, client=np.arange(30) % 3)
    return place / "t.npz", lambda: load("npz", str(place / "t.npz"))


def counts(place: Path) -> tuple[Path, Callable[[], Any]]:
    (place / "t.csv").write_text("cat,dog\n5,0\n1,4\n")
    return place / "t.csv", lambda: read_counts(place / "t.csv")


def count_arrays(place: Path) -> tuple[Path, Callable[[], Any]]:
    np.save(place / "t.npy", np.array([[5, 0], [1, 4]]))
    return place / "t.npy", lambda: read_counts(place / "t.npy")


FORMS = (text, keel, csv, parquet, images, mapped, packed, counts, count_arrays)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_own_formats(form: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSKEW_CACHE", str(tmp_path / "cache"))
    place = tmp_path / "data"
    place.mkdir()
    file, read = form(place)
    read()

    def fine(given: Any) -> bool:
        return not isinstance(given, BaseException) or (isinstance(given, FedskewError) and "\n" not in str(given))

    with Line("files", f"{form.__name__} of the user's own: no crash") as line, bounded():
        line.strike(file, file.read_bytes()[::-1], some(60, 2000), read, fine)
