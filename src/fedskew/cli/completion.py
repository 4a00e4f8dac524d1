"""``fedskew completion``: a script that makes a shell complete commands, names, options and values on Tab.

The script holds all words, so no Python starts on Tab. Write it again after an upgrade or a new plug-in.
"""

from typing import Literal, get_args

import click

from fedskew.cli.base import Command
from fedskew.cli.composed import Composed
from fedskew.cli.values import Value

Shell = Literal["bash", "fish", "zsh"]
METHODS = ("method", "methods", "wanted")  # arguments of commands that take names of methods


@click.command(
    cls=Command,
    missing=f"one of {', '.join(get_args(Shell))}",
    lines=("fedskew completion bash >> ~/.bashrc", "fedskew completion zsh >> ~/.zshrc"),
)
@click.argument("shell", required=False, metavar="SHELL", type=Value(Shell))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes fedskew's words on Tab, for bash, fish or zsh.

    fish: fedskew completion fish > ~/.config/fish/completions/fedskew.fish. Then open a new shell.
    """
    root = ctx.find_root().command
    assert isinstance(root, click.Group)
    after, values = {name: _words(name, root.commands[name]) for name in root.commands}, _values()
    click.echo("\n".join(_fish(after, values) if shell == "fish" else _bash(after, values, shell)))


def _words(name: str, command: click.Command) -> list[str]:
    """What may follow a command: its commands, or names of methods and its options."""
    from fedskew.config.tables import TABLES
    from fedskew.methods import METHODS as KNOWN

    if isinstance(command, click.Group):
        return sorted(command.commands)
    listed = {"datasets": TABLES["data"], "partitions": TABLES["partition"], "models": TABLES["model"]}.get(name, KNOWN)
    named = any(isinstance(p, click.Argument) and p.name in METHODS for p in command.params)
    flags = command.flags() if isinstance(command, Command) else ()
    fields = _fields() if isinstance(command, Composed) and command.fields == "all" else ()
    return [*(sorted(listed) if named else ()), *sorted({*flags, *fields, "--help"})]


def _fields() -> set[str]:
    """The options of a plain run."""
    from fedskew.config.flags import compose, options_of

    return {flag for option in options_of(compose(["fedavg"], [])) for flag in option.flags}


def _values() -> dict[str, list[str]]:
    """The names that an option takes, by flag."""
    from fedskew.config.flags import NAMED
    from fedskew.config.presets import every
    from fedskew.config.tables import TABLES

    slots = {flag: TABLES[flag.partition(".")[0]] for flag in NAMED if flag != "preset"}
    return {f"--{flag}": sorted(names) for flag, names in (slots | {"preset": every()}).items()}


def _bash(after: dict[str, list[str]], values: dict[str, list[str]], shell: str) -> list[str]:
    """A function of bash, which zsh takes, too: a value after its option, else what the command takes."""
    of_value = [f'    {flag}) words="{" ".join(names)}" ;;' for flag, names in values.items()]
    of_command = [f'      {name}) words="{" ".join(words)}" ;;' for name, words in after.items()]
    return [
        *(["autoload -U +X bashcompinit && bashcompinit"] if shell == "zsh" else []),
        "_fedskew() {",
        '  local words="" now="${COMP_WORDS[COMP_CWORD]}"',
        f'  [ "$COMP_CWORD" -gt 1 ] || words="{" ".join(after)}"',
        '  [ -n "$words" ] || case "${COMP_WORDS[COMP_CWORD-1]}" in',
        *of_value,
        '    *) case "${COMP_WORDS[1]}" in',
        *of_command,
        "    esac ;;",
        "  esac",
        '  COMPREPLY=($(compgen -W "$words" -- "$now"))',
        "}",
        "complete -o default -F _fedskew fedskew",
    ]


def _fish(after: dict[str, list[str]], values: dict[str, list[str]]) -> list[str]:
    """A rule of fish for each command, and for each option that takes names."""
    first = f"complete -c fedskew -n __fish_use_subcommand -f -a '{' '.join(after)}'"
    rules = [f"complete -c fedskew -n '__fish_seen_subcommand_from {n}' -a '{' '.join(w)}'" for n, w in after.items()]
    return [first, *rules, *(f"complete -c fedskew -l {f[2:]} -x -a '{' '.join(n)}'" for f, n in values.items())]
