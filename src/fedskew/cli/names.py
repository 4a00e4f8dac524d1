"""The names of the tables, read from their source: completion must not wait for torch.

A table is a literal dictionary, whose keys stand in the text of its file, a file of imports, or every class of a folder
that has a name. The name of an ingredient stands in the text of its class, whose bases say the slot.
"""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BASES = {  # class -> slot of what derives from it; `fedskew.slots` has the classes
    "Component": "parts", "Sampler": "sampler", "Selector": "selector", "Pace": "pace", "Weighting": "weighting",
    "ServerOptimizer": "server", "LocalStep": "local",
}  # fmt: skip
TABLES: dict[str, tuple[str, ...]] = {  # what --NAME takes -> (file, dictionaries)
    "data": ("data/sources/*.py",),
    "partition": ("data/partitioners/*.py",),
    "model": ("models/*.py",),
    "method": ("methods/__init__.py",),
    "preset": ("config/presets/paces.toml",),
    "diagnostic": ("records/diagnostics.py", "DIAGNOSTICS"),
    "tracker": ("track/__init__.py", "TRACKERS"),
    "figure": ("plots/rounds.py", "_WHOLE", "_DRAWN"),
    "measure of advice": ("advice/evidence.py", "MEASURES"),
}
SLOTS = ("data", "partition", "model", *BASES.values())


@cache
def names(table: str) -> tuple[str, ...]:
    """The names of a table, sorted: ``names("server")`` holds "adam"."""
    if table == "protocol":
        return tuple(sorted(file.stem for file in (ROOT / "papers/protocols").glob("*.toml")))
    if table in BASES.values():
        return tuple(sorted(name for name, slot in _ingredients().items() if slot == table))
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
        found = {*re.findall(r"^from .* import ([a-z]\w*) as", source, re.M)}
    return tuple(sorted(found))


@cache
def _ingredients() -> dict[str, str]:
    """The slot of every ingredient by its name."""
    texts = [f.read_text(encoding="utf-8") for room in ("methods", "method") for f in (ROOT / room).glob("*.py")]
    bases, named = dict[str, str](), dict[str, str]()
    for text in (text for whole in texts for text in whole.split("\nclass ")[1:]):
        if head := re.match(r"(\w+)\((\w+)", text):
            bases[head[1]] = head[2]
            if name := re.search(r'^    name = "(\w+)"', text, re.M):
                named[head[1]] = name[1]

    def slot(kind: str) -> str:
        return BASES.get(kind) or slot(bases[kind])

    return {name: slot(kind) for kind, name in named.items()}
