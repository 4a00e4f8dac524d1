"""Types of records: what JSON can spell and Python cannot write is one line, too."""

from __future__ import annotations

from fedskew.records.typed import entries, fault_of


def test_half_of_a_surrogate_pair_is_a_fault_of_its_own() -> None:
    kind = entries("Row", {"round": int})
    assert fault_of({"\ud800": "x"}, kind) == "its text must be Unicode; got '\\ud800'"
    assert fault_of({"round": 1}, kind) == ""
