"""The examples in docstrings run as they are written."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

import pytest

import fedskew.functional
import fedskew.methods
import fedskew.shared
from fedskew import component, fields, method
from fedskew.methods import METHODS
from fedskew.slots import INGREDIENTS


def modules() -> list[ModuleType]:
    found = [component, fields, method]
    for package in (fedskew.methods, fedskew.shared, fedskew.functional):
        names = [m.name for m in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")]
        found += [package, *map(importlib.import_module, names)]
    return found


@pytest.mark.parametrize("module", modules(), ids=lambda m: m.__name__)
def test_examples_run(module: ModuleType) -> None:
    result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


INGREDIENT_CLASSES = [kind for table in INGREDIENTS.values() for kind in table.values()]


@pytest.mark.parametrize("thing", [*METHODS.values(), *INGREDIENT_CLASSES], ids=lambda t: t.__name__)
def test_every_method_and_every_ingredient_is_documented(thing: object) -> None:
    """A summary of one sentence, an example, and for factories what they take and return."""
    text = thing.__doc__ or ""
    summary = text.split("\n\n")[0]
    assert summary.endswith(".") and "\n" not in summary, summary
    assert "Example:" in text and ">>>" in text
    if thing in METHODS.values():
        assert "Returns:" in text and "Source:" in text
        for argument in thing.__annotations__.keys() - {"return"}:
            assert f"    {argument}: " in text, argument


def test_no_docstring_sends_the_reader_elsewhere() -> None:
    for module in modules():
        assert "See the class" not in Path(str(module.__file__)).read_text(encoding="utf-8"), module.__name__
