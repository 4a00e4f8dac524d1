"""Gains beside the controls averaged, fitted, both and more work: intervals, the verdict, and its level."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_1samp

import fedskew as fs
from fedskew import rng
from fedskew.report import controls
from fedskew.report.compared import Compared, compare
from fedskew.report.entries import of_rows
from fedskew.report.listings import results
from fedskew.studies.archiving import reuse_archived, write
from fedskew.studies.differences import holm
from fedskew.studies.spec import read_spec
from fedskew.studies.study import Study
from fedskew.studies.verdicts import LOSS, OPEN, OWN, RAW, UNDONE, UNSEEN, Interval, intervals, verdict
from fedskew.studies.work import work_of
from support.command import fedskew, output_of
from support.paths import ROOT
from support.scheduling import done, without_workers

UP = Interval(0.05, 0.03, 0.07, 5)
NOTHING, WIDE, BELOW = Interval(0.0, -0.01, 0.005, 5), Interval(0.01, -0.05, 0.07, 5), Interval(-0.02, -0.03, -0.01, 5)
FOUR = {RAW: UP, "averaged": UP, "fitted": UP, "both": UP}
CLAIMS = {OWN, LOSS, *UNDONE.values()}  # that something differs from the baseline


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, OWN),
        ({"work": UP}, OWN),
        ({"averaged": NOTHING, "fitted": NOTHING, "both": NOTHING}, "noise of the last rounds"),
        ({"fitted": NOTHING, "both": NOTHING}, "a bias"),
        ({"fitted": BELOW}, "a bias"),
        ({"both": NOTHING}, "noise of the last rounds and a bias"),
        ({"work": NOTHING}, "more work"),
        ({"averaged": WIDE}, OPEN),
        ({"averaged": WIDE, "fitted": NOTHING}, "a bias"),
        ({"work": WIDE}, OPEN),
        ({RAW: WIDE}, UNSEEN),
        ({RAW: BELOW}, LOSS),
        ({RAW: UP._replace(pairs=4)}, "no verdict"),
        ({"both": UP._replace(pairs=3)}, "no verdict"),
    ],
)
def test_the_cheapest_control_that_undoes_a_gain_is_named(changed: dict[str, Interval], told: str) -> None:
    assert verdict(FOUR | changed) == told


def test_more_work_without_its_control_is_open() -> None:
    assert verdict(FOUR, dear=True) == f"{OPEN}: work not matched" and verdict(FOUR | {"work": UP}, dear=True) == OWN
    assert verdict(FOUR | {"fitted": NOTHING}, dear=True) == "a bias", "what undoes a gain is told all the same"


@pytest.mark.parametrize(
    ("of", "told"),
    [
        ({RAW: UP, "fitted": UP}, "open: not averaged"),
        ({RAW: UP, "fitted": WIDE}, "open: not averaged"),
        ({RAW: UP, "fitted": NOTHING}, "a bias"),
        ({RAW: UP, "fitted": BELOW}, "a bias"),
        ({RAW: UP, "averaged": UP}, "open: not fitted"),
        ({RAW: UP, "averaged": NOTHING}, "noise of the last rounds"),
        ({RAW: UP, "averaged": UP, "fitted": UP}, "open: not averaged and fitted"),
        ({RAW: UP}, "open: not averaged or fitted"),
        ({RAW: WIDE, "fitted": UP}, UNSEEN),
        ({RAW: BELOW, "fitted": BELOW}, LOSS),
        ({RAW: UP._replace(pairs=3), "fitted": UP._replace(pairs=3)}, "no verdict"),
        ({RAW: UP, "fitted": UP._replace(pairs=3)}, "no verdict"),
        ({"fitted": UP}, "no verdict"),
    ],
)
def test_without_every_control_no_gain_is_the_method_s_own(of: dict[str, Interval], told: str) -> None:
    """Runs of before the mean models have raw and fitted numbers alone."""
    assert verdict(of) == told and verdict(of, dear=True) == told


@pytest.mark.parametrize("methods", [1, 2, 7])
def test_intervals_exclude_zero_where_holms_procedure_rejects(methods: int) -> None:
    draws = rng.generator(3, "holm")
    for _ in range(60):
        values = {str(m): (draws.normal(size=5) + draws.choice([0.0, 1.0, 3.0])).tolist() for m in range(methods)}
        corrected = holm([float(ttest_1samp(each, 0).pvalue) for each in values.values()])
        for p, one in zip(corrected, intervals(values).values(), strict=True):
            assert p is not None and (one.low > 0 or one.high < 0) == (p < 0.05)


def test_a_method_alone_has_students_interval() -> None:
    values = [0.03, 0.05, 0.04, 0.05, 0.03]
    expected = ttest_1samp(values, 0).confidence_interval(0.95)
    (found,) = intervals({"a": values}).values()
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert intervals({"same": [0.02] * 5})["same"][:3] == pytest.approx((0.02, 0.02, 0.02))
    assert intervals({"one": [0.02]}) == {}


def test_few_tables_of_equal_methods_claim_anything() -> None:
    """2 000 tables of five seeds and four methods, none of which differs from the baseline in any of the models."""
    draws, false = rng.generator(0, "equal methods"), 0
    for _ in range(2000):
        base, shared = draws.normal(size=(4, 1, 5)), draws.normal(size=(1, 4, 5))
        gaps = 0.01 * (draws.normal(size=(4, 4, 5)) + shared + 0.5 * base)  # models of one run go together
        families = [intervals({str(m): each[m].tolist() for m in range(4)}) for each in gaps]
        told = [verdict(dict(zip(FOUR, (family[str(m)] for family in families), strict=True))) for m in range(4)]
        false += bool(CLAIMS & {*told})
    assert false / 2000 < 0.07


SMALL = {"data": "digits", "clients": 10, "cohort": 3, "rounds": 12, "epochs": 1, "options": {"partition.alpha": 1}}


@pytest.fixture(scope="module")
def longer(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """FedAvg, FedAvg with twice the epochs, and FedAvg with twice the rounds; five seeds."""
    methods = ["fedavg", "fedavg(epochs=2)", "fedavg(rounds=24)"]
    study = fs.study(methods, seeds="0-4", controls="rounds", store=tmp_path_factory.mktemp("store"), **SMALL)
    with pytest.MonkeyPatch.context() as patch:
        without_workers(patch)
        study.run()
    return study


def compared(study: Study) -> Compared:
    entries, lost = of_rows(study.table(), study.store)
    assert not lost
    return compare(entries, study.spec.metric, study.spec.reference)


@pytest.mark.thorough
def test_fedavg_with_twice_the_rounds_is_more_work(longer: Study) -> None:
    all_runs = compared(longer)
    found = {one.method: one for one in controls.controlled(all_runs, all_runs.settings[0])}
    more = found["fedavg(rounds=24)"]
    assert more.of[RAW].gains and more.of["work"].undone and more.verdict == "more work"
    assert more.of["work"].mean == pytest.approx(0, abs=1e-12), "it is the control itself"
    assert more.work and more.work.steps == pytest.approx(2, abs=0.2)
    (control,) = (one for name, one in found.items() if name.endswith(" rounds"))
    assert control.method.startswith("fedavg, 2") and control.verdict == "more work"
    assert control.worth and control.worth.rounds > 12


def test_the_baseline_is_trained_for_the_work_of_the_dearest(longer: Study) -> None:
    dearest = max(work.most for (label, _), work in longer.works().items() if "rounds" not in label.partition("(")[0])
    rounds = {p.cell.experiment.rounds for p in longer.plan() if p.cell.label.endswith(" rounds") and p.cell.experiment}
    assert rounds == {int(np.ceil(12 * max(2, dearest)))}
    assert not longer.missing()


@pytest.mark.thorough
def test_the_longer_baseline_is_not_fitted_where_the_study_is_not(tmp_path: Path) -> None:
    """As under differential privacy, where the fit is refused."""
    private = {"dp": "client", "dp_clip": 1.0, "dp_noise": 1.0, "weighting": "uniform", "fit_logits": "none"}
    small = SMALL | {"rounds": 1, "options": {"partition": "iid"}} | private
    study = fs.study(["fedavg"], controls="rounds", store=tmp_path, **small)
    study.run(1)
    (entry,) = (entry for planned, entry in study.entries() if planned.cell.label == "fedavg, 2 rounds")
    assert entry and entry.config["fit_logits"] == "none" and entry.summary["privacy"]["epsilon"] > 0


def test_print_shows_the_models_that_verdicts_rest_on(longer: Study) -> None:
    assert all(word in str(longer) for word in ("averaged", "fitted", "both"))


def test_work_is_of_whole_runs(longer: Study) -> None:
    steps = {p.cell.label: [] for p in longer.plan()}  # type: dict[str, list[float]]
    for planned, entry in longer.entries():
        assert entry
        steps[planned.cell.label].append(entry.summary["total_steps"])
        contacts = sum(row["contacts"] for row in entry.rows)
        assert contacts == entry.summary["total_contacts"] == 3 * entry.summary["rounds"]
    ratio = sum(steps["fedavg(rounds=24)"]) / sum(steps["fedavg"])
    assert longer.works()["fedavg(rounds=24)", "all"].steps == pytest.approx(ratio)


@pytest.mark.parametrize(("more", "told"), [(0.0, "more work"), (0.1, f"{OPEN}: work not matched")])
def test_a_baseline_with_less_work_undoes_a_gain_but_leaves_none(longer: Study, more: float, told: str) -> None:
    """A method of ten times the contacts, which the baseline's curve does not reach."""
    one = compared(longer)
    dear = []
    for entry in one.entries:
        summary = dict(entry.run.summary)
        if entry.method == "fedavg(rounds=24)":
            summary["total_contacts"] *= 10
            summary |= {name: min(1, summary[name] + more) for name in controls.models_of(one).values()}
        dear.append(entry._replace(run=dataclasses.replace(entry.run, summary=summary)))
    both = compare(dear, one.key, one.baseline)
    (of,) = (each for each in controls.controlled(both, both.settings[0]) if each.method == "fedavg(rounds=24)")
    assert of.verdict == told and ("work" in of.of) == (told == "more work")


