"""The adviser: nearest first, no advice from afar, nothing that may harm, and evidence from the results."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

import fedskew as fs
from fedskew.advice import evidence
from fedskew.advice.adviser import NEAR, UNITS, advise, distance, needs, rule
from fedskew.advice.evidence import LONGER, Gain, Measured, descriptors, packaged
from fedskew.advice.table import advice_table
from fedskew.config.flags import experiment_from
from fedskew.config.recorded import Run
from fedskew.methods import METHODS
from support.command import fedskew, output_of
from support.paths import ROOT
from support.scripts import script

made_evidence = script("scripts/make_evidence.py")
SKEWED = np.array([[90, 5, 0], [0, 80, 10], [4, 0, 99], [60, 40, 0]])
EVEN = np.full((40, 3), 30)
HELPS, OPEN = Gain(0.05, 0.02, 0.08, 5), Gain(0.05, -0.02, 0.12, 5)


def federation(
    counts: np.ndarray, name: str = "made up", data: str = "toy", **gains: Gain | dict[str, Gain]
) -> Measured:
    """A federation with these gains in accuracy, or by several numbers."""
    by = {m: dict(g) if isinstance(g, dict) else {"accuracy": g} for m, g in gains.items()}
    return Measured(name, "made up", data, "mlp", "", descriptors(counts), "fedavg", 0.7, {}, by, {})


def shown(advice: Any, capsys: pytest.CaptureFixture[str]) -> str:
    Console(width=300).print(advice_table(advice))
    return " ".join(capsys.readouterr().out.split())


def test_the_distance_is_what_it_says() -> None:
    a, b = descriptors(SKEWED, 2), descriptors(EVEN, 4)
    assert distance(a, a) == 0 and distance(a, b) == distance(b, a) > NEAR
    assert distance(a, {**a, "classes": 2 * a["classes"]}) == pytest.approx(math.sqrt(1 / len(UNITS)))
    tenfold = {**a, "clients": 9 * a["clients"], "missing_rate": a["missing_rate"] + 0.2}
    assert distance(a, tenfold) == pytest.approx(math.sqrt((2**2 + 1) / len(UNITS)))
    assert distance(a, {**a, "participation": 3 * a["participation"]}) == pytest.approx(math.sqrt(1 / len(UNITS)))
    assert distance(descriptors(SKEWED), a) == 0, "a share that is not known is not compared"


def test_the_nearest_federation_comes_first_and_decides() -> None:
    here, there = federation(SKEWED, "here", fedbal=HELPS), federation(EVEN, "there", fedla=HELPS)
    for counts, name, best in ((SKEWED, "here", "fedbal"), (EVEN, "there", "fedla")):
        found = advise(counts, (there, here))
        assert found.neighbours[0].federation.name == name
        assert found.neighbours[0].distance == 0 and found.neighbours[1].distance > NEAR
        assert [one.method for one in found.worth_trying] == [best] and not found.others


def test_far_away_nothing_helps_and_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    found = advise(np.diag([5] * 50), (federation(SKEWED, fedbal=HELPS),))
    assert found.worth_trying == () and not found.others
    assert "nothing measured helps here: no measured federation is near" in shown(found, capsys)
    even = advise(np.full((10, 10), 100))
    assert all(one.gain < 0.01 for one in even.worth_trying), "under weak skew"


@pytest.mark.parametrize(
    ("gain", "worth"),
    [(HELPS, True), (OPEN, False), (Gain(0.05, None, None, 1), False), (Gain(-0.05, -0.08, -0.02, 5), False)],
)
def test_a_method_is_worth_trying_where_its_interval_lies_above_0(gain: Gain, worth: bool) -> None:
    found = advise(SKEWED, (federation(SKEWED, fedbal=gain),))
    assert bool(found.worth_trying) is worth and ("fedbal" in {**found.others, **found.unjudged}) is not worth


def test_one_near_federation_where_it_may_harm_rules_a_method_out() -> None:
    """There its interval lies below 0 and reaches further than a point."""
    small, large = Gain(-0.005, -0.009, -0.001, 5), Gain(-0.02, -0.03, -0.01, 5)
    for other, worth in ((OPEN, ["fedbal"]), (small, ["fedbal"]), (large, [])):
        found = advise(SKEWED, (federation(SKEWED, "a", fedbal=HELPS), federation(SKEWED, "b", fedbal=other)))
        assert [one.method for one in found.worth_trying] == worth


NONE = Gain(0.001, -0.001, 0.003, 5)
SMALLER = Gain(0.02, 0.01, 0.03, 5)


def test_the_strongest_control_decides_and_verdicts_are_the_one_rules(capsys: pytest.CaptureFixture[str]) -> None:
    bias = {"accuracy": HELPS, "fitted_accuracy": NONE}
    fit = {"accuracy": HELPS, "fitted_accuracy": SMALLER, "worst_recall": Gain(0.25, None, None, 5)}
    own = {f"{prefix}accuracy": SMALLER for prefix in ("", "fitted_", "averaged_", "averaged_fitted_")}
    noise = own | {"averaged_accuracy": NONE, "averaged_fitted_accuracy": NONE}
    there = federation(SKEWED, fedbal=bias, fedla=fit, feddyn=own, fedga=noise, scaffold=own, fedntd=own)
    works: dict[str, list[float | None]] = {"feddyn": [1.0, 1.0, 1.0], "scaffold": [1.0, 1.0, 2.0], "fedntd": [2, 2, 1]}
    found = advise(SKEWED, (there._replace(works=works),))
    worth = {one.method: one.verdicts[1] for one in found.worth_trying}
    assert worth == {
        "fedla": "open: not averaged",
        "feddyn": "of its own",
        "scaffold": "of its own",
        "fedntd": "open: work not matched",
    }
    assert found.others == {"fedbal": 0.001, "fedga": 0.001} and found.worth_trying[0].gain == 0.02
    said = shown(found, capsys)
    assert "[1] raw +5.0 (+2.0 to +8.0), fitted +2.0 (+1.0 to +3.0), 5 seeds: open: not averaged" in said
    assert "worst recall +25.0" in said and "steps ×1, contacts ×1, bytes ×2;" in said
    assert "fitted +" not in shown(advise(SKEWED, (federation(SKEWED, fedbal=HELPS),)), capsys)


def test_three_seeds_give_no_verdict_and_their_means_stand(capsys: pytest.CaptureFixture[str]) -> None:
    found = advise(SKEWED, (federation(SKEWED, fedbal=HELPS._replace(seeds=3)),))
    assert not found.worth_trying and not found.others and found.unjudged == {"fedbal": 0.05}
    said = shown(found, capsys)
    assert "no method has a verdict there, which takes 5 seeds" in said
    assert "means without a verdict: fedbal +5.0" in said


def test_what_fedavg_can_have_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    fedavg = {"averaged_accuracy": HELPS, "fitted_accuracy": Gain(0.12, 0.1, 0.14, 5), "work_accuracy": HELPS}
    there = federation(SKEWED, fedbal=HELPS)._replace(fedavg=fedavg, exchanges=7.0, works={LONGER: [2.0, 1.9, 2.0]})
    found = advise(SKEWED, (there,))
    assert [one.name for one in found.fedavg] == ["averaged", "fitted", "work"] and found.unmeasured == ("both",)
    close = advise(SKEWED, (there._replace(fedavg={**fedavg, "averaged_accuracy": Gain(0.115, 0.1, 0.13, 5)}),))
    assert "first FedAvg averaged, +11.5 points on average" in shown(close, capsys), "the cheapest within a point"
    said = shown(found, capsys)
    assert "first FedAvg fitted, +12.0 points on average; then fedbal, +5.0 over FedAvg as trained" in said
    assert "7 exchanges of sums with every client" in said and "2 times the local steps" in said
    assert "not measured there: FedAvg averaged and fitted; fedskew compare fedavg METHOD --controls rounds" in said
    assert said.index("FedAvg fitted") < said.index("fedbal") < said.index("measured nearest")
    assert found.to_json()["fedavg"][1]["gain"] == 0.12


def test_other_data_and_another_network_are_told() -> None:
    fed = fs.federate("digits", "dirichlet", clients=8)
    there = federation(fed.counts.numpy(), data="digits", fedbal=HELPS)
    assert advise(fed, (there,), model="mlp").notes == ()
    (told,) = advise(fed, (there,), model="lenet").notes
    assert told == "the network there: mlp; yours is 'lenet', and gains may differ"
    assert len(advise(fed.counts, (there._replace(data="other"),)).notes) == 2


def test_the_rule_is_the_best_method_whichever_dataset_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    strong = [federation(np.diag([9, 9, 9]), d, d, feddyn=HELPS, fedga=Gain(0.01, 0, 0.02, 5)) for d in "abc"]
    weak = [federation(EVEN, d, d, feddyn=Gain(-0.02, -0.1, 0.1, 5), fedga=Gain(-0.01, -0.1, 0.1, 5)) for d in "abc"]
    found = rule([*strong, *weak])
    assert found is not None and (found.method, found.helps, found.federations, found.datasets) == ("feddyn", 3, 3, 3)
    assert (found.gain, found.weaker, found.weaker_best) == (pytest.approx(0.05), pytest.approx(-0.02), -0.01)
    one = strong[0]._replace(gains={"feddyn": {"accuracy": Gain(0.5, 0.4, 0.6, 5)}, "fedga": {"accuracy": OPEN}})
    rest = [
        f._replace(gains={"feddyn": {"accuracy": Gain(0, 0, 0, 5)}, "fedga": {"accuracy": HELPS}}) for f in strong[1:]
    ]
    assert rule([one, *rest]) is None, "without the first dataset it is another one"
    assert rule(strong[:1]) is None
    bias = {"accuracy": HELPS, "fitted_accuracy": Gain(0.0, -0.01, 0.01, 5)}
    fitted = rule([f._replace(gains={**f.gains, "feddyn": bias}) for f in strong])
    assert fitted is not None and (fitted.method, fitted.gain, fitted.helps) == ("fedga", pytest.approx(0.01), 3)
    said = shown(advise(SKEWED, [*strong, *weak]), capsys)
    assert "rule: under strong label skew feddyn has the greatest mean gain over FedAvg fitted" in said


def test_the_packaged_rule_is_feddyn_and_holds_under_strong_skew_alone() -> None:
    """As docs/guide/advise.md has it."""
    found = rule(packaged())
    assert found is not None and found.method == "feddyn" and found.gain > 0 > found.weaker
    page = " ".join((ROOT / "docs/guide/advise.md").read_text(encoding="utf-8").split())
    gain, best, weaker = (f"{abs(100 * v):.1f}" for v in (found.gain, found.best, found.weaker))
    assert f"FedDyn gains {gain} points on average" in page and f"loses {weaker} points" in page
    assert f"on {found.helps} of {found.federations}" in page and f"gains {best} points" in page


@pytest.mark.parametrize("method", sorted(METHODS))
def test_what_a_method_discloses_and_needs_is_said(method: str) -> None:
    parts = METHODS[method]().components
    told, rows = needs(method), max(c.auxiliary for c in parts)
    assert all(text in told for c in parts for text in (*map(str, c.reads), c.uploads) if text)
    assert (f"NEEDS {rows} rows of each class at the server" in told) == (rows > 0)


def test_fedrl_is_never_named_without_its_server_rows(capsys: pytest.CaptureFixture[str]) -> None:
    found = advise(SKEWED, (federation(SKEWED, fedrl=HELPS),))
    assert "NEEDS 63 rows of each class at the server" in shown(found, capsys)
    assert "63 rows" in found.to_json()["worth_trying"][0]["needs"]


def test_measure_and_top() -> None:
    gains = {
        m: {"accuracy": HELPS._replace(mean=v), "macro_f1": OPEN}
        for m, v in (("fedbal", 0.1), ("fedga", 0.3), ("fedla", 0.2))
    }
    one = federation(SKEWED, **gains)
    assert [s.method for s in advise(SKEWED, (one,), top=2).worth_trying] == ["fedga", "fedla"]
    assert advise(SKEWED, (one,), measure="macro_f1").worth_trying == ()


# Measured of runs.


def run(words: str, accuracy: float | None, seed: int = 0, **more: Any) -> tuple[str, Run]:
    """A run of this command that reached this accuracy."""
    config = experiment_from([*words.split(), "--seed", str(seed)]).to_json()
    summary = {"mean10_accuracy": accuracy, "mean10_macro_f1": accuracy, "rounds": config["rounds"], **more}
    return "made up", Run(Path(f"{words} {seed}"), {**config, "fingerprint": "f"}, [], summary)


def of(*runs: tuple[str, Run]) -> list[Measured]:
    found, left = made_evidence.measured(runs, lambda _: descriptors(SKEWED))
    assert not left, left
    return found


def test_gains_are_paired_and_have_students_interval() -> None:
    base, mine = (0.70, 0.71, 0.72), (0.74, 0.76, 0.75)
    (one,) = of(*(run(m, v, s) for m, values in (("fedavg", base), ("fedla", mine)) for s, v in enumerate(values)))
    gap = np.subtract(mine, base)
    low, high = stats.ttest_1samp(gap, 0).confidence_interval(0.95)
    assert one.gains["fedla"]["accuracy"] == pytest.approx((gap.mean(), low, high, 3), abs=1e-4)
    assert "fitted_accuracy" not in one.gains["fedla"] and "worst_recall" not in one.gains["fedla"]
    (one,) = of(run("fedavg", 0.7), run("fedla", 0.8))
    assert one.gains["fedla"]["accuracy"] == (0.1, None, None, 1)


def test_gains_are_over_the_better_weighting_of_fedavg() -> None:
    (one,) = of(run("fedavg", 0.7), run("fedavg --weighting uniform", 0.79), run("fedla", 0.78))
    assert one.baseline == "fedavg (uniform)" and one.level == 0.79
    assert {m: by["accuracy"].mean for m, by in one.gains.items()} == {"fedla": -0.01}


def test_a_method_that_failed_under_a_seed_is_not_judged_by_the_others() -> None:
    (one,) = of(run("fedavg", 0.7, 0), run("fedavg", 0.7, 1), run("fedla", 0.9, 0), run("fedla", None, 1))
    assert one.gains == {}


def test_methods_are_compared_where_they_train_alike() -> None:
    """Another rate is another federation, and so is a pace of another kind; a weighting is in the method's name."""
    found, left = made_evidence.measured(
        [run("fedavg --lr 0.05", 0.5), run("fedga --lr 0.05", 0.6), run("fedavg", 0.5), run("fedla", 0.7),
         run("fedla --weighting uniform", 0.8), run("seolkim", 0.9)],
        lambda _: descriptors(SKEWED),
    )  # fmt: skip
    assert sorted(list(one.gains) for one in found) == [["fedga"], ["fedla", "fedla (uniform)"]]
    assert len(left) == 1 and "no run of FedAvg to compare 'seolkim' with" in left[0]


