"""Parquet files of any folder, of images and of numbers."""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from fedskew.data import DATASETS, load
from fedskew.errors import ConfigError
from support.data_files import GEN, encoded, fails, write_parquet, write_split


def test_parquet_files_of_any_folder(tmp_path: Path) -> None:
    images = GEN.integers(0, 256, (40, 6, 6)).astype(np.uint8)
    names = np.array(["cat", "ant"])[np.arange(40) % 2]
    write_parquet(tmp_path / "train.parquet", images, column="image", label=names)
    one = load("parquet", str(tmp_path / "train.parquet"))
    assert one.label_names == ("ant", "cat") and one.shape == (1, 6, 6) and one.counts.tolist() == [16, 16]
    write_parquet(tmp_path / "test.parquet", images[:4], column="image", label=names[:4])
    both = load("parquet", str(tmp_path), pad=1, normalize="half")
    assert both.test_is_official and both.shape == (1, 8, 8) and both.y_test.tolist() == [1, 0, 1, 0]
    told = "Parquet.y_column must name ", "; got 'lable'; did you mean 'label'"
    fails("parquet", tmp_path, *told, kind=ConfigError, y_column="lable")


def test_number_columns_are_features(tmp_path: Path) -> None:
    table = {"a": np.arange(10.0), "b": np.arange(10), "v": [[1.0, 2.0]] * 10, "y": np.arange(10) % 2}
    pq.write_table(pa.table(table), tmp_path / "train.parquet")
    made = load("parquet", str(tmp_path), x_column="a,b")
    assert made.x.shape == (8, 2) and torch.equal(made.x[:, 0], made.x[:, 1])
    assert load("parquet", str(tmp_path), x_column="v").x.shape == (8, 2)
    for options in ({"normalize": "half"}, {"augment": True}, {"pad": 2}):
        fails("parquet", tmp_path, "images", kind=ConfigError, x_column="a,b", **options)
    told = "Parquet.x_column must name one of the columns a, b, v, y; got "
    fails("parquet", tmp_path, told + "None", kind=ConfigError)
    fails("parquet", tmp_path, told + "','", kind=ConfigError, x_column=",")


def test_parquet_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    images = GEN.integers(0, 256, (6, 5, 5, 3)).astype(np.uint8)
    file = tmp_path / "train.parquet"
    write_parquet(file, images, label=np.arange(6) % 2)
    file.write_bytes(file.read_bytes()[:-20])
    fails("parquet", file, "train.parquet is not a whole parquet file")
    good, other = encoded(images[0], "PNG"), encoded(images[0, :4], "PNG")
    for second, message in (
        (b"junk", "no readable image in row 1"), (good[:40], "no readable image in row 1"),
        (other, "row 1 is 5x4, row 0 is 5x5"), (None, "a value in every row; row 1 has none"),
    ):  # fmt: skip
        pq.write_table(pa.table({"img": [good, second], "label": [0, 1]}), file)
        fails("parquet", file, message)
    pq.write_table(pa.table({"x": [[1.0], [1.0, 2.0]], "label": [0, 1]}), file)
    fails("parquet", file, "lists of one length")


def test_parquet_without_the_extra_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = GEN.integers(0, 256, (6, 5, 5, 3)).astype(np.uint8)
    write_parquet(tmp_path / "train.parquet", images, label=np.arange(6) % 2)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    fails("parquet", tmp_path, "decoding images needs the extra hub: pip install '.[hub]'")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    fails("parquet", tmp_path, "reading parquet files needs the extra hub: pip install '.[hub]'")


def test_the_hub_s_retries_are_not_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    datasets = pytest.importorskip("datasets")
    loggers = [logging.getLogger(n) for n in ("huggingface_hub.utils._http", "datasets.load", "urllib3.connectionpool")]
    before = logging.getLogger("huggingface_hub").level

    def unreachable(*_: object) -> None:
        for logger in loggers:
            logger.warning("Retrying in 1s [Retry 1/5].")
        warnings.warn("sending unauthenticated requests", stacklevel=1)
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    fails("hub", None, "could not be loaded: no route", repo="nobody/nothing")
    assert not caplog.records and capsys.readouterr().err == ""
    assert logging.getLogger("huggingface_hub").level == before


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The real `datasets`, offline, with a cache of this test's own."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "hf"))
    original = datasets.load_dataset
    monkeypatch.setattr(datasets, "load_dataset", lambda *a, **k: original(*a, cache_dir=str(tmp_path / "hf"), **k))
    return datasets


