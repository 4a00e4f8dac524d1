"""npz files of a user's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedskew.data import load
from fedskew.data.sources.files import reading
from fedskew.errors import ConfigError
from support.data_files import GEN, fails


def test_a_machine_short_of_memory_says_nothing_of_the_file() -> None:
    with pytest.raises(MemoryError), reading("a.csv", "is not a csv file"):
        raise MemoryError


def test_npz_files_named_as_splits_are_no_clients(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2
    np.savez(tmp_path / "Train.npz", x=x, y=y)
    np.savez(tmp_path / "test.npz", x=x[:4], y=y[:4])
    data = load("npz", str(tmp_path))
    assert len(data.x) == 20 and len(data.x_test) == 4 and not data.columns


def test_npz_files(tmp_path: Path) -> None:
    x, y = GEN.normal(size=(20, 4)).astype(np.float32), np.arange(20) % 2
    np.savez(tmp_path / "a.npz", x=x, y=y)
    np.savez(tmp_path / "b.npz", x_train=x, y_train=y, x_test=x[:4], y_test=y[:4])
    one, two = load("npz", str(tmp_path / "a.npz")), load("npz", str(tmp_path / "b.npz"))
    assert len(one.y) == 16 and one.name == "a" and not one.test_is_official
    assert len(two.y) == 20 and len(two.y_test) == 4 and two.test_is_official
    np.savez(tmp_path / "c.npz", x=x)
    fails("npz", tmp_path / "c.npz", "got x, without y")
    np.savez(tmp_path / "d.npz", x=np.array([{}] * 4, dtype=object), y=np.arange(4) % 2)
    fails("npz", tmp_path / "d.npz", "not a readable npz file of plain arrays")
    (tmp_path / "a.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:100])
    fails("npz", tmp_path / "a.npz", "must be an npz file")
    fails("npz", None, "path must name the file of dataset 'npz'; got ''", kind=ConfigError)
