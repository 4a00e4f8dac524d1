"""What every subcommand shares: its words checked, help with examples, one line and exit code 2 for a mistake."""

import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

import click

from fedskew.cli import interrupt
from fedskew.cli.output import say
from fedskew.config.words import SHORT, Pair, flag_of, split
from fedskew.errors import ConfigError, FedskewError, FieldError, closest, unknown

HELP = ("-h", "--help")
WORDS, TYPED = "fedskew.words", "fedskew.typed"  # in Context.meta: the words after the command; its flags and values
HEAVY = "fedskew.config.flags"  # imports all that makes an experiment, torch too
SETTINGS = {"help_option_names": [*HELP], "max_content_width": 120, "show_default": True}
Section = tuple[str, list[tuple[str, str]]]  # (title, [(option, what it is)])


def decorated(*options: Callable[[Any], Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Several options for a command's function, in this order."""

    def apply(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return apply


class Page(click.Command):
    """What help of commands and groups shares: examples, ``lines``, as they are typed, and the words of --help."""

    lines: tuple[str, ...] = ()

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Click's; its text begins small and has no full stop, as all others."""
        if option := super().get_help_option(ctx):
            option.help = "show this page and exit"
        return option

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What the command does, and examples, never wrapped."""
        super().format_help_text(ctx, formatter)
        if self.lines:
            with formatter.section("Examples"):
                for line in self.lines:
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


class Command(Page):
    """A subcommand.

    Args:
        lines: examples, whole command lines.
        missing: what the command needs where no positional word is given, after "fedskew NAME needs".
    """

    def __init__(self, *args: Any, lines: Sequence[str] = (), missing: str = "", **options: Any) -> None:
        super().__init__(*args, **options)
        self.lines, self.missing = tuple(lines), missing
        self.own_options = {flag: p for p in self.params if isinstance(p, click.Option) for flag in p.opts}
        self.bare = {flag for flag, param in self.own_options.items() if param.is_flag}

    # Words

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Check the words, then let Click read the options of the command itself. Raises ConfigError."""
        ctx.meta[WORDS] = args
        with self.naming_flags():
            if any(word in args for word in HELP):
                say(self.get_help(ctx))
                ctx.exit()
            repeated = [flag for flag, param in self.own_options.items() if param.multiple]
            positional, flags = split(args, self.bare, partial(self.wanted, ctx), repeated)
            ctx.meta[TYPED] = flags
            self.take(ctx, positional, flags)
            if not positional and self.missing:
                raise ConfigError(f"{ctx.command_path} needs {self.missing}")
            arguments = [p for p in self.params if isinstance(p, click.Argument)]
            if len(positional) > len(arguments) and all(p.nargs == 1 for p in arguments):
                taken = "".join(f"one {str(p.metavar).strip('[]')} at a time" for p in arguments) or "options alone"
                raise ConfigError(f"{ctx.command_path} takes {taken}; got {', '.join(map(repr, positional))}")
            switches = [word for word in args if word in self.bare]
            given = [f"{flag}={value}" for flag, value in flags if flag in self.own_options]
            return super().parse_args(ctx, [*switches, *given, *positional])

    def take(self, ctx: click.Context, positional: list[str], flags: list[Pair]) -> None:
        """Take the options that are not the command's own: here there are none. Raises ConfigError."""
        for flag, _ in flags:
            self.check_known(ctx, flag)

    def check_known(self, ctx: click.Context, flag: str) -> None:
        """Raise ConfigError for an option that the command does not have, with the one that was probably meant."""
        if flag not in self.own_options:
            near = closest(flag, self.own_options, listed=False)
            listed = f"; it takes {', '.join(self.own_options) or 'no options'}; see `{ctx.command_path} --help`"
            raise ConfigError(f"unknown option {flag!r} of {ctx.command_path}{near or listed}")

    def wanted(self, ctx: click.Context, flag: str) -> str:
        """What a flag without its value wants, after "must be followed by a value". Raises ConfigError if unknown."""
        self.check_known(ctx, flag)
        param = self.own_options.get(flag)
        return f", {' '.join((param.help or '').split()).partition(';')[0].rstrip('.')}" if param else ""

    @contextmanager
    def naming_flags(self) -> Iterator[None]:
        """Say ``--out must be ...`` where a function of the library, which knows no flags, says ``out must be ...``."""
        try:
            yield
        except FieldError:
            raise
        except FedskewError as error:
            first = str(error).partition(" must ")[0]
            flag = flag_of(first)
            if flag not in self.flags():
                raise
            named = SHORT.get(flag, flag)  # --data.path, which is what users type
            raise type(error)(f"{named}{str(error).removeprefix(first)}") from None

    def flags(self) -> set[str]:
        """The flags that a message may mean."""
        return {*self.own_options}

    def invoke(self, ctx: click.Context) -> Any:
        """Import what the command needs, then run it. Ctrl-C ends an import at once, later it raises."""
        prepare()
        interrupt.end()
        with self.naming_flags():
            return super().invoke(ctx)

    # Help

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Positional words first."""
        arguments = [p for p in self.params if isinstance(p, click.Argument)]
        return [*(piece for p in arguments for piece in p.get_usage_pieces(ctx)), "[OPTIONS]"]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options, section by section."""
        for title, rows in self.sections(ctx):
            with formatter.section(title):
                formatter.write_dl(rows, col_max=34 if formatter.width < 100 else 44)

    def sections(self, ctx: click.Context) -> Iterator[Section]:
        """(title, rows) of the options."""
        shown = [p for p in self.get_params(ctx) if isinstance(p, click.Option)]
        yield "Options", [record for p in shown if (record := p.get_help_record(ctx))]


class CommandGroup(Page, click.Group):
    """A command with subcommands, in titled sections."""

    def __init__(self, *args: Any, kind: str, lines: Sequence[str] = (), titles: Any = None, **options: Any) -> None:
        options = {"context_settings": SETTINGS, "subcommand_metavar": "COMMAND [OPTIONS]", **options}
        super().__init__(*args, **options)
        self.kind, self.lines, self.titles = kind, tuple(lines), titles or {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Raise ConfigError for an unknown option before the subcommand, and where no subcommand follows."""
        options = {flag for p in self.get_params(ctx) for flag in p.opts}
        if not args:
            raise ConfigError(f"{ctx.command_path} needs one of {', '.join(self.commands)}")
        if args[0].startswith("-") and args[0] not in options:
            near = closest(args[0], options, listed=False)
            hint = near or f"; options follow a command: see `{ctx.command_path} COMMAND --help`"
            raise ConfigError(f"unknown option {args[0]!r}{hint}")
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Raise ConfigError for an unknown subcommand."""
        if (command := self.commands.get(args[0])) is None:
            raise self.unknown(args[0])
        return args[0], command, args[1:]

    def unknown(self, name: str) -> ConfigError:
        """The error for a subcommand that there is not."""
        return unknown(self.kind, name, self.commands)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """COMMAND alone: no option stands before it but --help and --version."""
        return [self.subcommand_metavar]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Subcommands first."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The subcommands under their titles."""
        for title, names in (self.titles or {"Commands": tuple(self.commands)}).items():
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(200)) for name in names])


def prepare() -> None:
    """Import torch and fedskew, without the garbage collector: it would walk all that is imported, again and again."""
    if HEAVY in sys.modules:
        return
    gc.disable()
    try:
        import_module(HEAVY)
    finally:
        gc.freeze()
        gc.enable()