def test_the_hub_s_loader_on_local_files(tmp_path: Path, hub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    images = GEN.integers(0, 256, (20, 28, 28)).astype(np.uint8)
    repo = tmp_path / "repo"
    for split in ("train", "test"):
        file = repo / "data" / f"{split}-00000-of-00001.parquet"
        write_parquet(file, images, column="image", label=np.arange(20) % 10)
    tables = hub.load_dataset("parquet", data_files={s: str(repo / f"data/{s}-*.parquet") for s in ("train", "test")})
    assert tables["train"].num_rows == 20
    made = load("hub", str(repo))
    assert torch.equal(made.x[:, 0], torch.from_numpy(images)) and made.test_is_official and made.classes == 10
    told = "Hub.test_split must name a split; got 'tset'; did you mean 'test'"
    fails("hub", repo, told, kind=ConfigError, test_split="tset")
    features = hub.Features({"image": hub.Image(), "label": hub.ClassLabel(names=list("zyxwvutsrq"))})
    named = hub.DatasetDict({s: t.cast(features) for s, t in tables.items()})
    monkeypatch.setattr(hub, "load_dataset", lambda *_, **__: named)
    monkeypatch.delenv("FEDSKEW_DATA", raising=False)
    assert load("hub", repo="someone/something").label_names == tuple("zyxwvutsrq")
    fallback = load("mnist")
    assert torch.equal(fallback.x, made.x) and fallback.source == "hub ylecun/mnist" and fallback.mean == (0.1307,)
    monkeypatch.setattr(hub, "load_dataset", None)
    assert torch.equal(load("mnist").x, made.x)  # from the cache: nothing is downloaded twice


def test_nothing_there_and_no_extra(_nowhere: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    fails(
        "cifar10", None, "dataset 'cifar10' was not found in any folder (FEDSKEW_DATA is not set); set FEDSKEW_DATA or "
        "--data.path; downloading 'uoft-cs/cifar10' needs the extra hub: pip install '.[hub]' in a checkout of fedskew",
    )  # fmt: skip
    fails("hub", None, "needs the extra hub: pip install '.[hub]'", repo="a/b")
    fails("adult", None, "'adult' was not found in any folder")
    fails("cifar10", tmp_path, "'cifar10' was not found in")
    fails("hub", None, "Hub.repo must name a dataset of the hub", kind=ConfigError)


@pytest.mark.parametrize(
    ("name", "config", "test"), [("svhn", "cropped_digits", "test"), ("tiny_imagenet", None, "valid")]
)
def test_the_hub_is_asked_for_the_right_split(
    _nowhere: None, tmp_path: Path, hub: Any, monkeypatch: pytest.MonkeyPatch, name: str, config: Any, test: str
) -> None:
    side, labels = (32, [*"0123456789"]) if name == "svhn" else (64, ["n01443537", "n02124075", "n04067472"])
    rows, asked = [GEN.integers(0, 256, (side, side, 3)).astype(np.uint8) for _ in labels], []
    for split in ("train", test, "extra"):
        write_split(tmp_path, split, rows, [*range(len(labels))], labels)
    files = {split: str(tmp_path / f"{split}-*.parquet") for split in ("train", test, "extra")}
    splits = hub.load_dataset("parquet", data_files=files)
    monkeypatch.setattr(hub, "load_dataset", lambda *words: asked.append(words) or splits)
    made = load(name)
    assert asked == [(DATASETS[name].repo, config)] and made.source == f"hub {DATASETS[name].repo}"
    assert made.label_names == tuple(labels) and made.y_test.tolist() == list(range(len(labels))) and made.mean == ()
    assert torch.equal(made.x[2], torch.from_numpy(rows[2].copy()).permute(2, 0, 1))
