"""The papers' numbers, the protocols that repeat them, and the ledger that sets ours beside them."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedskew.config.flags import experiment_from
from fedskew.config.recorded import Run
from fedskew.errors import ConfigError
from fedskew.studies.store import thinned
from fedskew_papers import page as pages
from fedskew_papers.printed import FIVE, PAPERS, THIRD, Printed, printed
from fedskew_papers.rows import TOTAL, Row, coverage, ledger, rows_of, worked
from fedskew_papers.rules import gain_of, level_of
from fedskew_papers.runs import Runs, likeness, measured
from fedskew_papers.tables import Scale, protocol, scaled

MNIST = "fedga-table1-mnist"


def number(metric: str = "accuracy", mean: float = 0.8, spread: float | None = None, **more: Any) -> Printed:
    facts: dict[str, Any] = {"paper": "FedGA", "table": "1", "dataset": "MNIST", "setting": "alpha=0.05"}
    facts |= {"id": "x", "model": "", "method": "FedAvg", "kind": "result", "note": ""}
    return Printed(metric=metric, mean=mean, spread=spread, **(facts | more))


def entry(experiment: Any, rows: list[dict[str, Any]] | None = None, **summary: Any) -> Run:
    content = {"rounds": 100, "stopped": "", "total_wall_s": 36.0, **summary}
    return Run(Path("a" * 16), experiment.to_json() | {"engine_used": "batched"}, rows or [], content)


def test_every_printed_number_is_there() -> None:
    kinds = Counter(p.kind for p in printed() if p.paper in FIVE)
    assert kinds == {"result": 698, "input": 53, "no data": 288} and kinds.total() == 1039
    assert Counter(p.kind for p in printed() if p.paper in THIRD) == {"result": 60}
    assert len({p.id for p in printed()}) == len(printed()) == 1039 + 60
    assert {p.paper for p in printed()} == set(PAPERS) == {*FIVE, *THIRD}
    assert [p.mean for p in printed() if p.id == "fedga-001"] == [0.799]
    assert all(p.mean is not None for p in printed() if p.kind != "input")


def test_a_level_is_judged_apart() -> None:
    """Intervals where there are two, else one point, else a tenth."""
    assert level_of(number(spread=0.02), 0.83, (0.82, 0.84)) == "within"
    assert level_of(number(spread=0.02), 0.83, (0.821, 0.84)) == "outside"
    assert level_of(number(spread=0.02), 0.77, (0.76, 0.779)) == "outside"
    assert level_of(number(spread=0.02), 0.81, None) == "within"
    assert level_of(number(spread=0.02), 0.8101, None) == "outside"
    assert level_of(number(), 0.83, (0.7, 0.9)) == "outside", "no spread is printed"
    assert level_of(number("top1_acc_pct", 50.0), 51.0, None) == "within"
    assert level_of(number("top1_acc_pct", 50.0), 48.9, None) == "outside"
    assert level_of(number("rounds_to_x", 300.0), 329.0, None) == "within"
    assert level_of(number("rounds_to_x", 300.0), math.inf, None) == level_of(number(), math.nan, None) == "outside"


def test_a_gain_is_judged_by_an_equivalence_test() -> None:
    """Of five seeds or more; the printed spread counts where it is known, and a count by its ratio."""

    def verdict(apart: float, spread: float | None = None, note: str = "", noise: float = 0.001, seeds: int = 5) -> str:
        printed_ = [
            number(mean=m, spread=spread, note=note, method=name) for m, name in ((0.85, "B"), (0.80, "FedAvg"))
        ]
        base = {seed: 0.9 + 0.01 * seed for seed in range(seeds)}
        ours = {seed: value + 0.05 + apart + noise * (-1) ** seed for seed, value in base.items()}
        found = gain_of(printed_[0], printed_[1], ours, base)
        assert found is not None and found.printed == pytest.approx(5) and found.reference == "FedAvg"
        return found.verdict

    assert (verdict(0.0), verdict(0.03), verdict(0.01)) == ("agrees", "differs", "not resolved")
    assert verdict(0.0, noise=0.03) == "not resolved", "too wide for either"
    told = {verdict(apart, spread=0.02, note="5 runs") for apart in (0.0, 0.027, -0.027)}
    assert told == {"within the printed spread"}, "no number of our seeds could agree within a point"
    assert verdict(0.03, spread=0.02, note="5 runs") == "not resolved", "sqrt(2) 2 points are the printed spread"
    assert verdict(0.005, noise=0.02, spread=0.001, note="5 runs") == "not resolved", "more seeds would decide"
    assert verdict(0.0, spread=0.02) == "agrees", "its number of runs is not known"
    assert {verdict(apart, seeds=4) for apart in (0.0, 0.03)} == {"no verdict"}
    rounds = [number("rounds_to_x", mean, method=name) for mean, name in ((300.0, "B"), (1000.0, "FedAvg"))]
    seeds = range(5)
    found = gain_of(*rounds, {s: 30.0 + s for s in seeds}, {s: 100.0 + 3 * s for s in seeds})
    assert found is not None and found.verdict == "agrees" and found.printed == pytest.approx(0.3) and found.times
    never = gain_of(*rounds, dict.fromkeys(seeds, math.inf), {s: 100.0 + s for s in seeds})
    one = gain_of(*rounds, {s: math.inf if s else 30.0 for s in seeds}, {s: 100.0 + s for s in seeds})
    assert never is not None and one is not None and (never.verdict, one.verdict) == ("differs", "not resolved")
    assert gain_of(rounds[1], rounds[1], {0: 1.0}, {0: 1.0}) is None, "the reference has no gain"


def test_rules_of_metrics() -> None:
    plain = experiment_from(["fedavg"])
    costs = {"upload_bytes": 1, "download_bytes": 1, "samples": 5, "wall_s": 1.0}
    rows = [{"round": i, "accuracy": i / 10, **costs} for i in range(1, 9)]
    run = entry(plain, rows, final_accuracy=0.8, total_samples=40)
    base = entry(plain, final_accuracy=0.45, total_samples=50, rounds=8)
    run = replace(run, summary=run.summary | {"rounds": 8})
    assert measured("final_accuracy", run) == 0.8 and measured("final_accuracy * 100", run) == pytest.approx(80)
    assert measured("total_samples * 5", run) == 200 and measured("absent", run) is None
    assert measured("rounds_to FedAvg", run, base) == 5 and measured("speedup FedAvg", run, base) == 8 / 5
    assert measured("change total_samples", run, base) == pytest.approx(-20)
    assert measured("rounds_to FedAvg", run) is None
    assert measured("rounds_to FedAvg", run, entry(plain, final_accuracy=0.9)) == math.inf
    assert measured("speedup FedAvg", run, entry(plain, final_accuracy=0.9)) == 0
    with pytest.raises(ConfigError, match="metrics must be NAME"):
        measured("final_accuracy / 3", run)


def test_rounds_are_counted_in_whole_curves_alone() -> None:
    """An archive may hold few rounds of a run, or none: the first one with a value is then another, or not seen."""
    plain = experiment_from(["fedavg", "--eval.every", "2"])
    costs = {"upload_bytes": 1, "download_bytes": 1, "samples": 5, "wall_s": 1.0}
    rows = [{"round": i, **({"accuracy": 0.1 if i % 4 else 0.9} if i % 2 == 0 else {}), **costs} for i in range(1, 9)]
    whole, base = entry(plain, rows, rounds=8), entry(plain, final_accuracy=0.5, rounds=8)
    assert measured("rounds_to FedAvg", whole, base) == 4
    for kept in (thinned(rows, 1), [], rows[:-1]):
        assert measured("rounds_to FedAvg", replace(whole, rows=kept), base) is None
        assert measured("speedup FedAvg", replace(whole, rows=kept), base) is None
    assert measured("rounds_to FedAvg", replace(whole, rows=thinned(rows)), base) == 4


def test_a_run_that_never_gets_there_leaves_no_interval(recwarn: pytest.WarningsRecorder) -> None:
    """Of three seeds one never reaches FedAvg's accuracy: the mean is infinite, and nothing is NaN."""
    name = "fedgr-table4-fashion"
    costs = {"upload_bytes": 1, "download_bytes": 1, "samples": 5, "wall_s": 1.0}
    entries = []
    study = replace(protocol(name), spec=replace(protocol(name).spec, seeds=(0, 1, 2)))
    for cell in study.spec.cells():
        assert cell.experiment is not None
        best = 0.3 if (cell.label, cell.seed) == ("FedGR", 2) else 0.7
        every = [{"round": i, "accuracy": i * best / 1000, **costs} for i in range(1, 1001)]
        entries.append(entry(cell.experiment, every, final_accuracy=best, rounds=1000))
    rows = rows_of(study, "paper", Runs(entries))
    (never,) = {row.texts[1:] for row in rows if row.number.labels == ("FedGR",) and "rounds_to" in row.number.metric}
    assert never == ("never", "", "3 of 3")
    assert all(row.low is None or math.isfinite(row.low) for row in rows) and not recwarn.list
    assert {row.gain.verdict for row in rows if row.gain} == {"no verdict"}


