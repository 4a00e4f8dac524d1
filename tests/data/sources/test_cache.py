"""Decoded datasets are stored once, read back, and never run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from fedskew.data import Dataset, load
from fedskew.data.arrays import build
from fedskew.data.sources import cache, readers
from fedskew.data.sources.published import IDX
from support.data_files import write_idx


def _cached(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache").glob("*"))


def test_a_decoded_dataset_is_stored_once_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_idx(tmp_path / "mnist")
    first = load("mnist", str(tmp_path), verify=False)
    assert [f.suffix for f in _cached(tmp_path)] == [".safetensors"]
    monkeypatch.setattr(readers, "read_idx", None)
    again = load("mnist", str(tmp_path), verify=False, normalize="half", augment=True)  # not part of decoding
    assert torch.equal(first.x, again.x) and again.fingerprint == first.fingerprint and again.mean == (0.5,)
    assert again.label_names == first.label_names and again.notes == first.notes
    with pytest.raises(TypeError):
        load("mnist", str(tmp_path), verify=False, pad=2)


def test_a_changed_file_is_decoded_again(tmp_path: Path) -> None:
    write_idx(tmp_path / "mnist")
    first = load("mnist", str(tmp_path), verify=False)
    write_idx(tmp_path / "mnist")
    os.utime(tmp_path / "mnist" / f"{IDX[0]}.gz", ns=(1, 1))
    assert load("mnist", str(tmp_path), verify=False).fingerprint != first.fingerprint


def test_a_damaged_or_unwritable_cache_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_idx(tmp_path / "mnist")
    first = load("mnist", str(tmp_path), verify=False)
    (file,) = _cached(tmp_path)
    for damage in (file.read_bytes()[:1000], b"", b"\xff" * 64):
        file.write_bytes(damage)
        assert load("mnist", str(tmp_path), verify=False).fingerprint == first.fingerprint
    (tmp_path / "no folder").write_text("a file stands where the folder should be")
    monkeypatch.setenv("FEDSKEW_CACHE", str(tmp_path / "no folder"))
    assert load("mnist", str(tmp_path), verify=False).fingerprint == first.fingerprint
    monkeypatch.setenv("FEDSKEW_CACHE", str(tmp_path / "other"))
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    assert load("mnist", str(tmp_path), verify=False).fingerprint == first.fingerprint
    assert list((tmp_path / "other").iterdir()) == []  # nothing half-written stays


def test_the_cache_holds_json_and_no_code(tmp_path: Path) -> None:
    write_idx(tmp_path / "mnist")
    load("mnist", str(tmp_path), verify=False)
    raw = _cached(tmp_path)[0].read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    assert set(header) == {"__metadata__", "x", "y", "x_test", "y_test"}
    assert json.loads(header["__metadata__"]["dataset"])["name"] == "mnist"


def test_a_cached_file_of_another_dataset_is_not_taken() -> None:
    for key, seed in (("a", 0), ("b", 1)):
        cache.store(key, build("x", np.full((10, 2), float(seed)), np.arange(10) % 2))
    root = cache.folder()
    (root / "b.safetensors").write_bytes((root / "a.safetensors").read_bytes())
    assert cache.fetch("a") is not None and cache.fetch("b") is None


def test_the_cache_keeps_whose_the_test_rows_are() -> None:
    made = build("x", np.arange(40.0).reshape(20, 2), np.arange(20) % 2, columns={"site": ["a", "b", "c", "d"] * 5})
    cache.store("c", made)
    found = cache.fetch("c")
    assert isinstance(found, Dataset) and found.column_names == made.column_names and not found.test_is_official
    assert torch.equal(found.columns["site"], made.columns["site"])
    assert found.columns_test["site"].tolist() == made.columns_test["site"].tolist() != []
