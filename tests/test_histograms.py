"""Runs in which clients tell their histograms with noise: the server half sees what was told, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fedskew as fs
from fedskew.data.federation import Federation
from fedskew.engines import base
from fedskew.engines.guard import Guard
from fedskew.method import Component, Method
from fedskew.methods import METHODS
from fedskew.privacy import histograms
from fedskew.protection import protection_of
from fedskew.report import LabelledRun
from fedskew.report.compared import compare
from fedskew.report.sentences import cautions
from fedskew.settings import Settings
from fedskew.types import Answers, Cohort, Query
from support.command import SMALL, mistake, output_of, refused
from support.federations import skewed
from support.methods import NAMES, PACE, tiny
from support.reports import made_run
from support.runs import gap, go, rows_of, same

PROBED = ("ccvr", "creff", "fednh")  # answers of whose clients tell true histograms
NAMED = ("astraea", "fedavg", "feddisco", "fedir", "fedla", "fednova", "fedvc", "localonly", "scaffold", "seolkim")
TOLD = [n if n in NAMED else pytest.param(n, marks=pytest.mark.thorough) for n in NAMES if n not in PROBED]
OFFERS = ("astraea", "seolkim", "fedvc")  # samplers that offer other rows than a client has


class Spy(Guard):
    """Compares what hooks of the server half are given with the histograms told."""

    counts: Tensor  # [N, C] as told
    name: str
    seen: set[str]
    asked: dict[str, Query]

    def call(self, part: Component, hook: str, original: Any, /, *args: Any, **named: Any) -> Any:
        for value in args:
            self.look(part, value)
        out = original(*args, **named)
        if isinstance(out, Query):
            self.asked[part.name] = out
        return out

    def look(self, part: Component, value: Any) -> None:
        if isinstance(value, Federation):
            self.seen.add("federation")
            assert torch.equal(value.counts, self.counts) and torch.equal(value.sizes, self.counts.sum(1))
        if isinstance(value, Cohort):
            self.seen.add("cohort")
            self.cohort(value)
        if isinstance(value, Answers) and self.asked[part.name].what == "counts":
            self.seen.add("answers")
            self.offered(value.values, self.counts[value.ids])

    def offered(self, rows: Tensor, told: Tensor) -> None:
        """Rows that a sampler offers of those told: repeated, or some."""
        assert not rows[told == 0].any()
        if self.name not in OFFERS:
            assert torch.equal(rows, told)
        elif self.name != "fedvc":
            assert bool((rows >= told).all())

    def cohort(self, cohort: Cohort) -> None:
        of = [[int(k) for k in chain if k >= 0] for chain in cohort.chains]
        told = torch.stack([self.counts[chain].sum(0) for chain in of])
        assert torch.equal(cohort.owned, told)
        self.offered(cohort.offered, told)
        assert bool((cohort.used <= cohort.offered).all()) and torch.equal(cohort.reports.samples, cohort.used.sum(1))
        if self.name not in OFFERS:
            assert torch.equal(cohort.used, told)
        if self.name not in (*OFFERS, "localonly") and max(map(len, of)) == 1:
            batches = (cohort.used.sum(1) + PACE.batch_size - 1) // PACE.batch_size
            assert torch.equal(cohort.reports.steps, PACE.epochs * batches)


def other(own: Tensor, epsilon: float, draw: Any) -> Tensor:
    """In the place of noise: other classes, and more rows of them."""
    return own.flip(0) * 2 + 3 * (own == 0)


@pytest.mark.parametrize("name", TOLD)
def test_no_true_count_reaches_the_server_half(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = skewed()
    monkeypatch.setattr(histograms, "noisy", other)
    seen: set[str] = set()

    def spy(full: bool) -> Spy:
        made = Spy(full=full)
        made.counts, made.name, made.seen, made.asked = histograms.Release(1, 0)(fed.counts), name, seen, {}
        assert not torch.equal(made.counts, fed.counts)
        return made

    monkeypatch.setattr(base, "Guard", spy)
    go(fed, tiny(name), rounds=3, histogram_epsilon=1.0)
    words = {read.word for part in METHODS[name]().components for read in part.reads}
    assert {"federation"} <= seen and (not words or "cohort" in seen)
    assert ("answers" in seen) == (name in ("astraea", "seolkim"))


@pytest.mark.parametrize("name", ["seolkim", "astraea", "fedla", "fednova", "fedvc", "feddisco"])
def test_without_noise_what_is_told_changes_no_bit(name: str) -> None:
    """epsilon 1000 draws 0: the rounds of counts that were told are those of the rows."""
    plain, told = go(skewed(), tiny(name), rounds=3), go(skewed(), tiny(name), rounds=3, histogram_epsilon=1000.0)
    assert same(told.params, plain.params) and rows_of(told) == rows_of(plain)


@pytest.mark.parametrize("name", ["fedlc", "fedrs", "fedga"])
def test_a_client_trains_by_its_own_histogram(name: str) -> None:
    """Where the server reads no counts, there is no noise in the run."""
    method = tiny(name).with_(weighting=fs.weightings.Uniform())
    plain, noisy = go(skewed(), method), go(skewed(), method, histogram_epsilon=0.05)
    assert same(noisy.params, plain.params)


@pytest.mark.parametrize("engine", ["threaded", "batched"])
def test_engines_agree(engine: str) -> None:
    one, two = (
        go(skewed(), tiny("seolkim"), histogram_epsilon=0.1, engine=e, threads=0) for e in ("sequential", engine)
    )
    assert gap(one.params, two.params) < 1e-9


def test_the_record_has_epsilon_and_the_mechanism_and_no_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    go(skewed(), tiny("fedla"), histogram_epsilon=0.5, out=tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["histogram_epsilon"] == 0.5 and config["histogram_noise"].startswith("discrete Laplace")
    assert "counts" not in config
    said = output_of(capsys, "show", tmp_path / "run")
    assert "label histograms: each told once with epsilon 0.5 (discrete Laplace, for one row more or less)" in said
    go(skewed(), tiny("fedla"), out=tmp_path / "plain")
    assert "histogram" not in (tmp_path / "plain" / "config.json").read_text()


def test_diagnostics_are_of_the_true_rows() -> None:
    """With the selection, too, they are the simulator's own."""
    method: Method = tiny("fedavg").with_(weighting=fs.weightings.Uniform())
    plain, noisy = (go(skewed(), method, histogram_epsilon=e, diagnose="coverage") for e in (None, 0.05))
    assert rows_of(plain) == rows_of(noisy)