def test_seeds_that_failed_are_told_beside_a_mean() -> None:
    entries = [e for e in made(MNIST, final_accuracy=0.8, final_macro_f1=0.8)._by.values() if e.config["seed"] != 3]
    rows = rows_of(protocol(MNIST), "paper", Runs(entries))
    assert {row.texts[3] for row in rows} == {"4 of 5"}


def test_how_a_run_was_run_is_told_whole() -> None:
    plain = experiment_from(["fedavg", "--dtype", "float64"])
    number_, held = printed()[0], entry(plain)
    told = lambda **more: pages.how_of(Row(number_, entries=(replace(held, config=held.config | more),)))
    assert (
        told() == "batched, float64"
        and told(device="cuda:0", dtype="float32", precision="tf32") == "batched on cuda, tf32"
    )
    assert told(engine_used="", dtype="float32") == "engine not recorded"


def test_a_run_whose_partition_file_is_gone_answers_nothing(tmp_path: Path) -> None:
    plain = entry(experiment_from(["fedavg"]), final_accuracy=0.5)
    gone = replace(plain, config=plain.config | {"partition": {"name": "file", "path": str(tmp_path / "gone.json")}})
    assert Runs([gone, plain])._by.keys() == Runs([plain])._by.keys()


def test_the_worked_example_is_computed() -> None:
    ours = worked()
    assert len(ours) == 18
    for p in printed():
        if p.id in ours:
            assert Row(p, ours=ours[p.id], computed=True).state == "agrees", p
            assert Row(p, ours=ours[p.id] + 0.02, computed=True).state == "differs", p
    weights = [ours[p.id] for p in printed() if (p.metric, p.method, p.table) == ("aggregation_weight", "FedLA", "I")]
    assert weights == pytest.approx([0.7 / 3, 1.7 / 3, 0.2])


