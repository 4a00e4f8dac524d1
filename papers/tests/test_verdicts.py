"""Claims: what their texts name is read from runs, and their word is computed."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest

from fedskew.config.recorded import Run
from fedskew.errors import ConfigError
from fedskew.studies.shipped import shipped
from fedskew.studies.spec import read_spec
from fedskew_papers import verdicts
from fedskew_papers.printed import printed
from fedskew_papers.rows import Row, rows_of
from fedskew_papers.runs import Runs
from fedskew_papers.tables import protocol
from fedskew_papers.verdicts import VERDICTS, Claim, Evidence, Outcome

NAME = "fedga-table1-mnist"
# Gains over FedAvg in points; the seed moves every method alike but FedGA
GAINS = {"FedAvg": 0.0, "FedProx": 0.0, "FedRL": -3.0, "CLIMB": 0.3, "FedNTD": 1.4, "FedGA": 3.6}
PLACE = f"{NAME} | alpha=0.1"


@cache
def evidence(seeds: int = 5, gains: tuple[tuple[str, float], ...] = (), **more: float) -> Evidence:
    """The ledger of made runs of one table, all settings alike."""
    entries, held = [], {**GAINS, **dict(gains)}
    for cell in protocol(NAME).spec.cells():
        if cell.seed >= seeds:
            continue
        assert cell.experiment is not None
        score = 0.8 + held[cell.label] / 100 + cell.seed / 100 + (cell.label == "FedGA") * (-1) ** cell.seed / 1000
        summary = {"rounds": 100, "stopped": "", "final_accuracy": score, "final_macro_f1": score, **more}
        entries.append(Run(Path("a" * 16), cell.experiment.to_json(), [], summary))
    runs = Runs(entries)
    return Evidence(rows_of(protocol(NAME), "paper", runs), runs)


def test_a_text_is_filled_from_the_runs_and_left_out_below_five_seeds() -> None:
    text = f"{{gain {PLACE} | FedGA | FedAvg}} points, {{level {PLACE} | FedNTD}}."
    # five differences of 3.6 + 0.1 (-1)^seed: mean 3.62, deviation 0.1095, t of 4 degrees of freedom 2.776
    assert evidence().fill(text) == "+3.6 (+3.5 to +3.8) points, 0.834 where 0.863 ± 0.004 is printed."
    assert evidence(4).fill(text) is None
    assert evidence().fill(f"{{count gain {PLACE} | FedGA | * > 0}}") == "5 of 5"
    assert evidence().fill(f"{{count gain {PLACE} | FedRL | * > 0}}") == "0 of 5 (the reverse in 5)"
    assert (
        evidence(total_samples=7.0).fill(f"{{ratio {PLACE} | FedGA | FedAvg | total_samples}}") == "1.00 (1.00 to 1.00)"
    )
    assert evidence().fill("{printed fedga-024} and {printed fedga-024 - fedga-019}") == "0.885 ± 0.001 and +3.6"
    assert evidence().fill("{first FedGA | 1 | FedGA}") == "34 of 50"
    told = evidence().fill("{logs CIFAR-100 | k_r=0.1}")
    assert told is not None and told.endswith("above 0 in 5 of 12 configurations")


@pytest.mark.parametrize(
    ("condition", "met"),
    [
        ("FedGA | FedAvg > 0", True), ("FedGA | FedAvg < 0", False), ("FedRL | FedAvg < 0", True),
        ("FedGA | FedAvg = printed", True), ("FedRL | FedAvg = printed", False), ("FedGA | FedAvg > 3.6", None),
    ],
)  # fmt: skip
def test_a_condition_is_met_by_an_interval_or_by_the_ledger(condition: str, met: bool | None) -> None:
    assert evidence().outcomes(f"gain {PLACE} | {condition}") == [Outcome(met, 5)]
    assert not evidence(4).outcomes(f"gain {PLACE} | {condition}")[0].there


@pytest.mark.parametrize(
    ("quantity", "told"),
    [
        ("gains a | b", "unknown kind of quantity 'gains'; did you mean 'gain'"),
        (f"gain {PLACE}", "have 4 to 5 parts"),
        (f"gain {PLACE} | FedGB | FedAvg", "unknown method 'FedGB'"),
        (f"gain {NAME} | alpha=3 | FedGA | FedAvg", "unknown setting 'alpha=3'"),
        ("printed fedga-9999", "unknown printed number"),
    ],
)
def test_a_quantity_that_is_none_is_one_line(quantity: str, told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)) as raised:
        evidence().fill(f"{{{quantity}}}")
    assert "\n" not in str(raised.value)
    with pytest.raises(ConfigError, match="condition must be a quantity with"):
        evidence().outcomes(f"gain {PLACE} | FedGA | FedAvg")


def test_a_gain_across_settings_has_a_value_for_each_and_wants_all(monkeypatch: pytest.MonkeyPatch) -> None:
    quantity = "across fedla-labels47 | model mlp, * | fedla | uniform"
    runs = {at: {0: (0.5, 0.4), 1: (0.5, 0.2)} for at, _ in read_spec(shipped("fedla-labels47")).axes}
    monkeypatch.setattr(Evidence, "pairs", lambda self, study, at, *names: runs[at])
    (found,) = Evidence((), Runs(())).find(quantity)
    assert found.values == pytest.approx([20.0] * 20) and found.seeds == 0
    assert found.text.endswith(", above 0 in 20 of 20 settings")
    runs["model mlp, partition.unique_c 6, partition.noniid_s 0.7"] = {}
    assert Evidence((), Runs(())).find(quantity)[0].text == ""


def test_the_word_follows_from_the_conditions() -> None:
    of = lambda *met: verdicts.word_of([Outcome(one, 5) for one in met])
    assert (of(True, True), of(True, None), of(True, False)) == ("holds", "holds in part", "does not hold here")
    assert (of(None, False), of(None), of()) == ("does not hold here", "not resolved", "not testable here")
    assert verdicts.word_of([Outcome(None, there=False)]) == "no verdict"
    claim = Claim(
        "FedGA",
        "it gains",
        ("Told.", f"Gain {{gain {PLACE} | FedGA | FedAvg}}."),
        (f"gain {PLACE} | FedGA | FedAvg > 0",),
    )
    found, few = verdicts.verdict_of(claim, evidence()), verdicts.verdict_of(claim, evidence(4))
    assert (found.word, found.seeds, few.word, few.evidence) == ("holds", (5,), "no verdict", "Told.")
    assert verdicts.verdict_of(claim, evidence(gains=(("FedGA", -3.0),))).word == "does not hold here"


def typed(claim: Claim) -> set[str]:
    """Numbers that stand in a claim's texts outside of braces, but settings and what its paper prints."""
    told = " ".join([*(re.sub(r"\{.+?\}", "", text) for text in claim.evidence), claim.cause])
    told = re.sub(r"alpha[= ][\d.]+|k_r=[\d.]+", "", told)
    known = {f"{p.mean:g}" for p in printed() if p.paper == claim.paper and p.mean is not None}
    return {n for n in re.findall(r"\d+\.\d+", told) if n not in known} | {
        *re.findall(r"\d+ (?:points|of|seeds)", told)
    }


