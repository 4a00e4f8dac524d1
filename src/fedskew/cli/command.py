"""The command ``fedskew``: its subcommands, and how it ends. Every mistake is one line and exit code 2."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from fedskew import __version__
from fedskew.cli import interrupt
from fedskew.cli.advise import advise
from fedskew.cli.base import Group
from fedskew.cli.catalogue import cite, datasets, methods, models, partitions
from fedskew.cli.completion import answer, completion
from fedskew.cli.describe import describe
from fedskew.cli.evaluate import evaluate
from fedskew.cli.partition import partition
from fedskew.cli.plot import plot
from fedskew.cli.run import run
from fedskew.cli.verify import verify
from fedskew.errors import FedskewError

__all__ = ["main", "root"]

SHORT = "memory ran out; a run keeps its whole rounds and can be resumed; fewer clients, rows or threads need less"
ALLOCATION = (  # what torch, threading, the system's loader and its calls say of it
    "can't allocate memory", "bad_alloc", "can't start new thread", "failed to map segment", "annot allocate memory",
)  # fmt: skip
TITLES = {
    "Train and compare": ("run", "evaluate", "plot", "advise", "verify"),
    "Divide data over clients": ("describe", "partition"),
    "What there is": ("methods", "datasets", "partitions", "models", "cite"),
    "Shell": ("completion",),
}
EXAMPLES = (
    "fedskew run fedavg --partition dirichlet --partition.alpha 0.1 --rounds 20",
    "fedskew run fedbal --help",
    "fedskew describe --data digits --partition shards --clients 20",
)


@click.group("fedskew", cls=Group, kind="command", lines=EXAMPLES, titles=TITLES)
@click.version_option(__version__, message="%(version)s", help="show the version and exit")
def root() -> None:
    """Federated learning when labels are skewed.

    `fedskew COMMAND --help` explains a command; `fedskew run METHOD --help` lists every option of that method.
    """


for _command in (
    run, evaluate, plot, advise, verify, describe, partition, methods, datasets, partitions, models, cite, completion,
):  # fmt: skip
    root.add_command(_command)


def main(words: Sequence[str] | None = None) -> None:
    """Entry point.

    Args:
        words: the words after ``fedskew``; None: those of the process.

    Raises:
        SystemExit: with 0; 1 after a fault of fedskew itself, 2 after a mistake of the user's, 130 after Ctrl-C,
            143 after SIGTERM, 129 after SIGHUP.
    """
    words = list(sys.argv[1:] if words is None else words)
    try:
        asked = answer(root)
        code = _run(words) if asked is None else asked
    except (FedskewError, click.ClickException) as error:
        told = error.format_message() if isinstance(error, click.ClickException) else str(error)
        print(f"fedskew: {' '.join(told.split())}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = interrupt.INTERRUPTED
    except BrokenPipeError:  # of a listing, `fedskew methods | head`; a run goes on in silence instead
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as error:
        if os.environ.get("FEDSKEW_DEBUG"):
            raise
        told = _told(error)
        fault = f"a fault of fedskew itself, {type(error).__name__}: {error}; FEDSKEW_DEBUG=1 shows where"
        print(f"fedskew: {' '.join((told or fault).split())}", file=sys.stderr)
        code = 2 if told else 1
    sys.exit(interrupt.over(code))


def _told(error: Exception) -> str:
    """What to say where the machine lacks memory, files or rights; "" for a fault of fedskew itself."""
    own = (
        isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    )  # numpy's and a GPU's are classes
    if own or any(words in str(error) for words in ALLOCATION):
        return SHORT
    if isinstance(error, OSError):
        return f"{error.filename or 'a file'} cannot be used: {error.strerror or error}"
    return ""


def _run(words: list[str]) -> int:
    """Run the command that the words name; its exit code."""
    if not words or words[0] == "help":  # `fedskew help run` is `fedskew run --help`
        words = [*words[1:], "--help"]
    try:
        with root.make_context("fedskew", words) as context:
            return int(root.invoke(context) or 0)
    except click.exceptions.Exit as end:
        return int(end.exit_code)