def test_a_run_answers_a_protocol_however_it_was_run() -> None:
    words = ["fedavg", "--epochs", "3"]
    plain = experiment_from(words)
    same = [["--engine", "batched"], ["--device", "cuda", "--precision", "tf32"], ["--checkpoint.every", "1"]]
    assert {likeness(experiment_from([*words, *more])) for more in same} == {likeness(plain)}
    other = [["--lr", "0.2"], ["--seed", "1"], ["--data", "mnist"], ["--rounds", "4"], ["--clip", "5"]]
    assert len({likeness(experiment_from([*words, *more])) for more in other} | {likeness(plain)}) == 6


def made(protocol_name: str, scale: str = "paper", **values: float) -> Runs:
    """Runs of every cell of a protocol: the seed's hundredth is added to the values."""
    entries = []
    for cell in protocol(protocol_name).at(scale).cells():
        entries.append(entry(cell.experiment, **{k: v + cell.seed / 100 for k, v in values.items()}))
    return Runs(entries)


@pytest.mark.thorough
def test_the_ledger_has_mean_interval_and_scale() -> None:
    runs = made(MNIST, final_accuracy=0.8, final_macro_f1=0.7)
    rows = {row.number.id: row for row in ledger(runs) if row.study == MNIST}
    assert len(rows) == 60
    first = next(row for row in rows.values() if row.number.metric == "accuracy")
    assert first.ours == pytest.approx(0.82) and (first.seeds, first.scale) == (5, "paper")
    assert first.low is not None and first.high is not None and first.low < 0.82 < first.high < 0.85
    assert pages.how_of(first) == "batched" and pages.hours_of(first) == pytest.approx(5 * 36 / 3600)
    assert pages.command_of(first) == f"fedskew reproduce {MNIST} --scale paper"
    counted = Counter(row.state for row in coverage(ledger(runs))["FedGA"])
    assert counted.total() == 300 and counted["no data"] == 120
    small = made(MNIST, "small", final_accuracy=0.5, final_macro_f1=0.5)
    assert {row.scale for row in ledger(small) if row.study == MNIST} == {"small"}
    both = Runs([*runs._by.values(), *small._by.values()])
    assert {row.scale for row in ledger(both) if row.study == MNIST} == {"paper"}


