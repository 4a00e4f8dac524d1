"""What the engine was asked."""

from __future__ import annotations

from typing import Any

import pytest

from fedskew.engines import LocalEngine
from fedskew.method import Component, Method
from fedskew.types import Answers, Query
from support.by_hand import Asked


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Every question that is put to the engine: (round, question, answers)."""
    seen: Asked = []
    plain = LocalEngine.query

    def query(self: Any, query: Query, part: Component, method: Method, broadcast: Any) -> Answers:
        answers = plain(self, query, part, method, broadcast)
        seen.append((broadcast.round, query, answers))
        return answers

    monkeypatch.setattr(LocalEngine, "query", query)
    return seen
