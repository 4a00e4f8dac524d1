"""``fedskew completion``: the script that makes a shell complete commands, names, options and values on Tab."""

from __future__ import annotations

import os

import click
from click.shell_completion import CompletionItem, get_completion_class, shell_complete

from fedskew.cli.base import Command
from fedskew.errors import unknown

__all__ = ["answer", "completion"]

VARIABLE = "_FEDSKEW_COMPLETE"  # set by the script when the shell asks
SHELLS = ("bash", "fish", "zsh")
HOW = "one of bash, fish, zsh"


class Shell(click.ParamType):  # type: ignore[type-arg]
    """The name of a shell."""

    name = "shell"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name. Raises ConfigError for a shell without a script."""
        if value not in SHELLS:
            raise unknown("shell", value, SHELLS)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        """The names."""
        return [CompletionItem(name) for name in SHELLS if name.startswith(incomplete)]


@click.command(
    cls=Command,
    missing=HOW,
    light=True,
    lines=("fedskew completion bash >> ~/.bashrc", "fedskew completion zsh >> ~/.zshrc"),
)
@click.argument("shell", required=False, metavar="SHELL", type=Shell())
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
