"""The engine room, read as text: imports run one way."""

from __future__ import annotations

import ast
from pathlib import Path

ROOM = Path(__file__).parents[2] / "src" / "fedskew" / "engines"


def room_imports(path: Path) -> set[str]:
    """Modules of the room that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedskew.engines."):
            found.add(str(node.module).split(".")[2])
    return found


def test_imports_in_the_room_run_one_way() -> None:
    waiting = {path.stem: room_imports(path) for path in ROOM.glob("*.py")}
    assert waiting["__init__"] == {"base", "batched", "chained", "ray", "sequential", "stepper"}
    assert not waiting["base"] & {"batched", "sequential"} and waiting["programs"] == set()
    assert not waiting["stepper"] - {"programs", "captured", "dense"}
    del waiting["__init__"]  # alone imports the engine of the folder `ray`, which import-linter looks over
    while waiting:
        free = [name for name, needs in waiting.items() if not needs & waiting.keys()]
        assert free, f"these import each other: {sorted(waiting)}"
        for name in free:
            del waiting[name]
