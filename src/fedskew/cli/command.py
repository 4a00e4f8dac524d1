"""The command ``fedskew``: its subcommands, and how it ends. Every mistake is one line and exit code 2."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from itertools import chain, groupby

import click

from fedskew import __version__, plugins
from fedskew.cli import interrupt
from fedskew.cli.base import CommandGroup
from fedskew.cli.output import say, speaking
from fedskew.errors import ConfigError, FedskewError, of_interrupt, one_line

SHORT = "memory ran out; a run keeps its completed rounds and can be resumed; use fewer clients, rows or threads"
ALLOCATION = (  # what torch, threading, the system's loader and its calls say of it
    "can't allocate memory", "bad_alloc", "can't start new thread", "failed to map segment", "annot allocate memory",
)  # fmt: skip
TITLES = {
    "Train and compare": ("run", "compare", "evaluate", "plot", "report", "advise", "rehearse"),
    "Train on machines of their own": ("flower",),
    "Keep and share runs": ("runs", "show", "study", "verify"),
    "Divide data over clients": ("describe", "partition"),
    "What there is": ("methods", "datasets", "partitions", "models", "cite"),
    "Shell": ("completion",),
}
FILES = {  # of several commands; another command stands in the file of its own name
    "catalogue": ("methods", "datasets", "partitions", "models", "cite"), "records": ("runs", "show", "verify"),
    "federations": ("describe", "partition", "advise"), "pages": ("plot", "report"),
}  # fmt: skip
# Commands that this repository has in a plug-in, and how to get it until it is published.
PAPERS = ("reproduce", "ledger", "arbitrate")
INSTALL_PAPERS = "`pip install ./papers` in a checkout of fedskew"
# What torch and numpy say, in errors of no class of their own, of an array that cannot be and of a number too large.
TOO_LARGE = (
    "Storage size calculation overflowed", "Maximum allowed dimension", "array is too big",
    "maximum supported size",
)  # fmt: skip
BEYOND = "without overflow"
EXAMPLES = (
    "fedskew run fedavg --partition dirichlet --partition.alpha 0.1 --rounds 20",
    "fedskew run fedbal --help",
    "fedskew describe --data digits --partition shards --clients 20",
)


class Commands(Mapping[str, click.Command]):
    """The subcommands by name, those of plug-ins last. The file of one is imported when it is asked for."""

    built_in = dict.fromkeys(chain(*TITLES.values()))

    @cached_property
    def added(self) -> dict[str, plugins.Brought]:
        """Those of plug-ins: each is a place "module:name" and a line of help."""
        commands = plugins.distinct("command", self.built_in, plugins.brought("commands"))
        for name, (distribution, _, thing) in list(commands.items()):
            if not isinstance(thing, tuple) or [type(each) for each in thing] != [str, str]:
                rule = 'it must be ("module:name", "what it does"); got'
                plugins.leave_out(f"the command {name!r} of {distribution} is left out", f"{rule} {thing!r}")
                del commands[name]
        return commands

    def __getitem__(self, name: str) -> click.Command:
        if name not in self.built_in:
            return self._of_plugin(self.added[name])
        file = next((file for file, names in FILES.items() if name in names), name)
        command: click.Command = vars(import_module(f"fedskew.cli.{file}"))[name]
        return command

    def _of_plugin(self, brought: plugins.Brought) -> click.Command:
        fault = f"the command {brought.name!r} of {brought.distribution} cannot be used"
        try:
            command = plugins.at(brought.thing[0])
        except Exception as error:
            raise ConfigError(one_line(f"{fault}; {type(error).__name__}: {error}")) from None
        if isinstance(command, click.Command):
            return command
        raise ConfigError(one_line(f"{fault}; {brought.thing[0]} must be a command of click; got {command!r}"))

    def __iter__(self) -> Iterator[str]:
        yield from (*self.built_in, *self.added)

    def __len__(self) -> int:
        return len(self.built_in) + len(self.added)


COMMANDS = Commands()


class Root(CommandGroup):
    """`fedskew` itself, whose further commands come from plug-ins."""

    def unknown(self, name: str) -> ConfigError:
        """Of a command of the papers it says where they are."""
        if name in PAPERS:
            return ConfigError(f"the command {name!r} comes with the plug-in fedskew-papers: {INSTALL_PAPERS}")
        return super().unknown(name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands under their titles, then those of each plug-in, of which none is imported."""
        super().format_commands(ctx, formatter)
        for distribution, brought in groupby(COMMANDS.added.values(), lambda command: command.distribution):
            with formatter.section(f"From {distribution}"):
                formatter.write_dl([(command.name, command.thing[1]) for command in brought])


@click.group("fedskew", cls=Root, kind="command", lines=EXAMPLES, titles=TITLES, commands=COMMANDS)
@click.version_option(__version__, message="%(version)s", help="show the version and exit")
def root() -> None:
    """Federated learning under label skew.

    `fedskew COMMAND --help` explains a command; `fedskew run METHOD --help` lists every option of that method.
    """


def main(words: Sequence[str] | None = None) -> None:
    """Entry point.

    Args:
        words: the words after ``fedskew``; None: those of the process.

    Raises:
        SystemExit: with 0; 1 after a fault of fedskew itself, 2 after a mistake of the user's, 130 after Ctrl-C,
            143 after SIGTERM, 129 after SIGHUP.
    """
    words = list(sys.argv[1:] if words is None else words)
    with speaking():
        try:
            code = interrupt.over(_exit_code(words))
        except KeyboardInterrupt:  # at any time up to the end of `over`, which lets no other come
            say("interrupted", sys.stderr)
            code = interrupt.over(interrupt.INTERRUPTED)
        sys.exit(code)


def _exit_code(words: list[str]) -> int:
    """Run the command, and say in one line what went wrong; the exit code."""
    try:
        if not words or words[0] == "help":  # `fedskew help run` is `fedskew run --help`
            words = [*words[1:], "--help"]
        with root.make_context("fedskew", words) as context:
            return int(root.invoke(context) or 0)
    except click.exceptions.Exit as end:
        return int(end.exit_code)
    except BrokenPipeError:  # of a listing, `fedskew methods | head`; a run goes on in silence instead
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if of_interrupt(error):
            raise KeyboardInterrupt from error
        message = _message_of(error)
        if os.environ.get("FEDSKEW_DEBUG") and not isinstance(error, FedskewError | click.ClickException):
            raise
        fault = f"a fault of fedskew itself, {type(error).__name__}: {error}; FEDSKEW_DEBUG=1 shows where"
        say(f"fedskew: {' '.join((message or fault).split())}", sys.stderr)
        return 2 if message else 1


def _message_of(error: Exception) -> str:
    """What to say of a mistake, or of a machine that lacks room or rights; "" for a fault of fedskew itself.

    Files and memory are touched in many places, and each can fail at any time: this is the one place that says so.
    """
    if isinstance(error, FedskewError):
        return str(error)
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, OSError):
        return f"{error.filename or 'a file'} cannot be used: {error.strerror or error}"
    text = str(error)
    if any(phrase in text for phrase in TOO_LARGE):
        return f"this needs more memory than there is: {text.partition('] . ')[2] or text}"
    kind = type(error).__name__  # torch, whose error of a GPU this may be, is not imported here
    if isinstance(error, MemoryError) or kind == "OutOfMemoryError" or any(words in text for words in ALLOCATION):
        return SHORT
    return "an option's value is beyond what the run's numbers hold" if BEYOND in text else ""
