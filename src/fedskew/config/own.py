"""Objects of the user's own in an experiment, and a digest of what they compute: of their source and their values.

Two objects of one digest compute the same. The digest covers what a class holds: the syntax of its functions and of
every function, class and value that they read; what is of a library counts by its name. What an installed plug-in
brings is no library. Comments, docstrings, annotations and the version of Python do not count. Where the text does not
say what is computed there is no digest: a lambda, a class that was typed at the prompt, a global that may change.

The earlier digest was of text and bytecode. It is still computed where a run is looked for that was stored under it.
"""

from __future__ import annotations

import ast
import dataclasses
import dis
import functools
import hashlib
import inspect
import json
import linecache
import sys
import sysconfig
import types
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fedskew import plugins
from fedskew.config.tables import TABLES
from fedskew.data.arrays import Dataset
from fedskew.errors import ConfigError
from fedskew.method import SLOTS, Component, spec

PLAIN = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device)
DESCRIBED = (types.GetSetDescriptorType, types.MemberDescriptorType)
ADDED = ("__replace__", "__annotate__", "__annotate_func__")  # functions that some Pythons give every class
NEUTRAL = ("annotation", "returns", "ctx", "kind", "type_comment", "type_params")  # fields of syntax that do not count
FEDSKEW = __file__.rpartition("config")[0]
LIBRARIES = (  # an environment may see the packages of another one
    *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
    *(place for place in sys.path if place.endswith(("site-packages", "dist-packages"))),
)


@dataclasses.dataclass(frozen=True, init=False, eq=False)
class LoadedDataset:
    """A dataset that is at hand, in the place of one of the table. It has no options."""

    def __init__(self, dataset: Dataset) -> None:
        vars(self).update(dataset=dataset, name=dataset.name)

    def __repr__(self) -> str:
        return f"{self.name} {id(self.dataset)}"

    dataset: ClassVar[Dataset]
    name: ClassVar[str]

    def load(self, path: str | None = None) -> Dataset:
        """The dataset."""
        return self.dataset


def sources(experiment: Any, earlier: bool = False) -> dict[str, str]:
    """The digest of each object of the user's own, by its name; empty where all have names in a table.

    Args:
        experiment: The experiment.
        earlier: Whether the digest is that of text and bytecode.

    Raises:
        ConfigError: One has no digest; the message says why.
    """
    data = experiment.data
    digests = {data.name: data.dataset.fingerprint} if isinstance(data, LoadedDataset) else {}
    return digests | {name_of(part): source for part in _own(experiment) if (source := source_of(part, earlier))}


def is_named(experiment: Any) -> bool:
    """Whether a file can name all of an experiment: what is of the user's own has a name in a table, by a plug-in."""
    if isinstance(experiment.data, LoadedDataset):
        return False
    return all(any(table.get(name_of(part)) is type(part) for table in TABLES.values()) for part in _own(experiment))


def has_own(experiment: Any) -> bool:
    """Whether an ingredient, the partitioner or the network is not fedskew's."""
    return bool(_own(experiment))


def _own(experiment: Any) -> list[Any]:
    """The ingredients, the partitioner and the network that are not fedskew's."""
    method = experiment.method
    parts = [*method.parts, *(getattr(method, slot) for slot in SLOTS), experiment.partition, experiment.model]
    for part in parts:  # which grows; one call for all, since every run asks
        held = [getattr(part, f.name) for f in dataclasses.fields(part)] if dataclasses.is_dataclass(part) else []
        parts += [inner for inner in held if isinstance(inner, Component)]
    return [part for part in parts if not type(part).__module__.startswith("fedskew.")]


def name_of(value: Any) -> str:
    """What a record calls an ingredient, or a network of the user's own."""
    return str(getattr(value, "name", type(value).__name__))


def source_of(value: Any, earlier: bool = False) -> str:
    """The digest of an ingredient or a network, 16 hex digits; "" of those of fedskew. Raises ConfigError.

    Values of the fields of an ingredient are not in it: records and addresses hold them.
    """
    if isinstance(value, nn.Module):
        return _digest(_Reader(f"the network {type(value).__name__}", earlier).of_module(value))
    if _is_library(type(value)):
        return ""
    try:
        json.dumps(spec(value))
    except TypeError as error:
        rule = "must be numbers, words or tuples of them, which a record can hold"
        raise ConfigError(f"the fields of {type(value).__name__} {rule}; {error}") from None
    kind: Any = type(value)  # which can be hashed, whatever its metaclass says
    return _of_class(kind, earlier)


