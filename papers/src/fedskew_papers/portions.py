"""Parts of tables that wait for a GPU: a queue of small studies, most decisive first, worked off minutes at a time."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fedskew.seam import Pair, Spec, options_of_table, seeds_of, table_from
from fedskew_papers import FOLDER
from fedskew_papers.tables import Scale, protocol, scaled

QUEUE = FOLDER.parent / "portions.toml"


def portions(how: tuple[Pair, ...] = ()) -> Iterator[tuple[str, Spec]]:
    """The name and the study of each portion, in the order of the queue.

    Args:
        how: Options for all runs, such as the device.
    """
    for number, entry in enumerate(table_from(QUEUE)["portions"], 1):
        table = protocol(entry["table"])
        methods = tuple((label, options_of_table(each, label)) for label, each in entry.get("method", {}).items())
        options = (*options_of_table(entry.get("options", {}), "options"), *how)
        chosen = tuple(entry.get("settings", ())), tuple(entry.get("methods", ()))
        for seed in seeds_of(entry["seeds"]):
            yield f"{number}, {table.name}, seed {seed}", scaled(table.spec, Scale(options, (seed,), *chosen, methods))


@contextmanager
def limit(minutes: float) -> Iterator[list[bool]]:
    """As if somebody pressed Ctrl-C when the time is up, on which runs keep their whole rounds.

    Yields:
        What is no longer empty when the time is up; with 0 minutes it never is.
    """
    up: list[bool] = []

    def stop(*_: Any) -> None:
        up.append(True)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 60 * minutes)
    try:
        yield up
    except KeyboardInterrupt:
        if not up:
            raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
