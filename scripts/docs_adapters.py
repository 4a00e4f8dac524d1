"""Write the table of methods that train adapters into notes/adapters.md; minutes, with the extra hf.

python scripts/docs_adapters.py
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
PAGE = ROOT / "notes" / "adapters.md"
PLAIN = "| yes | yes | 1.00 |\n"
BEGIN, END = "<!-- table of methods -->\n", "<!-- end of table -->\n"


def main() -> None:
    """Try every method on text and on images."""
    from fedskew.methods import METHODS
    from support.adapters import tried

    warnings.simplefilter("ignore")
    lines = ["| method | text | images | bytes up, of adapters and head |\n", "|---|---|---|---|\n"]
    for name in METHODS:
        found = [tried(name, family) for family in ("bert", "vit")]
        words = [
            one.error or ("yes" if one.same and one.moved else f"same {one.same}, moved {one.moved}") for one in found
        ]
        sent = " ".join(dict.fromkeys(f"{one.sent:.2f}" for one in found if not one.error))
        line = f"| {name} | {' | '.join(words)} | {sent} |\n"
        print(line, end="", flush=True)
        lines += [] if line.endswith(PLAIN) else [line]
    lines.append(f"| {len(METHODS) + 2 - len(lines)} others {PLAIN}")
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(before + BEGIN + "\n" + "".join(lines) + "\n" + END + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    main()
