"""`fedskew rehearse`: what a consortium can expect, from its counts, and the line that each mistake gets."""

from __future__ import annotations

import itertools
import json
import statistics
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import fedskew as fs
from fedskew.data.counts import Consortium, read_consortium, scaled
from fedskew.records.clients import last_clients
from fedskew.report.rehearsed import _words
from fedskew.report.rehearsed import rehearsed as tables
from fedskew.studies.rehearsal import Expected, Rehearsal, StandIn, expected, half_width
from support.command import json_of, mistake, printed
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
        words = ("--store", folder / "store", "--out", folder / "app", "--vary", "all", "--json", *SMALL)
        said = printed("rehearse", counts(folder), *words)
    assert said.err.startswith("digits: 34 runs: 0 done, 34 missing, about ")
    return folder, json.loads(said.out)


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
        assert abs(site["lost"]["mean"]) <= 1 and site["lost"]["low"] is None  # one stand-in
        sizes = [point["cases"] for point in site["curve"]]
        assert sizes == [round(share * site["cases"]) for share in (0.25, 0.5, 1)]
        assert site["needs"] is None
    assert rehearsed[1]["unknown"][0].startswith("how far datasets differ: one stand-in")


def test_the_runs_are_found_again_and_shown_as_tables(rehearsed: tuple[Path, dict[str, Any]]) -> None:
    folder, said = rehearsed
    shown = printed("rehearse", folder / "sites.csv", "--store", folder / "store", "--vary", "all", *SMALL)
    assert shown.err == ""  # no run is done
    assert "stand-ins: digits; seeds 0, 1" in shown.out and "if a site leaves" in shown.out
    assert "interval" not in shown.out.partition("not known:")[0]
    assert f"{said['sites'][0]['accuracy']['mean']:.3f} " in shown.out
    assert "not known: stand-in data are not your data" in shown.out


