"""The studies of FedGA, Seol and Kim, and FedLA: each runs, says what its paper says, and has its printed numbers."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedskew import rng
from fedskew.config.experiment import Experiment
from fedskew.errors import DataError
from fedskew.studies import address
from fedskew.studies.spec import Cell, Spec
from fedskew.studies.store import read_archive
from fedskew.studies.study import Study
from fedskew.studies.work import Job, work
from fedskew_papers.printed import printed
from fedskew_papers.tables import names, protocol
from smoked import ROWS, smoked
from support.paths import ROOT

PAPERS = ("FedGA", "Seol-Kim", "FedLA")
OURS = [name for name in names() if protocol(name).paper in PAPERS]
CASES = [f"seolkim-case{n}" for n in (1, 2, 3, 4)]
# Printed numbers that no cell gives, and why
WITHOUT = {
    p.id: "computed from printed counts, without training" for p in printed() if p.setting.startswith("client c")
}
AT_HAND = ("mnist", "fashion_mnist", "cifar10", "cifar100")
# What a run is like, and not what is run
MACHINE = ("engine", "threads", "device", "dtype", "precision", "memory", "checkpoint_every", "format", "fit_logits")


@lru_cache(64)
def cells(name: str, scale: str = "paper") -> list[Cell]:
    """The runs of the first seed."""
    spec: Spec = protocol(name).at(scale)
    return list(replace(spec, seeds=spec.seeds[:1]).cells())


def made(cell: Cell) -> Experiment:
    assert cell.experiment is not None, cell.refused
    return cell.experiment


@pytest.mark.thorough
@pytest.mark.parametrize("name", OURS)
def test_a_protocol_runs_at_the_scale_of_a_test(name: str, tmp_path: Path) -> None:
    smoked(name, tmp_path)


@pytest.mark.parametrize("scale", ["small", "paper"])
@pytest.mark.parametrize("name", OURS)
def test_no_run_of_a_protocol_is_refused(name: str, scale: str) -> None:
    assert [cell.refused for cell in cells(name, scale) if cell.refused] == []


@pytest.mark.parametrize("name", OURS)
def test_the_rows_of_the_data_suffice_for_every_division(name: str) -> None:
    """A division is only drawn when a run begins: one that is impossible would fail after hours."""
    for scale in ("small", "paper"):
        told = {}
        for cell in cells(name, scale):
            one = made(cell)
            told[repr((one.partition, one.clients, one.data.name))] = one
        for one in told.values():
            labels = np.repeat(np.arange(len(ROWS[one.data.name])), ROWS[one.data.name])
            assert one.clients is not None
            sizes = one.partition.split(labels, one.clients, one.seed).sizes
            assert min(sizes) > 0, (scale, one.partition)
            wanted = getattr(one.partition, "samples", 0)
            assert not wanted or set(sizes) == {wanted}, (scale, one.partition)


@pytest.mark.parametrize("name", OURS)
def test_what_a_small_scale_reduces_is_said_with_its_cost(name: str) -> None:
    found = protocol(name)
    small, spec = found.scales["small"], found.at("small")
    assert "core-minute" in small.reduced or found.tables == ("1",)
    assert len(spec.seeds) == len(found.spec.seeds) or f"of {len(found.spec.seeds)}" in small.reduced
    assert [m.name for m in spec.methods] == [m.name for m in found.spec.methods]
    told = {"rounds": "rounds", "model": "instead of", "partition.samples": "rows a client", "lr": "rate"}
    for option, value in small.options:
        if option != "eval-every":
            assert told[option] in small.reduced and (option == "model" or str(value) in small.reduced), option
    assert len(spec.names) == len(found.spec.names) or re.search("distributions|sizes alone", small.reduced)


# The printed numbers


def test_every_printed_number_is_given_by_one_run_or_difference() -> None:
    told = Counter(number.id for name in OURS for number in protocol(name).numbers())
    wanted = {p.id for p in printed() if p.paper in PAPERS and p.kind != "input"} - set(WITHOUT)
    assert {id for id, times in told.items() if times > 1} == set()
    assert wanted - set(told) == set() and set(told) - wanted == set()


@pytest.mark.parametrize("name", OURS)
def test_a_metric_of_a_protocol_is_an_entry_of_every_summary(name: str, tmp_path: Path) -> None:
    rules = protocol(name).metrics.values()
    entries = {re.fullmatch(r"(?:change )?(\w+)(?: \* \d+)?", rule)[1] for rule in rules}
    spec = protocol(name).at("smoke")
    study = Study(replace(spec, methods=spec.methods[:1], baseline=""), tmp_path)
    (one,) = study.missing()
    assert work(Job(one.address, one.job, str(tmp_path))).state == "finished"
    assert entries <= set(study.table()[0])


# What the papers say


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_case_of_seol_and_kim_has_the_inputs_that_they_print(number: int) -> None:
    stated = {p.metric: p for p in printed() if p.table == "2" and p.setting == f"Case {number}"}
    assert len(stated) == 8
    one = made(next(c for c in cells(f"seolkim-case{number}") if c.label == "proposed"))
    got: dict[str, Any] = {
        "n_clients": one.clients, "theta_over": one.method.sampler.threshold, "eta_max": one.method.pace.lr,
        "theta_KLD": one.method.selector.threshold, "beta": one.method.pace.beta, "h_max_clients": one.cohort,
        "epochs": one.method.pace.epochs,
    }  # fmt: skip
    assert got == {key: stated[key].mean for key in got}
    alpha, rest = one.partition.alpha, one.partition.rest
    text = f"{alpha:g} for {200 - rest} clients; {one.partition.alpha_rest:g} for {rest} clients" if rest else alpha
    assert stated["dirichlet_alpha"].mean in (text, None) and (number == 2) == bool(rest)


@pytest.mark.parametrize("name", CASES)
def test_an_ablation_has_one_of_the_three_parts_and_the_baselines_pace(name: str) -> None:
    of = {cell.label: made(cell).method for cell in cells(name)}
    if name == "seolkim-case3":
        assert of.pop("proposed, clip 5") == of["proposed"].with_(local=replace(of["proposed"].local, clip=5.0))
    parts = {label: (m.sampler.name, m.selector.name, m.pace.name) for label, m in of.items()}
    assert parts == {
        "proposed": ("decaying_oversampling", "kld", "dynamic"),
        "FedAvg": ("shuffle", "random", "fixed"),
        "FedNova": ("shuffle", "random", "fixed"),
        "client selection": ("shuffle", "kld", "fixed"),
        "data sampling": ("decaying_oversampling", "random", "fixed"),
        "dynamic batch": ("shuffle", "random", "dynamic"),
        "proposed, a quarter willing": ("decaying_oversampling", "kld", "dynamic"),
        "client selection, a quarter willing": ("shuffle", "kld", "fixed"),
    }
    for label in ("proposed", "client selection"):
        assert of[label].selector.candidate_fraction == 1.0
        assert of[f"{label}, a quarter willing"].selector.candidate_fraction == 0.25
    for label in ("FedNova", "client selection", "data sampling"):
        assert of[label].pace == of["FedAvg"].pace
    assert of["dynamic batch"].pace == of["proposed"].pace
    assert (of["FedAvg"].pace.batch_size, of["FedAvg"].pace.lr) == ((10, 0.03) if name[-1] == "4" else (64, 0.1))


@pytest.mark.parametrize(("setting", "seen"), [("Case 4", range(190, 201)), ("Case 4, sizes 0.05", range(10, 12))])
def test_equal_sizes_tie_and_chance_decides_while_sizes_that_differ_freeze_the_cohort(
    setting: str, seen: range
) -> None:
    """Seol and Kim's figures have about as many rows as random clients, which equal sizes alone give."""
    one = made(next(cell for cell in cells("seolkim-case4") if cell.setting == setting))
    labels = np.repeat(np.arange(10), ROWS["mnist"])
    state = {"offered": torch.as_tensor(one.partition.split(labels, 200, 0).counts(labels, 10))}
    rounds = [one.method.selector.select(state, 10, rng.key(0, number, "select")) for number in range(1, 101)]
    assert len({int(client) for each in rounds for client in each.ids}) in seen
    rows = sum(int(each.quota.sum()) for each in rounds if each.quota is not None)
    of_random = 100 * 10 * float(state["offered"].sum()) / 200
    assert rows / of_random == pytest.approx(1.0 if setting == "Case 4" else 1.1, abs=0.02)


