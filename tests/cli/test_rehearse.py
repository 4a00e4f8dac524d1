"""`fedskew rehearse`: what a consortium can expect, from its counts, and the line that each mistake gets."""

from __future__ import annotations

import json
import statistics
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedskew as fs
from fedskew.data.consortium import Consortium, read_consortium, scaled
from fedskew.records.clients import last_clients
from fedskew.studies.rehearsal import Expected, Rehearsal, difference, expected
from support.command import fedskew, mistake
from support.scheduling import without_workers

COUNTS = "site,ill,well,failure,up,down,step_s\nva,60,30,0.5,8,80,0.01\nparis,10,50,0,4,4,0.02\noslo,20,20,0,8,8,0.01\n"
SMALL = ("--data", "digits", "--rounds", 4, "--model", "logistic", "--seeds", "0-1", "--processes", 1)


def counts(folder: Path, text: str = COUNTS) -> Path:
    (folder / "sites.csv").write_text(text)
    return folder / "sites.csv"


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A store with the runs of `COUNTS` and an app beside it, and what the command said."""
    folder = tmp_path_factory.mktemp("rehearsal")
    with pytest.MonkeyPatch.context() as patch:
        without_workers(patch)
        written: list[str] = []
        patch.setattr("fedskew.cli.rehearse.say", lambda text, *_: written.append(text))
        words = ("--store", folder / "store", "--out", folder / "app", "--json", *SMALL)
        assert fedskew("rehearse", counts(folder), *words) == 0
    return folder, json.loads(written[0])


def test_the_results_are_those_of_the_same_federation(rehearsed: tuple[Path, dict[str, Any]]) -> None:
    """The means are those of runs from Python, with the sites' failures drawn by the selector."""
    matrix = [[60, 30], [10, 50], [20, 20]]
    data, values, rounds = fs.data.load("digits", classes=("0", "1")), [], []
    method = fs.methods.fedavg().with_(selector=fs.selectors.Failing(rates=(0.5, 0.0, 0.0)))
    for seed in (0, 1):
        fed = fs.federate(data, fs.partitioners.Counts(matrix=matrix), seed=seed, local_test=0.2)
        done = fs.run(fed, method, model="logistic", rounds=4, cohort=3, seed=seed)
        values.append({row["client"]: row["accuracy"] for row in last_clients(done.client_rows)})
        rounds.append([sum(k in row["clients"] for row in done.rounds) for k in range(3)])
    said = rehearsed[1]
    assert [one["factor"] for one in said["standins"]] == [1.0]
    assert min(number[0] for number in rounds) < 4, "nobody misses a round: the seeds show nothing"
    for k, site in enumerate(said["sites"]):
        assert site["accuracy"]["mean"] == pytest.approx(statistics.fmean(each[k] for each in values))
        assert site["rounds"] == statistics.fmean(number[k] for number in rounds)