def test_the_app_holds_the_counts_of_the_stand_in(rehearsed: tuple[Path, dict[str, Any]]) -> None:
    app = rehearsed[0] / "app"
    config = tomllib.loads((app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    assert (config["method"], config["clients"], config["rounds"], config["data"]) == ("fedavg", 3, 4, "digits")
    assert Path(config["partition.path"]).read_text() == "ill,well\n60,30\n10,50\n20,20\n"


def test_a_site_that_is_slower_than_the_deadline_never_takes_part(tmp_path: Path) -> None:
    text = "ill,well,step_s\n60,30,1\n10,50,0.01\n20,20,0.01\n"
    words = ("--deadline", 1, "--parameters", 1300, "--vary", "none", "--store", tmp_path / "store", *SMALL)
    said = json_of("rehearse", counts(tmp_path, text), *words)
    assert [(site["site"], site["rounds"], site["failure"]) for site in said["sites"]] == [
        ("1", 0, 1.0), ("2", 4, 0.0), ("3", 4, 0.0)
    ]  # fmt: skip
    assert said["wall_s"] == [4.0, 4.0]  # each round waits for the deadline
    assert "curve" not in said["sites"][0]
    assert {site["upload_bytes"] for site in said["sites"]} == {4 * 1300}


def test_a_dry_run_does_nothing(tmp_path: Path) -> None:
    for more, runs in ((), 4), (("--vary", "all"), 34):  # of two seeds; two methods with 2 x 3 shares, one with 3 sites
        shown = printed("rehearse", counts(tmp_path), "--dry-run", "--store", tmp_path / "store", *more, *SMALL)
        assert f"digits: {runs} runs: 0 done, {runs} missing, about " in shown.out and shown.err == ""


def test_several_stand_ins_give_intervals_of_what_is_possible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def standin(self: Rehearsal, name: str) -> StandIn:
        options = ("data", "digits"), ("data.classes", name.replace("-", ","))
        return StandIn(name, options, self.consortium.counts, 1.0)

    monkeypatch.setattr(Rehearsal, "_standin", standin)
    monkeypatch.setattr("fedskew.studies.rehearsal.PANELS", {2: ("0-1", "8-9", "2-3")})
    without_workers(monkeypatch)
    words = ("--vary", "all", "--stand-ins", 2, "--store", tmp_path / "store", *SMALL[2:6], "--seeds", 0)
    said = json_of("rehearse", counts(tmp_path, "ill,well\n60,30\n5,20\n"), *words)
    assert [one["name"] for one in said["standins"]] == ["0-1", "8-9"]
    for one in (said, *said["sites"]):
        for share in ("accuracy", "local", "rare_recall"):
            assert one[share] is None or 0 <= one[share]["low"] <= one[share]["mean"] <= one[share]["high"] <= 1
        assert -one["local"]["high"] <= one["gain"]["low"] and one["gain"]["high"] <= 1 - one["local"]["low"]
    for site in said["sites"]:
        above = [point["cases"] for point in site["curve"] if point["gain"] and point["gain"]["low"] > 0]
        assert site["needs"] == (above[0] if above else None)
        for lost in filter(None, (site["lost"], site["rare_lost"], *(point["gain"] for point in site["curve"]))):
            assert -1 <= lost["low"] <= lost["high"] <= 1


FILES = {
    "no head": ("60,30\n10,50\n", "must begin with a line of names: the classes; got 60,30"),
    "one class": ("site,ill\nva,60\nparis,10\n", "must have a column for each of two classes at least; got ill"),
    "a missing column": ("ill,well,up\n6,3,1\n1,5,2\n", "must have both columns up and down, or none; got ill"),
    "two speeds": ("ill,well,step_s,speed\n6,3,1,1\n1,5,2,1\n", "must have one of the columns step_s and speed"),
    "one site": ("ill,well\n6,3\n", "must have a line for each of two sites at least; got 1"),
    "negative": ("ill,well\n6,3\n-4,9\n", "line 3: the cases of 'ill' must be a whole number >= 0; got '-4'"),
    "an empty site": ("site,ill,well\nva,6,3\noslo,0,0\n", "site 'oslo' must have 3 cases at least"),
    "an empty class": ("ill,well\n6,0\n4,0\n", "class 'well' must have a case at some site; got none"),
    "a rate": ("ill,well,failure\n6,3,1\n4,4,0\n", "'failure' must be a probability in [0, 1); got '1'"),
    "a link": ("ill,well,up,down\n6,3,0,1\n4,4,1,1\n", "the value of 'up' must be a positive number; got '0'"),
}  # fmt: skip


@pytest.mark.parametrize("case", FILES)
def test_a_wrong_file_is_one_line(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text, said = FILES[case]
    assert said in mistake("rehearse", counts(tmp_path, text), *SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["sites.csv"]


WORDS = {
    "an absent file": (("absent.csv",), "absent.csv"),
    "a partition": (("sites.csv", "--partition", "iid"), "--partition must be left out: rehearse sets it; got 'iid'"),
    "a local test": (("sites.csv", "--local-test", "0.5"), "--local-test must be left out: rehearse sets it"),
    "too few classes": (("sites.csv", "--data", "heart_disease"), "--data must name datasets of at least 3 classes"),
    "several values": (("sites.csv", "--lr", "0.1,0.2"), "--lr must be a number; got '0.1,0.2'"),
    "a site": (("sites.csv", "--vary", "rome"), "unknown site 'rome'"),
    "a deadline": (("sites.csv", "--deadline", "0"), "--deadline must be positive; got 0.0"),
    "a deadline for nobody": (("sites.csv", "--deadline", "1e-9"), "--deadline must leave a site in time"),
    "a selector": (("sites.csv", "clusteredsampling", "--vary", "all"), "METHOD must choose clients at random"),
    "an option of one method": (("sites.csv", "fedprox", "--parts.proximal.mu", "1"), "local training cannot be"),
    "an app": (("sites.csv", "--out", "."), "--out must name a folder without an app"),
    "a number of named ones": (("sites.csv", "--data", "digits", "--stand-ins", 1), "must be left out where --data"),
    "a stand-in twice": (("sites.csv", "--data", "digits,digits"), "--data must name each stand-in once"),
}  # fmt: skip


@pytest.mark.parametrize("case", WORDS)
def test_a_mistake_is_one_line(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data_dir: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    counts(tmp_path, "site,a,b,c\nva,30,20,9\nparis,20,20,9\n")
    words, said = WORDS[case]
    few = ("--data", "digits") if words and "--data" not in words else ()
    assert said in mistake("rehearse", *words, *few)


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


def simulated(
    rng: np.random.Generator, counts_of_seeds: Sequence[int], of_data: float, of_seeds: float
) -> tuple[list[npt.NDArray[np.float64]], npt.NDArray[np.float64]]:
    """Values [seeds, 10 000] of each stand-in, and the value [10 000] that a run of one more federation gives."""
    draw = lambda n: 0.1 + of_data * rng.standard_normal(10_000) + of_seeds * rng.standard_normal((n, 10_000))
    return [draw(n) for n in counts_of_seeds], draw(1)[0]


EVEN = [(seeds,) * standins for standins, seeds in itertools.product(range(2, 11), range(2, 6))]


def test_intervals_cover_what_a_run_of_a_new_federation_measures() -> None:
    """The variance between stand-ins is nothing, as large as that of seeds, or far above it; some have few seeds."""
    rng, covered = np.random.default_rng(1), []
    for of_data, of_seeds in ((0.0, 0.05), (0.05, 0.05), (0.05, 0.025), (0.5, 0.05)):
        for counts_of_seeds in (*EVEN, (1, 1, 1), (1, 5, 2), (4, 4, 1, 1, 1)):
            values, new = simulated(rng, counts_of_seeds, of_data, of_seeds)
            means = np.array([block.mean(axis=0) for block in values])
            squares = sum(((block - block.mean(axis=0)) ** 2).sum(axis=0) for block in values)
            within = squares / max(sum(counts_of_seeds) - len(counts_of_seeds), 1)
            half = half_width(means, within, counts_of_seeds)
            covered.append(float((abs(new - means.mean(axis=0)) <= half).mean()))
            if of_data == 0.05:
                one = expected([block[:, 0].tolist() for block in values], 1e9, (-1.0, 1.0))
                ends = max(means[:, 0].mean() - half[0], -1), min(means[:, 0].mean() + half[0], 1)
                assert one is not None and (one.low, one.high) == pytest.approx(ends)
    assert min(covered) >= 0.94 and np.mean(covered) <= 0.98


def test_intervals_of_shares_cover_the_draw_of_few_test_rows() -> None:
    """Where every run measures 1, the rows still bound what the next one measures."""
    rng = np.random.default_rng(3)
    for rows, level in itertools.product((5, 20, 200), (0.6, 0.9, 0.98)):
        shares = rng.binomial(rows, level, (4, 2, 1000)) / rows
        found = [expected(shares[1:, :, k].tolist(), rows) for k in range(1000)]
        inside = [one and one.low is not None and one.high is not None and one.low - 1e-9 <= new <= one.high + 1e-9
                  for one, new in zip(found, shares[0, 0], strict=True)]  # fmt: skip
        assert np.mean(inside) >= 0.94
    sure = expected([[1.0, 1.0], [1.0, 1.0]], rows=10)
    assert sure is not None and sure.low is not None and sure.low < 0.85


def test_one_stand_in_has_no_interval() -> None:
    assert expected([[0.1, 0.3]], 50) == Expected(pytest.approx(0.2), None, None)
    assert expected([[0.1, 0.3], []], 50) == Expected(pytest.approx(0.2), None, None)
    assert expected([[], []], 50) is None and expected([[0.5], [0.5]], 0) is None


def test_a_difference_stays_where_its_baseline_lets_it() -> None:
    """A share cannot exceed 1, so no gain exceeds 1 less the least level that is expected of the baseline."""
    low = expected([[0.8], [0.82], [0.84]], 1000)
    assert low is not None and low.low is not None and low.high is not None
    gain = expected([[0.1], [-0.3], [0.15]], 1000, low.possible)
    assert gain is not None and (gain.low, gain.high) == (pytest.approx(-low.high), pytest.approx(1 - low.low))
    far = expected([[1.0], [-1.0]], 10, Expected(0.5, None, None).possible)
    assert far == Expected(0.0, -1.0, 1.0)


def test_an_interval_that_holds_everything_is_words(rehearsed: tuple[Path, dict[str, Any]]) -> None:
    site = {**rehearsed[1]["sites"][0], "gain": Expected(0.0, -0.5, 0.5), "accuracy": None, "rare_recall": None}
    shown = next(tables({**rehearsed[1], **site, "sites": [site], "rounds": 4}))
    assert shown.notes[-1].startswith("cannot tell: the interval is 0.8 long")
    assert _words(Expected(0.7, 0.1, 0.95)) == "0.700 (cannot tell)" and _words(Expected(0.7, None, None)) == "0.700"
    assert _words(Expected(0.7, 0.6, 0.95)) == "0.700 (0.60 to 0.95)" and _words(None) == "–"
