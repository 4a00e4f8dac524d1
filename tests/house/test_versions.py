"""The versions that are promised are those that are tested: pyproject, constraint files and workflow agree."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from support.paths import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
# The extras whose oldest versions are tested.
PROMISED = ("hub", "plot", "report", "secure", "dp", "ray", "dev")
# These look at the source and have no part in the tests.
UNTESTED = {"import-linter", "mypy", "pre-commit", "ruff"}
# A floor that nobody can install, and what the oldest is instead.
WITHDRAWN = {"pytest-xdist": "3.6.1"}


def _required(*extras: str) -> dict[str, Requirement]:
    """What pyproject asks for, by name; extras of fedskew itself are left out."""
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in EXTRAS[extra])]
    found = [Requirement(line) for line in lines]
    return {canonicalize_name(r.name): r for r in found if r.name != "fedskew"}


def _pins(name: str) -> dict[str, SpecifierSet]:
    """Names and versions of a constraint file."""
    lines = [line.split("#")[0].strip() for line in (ROOT / name).read_text(encoding="utf-8").splitlines()]
    return {canonicalize_name(r.name): r.specifier for r in map(Requirement, filter(None, lines))}


def _floor(requirement: Requirement) -> str:
    (floor,) = [s.version for s in requirement.specifier if s.operator == ">="]
    return floor


def _pin(specifiers: SpecifierSet) -> str:
    (pin,) = [s.version for s in specifiers if s.operator == "=="]
    return pin


def test_python_has_a_floor_and_no_cap() -> None:
    operators = {s.operator for s in SpecifierSet(PROJECT["requires-python"])}
    assert operators == {">="}, "an upper cap keeps users of a new Python from a package that may well work there"


def test_every_python_that_is_promised_is_tested() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    rows = workflow["jobs"]["make"]["strategy"]["matrix"]["include"]
    tested = {row["python"] for row in rows if row["target"] in ("check", "test", "test-all")}
    named = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if c.startswith("Programming Language :: Python ::")]
    assert tested == {version for version in named if "." in version}
    (floor,) = SpecifierSet(PROJECT["requires-python"])
    assert min(tested, key=Version) == floor.version
    assert {row.get("constraints") for row in rows if row["python"] == floor.version} >= {"constraints-lowest.txt"}


@pytest.mark.parametrize("name", sorted(set(_required(*PROMISED)) - UNTESTED))
def test_the_lowest_versions_are_the_floors(name: str) -> None:
    requirement = _required(*PROMISED)[name]
    if not requirement.specifier:
        return  # no floor is promised
    pins = _pins("constraints-lowest.txt")
    assert name in pins, f"{requirement} of pyproject.toml has no line in constraints-lowest.txt"
    pin = Version(_pin(pins[name]))
    floor = Version(WITHDRAWN.get(name, _floor(requirement)))
    # "build>=1.2" is met first by 1.2.1, where there is no 1.2.0: the pin lies within what the floor spells out
    assert pin.release[: len(floor.release)] == floor.release and pin in requirement.specifier


@pytest.mark.parametrize("file", ["constraints.txt", "constraints-lowest.txt", "constraints-flower.txt"])
def test_constraints_meet_the_requirements(file: str) -> None:
    """Flower pins an older ray than the engine ray needs, so its extra has an environment and versions of its own."""
    pins = _pins(file)
    for name, requirement in _required(*(["flower"] if "flower" in file else EXTRAS)).items():
        if name in pins:
            assert _pin(pins[name]) in requirement.specifier, f"{file} pins {name} outside of {requirement}"


def test_the_site_is_built_with_pinned_versions() -> None:
    missing = {canonicalize_name(Requirement(line).name) for line in EXTRAS["docs"]} - _pins("constraints.txt").keys()
    assert missing == {"fedskew"}
