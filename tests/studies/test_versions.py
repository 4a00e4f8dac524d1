"""A folder says which version of a class ran, and a run of a former one is read and neither resumed nor repeated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import fedskew as fs
from fedskew.config.experiment import Experiment, load
from fedskew.config.flags import experiment_from
from fedskew.config.recorded import read_run
from fedskew.errors import RecordError
from fedskew.method.component import spec
from fedskew.methods.ditto import Tethered
from fedskew.plots.groups import federation_of
from fedskew.records.folder import current
from fedskew.records.manifest import Manifest
from fedskew.studies.repeating import repeat
from fedskew.studies.store import archive_line, read_line
from fedskew_papers.runs import Runs
from support.command import SMALL, fedskew, mistake

TOLD = "version 1 of 'tethered', which is version 3 in this fedskew"


@pytest.fixture
def former(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a run of the first version of Ditto's local step, which names no version."""
    folder = tmp_path / "former"
    with monkeypatch.context() as patched:
        patched.setattr(Tethered, "version", 1)
        experiment_from(["ditto", *SMALL]).run(folder)
    assert "version" not in json.loads((folder / "config.json").read_text())["method"]["local"]
    yield folder


@pytest.mark.parametrize("more", [[], ["--rounds", "5"]])
def test_a_run_of_a_former_version_is_not_resumed(
    more: list[str], former: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (former / "rounds.jsonl").read_bytes()
    said = mistake(capsys, "run", "--resume", former, *more)
    assert TOLD in said and str(former) in said and "begin it again in another folder" in said
    with pytest.raises(RecordError, match=TOLD):
        load(former).run(former, resume=True)
    assert (former / "rounds.jsonl").read_bytes() == before


def test_a_run_of_a_former_version_that_python_started_is_not_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = fs.federate("digits", "iid", clients=4)
    with monkeypatch.context() as patched:
        patched.setattr(Tethered, "version", 1)
        fs.run(fed, fs.methods.ditto(), model="logistic", rounds=1, out=tmp_path / "run")
    with pytest.raises(RecordError, match=TOLD):
        fs.run(fed, fs.methods.ditto(), model="logistic", rounds=2, out=tmp_path / "run", resume=True)


def test_a_run_of_a_former_version_is_read(former: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = fs.data.load("digits").x_test[:3]
    assert len(fs.load_model(former).predict(rows)) == 3
    for words in (["show", former], ["evaluate", former], ["runs", former.parent]):
        assert fedskew(*words) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"its configuration is not one of this fedskew: {former} has {TOLD}" in shown


def test_a_run_of_a_former_version_answers_no_protocol_and_is_not_repeated(former: Path, tmp_path: Path) -> None:
    experiment = experiment_from(["ditto", *SMALL])
    (again := tmp_path / "again").mkdir()
    experiment.run(again / "run")
    old, new = (read_line(archive_line(read_run(folder)).replace(f'"{folder.name}"', f'"{digit * 16}"'))
                for folder, digit in ((former, "a"), (again / "run", "b")))  # fmt: skip
    assert Runs([old]).get(experiment) is None and Runs([new, old]).get(experiment) == new
    (repeated,) = repeat([old], 1)
    assert repeated.verdict == "failed" and TOLD in repeated.words


def test_what_is_begun_again_from_a_former_version_says_so(
    former: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fedskew("run", "--from", former, "--out", tmp_path / "again") == 0
    assert f"note: --from {former}: it has {TOLD}" in " ".join(capsys.readouterr().err.split())
    assert fedskew("run", "--resume", tmp_path / "again", "--rounds", "3") == 0


def test_a_version_is_told_where_it_is_not_the_first() -> None:
    assert [spec(part).get("version") for part in (Tethered(), fs.methods.fedavg().local)] == [3, None]
    for name in ("ditto", "fedavg", "fedbal"):
        made = Experiment(fs.methods.METHODS[name]())
        assert Experiment.from_json(json.loads(json.dumps(made.to_json()))) == made


# Version 1 of dirichlet cut where it recorded no rounding: its runs have the rounding "cut" of version 2

ALONE = ["--partition.alpha", "0.5", "--partition.rounding", "cut"]
BASE = ["--partition", "shared", "--partition.beta", "0.1", "--partition.base.rounding", "cut"]


def as_before(folder: Path) -> Path:
    """Let a run folder hold the partition as version 1 wrote it."""
    text = (folder / "config.json").read_text()
    config = json.loads(text)
    said = config["partition"].get("base", config["partition"])
    assert (said.pop("version"), said.pop("rounding")) == (2, "cut")
    said["rounding"] = None
    Manifest.read(folder).replace("config.json", json.dumps(config).encode())
    return folder


@pytest.mark.parametrize("words", [ALONE, BASE], ids=["alone", "base"])
def test_a_run_of_the_former_dirichlet_is_read_resumed_and_repeated(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = "final.safetensors"
    words = ["fedavg", "--clients", "6", "--cohort", "3", "--model", "logistic", *words, "--rounds"]
    experiment = experiment_from([*words, "2"])
    experiment.run(tmp_path / "old")
    old = as_before(tmp_path / "old")
    assert load(old).partition == experiment.partition
    assert np.array_equal(federation_of(read_run(old)).counts, experiment.federation().counts.numpy())
    for command in ("show", "evaluate", "verify"):
        assert fedskew(command, old) == 0
    assert "is not one of this fedskew" not in capsys.readouterr().out
    line = archive_line(read_run(old)).replace(f'"{old.name}"', f'"{"a" * 16}"')
    assert Runs([entry := read_line(line)]).get(experiment) == entry
    assert [one.verdict for one in repeat([entry], 1)] == ["bits"]
    assert fedskew("run", "--from", old, "--out", tmp_path / "again") == 0
    assert "it has version" not in capsys.readouterr().err
    assert (tmp_path / "again" / model).read_bytes() == (old / model).read_bytes()
    assert fedskew("run", "--resume", old, "--rounds", "4") == 0
    experiment_from([*words, "4"]).run(tmp_path / "longer")
    assert (tmp_path / "longer" / model).read_bytes() == (old / model).read_bytes()


def test_a_run_of_the_former_dirichlet_that_python_started_is_resumed(tmp_path: Path) -> None:
    fed = fs.federate("digits", fs.partitioners.Dirichlet(0.5, rounding="cut"), clients=4)
    fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=1, out=tmp_path / "run")
    as_before(tmp_path / "run")
    done = fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=2, out=tmp_path / "run", resume=True)
    assert len(done.rounds) == 2
    as_before(tmp_path / "run")
    now = fs.federate("digits", fs.partitioners.Dirichlet(0.5), clients=4)
    with pytest.raises(RecordError, match="partition was"):
        fs.run(now, fs.methods.fedavg(), model="logistic", rounds=3, out=tmp_path / "run", resume=True)


def test_a_named_rounding_of_the_former_dirichlet_stays() -> None:
    old = {"name": "dirichlet", "alpha": 0.1, "balance_guard": None, "least": None}
    for rounding in ("cut_last", "largest_remainder"):
        made = Experiment(fs.methods.fedavg(), partition=fs.partitioners.Dirichlet(rounding=rounding))
        config = {**made.to_json(), "partition": {**old, "rounding": rounding}}
        assert Experiment.from_json(config) == made and current(config)["partition"] == made.to_json()["partition"]