def test_a_round_costs_bytes_and_the_seconds_of_steps_and_links(rehearsed: tuple[Path, dict[str, Any]]) -> None:
    size = 4 * (64 * 2 + 2)  # a logistic model of 8 x 8 pixels and two classes
    for site, (cases, up, down, step) in zip(
        rehearsed[1]["sites"], ((90, 8, 80, 0.01), (60, 4, 4, 0.02), (40, 8, 8, 0.01)), strict=True
    ):
        assert (site["upload_bytes"], site["download_bytes"]) == (size, size)
        steps = 2 * -(-round(0.8 * cases) // 64)  # two epochs of batch 64
        assert site["round_s"] == pytest.approx(steps * step + 8e-6 * size * (1 / up + 1 / down))
    slowest = max(site["round_s"] for site in rehearsed[1]["sites"][1:])  # those that miss nothing
    assert min(rehearsed[1]["wall_s"]) >= 4 * slowest * (1 - 1e-9)


def test_sites_leave_and_have_fewer_cases(rehearsed: tuple[Path, dict[str, Any]]) -> None:
    for site in rehearsed[1]["sites"]:
        assert site["lost"]["low"] <= site["lost"]["mean"] <= site["lost"]["high"]
        sizes = [point["cases"] for point in site["curve"]]
        assert sizes == [round(share * site["cases"]) for share in (0.25, 0.5, 1)]
        above = [point["cases"] for point in site["curve"] if point["gain"] and (point["gain"]["low"] or 0) > 0]
        assert site["needs"] == (above[0] if above else None)


def test_the_runs_are_found_again_and_shown_as_tables(
    rehearsed: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, said = rehearsed
    assert fedskew("rehearse", folder / "sites.csv", "--store", folder / "store", *SMALL) == 0
    shown = capsys.readouterr()
    assert shown.err == ""  # no run is done
    assert "stand-ins: digits; seeds 0, 1" in shown.out and "if a site leaves" in shown.out
    assert f"{said['sites'][0]['accuracy']['mean']:.3f} (" in shown.out
    assert "not known: stand-in data are not your data" in shown.out


def test_the_app_holds_the_counts_of_the_stand_in(rehearsed: tuple[Path, dict[str, Any]]) -> None:
    app = rehearsed[0] / "app"
    config = tomllib.loads((app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    assert (config["method"], config["clients"], config["rounds"], config["data"]) == ("fedavg", 3, 4, "digits")
    assert Path(config["partition.path"]).read_text() == "ill,well\n60,30\n10,50\n20,20\n"


def test_a_site_that_is_slower_than_the_deadline_never_takes_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "ill,well,step_s\n60,30,1\n10,50,0.01\n20,20,0.01\n"
    words = ("--deadline", 1, "--vary", "none", "--json", "--store", tmp_path / "store", *SMALL)
    assert fedskew("rehearse", counts(tmp_path, text), *words) == 0
    said = json.loads(capsys.readouterr().out)
    assert [(site["site"], site["rounds"], site["failure"]) for site in said["sites"]] == [
        ("1", 0, 1.0), ("2", 4, 0.0), ("3", 4, 0.0)
    ]  # fmt: skip
    assert said["wall_s"] == [4.0, 4.0]  # each round waits for the deadline
    assert "curve" not in said["sites"][0]


def test_more_parameters_are_more_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--parameters", 1300, "--vary", "none", "--json", "--store", tmp_path / "store", *SMALL)
    assert fedskew("rehearse", counts(tmp_path), *words) == 0
    assert {site["upload_bytes"] for site in json.loads(capsys.readouterr().out)["sites"]} == {4 * 1300}


def test_a_dry_run_does_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fedskew("rehearse", counts(tmp_path), "--dry-run", "--store", tmp_path / "store", *SMALL) == 0
    assert "28 runs: 0 done, 28 missing" in capsys.readouterr().out  # two methods, all cases and 3 x 2 shares


FILES = {
    "no head": ("60,30\n10,50\n", "must begin with a line of names: the classes; got 60,30"),
    "nothing": ("", "must have a line of counts for each client"),
    "one class": ("site,ill\nva,60\nparis,10\n", "must have a column for each of two classes at least; got ill"),
    "a column twice": ("ill,ill\n6,3\n1,5\n", "must have different column names; got 'ill' twice"),
    "a missing column": ("ill,well,up\n6,3,1\n1,5,2\n", "must have both columns up and down, or none; got ill"),
    "two speeds": ("ill,well,step_s,speed\n6,3,1,1\n1,5,2,1\n", "must have one of the columns step_s and speed"),
    "one site": ("ill,well\n6,3\n", "must have a line for each of two sites at least; got 1"),
    "a short line": ("ill,well\n6,3\n4\n", "must have 2 values a row; row 3 has 1"),
    "negative": ("ill,well\n6,3\n-4,9\n", "line 3: the cases of 'ill' must be a whole number >= 0; got '-4'"),
    "half a case": ("ill,well\n6,3\n4.5,9\n", "line 3: the cases of 'ill' must be a whole number >= 0; got '4.5'"),
    "a word": ("ill,well\n6,3\nmany,9\n", "line 3: the cases of 'ill' must be a whole number >= 0; got 'many'"),
    "an empty site": ("site,ill,well\nva,6,3\noslo,0,0\n", "site 'oslo' must have 3 cases at least"),
    "an empty class": ("ill,well\n6,0\n4,0\n", "class 'well' must have a case at some site; got none"),
    "a site twice": ("site,ill,well\nva,6,3\nva,4,4\n", "must name each client or site once; got va, va"),
    "a rate": ("ill,well,failure\n6,3,1\n4,4,0\n", "'failure' must be a probability in [0, 1); got '1'"),
    "a link": ("ill,well,up,down\n6,3,0,1\n4,4,1,1\n", "the value of 'up' must be a positive number; got '0'"),
}  # fmt: skip


@pytest.mark.parametrize("case", FILES)
def test_a_wrong_file_is_one_line(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text, said = FILES[case]
    assert said in mistake(capsys, "rehearse", counts(tmp_path, text), *SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["sites.csv"]


WORDS = {
    "no file": ((), "fedskew rehearse needs a file of counts"),
    "an absent file": (("absent.csv",), "absent.csv"),
    "a partition": (("sites.csv", "--partition", "iid"), "--partition must be left out: rehearse sets it; got 'iid'"),
    "a local test": (("sites.csv", "--local-test", "0.5"), "--local-test must be left out: rehearse sets it"),
    "too few classes": (("sites.csv", "--data", "heart_disease"), "--data must name datasets of at least 3 classes"),
    "no dataset": (("sites.csv", "--data", "digit"), "unknown dataset 'digit'"),
    "several values": (("sites.csv", "--lr", "0.1,0.2"), "--lr must be a number; got '0.1,0.2'"),
    "no method": (("sites.csv", "fedavgg"), "unknown method 'fedavgg'; did you mean 'fedavg'?"),
    "a site": (("sites.csv", "--vary", "rome"), "unknown site 'rome'"),
    "a deadline": (("sites.csv", "--deadline", "0"), "--deadline must be positive; got 0.0"),
    "a deadline for nobody": (("sites.csv", "--deadline", "1e-9"), "--deadline must leave a site in time"),
    "a selector": (("sites.csv", "clusteredsampling"), "METHOD must choose clients at random"),
    "an option of one method": (("sites.csv", "fedprox", "--parts.proximal.mu", "1"), "local training cannot be"),
    "an app": (("sites.csv", "--out", "."), "--out must name a folder without an app"),
    "no option": (("sites.csv", "--round", "3"), "--round"),
}  # fmt: skip


@pytest.mark.parametrize("case", WORDS)
def test_a_mistake_is_one_line(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, data_dir: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    counts(tmp_path, "site,a,b,c\nva,30,20,9\nparis,20,20,9\n")
    words, said = WORDS[case]
    few = ("--data", "digits") if words and "--data" not in words else ()
    assert said in mistake(capsys, "rehearse", *words, *few)


def test_counts_are_scaled_to_what_a_stand_in_has() -> None:
    """Totals stay within a row, nobody is left without rows, and no class is asked for more than there is."""
    rng = np.random.default_rng(0)
    asked = rng.integers(0, 200, (40, 5))
    asked[7] = [0, 0, 1, 3, 0]
    made, factor = scaled(asked, [500, 4000, 9000, 2000, 9000])
    assert 0 < factor < 1 and made.sum(1).min() >= 3
    assert (made.sum(0) <= [500, 4000, 9000, 2000, 9000]).all()
    assert np.abs(made.sum(0) - factor * asked.sum(0)).max() <= 3 * 40
    assert np.array_equal(scaled(asked, [10**6] * 5)[0][:7], asked[:7])


def test_a_file_without_names_of_sites_numbers_them(tmp_path: Path) -> None:
    found = read_consortium(counts(tmp_path, "ill,well,Failure\n6,3,0.1\n\n4,4,0\n"))
    assert (found.sites, found.facts, found.classes[found.rare]) == (("1", "2"), {"failure": [0.1, 0.0]}, "well")


def test_stand_ins_that_nobody_names_are_those_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    def loaded(data: Any, path: str | None) -> Any:
        if data.name == "mnist":
            raise fs.DataError("mnist is absent")
        return data.load(path)

    def made(classes: int) -> Rehearsal:
        matrix = np.full((2, classes), 5)
        return Rehearsal(Consortium(("a", "b"), tuple(map(str, range(classes))), matrix, {}), "fedavg", (), (0,))

    monkeypatch.setattr("fedskew.studies.rehearsal.dataset_of", loaded)
    monkeypatch.setattr("fedskew.studies.rehearsal.PANELS", {2: ("mnist",), 10: ("mnist", "digits"), 20: ("digits",)})
    assert [one.name for one in made(3).standins] == ["digits"]
    with pytest.raises(fs.DataError, match="mnist is absent"):
        print(made(2).standins)
    with pytest.raises(fs.ConfigError, match="data must name datasets of at least 12 classes; got 'digits'"):
        print(made(12).standins)
    with pytest.raises(fs.ConfigError, match="data must name datasets of at least 30 classes; got 'none'"):
        print(made(30).standins)


def test_an_interval_holds_what_another_run_measures() -> None:
    """Where seeds differ by the draw of the rows alone, and where they and the datasets differ beyond it."""
    rng = np.random.default_rng(1)

    def inside(standins: int, seeds: int, rows: int, of_seeds: float, of_data: float) -> float:
        hits = 0
        for _ in range(1000):
            level = 0.7 + of_data * rng.standard_normal(standins + 1)
            p = np.clip(level[:, None] + of_seeds * rng.standard_normal((standins + 1, seeds)), 0, 1)
            if not of_data:
                p[:] = np.clip(0.7 + of_seeds * rng.standard_normal(p.shape), 0, 1)
            shares = rng.binomial(rows, p) / rows
            found = expected(shares[1:].tolist(), rows)
            assert found is not None and found.low is not None and found.high is not None
            hits += found.low <= shares[0, 0] <= found.high
        return hits / 1000

    assert 0.93 <= inside(1, 3, 40, 0.0, 0.0) <= 0.99
    assert 0.9 <= inside(1, 5, 400, 0.05, 0.0) <= 0.99
    assert 0.93 <= inside(3, 3, 200, 0.02, 0.05) <= 0.995
    assert inside(1, 3, 400, 0.0, 0.1) < 0.6  # one stand-in says nothing of another dataset


def test_a_difference_has_the_t_interval_of_seeds_or_of_stand_ins() -> None:
    """t(2) = 4.303 and t(1) = 12.706 at 0.975."""
    for values, mean, half in (
        ([[0.0, 0.1, 0.2]], 0.1, 4.303 * 0.1 / 3**0.5),
        ([[0.1, 0.3], [0.4]], 0.3, 12.706 * 0.2 / 2**0.5 / 2**0.5),
    ):
        found = difference(values)
        assert found is not None and (found.mean, found.low, found.high) == pytest.approx(
            (mean, mean - half, mean + half), abs=1e-4
        )
    assert difference([[0.1]]) == Expected(0.1, None, None) and difference([[], []]) is None
