"""The command ``fedskew``."""

from fedskew.cli import interrupt

interrupt.begin()  # before the entry point imports anything: imports take time in which Ctrl-C may come
