"""The examples of the gallery."""

from __future__ import annotations

import re
from pathlib import Path

from support.paths import ROOT

PAGES = sorted(path for path in (ROOT / "examples/gallery").glob("*.md") if path.stem != "index")
CELL = re.compile(r"^```\{code-cell\} python\n(?:---\n(?P<about>.*?)\n---\n)?(?P<code>.*?)^```$", re.M | re.S)
SHOWN = "\nassert (shown or plt.gcf()).axes, 'no picture'\n"


def cells_of(page: Path) -> list[re.Match[str]]:
    """The cells of an example, with what is said ``about`` each and its ``code``."""
    return list(CELL.finditer(page.read_text(encoding="utf-8")))


def script_of(page: Path) -> str:
    """An example as one script, which fails without a picture: the value of its last line, or pyplot's figure."""
    *lines, last = "".join(cell["code"] for cell in cells_of(page)).rstrip("\n;").splitlines()
    named = "shown = " if re.match(r"\w+\.plot\(", last) else "import matplotlib.pyplot as plt\nshown = None\n"
    return "\n".join([*lines, f"{named}{last}{SHOWN}"])
