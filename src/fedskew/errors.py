"""The exceptions of fedskew, each message one line that you can act on; and text of others, shown and read with care.

FedskewError
├── ConfigError      a parameter is wrong: parameter, rule, value got, suggestion
│   └── FieldError   the same for a field of an option class; the command shows its flag
├── DataError        data are missing, damaged, or cannot be split as asked
├── TrainingError    training produced a value that is not finite, or a hook failed: client, round and step
└── RecordError      a run folder cannot be written, read or resumed
"""

import difflib
import errno
import io
import json
import logging
import math
import os
import stat
import sys
import threading
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

PACKAGE = "."  # what pip installs extras of: a checkout; "fedskew" once the package is published
AGAIN_S = 0.01  # seconds until a request to end that was lost is made again
DEEPEST = 64  # nested lists and objects; what fedskew writes has less than ten
JOINERS = "\u200c\u200d"  # they change how letters of some scripts join, and nothing else
TAKEN = "\n\t"
UNKNOWN = 1 << 35  # bytes of memory of a machine that does not say
LONGEST = 300  # characters of a text of others within a message


class FedskewError(Exception):
    """Base of all errors that fedskew raises on purpose.

    The command prints the message as one line and exits with status 2.
    """


class ConfigError(FedskewError):
    """A parameter breaks a rule."""


class FieldError(ConfigError):
    """A field of an option class breaks a rule: ``Momentum.lr must be positive; got -1``.

    Python users read class and field; `named` gives the same sentence with the command's flag.

    Example:
        >>> from fedskew.errors import FieldError
        >>> error = FieldError("Momentum", "lr", "be positive", -1)
        >>> print(error)
        Momentum.lr must be positive; got -1
        >>> error.named("--server.lr")
        '--server.lr must be positive; got -1'
    """

    def __init__(self, owner: str, field: str, rule: str, got: object, hint: str = "") -> None:
        super().__init__(owner, field, rule, got, hint)
        self.owner, self.field, self.rule, self.got, self.hint = owner, field, rule, got, hint

    def __str__(self) -> str:
        return self.named(f"{self.owner}.{self.field}")

    def named(self, parameter: str) -> str:
        """The message for a parameter as the user wrote it, for example ``--server.lr``."""
        return f"{parameter} must {self.rule}; got {self.got!r}" + (f"; {self.hint}" if self.hint else "")


class UnknownOption(ConfigError):
    """An option that a composition does not have; ``option`` is its name, if no ingredient has it."""

    def __init__(self, message: str, option: str = "") -> None:
        super().__init__(message)
        self.option = option


class DataError(FedskewError):
    """Data is missing, damaged, or cannot be split as asked."""


class TrainingError(FedskewError):
    """Training produced a value that is not finite, or a component's hook failed.

    ``faults`` has the first value of each client that is not finite (`fedskew.engines.outcomes.Fault`), if any. With
    ``drop`` these clients are left out of the round, whatever the settings say of values that are not finite.
    """

    def __init__(self, message: str, faults: tuple[Any, ...] = (), drop: bool = False) -> None:
        super().__init__(message)
        self.faults, self.drop = faults, drop


class RecordError(FedskewError):
    """A run folder cannot be written, read or resumed."""


def some(names: Sequence[str]) -> str:
    """Names as a list in a message: all of them, or of more than 12 the first ten.

    Example:
        >>> from fedskew.errors import some
        >>> some(["a", "b"])
        'a, b'
    """
    return ", ".join(names) if len(names) <= 12 else f"{', '.join(names[:10])} and {len(names) - 10} more"


