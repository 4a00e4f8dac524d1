"""`fedskew arbitrate`: a made-up paper with planted faults, and tables with mistakes."""

from __future__ import annotations

import csv
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

import fedskew as fs
from fedskew.seam import Equivalence
from fedskew_papers import names
from fedskew_papers.arbiter import Case, Trial, cells_of
from fedskew_papers.cli import judged
from fedskew_papers.rules import at_level
from fedskew_papers.tables import protocol
from support.command import fedskew, mistake
from support.scheduling import without_workers

# Batches alone differ between runs, so that they spread little; few clients of a round and unequal sizes make the last
# round no best one, and the weights matter.
PROTOCOL = {
    "data": "digits", "model": "logistic", "partition": "counts", "clients": 5, "cohort": 3, "rounds": 9, "epochs": 3,
    "batch-size": 64, "seed-partition": 1, "seed-model": 1, "seed-clients": 1,
    "fit-logits": "none", "eval.served": "none", "partition.matrix": """[
  [90, 90, 90, 90, 90, 0, 0, 0, 0, 0], [9, 9, 9, 9, 9, 20, 20, 20, 20, 20], [0, 0, 0, 0, 0, 12, 12, 12, 12, 12],
  [0, 0, 0, 12, 12, 12, 0, 0, 0, 0], [30, 0, 0, 0, 0, 0, 0, 0, 30, 30]
]""",
}  # fmt: skip
METHODS = {"FedAvg": {"method": "fedavg"}, "FedProx": {"method": "fedprox"}, "Clipped": {"method": "fedavg", "clip": 2}}
# What is printed is the mean of the authors' seeds, and ours are others.
TRUTH = {  # what the made-up authors ran, and which number of it they printed
    "FedAvg": ("fedavg(weighting=size)", "final_accuracy"),
    "FedProx": ("fedprox(weighting=size)", "best_accuracy"),  # the paper says: of the last round
    "Clipped": ("fedavg(weighting=uniform, clip=2)", "final_accuracy"),  # the paper says: weighted by size
}


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    without_workers(monkeypatch)


def quoted(options: dict[str, object]) -> str:
    return "\n".join(f'"{key}" = {value if isinstance(value, int) else chr(39) * 3 + str(value) + chr(39) * 3}'
                     for key, value in options.items())  # fmt: skip


def written(folder: Path, cells: dict[str, float], more: str = "") -> Path:
    """The table of the paper: the learning rate is not stated, and neither are weights and rounds beyond doubt."""
    text = """
title = "A made-up paper, Table 1"
reading = "Accuracy of the last round, weighted by size."
source = "nowhere"
[unstated]
lr = [0.005, 0.2]
weighting = ["size", "uniform"]
metric = ["last", "best"]
[study]
seeds = "10-14"
"""
    text += "[study.options]\n" + quoted(PROTOCOL) + '\n[[study.settings]]\nname = "skewed"\n'
    text += "".join(f"[study.method.{label}]\n{quoted(options)}\n" for label, options in METHODS.items())
    text += "".join(
        f'[[cells]]\nsetting = "skewed"\nmethod = "{label}"\nvalue = {value}\n' for label, value in cells.items()
    )
    file = folder / "paper.toml"
    file.write_text(text + more)
    return file


def printed(folder: Path) -> dict[str, float]:
    study = fs.study([name for name, _ in TRUTH.values()], seeds="0-2", store=folder / "theirs", options={
        **{key: value for key, value in PROTOCOL.items() if key != "partition.matrix"}, "lr": 0.2,
        "partition.matrix": PROTOCOL["partition.matrix"],
    })  # fmt: skip
    study.run(1)
    rows = study.table()
    found = {}
    for (label, (_, metric)), name in zip(TRUTH.items(), dict.fromkeys(row["label"] for row in rows), strict=True):
        found[label] = sum(row[metric] for row in rows if row["label"] == name) / 3
    return found