def test_a_small_quota_has_small_batches_at_almost_the_full_rate() -> None:
    """Case 3 diverged so: 115 rows of a client, 4 in a mini-batch, and 0.87 of the rate of 550 rows."""
    plan = made(cells("seolkim-case3")[0]).method.pace.of(torch.tensor([115, 550]), 13, 100)
    assert plan.batch.tolist() == [4, 22] and plan.steps.tolist() == [25, 25]
    assert [round(float(rate), 4) for rate in plan.lr] == [0.0844, 0.0971]


def test_case_2_beside_case_1_are_runs_of_these_cases() -> None:
    of = {cell.label: made(cell) for cell in cells("seolkim-case2-case1")}
    for number in (1, 2):
        one = made(next(c for c in cells(f"seolkim-case{number}") if c.label == "proposed"))
        assert of[f"proposed Case {number}"] == one


@pytest.mark.parametrize("name", [name for name in OURS if name.startswith("fedla-")])
def test_a_distribution_of_fedla_is_what_its_name_says(name: str) -> None:
    seen = set()
    for cell in cells(name):
        one, told = made(cell), dict(part.split("=") for part in cell.setting.split(", ") if part != "iid")
        part = one.partition
        assert one.clients == 10 and one.cohort == 10 * float(told["k_r"])
        owned, share = (part.unique_c, part.noniid_s) if part.noniid_s else ("", 0)
        assert (str(owned), share) == (told.get("unique_c", ""), float(told.get("noniid_s", 0)))
        assert (one.local_test, one.rounds, one.method.pace.batch_size) == (0.2, 100, 256)
        seen.add(cell.setting)
    assert len(seen) == {"fedla-cifar100": 52, "fedla-emnist": 84}.get(name, 40)


