"""The names of the tables, read from their source: completion must not wait for torch.

A table is a literal dictionary, whose keys stand in the text of its file, or all classes of a folder by their names.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

__all__ = ["SLOTS", "TABLES", "names"]

ROOT = Path(__file__).parents[1]
NAME = re.compile(r'^    name: ClassVar\[str\] = "(\w+)"', re.MULTILINE)
SLOTS = {  # what --NAME takes -> (file, dictionaries), or (files of classes that have a name,)
    "data": ("data/sources/*.py",),
    "partition": ("data/partitioners/*.py",),
    "model": ("models/architectures.py", "MODELS"),
    "parts": ("slots/parts.py", "PARTS"),
    "sampler": ("slots/samplers.py", "SAMPLERS"),
    "selector": ("slots/selectors.py", "SELECTORS"),
    "pace": ("slots/paces.py", "PACES"),
    "weighting": ("slots/weightings.py", "WEIGHTINGS"),
    "server": ("slots/servers.py", "SERVERS"),
    "local": ("slots/steps.py", "STEPS"),
}
TABLES = {
    **SLOTS,
    "method": ("methods/__init__.py", "METHODS"),
    "preset": ("config/presets/__init__.py", "PRESETS"),
    "diagnostic": ("records/diagnostics.py", "DIAGNOSTICS"),
    "tracker": ("track/__init__.py", "TRACKERS"),
    "figure": ("plots/rounds.py", "_WHOLE", "_DRAWN"),
    "measure of advice": ("advice/evidence.py", "MEASURES"),
    "measure": ("plots/skew.py", "MEASURES"),
}


@cache
def names(table: str) -> tuple[str, ...]:
    """The names of a table, sorted: ``names("server")`` holds "adam"."""
    if table == "protocol":
        return tuple(sorted(file.stem for file in (ROOT / "studies/papers/protocols").glob("*.toml")))
    file, *dictionaries = TABLES[table]
    if not dictionaries:
        return tuple(
            sorted(name for path in ROOT.glob(file) for name in NAME.findall(path.read_text(encoding="utf-8")))
        )
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return tuple(sorted(key for wanted in dictionaries for key in _keys(tree, wanted)))


def _keys(tree: ast.Module, wanted: str) -> Iterator[str]:
    """The words that are keys of a dictionary, or elements of a tuple, at the top of a file."""
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if not any(isinstance(target, ast.Name) and target.id == wanted for target in targets):
            continue
        value = getattr(node, "value", None)
        listed = value.keys if isinstance(value, ast.Dict) else getattr(value, "elts", [])
        yield from (key.value for key in listed if isinstance(key, ast.Constant) and isinstance(key.value, str))
