"""What `--json` prints is what the contracts promise, and has no entry that they do not name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest

from fedskew.cli.command import TITLES
from support.command import SMALL, fedskew, output_of
from support.scheduling import without_workers
from support.scripts import script

CONTRACTS = script("scripts/docs_contracts.py").CONTRACTS
TABLE = ("--data", "csv", "--data.path")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs on a table with hospitals, one of a method with own models, and new rows without labels."""
    folder = tmp_path_factory.mktemp("contracts")
    lines = [f"{20 + i % 9 + 5 * (i % 2)},{'abc'[i % 3]},{('well', 'ill')[i % 2]}" for i in range(120)]
    (folder / "rows.csv").write_text("\n".join(["age,hospital,label", *lines]))
    (folder / "new.csv").write_text("age\n21\n33\n")
    words = [*TABLE, folder / "rows.csv", "--data.columns", "hospital", "--partition", "natural", "--model", "logistic"]
    more = ["--rounds", 2, "--validation", 0.2, "--keep-own", "true"]
    assert fedskew("run", "ditto", *words, *more, "--out", folder / "runs/table") == 0
    assert fedskew("run", "fedavg", *SMALL, "--local-test", 0.2, "--out", folder / "runs/digits") == 0
    return folder


def _is_as_promised(name: str, *words: object) -> Any:
    printed = output_of(*words, "--json")
    found = msgspec.json.decode(printed)  # which refuses NaN and infinity
    msgspec.json.decode(printed, type=CONTRACTS[name].kind)
    kind = CONTRACTS[name].kind
    entries = get_type_hints(getattr(kind, "__args__", (kind,))[-1])
    rows = found if isinstance(found, list) else [found]
    assert rows
    for row in rows:
        assert {entry for entry in row if not entry.startswith(("recall ", "rows "))} <= set(entries)
    return found


def test_describe(runs: Path, tmp_path: Path) -> None:
    _is_as_promised("describe", "describe", "--clients", 10)
    more = ("--longtail", 10, "--auxiliary", 1, "--validation", 0.1, "--local-test", 0.1, "--heldout-clients", 0.2)
    _is_as_promised("describe", "describe", "--clients", 10, "--partition", "shared", *more[2:4])
    _is_as_promised("describe", "describe", "--clients", 10, *more)
    (tmp_path / "counts.csv").write_text("4,0\n2,9\n")
    _is_as_promised("describe", "describe", tmp_path / "counts.csv")
    assert fedskew("partition", "make", "--clients", 4, "--local-test", 0.1, "--out", tmp_path / "split.npz") == 0
    _is_as_promised("describe", "describe", tmp_path / "split.npz")


def test_methods() -> None:
    assert len(_is_as_promised("methods", "methods")) > 60


def test_runs(runs: Path) -> None:
    assert len(_is_as_promised("runs", "runs", runs / "runs")) == 2


@pytest.mark.parametrize("words", [("--partition", "labels_k"), ("--partition", "iid"), ("--from", "RUN")])
def test_advise(words: tuple[str, ...], runs: Path) -> None:
    given = [runs / "runs/digits" if word == "RUN" else word for word in words]
    _is_as_promised("advise", "advise", *given)


def test_rehearse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_workers(monkeypatch)
    (tmp_path / "sites.csv").write_text("ill,well\n20,9\n9,20\n")
    words = ("--data", "digits", "--rounds", 2, "--model", "logistic", "--seeds", 0, "--store", tmp_path / "store")
    _is_as_promised("rehearse", "rehearse", tmp_path / "sites.csv", "--processes", 1, *words)


def test_evaluate(runs: Path) -> None:
    table, rule = runs / "runs/table", ("--positive", "ill", "--threshold", "recall@specificity=0.8")
    new = (*TABLE, runs / "new.csv")
    _is_as_promised("evaluate", "evaluate", runs / "runs/digits", "--fitted")
    assert _is_as_promised("evaluate", "evaluate", table, *rule)["one_against_rest"]["clients"].keys() == {*"abc"}
    _is_as_promised("evaluate", "evaluate", table, "--client", "a", "--positive", "ill")
    _is_as_promised("evaluate-new", "evaluate", table, *new)
    assert len(_is_as_promised("evaluate-new", "evaluate", table, *rule, *new)["decided"]) == 2
    _is_as_promised("evaluate-clients", "evaluate", table, "--by", "client")


def test_a_contract_refuses_what_is_otherwise() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"expected|Expected|missing"):
        msgspec.convert({"clients": "ten"}, CONTRACTS["describe"].kind)


def test_every_command_that_prints_json_has_a_contract() -> None:
    told = {}
    for name in (name for names in TITLES.values() for name in names):
        told[name] = "--json" in output_of(name, "--help")
    assert {name for name, prints in told.items() if prints} == {name.partition("-")[0] for name in CONTRACTS}