def closest(name: str, known: Iterable[str], listed: bool = True) -> str:
    """Suggest a known name for an unknown one.

    Args:
        name: The unknown name.
        known: Names of the table.
        listed: Whether the names of the table stand in the place of a near miss.

    Returns:
        "; did you mean 'fedprox'?" for a near miss; else "; known: a, b, c", of more than 40 names ten; or "".

    Example:
        >>> from fedskew.errors import closest
        >>> closest("fedprx", ["fedavg", "fedprox"])
        "; did you mean 'fedprox'?"
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]!r}?"
    name_list = some(names) if len(names) > 40 else ", ".join(names)
    return f"; known: {name_list}" if listed and names else ""


def install(extra: str) -> str:
    """The command that installs an extra, as messages and pages name it."""
    return f"pip install '{PACKAGE}[{extra}]'" + " in a checkout of fedskew" * (PACKAGE == ".")


def of_extra(extra: str, module: str, what: str) -> Any:
    """A module that an extra installs. Raises DataError, which says ``what`` needs it, where it is absent."""
    try:
        return import_module(module)
    except ImportError:
        raise DataError(f"{what} needs the extra {extra}: {install(extra)}") from None


def unknown(kind: str, name: str, known: Iterable[str]) -> ConfigError:
    """The ConfigError for a name that is not in its table, with a suggestion.

    Example:
        >>> from fedskew.errors import unknown
        >>> print(unknown("method", "fedprx", ["fedavg", "fedprox"]))
        unknown method 'fedprx'; did you mean 'fedprox'?
    """
    return ConfigError(f"unknown {kind} {name!r}{closest(name, known)}")


def plural(number: int, what: str) -> str:
    """A number with its noun, for messages and titles.

    Example:
        >>> from fedskew.errors import plural
        >>> plural(1, "round"), plural(1000, "round")
        ('1 round', '1,000 rounds')
    """
    return f"{number:,} {what}{'s' * (number != 1)}"


def require(holds: bool, parameter: str, rule: str, got: object, hint: str = "") -> None:
    """Raise ConfigError unless a rule holds.

    Args:
        holds: Whether the rule holds.
        parameter: Name of the parameter, as the user writes it.
        rule: The rule, after "must": "be at least 1".
        got: The value got.
        hint: What to do instead.

    Raises:
        ConfigError: "<parameter> must <rule>; got <got>; <hint>".

    Example:
        >>> from fedskew.errors import require
        >>> require(False, "rounds", "be at least 1", 0, "use 1")
        Traceback (most recent call last):
            ...
        fedskew.errors.ConfigError: rounds must be at least 1; got 0; use 1
    """
    if not holds:
        raise ConfigError(f"{parameter} must {rule}; got {got!r}" + (f"; {hint}" if hint else ""))


def claim(holds: object, what: object, rule: str, got: object = "", hint: str = "") -> None:
    """Raise DataError unless data keep a rule: "<what> must <rule>; got <got>; <hint>".

    Args:
        holds: Whether they do.
        what: What the data are: a file, a column, an argument.
        rule: The rule, after "must".
        got: What they have instead; "" where nothing is to be told.
        hint: What to do.

    Raises:
        DataError: They do not.

    Example:
        >>> from fedskew.errors import claim
        >>> claim(False, "x", "have a row for each label", "3 rows and 4 labels")
        Traceback (most recent call last):
            ...
        fedskew.errors.DataError: x must have a row for each label; got 3 rows and 4 labels
    """
    if not holds:
        raise DataError("; ".join(filter(None, (f"{what} must {rule}", f"got {got}" if str(got) else "", hint))))


# Text that others wrote


def visible(text: str) -> str:
    r"""Text as a terminal or a picture may show it: control characters are written out, as ``\x1b``.

    Names of classes, columns and files come from others. An escape code in one could clear the screen or forge a line,
    and half a character of a file name that is no UTF-8 could not be printed at all.

    Args:
        text: Any string.

    Returns:
        The string, with backslash escapes for control and format characters, lone surrogates and line separators. Line
        feeds, tabs and joiners stay.

    Example:
        >>> from fedskew.errors import visible
        >>> print(visible("cat\x1b[2J"))
        cat\x1b[2J
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(char: str) -> str:
    plain = char.isprintable() or char in TAKEN or char in JOINERS or unicodedata.category(char) == "Zs"
    return char if plain else char.encode("unicode_escape").decode("ascii")


def one_line(text: object, most: int = LONGEST) -> str:
    r"""Text of others as a part of one line, of at most ``most`` characters.

    Example:
        >>> from fedskew.errors import one_line
        >>> print(one_line("no\nround 9 is done \x1b[2J"))
        no round 9 is done \x1b[2J
    """
    line = visible(" ".join(str(text).split()))
    return line if len(line) <= most else f"{line[: most - 3]}..."


def from_json(text: str | bytes) -> Any:
    """The content of a JSON text.

    Args:
        text: The text; bytes are UTF-8.

    Returns:
        Plain values.

    Raises:
        ValueError: It is not JSON, not UTF-8, holds a number of thousands of digits, or is nested deeper than 64.

    Example:
        >>> from fedskew.errors import from_json
        >>> from_json('{"name": ["mlp"]}')
        {'name': ['mlp']}
    """
    text = text if isinstance(text, str) else text.decode("utf-8-sig")
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError(f"it is nested deeper than {DEEPEST}") from None
    level, depth = [content] if text.count("[") + text.count("{") > DEEPEST else [], 1  # most texts are short
    while level := [value for node in level for value in _inside(node)]:
        depth += 1
        if depth > DEEPEST:
            raise ValueError(f"it is nested deeper than {DEEPEST}")
    return content


def _inside(node: Any) -> list[Any]:
    values = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [value for value in values if isinstance(value, dict | list)]


# Files that others wrote


def opened(path: str | Path) -> io.BufferedReader:
    """A regular file, opened for reading. Nobody waits for a pipe or a device, on which reading may never end.

    Raises:
        OSError: It cannot be opened, or is no regular file.
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        _require_file(os.fstat(handle).st_mode, path)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def regular(path: str | Path) -> Path:
    """The path, for libraries that open files themselves. Raises OSError unless a regular file is there."""
    _require_file(os.stat(path).st_mode, path)
    return Path(path)


def _require_file(mode: int, path: str | Path) -> None:
    if not stat.S_ISREG(mode):
        kind, number = ("a folder", errno.EISDIR) if stat.S_ISDIR(mode) else ("a pipe or a device", errno.EINVAL)
        raise OSError(number, f"it is {kind}, not a regular file", str(path))


def content_of(path: str | Path) -> bytes:
    """The bytes of a regular file. Raises OSError as `opened`."""
    with opened(path) as file:
        return file.read()


def text_of(path: str | Path) -> str:
    """The text of a regular file in UTF-8, with line feeds alone. Raises OSError as `opened`, UnicodeDecodeError."""
    with io.TextIOWrapper(opened(path), encoding="utf-8") as file:
        return file.read()


def json_file(path: Path) -> Any:
    """The content of a JSON file. Raises OSError as `opened`, ValueError as `from_json`."""
    return from_json(content_of(path))


def afford(size: int, what: str, hint: str = "") -> None:
    """Raise DataError for an array of more bytes than half of the machine's memory.

    Args:
        size: Bytes of the array that is about to be made.
        what: Its name in the error message.
        hint: What to do.
    """
    pages = ("SC_PAGE_SIZE", "SC_PHYS_PAGES")
    most = (math.prod(map(os.sysconf, pages)) if hasattr(os, "sysconf") else UNKNOWN) // 2
    if size > most:
        rule = f"{what} must fit into half of the memory, {most >> 20:,} MiB; got {size >> 20:,} MiB"
        raise DataError(rule + (f"; {hint}" if hint else ""))


@contextmanager
def quietly() -> Iterator[None]:
    """Silence what libraries log and warn while they read files of others; an error says what failed."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def of_interrupt(error: BaseException | None) -> bool:
    """Whether an error is a KeyboardInterrupt, or took the place of one.

    A signal may come where a library is in the middle of something. What it does on the way out may fail then, and its
    error is the one that arrives.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def ensure_interrupt(asked: Callable[[], bool], again: Callable[[], object]) -> None:
    """See that a process that is asked to end by KeyboardInterrupt does so.

    A signal may come inside a callback that lets no exception through, such as a weak reference's: Python prints the
    exception and forgets it. Where that happens it is not printed, and the process is asked again.

    Args:
        asked: Whether the process was asked to end.
        again: Asks it again; called a moment later.
    """
    before = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        if asked() and unraisable.exc_type is KeyboardInterrupt:
            threading.Timer(AGAIN_S, again).start()
        else:
            before(unraisable)

    sys.unraisablehook = hook
