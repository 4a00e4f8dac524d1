"""``fedskew verify``: whether run folders are as their runs wrote them."""

from pathlib import Path

import click

from fedskew.cli.base import Command
from fedskew.cli.output import say
from fedskew.cli.values import RUN
from fedskew.errors import RecordError, plural

EXAMPLES = ("fedskew verify runs", "fedskew verify runs/fedavg runs/mixed")


@click.command(cls=Command, lines=EXAMPLES, missing="at least one run folder, or a folder that holds some")
@click.argument("runs", nargs=-1, metavar="RUN [RUN ...]", type=RUN)
def verify(runs: tuple[str, ...]) -> int:
    """Compare every file, round and record of run folders with the digests that the runs wrote.

    RUN is a run folder, or a folder that holds some. The exit code is 2 if anything was altered. Traces of a kill are
    not damage: `fedskew run --resume RUN` removes them.
    """
    from fedskew.config.recorded import find_runs
    from fedskew.records.folder import troubles

    damaged = 0
    for folder in find_runs([Path(run) for run in runs]):
        try:
            rounds, faults = troubles(folder)
        except RecordError as error:
            rounds, faults = 0, [str(error)]
        for trouble in faults:
            say(f"{folder}: ALTERED: {trouble}")
        if not faults:
            say(f"{folder}: whole, {plural(rounds, 'round')}")
        damaged += bool(faults)
    return 2 if damaged else 0
