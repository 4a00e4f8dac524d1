"""Addresses, the store, and studies that are stopped, shared and read."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from fedskew.cli.studying import print_plan
from fedskew.config.experiment import load
from fedskew.config.flags import experiment_from
from fedskew.errors import ConfigError, DataError, RecordError
from fedskew.method import method_spec
from fedskew.methods import METHODS
from fedskew.report.entries import of_study
from fedskew.session import Session
from fedskew.studies import store as store_module
from fedskew.studies.address import address, dataset_of
from fedskew.studies.archiving import reuse_archived, write
from fedskew.studies.runs import OWN, own_files
from fedskew.studies.same import _leaves
from fedskew.studies.spec import spec_from, tuning_of
from fedskew.studies.store import Store, archive_line, thinned
from fedskew.studies.study import Cost, Study, cost_of, shard_of
from fedskew.studies.work import RunJob, work
from support.federations import small_digits
from support.paths import TESTS
from support.resuming import stop_after
from support.scheduling import done

SMALL = [("clients", "5"), ("rounds", "2"), ("cohort", "2")]


def of(*words: str) -> str:
    """The address of a run of these words."""
    return address(experiment_from(words), small_digits())


@pytest.mark.parametrize(
    "same",
    [
        ["--memory", "ram"], ["--cohort", "10"], ["--clients", "100"], ["--seed", "0"], ["--seed.model", "0"],
        ["--checkpoint.every", "3"], ["--lr", "0.1"], ["--max-minutes", "5"], ["--model.hidden", "128"],
        ["--seed.partition", "0"], ["--model", "mlp"],
    ],
)  # fmt: skip
def test_what_decides_no_number_changes_no_address(same: list[str]) -> None:
    assert of("fedga", *same) == of("fedga")


@pytest.mark.parametrize(
    "other",
    [
        ["--rounds", "3"], ["--seed", "1"], ["--seed.model", "1"], ["--lr", "0.2"], ["--weighting", "size"],
        ["--cohort", "3"], ["--partition.alpha", "0.3"], ["--partition", "iid"], ["--eval.every", "2"],
        ["--parts.calibrated_targets.form", "exact"], ["--model", "logistic"], ["--model.hidden", "64"],
        ["--auxiliary", "1"], ["--engine", "threaded"], ["--clients", "9"], ["--longtail", "10"],
        ["--validation", "0.1"], ["--local-test", "0.1"], ["--dtype", "float64"], ["--nonfinite", "drop"],
        ["--diagnose", "drift"], ["--clip", "5"], ["--monitor", "val_loss"],
    ],
)  # fmt: skip
def test_what_decides_numbers_changes_the_address(other: list[str]) -> None:
    assert of("fedga", *other) != of("fedga")


def test_other_data_have_another_address() -> None:
    one = experiment_from(["fedavg"])
    assert address(one, small_digits()) != address(one, small_digits(rows=150))


def test_plain_engines_share_addresses_and_batched_depends_on_its_threads() -> None:
    assert of("fedavg", "--engine", "sequential") == of("fedavg", "--engine", "threaded", "--threads", "3")
    assert of("fedavg", "--engine", "batched", "--threads", "1") != of(
        "fedavg", "--engine", "batched", "--threads", "2"
    )
    convolutional = ("fedavg", "--model", "resnet20")
    assert of(*convolutional) == of(*convolutional, "--engine", "threaded")
    assert of(*convolutional) != of(*convolutional, "--engine", "batched")


def test_a_study_that_names_its_engine_keeps_its_addresses_whatever_auto_takes() -> None:
    large = ("fedavg", "--model", "2nn")
    assert of(*large) == of(*large, "--engine", "batched") != of(*large, "--engine", "threaded")
    for whole in (["perfedavg"], ["scaffold"], ["fedavg", "--momentum", "0.9"]):  # gradients of a whole stack in memory
        apart = (*whole, "--model", "2nn")
        assert of(*apart) == of(*apart, "--engine", "threaded") != of(*apart, "--engine", "batched")


def test_a_method_of_another_name_and_the_same_ingredients_is_the_same_run() -> None:
    assert of("fedprox", "--parts", "cross_entropy") == of("fedavg")


def test_addresses_of_all_methods_stay() -> None:
    """A new option at its default changes none; where a default or a formula changes, the class raises its version."""
    file = TESTS / "golden" / "addresses.json"
    found = {}
    for name in METHODS:
        experiment = experiment_from([name, "--rounds", "3"])
        fields = dict(_leaves(json.loads(json.dumps(method_spec(experiment.method)))))  # by path
        found[name] = {"address": address(experiment, small_digits()), "method": fields}
    held = json.loads(file.read_text())
    for name, known in held.items():
        assert found[name]["address"] == known["address"], name
        lost = {k: v for k, v in known["method"].items() if found[name]["method"].get(k) != v}
        assert not lost, f"{name}: {lost} changed, and the address did not: raise the version of the class"


def test_a_stored_run_of_a_former_version_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(METHODS["ditto"]().local)
    spec, store, now = spec_from(["ditto"], SMALL), Store(tmp_path), kind.version
    monkeypatch.setattr(kind, "version", 1)
    assert set(done(Study(spec, store))) == {"finished"} and Study(spec, store).missing() == []
    monkeypatch.setattr(kind, "version", now)
    assert len(Study(spec, store).missing()) == len(Study(spec, store).plan()) > 0


@dataclass(frozen=True)
class Missing:
    """Data of which the hub says, slowly, that there are none."""

    asked: list[str] = field(default_factory=list, hash=False)

    def load(self, path: str | None) -> None:
        self.asked.append("load")
        raise DataError("not at hand")


@pytest.mark.parametrize(("slow", "remembered", "times"), [(0.0, 60.0, 1), (0.0, 0.0, 5), (1e9, 60.0, 5)])
def test_the_hub_is_asked_once_for_data_that_are_not_at_hand(
    slow: float, remembered: float, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its retries take half a minute, and a plan has hundreds of runs; what fails at once is looked for again."""
    for name, value in {"SLOW": slow, "REMEMBERED": remembered, "_absent": {}}.items():
        monkeypatch.setattr(f"fedskew.studies.address.{name}", value)
    data = Missing()
    for _ in range(5):
        with pytest.raises(DataError, match="not at hand"):
            dataset_of(data, None)
    assert len(data.asked) == times