def test_averaged_numbers_and_more_work_are_used_where_records_have_them() -> None:
    """FedAvg trained for twice the rounds is the control of a method that takes twice the steps."""
    base = {"final_averaged_accuracy": 0.75, "final_fitted_accuracy": 0.8, "final_averaged_fitted_accuracy": 0.81}
    work = {"total_steps": 100, "total_contacts": 50, "total_upload_bytes": 10, "total_download_bytes": 10}
    fit = {"final_fit": {"prior": {"exchanges": 6, "upload_bytes": 0, "download_bytes": 0}}}
    dear = {"final_averaged_fitted_accuracy": 0.82, **work, "total_steps": 200}
    runs, more = [], []
    for seed in range(5):
        runs += [run("fedavg", 0.7 + seed / 1e3, seed, **base, **work, **fit), run("fedla", 0.8, seed, **dear)]
        more.append(run("fedavg --rounds 200", 0.72, seed, **base, **{**work, "total_steps": 220}))
        curve = [(50, 100, 0.81), (90, 200, 0.84), (100, 220, 0.85)]
        rows = [
            {"round": r, "averaged_fitted_accuracy": v, "steps": s - p, "contacts": 50 * (r == 50)}
            for (r, s, v), p in zip(curve, (0, 100, 200), strict=True)
        ]
        more[-1][1].rows.extend(rows)
    (one,) = of(*runs, *more)
    assert one.gains["fedla"]["averaged_fitted_accuracy"].mean == pytest.approx(0.01)
    assert one.gains["fedla"]["work_accuracy"].mean == pytest.approx(0.82 - 0.84)
    assert one.works == {"fedla": [2.0, 1.0, 1.0], LONGER: [2.2, 1.0, 1.0]} and one.exchanges == 6
    gains = {name: gain.mean for name, gain in one.fedavg.items()}
    assert gains == {
        "averaged_accuracy": pytest.approx(0.048),
        "fitted_accuracy": pytest.approx(0.098),
        "averaged_fitted_accuracy": pytest.approx(0.108),
        "work_accuracy": pytest.approx(0.108),
    }
    assert one.fedavg["fitted_accuracy"].low > 0  # type: ignore[operator]