@pytest.mark.parametrize("name", ["fedla", "fedir", "feddisco", "fednova"])
def test_sums_of_told_histograms(name: str) -> None:
    """With secure sums the server sees sums of what is told: the parameters of a run with noise alone."""
    told: dict[str, Any] = {"cohort": 4, "histogram_epsilon": 0.2}
    assert gap(go(skewed(), tiny(name), secure="sums", **told).params, go(skewed(), tiny(name), **told).params) < 1e-6


@pytest.mark.parametrize("name", PROBED)
def test_statistics_that_tell_the_histogram_are_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = mistake(capsys, "run", name, *SMALL, "--data", "digits", "--histogram-epsilon", "1")
    assert f"be unset for {name}, whose" in said


def test_a_report_names_the_epsilons() -> None:
    told = {"histogram_noise": "discrete Laplace"}
    runs = [made_run(seed=s, histogram_epsilon=e, **told) for s, e in ((0, 3.0), (1, 0.5))]
    entries = [LabelledRun("fedavg", str(r.config["histogram_epsilon"]), r.config["seed"], r) for r in runs]
    assert "Servers knew label histograms with differential privacy, epsilon 0.5, 3.0." in cautions(compare(entries))
    assert not any("histogram" in said for said in cautions(compare([LabelledRun("fedavg", "", 0, made_run())])))


def test_flower_is_refused() -> None:
    given: Any = (tiny("fedla"), skewed(), Settings(histogram_epsilon=1.0), 3, None, None)
    refused(lambda: protection_of(*given, outside=True), "be unset over Flower")
