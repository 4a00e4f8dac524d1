"""A comparison of runs as one page; `build` and `from_folders` stay, all else may change: it trains nothing.

It reads run folders, and needs the extra ``report`` (Jinja2).
"""

from fedskew.report.entries import Entry, Trial, from_folders
from fedskew.report.page import build

__all__ = ["Entry", "Trial", "build", "from_folders"]