# The store


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A study whose runs were done in this process."""
    spec = spec_from(["fedavg", "fedla", "fedrs"], [*SMALL, ("partition.alpha", "0.1,1")], seeds=(0, 1))
    study = Study(spec, tmp_path_factory.mktemp("store"))
    done(study)
    return study


def test_a_study_does_each_run_once(made: Study) -> None:
    assert len(made.plan()) == 12 and made.missing() == [] and len(list(made.store.addresses())) == 12
    rows = made.table()
    assert {row["state"] for row in rows} == {"finished"} and all(0 <= row["final_accuracy"] <= 1 for row in rows)
    assert [(r["label"], r["setting"], r["seed"]) for r in rows[:3]] == [
        ("fedavg", "partition.alpha 0.1", 0), ("fedavg", "partition.alpha 0.1", 1), ("fedla", "partition.alpha 0.1", 0),
    ]  # fmt: skip


def test_a_run_that_is_whole_is_read_once_and_missed_where_it_is_deleted(
    made: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(made.store.folder, tmp_path / "copy")
    other, reads, finished = Study(made.spec, tmp_path / "copy"), list[Path](), store_module.finished

    def read(folder: Path, *rest: Any) -> bool:
        reads.append(folder)
        return finished(folder, *rest)

    monkeypatch.setattr(store_module, "finished", read)
    assert other.missing() == other.missing() == [] and len(reads) == 12
    shutil.rmtree(other.store.run_folder(other.plan()[0].address))
    assert other.missing() == other.plan()[:1]


def test_another_study_finds_the_runs_of_the_store(made: Study) -> None:
    other = Study(spec_from(["fedavg", "fedprox"], [*SMALL, ("partition.alpha", "1")], seeds=(1, 2)), made.store)
    assert len(other.plan()) == 4 and len(other.missing()) == 3


def test_methods_of_a_study_have_partition_weights_and_clients_in_common(made: Study) -> None:
    by: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for planned, entry in made.entries():
        assert entry is not None
        by.setdefault((planned.cell.setting, planned.cell.seed), []).append(
            {"clients": [row["clients"] for row in entry.rows], "seed": entry.config["seed"]}
        )
    assert all(len(found) == 3 and found[0] == found[1] == found[2] for found in by.values())


def test_an_archive_stands_for_its_runs(made: Study, tmp_path: Path) -> None:
    lines = [archive_line(entry) for _, entry in made.entries() if entry]
    store = Store(tmp_path / "other")
    (store.folder / "theirs.jsonl").write_text("\n".join(lines) + "\n")
    other = Study(made.spec, store)
    assert other.missing() == []
    drop = lambda rows: [{k: v for k, v in row.items() if "_s" not in k} for row in rows]
    assert drop(other.table()) == drop(made.table())
    (store.folder / "theirs.jsonl").write_text("{}\n")
    with pytest.raises(RecordError, match="line 1 is not"):
        Study(made.spec, Store(store.folder)).missing()


def test_a_frame_has_a_row_a_run_or_a_round(made: Study) -> None:
    pytest.importorskip("pandas")
    assert len(made.frame()) == 12 and len(made.frame("round")) == 24
    assert {"label", "setting", "seed", "final_accuracy"} <= set(made.frame().columns)
    with pytest.raises(ConfigError, match="be 'run' or 'round'"):
        made.frame("day")


def test_without_pandas_one_line_names_the_extra(made: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(ConfigError, match="\\.\\[study\\]"):
        made.frame()


def test_cost_is_told_from_runs_that_are_done(made: Study, capsys: pytest.CaptureFixture[str]) -> None:
    assert cost_of(made) == Cost()
    more = Study(replace(made.spec, seeds=(0, 1, 2)), made.store)
    left = cost_of(more)
    assert left.seconds > 0 and left.runs == len(more.missing()) and left.unknown == 0
    fresh = Study(spec_from(["fedavg"], [*SMALL, ("model", "2nn")]), made.store)
    assert cost_of(fresh) == Cost(0.0, 1, 1) and print_plan(fresh, 1) == 0
    said = capsys.readouterr().out
    assert "the time of 1 run is not known" in said and "about" not in said


def test_a_run_that_cannot_be_is_noted_and_not_tried_again(tmp_path: Path) -> None:
    study = Study(spec_from(["fedavg(lr=1e30)", "fedavg", "fedavg(cohort=500)"], SMALL), tmp_path)
    assert done(study) == ["failed", "finished", "refused"]
    assert study.missing() == []
    rows = study.table()
    assert [row["state"] for row in rows] == ["failed", "finished", "refused"]
    assert "not finite" in rows[0]["reason"] or "became" in rows[0]["reason"]
    study.store.forgive(study.plan()[0].address)
    assert len(study.missing()) == 1


def test_a_run_that_another_process_has_is_left_to_it(tmp_path: Path) -> None:
    from fedskew.records.files import Hold

    study = Study(spec_from(["fedavg"], SMALL), tmp_path)
    (planned,) = study.missing()
    folder = study.store.run_folder(planned.address)
    folder.mkdir(parents=True)
    hold = Hold(folder)
    job = RunJob(planned.address, planned.job, str(tmp_path))
    assert work(job).state == "busy"
    hold.release()
    assert work(job).state == "finished"


@pytest.mark.parametrize("rounds", [2, 1], ids=["finished", "half"])
def test_a_run_whose_deletion_was_killed_is_done_again(rounds: int, tmp_path: Path) -> None:
    """After a kill at any file of the deletion; and the run is the same."""
    study = Study(
        spec_from(["fedavg"], [*SMALL, ("clients-every", "1"), ("checkpoint.every", "1")]), tmp_path / "store"
    )
    (planned,) = study.missing()
    job, folder = RunJob(planned.address, planned.job, str(tmp_path / "store")), study.store.run_folder(planned.address)
    assert work(job).state == "finished"
    shutil.copytree(folder, tmp_path / "whole")
    for number in range(1, len(OWN) + 1):
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "whole", folder)
        gone = ["final.safetensors", "model.json", "summary.json"] if rounds == 1 else []
        for name in [*gone, *own_files(folder)[:number]]:
            (folder / name).unlink(missing_ok=True)
        assert work(job).state == "finished", number
        again = study.store.finished(planned.address)
        assert again is not None and len(again.rows) == again.summary["rounds"], number


def test_half_a_run_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = Study(
        spec_from(["scaffold"], [*SMALL[:1], ("rounds", "4"), ("cohort", "2"), ("checkpoint.every", "1")]),
        tmp_path,
    )
    (planned,) = study.missing()
    made = planned.cell.experiment
    assert made is not None
    folder = study.store.run_folder(planned.address)

    made.run(folder, on_round=stop_after(2))
    assert len(study.missing()) == 1
    assert [row["state"] for row in study.table()] == ["missing"], "its numbers are those of two rounds"
    plain, trained = Session.round, list[int]()
    monkeypatch.setattr(Session, "round", lambda self: trained.append(self.state.round + 1) or plain(self))
    outcome = work(RunJob(planned.address, planned.job, str(tmp_path)))
    assert outcome.state == "finished" and trained == [3, 4] and study.missing() == []


def test_a_store_of_another_version_is_refused(tmp_path: Path) -> None:
    Store(tmp_path / "s")
    (tmp_path / "s" / "store.json").write_text('{"layout": 9, "address": 1}')
    with pytest.raises(RecordError, match="layout 1"):
        Store(tmp_path / "s")
    (tmp_path / "s" / "store.json").write_text("{")
    with pytest.raises(RecordError, match="is damaged"):
        Store(tmp_path / "s")
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="writable folder"):
        Store(tmp_path / "file")


def test_a_run_of_the_command_is_that_of_a_study(made: Study, tmp_path: Path) -> None:
    planned = made.plan()[0]
    assert planned.cell.experiment is not None
    planned.cell.experiment.run(tmp_path / "run")
    recorded = load(tmp_path / "run")
    assert address(recorded, dataset_of(recorded.data, recorded.path)) == planned.address


# Tuning


def test_a_method_without_the_tuned_field_trains_as_it_is(tmp_path: Path) -> None:
    """FedAvg has no mu: it is the baseline all the same, and only FedProx is tuned."""
    spec = spec_from(["fedavg", "fedprox"], SMALL, tuning=tuning_of("parts.proximal.mu=log:0.001..1", 2))
    study = Study(spec, tmp_path)
    assert [t.cell.label for t in study.trials()] == ["fedprox"] * 2
    done(study, study.trials())
    fedavg, fedprox = study.plan()
    assert study.chosen["fedavg", "all"] == {} and study.chosen["fedprox", "all"]
    assert fedavg.address == Study(spec_from(["fedavg"], SMALL), tmp_path).plan()[0].address
    assert fedprox.address
    place = study.save(tmp_path / "out")
    assert "not tuned: fedavg, which has none of these options" in of_study(place)[1]["notes"]


def test_a_tuned_option_that_no_method_has_is_refused_before_any_run(tmp_path: Path) -> None:
    spec = spec_from(["fedavg", "fedprox"], SMALL, tuning=tuning_of("lr=log:0.01..0.3,muu=log:0.001..1", 2))
    with pytest.raises(ConfigError, match="unknown option 'muu' to tune"):
        Study(spec, tmp_path).trials()


def test_other_mistakes_of_a_tuned_study_come_first(tmp_path: Path) -> None:
    wrong = Study(spec_from(["fedavg"], [*SMALL, ("nonsense", "3")], tuning=tuning_of("lr=log:0.01..0.3", 2)), tmp_path)
    with pytest.raises(ConfigError, match="unknown option '--nonsense'"):
        wrong.trials()


def test_the_best_trial_of_each_method_is_compared(tmp_path: Path) -> None:
    spec = spec_from(["fedavg", "fedrs"], SMALL, seeds=(0, 1), tuning=tuning_of("lr=log:0.0001..0.5", 3))
    study = Study(spec, tmp_path)
    trials = study.trials()
    assert len(trials) == 6 and all(t.cell.experiment.validation == 0.1 for t in trials if t.cell.experiment)
    assert all(t.cell.seed not in spec.seeds for t in trials)
    done(study, trials)
    study.choose()
    assert set(study.chosen) == {("fedavg", "all"), ("fedrs", "all")}
    for (label, _), options in study._chosen.items():
        scores = {
            t.options: study.store.entry(t.address).summary["mean10_val_accuracy"]  # type: ignore[union-attr]
            for t in trials if t.cell.label == label
        }  # fmt: skip
        assert scores[options] == max(scores.values())
    made = [p.cell.experiment for p in study.plan() if p.cell.label == "fedavg"]
    assert {f"{e.method.pace.lr:.4g}" for e in made if e} == {f"{study.chosen['fedavg', 'all']['lr']:.4g}"}
    assert all(e.validation == 0 for e in made if e)


def test_trials_go_beyond_the_range_while_the_best_is_at_its_edge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Study, "_score", lambda self, trial: float(trial.options[0][1]))  # the faster the better
    tuning = tuning_of("lr=log:0.01..0.04", 2, beyond=2)
    study = Study(spec_from(["fedavg"], [*SMALL, ("epochs", "1")], tuning=tuning), tmp_path)
    counts = []
    while study.missing(study.trials()):
        counts.append(len(study.trials()))
        done(study, study.trials())
    rates = [float(t.options[0][1]) for t in study.trials()]
    assert counts == [2, 3, 4] and rates[2:] == pytest.approx([max(rates[:2]) * 2**k for k in (1, 2)], rel=1e-3)
    assert study.choose() and study._chosen["fedavg", "all"] == study.trials()[-1].options
    again = Study(spec_from(["fedavg"], [*SMALL, ("epochs", "1")], tuning=tuning), tmp_path / "other")
    path = tmp_path / "all.jsonl"
    assert write(study.store.folder, path) == 4
    assert reuse_archived(again, path) == 4 and not again.missing(again.trials())


def test_trials_stop_where_the_best_is_inside() -> None:
    tuning = tuning_of("lr=log:0.01..1", 3, beyond=9)
    scores = {(("lr", str(rate)),): score for rate, score in ((0.02, 0.5), (0.1, 0.9), (0.5, 0.8))}
    assert tuning.next_point(scores) is None
    scores[("lr", "0.5"),] = math.nan
    scores[("lr", "0.02"),] = 0.95
    assert tuning.next_point(scores) == (("lr", "0.004309"),)
    assert tuning.next_point(dict.fromkeys(scores, math.nan)) is None
    with pytest.raises(ConfigError, match="tune_beyond must be used with one log range"):
        tuning_of("lr=0.1..0.5", 3, beyond=1)
    with pytest.raises(ConfigError, match="tune_beyond must be at least 0"):
        tuning_of("lr=log:0.1..0.5", 3, beyond=-1)


def test_a_tuned_option_wins_under_each_of_its_names(tmp_path: Path) -> None:
    spec = spec_from(["fedavg(pace.lr=0.2)"], [*SMALL, ("lr", "0.1")], tuning=tuning_of("lr=log:0.01..0.5", 2))
    rates = [t.cell.experiment.method.pace.lr for t in Study(spec, tmp_path).trials() if t.cell.experiment]
    assert len(set(rates)) == 2 and not {0.1, 0.2} & set(rates)


def test_trials_divide_the_rows_as_the_compared_runs_do(tmp_path: Path) -> None:
    study = Study(spec_from(["fedavg", "fedrl"], SMALL, tuning=tuning_of("lr=0.01..0.5", 2)), tmp_path)
    assert {t.cell.experiment.auxiliary for t in study.trials() if t.cell.experiment} == {63}


def test_nothing_is_compared_before_the_trials_are_done(tmp_path: Path) -> None:
    """Runs at the methods' defaults must not pass for tuned ones."""
    plain = Study(spec_from(["fedavg"], SMALL), tmp_path)
    assert done(plain) == ["finished"]
    spec = spec_from(["fedavg"], SMALL, tuning=tuning_of("lr=0.01..0.5", 2))
    study = Study(spec, tmp_path)
    assert [row["state"] for row in study.table()] == ["missing"] and len(study.missing()) == 1
    done(study, study.trials())
    assert done(study) == ["finished"]
    again = Study(spec, tmp_path)  # as the next command has it
    assert again.missing() == [] and [row["state"] for row in again.table()] == ["finished"]


