"""The adviser: nearest first, no advice from afar, nothing hidden, and evidence that is what the results make."""

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
from fedskew.advice.adviser import BASELINES, NEAR, UNITS, Advice, Recommendation, advise, distance
from fedskew.advice.evidence import Run, Setting, descriptors, packaged
from fedskew.advice.table import advice_table, needs
from fedskew.config.flags import experiment_from
from fedskew.methods import METHODS
from support.command import fedskew
from support.old_format import as_format_1
from support.paths import ROOT
from support.scripts import script

SKEWED = np.array([[90, 5, 0], [0, 80, 10], [4, 0, 99], [60, 40, 0]])
EVEN = np.full((40, 3), 30)
FED = dict.fromkeys(("fedavg", "fedavg, weighting uniform"), (0.70, 0.71, 0.72))


def setting(counts: np.ndarray, name: str = "made up", data: str = "toy", **scores: tuple[float, ...]) -> Setting:
    """A federation with these scores of seeds 0, 1, ...; macro-F1 is a tenth lower."""
    runs = [Run(m, seed, v, v - 0.1) for m, values in {**FED, **scores}.items() for seed, v in enumerate(values)]
    facts = {"data": {"name": data}, "model": {"name": "mlp"}, "partition": {"name": "iid"}}
    return Setting(name, "made up", facts, descriptors(counts), tuple(runs), {})


def test_the_distance_is_what_it_says() -> None:
    a, b = descriptors(SKEWED), descriptors(EVEN)
    assert distance(a, a) == 0 and distance(a, b) == distance(b, a) > NEAR
    twice = {**a, "classes": 2 * a["classes"]}
    assert distance(a, twice) == pytest.approx(math.sqrt(1 / len(UNITS)))
    tenfold = {**a, "clients": 9 * a["clients"], "missing_rate": a["missing_rate"] + 0.2}
    assert distance(a, tenfold) == pytest.approx(math.sqrt((2**2 + 1) / len(UNITS)))


def test_the_nearest_federation_comes_first_and_decides() -> None:
    here, there = setting(SKEWED, "here", fedbal=(0.8,)), setting(EVEN, "there", fedla=(0.9,))
    for counts, name, best in ((SKEWED, "here", "fedbal"), (EVEN, "there", "fedla")):
        found = advise(counts, (there, here))
        assert [n.name for n in found.neighbours if n.near] == [name] == [found.neighbours[0].name]
        assert found.neighbours[0].distance == 0 and found.neighbours[1].distance > NEAR
        assert [r.method for r in found.recommendations] == [best]


