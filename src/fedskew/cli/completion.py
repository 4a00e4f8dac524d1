"""``fedskew completion``: the script that makes a shell complete commands, names, options and values on Tab."""

from __future__ import annotations

import os
from typing import Literal

import click
from click.shell_completion import get_completion_class, shell_complete

from fedskew.cli.base import Command
from fedskew.cli.values import Value

__all__ = ["answer", "completion"]

VARIABLE = "_FEDSKEW_COMPLETE"  # set by the script when the shell asks
HOW = "one of bash, fish, zsh"


@click.command(
    cls=Command,
    missing=HOW,
    light=True,
    lines=("fedskew completion bash >> ~/.bashrc", "fedskew completion zsh >> ~/.zshrc"),
)
@click.argument("shell", required=False, metavar="SHELL", type=Value(Literal["bash", "fish", "zsh"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes fedskew's words on Tab, for bash, fish or zsh.

    fish: fedskew completion fish > ~/.config/fish/completions/fedskew.fish. Then open a new shell.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "fedskew", VARIABLE).source())


def answer(command: click.Command) -> int | None:
    """Answer a shell that asks what may stand at the cursor: the exit code; None where none asks."""
    asked = os.environ.get(VARIABLE)
    return None if asked is None else shell_complete(command, {}, "fedskew", VARIABLE, asked)