@pytest.mark.parametrize("name", [name for name in OURS if name.startswith("fedga-")])
def test_a_setting_of_fedga_is_what_its_name_says(name: str) -> None:
    for cell in cells(name):
        key, _, value = cell.setting.partition("=")
        one = made(cell)
        assert float(value) == (one.partition.alpha if key == "alpha" else one.longtail)
        assert key == "ratio" or (one.clients, one.cohort, one.method.local.clip) == (100, 10, 5.0)


@pytest.mark.parametrize(("part", "whole"), [("figure2", "figure6"), ("figure4", "table1-cifar10")])
def test_figures_of_fedga_share_their_runs(part: str, whole: str) -> None:
    there = [made(cell) for cell in cells(f"fedga-{whole}")]
    assert all(made(cell) in there for cell in cells(f"fedga-{part}"))


# What has been run


def what(content: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in Experiment.from_json(content).to_json().items() if k not in MACHINE}


@pytest.mark.parametrize(("file", "small"), [("seolkim-case4", ()), ("seolkim-cases", ("seolkim-case1",))])
def test_every_finished_run_of_the_archive_is_a_run_of_these_studies(file: str, small: tuple[str, ...]) -> None:
    every = [cell for name in CASES for cell in cells(name)] + [cell for name in small for cell in cells(name, "small")]
    planned = [what(replace(made(cell), seed=seed).to_json()) for cell in every for seed in range(10)]
    for run in read_archive(ROOT / f"results/papers/{file}.jsonl"):
        assert what(run.config) in planned, run.address


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for name in OURS if dict(protocol(name).spec.options)["data"] in AT_HAND])
def test_every_run_at_the_scale_of_the_paper_has_an_address(name: str, tmp_path: Path) -> None:
    if not os.environ.get("FEDSKEW_DATA"):
        pytest.skip("FEDSKEW_DATA is unset: addresses need the data")
    spec = protocol(name).spec
    planned = Study(replace(spec, seeds=spec.seeds[:1]), tmp_path).plan()
    assert [one.cell.refused for one in planned if not one.address] == []


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
    monkeypatch.setattr(address, "SLOW", slow)
    monkeypatch.setattr(address, "REMEMBERED", remembered)
    monkeypatch.setattr(address, "_absent", {})
    data = Missing()
    for _ in range(5):
        with pytest.raises(DataError, match="not at hand"):
            address.dataset_of(data, None)
    assert len(data.asked) == times
