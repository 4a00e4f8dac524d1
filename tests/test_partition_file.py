"""docs/partition-file.md says what a partition file holds, and its reader reads one without fedskew."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import fedskew as fs
from fedskew.data import save_partition

PAGE = (Path(__file__).parents[1] / "docs/partition-file.md").read_text(encoding="utf-8")


def _written(folder: Path) -> fs.data.Federation:
    fed = fs.federate("digits", fs.partitions.Dirichlet(alpha=0.2), clients=7, validation=0.1, auxiliary=2)
    save_partition(folder / "split.npz", fed)
    return fed


def test_the_page_names_every_array_and_every_field(tmp_path: Path) -> None:
    _written(tmp_path)
    arrays = dict(np.load(tmp_path / "split.npz"))
    header = json.loads(arrays["header"].tobytes())
    first, second = PAGE.split("| field of the header")
    listed = set(re.findall(r"^\| `(\w+)` \|", first, re.M)), set(re.findall(r"^\| `(\w+)` \|", second, re.M))
    assert listed == ({*arrays, "names"}, set(header))


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