@pytest.mark.thorough
def test_a_third_party_stands_beside_the_total_of_the_papers() -> None:
    """60 runs of Flower's table change its row, and not that of the five papers."""
    name = "niid-bench-mnist"
    nothing, rows = ledger(Runs([])), ledger(made(name, best_accuracy=0.9))
    counted = {paper: len(some) for paper, some in coverage(rows).items()}
    assert list(counted) == [*FIVE, TOTAL, "Flower"] and (counted[TOTAL], counted["Flower"]) == (1039, 60)
    assert coverage(rows)[TOTAL] == coverage(nothing)[TOTAL]
    page, empty = pages.page_of(rows, Runs([])), pages.page_of(nothing, Runs([]))
    line = {paper: next(text for text in page.splitlines() if text.startswith(f"| {paper} |")) for paper in
            (TOTAL, "Flower")}  # fmt: skip
    assert line[TOTAL] in empty and line[TOTAL].startswith(f"| {TOTAL} | 18 | 0 |")
    ours = [row for row in coverage(rows)["Flower"] if row.ours is not None]
    assert len(ours) == 20 and {row.study for row in ours} == {name} and line["Flower"].endswith("| 20 | 40 |  |  |")
    assert ours[0].ours == pytest.approx(91) and ours[0].texts[3] == "3 of 3", "percent, the mean of three seeds"


def test_a_difference_is_paired_by_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    printed_ = number("accuracy", 0.1, method="FedGA minus FedAvg")
    one = replace(protocol(MNIST))
    monkeypatch.setattr(type(one), "numbers", lambda self: [printed_])
    entries = []
    for cell in one.spec.cells():
        if (
            cell.setting == "alpha=0.05"
            and cell.label in ("FedAvg", "FedGA")
            and (cell.seed < 2 or cell.label != "FedGA")
        ):
            entries.append(entry(cell.experiment, final_accuracy=cell.seed + 0.1 * (cell.label == "FedGA")))
    (row,) = rows_of(one, "paper", Runs(entries))
    assert row.seeds == 2 and row.ours == pytest.approx(0.1) and row.state == "no verdict" and row.level == ""


@pytest.mark.thorough
def test_what_is_not_run_stays_so_and_other_runs_do_not_count() -> None:
    other = experiment_from(["fedavg", "--rounds", "3"])
    assert all(row.ours is None or row.computed for row in ledger(Runs([entry(other, final_accuracy=1.0)])))
    failed = replace(entry(other), state="failed")
    assert Runs([failed]).get(other) is None and Runs([]).get(None) is None


