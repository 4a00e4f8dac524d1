"""Every ingredient by itself: the defaults of the papers, the limits of its fields, and rules between fields."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from fedskew.errors import ConfigError
from fedskew.fields import hints_of, limits_of
from fedskew.method.paces import Staged
from fedskew.methods.fedetf import TunedCosineSoftmax
from fedskew.slots import INGREDIENTS
from support.paths import TESTS


def told(kind: Any) -> dict[str, str]:
    """Each field's default and what it must be."""
    limits = {name: [one.rule + ", or infinite" * one.infinite for one in limits_of(hint)]
              for name, hint in hints_of(kind).items()}  # fmt: skip
    return {f.name: "; must ".join([repr(getattr(kind(), f.name)), *limits[f.name]]) for f in fields(kind)}


def test_defaults_and_limits_stay() -> None:
    """They are in a golden file; defaults that a method changes are in that of the addresses."""
    held = json.loads((TESTS / "golden" / "ingredients.json").read_text(encoding="utf-8"))
    found = {f"{slot} {name}": told(kind) for slot, table in INGREDIENTS.items() for name, kind in table.items()}
    assert found == held


@pytest.mark.parametrize(
    ("kind", "field", "legal", "illegal"),
    [
        (Staged, "first", (5, 180), 4),
        (Staged, "second", (160,), 159),
        (TunedCosineSoftmax, "projection", (1, "linear"), "lines"),
    ],
)
def test_rules_between_fields_and_words(kind: Any, field: str, legal: tuple[Any, ...], illegal: Any) -> None:
    for value in legal:
        assert getattr(kind(**{field: value}), field) == value
    with pytest.raises(ConfigError, match=rf"must .*; got {illegal!r}"):
        kind(**{field: illegal})
