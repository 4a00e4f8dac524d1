"""What a command of a plug-in may use to look like one of fedskew's. It imports no torch; see `fedskew.seam`."""

from fedskew.cli.base import Command, decorated
from fedskew.cli.interrupt import INTERRUPTED
from fedskew.cli.output import grid, say, show
from fedskew.cli.output import note as say_reused
from fedskew.cli.studying import print_plan, run_study, store_of, store_options, work_off
from fedskew.cli.values import FOLDER, Value

__all__ = [
    "FOLDER", "INTERRUPTED", "Command", "Value", "decorated", "grid", "print_plan", "run_study", "say", "say_reused",
    "show", "store_of", "store_options", "work_off",
]  # fmt: skip
