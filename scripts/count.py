#!/usr/bin/env python
"""Lines of code by room: lines that hold a token, without blank lines, comments and docstrings.

python scripts/count.py             the package by rooms, and the plug-in papers apart
python scripts/count.py tests       another folder
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLANK = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(source: str) -> int:
    """The number of lines of ``source`` that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in BLANK:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        for statement in getattr(node, "body", []) if not isinstance(node, ast.Lambda | ast.IfExp) else []:
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                lines.difference_update(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
    return len(lines)


def rooms_of(folder: Path) -> Counter[str]:
    """Lines of code by room of a folder, "." of what stands in no room."""
    rooms: Counter[str] = Counter()
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).parts
        rooms[parts[0] if len(parts) > 1 else "."] += code_lines(path.read_text(encoding="utf-8"))
    return rooms


def main() -> None:
    """Prints a row for each room, largest first, and the total; then that of the plug-in, where no folder is named."""
    rooms = rooms_of(ROOT / (sys.argv[1] if len(sys.argv) > 1 else "src/fedskew"))
    for room, lines in rooms.most_common():
        print(f"{lines:7,} {room}")
    print(f"{rooms.total():7,} in all")
    if len(sys.argv) == 1:
        print(f"{rooms_of(ROOT / 'papers/src').total():7,} in papers/src, apart")


if __name__ == "__main__":
    main()