@pytest.mark.thorough
def test_the_packaged_evidence_is_what_the_results_make() -> None:
    """All but the descriptors, which need the data: see the next test. Mend by `python scripts/make_evidence.py`."""
    text = (ROOT / "src/fedskew/advice/evidence.json").read_text(encoding="utf-8")
    plain = dict.fromkeys((*evidence.DESCRIPTORS, "participation"), 0.0)
    kept = [{**one, "descriptors": plain} for one in json.loads(text)]
    assert json.loads(made_evidence.made(describe=lambda _: plain)) == kept and len(text) < 140_000


def test_the_packaged_descriptors_are_those_of_the_splits() -> None:
    if not os.environ.get("FEDSKEW_DATA"):
        pytest.skip("FEDSKEW_DATA is unset: the splits need MNIST")
    one = next(f for f in packaged() if f.name.startswith("mnist, labels_k (labels 2"))
    splits = [fs.federate("mnist", fs.partitioners.LabelsK(labels=2), clients=100, seed=s).counts for s in range(3)]
    mean = {name: np.mean([descriptors(counts, 30)[name] for counts in splits]) for name in one.descriptors}
    assert one.descriptors == pytest.approx(mean, abs=1e-3)


# The command.


def test_the_command_advises_on_a_file_of_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "counts.csv"
    file.write_text("cat,dog,fox\n" + "\n".join(",".join(map(str, row)) for row in 1000 * SKEWED))
    found = json.loads(output_of(capsys, "advise", file, "--json"))
    assert found["descriptors"]["clients"] == 4 and found["worth_trying"] == [] and found["near"] == NEAR
    assert fedskew("advise", "--clients", 5, "--partition", "iid", "--cohort", 5) == 0
    assert "no method has a verdict there, which takes 5 seeds" in " ".join(capsys.readouterr().out.split())


MISTAKES = {
    "file": (["nope.csv"], "must exist; got 'nope.csv'"),
    "file and options": (["a.csv", "--data", "digits"], "takes one FILE, or options"),
    "two files": (["a.csv", "b.csv"], "takes one FILE, or options"),
    "option": (["--tpo", "3"], "unknown option '--tpo'"),
    "measure": (["--clients", "5", "--measure", "accuracyy"], "unknown measure 'accuracyy'; did you mean 'accuracy'?"),
    "top": (["--clients", "5", "--top", "0"], "--top must be at least 1; got 0"),
    "top word": (["--top", "all"], "--top must be a whole number; got 'all'"),
    "partition": (["--partition", "dirichlt"], "did you mean 'dirichlet'?"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_line(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    words, told = MISTAKES[case]
    assert fedskew("advise", *words) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1 and "Traceback" not in error
