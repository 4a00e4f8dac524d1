"""What five papers and third parties printed, the studies that repeat it, and the two side by side; a plug-in.

Nothing is imported here, so that the commands are listed at once.
"""

from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "protocols"

commands = {
    "reproduce": (
        "fedskew_papers.cli:reproduce",
        "Repeat a table or figure of the five papers, with our numbers beside the printed ones.",
    ),
    "ledger": ("fedskew_papers.cli:ledger", "Count how many of the papers' 1039 printed numbers agree with our runs."),
    "arbitrate": (
        "fedskew_papers.cli:arbitrate",
        "Judge each cell of a printed table, and search for what makes those that differ.",
    ),
    "portions": (
        "fedskew_papers.cli:portions",
        "Run the next parts of the papers' tables that wait for a GPU, for some minutes.",
    ),
}


@cache
def names() -> tuple[str, ...]:
    """The names of the protocols, paper by paper."""
    return tuple(sorted(file.stem for file in FOLDER.glob("*.toml")))