def test_archives_bring_the_longer_baseline_too_with_every_round(longer: Study, tmp_path: Path) -> None:
    write(longer.store.folder, tmp_path / "runs.jsonl", points=2)
    again = Study(longer.spec, tmp_path / "store")
    assert reuse_archived(again, tmp_path / "runs.jsonl", keep=False) == 20 and not again.missing()
    assert {len(entry.rows) for planned, entry in again.entries() if entry} == {2, 25}


def test_the_command_prints_levels_gains_work_and_a_verdict(
    longer: Study, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [f"--{name}={value}" for name, value in SMALL.items() if name != "options"]
    methods = ["fedavg", "fedavg(epochs=2)", "fedavg(rounds=24)", "--controls", "rounds", "--partition.alpha", "1"]
    assert fedskew("compare", *methods, *words, "--seeds", "0-4", "--store", longer.store.folder) == 0
    told = " ".join(capsys.readouterr().out.split())
    for part in (
        "Gains over fedavg, in points, are paired by seed",
        "method seeds mean sd raw averaged fitted both work ",
        "Nothing of it is left when fedavg trains as much: more work.",
        "Work of whole runs, as a multiple of fedavg's method steps contacts bytes worth",
        "the rounds after which fedavg has what the method has",
    ):
        assert part in told, part
    assert re.search(r"fedavg\(rounds=24\) ×[12]\.\d\d ×\S+ ×\S+ \d\d ", told)


def test_runs_without_mean_models_have_a_table_of_what_was_measured(tmp_path: Path) -> None:
    small = SMALL | {"options": {**SMALL["options"], "average-models": "none"}}
    study = fs.study(["fedavg", "fedga"], seeds="0-1", store=tmp_path, **small)
    done(study)
    found = compared(study)
    table: Any = results(found, found.settings[0])
    assert table.head[5:7] == ("raw", "fitted") and "averaged" not in " ".join(table.notes)
    assert results(compare(found.entries, "total_upload_bytes"), found.settings[0]).head[5] == "over fedavg"


def test_over_all_settings_the_verdict_knows_the_work(longer: Study) -> None:
    """A seed counts with its mean over the settings, here twice the same."""
    one = compared(longer)
    both = compare([e._replace(setting=at) for e in one.entries for at in ("a", "b")], one.key, one.baseline)
    told = {each.method: each.verdict for each in controls.controlled(one, "")}
    assert {
        each.method: each.verdict for each in controls.controlled(both, None)
    } == told and "more work" in told.values()


def test_work_is_shown_over_all_settings(longer: Study) -> None:
    table: Any = controls.work(compared(longer), {"fedavg": "", "fedavg(epochs=2)": "2 gradients a step"})
    assert table.head == ("method", "steps", "contacts", "bytes", "worth")
    assert table.notes[0] == "fedavg(epochs=2): 2 gradients a step." and len(table.rows) == 3
    twice = {**longer.entries().__next__()[1].summary}  # type: ignore[union-attr]
    del twice["total_contacts"]
    unknown = work_of(twice)
    assert unknown and np.isnan(unknown.contacts) and np.isnan(unknown.most) and controls.times(unknown.contacts) == "–"


@pytest.mark.thorough
def test_the_baseline_at_a_pace_of_its_own_stands_beside_it_at_the_common_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The study file of the guide, shortened: gains and work are over the pace of its own, and the page says so."""
    guide = (ROOT / "docs/guide/studies.md").read_text(encoding="utf-8")
    file = guide.partition("## A pace of its own")[2].partition("```toml\n")[2].partition("```")[0]
    short = file.replace("rounds = 60", 'rounds = 4\nclients = 6\ncohort = 2\nmodel = "logistic"')
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(f'controls = "rounds"\n{short}', encoding="utf-8")
    study = Study(read_spec("study.toml"), "runs/store")
    paces = {e.cell.label: e.cell.experiment.method.pace for e in study.plan() if e.cell.experiment}
    assert {label: (pace.lr, pace.epochs) for label, pace in paces.items()} == {
        "fedavg": (0.05, 1), "fedga": (0.05, 1), "fedavg, its own pace": (0.1, 2),
    }  # fmt: skip
    said = " ".join(output_of(capsys, "compare", "study.toml", "--out", "out", "--processes", "1").split())
    assert "over fedavg, its own pace" in said and "fedavg, its own pace, 8 rounds" in said
    assert "Gains over fedavg, its own pace, in points" in said
    assert re.search(r"as a multiple of fedavg, its own pace's .*fedavg ×0\.5\d ", said)
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert "The baseline is fedavg, its own pace." in page and "Gains over fedavg, its own pace in accuracy" in page
