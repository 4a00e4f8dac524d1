"""The names of the tables, read from their source: completion must not wait for torch.

A table is a literal dictionary, whose keys stand in the text of its file, a file of imports, or every class of a folder
that has a name. The name of an ingredient stands in the text of its class.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SLOTS: dict[str, tuple[str, ...]] = {  # what --NAME takes -> (file, dictionaries); none of a file of imports
    "data": ("data/sources/*.py",),
    "partition": ("data/partitioners/*.py",),
    "model": ("models/*.py",),
    "parts": ("slots/parts.py",),
    "sampler": ("slots/samplers.py",),
    "selector": ("slots/selectors.py",),
    "pace": ("slots/paces.py",),
    "weighting": ("slots/weightings.py",),
    "server": ("slots/servers.py",),
    "local": ("slots/steps.py",),
}
TABLES: dict[str, tuple[str, ...]] = {
    **SLOTS,
    "method": ("methods/__init__.py",),
    "preset": ("config/presets/paces.toml",),
    "diagnostic": ("records/diagnostics.py", "DIAGNOSTICS"),
    "tracker": ("track/__init__.py", "TRACKERS"),
    "figure": ("plots/rounds.py", "_WHOLE", "_DRAWN"),
    "measure of advice": ("advice/evidence.py", "MEASURES"),
}


@cache
def names(table: str) -> tuple[str, ...]:
    """The names of a table, sorted: ``names("server")`` holds "adam"."""
    if table == "protocol":
        return tuple(sorted(file.stem for file in (ROOT / "papers/protocols").glob("*.toml")))
    file, *dictionaries = TABLES[table]
    source = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob(file))
    if "*" in file:
        found = {*re.findall(r'^    name: ClassVar\[str\] = "(\w+)"', source, re.M)}
    elif file.endswith(".toml"):
        found = {*re.findall(r"^\[(\w+)\.", source, re.M)}  # the first word of a table's name
    elif dictionaries:
        found = set()
        for node in ast.parse(source).body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            if isinstance(target, ast.Name) and target.id in dictionaries:
                value: Any = getattr(node, "value", None)
                found |= {ast.literal_eval(key) for key in getattr(value, "keys", None) or value.elts}
    else:
        named = _ingredients()
        imported = re.findall(r"^from .* import (\w+) as", source, re.M)
        found = {named.get(kind, kind) for kind in imported if kind in named or kind.islower()}
    return tuple(sorted(found))


@cache
def _ingredients() -> dict[str, str]:
    """The name of every ingredient by the name of its class."""
    texts = [f.read_text(encoding="utf-8") for room in ("methods", "method") for f in (ROOT / room).glob("*.py")]
    found = (re.match(r'(\w+).*?^    name = "(\w+)"', c, re.M | re.S) for t in texts for c in t.split("\nclass ")[1:])
    return {match[1]: match[2] for match in found if match}
