"""Types of option values: how each is read, what help calls it, and what completion offers."""

import typing
from collections.abc import Callable, Iterable
from types import NoneType
from typing import Annotated, Any, TypeAlias

import click
from click.shell_completion import CompletionItem

from fedskew.cli.names import names
from fedskew.config.words import parse
from fedskew.errors import ConfigError
from fedskew.fields import AtLeast, breach, choices_of, plain_kinds

Items: TypeAlias = "list[CompletionItem[str]]"


class Value(click.ParamType):  # type: ignore[type-arg]
    """A value of the type of a field: ``float``, ``int | None``, ``Literal["exp", "step"]``, ``tuple[int, ...]``."""

    def __init__(self, kind: Any, offered: Callable[[], Iterable[str]] | None = None) -> None:
        self.kind, self.offered = kind, offered

    @property
    def name(self) -> str:  # type: ignore[override]
        """What help calls a value."""
        return metavar_of(self.kind)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value. Raises ConfigError."""
        flag = param.opts[0] if param else "value"
        found = parse(flag, self.kind, value)
        if broken := breach(self.kind, found):
            raise ConfigError(f"{flag} must {broken[0]}; got {found!r}")
        return found

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
        """The words that the type lists, or a file where the option is a path."""
        offered = list(self.offered() if self.offered else choices_of(self.kind))
        if not offered and ("path" in param.opts[-1] or param.opts[-1] == "--init-from"):
            return [CompletionItem(incomplete, type="file")]
        return _starting(offered, incomplete, typing.get_origin(plain_kinds(self.kind)[0]) is tuple)


class Names(click.ParamType):  # type: ignore[type-arg]
    """A name of a table; commas between several. Whether there is such a name says who looks it up."""

    name = "name"

    def __init__(self, table: str, several: bool = False) -> None:
        self.table, self.several = table, several

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
        """The names of the table."""
        return _starting(names(self.table), incomplete, self.several)


class Path(click.ParamType):  # type: ignore[type-arg]
    """A path, of a "file", a "folder" or a "run", which is a folder."""

    def __init__(self, name: str) -> None:
        self.name = name

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
        """Left to the shell."""
        return [CompletionItem(incomplete, type="file" if self.name == "file" else "dir")]


def metavar_of(kind: Any) -> str:
    """INT, FLOAT, true|false, exp|step, INT|linear, WORD, INT,..."""
    plain, *others = (one for one in plain_kinds(kind) if one is not NoneType)
    if others:
        return "|".join(map(metavar_of, (plain, *others)))
    if typing.get_origin(plain) is tuple:
        return f"{metavar_of(typing.get_args(plain)[0])},..."
    offered = "|".join(choices_of(plain))
    words = {int: "INT", float: "FLOAT", str: "WORD"}
    return words.get(plain) or (offered if 0 < len(offered) <= 24 else "NAME")


def _starting(offered: Iterable[str], incomplete: str, several: bool) -> Items:
    """Those that begin so; of ``a,b,c`` the last is completed."""
    before, comma, last = incomplete.rpartition(",") if several else ("", "", incomplete)
    return [CompletionItem(before + comma + word) for word in offered if word.startswith(last)]


FILE, FOLDER, RUN = Path("file"), Path("folder"), Path("run")
POSITIVE = Value(Annotated[int, AtLeast(1)])