def test_both_gains_are_shown_and_a_bias_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is said of fits where a federation has none."""
    here = setting(SKEWED, fedbal=(0.80, 0.81, 0.82), fedla=(0.80, 0.82, 0.81))
    after = {"fedavg": 0.9, "fedavg, weighting uniform": 0.88, "fedbal": 0.901, "fedla": 0.95}
    shaken = {0: 0.0, 1: 0.001, 2: -0.001}
    runs = [
        r._replace(fitted_accuracy=after[r.method] + shaken[int(r.seed)] * (r.method == "fedbal")) for r in here.runs
    ]
    fitted = here._replace(runs=tuple(runs))
    assert evidence.from_json(json.loads(json.dumps(evidence.to_json([fitted, here])))) == (fitted, here)
    found = {r.method: r for r in advise(SKEWED, (fitted,)).recommendations}
    bias, stays = (found[name].margins[0].fitted for name in ("fedbal", "fedla"))
    assert bias is not None and stays is not None and "fitted_accuracy" in found["fedbal"].gains
    assert bias["mean"] == pytest.approx(0.001) and bias["verdict"] == "its gain is a bias of the logits"
    assert stays["mean"] == pytest.approx(0.05) and stays["verdict"] == "its gain stays after the fit"
    Console(width=400).print(advice_table(advise(SKEWED, (fitted,))))
    shown = " ".join(capsys.readouterr().out.split())
    assert "fitted +0.1, 95 %" in shown and "bias of the logits" in shown and "fitted accuracy +0.1" in shown
    Console(width=400).print(advice_table(advise(SKEWED, (here,))))
    assert "fitted" not in capsys.readouterr().out


def test_far_away_nothing_is_recommended_and_that_is_said() -> None:
    found = advise(np.diag([5] * 50), (setting(SKEWED, fedbal=(0.9, 0.9, 0.9)),))
    assert found.recommendations == found.others == ()
    assert "no measured federation is near" in found.notes[0] and "no method is recommended" in found.notes[0]
    assert not any(n.near for n in found.neighbours)


def test_the_packaged_evidence_says_nothing_of_an_even_federation() -> None:
    assert advise(np.full((10, 10), 100)).recommendations == ()


def test_three_seeds_have_students_interval_and_fewer_have_none() -> None:
    scores = (0.74, 0.76, 0.75)
    (r,) = advise(SKEWED, (setting(SKEWED, fedla=scores),)).recommendations
    gaps = np.subtract(scores, FED["fedavg"])
    low, high = stats.ttest_1samp(gaps, 0).confidence_interval(0.95)
    (m,) = r.margins
    assert (m.mean, m.low, m.high, m.seeds) == (pytest.approx(gaps.mean()), pytest.approx(low), pytest.approx(high), 3)
    (r,) = advise(SKEWED, (setting(SKEWED, fedla=scores[:2]),)).recommendations
    assert r.margins[0].low is None and r.margins[0].high is None and r.margins[0].seeds == 2


def test_margins_are_over_the_stronger_baseline() -> None:
    strong = {"fedavg, weighting uniform": (0.79,)}
    found = advise(SKEWED, (setting(SKEWED, **strong, fedla=(0.78,), fedbal=(0.80,)),))
    assert [r.method for r in found.recommendations] == ["fedbal"]
    assert found.recommendations[0].gain == pytest.approx(0.01)
    assert found.others[0].method == "fedla" and found.others[0].gain == pytest.approx(-0.01)
    assert found.neighbours[0].baseline == "fedavg, weighting uniform"


def test_a_method_gains_nothing_by_an_easy_federation() -> None:
    """fedla ran only where everything is easy; its lead over FedAvg is smaller than fedbal's, its score larger."""
    easy = setting(SKEWED, "easy", **dict.fromkeys(BASELINES, (0.9,)), fedla=(0.91,), fedbal=(0.92,))
    hard = setting(SKEWED, "hard", **dict.fromkeys(BASELINES, (0.5,)), fedbal=(0.52,))
    found = advise(SKEWED, (easy, hard))
    assert {r.method: round(r.gain, 9) for r in found.recommendations} == {"fedbal": 0.02, "fedla": 0.01}


def test_confidence_needs_seeds_the_same_data_and_network_and_both_baselines() -> None:
    fed = fs.federate("digits", fs.partitioners.Dirichlet(alpha=0.3), clients=8)
    counts, sure = fed.counts.numpy(), (0.80, 0.81, 0.82)

    def level(*some: Setting, model: str | None = "mlp") -> str:
        return advise(fed, some, model=model).recommendations[0].confidence

    one = setting(counts, data="digits", fedbal=sure)
    assert level(one) == "moderate"
    assert level(one, one._replace(name="another")) == "strong"
    assert level(one, model=None) == "moderate" and level(one, model="lenet") == "weak"
    assert level(setting(counts, data="other", fedbal=sure)) == "weak"
    assert level(setting(counts, data="digits", fedbal=sure[:1])) == "weak"
    assert level(setting(counts, data="digits", fedbal=(0.7, 0.9, 0.8))) == "weak"
    bare = tuple(r for r in one.runs if r.method != BASELINES[1])
    assert level(one._replace(runs=bare)) == "weak"
    found = advise(SKEWED, (setting(SKEWED, fedbal=sure[:1]),))
    assert any("weak evidence" in note for note in found.notes)
    assert any("counts say nothing of the data behind them: these federations hold toy" in n for n in found.notes)
    assert any("no network was named: the grades hold for mlp" in note for note in found.notes)


