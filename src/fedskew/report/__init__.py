"""A comparison of runs as one page. It reads run folders and trains nothing. It needs the extra ``report`` (Jinja2)."""

from fedskew.report.entries import Entry, Trial, from_folders
from fedskew.report.page import build

__all__ = ["Entry", "Trial", "build", "from_folders"]
