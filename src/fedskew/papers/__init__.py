"""What the five papers and a third party printed, the studies that repeat it, and the two side by side.

A room of its own: the library does not know it, and the commands ``reproduce`` and ``ledger`` enter it here.
"""

from fedskew.papers.printed import PAPERS, THIRD
from fedskew.papers.rows import STATES, TOTAL, Row, coverage, ledger, rows_of
from fedskew.papers.runs import HERE, Runs
from fedskew.papers.tables import SCALES, Protocol, Scale, names, protocol, scaled

__all__ = [
    "HERE", "PAPERS", "SCALES", "STATES", "THIRD", "TOTAL", "Protocol", "Row", "Runs", "Scale", "coverage", "ledger",
    "names", "protocol", "rows_of", "scaled",
]  # fmt: skip