def test_a_grade_comes_with_its_reason() -> None:
    sure = (0.80, 0.81, 0.82)
    fed = fs.federate("digits", fs.partitioners.Dirichlet(alpha=0.3), clients=8)
    counts = fed.counts.numpy()

    def reason(one: Setting, model: str | None = "mlp") -> tuple[str, str]:
        (r,) = advise(fed, (one,), model=model).recommendations
        return r.confidence, r.reason

    mine = setting(counts, data="digits", fedbal=sure)
    assert reason(mine) == ("moderate", "1 near federation with your data")
    assert reason(setting(counts, data="digits", fedbal=sure[:1])) == ("weak", "1 seed")
    assert reason(setting(counts, data="digits", fedbal=(0.7, 0.9, 0.8))) == ("weak", "interval reaches 0")
    assert reason(setting(counts, data="other", fedbal=sure)) == ("weak", "other data")
    assert reason(mine, "lenet") == ("weak", "other network")
    (r,) = advise(counts, (mine,)).recommendations
    assert (r.confidence, r.reason) == ("weak", "your data unknown")


def test_your_own_data_are_known_by_their_fingerprint_whatever_their_name(tmp_path: Path) -> None:
    """Runs of arrays on the very federation that is advised on are the strongest evidence that there is."""
    draw = np.random.default_rng(0)
    y = draw.integers(0, 3, 300)
    data = fs.from_arrays(draw.normal(size=(300, 5)) + 2 * np.eye(3, 5)[y], y)
    other = fs.from_arrays(draw.normal(size=(300, 5)), y)
    feds = [fs.federate(data, fs.partitioners.Dirichlet(alpha=0.5), clients=4, seed=s) for s in range(3)]
    for seed, fed in enumerate(feds):
        for name, method in {
            "low": fs.methods.fedavg().with_("pace", lr=0.1),
            "control": fs.methods.fedavg().with_(weighting=fs.weightings.Uniform()),
            "adam": fs.methods.fedadam(),
        }.items():
            fs.run(fed, method, model="logistic", rounds=1, cohort=2, seed=seed, out=tmp_path / f"{name}-{seed}")
    (one,), _ = evidence.read(tmp_path)
    assert one.fingerprint == data.fingerprint and one.facts["data"]["name"] == "arrays"
    up = one._replace(runs=tuple(r._replace(accuracy=0.9 if r.method == "fedadam" else 0.5) for r in one.runs))
    found = advise(feds[0], (up,), model="logistic")
    assert found.neighbours[0].same_data and found.neighbours[0].yours
    (r,) = found.recommendations
    assert (r.confidence, r.reason) == ("strong", "your data and your split")
    assert not any("data" in note.partition(":")[0] for note in found.notes), found.notes
    elsewhere = fs.federate(other, fs.partitioners.Dirichlet(alpha=0.5), clients=4)
    assert [n.same_data for n in advise(elsewhere, (up,)).neighbours] == [False]
    split = fs.federate(data, fs.partitioners.Iid(), clients=4)
    assert not any(n.yours for n in advise(split, (up,)).neighbours)


def test_both_measures_and_the_worst_class_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    one = setting(SKEWED, fedbal=(0.8,))
    runs = [r._replace(macro_f1=0.4, worst_recall=0.25) if r.method == "fedbal" else r._replace(worst_recall=0.5)
            for r in one.runs]  # fmt: skip
    found = advise(SKEWED, (one._replace(runs=tuple(runs)),))
    (r,) = found.recommendations
    assert r.gains == {"accuracy": pytest.approx(0.09), "macro_f1": pytest.approx(-0.21)}
    assert (r.margins[0].worst_recall, r.margins[0].worst_recall_baseline) == (0.25, 0.5)
    Console(width=200).print(advice_table(found))
    said = " ".join(capsys.readouterr().out.split())
    assert "accuracy +9.0" in said and "macro-F1 -21.0" in said and "worst recall 0.25 (baseline 0.50)" in said


