"""``fedskew completion``: a script that makes a shell complete commands, names, options and values on Tab.

The script holds all words, so no Python starts on Tab. Write it again after an upgrade or a new plug-in.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

import click

from fedskew.cli.base import Command
from fedskew.cli.composed import Composed
from fedskew.cli.values import Value
from fedskew.fields import choices_of
from fedskew.plots import FIGURES

Shell = Literal["bash", "fish", "zsh"]
OF_METHODS = ("method", "methods", "wanted")  # arguments that take names of methods


class Offer(NamedTuple):
    """What may follow a command: names, or options."""

    command: str  # "run", "partition make"
    names: list[str]  # empty: files
    flags: list[str]


@click.command(
    cls=Command,
    missing=f"one of {', '.join(get_args(Shell))}",
    lines=(
        "fedskew completion bash > ~/.local/share/bash-completion/completions/fedskew",
        "fedskew completion fish > ~/.config/fish/completions/fedskew.fish",
        "fedskew completion zsh > ~/.fedskew.zsh",
    ),
)
@click.argument("shell", required=False, metavar="SHELL", type=Value(Shell))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes fedskew's words on Tab, for bash, fish or zsh.

    zsh reads it by a line `source ~/.fedskew.zsh` in ~/.zshrc. Then open a new shell. Write it again after an upgrade.
    """
    root = ctx.find_root().command
    assert isinstance(root, click.Group)
    offers, values = [*_offers(root)], _values()
    click.echo("\n".join(_fish([*root.commands], offers, values) if shell == "fish" else _bash(root, offers, values)))


def _offers(group: click.Group, before: str = "") -> Iterator[Offer]:
    """Of every command, those of groups first."""
    from fedskew.config.tables import TABLES
    from fedskew.methods import METHODS

    for name in group.commands:
        command = group.commands[name]
        if isinstance(command, click.Group):
            yield from _offers(command, f"{name} ")
            yield Offer(name, [*command.commands], ["--help"])
            continue
        slot = {"datasets": "data", "partitions": "partition", "models": "model"}.get(name)
        methods = any(isinstance(param, click.Argument) and param.name in OF_METHODS for param in command.params)
        names = sorted(TABLES[slot] if slot else METHODS if methods else ())
        flags = command.flags() if isinstance(command, Command) else set()
        fields = {*_fields()} if isinstance(command, Composed) and command.fields == "all" else set()
        yield Offer(
            before + name, [*get_args(Shell)] if name == "completion" else names, [*sorted(flags | fields), "--help"]
        )


def _fields() -> dict[str, tuple[str, ...]]:
    """The options of a plain run, and the words that each takes; none for any value."""
    from fedskew.config.flags import compose, options_of

    options = options_of(compose(["fedavg"], []))
    return {flag: tuple(choices_of(option.type)) for option in options for flag in option.flags}


def _values() -> dict[str, list[str]]:
    """The names that an option takes, by flag."""
    from fedskew.config.flags import NAMED
    from fedskew.config.presets import every
    from fedskew.config.tables import TABLES

    slots = {f"--{flag}": TABLES[flag.partition(".")[0]] for flag in NAMED if flag != "preset"}
    fields = {flag: words for flag, words in _fields().items() if words}
    listed = fields | slots | {"--preset": every(), "--figure": FIGURES}
    return {flag: sorted(names) for flag, names in listed.items()}


def _bash(root: click.Group, offers: list[Offer], values: dict[str, list[str]]) -> list[str]:
    """A function of bash, which zsh takes, too. Where it offers nothing, the shell offers files."""
    commands = [(f'"{offer.command}"' if " " in offer.command else f'"{offer.command} "*', offer) for offer in offers]
    return [
        '[ -z "$ZSH_VERSION" ] || { autoload -U +X bashcompinit && bashcompinit; }',
        "_fedskew() {",
        '  local offered="" now="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"',
        '  local command="${COMP_WORDS[1]} ${COMP_WORDS[2]}"',
        f'  if [ "$COMP_CWORD" -le 1 ]; then offered="{" ".join(root.commands)} --help"',
        '  elif [ "${now:0:1}" = "-" ]; then case "$command" in',
        *(f'    {place}) offered="{" ".join(offer.flags)}" ;;' for place, offer in commands),
        '  esac; elif [ "${before:0:1}" = "-" ]; then case "$before" in',
        *(f'    {flag}) offered="{" ".join(names)}" ;;' for flag, names in values.items()),
        '  esac; else case "$command" in',
        *(f'    {place}) offered="{" ".join(offer.names)}" ;;' for place, offer in commands),
        "  esac; fi",
        '  COMPREPLY=($(compgen -W "$offered" -- "$now"))',
        "}",
        "complete -o default -F _fedskew fedskew",
    ]


def _fish(commands: list[str], offers: list[Offer], values: dict[str, list[str]]) -> list[str]:
    """A rule of fish for each command, and for each option that takes names."""
    seen_command = "__fish_seen_subcommand_from"
    return [
        f"complete -c fedskew -n __fish_use_subcommand -f -a '{' '.join(commands)}'",
        *(
            f"complete -c fedskew -n '{seen_command} {offer.command.replace(' ', f'; and {seen_command} ')}'"
            f" -a '{' '.join([*offer.names, *offer.flags])}'"
            for offer in offers
        ),
        *(f"complete -c fedskew -l {flag[2:]} -x -a '{' '.join(names)}'" for flag, names in values.items()),
    ]