def test_a_scale_wins_over_methods_and_settings() -> None:
    spec = protocol(MNIST).spec
    small = scaled(spec, Scale((("rounds", "7"), ("lr", "0.5")), (3,), ("alpha=1",), ("FedGA", "FedNTD"), ""))
    cells = list(small.cells())
    assert {(c.label, c.setting, c.seed) for c in cells} == {("FedGA", "alpha=1", 3), ("FedNTD", "alpha=1", 3)}
    assert all(c.experiment and c.experiment.rounds == 7 and c.experiment.method.pace.lr == 0.5 for c in cells)  # type: ignore[attr-defined]
    assert [n for n, _ in protocol(MNIST).at("paper").axes] == [f"alpha={a}" for a in ("0.05", "0.1", "0.5", "1", "10")]
    for wrong in (Scale(settings=("alpha=3",)), Scale(methods=("FedGO",))):
        with pytest.raises(ConfigError, match="unknown"):
            scaled(spec, wrong)
    with pytest.raises(ConfigError, match="unknown scale 'tiny'"):
        protocol(MNIST).at("tiny")
    with pytest.raises(ConfigError, match="unknown protocol 'fedga-table1-mnis'; did you mean 'fedga-table1-mnist'"):
        protocol("fedga-table1-mnis")


@pytest.mark.thorough
def test_the_page_has_every_claim_and_four_seeds_have_no_verdict() -> None:
    runs = made(MNIST, final_accuracy=0.8, final_macro_f1=0.7)
    page = pages.page_of(ledger(runs), runs)
    assert all(one.claim in page for one in pages.claims())
    few = Runs(e for e in runs._by.values() if e.config["seed"] < 4)
    assert {row.state for row in ledger(few) if row.study == MNIST} == {"no verdict"}


def test_a_gain_under_fitted_biases_stands_where_all_runs_have_it() -> None:
    entries = []
    for cell in protocol(MNIST).spec.cells():
        values = {"final_accuracy": 0.8 + 0.05 * (cell.label == "FedGA"), "final_fitted_accuracy": 0.9}
        lacks = cell.label == "CLIMB" and cell.seed == 3
        entries.append(entry(cell.experiment, **{k: v for k, v in values.items() if not (lacks and "fitted" in k)}))
    rows = {(row.number.method, row.number.setting): row for row in rows_of(protocol(MNIST), "paper", Runs(entries))}
    gain = rows["FedGA", "alpha=0.1"].gain
    assert gain is not None and (gain.ours, gain.fitted) == (pytest.approx(5), pytest.approx(0))
    assert rows["CLIMB", "alpha=0.1"].gain.fitted is None  # type: ignore[union-attr]


def test_a_swing_is_told_of_curves_that_show_one() -> None:
    swung = {"final_accuracy": 0.8, "mean10_accuracy": 0.7}
    row = next(iter(rows_of(protocol("seolkim-case4"), "paper", made("seolkim-case4", **swung))))
    assert pages.swing_of(row) == pytest.approx(10), "in the unit of the metric"
    assert {pages.swing_of(row) for row in rows_of(protocol(MNIST), "paper", made(MNIST, **swung))} == {None}, (
        "every tenth round"
    )


def test_the_costs_of_the_page_are_of_as_many_numbers_as_were_not_run() -> None:
    page = (Path(__file__).resolve().parents[2] / "notes/papers.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| ")]
    at = rows.index(["numbers", "how many", "cost"])
    costs = [int(row[1]) for row in rows[at + 2 :] if len(row) == 3 and row[1].isdigit()]
    head = next(row for row in rows if "not run" in row)
    whole = next(row for row in rows if row[0] == "all five")
    assert sum(costs) == int(whole[head.index("not run")])
