"""``--track`` and ``--track.folder``, of every command that trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fedskew.cli.base import decorated
from fedskew.cli.names import names
from fedskew.cli.values import FOLDER, Names
from fedskew.errors import ConfigError

if TYPE_CHECKING:
    from fedskew.track import Named


track_options = decorated(
    click.option(
        "--track", metavar="NAME,...", type=Names("tracker", True),
        help=f"trackers that follow every round: {', '.join(names('tracker'))}",
    ),
    click.option("--track.folder", "track_folder", type=FOLDER, help="a folder for their files  [default: track]"),
)  # fmt: skip


def trackers(listed: str | None, folder: str | None) -> Named | None:
    """What the options name. Raises ConfigError for an unknown name, and where a package is missing."""
    if listed is None:
        if folder is not None:
            raise ConfigError("--track.folder must go with --track")
        return None
    from fedskew.track import named

    return named(listed, folder)
