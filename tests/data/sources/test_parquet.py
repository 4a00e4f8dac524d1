"""Parquet files of any folder, of images and of numbers."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fedskew.data import load
from fedskew.errors import ConfigError, DataError
from support.data_files import GEN, encoded, fails, one_line, write_parquet


def test_parquet_files_of_any_folder(tmp_path: Path) -> None:
    images = GEN.integers(0, 256, (40, 6, 6)).astype(np.uint8)
    names = np.array(["cat", "ant"])[np.arange(40) % 2]
    write_parquet(tmp_path / "train.parquet", images, column="image", label=names)
    one = load("parquet", str(tmp_path / "train.parquet"))
    assert one.label_names == ("ant", "cat") and one.shape == (1, 6, 6) and one.counts.tolist() == [16, 16]
    write_parquet(tmp_path / "test.parquet", images[:4], column="image", label=names[:4])
    both = load("parquet", str(tmp_path), pad=1, normalize="half")
    assert both.test_is_official and both.shape == (1, 8, 8) and both.y_test.tolist() == [1, 0, 1, 0]
    with pytest.raises(ConfigError, match=r"Parquet\.y_column must name .*; got 'lable'; did you mean 'label'"):
        load("parquet", str(tmp_path), y_column="lable")


def test_number_columns_are_features(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    table = {"a": np.arange(10.0), "b": np.arange(10), "v": [[1.0, 2.0]] * 10, "y": np.arange(10) % 2}
    pq.write_table(pa.table(table), tmp_path / "train.parquet")
    made = load("parquet", str(tmp_path), x_column="a,b")
    assert made.x.shape == (8, 2) and torch.equal(made.x[:, 0], made.x[:, 1])
    assert load("parquet", str(tmp_path), x_column="v").x.shape == (8, 2)
    for options in ({"normalize": "half"}, {"augment": True}, {"pad": 2}):
        fails("parquet", tmp_path, "images", kind=ConfigError, x_column="a,b", **options)
    fails("parquet", tmp_path, "Parquet.x_column must name one of the columns a, b, v, y", kind=ConfigError)
    with pytest.raises(ConfigError, match=r"Parquet\.x_column must name one of the columns a, b, v, y; got ','"):
        load("parquet", str(tmp_path), x_column=",")


def test_parquet_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    images = GEN.integers(0, 256, (6, 5, 5, 3)).astype(np.uint8)
    file = tmp_path / "train.parquet"
    write_parquet(file, images, label=np.arange(6) % 2)
    file.write_bytes(file.read_bytes()[:-20])
    fails("parquet", file, "train.parquet is not a whole parquet file")
    good = encoded(images[0], "PNG")
    other = encoded(images[0, :4], "PNG")
    cases = [
        ([good, b"junk"], "no readable image in row 1"),
        ([good, good[:40]], "no readable image in row 1"),
        ([good, other], "row 1 is 5x4, row 0 is 5x5"),
        ([good, None], "a value in every row; row 1 has none"),
    ]
    for cells, message in cases:
        pq.write_table(pa.table({"img": cells, "label": [0, 1]}), file)
        with pytest.raises(DataError, match=message) as error:
            load("parquet", str(file))
        one_line(error)
    pq.write_table(pa.table({"x": [[1.0], [1.0, 2.0]], "label": [0, 1]}), file)
    fails("parquet", file, "lists of one length")


def test_parquet_without_the_extra_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = GEN.integers(0, 256, (6, 5, 5, 3)).astype(np.uint8)
    write_parquet(tmp_path / "train.parquet", images, label=np.arange(6) % 2)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    fails("parquet", tmp_path, "decoding images needs the extra hub: pip install '.[hub]'")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    fails("parquet", tmp_path, "reading parquet files needs the extra hub: pip install '.[hub]'")