def test_a_method_of_which_no_trial_finishes_is_refused(tmp_path: Path) -> None:
    study = Study(spec_from(["fedavg"], SMALL, tuning=tuning_of("batch-size=int:-4..-2", 2)), tmp_path)
    assert not study.missing(study.trials())
    (row,) = study.table()
    assert row["state"] == "refused"
    assert row["reason"].startswith("no tuning trial finished: ") and "batch" in row["reason"]


# Small things


def test_a_thinned_run_has_the_same_costs() -> None:
    rows = [{"round": i, "accuracy": i / 10, "samples": i, "upload_bytes": 2} for i in range(1, 8)]
    few = thinned(rows, 3)
    assert [r["round"] for r in few] == [3, 6, 7]
    assert sum(r["samples"] for r in few) == 28 and sum(r["upload_bytes"] for r in few) == 14
    assert thinned([{"round": 1, "samples": 1}, {"round": 2, "samples": 1, "accuracy": 0.5}])[0]["samples"] == 2


@pytest.mark.parametrize("text", ["", "0/3", "4/3", "a/b", "1", "1/2/3", "1/" + "9" * 30])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="shard must be"):
        shard_of(text)


def test_study_json_names_every_run(made: Study, tmp_path: Path) -> None:
    content = json.loads(made.save(tmp_path / "out", "fedskew compare ...").read_text())
    assert len(content["runs"]) == 12 and content["baseline"] == "fedavg" and content["command"]
    assert {"label", "setting", "seed", "address", "state", "reason"} == set(content["runs"][0])
