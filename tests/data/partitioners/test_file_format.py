"""docs/reference/partition-file.md says what a partition file holds, and its reader reads one without fedskew."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import fedskew as fs
from fedskew.cli.command import main
from fedskew.config import experiment as config
from fedskew.data import save_partition
from support.paths import ROOT

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

    def command(*words: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as left:
            main([*words])
        return int(left.value.code or 0), capsys.readouterr().err

    split, run = str(tmp_path / "split.npz"), str(tmp_path / "run")
    save_partition(split, fs.federate("digits", fs.partitioners.Iid(), clients=5))
    words = ["--model", "logistic", "--partition", "file", "--partition.path", split, "--cohort", "2", "--rounds", "2"]
    assert command("run", "fedavg", *words, "--out", run)[0] == 0
    recorded = json.loads((tmp_path / "run/config.json").read_text())["partition"]["sha256"]
    assert command("run", "--from", run, "--out", str(tmp_path / "again"))[0] == 0
    assert config.load(run).federation().partitioner.sha256 == recorded and len(recorded) == 16
    save_partition(split, fs.federate("digits", fs.partitioners.Iid(), clients=5, seed=1))
    for again in (("--from", run, "--out", str(tmp_path / "other")), ("--resume", run, "--rounds", "3")):
        code, told = command("run", *again)
        assert code == 2 and f"must be the file of the run, sha256 {recorded}" in told and told.count("\n") == 1
    assert not (tmp_path / "other").exists()