@pytest.mark.thorough
def test_every_claim_names_what_there_is() -> None:
    nothing = Evidence([Row(p) for p in printed()], Runs([]))
    assert {verdicts.verdict_of(claim, nothing).word for claim in verdicts.claims()} <= {*VERDICTS}


def test_no_claim_types_a_number_of_ours() -> None:
    assert [claim.claim for claim in verdicts.claims() if typed(claim)] == []
    assert typed(Claim("FedGA", "it gains", ("At alpha=0.05 it gains 2.13 over 0.812, in 4 of 5.",))) == {
        "2.13",
        "4 of",
    }


def test_speed_is_rounds_to_a_share_of_the_run_s_own_last_accuracy() -> None:
    """FedGA's text: the time to 90 % of the final accuracy, not to an accuracy of 0.9."""
    rows = [{"round": r, "accuracy": a} for r, a in ((1, 0.2), (2, None), (3, 0.46), (4, 0.44), (5, 0.5))]
    run = Run(Path("a" * 16), {}, rows, {"final_accuracy": 0.5})
    assert [verdicts._reaches(run, share) for share in (0.3, 0.9, 1.0)] == [1, 3, 5]


def test_a_study_that_is_no_protocol_is_read_from_its_archive(tmp_path: Path) -> None:
    """`fedgr-readings` crosses settings with networks and labels: each is named as its tables name it."""
    spec = read_spec(shipped("fedgr-readings") or "")
    place = "the code's pace, model mlp, partition.labels 2"
    with (tmp_path / "fedgr-readings.jsonl").open("w") as file:
        for cell in spec.cells():
            if cell.setting == place and cell.experiment is not None and cell.label.startswith("FedAvg"):
                score = 0.5 + 0.1 * (cell.label == "FedAvg, uniform") + cell.seed / 100
                summary = {"rounds": 40, "stopped": "", "state": "finished", "mean10_accuracy": score}
                line = {"address": "a" * 16, "config": cell.experiment.to_json(), "summary": summary}
                file.write(json.dumps({**line, "rows": [], "env": {}}) + "\n")
    quantity = f"gain fedgr-readings | {place} | FedAvg, uniform | FedAvg, by size | mean10_accuracy"
    evidence = Evidence([], Runs([]), tmp_path)
    assert evidence.fill(f"{{{quantity}}}") == "+10.0 (+10.0 to +10.0)"
    assert evidence.outcomes(f"{quantity} > 0") == [Outcome(True, 5)]
    assert Evidence([], Runs([]), tmp_path / "none").fill(f"{{{quantity}}}") is None
    with pytest.raises(ConfigError, match="unknown study 'fedgr-reading'; did you mean 'fedgr-readings'"):
        evidence.fill("{gain fedgr-reading | a | b | c}")
