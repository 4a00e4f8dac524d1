"""A comparison of runs as one page. Only `build` and `from_folders` are stable. Nothing here trains.

It reads run folders, and needs the extra ``report`` (Jinja2).
"""

from fedskew.report.entries import LabelledRun, Trial, from_folders
from fedskew.report.page import build

__all__ = ["LabelledRun", "Trial", "build", "from_folders"]
