"""Every ingredient by itself: the defaults of the papers, the limits of its fields, and rules between fields."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from fedskew.config.tables import TABLES
from fedskew.errors import ConfigError
from fedskew.fields import choices_of, hints_of, limits_of
from fedskew.method.paces import Staged
from fedskew.methods.fedetf import TunedCosineSoftmax
from fedskew.records.diagnostics import Diagnostics
from fedskew.settings import Settings
from fedskew.slots import INGREDIENTS
from support.paths import TESTS

TABLED = INGREDIENTS | {slot: TABLES[slot] for slot in ("data", "partition", "model")}
TABLED |= {"options": {kind.__name__: kind for kind in (Settings, Diagnostics)}}


def told(kind: Any) -> dict[str, str]:
    """Each field's default and what it must be."""
    found = {}
    for f in fields(kind):
        hint = hints_of(kind)[f.name]
        limits = [m.rule + ", or infinite" * m.infinite + f" ({m.hint})" * bool(m.hint) for m in limits_of(hint)]
        choices = [f"be one of {', '.join(map(str, choices_of(hint)))}"] if choices_of(hint) else []
        found[f.name] = "; must ".join([repr(getattr(kind(), f.name)), *limits, *choices])
    return found


def test_defaults_limits_and_choices_stay() -> None:
    """What is added is in the golden file once it is written again: `json.dumps(found, indent=0, sort_keys=True)`.

    What a method changes is in addresses.json.
    """
    held = json.loads((TESTS / "golden" / "ingredients.json").read_text(encoding="utf-8"))
    found = {f"{slot} {name}": told(kind) for slot, table in TABLED.items() for name, kind in table.items()}
    assert {name: {field: found[name].get(field) for field in own} for name, own in held.items()} == held


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