@functools.cache
def _of_class(kind: Any, earlier: bool) -> str:
    return _digest(_Reader(f"the class {kind.__name__}", earlier).of_class(kind))


def _digest(parts: Iterator[str]) -> str:
    return hashlib.sha256(json.dumps([*parts]).encode()).hexdigest()[:16]


def _is_library(thing: Any) -> bool:
    """Whether a module, class or function is fedskew's, Python's, or installed: its name stands for its text.

    A plug-in's does not, wherever it is installed.
    """
    name = thing.__name__ if isinstance(thing, types.ModuleType) else thing.__module__
    if isinstance(thing, types.FunctionType):
        file = thing.__code__.co_filename
    else:
        file = "" if name == "__main__" else getattr(sys.modules.get(name), "__file__", None) or "<frozen"
    if file.startswith(("<frozen", FEDSKEW)):
        return True
    return file.startswith(LIBRARIES) and str(name).partition(".")[0] not in plugins.packages()


class _Reader:
    """Reads what a class, a function or a network is made of, each thing once.

    Args:
        owner: What messages call it.
        earlier: Whether it reads text and bytecode.
    """

    def __init__(self, owner: str, earlier: bool) -> None:
        self.owner, self.earlier, self.seen = owner, earlier, set[int]()

    def refuse(self, why: str, hint: str) -> ConfigError:
        """The error for something whose text does not say what it computes."""
        return ConfigError(f"{self.owner} must have a source that says what it computes; {why}; {hint}")

    def of_class(self, kind: type) -> Iterator[str]:
        """What a class and its bases hold; those of libraries are named."""
        for base in kind.__mro__:
            home = base.__module__ if _is_library(base) else ""
            home = "fedskew" if home.startswith("fedskew.") and not self.earlier else home  # whose modules move
            yield f"{home}.{base.__qualname__}"
            for name, held in {} if _is_library(base) or id(base) in self.seen else vars(base).items():
                yield from self.of_attribute(name, held, f"{base.__name__}.{name}")
            self.seen.add(id(base))

    def of_attribute(self, name: str, held: Any, where: str) -> Iterator[str]:
        """What a class holds under a name: functions and values."""
        if self.earlier:
            yield name
        if isinstance(held, property):
            held = held.fget
        elif isinstance(held, staticmethod | classmethod | functools.cached_property):
            held = vars(held).get("func", getattr(held, "__func__", None))
        if isinstance(held, types.FunctionType):
            written = inspect.unwrap(held).__code__.co_filename == "<string>"  # by `dataclass`: it follows from fields
            counts = not written and name not in ADDED
        else:
            counts = not name.startswith(("__", "_abc_")) and not isinstance(held, DESCRIBED)
        if counts:
            yield from [] if self.earlier else [name]
            yield from self.of_value(held, where)

    def of_function(self, function: types.FunctionType, where: str) -> Iterator[str]:
        """The syntax of a function, and what its code reads: defaults, globals and the variables around it."""
        code = function.__code__
        if code.co_name == "<lambda>":
            raise self.refuse(f"{where} is a lambda", "write a function with a name")
        try:
            text = inspect.getsource(code)
        except OSError:
            raise self.refuse(f"{where} has none, as what is typed at the prompt", "put it into a file") from None
        definition = None if self.earlier else _definition(code)
        yield from (text, *map(_executed, _codes(code))) if definition is None else _normal(definition)
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            yield from self.of_value(value, f"a default of {where}")
        steps = (step for inner in _codes(code) for step in dis.get_instructions(inner))
        read = {step.argval for step in steps if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
        for name in sorted(function.__globals__.keys() & read):
            yield from self.of_value(function.__globals__[name], f"the global {name!r} of {where}")
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            if name != "__class__":
                yield from self.of_value(cell.cell_contents, f"the variable {name!r} around {where}")

    def of_value(self, value: Any, where: str, read: bool = False) -> Iterator[str]:
        """What a value is. One that may change is refused, unless it is ``read`` anew for every digest."""
        if id(value) in self.seen and not isinstance(value, PLAIN):
            return
        if isinstance(value, PLAIN):
            yield repr(value)
        elif isinstance(value, types.ModuleType):
            if not _is_library(value):
                raise self.refuse(f"{where} is the module {value.__name__}", "import the names that are read")
            yield value.__name__
        elif hasattr(value, "__wrapped__") and (not isinstance(value, types.FunctionType) or _is_library(value)):
            yield from self.of_value(value.__wrapped__, where)  # a decorator of a library around a function
        elif hasattr(value, "__qualname__") and _is_library(value):
            yield value.__code__.co_qualname if isinstance(value, types.FunctionType) else value.__qualname__
        elif isinstance(value, type):
            yield from self.of_class(value)
        elif isinstance(value, types.FunctionType):
            self.seen.add(id(value))
            yield from self.of_function(value, where)
        elif isinstance(value, tuple) or (read and isinstance(value, list)):
            for element in value:
                yield from self.of_value(element, where, read)
        elif read and isinstance(value, Mapping):
            for name, entry in value.items():
                yield repr(name)
                yield from self.of_value(entry, f"{where}.{name}", read)
        elif read and isinstance(value, Tensor):
            content = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
            yield f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(content).hexdigest()}"
        elif dataclasses.is_dataclass(value) and vars(type(value))["__dataclass_params__"].frozen:
            yield from self.of_class(type(value))
            for f in dataclasses.fields(value):
                yield from self.of_value(getattr(value, f.name), f"{where}.{f.name}", read)
        else:
            hint = "make it a number, a word or a tuple, or a field"
            raise self.refuse(f"{where} is of type {type(value).__name__}, which may change", hint)

    def of_module(self, module: nn.Module) -> Iterator[str]:
        """The classes of a network and its layers, their attributes, and the bytes of parameters and buffers."""
        for name, layer in module.named_modules():
            yield name
            yield from self.of_class(type(layer))
            for key, held in vars(layer).items():
                if key not in ("_modules", "_parameters", "_buffers") and (held or not isinstance(held, Mapping | set)):
                    yield key
                    yield from self.of_value(held, f"{name}.{key}".lstrip("."), read=True)
        yield from self.of_value(module.state_dict(), "its weights", read=True)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Code, and the code of the functions inside it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _codes(inner)


