"""What a server asks of a node, held against what the node has: a server may be hostile, too.

Every function raises ConfigError, in one line, before anything is allocated or repeated by a number of the server's.
"""

import sys
import tomllib
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedskew.engines.guard import unguarded
from fedskew.engines.planning import Pace
from fedskew.errors import ConfigError, text_of
from fedskew.flower.facts import count, flag, quoted
from fedskew.flower.wire import layout_of
from fedskew.functional.fitting import MOST
from fedskew.method import Component, Method
from fedskew.types import Query, Tree

MOST_TRAINED = 1 << 28  # rows times epochs of one message: 2 GiB of row numbers
MOST_DRAWS = 10_000  # of a question
MOST_FITTED = 2 * MOST  # exchanges of one model: a fit of the rows as they are, and a balanced one
READ = ("data", "path", "partition.path", "from")  # options of a run that name files, or a dataset to download


def check_data(config: Mapping[str, Any], folder: Path) -> None:
    """A run's configuration names the data of the app, which the operator of the node has read, and no others."""
    files = [place / "pyproject.toml" for place in (folder, folder.parent) if (place / "pyproject.toml").is_file()]
    apps = [tomllib.loads(text_of(file)).get("tool", {}).get("flwr", {}).get("app") for file in files]
    app = next(filter(None, apps), None)
    if app is None:
        return  # a simulation in one process; a bundle of Flower's has one
    held = app.get("config", {})
    for name in {**held, **config}:
        ours, theirs = held.get(name), config.get(name)
        if (name in READ or name.startswith("data.")) and ours != theirs:
            raise ConfigError(f"{name} must be {ours!r}, as in the app of this node; the server says {quoted(theirs)}")


def shared_of(trees: Mapping[str, Tree], *names: str) -> dict[str, Any]:
    """What all clients are sent: trees of these names, and "round" and "rounds" as numbers ()."""
    found = trees.get("shared")
    if not isinstance(found, dict) or not set(names) <= set(found):
        raise ConfigError(f"a message must hold {', '.join(names)}; got {quoted(found and sorted(found))}")
    for what in names:
        if what in ("round", "rounds"):
            number_of(found, what)
        elif not isinstance(found[what], dict):
            raise ConfigError(f"{what} of a message must be named tensors; got one tensor")
    return found


def number_of(found: Mapping[str, Any], what: str) -> int:
    """A round's number, from a tensor ()."""
    value = found[what]
    if not isinstance(value, Tensor) or value.dim() or value.dtype != torch.int64:
        raise ConfigError(f"{what} of a message must be a whole number")
    return count({what: int(value)}, what)


def check_model(found: Mapping[str, Tree], wanted: Mapping[str, Tensor]) -> None:
    """A model that the node is to keep has the tensors of its network, and no others."""
    told, known = layout_of(found), layout_of(wanted)
    odd = [path for path in {**known, **told} if told.get(path) != known.get(path)]
    if odd:
        raise ConfigError(f"a model must have the tensors of this node's network; {quoted('.'.join(odd[0]))} differs")


def own_of(trees: Mapping[str, Tree], template: Mapping[str, Tree]) -> dict[str, Any]:
    """What this client alone is sent; what was written to its memory has the shapes of the memory."""
    found = trees.get("own", {})
    found = found if isinstance(found, dict) else {"own": found}
    written, each = found.get("written", {}), found.get("each", {})
    known = layout_of(template)
    told = layout_of({"written": written, "each": each})
    wrong = [path for path, leaf in told.items() if leaf and path[0] == "written" and known.get(path[1:]) != leaf]
    if wrong or set(found) - {"written", "each", "offered", "used"} or not isinstance(each, dict):
        where = ".".join(wrong[0]) if wrong else sorted(found)
        raise ConfigError(f"what is written to a client must be of its memory; got {quoted(where)}")
    return {**found, "written": written, "each": each}


def used_of(own: Mapping[str, Any], counts: Tensor) -> tuple[Tensor, Tensor]:
    """(offered, used) rows of each class, [C]; all rows where the server does not know their classes."""
    if "offered" not in own and "used" not in own:
        return counts, counts
    found = []
    for what in ("offered", "used"):
        leaf = own.get(what)
        if not isinstance(leaf, Tensor) or leaf.shape != counts.shape or leaf.dtype != torch.int64:
            raise ConfigError(f"{what} must be a number of rows for each of {len(counts)} classes")
        if any(not 0 <= n <= MOST_TRAINED for n in leaf.tolist()):
            raise ConfigError(f"{what} must be rows from 0 to {MOST_TRAINED}; got {quoted(leaf.tolist())}")
        found.append(leaf)
    return found[0], found[1]


def pace_of(facts: Mapping[str, Any], rows: int) -> Pace:
    """The server's pace: batch size, epochs, steps an epoch, rate, steps in all. ``rows`` are those of an epoch."""
    told = facts.get("pace")
    if not isinstance(told, list) or len(told) != 5:
        raise ConfigError(f"a pace must have 5 numbers; got {quoted(told)}")
    named = dict(zip(("batch size", "epochs", "steps an epoch", "rate", "steps"), told, strict=True))
    batch, most, total = (count(named, what) for what in ("batch size", "steps an epoch", "steps"))
    epochs = count(named, "epochs", 0, MOST_TRAINED // max(rows, 1))
    rate = named["rate"]
    if type(rate) not in (int, float) or not 0 <= rate <= sys.float_info.max:  # nor NaN
        raise ConfigError(f"the rate of a pace must be a finite number of at least 0; got {quoted(rate)}")
    return batch, epochs, most, float(rate), total


def point_of(trees: Mapping[str, Tree], classes: int) -> tuple[Tensor, Tensor]:
    """(point [C + 1], weight of each class [C]) at which sums are asked for."""
    found = trees.get("own")
    leaves: list[Tensor] = []
    for what, size in (("point", classes + 1), ("weights", classes)):
        leaf = found.get(what) if isinstance(found, dict) else None
        if not isinstance(leaf, Tensor) or leaf.shape != (size,) or leaf.dtype != torch.float64:
            raise ConfigError(f"{what} of a fit must be {size} numbers of 8 bytes")
        if not bool(leaf.isfinite().all()) or (what == "weights" and float(leaf.min()) < 0):
            raise ConfigError(f"{what} of a fit must be finite{', and at least 0' if what == 'weights' else ''}")
        leaves.append(leaf)
    return leaves[0], leaves[1]


def question_of(facts: Mapping[str, Any], method: Method, client: int) -> tuple[Query, Component]:
    """A component's question: "loss", "delta", or a function of the component that is no secret of Python's."""
    pairs = zip(method.components, unguarded(method).components, strict=True)
    part, plain = next((pair for pair in pairs if pair[0].name == facts.get("part")), (None, None))
    if part is None:
        raise ConfigError(f"{method.name} must have the component that asks; got {quoted(facts.get('part'))}")
    what: Any = facts.get("what")
    if what not in ("loss", "delta"):
        function = getattr(type(plain), what, None) if isinstance(what, str) and what[:1] != "_" else None
        if not isinstance(function, types.FunctionType):
            raise ConfigError(f"a question must name a function of {part.name!r}; got {quoted(what)}")
        what = getattr(part, what)
    draws = count(facts, "draws", 1, MOST_DRAWS)
    return Query(torch.tensor([client]), what, "own", flag(facts, "keep"), draws, flag(facts, "augment")), part
