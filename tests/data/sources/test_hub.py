"""The Hugging Face hub, and parquet files that are laid out as there."""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedskew.data import DATASETS, load
from fedskew.errors import ConfigError, DataError
from support.data_files import GEN, encoded, fails, one_line, write_parquet


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
        write_parquet(
            repo / "data" / f"{split}-00000-of-00001.parquet", images, column="image", label=np.arange(20) % 10
        )
    tables = hub.load_dataset("parquet", data_files={s: str(repo / f"data/{s}-*.parquet") for s in ("train", "test")})
    assert tables["train"].num_rows == 20
    made = load("hub", str(repo))
    assert torch.equal(made.x[:, 0], torch.from_numpy(images)) and made.test_is_official and made.classes == 10
    with pytest.raises(ConfigError, match=r"Hub\.test_split must name a split; got 'tset'; did you mean 'test'"):
        load("hub", str(repo), test_split="tset")
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
    with pytest.raises(DataError) as error:
        load("cifar10")
    assert one_line(error) == (
        "dataset 'cifar10' was not found in any folder (FEDSKEW_DATA is not set); "
        "set FEDSKEW_DATA or --data.path; downloading 'uoft-cs/cifar10' needs the extra hub: "
        "pip install '.[hub]' in a checkout of fedskew"
    )
    fails("hub", None, "needs the extra hub: pip install '.[hub]'", repo="a/b")
    fails("adult", None, "'adult' was not found in any folder")
    fails("cifar10", tmp_path, "'cifar10' was not found in")
    fails("hub", None, "Hub.repo must name a dataset of the hub", kind=ConfigError)


@pytest.mark.parametrize(
    ("name", "config", "test"), [("svhn", "cropped_digits", "test"), ("tiny_imagenet", None, "valid")]
)
def test_the_hub_is_asked_for_the_right_split(
    _nowhere: None, monkeypatch: pytest.MonkeyPatch, name: str, config: Any, test: str
) -> None:
    datasets = pytest.importorskip("datasets")
    side = 32 if name == "svhn" else 64
    labels = [str(i) for i in range(10)] if name == "svhn" else ["n01443537", "n02124075", "n04067472"]
    rows = [GEN.integers(0, 256, (side, side, 3)).astype(np.uint8) for _ in labels]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=labels)})
    columns = {
        "image": [{"bytes": encoded(r, "PNG"), "path": None} for r in rows],
        "label": list(range(len(labels))),
    }
    split = datasets.Dataset.from_dict(columns, features=features)
    asked = []

    def answer(repo: str, config: str | None) -> Any:
        asked.append((repo, config))
        return datasets.DatasetDict({"train": split, test: split, "extra": split})

    monkeypatch.setattr(datasets, "load_dataset", answer)
    made = load(name)
    assert asked == [(DATASETS[name].repo, config)] and made.source == f"hub {DATASETS[name].repo}"
    assert made.label_names == tuple(labels) and made.y_test.tolist() == list(range(len(labels))) and made.mean == ()
    assert torch.equal(made.x[2], torch.from_numpy(rows[2].copy()).permute(2, 0, 1))