def _executed(code: types.CodeType) -> str:
    """What code does, whatever its file says by now: instructions, names and constants."""
    plain = sorted(repr(constant) for constant in code.co_consts if isinstance(constant, (*PLAIN, tuple)))
    return json.dumps([code.co_code.hex(), code.co_names, plain])


def _definition(code: types.CodeType) -> ast.AST | None:
    """The syntax of a function, from its file; None where the file has changed since it was imported."""
    known = _definitions("".join(linecache.getlines(code.co_filename)))
    node, compiled = known.get((code.co_firstlineno, code.co_name), (None, code))
    same = [*map(_executed, _codes(code))] == [*map(_executed, _codes(compiled))]
    return node if same else None


@functools.lru_cache(16)
def _definitions(text: str) -> dict[tuple[int, str], tuple[ast.AST, types.CodeType]]:
    """Syntax and code of every function of a file, by first line and name."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python told of them when the file was imported
            tree, whole = ast.parse(text), compile(text, "<own>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):  # a cell of a notebook with commands of its own
        return {}
    codes = {(code.co_firstlineno, code.co_name): code for code in _codes(whole)}
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    places = [(min(inner.lineno for inner in (node, *node.decorator_list)), node.name) for node in nodes]
    return {place: (node, codes[place]) for place, node in zip(places, nodes, strict=True) if place in codes}


def _normal(node: Any, parent: type = ast.Module) -> Iterator[str]:
    """Syntax as words, without what computes nothing and without what only some Pythons write.

    Args:
        node: A node, a list of nodes, or the value of a field.
        parent: The node that it stands in.
    """
    if isinstance(node, list):
        yield "["
        for child in node:
            if not (parent is ast.JoinedStr and getattr(child, "value", None) == ""):  # which Python 3.12 adds
                yield from _normal(child, parent)
        yield "]"
    elif not isinstance(node, ast.AST):
        yield node if isinstance(node, str) else f"{type(node).__name__} {node!r}"
    elif isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        return  # a docstring, among others
    elif isinstance(node, ast.AnnAssign) and parent is not ast.ClassDef:  # where it makes a field
        if node.value is not None:
            yield from _normal(ast.Assign([node.target], node.value))
    else:
        yield type(node).__name__
        for name in node._fields:
            held = getattr(node, name, None)
            if name not in NEUTRAL and held is not None and held != []:
                yield name
                yield from _normal(held, type(node))
        yield "."
