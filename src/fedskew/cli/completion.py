"""``fedskew completion``: the script that makes a shell complete commands, names, options and values on Tab."""

from typing import Literal

import click
from click.shell_completion import get_completion_class

from fedskew.cli.base import ASKED, Command
from fedskew.cli.values import Value

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
    click.echo(kind(ctx.find_root().command, {}, "fedskew", ASKED).source())
