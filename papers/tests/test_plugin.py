"""The package is a plug-in: it imports what is named for plug-ins alone, and lists its commands without torch."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import fedskew_papers
from fedskew.cli.command import root

SOURCES = sorted(Path(str(fedskew_papers.__file__)).parent.glob("*.py"))
SEAM = ("fedskew.seam", "fedskew.cli.seam", "fedskew.functional")


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: file.stem)
def test_only_the_seam_is_imported(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert all(alias.name.partition(".")[0] != "fedskew" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "fedskew":
            assert node.module in (*SEAM, "fedskew.errors"), f"line {node.lineno}: {node.module}"
            names = {alias.name for alias in node.names}
            assert node.module not in SEAM or names <= set(importlib.import_module(node.module).__all__)


@pytest.mark.parametrize("name", fedskew_papers.commands)
def test_the_list_of_commands_says_what_their_help_says(name: str) -> None:
    assert fedskew_papers.commands[name][1] == root.commands[name].get_short_help_str(200)
