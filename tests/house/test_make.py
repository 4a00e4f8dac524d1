"""What the Makefile names is there: pytest's markers, and the files that its targets run."""

from __future__ import annotations

import re
import tomllib

from support.paths import ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def test_the_markers_that_make_leaves_out_are_pytests() -> None:
    """pytest ends with a usage error on a marker that it does not know."""
    expression = " ".join(re.findall(r"^(?:MARKERS|QUICK) := (.*)$", MAKEFILE, re.M))
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    known = {line.split(":")[0] for line in options["markers"]}
    assert set(re.findall(r"not (\w+)", expression)) == known


def test_the_files_that_make_runs_exist() -> None:
    named = set(re.findall(r"\b(?:scripts|benchmarks)/[\w./]+", MAKEFILE)) - {"benchmarks/.envs"}  # made by a target
    assert named and all((ROOT / path.rstrip(".")).exists() for path in named), named
