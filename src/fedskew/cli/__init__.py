"""The command ``fedskew``; options, exit codes and `seam` are public, all else may change: nothing imports it."""

from fedskew.cli import interrupt

interrupt.begin()  # before the entry point imports anything: imports take time in which Ctrl-C may come
