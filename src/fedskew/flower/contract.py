"""What server and node must agree on before anything trains: a handshake, and the permissions of a node."""

import json
import platform
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from fedskew import __version__
from fedskew import deployment as lib
from fedskew.errors import one_line, require, unknown
from fedskew.fields import untyped
from fedskew.flower.wire import FORMAT
from fedskew.method import WORDS, Method, Sampler, method_spec
from fedskew.types import Query

PERMITS = {
    **{word: WORDS[word] for word in ("histogram", "labels", "loss", "probe")},
    "metrics": "the confusion matrix of a model on the node's own test rows",
    "fit": "sums of loss, gradient and Hessian over the node's rows, to fit biases and a temperature to the logits",
    "columns": "sum and sum of squares of each column of numbers, and the categories of each other column",
}
# sums under weights of the server's choice tell the histogram, and the fit needs it
IMPLIED = {"histogram": ("histogram", "labels"), "fit": ("fit", "histogram", "labels")}
# the others change the last bits at most
FATAL = ("fedskew", "format", "method", "model", "classes", "shape", "columns")


def contract(method: Method, model: lib.Model, inputs: lib.Inputs, settings: lib.Settings) -> dict[str, Any]:
    """The facts that server and node compare; each makes its own."""
    frozen = lib.frozen_digests(model)
    shapes = {name: [list(p.shape), str(p.dtype)] for name, p in {**model.params, **model.buffers}.items()}
    return {
        "fedskew": __version__,
        "format": FORMAT,
        "method": _digest(method_spec(method)),
        "model": _digest([shapes, model.head, settings.seed_of("model"), settings.precision, frozen]),
        "classes": list(inputs.label_names),
        "shape": [list(inputs.shape), inputs.images, list(inputs.mean), list(inputs.std)],
        "torch": torch.__version__.partition("+")[0],
        "Python": ".".join(platform.python_version_tuple()[:2]),
    }


def column_contract(inputs: lib.Inputs) -> dict[str, Any]:
    """What server and node compare before there is an encoding of all nodes' rows."""
    columns = _digest(untyped(inputs.encoding))
    return {"fedskew": __version__, "format": FORMAT, "classes": list(inputs.label_names), "columns": columns}


def disagreement(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> tuple[str, bool]:
    """(the first entry that differs, in words; whether it forbids the run); ("", False) where all agree."""
    for name in (*FATAL, *(n for n in ours if n not in FATAL)):
        if ours.get(name) != theirs.get(name):
            here, there = (one_line(json.dumps(c.get(name)), 60) for c in (ours, theirs))
            return f"{name} is {there} at the server and {here} at the node", name in FATAL
    return "", False


def _digest(value: Any) -> str:
    return lib.digests.of_parts(json.dumps(value, sort_keys=True))[:16]


def needs(method: Method) -> dict[str, str]:
    """What a method asks of nodes beside training and the number of rows: {permit: the component that asks}."""
    needed: dict[str, str] = {}
    for part in lib.unguarded(method).components:
        offers = isinstance(part, Sampler) and type(part).offer is not Sampler.offer  # by which the server plans
        for word in [*(read.word for read in part.reads), *["histogram"] * offers]:
            if word in PERMITS:
                needed.setdefault(word, part.name)
    return needed


def permit_of(query: Query) -> str:
    """The permit of a question; "" for one whose answer stays on the client."""
    if query.keep:
        return ""
    return {"counts": "histogram", "loss": "loss"}.get(query.what if isinstance(query.what, str) else "", "probe")


def permits_of(words: str) -> frozenset[str]:
    """The permits of a node, from "histogram, loss"; "all" gives every one. Raises ConfigError for another word."""
    known: dict[str, Iterable[str]] = {permit: IMPLIED.get(permit, (permit,)) for permit in PERMITS}
    known |= {"all": PERMITS, "none": ()}
    listed = words.replace(",", " ").split()
    for word in listed:
        if word not in known:
            raise unknown("word of allow", word, known)
    return frozenset(permit for word in listed for permit in known[word])


def check_permits(method: Method, permits: Iterable[str], who: str) -> None:
    """Raise ConfigError where a node does not permit what a method needs."""
    for permit, part in needs(method).items():
        hint = f"start that node with allow={permit!r} in its configuration, or take another method"
        rule = f"allow {permit} ({PERMITS[permit]}) for {method.name}, whose {part!r} asks for it"
        require(permit in permits, who, rule, " ".join(permits) or "none", hint)
