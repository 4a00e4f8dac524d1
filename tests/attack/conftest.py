"""What keeps fuzzed commands small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedskew.data.sources import parquet
from fedskew.engines.ray import pool as cluster
from fedskew.errors import DataError
from fedskew.session import Session


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Many clients of these federations have one class, of which a run warns."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:.*hardly trains here"))


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training ends after two rounds, as Ctrl-C would end it; nothing is downloaded, and no cluster is begun.

    Ray's own library waits without end in a process of bounded memory. tests/engines/ray attacks that engine.
    """
    run_round = Session.round

    def short(self: Session) -> Any:
        if len(self.rows) >= 2:
            raise KeyboardInterrupt
        return run_round(self)

    def offline(*_: Any, **__: Any) -> Any:
        raise DataError("no network in tests")

    monkeypatch.setattr(Session, "round", short)
    monkeypatch.setattr(parquet, "hub_tables", offline)
    monkeypatch.setattr(cluster, "find_spec", lambda _: None)
    monkeypatch.delenv("FEDSKEW_DATA", raising=False)
    monkeypatch.setenv("FEDSKEW_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "100")
