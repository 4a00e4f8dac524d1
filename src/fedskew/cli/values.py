"""Types of option values: how each is read, what help calls it, and what completion offers."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import click
from click.shell_completion import CompletionItem

from fedskew.cli.names import names
from fedskew.config.words import choices_of, parse, without_none
from fedskew.errors import ConfigError

__all__ = ["TYPED", "Names", "Natural", "Place", "Positive", "Runs", "Value", "metavar_of", "typed_flag"]

TYPED = "fedskew.typed"  # in Context.meta: the flags of the command line, as they were typed
Items: TypeAlias = "list[CompletionItem[str]]"


def typed_flag(param: click.Parameter | None, ctx: click.Context | None) -> str:
    """The name of an option that the user typed, for an error."""
    opts = param.opts if param else ["value"]
    typed = ctx.meta.get(TYPED, ()) if ctx else ()
    return next((flag for flag in opts if flag in typed), opts[0])


class Value(click.ParamType):  # type: ignore[type-arg]
    """A value of the type of a field: ``float``, ``int | None``, ``Literal["exp", "step"]``, ``tuple[int, ...]``."""

    name = "value"

    def __init__(self, kind: Any, offered: Callable[[], Iterable[str]] | None = None) -> None:
        self.kind = kind
        self.offered = offered

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value. Raises ConfigError."""
        return parse(typed_flag(param, ctx), self.kind, value) if isinstance(value, str) else value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
        """The words that the type lists, or a file where the option is a path."""
        offered = list(self.offered() if self.offered else choices_of(self.kind))
        if not offered and ("path" in param.opts[-1] or param.opts[-1] == "--init-from"):
            return [CompletionItem(incomplete, type="file")]
        several = typing.get_origin(without_none(self.kind)[0]) is tuple
        return _starting(offered, incomplete, several)


class Names(click.ParamType):  # type: ignore[type-arg]
    """A name of a table; commas between several. Whether there is such a name says who looks it up."""

    name = "name"

    def __init__(self, table: str, several: bool = False) -> None:
        self.table, self.several = table, several

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
        """The names of the table."""
        return _starting(names(self.table), incomplete, self.several)


class Positive(click.ParamType):  # type: ignore[type-arg]
    """A whole number of at least 1."""

    name = "int"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number. Raises ConfigError."""
        if isinstance(value, str) and not (value.isdecimal() and len(value) < 19 and int(value) > 0):
            raise ConfigError(f"{typed_flag(param, ctx)} must be a whole number of at least 1; got {value!r}")
        return int(value)


class Natural(click.ParamType):  # type: ignore[type-arg]
    """A whole number of at least 0."""

    name = "int"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number. Raises ConfigError."""
        if isinstance(value, str) and not (value.isdecimal() and len(value) < 19):
            raise ConfigError(f"{typed_flag(param, ctx)} must be a whole number of at least 0; got {value!r}")
        return int(value)


class Place(click.ParamType):  # type: ignore[type-arg]
    """A path, "file" or "dir"."""

    def __init__(self, kind: str = "file") -> None:
        self.name = kind

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
        """Left to the shell."""
        return [CompletionItem(incomplete, type=self.name)]


class Runs(click.ParamType):  # type: ignore[type-arg]
    """A run folder."""

    name = "run"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
        """Run folders that begin so, and those inside folders that begin so; where there are none, any path."""
        folder, begun = Path(incomplete or ".").parent, Path(incomplete).name
        if incomplete.endswith("/"):
            folder, begun = Path(incomplete), ""
        patterns = (f"{begun}*/config.json", f"{begun}*/*/config.json")
        found = sorted({file.parent for pattern in patterns for file in folder.glob(pattern)})
        return [CompletionItem(str(run)) for run in found] or [CompletionItem(incomplete, type="file")]


def _starting(offered: Iterable[str], incomplete: str, several: bool) -> Items:
    """Those that begin so; of ``a,b,c`` the last is completed."""
    before, comma, last = incomplete.rpartition(",") if several else ("", "", incomplete)
    return [CompletionItem(before + comma + word) for word in offered if word.startswith(last)]


def metavar_of(kind: Any) -> str:
    """INT, FLOAT, true|false, exp|step, WORD, INT,..."""
    plain, _ = without_none(kind)
    if typing.get_origin(plain) is tuple:
        return f"{metavar_of(typing.get_args(plain)[0])},..."
    offered = "|".join(choices_of(plain))
    words = {int: "INT", float: "FLOAT", str: "WORD"}
    return words.get(plain) or (offered if 0 < len(offered) <= 24 else "NAME")
