"""The methods that stand for all in `make test`."""

from __future__ import annotations

from typing import Any

from fedskew.methods import METHODS
from support.methods import BY_HOOK, BY_SIGNATURE, NAMES, signature


def chosen(cases: list[Any]) -> set[str]:
    return {case for case in cases if isinstance(case, str)}


def of(names: Any) -> set[frozenset[str]]:
    return {signature(METHODS[name]()) for name in names}


def test_representatives_have_every_signature_and_every_hook() -> None:
    assert of(chosen(BY_SIGNATURE)) == of(NAMES) and len(chosen(BY_SIGNATURE)) == len(of(NAMES))
    assert frozenset().union(*of(chosen(BY_HOOK))) == frozenset().union(*of(NAMES))
    assert len(BY_HOOK) == len(BY_SIGNATURE) == len(NAMES) > 2 * len(chosen(BY_HOOK))