def test_the_words_in_the_names_of_federations_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    facts = {"partition": {"name": "labels_k", "labels": 2, "repeats": False}, "auxiliary": 8}
    one = setting(SKEWED, fedbal=(0.8,))
    found = advise(SKEWED, (one._replace(facts={**one.facts, **facts}),))
    assert set(found.terms) == {"labels (of labels_k)", "repeats (of labels_k)", "auxiliary"}
    Console(width=300).print(advice_table(found))
    assert "auxiliary: rows of each class that the server holds" in capsys.readouterr().out


@pytest.mark.parametrize("method", sorted(METHODS))
def test_what_a_method_discloses_and_needs_is_said(method: str) -> None:
    if method == "fedavg":
        return
    found = advise(SKEWED, (setting(SKEWED, **{method: (0.9,)}),))
    (r,) = found.recommendations
    assert r.method == method
    parts = METHODS[method]().components
    assert set(r.discloses) >= {c.discloses for c in parts if c.discloses}
    assert r.server_rows == max(c.auxiliary for c in parts)
    assert ("rows of each class at the server" in needs(r)) == (r.server_rows > 0)
    assert all(told in needs(r) for told in (*r.discloses, *r.uploads))


def test_fedrl_is_never_recommended_without_its_server_rows(capsys: pytest.CaptureFixture[str]) -> None:
    found = advise(SKEWED, (setting(SKEWED, fedrl=(0.9,)),))
    Console(width=200).print(advice_table(found))
    assert "NEEDS 63 rows of each class at the server" in capsys.readouterr().out
    assert found.to_json()["recommendations"][0]["server_rows"] == 63


def test_measure_and_top() -> None:
    one = setting(SKEWED, fedbal=(0.8,), fedla=(0.81,), fedga=(0.82,))
    swapped = one._replace(runs=tuple(r._replace(macro_f1=-r.accuracy) for r in one.runs))
    assert [r.method for r in advise(SKEWED, (one,), top=2).recommendations] == ["fedga", "fedla"]
    assert advise(SKEWED, (swapped,), measure="macro_f1").recommendations == ()


# Evidence of runs.


def _evidence(folder: Path) -> tuple[Setting, ...]:
    for method, *more in (["fedavg"], ["fedavg", "--weighting", "uniform"], ["fedbal"], ["fedbal", "--lr", "0.01"]):
        words = ["--clients", 5, "--cohort", 2, "--rounds", 2, "--model", "logistic", "--partition.alpha", 0.5]
        assert fedskew("run", method, *more, *words, "--out", folder / f"run{len(list(folder.iterdir()))}") == 0
    return evidence.read(folder)[0]


def test_a_method_at_fedavg_s_pace_is_compared_with_fedavg_whatever_its_own_pace_is() -> None:
    common = ["--lr", "0.1", "--momentum", "0", "--weight-decay", "0"]
    told = [evidence._told(experiment_from(["fedrl", *words]).to_json()["method"]) for words in ([], common)]
    assert [training for _, training, _ in told] == [{}, {}]
    assert told[0][0] == "fedrl" and told[1][0].startswith("fedrl, pace.lr 0.1, ")
    other = evidence._told(experiment_from(["fedrl", "--lr", "0.5"]).to_json()["method"])
    assert other[:2] == ("fedrl", {"pace.lr": 0.5})


def line_of(words: str, accuracy: float, seed: int = 0) -> evidence.Line:
    """A run of this command that reached this accuracy."""
    config = experiment_from([*words.split(), "--seed", str(seed)]).to_json()
    reached = {"mean10_accuracy": accuracy, "mean10_macro_f1": accuracy}
    return evidence.Line({**config, "fingerprint": "f"}, reached, "made up")


def runs_by_training(*lines: evidence.Line) -> dict[str, dict[str, float]]:
    """Of each federation, by what its training differs in: accuracy of each method."""
    found, left = evidence.gather(lines, describe=lambda config: dict.fromkeys(evidence.KEPT, 0.0))
    assert not left
    return {json.dumps(s.facts.get("training", {})): {r.method: r.accuracy for r in s.runs} for s in found}


