"""``fedskew evaluate --threshold``: chosen on validation rows, told of all rows and of each client's; and its page."""

from __future__ import annotations

import csv
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

import fedskew as fs
from fedskew.records.decisions import choose_threshold
from support.command import SMALL, fedskew, json_of, mistake, output_of, printed
from support.paths import ROOT

PAGE = (ROOT / "docs/guide/decisions.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.M | re.S)
RULE = ["--positive", "ill", "--threshold", "recall@specificity=0.8"]
NEW = ["--data", "csv", "--data.path", "new.csv"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the page's table, and a run of it without validation rows beside the page's run."""
    place = tmp_path_factory.mktemp("hospitals")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        exec(BLOCKS[0][1], {})
        words = shlex.split(BLOCKS[1][1])[1:]
        assert fedskew(*words) == 0
        bare = " ".join(words).replace("--validation 0.2", "--local-test 0.3").replace("heart", "bare").split()
        assert fedskew(*bare) == 0
    return place


@pytest.fixture
def folder(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same folder, in which the test works."""
    monkeypatch.chdir(made)
    return made


def federation() -> fs.data.Federation:
    """The federation of the page's run."""
    words = {"y_column": "outcome", "columns": "hospital", "categories": "sex", "validation": 0.2}
    return fs.federate("csv", "natural", path="patients.csv", **words)


def owners_of(place: Path, test: bool) -> list[str]:
    """Hospitals of the rows of the file that are of the test set, or that are not."""
    from fedskew.data.arrays import held_out

    rows = list(csv.DictReader((place / "patients.csv").read_text().splitlines()))
    stays = held_out([row["outcome"] for row in rows])
    return [row["hospital"] for row, stay in zip(rows, stays, strict=True) if stay != test]


def test_the_page_is_true(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert len(PAGE.split()) <= 750
    names: dict[str, Any] = {}
    said = ""
    for kind, block in BLOCKS[2:]:
        if kind == "python":
            exec(block, names)
        elif block.startswith("fedskew "):
            said += output_of(*shlex.split(block)[1:])
        else:
            plain = [" ".join(re.sub(r"[\d.]+", "0", line).split()) for line in (block + "\n" + said).splitlines()]
            shown = plain[: block.count("\n")]
            assert [line for line in shown if line not in plain[len(shown) :]] == []
    assert (folder / "pictures/reliability.png").is_file() and (folder / "pictures/decision-curve.png").is_file()
    rows = list(csv.DictReader((folder / "new-scores.csv").read_text().splitlines()))
    assert [(r["hospital"], r["decided"]) for r in rows] == [("north", "ill"), ("south", "well")]
    assert names["decision"]([[0.9, 0.1], [0.1, 0.9]]).tolist() == [True, False]
    elsewhere = shutil.copytree("heart", tmp_path / "copied")
    assert sorted(load_file(elsewhere / "final.safetensors")) == ["fc.bias", "fc.weight"]
    monkeypatch.chdir(tmp_path)
    patients = {"age": [71, 33], "sex": ["f", "m"], "pressure": [150, 110]}
    assert names["decision"](fs.load_model("copied").probabilities(patients)).tolist() == [True, False]


def test_the_threshold_is_of_validation_rows_and_serves_test_rows(folder: Path) -> None:
    found = json_of("evaluate", "heart", *RULE)
    fed = federation()
    trained = fs.load_model("heart")
    x, y, _ = trained.rows_on(fed, "validation")
    assert np.array_equal(x, fed.dataset.x[fed.validation_rows]) and found["decision"]["rows"] == len(x) == 89
    p, ill = trained.of_samples(x)[:, 0].numpy(), (y == 0).numpy()
    threshold = found["decision"]["threshold"]
    assert threshold == trained.decide(fed, RULE[3], "ill").threshold
    assert (p[~ill] < threshold).mean() >= 0.8
    test = trained.of_samples(fed.dataset.x_test)[:, 0].numpy() >= threshold
    sick = (fed.dataset.y_test == 0).numpy()
    pooled = found["one_against_rest"]
    assert pooled["threshold"]["sensitivity"]["value"] == test[sick].mean()
    south = np.array(owners_of(folder, True)) == "south"
    client = pooled["clients"]["south"]
    assert client["rows"] == south.sum() and client["positives"] == (sick & south).sum()
    assert client["threshold"]["specificity"]["value"] == pytest.approx(1 - test[south & ~sick].mean())
    assert found["accuracy"] == json_of("evaluate", "heart")["accuracy"], "the metrics of all classes stay"
    fitted = json_of("evaluate", "heart", *RULE, "--fitted")
    assert fitted["decision"]["threshold"] == trained.decide(fed, RULE[3], "ill", fitted=True).threshold != threshold


def test_each_client_gets_a_threshold_of_its_own_validation_rows(folder: Path) -> None:
    whole, found = json_of("evaluate", "heart", *RULE), json_of("evaluate", "heart", *RULE, "--per-client")
    fed = federation()
    trained = fs.load_model("heart")
    x, y, owners = trained.rows_on(fed, "validation")
    test, test_y, of_test = trained.rows_on(fed, "test")
    p, p_test = (trained.of_samples(rows)[:, 0].numpy() for rows in (x, test))
    clients, each = found["one_against_rest"]["clients"], found["decision"]["each"]
    assert found["decision"]["threshold"] == whole["decision"]["threshold"]
    for k, name in enumerate(fed.client_names):
        own, sick = owners == k, (y == 0).numpy()
        few = min(sick[own].sum(), (~sick[own]).sum()) < 5
        limit = whole["decision"]["threshold"] if few else choose_threshold(sick[own], p[own], RULE[3])
        assert (name in each) != few and clients[name]["chosen"] == {
            "threshold": limit,
            "on": "all clients" if few else name,
        }
        at = (of_test == k) & (test_y == 0).numpy()
        assert clients[name]["threshold"]["sensitivity"]["value"] == pytest.approx((p_test[at] >= limit).mean())
    assert each and len({one["threshold"] for one in each.values()}) > 1
    said = output_of("evaluate", "heart", *RULE, "--per-client", "--out", "each.csv")
    assert all(
        f"{name}: p >= {one['threshold']:.6g}, on its own {one['rows']} rows" in said for name, one in each.items()
    )
    for row in csv.DictReader(Path("each.csv").read_text().splitlines()):
        limit = clients[row["client"]]["chosen"]["threshold"]
        assert (row["decided"] == "ill") == (float(row["p_ill"]) >= round(limit, 6)) or abs(
            float(row["p_ill"]) - limit
        ) < 1e-5


def test_a_client_with_few_rows_has_the_threshold_of_all_and_that_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, y, owners = fs.load_model("heart").rows_on(fed := federation(), "validation")
    least = [min((y[owners == k] == 0).sum().item(), (y[owners == k] == 1).sum().item()) for k in range(fed.clients)]
    assert min(least) < max(least)
    monkeypatch.setattr("fedskew.engines.trained.FEW", max(least))
    found = json_of("evaluate", "heart", *RULE, "--per-client")
    names = [name for name, few in zip(fed.client_names, least, strict=True) if few < max(least)]
    assert all(found["one_against_rest"]["clients"][name]["chosen"]["on"] == "all clients" for name in names)
    said = printed("evaluate", "heart", *RULE, "--per-client").err
    assert names[0] in said and "the threshold of all rows decides" in said
    monkeypatch.setattr("fedskew.engines.trained.FEW", 1000)
    assert "--per-client must go with a client that has 1000" in mistake("evaluate", "heart", *RULE, "--per-client")


@pytest.mark.parametrize("words", [["--threshold", "0.3"], []])
def test_thresholds_of_each_client_need_a_rule(words: list[str], folder: Path) -> None:
    said = mistake("evaluate", "heart", "--positive", "ill", "--per-client", *words)
    assert "--per-client must go with a --threshold that is a rule" in said


def test_validation_training_and_local_rows_are_evaluated(folder: Path) -> None:
    assert json_of("evaluate", "heart", "--on", "validation")["rows"] == 89
    assert json_of("evaluate", "heart", "--on", "train")["rows"] == 448 - 89
    local = json_of("evaluate", "bare", "--on", "local", "--positive", "ill")
    clients = local["one_against_rest"]["clients"]
    assert sum(client["rows"] for client in clients.values()) == local["rows"] and "threshold" not in clients["north"]
    assert fedskew("evaluate", "heart", "--on", "validation", "--out", "v.csv") == 0
    names = [row["client"] for row in csv.DictReader(Path("v.csv").read_text().splitlines())]
    numbers = [int(row["row"]) for row in csv.DictReader(Path("v.csv").read_text().splitlines())]
    assert names == [owners_of(folder, False)[n] for n in numbers]
    said = printed("evaluate", "heart", *RULE, "--on", "validation").err
    assert "the threshold was chosen on these rows, which makes" in said


def test_one_class_of_several_is_decided_and_dealt_rows_are_noted(tmp_path: Path) -> None:
    assert fedskew("run", "fedavg", *SMALL, "--validation", 0.2, "--out", tmp_path / "a") == 0
    words = ["evaluate", tmp_path / "a", "--positive", "8", "--threshold", "prevalence"]
    assert "no column says whose a test row is" in printed(*words, "--out", tmp_path / "s.csv").err
    assert {row["decided"] for row in csv.DictReader((tmp_path / "s.csv").read_text().splitlines())} == {"8", "not 8"}


def test_new_rows_with_labels_are_told_by_hospital(folder: Path) -> None:
    words = ["--data", "csv", "--data.path", "patients.csv", "--data.y_column", "outcome"]
    found = json_of(
        "evaluate", "heart", "--positive", "ill", "--threshold", "0.3", *words, "--data.columns", "hospital"
    )
    hospitals = [line.partition(",")[0] for line in Path("patients.csv").read_text().splitlines()[1:]]
    clients = found["one_against_rest"]["clients"]
    assert {name: client["rows"] for name, client in clients.items()} == {n: hospitals.count(n) for n in clients}
    assert len(clients) == 3 and found["decision"]["threshold"] == 0.3
    found = json_of("evaluate", "heart", "--positive", "ill", *words)
    assert found["decision"] is None and "clients" not in found["one_against_rest"]


def test_scored_rows_come_with_their_threshold(folder: Path) -> None:
    words = ["evaluate", "heart", *RULE, *NEW, "--data.columns", "hospital"]
    line = (
        "threshold for ill: p >= 0.262809, chosen by recall@specificity=0.8 on 89 validation rows, 25 of them positive"
    )
    assert line in output_of(*words, "--out", "named.csv").splitlines()
    said = printed(*words)
    assert line in said.err.splitlines() and said.out == (folder / "named.csv").read_text()


def test_the_threshold_of_a_clients_model_is_of_its_own_validation_rows(folder: Path) -> None:
    line = BLOCKS[1][1].replace("fedavg", "ditto").replace("20 --out heart", "2 --keep-own true --out ditto")
    assert fedskew(*shlex.split(line)[1:]) == 0
    fed = federation()
    rows, owners = fed.rows_on("validation")
    mine = rows[owners == fed.client_names.index("south")]
    p = fs.load_model("ditto", client="south").of_samples(fed.dataset.x[mine])[:, 0].numpy()
    threshold = choose_threshold(fed.dataset.y[mine].numpy() == 0, p, RULE[3])
    for data in ([], NEW):
        found = json_of("evaluate", "ditto", "--client", "south", *RULE, *data)["decision"]
        assert (found["threshold"], found["rows"], found["client"]) == (threshold, len(mine), "south")
    assert f"on {len(mine)} validation rows of south, " in output_of("evaluate", "ditto", "--client", "south", *RULE)


def test_where_validation_rows_have_no_clients_the_threshold_says_so(tmp_path: Path) -> None:
    words = ["run", "ditto", *SMALL, "--validation", 0.2, "--keep-own", "true", "--out", tmp_path / "a"]
    assert fedskew(*words) == 0
    said = printed("evaluate", tmp_path / "a", "--client", "1", "--positive", "8", "--threshold", "prevalence").err
    assert "no column says whose a validation row is; it was chosen on all" in said


def test_a_rule_without_the_runs_own_rows_asks_for_a_number(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--data", "csv", "--data.path", folder / "new.csv"]
    said = mistake("evaluate", folder / "heart", *RULE, *words)
    assert "--threshold must be a number where the run's own rows, on which a rule is chosen, cannot be read" in said
    assert "got 'recall@specificity=0.8': path must name a folder or file that exists; got 'patients.csv'" in said


MISTAKES = {
    "no validation rows": (["bare", *RULE], "--threshold must be a number where no validation rows are kept; got 're"),
    "no such rows": (["heart", "--on", "local"], "--on must name rows that there are; got 'local'"),
    "no such class": (["heart", "--positive", "sick"], "must name the class to find, one of ill, well; got 'sick'"),
    "no class": (["heart", "--threshold", "0.3"], "--positive must name the class to find, one of ill, well; got None"),
    "no such rule": (["heart", *RULE[:3], "recall=0.9"], "--threshold must be recall@specificity=0.9, "),
    "an option that is not used": (["heart", "--by", "client", *RULE], "--by must be used without --"),
    "no labels": (["heart", *RULE[:2], "--figures", "f", *NEW], "--figures must be drawn of rows with labels; got 'f'"),
    "rows of two kinds": (["heart", "--on", "train", *NEW], "--on must be used without --data, which names"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_line(case: str, folder: Path) -> None:
    words, expected = MISTAKES[case]
    assert expected in mistake("evaluate", *words)
