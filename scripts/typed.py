"""Write the files from which editors and type checkers know names and options.

They are src/fedskew/slots/*.py, src/fedskew/config/keywords.pyi and data/keywords.pyi; tests/house/test_typed.py holds
them against the classes.
"""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

from fedskew.config.flags import NAMED
from fedskew.config.words import ALIASES
from fedskew.data.sources.table import DATASETS
from fedskew.method.weightings import Wrapping
from fedskew.settings import Division, Settings
from fedskew.slots import INGREDIENTS
from fedskew.studies.once import PLAIN

SOURCE = Path(__file__).parents[1] / "src/fedskew"
MADE = "Written by scripts/typed.py."
SLOTS = {  # module -> (slot, what its classes are)
    "parts": ("parts", "Parts of a method: losses, corrections, memories and steps of the server."),
    "samplers": ("sampler", "Samplers: the rows that a client trains on in a round."),
    "selectors": ("selector", "Selectors: the clients of a round."),
    "paces": ("pace", "Paces: batch size, number of steps and learning rate of a client."),
    "weightings": ("weighting", "Weightings: the weights of the clients in the mean."),
    "servers": ("server", "Server optimizers: the step of the global model."),
    "steps": ("local", "Local steps: what a client does with a gradient."),
}
IMPORTS = (
    "from collections.abc import Sequence", "from typing import Literal, TypedDict", "from torch import nn",
    "from fedskew.data.arrays import Dataset", "from fedskew.data.partitioners.base import Partitioner",
    "from fedskew.models import Architecture", "from fedskew.records.diagnostics import Diagnostics",
)  # fmt: skip
MORE = {"weightings": [Wrapping]}  # bases that users derive from


def slot(name: str) -> str:
    """The module of a slot: its classes, imported by name, which checkers take for exported as it is written."""
    key, told = SLOTS[name]
    names = [(kind.__module__, kind.__name__) for kind in (*INGREDIENTS[key].values(), *MORE.get(name, []))]
    lines = ["from typing import TYPE_CHECKING", *(f"from {home} import {one} as {one}" for home, one in names)]
    listed = (
        "if not TYPE_CHECKING:\n    __all__ = [name for name, kind in globals().items() if isinstance(kind, type)]\n"
    )
    return f'"""{told}\n\n{MADE}\n"""\n\n' + "\n".join(lines) + f"\n\n{listed}"


def run_options() -> dict[str, str]:
    """Options of a run without dots, as Python passes them, with their types."""
    owners: list[Any] = [Division, Settings]
    found = {f.name: shown(get_type_hints(owner)[f.name]) for owner in owners for f in dataclasses.fields(owner)}
    for alias, full in ALIASES.items():
        slot, _, field = full[2:].partition(".")
        kinds = DATASETS if slot == "data" else INGREDIENTS.get(slot)
        if "." not in alias and field and kinds:
            hints = {shown(get_type_hints(k)[field]) for k in kinds.values() if field in get_type_hints(k)}
            found[alias[2:].replace("-", "_")] = " | ".join(sorted(hints))
    objects = {"partition": "str | Partitioner", "parts": "str"}
    found |= {name: objects.get(name, "str") for name in NAMED if "." not in name}
    return {name: kind for name, kind in found.items() if name not in PLAIN.parameters and name != "data"}


def data_options() -> dict[str, str]:
    """Options of every dataset of the table, with their types."""
    kinds: dict[str, set[str]] = {}
    for source in DATASETS.values():
        for name, hint in get_type_hints(source).items():
            if name in {f.name for f in dataclasses.fields(source)}:  # type: ignore[arg-type]
                kinds.setdefault(name, set()).update(shown(hint).split(" | "))
    return {
        name: " | ".join(sorted(hints, key=lambda hint: (hint == "None", hint)))
        for name, hints in sorted(kinds.items())
    }


def shown(hint: Any) -> str:
    """A type as a file writes it."""
    text = hint.__name__ if isinstance(hint, type) and not hasattr(hint, "__args__") else str(hint)
    text = re.sub(r"\b(?:[a-z_]+\.)+(?=\w)", "", text.replace("NoneType", "None"))
    text = re.sub(r"Optional\[(.+)\]", r"\1 | None", text)
    return " | ".join(dict.fromkeys(text.split(" | ")))


def several(kind: str) -> str:
    """A type, or a list of its values."""
    bare = kind.removesuffix(" | None")
    return f"{bare} | Sequence[{kind}]" + " | None" * (bare != kind)


def keywords(name: str, told: str, options: dict[str, str]) -> str:
    """A TypedDict of options, each of which may be left out."""
    lines = [f"    {option}: {kind}" for option, kind in options.items()]
    return f'class {name}(TypedDict, total=False):\n    """{told}"""\n\n' + "\n".join(lines) + "\n"


def files() -> dict[Path, str]:
    """The files and what they hold."""
    made = {SOURCE / f"slots/{name}.py": slot(name) for name in SLOTS}
    options = run_options()
    named = {"data": "str | Dataset", "model": "str | Architecture | nn.Module", **options}
    study = {name: several(kind) for name, kind in named.items() if name != "seed"}
    head = "\n".join([f"# {MADE}", "", *IMPORTS]) + "\n"
    run = keywords("RunOptions", "Options of a run that have no dot in their names.", options)
    each = keywords("StudyOptions", "The same in a study; a list of values is a setting each.", study)
    made[SOURCE / "config/keywords.pyi"] = f"{head}\n{run}\n{each}"
    data = keywords("DataOptions", "Options of datasets; each dataset takes its own.", data_options())
    made[SOURCE / "data/keywords.pyi"] = f"# {MADE}\n\nfrom typing import Literal, TypedDict\n\n{data}"
    return {path: formatted(path, text) for path, text in made.items()}


def formatted(path: Path, text: str) -> str:
    """A file as ruff formats it."""
    ruff = [sys.executable, "-m", "ruff"]
    for command in (["check", "--fix", "--quiet", "--select", "I", "-"], ["format", "--quiet", "-"]):
        done = subprocess.run(
            [*ruff, command[0], "--stdin-filename", str(path), *command[1:]], input=text, text=True, check=True,
            capture_output=True,
        )  # fmt: skip
        text = done.stdout
    return text


if __name__ == "__main__":
    for path, text in files().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(path.relative_to(SOURCE.parents[1]))
