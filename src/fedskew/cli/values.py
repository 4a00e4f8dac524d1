"""Types of option values: how each is read, and what help calls it."""

import typing
from types import NoneType
from typing import Annotated, Any

import click

from fedskew.config.words import parse
from fedskew.errors import ConfigError
from fedskew.fields import AtLeast, breach, choices_of, plain_kinds


class Value(click.ParamType):  # type: ignore[type-arg]
    """A value of the type of a field: ``float``, ``int | None``, ``Literal["exp", "step"]``, ``tuple[int, ...]``."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    @property
    def name(self) -> str:  # type: ignore[override]
        """What help calls a value."""
        return metavar_of(self.kind)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value. Raises ConfigError."""
        flag = param.opts[0] if param else "value"
        parsed = parse(flag, self.kind, value)
        if broken := breach(self.kind, parsed):
            raise ConfigError(f"{flag} must {broken[0]}; got {parsed!r}")
        return parsed


class Located(click.ParamType):  # type: ignore[type-arg]
    """A path, of a "file", a "folder" or a "run", which is a folder."""

    def __init__(self, name: str) -> None:
        self.name = name


def metavar_of(kind: Any) -> str:
    """INT, FLOAT, true|false, exp|step, INT|linear, WORD, INT,..."""
    plain, *others = (member for member in plain_kinds(kind) if member is not NoneType)
    if others:
        return "|".join(map(metavar_of, (plain, *others)))
    if typing.get_origin(plain) is tuple:
        return f"{metavar_of(typing.get_args(plain)[0])},..."
    offered = "|".join(choices_of(plain))
    words = {int: "INT", float: "FLOAT", str: "WORD"}
    return words.get(plain) or (offered if 0 < len(offered) <= 24 else "NAME")


FILE, FOLDER, RUN = Located("file"), Located("folder"), Located("run")
POSITIVE = Value(Annotated[int, AtLeast(1)])
