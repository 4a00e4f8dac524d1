"""Types of option values: how each is read, what help calls it, and what completion offers.

Names of tables are read from their source: completion must not wait for torch.

A table is a literal dictionary, whose keys stand in the text of its file, a file of imports, or every class of a folder
that has a name. The name of an ingredient stands in the text of its class, whose bases say the slot.
"""

import ast
import re
import typing
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, TypeAlias

import click
from click.shell_completion import CompletionItem

from fedskew.config.words import parse
from fedskew.errors import ConfigError
from fedskew.fields import AtLeast, breach, choices_of, plain_kinds

ROOT = Path(__file__).parents[1]
BASES = {  # class -> slot of what derives from it; `fedskew.slots` has the classes
    "Component": "parts", "Sampler": "sampler", "Selector": "selector", "Pace": "pace", "Weighting": "weighting",
    "ServerOptimizer": "server", "LocalStep": "local",
}  # fmt: skip
TABLES: dict[str, tuple[str, ...]] = {  # what --NAME takes -> (file, dictionaries)
    "data": ("data/sources/*.py",),
    "partition": ("data/partitioners/*.py",),
    "model": ("models/*.py",),
    "method": ("methods/__init__.py",),
    "preset": ("config/presets/paces.toml",),
    "diagnostic": ("records/diagnostics.py", "OF_DELTAS", "OF_COHORT"),
    "tracker": ("track/__init__.py", "TRACKERS"),
    "figure": ("plots/rounds.py", "_WHOLE", "_DRAWN"),
    "measure of advice": ("advice/evidence.py", "MEASURES"),
}
SLOTS = ("data", "partition", "model", *BASES.values())


@cache
def names(table: str) -> tuple[str, ...]:
    """The names of a table, sorted: ``names("server")`` holds "adam"."""
    if table in BASES.values():
        return tuple(sorted(name for name, slot in _ingredients().items() if slot == table))
    file, *dictionaries = TABLES[table]
    source = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob(file))
    if "*" in file:
        found = {*re.findall(r'^    name: ClassVar\[str\] = "(\w+)"', source, re.M)}
    elif file.endswith(".toml"):
        found = {*re.findall(r"^\[(\w+)\.", source, re.M)}  # the first word of a table's name
    elif dictionaries:
        found = set()
        for node in ast.parse(source).body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            if isinstance(target, ast.Name) and target.id in dictionaries:
                value: Any = getattr(node, "value", None)
                found |= {ast.literal_eval(key) for key in getattr(value, "keys", None) or value.elts}
    else:
        found = {*re.findall(r"^from .* import ([a-z]\w*) as", source, re.M)}
    return tuple(sorted(found))


@cache
def _ingredients() -> dict[str, str]:
    """The slot of every ingredient by its name."""
    texts = [f.read_text(encoding="utf-8") for room in ("methods", "method") for f in (ROOT / room).glob("*.py")]
    bases, named = dict[str, str](), dict[str, str]()
    for text in (text for whole in texts for text in whole.split("\nclass ")[1:]):
        if head := re.match(r"(\w+)\((\w+)", text):
            bases[head[1]] = head[2]
            if name := re.search(r'^    name = "(\w+)"', text, re.M):
                named[head[1]] = name[1]

    def slot(kind: str) -> str:
        return BASES.get(kind) or slot(bases[kind])

    return {name: slot(kind) for kind, name in named.items()}


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


class Located(click.ParamType):  # type: ignore[type-arg]
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


FILE, FOLDER, RUN = Located("file"), Located("folder"), Located("run")
POSITIVE = Value(Annotated[int, AtLeast(1)])