def test_a_method_with_its_own_pace_stands_beside_those_whose_pace_alone_differs() -> None:
    found = runs_by_training(line_of("fedavg --lr 0.05", 0.5), line_of("fedga --lr 0.05", 0.6), line_of("seolkim", 0.7))
    assert found == {'{"pace.lr": 0.05}': {"fedavg": 0.5, "fedga": 0.6, "seolkim": 0.7}}


def test_it_stands_beside_others_of_its_own_facts_too() -> None:
    lines = line_of("fedavg", 0.4), line_of("fedavg --lr 0.05", 0.5), line_of("seolkim", 0.7)
    assert runs_by_training(*lines) == {
        "{}": {"fedavg": 0.4, "seolkim": 0.7}, '{"pace.lr": 0.05}': {"fedavg": 0.5, "seolkim": 0.7},
    }  # fmt: skip


def test_it_does_not_stand_beside_another_local_step_nor_replaces_what_is_there() -> None:
    lines = line_of("fedavg --momentum 0.9", 0.5), line_of("seolkim --momentum 0.9", 0.7), line_of("seolkim", 0.1)
    assert runs_by_training(*lines)['{"local.momentum": 0.9}'] == {"fedavg": 0.5, "seolkim": 0.7}
    alone = runs_by_training(line_of("fedavg --momentum 0.9", 0.5), line_of("seolkim", 0.1))
    assert alone['{"local.momentum": 0.9}'] == {"fedavg": 0.5}


def test_runs_without_a_fingerprint_go_with_those_of_the_only_data_known() -> None:
    bare = experiment_from(["fedavg", "--data", "digits"]).to_json()
    known = {**experiment_from(["fedbal", "--data", "digits"]).to_json(), "fingerprint": "one"}
    other = {**known, "fingerprint": "two"}

    def methods(*configs: dict[str, Any]) -> list[list[str]]:
        lines = [evidence.Line(config, {"mean10_accuracy": 0.5, "mean10_macro_f1": 0.5}, "table") for config in configs]
        settings, left = evidence.gather(lines, lambda _: dict.fromkeys(evidence.KEPT, 0.0))
        assert not left
        return sorted(sorted(run.method for run in setting.runs) for setting in settings)

    assert methods(bare, known) == [["fedavg", "fedbal"]]
    assert methods(bare, known, other) == [["fedavg"], ["fedbal"], ["fedbal"]]


def test_run_folders_become_settings_with_the_descriptors_of_their_split(tmp_path: Path) -> None:
    same, other = sorted(_evidence(tmp_path), key=lambda s: -len(s.runs))
    assert [r.method for r in same.runs] == ["fedavg", "fedavg, weighting uniform", "fedbal"]
    assert other.facts["training"] == {"pace.lr": 0.01} and len(other.runs) == 1
    fed = fs.federate("digits", fs.partitioners.Dirichlet(alpha=0.5), clients=5)
    assert same.descriptors == pytest.approx(descriptors(fed.counts), abs=1e-6)
    summary = json.loads((tmp_path / "run2/summary.json").read_text())
    assert same.runs[2].accuracy == pytest.approx(summary["mean10_accuracy"], abs=1e-6)
    found = fs.advise(fed, tmp_path, model="logistic")
    assert found.neighbours[0].name == same.name and found.neighbours[0].distance < 1e-5
    assert any("with no run of FedAvg to compare with" in note for note in found.notes)


def test_counts_on_record_are_taken_and_runs_that_cannot_be_used_are_told(tmp_path: Path) -> None:
    fed = fs.federate("digits", fs.partitioners.Iid(), clients=4)
    fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=1, cohort=2, out=tmp_path / "python")
    (found,), left = evidence.read(tmp_path)
    assert found.descriptors == pytest.approx(descriptors(fed.counts), abs=1e-6) and not left
    config = json.loads((as_format_1(tmp_path / "python") / "config.json").read_text())
    bare = {name: value for name, value in config.items() if name != "counts"}
    (tmp_path / "python/config.json").write_text(json.dumps(bare))
    with pytest.raises(fs.RecordError, match="split cannot be made again"):
        evidence.read(tmp_path)
    (tmp_path / "python/config.json").write_text(json.dumps({**config, "counts": SKEWED.tolist()}))
    (tmp_path / "half").mkdir()
    (tmp_path / "half/config.json").write_text(json.dumps(config))
    (tmp_path / "half/rounds.jsonl").write_text("")
    (found,), left = evidence.read(tmp_path)
    assert found.descriptors == pytest.approx(descriptors(SKEWED), abs=1e-6)
    assert len(left) == 1 and "did not end" in left[0]


