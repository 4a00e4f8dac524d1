"""The pages of the Python names: signature, docstring, arguments and example of each, from the code."""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from docstring_parser import parse

import fedskew as fs

CODE = re.compile(r"(``[^`]+``|`[^`]+`)")
MODULES = (
    "data",
    "models",
    "skew",
    "metrics",
    "track",
    "presets",
    "types",
)  # a page each; ingredients have pages already
TITLES = {
    "parts": "methods", "samplers": "methods", "selectors": "methods", "paces": "methods", "weightings": "methods",
    "servers": "methods", "steps": "methods", "partitioners": "partitions", "functional": "functional",
}  # fmt: skip


def plain(text: str) -> str:
    """Text of a docstring as Markdown: what is no code in backquotes means itself."""
    pieces = CODE.split(text)
    pieces[::2] = [re.sub(r"([\\*_<>\[\]$|~#{}])", r"\\\1", piece) for piece in pieces[::2]]
    return "".join(piece.replace("``", "`") for piece in pieces)


def paragraphs(text: str) -> str:
    """Prose; a paragraph that is indented stays as it is, as formulas are."""
    shown = []
    for part in re.split(r"\n\s*\n", text.strip("\n")):
        lines = part.splitlines()
        if all(line.startswith("  ") for line in lines):
            shown.append(f"```\n{textwrap.dedent(part)}\n```")
        elif lines[0].startswith("- "):
            shown.append("\n".join(line if line.startswith(" ") and False else plain(line) for line in lines))
        else:
            shown.append(" ".join(plain(line.strip()) for line in lines))
    return "\n\n".join(shown)


def described(thing: Any) -> Iterator[str]:
    """A docstring as Markdown, piece by piece."""
    text = inspect.getdoc(thing) or ""
    if isinstance(thing, type) and text.startswith(f"{thing.__name__}("):
        return  # what dataclass writes where there is no docstring
    found = parse(text)
    for part in filter(None, (found.short_description, found.long_description)):
        yield paragraphs(part)
    if isinstance(thing, type) and dataclasses.is_dataclass(thing):
        known = {p.arg_name: p.description or "" for p in found.params}
        rows = [(f.name, known.get(f.name) or fields_told(thing).get(f.name, "")) for f in dataclasses.fields(thing)]
    else:
        rows = [(p.arg_name, p.description or "") for p in found.params]
    if rows:
        yield "| argument | meaning |\n|---|---|\n" + "\n".join(f"| `{n}` | {_cell(t)} |" for n, t in rows)
    if found.returns and found.returns.description:
        yield f"**Returns** {paragraphs(found.returns.description)}"
    for error in found.raises:
        yield f"**Raises** `{error.type_name}`: {_cell(error.description or '')}"
    for example in found.examples:
        yield f"```pycon\n{(example.description or '').strip()}\n```"


def fields_told(kind: type) -> dict[str, str]:
    """What stands on the fields of a dataclass, as its help has it."""
    from fedskew.fields import documented

    return {name: " ".join(text.split()) for name, text in documented(kind).items()}


def _cell(text: str) -> str:
    return plain(" ".join(text.split()))


def signature(name: str, thing: Any) -> str:
    """As it is called, an argument a line where one line is too long."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return name
    shown = [
        re.sub(r"Annotated\[([^,\]]+(?:\[[^]]*\])?),.*?\](?=( \||$| =))", r"\1", str(p).replace("'", ""))
        for p in found.parameters.values()
        if p.name != "self"
    ]
    line = f"{name}({', '.join(shown)})"
    return line if len(line) <= 100 else f"{name}(\n" + "".join(f"    {part},\n" for part in shown) + ")"


def entry(name: str, thing: Any, level: int = 2) -> Iterator[str]:
    """A class with its public methods, or a function."""
    yield f"{'#' * level} {name}"
    if callable(thing):
        yield f"```python\n{signature(name, thing)}\n```"
    yield from described(thing)
    if isinstance(thing, type) and not issubclass(thing, BaseException):
        for method, function in vars(thing).items():
            if not method.startswith("_") and inspect.isfunction(function) and function.__doc__:
                yield from entry(f"{name}.{method}", function, level + 1)


def page(title: str, about: str, names: dict[str, Any]) -> str:
    """A page of names."""
    parts = [f"# {title}", about, *(part for name, thing in names.items() for part in entry(name, thing))]
    return "\n\n".join(parts) + "\n"


def public(module: ModuleType) -> dict[str, Any]:
    """A module's names of fedskew, each under the name by which a user calls it."""
    names = getattr(module, "__all__", None) or [n for n in dir(module) if not n.startswith("_")]
    found = {n: getattr(module, n) for n in names}
    home = module.__name__.rpartition(".")[2]
    return {
        f"fs.{home}.{n}": v
        for n, v in found.items()
        if callable(v) and getattr(v, "__module__", "").startswith(module.__name__)
    }


def write(folder: Path) -> None:
    """The pages, and the page that lists them with those of docs/reference."""
    folder.mkdir(parents=True, exist_ok=True)
    top = {f"fs.{n}": getattr(fs, n) for n in fs.__all__ if not isinstance(getattr(fs, n), ModuleType)}
    files = {"fedskew": page("fs: runs, studies, methods", "Names of `import fedskew as fs`.", top)}
    for name in MODULES:
        module = getattr(fs, name)
        about = parse(inspect.getdoc(module) or "").short_description or ""
        files[name] = page(f"fs.{name}", plain(about), public(module))
    for name, text in files.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    (folder / "index.md").write_text(INDEX.format(pages="\n".join(files)), encoding="utf-8")


INDEX = """# API

Python names, options, the command and the formats of files. These pages are made from the code, or checked against it.

```{{toctree}}
:caption: Python
:maxdepth: 1

{pages}
../docs/reference/methods
../docs/reference/partitions
../docs/reference/functional
```

```{{toctree}}
:caption: Command and options
:maxdepth: 1

../docs/reference/command
json
../docs/reference/options
../docs/reference/paces
```

```{{toctree}}
:caption: Files and numbers
:maxdepth: 1

../docs/reference/records
../docs/reference/scores
../docs/reference/diagnostics
../docs/reference/partition-file
../docs/reference/statistics
```
"""
