"""The examples in the docstrings run and show what the code returns."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from types import ModuleType

import pytest
import torch

import fedskew
import fedskew_papers
from fedskew.methods import METHODS
from fedskew.slots import INGREDIENTS

EXTRAS = {"datasets", "flwr", "matplotlib", "pyarrow", "ray", "tensorboard"}  # packages that an extra installs
OPTIONS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
MODULES = sorted(
    module.name
    for package in (fedskew, fedskew_papers)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if not module.name.endswith("__main__")
)


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in EXTRAS:
            pytest.skip(f"{name} needs {error.name}")
        raise


@pytest.mark.parametrize("name", ["fedskew", *MODULES])
def test_examples_run(name: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # an example may write a file
    if name.startswith("fedskew.plots"):
        pytest.importorskip("matplotlib")
    module = _imported(name)
    runner, told = doctest.DocTestRunner(optionflags=OPTIONS), list[str]()
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, name):
        with torch.random.fork_rng(devices=[]):
            runner.run(test, out=told.append)
    assert not runner.failures, "".join(told)


def test_every_function_of_the_mathematics_has_an_example() -> None:
    functional = importlib.import_module("fedskew.functional")
    without = [name for name in functional.__all__ if ">>>" not in (getattr(functional, name).__doc__ or "")]
    assert not without


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