def test_the_packaged_evidence_is_what_the_results_make() -> None:
    """All but the descriptors, which need the data: see the next test. Mend by `python scripts/make_evidence.py`."""
    known = {json.dumps(s.facts, sort_keys=True): s.descriptors for s in packaged()}

    def told(config: dict[str, Any]) -> dict[str, float]:
        facts = evidence.facts_of(config)
        unkept = dict.fromkeys(evidence.KEPT, 0.0)  # an authors' pace, which nothing is compared with
        return known.get(json.dumps(facts, sort_keys=True), unkept)

    made = script("scripts/make_evidence.py").made(describe=told)
    assert made == (ROOT / "src/fedskew/advice/evidence.json").read_text(encoding="utf-8")


def test_the_page_says_what_the_advice_was_worth() -> None:
    """`python scripts/make_evidence.py --held-out`."""
    page = (ROOT / "docs/guide/advise.md").read_text(encoding="utf-8")
    assert script("scripts/make_evidence.py").held_out_table() in page


def test_the_packaged_descriptors_are_those_of_the_splits() -> None:
    if not os.environ.get("FEDSKEW_DATA"):
        pytest.skip("FEDSKEW_DATA is unset: the splits need Fashion-MNIST")
    one = next(
        s for s in packaged() if s.name.startswith("fashion_mnist, labels_k (labels 2") and "auxiliary" in s.facts
    )
    fed = fs.federate("fashion_mnist", fs.partitioners.LabelsK(labels=2), clients=100, auxiliary=8)
    assert one.descriptors == pytest.approx(descriptors(fed.counts), abs=1e-6)


# The command.


def test_the_command_advises_on_a_file_of_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "counts.csv"
    file.write_text("cat,dog,fox\n" + "\n".join(",".join(map(str, row)) for row in 1000 * SKEWED))
    assert fedskew("advise", file, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["descriptors"]["clients"] == 4 and found["recommendations"] == [] and found["threshold"] == NEAR
    assert fedskew("advise", "--clients", 5, "--partition", "iid") == 0
    assert "no method is recommended" in " ".join(capsys.readouterr().out.split())


def test_describe_takes_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "counts.npy", SKEWED)
    assert fedskew("describe", tmp_path / "counts.npy", "--json", "--out", tmp_path / "map.png") == 0
    assert json.loads(capsys.readouterr().out)["clients"] == 4 and (tmp_path / "map.png").exists()
    fs.data.save_partition(tmp_path / "split.npz", fs.federate("digits", fs.partitioners.Iid(), clients=3))
    assert fedskew("describe", tmp_path / "split.npz", "--out", tmp_path / "map.png") == 0
    assert "digits, iid" in capsys.readouterr().out


MISTAKES = {
    "file": (["nope.csv"], "must be a file that exists; got 'nope.csv'"),
    "file and options": (["a.csv", "--data", "digits"], "takes one FILE, or options"),
    "two files": (["a.csv", "b.csv"], "takes one FILE, or options"),
    "no evidence": (["--evidence"], "--evidence must be followed by a value, a folder of runs"),
    "evidence": (["--evidence", "nope", "--clients", "5"], "evidence must be a folder of runs"),
    "option": (["--evidnce", "x"], "unknown option '--evidnce'"),
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


def test_evidence_that_is_no_evidence_is_refused() -> None:
    with pytest.raises(fs.ConfigError, match="evidence must be a folder"):
        fs.advise(SKEWED, [3])  # type: ignore[list-item]
    assert isinstance(fs.advise(SKEWED), Advice) and Recommendation._fields[0] == "method"