@pytest.mark.thorough
def test_three_planted_faults_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = written(tmp_path, printed(tmp_path))
    assert fedskew("arbitrate", file, "--dry-run", "--processes", 1) == 0
    assert "15 runs: 0 done, 15 missing" in capsys.readouterr().out
    words = ["arbitrate", file, "--processes", 1, "--out", "out"]
    assert fedskew(*words) == 0
    said, page = capsys.readouterr().out, Path("out/page.md").read_text()
    assert (
        "skewed, FedProx, accuracy: agrees under lr 0.2, metric best" in said
        and "fedskew arbitrate" in page
        and "Source: nowhere" in page
    )
    fits = {"FedAvg": ["lr 0.2"], "FedProx": ["lr 0.2, metric best"], "Clipped": ["lr 0.2, weighting uniform"]}
    with Path("out/cells.csv").open(encoding="utf-8", newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert {row["seeds"] for row in rows} == {"5"} and len(rows) == 4 + 6 + 6, "pairs only where no reading fits"
    for label, fitting in fits.items():
        mine = [row for row in rows if row["method"] == label]
        assert mine[0]["readings"] == "as stated"
        assert [row["readings"] for row in mine if row["verdict"] != "differs"] == fitting
    runs = len(list(Path("runs/store/runs").iterdir()))
    assert fedskew(*words) == 0 and capsys.readouterr().err.count("nothing to do") == 0
    assert len(list(Path("runs/store/runs").iterdir())) == runs and Path("out/page.md").read_text() == page


def test_curves_are_cells_of_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One seed has the spread of the printed runs; without one it has no interval, and what cannot be is no data."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "curves.csv").write_text(
        "setting,method,round,value,spread,runs,no_data\nskewed,FedAvg,1,0.99,0.01,3,\nskewed,FedAvg,9,0.1,,,\n"
        "skewed,Lost,1,0.5,,,the file is another method's\nskewed,FedAvg,12,0.5,,,\n"
    )
    file = written(tmp_path, {}, "")
    file.write_text('csv = "curves.csv"' + file.read_text())
    assert fedskew("arbitrate", file, "--processes", 1, "--seeds", 0, "--out", "out") == 0
    with Path("out/cells.csv").open(encoding="utf-8", newline="") as opened:
        rows = [row for row in csv.DictReader(opened) if row["readings"] in ("", "as stated")]
    assert [row["metric"] for row in rows] == [f"accuracy, round {r}" for r in (1, 9, 1, 12)]
    assert [row["verdict"] for row in rows] == ["no verdict", "no verdict", "no data", "not run"]
    assert rows[0]["apart_high"] and not rows[1]["apart_high"]
    assert "the file is another method's" in Path("out/page.md").read_text()
    assert len(list(Path("runs/store/runs").iterdir())) == 1 + 2 + 1, "one method, its readings, a pair of them"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("[unstated]", "[unstate]"), "unknown entry of a protocol 'unstate'"),
        (("lr = [0.005, 0.2]", "lr = 0.2"), "unstated.lr must be a list of readings"),
        (("lr = [0.005, 0.2]", "lrs = [0.005, 0.2]"), "--lrs"),
        (('["last", "best"]', '["last", "worst"]'), "unknown reading of metric 'worst'"),
        (("[unstated]", "[unstated.FedAvgs]\nclip = [0, 1]\n[unstated.FedAvg]"), "unknown method 'FedAvgs'"),
        (("value = 0.5", 'value = "half"'), "must be a number"),
        (("value = 0.5", ""), "cell 1 must have a value, or no_data"),
        (('method = "FedAvg"\nvalue', 'method = "FedProxy"\nvalue'), "unknown method 'FedProxy'"),
        (("title =", 'csv = "../curves.csv"\ntitle ='), "csv must name a file beside the table"),
        (("title =", 'csv = "none.csv"\ntitle ='), "none.csv"),
        (("title =", 'like = "niid-bench"\ntitle ='), "unknown protocol 'niid-bench'"),
        (("title =", "titel ="), "'titel'; did you mean 'title'"),
        (("[[cells]]", "[[cells"), "is not a study"),
        (("[study]", "[scale.tiny]\n[study]"), "unknown scale 'tiny'"),
        (("[study]", "[scale.small]\nreduce = 'x'\n[study]"), "entry of scale.small 'reduce'"),
        (('name = "skewed"\n', ""), "settings must each have a name"),
        (('name = "skewed"\n', 'name = "skewed"\n[[study.settings]]\nname = "skewed"\n'), "different names"),
        (('"cohort" =', '"cohorts" ='), "--cohorts"),
    ],
)
def test_a_mistake_in_a_table_is_one_line(
    change: tuple[str, str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, {"FedAvg": 0.5})
    text = file.read_text()
    assert change[0] in text
    file.write_text(text.replace(*change, 1))
    assert told in mistake(capsys, "arbitrate", file)


@pytest.mark.parametrize("name", [name for name in names() if protocol(name).numbers()])
def test_a_cell_takes_two_lines_of_80_columns_at_most(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the longest interval and the longest verdict, every word and every number is whole."""
    monkeypatch.setenv("COLUMNS", "80")
    trial = Trial((), 5, Equivalence(0.0, 0.0, 0.0, -12.34, 12.34, 1.0, 5, 9.0))
    cases = [Case(number, (trial,)) for number in protocol(name).numbers()]
    judged(cases)
    lines = capsys.readouterr().out.splitlines()
    begins = [place for place, line in enumerate(lines) if "-12.34" in line]
    metrics = {case.number.metric for case in cases}
    longer = [lines[a:b] for a, b in pairwise([*begins, len(lines)]) if b - a > 2]
    assert len(begins) == len(cases) and len(longer) < len(metrics) and max(map(len, lines)) <= 80
    told = {word for line in lines for word in line.replace(":", "").split()}
    assert {word for case in cases for cell in cells_of(case) for word in cell.replace(":", "").split()} <= told | {"5"}


def test_other_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "cannot read" in mistake(capsys, "arbitrate", tmp_path / "none.toml")
    assert "unknown protocol" in mistake(capsys, "arbitrate", "fedbench")
    assert "needs a table" in mistake(capsys, "arbitrate")
    assert "unknown setting 'iid'" in mistake(capsys, "arbitrate", "fedbench-mnist", "--settings", "iid")


def test_the_tables_of_third_parties_hold_what_they_print() -> None:
    """FedBench's curves: what is no data there says why, and its replicates of FedAvg stand under three names."""
    mnist, adult = (protocol(f"fedbench-{name}").numbers() for name in ("mnist", "adult"))
    assert (len(mnist), len(adult)) == (4 * 9 * 9, 2 * (6 * 9 + 3))
    at = {(n.setting, n.method, n.metric): n for n in mnist}
    last = at["alpha=0.5", "SCAFFOLD", "accuracy, round 50"]
    assert (last.mean, last.spread, last.runs, last.points) == (0.6199, 0.0140, 3, 100) and not last.counts
    lost = {n.method for n in adult if n.kind == "no data"}
    assert lost == {"FedAdagrad", "FedYogi", "MOON"} and all("digit" in n.note for n in adult if n.method in lost)


def test_one_seed_has_the_spread_of_the_printed_runs() -> None:
    number = protocol("fedbench-mnist").numbers()[0]
    made = lambda **facts: replace(number, metric="accuracy", mean=0.5, **facts)
    one = at_level(made(spread=0.01, note="3 runs"), [0.52])
    half = 2.9199856 * 1.0 * (4 / 3) ** 0.5
    assert (one.low, one.high) == (pytest.approx(2 - half, abs=1e-6), pytest.approx(2 + half, abs=1e-6))
    far = at_level(made(spread=0.01, note="3 runs"), [0.9])
    assert (one.place, far.place) == ("not resolved", "differs") and one.verdict == far.verdict == "no verdict"
    assert at_level(made(spread=None, note="3 runs"), [0.9]).low is None
    assert at_level(made(spread=0.001, note="3 runs"), [0.5, 0.501, 0.499, 0.5, 0.5]).verdict == "agrees"
    four = at_level(made(spread=0.001, note="3 runs"), [0.5, 0.501, 0.499, 0.5])
    assert four.verdict == "no verdict" and four.place == "agrees"
    wide = at_level(made(spread=0.03, note="3 runs"), [0.52, 0.521, 0.519, 0.52, 0.52])
    assert wide.verdict == "within the printed spread", "with 3 points of three runs no mean agrees within one"
