"""The rows of a node: a client of a named dataset, or data of the node's own.

Scale and categories of a table's columns may come from the rows of all nodes. A node that allows it tells, of its
training rows, the sum and the sum of squares of each column of numbers, and the categories of each other column. The
server makes one encoding of them, which goes with every message from then on. Sums are of differences from the
example's mean, which everybody knows: they lose no digits where values are far from 0.
"""

import importlib
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedskew import rng
from fedskew.data.arrays import Dataset, draw_whole
from fedskew.data.encoding import PLAIN, Column, Encoding, is_absent, spellings
from fedskew.data.federation import Federation
from fedskew.data.inputs import Inputs, rows_of
from fedskew.data.inputs import Rows as FileRows
from fedskew.data.sources.delimited import Csv
from fedskew.data.sources.folders import image_files
from fedskew.data.sources.pictures import decode_images
from fedskew.data.sources.table import Npz, Parquet
from fedskew.data.values import lacking, plain, spelt
from fedskew.errors import ConfigError, DataError, FedskewError, FieldError, closest, json_file, one_line
from fedskew.fields import typed, untyped
from fedskew.flower.contract import disagreement, terms
from fedskew.flower.node import Rows
from fedskew.flower.options import NodeOptions
from fedskew.flower.standin import Hello
from fedskew.flower.wire import LONGEST, Envelope, Packed, echoed, expect, pack, quoted, real, table

KINDS: dict[str, Any] = {".csv": Csv, ".npz": Npz, ".parquet": Parquet}


def of_client(fed: Federation, k: int) -> Rows:
    """The rows of client k of a federation, in its order, with its share of the test rows or its own test rows."""
    data = fed.dataset
    at = torch.from_numpy(fed.rows(k))
    test = torch.from_numpy(fed.test_rows(k) if fed.held is None else fed.local_test_rows(k))
    x, y = (data.x_test, data.y_test) if fed.held is None else (data.x, data.y)
    return Rows(Inputs.of(data), data.x[at], data.y[at], x[test], y[test], data.augment)


class Raw(NamedTuple):
    """Rows before they are samples.

    Attributes:
        what: Where they come from, for messages.
        x: Columns by name, or an array of samples.
        y: Class numbers, [n].
        numbers: Number of each row in messages.
        units: What the node's own test takes whole, such as patients, [n]; None: rows.
        left_out: Count by reason of the files that were not read.
    """

    what: str
    x: Any
    y: Tensor
    numbers: Sequence[Any] | None = None
    units: np.ndarray | None = None
    left_out: Sequence[tuple[str, int]] = ()

    def samples(self, inputs: Inputs) -> Tensor:
        """The rows as a model takes them. Raises DataError."""
        coded = not hasattr(self.x, "keys")
        x = inputs.samples(self.x, encoded=coded, what=self.what, rows=self.numbers, new=False)
        if len(x) != len(self.y):
            told = f"got {len(x)} samples and {len(self.y)} labels"
            raise DataError(f"{self.what} must have a label for each sample; {told}")
        return x

    def held(self, fraction: float) -> np.ndarray:
        """Which rows the node keeps for its own test, bool [n]. Raises DataError where no unit is small enough."""
        held, key = np.zeros(len(self.y), bool), rng.key(0, "node", "test")
        count = min(int(fraction * len(held) + 0.5), len(held) - 1)
        if self.units is None:
            held[rng.generator(key).permutation(len(held))[:count]] = True
            return held
        held[draw_whole(np.zeros(len(held), np.int64), self.units, np.array([count]), key)] = True
        if count and not held.any():
            raise DataError(f"{self.what} must have values of split_by that a test of {count} rows can take whole")
        return held


def of_node(inputs: Inputs, raw: Raw, options: NodeOptions, augment: tuple[str, ...] = ()) -> Rows:
    """The rows of a node as samples, some of them kept for its own test. Raises DataError, in one line."""
    x, y, held = raw.samples(inputs), raw.y, torch.from_numpy(raw.held(options.local_test))
    return Rows(inputs, x[~held], y[~held], x[held], y[held], augment)


def raw_of(inputs: Inputs, options: NodeOptions, split_by: str = "") -> Raw:
    """The rows that a node's configuration names. Raises ConfigError or DataError, in one line.

    Args:
        inputs: Their columns and classes; categories may be others.
        options: Of the node.
        split_by: Column none of whose values lies among the training and the test rows; "" for none.
    """
    raw = _read(options.data, inputs, options, split_by)
    if not len(raw.y):
        raise DataError(f"{options.data} must hold rows; it holds none")
    if not split_by:
        return raw
    if split_by not in (known := list(raw.x.keys()) if hasattr(raw.x, "keys") else []):
        raise DataError(f"{raw.what} must have the column {split_by!r} of split_by{closest(split_by, known)}")
    units, where = spelt(plain(raw.x[split_by])), f"{raw.what}: column {split_by!r}"
    if len(units) != len(raw.y) or len(lacking(units)):
        raise DataError(f"{where} must have a value in every row")
    one = spellings(units.tolist(), where, PLAIN if inputs.encoding is None else inputs.encoding.notation)
    return raw._replace(units=np.unique([one[unit] for unit in units.tolist()], return_inverse=True)[1])


def _read(source: str, inputs: Inputs, options: NodeOptions, split_by: str) -> Raw:
    path = Path(source).expanduser()
    if ":" in source and not path.exists():
        return _called(source, inputs)
    if not path.exists():
        raise DataError(
            f"data must be a csv, npz or parquet file, a folder of images by class, or module:function; got {source!r}"
        )
    if path.is_dir():
        return _pictures(path, inputs)
    kind = KINDS.get(path.suffix)
    if kind is None:
        raise DataError(f"data must end in {', '.join(KINDS)}, or be a folder; got {source!r}")
    asked = {"y_column": options.y_column, "split_by": split_by} if path.suffix != ".npz" else {}
    named = {option: value for option, value in asked.items() if value}
    try:
        found = rows_of(kind(**named), str(path), inputs)
    except FieldError as error:
        raise DataError(error.named(error.field.replace("_", "-"))) from None
    assert isinstance(found, FileRows), "a file is no dataset"
    if found.y is None:
        columns = ", ".join(found.x) if hasattr(found.x, "keys") else "no labels"
        raise DataError(f"y-column must be a column of labels of {path}; got none among {columns}")
    y = inputs.labels(found.y, f"{found.label} of {path}", found.numbers)
    if not hasattr(found.x, "keys"):
        return Raw(f"x of {path}", found.x, y)
    table = {name: values for name, values in found.x.items() if name != found.label}
    if inputs.encoding is not None:
        return Raw(found.what, table, y, found.numbers)
    try:
        x = np.stack([np.asarray(values).astype(np.float32) for values in table.values()], 1)
    except ValueError as error:
        raise DataError(f"{path} must hold numbers in every column but {found.label!r}: {error}") from None
    return Raw(found.what, x, y)


def _given(x: Any, y: Any, inputs: Inputs, what: str) -> Raw:
    return Raw(f"x of {what}", x, inputs.labels(y, f"y of {what}"))


def _called(source: str, inputs: Inputs) -> Raw:
    """What a function of the node's operator returns: (x, y), columns and labels, or a dataset."""
    module, _, name = source.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise DataError(f"data must name a function as module:function; got {source!r}: {error}") from None
    found = function()
    if isinstance(found, Dataset):
        if found.encoding != inputs.encoding:
            raise DataError(f"{source} must be encoded as the app's inputs say; return raw columns by name")
        return _given(found.x, [found.class_names[c] for c in found.y.tolist()], inputs, source)
    if not isinstance(found, tuple) or len(found) != 2:
        raise DataError(f"{source} must return (x, y) or a Dataset; got {type(found).__name__}")
    return _given(*found, inputs, source)


def _pictures(path: Path, inputs: Inputs) -> Raw:
    """A folder of images, one folder a class."""
    if len(inputs.shape) != 3:
        raise DataError(f"{path} must be a csv or npz file: the model takes {inputs.shape} features, no images")
    found = image_files(path)
    if found.clients:
        raise DataError(f"{path} must hold images as class/image; got folders in the folders of classes")
    x = decode_images(found.files, str(path), "L" if inputs.shape[0] == 1 else "RGB")
    return _given(x, found.classes, inputs, str(path))._replace(left_out=sorted(found.left_out.items()))


def inputs_of(folder: Path) -> tuple[Inputs, tuple[str, ...]]:
    """(inputs, augmentations) of an app's file inputs.json. Raises ConfigError."""
    path = folder / "inputs.json"
    try:
        content = json_file(path)
        return typed(content["inputs"], Inputs), tuple(content.get("augment", ()))
    except FileNotFoundError:
        raise ConfigError(f"{path} must say what a sample is; it is missing; `fedskew flower init` writes it") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} must be what `fedskew flower init` writes: {error!r}") from None


def server_data(inputs: Inputs, test: str) -> Dataset:
    """The server's own rows where nodes bring theirs: those of a file of test rows, or none."""
    shape, kind = inputs.shape, torch.uint8 if inputs.images else torch.float32
    none, labels = torch.empty(0, *shape, dtype=kind), torch.empty(0, dtype=torch.int64)
    x, y = none, labels
    if test:
        raw = raw_of(inputs, NodeOptions(data=test))
        x, y = raw.samples(inputs), raw.y
    names = inputs.label_names
    return Dataset("nodes", none, labels, x, y, len(names), names, inputs.mean, inputs.std, encoding=inputs.encoding)


def written(inputs: Inputs, augment: tuple[str, ...]) -> str:
    """The file that `inputs_of` reads."""
    return json.dumps({"inputs": untyped(inputs), "augment": list(augment)}, indent=1)


# Scale and categories of columns


MOST = 1000  # categories of a column, those of all nodes together
WIDEST = 3.5e38  # of a number: float32 holds no larger one
FLAT = 1e-13  # of the mean square: a variance below it is rounding
NEAR = 1 + 1e-9  # for sums that are rounded


def encoding_of(inputs: Inputs) -> Encoding:
    """The encoding of an app's inputs. Raises ConfigError where samples are no rows of a table."""
    if inputs.encoding is None:
        raise ConfigError("flower.encoding must be example where the app's inputs are no columns of a table; got nodes")
    return inputs.encoding


def _numbers(encoding: Encoding) -> list[Column]:
    """The columns whose scale is asked for; none where the example's numbers are not standardised."""
    numbers = [column for column in encoding.columns if column.number]
    return numbers if any((c.mean, c.std) != (0.0, 1.0) for c in numbers) else []


def told_of(encoding: Encoding, raw: Raw, held: np.ndarray) -> dict[str, dict[str, Any]]:
    """What a node tells of its columns.

    Args:
        encoding: Of the example.
        raw: The node's rows, by column.
        held: Those that it keeps for its own test, bool [n]: of these, categories alone, where nothing is filled.

    Returns:
        By column ``sum`` and ``squares``, or ``values``.

    Raises:
        DataError: A column is missing, or a value is missing or of another kind.
    """
    if not hasattr(raw.x, "keys"):
        raise DataError(f"{raw.what} must be columns by name, whose sums are asked for")
    found: dict[str, dict[str, Any]] = {}
    if numbers := _numbers(encoding):
        replace(encoding, columns=tuple(numbers)).encode(raw.x, raw.what, raw.numbers, [])  # which checks them
        rows = range(len(held)) if raw.numbers is None else raw.numbers
        for column in numbers:
            apart = encoding.values(column, raw.x[column.name], raw.what, rows)[~held] - column.mean
            found[column.name] = {"sum": math.fsum(apart).hex(), "squares": math.fsum(apart * apart).hex()}
    for column in (c for c in encoding.columns if not c.number):
        if column.name not in list(raw.x.keys()):
            raise DataError(f"{raw.what} must have the column {column.name!r}")
        filled, cells = "" in column.values, encoding.notation.meant(plain(raw.x[column.name]), column.values)
        values = np.unique(cells[~held] if filled else cells).tolist()
        doubtful = [v for v in values if v and is_absent(v) and v not in column.values]
        if doubtful and encoding.notation.missing_words is None:
            hint = "leave it blank if the value is missing, or set missing_words where the example is read"
            raise DataError(f"{raw.what}: column {column.name!r} has {doubtful[0]!r}, which may mean no value; {hint}")
        if "" in values and not filled:
            raise DataError(f"{raw.what}: column {column.name!r} must have a value in every row")
        found[column.name] = {"values": [value for value in values if value]}
    return found


class Telling:
    """A node that knows no encoding yet: it says hello, and what the encoding is made of."""

    def __init__(self, inputs: Inputs, raw: Raw, client: int, options: NodeOptions) -> None:
        """Raises DataError where the rows do not fit."""
        held, self.terms = raw.held(options.local_test), terms(inputs)
        self.facts = {
            "client": client, "name": options.name, "permits": sorted(options.permits), "rows": int((~held).sum()),
            "test_rows": int(held.sum()), "columns": told_of(encoding_of(inputs), raw, held),
        }  # fmt: skip

    def answer(self, message: Envelope) -> tuple[dict[str, Any], Packed]:
        """(facts, no tensors) of the reply to a hello. Raises ConfigError for anything else."""
        echo = echoed(message.facts)
        expect(echo["kind"] == "hello", "a node without an encoding", "be told hello", echo["kind"])
        wrong, fatal = disagreement(self.terms, table(message.facts, "contract"))
        return {**echo, **self.facts, "differs": wrong, "fatal": fatal}, pack({})


def check_told(hello: Hello, encoding: Encoding) -> None:
    """Raise ConfigError unless a hello tells of the columns what may be true of its rows."""
    told: Any = hello.facts.get("columns")
    numbers, n = _numbers(encoding), hello.facts["rows"]
    asked = [c.name for c in encoding.columns if c in numbers or not c.number]
    try:
        expect(isinstance(told, dict) and set(told) == set(asked), "they", f"be {quoted(asked)}", told)
        for column in encoding.columns:
            part = table(told, column.name) if column.name in asked else {}
            if column in numbers:
                _check_sums(n, real(part, "sum"), real(part, "squares"), abs(column.mean))
            elif not column.number:
                _check_values(part.get("values"))
    except ConfigError as error:
        raise ConfigError(f"{hello.name} must tell of its columns what was asked for: {error}") from None


def _check_sums(n: int, total: float, squares: float, shift: float) -> None:
    most = WIDEST + shift
    holds = abs(total) <= n * most and total * total <= n * squares * NEAR and 0 <= squares <= n * most * most
    expect(holds, "sums", f"be of {n} numbers", (total, squares))


def _check_values(values: Any) -> None:
    """Different words, not too many and not too long, that a file can hold."""
    words = isinstance(values, list) and all(isinstance(v, str) and 0 < len(v) <= LONGEST for v in values)
    holds = words and len(set(values)) == len(values) <= MOST
    expect(holds, "categories", f"be at most {MOST} different words of 1 to {LONGEST} characters", values)
    half = any(0xD800 <= ord(letter) < 0xE000 for value in values for letter in value)
    expect(not half, "categories", "be text", "half of a surrogate pair")


def made_of(inputs: Inputs, hellos: Sequence[Hello]) -> Inputs:
    """The inputs with scale and categories of all nodes' rows. Raises ConfigError for too many or no categories.

    A number's mean and standard deviation are those of all training rows. Categories are sorted, those of the rows
    that any node has. What fills a missing value, and the order of ordered categories, are the example's.
    """
    ours, made = encoding_of(inputs), []
    n, numbers = max(sum(hello.facts["rows"] for hello in hellos), 1), _numbers(ours)
    for column in ours.columns:
        told = [hello.facts["columns"].get(column.name, {}) for hello in hellos]
        if column in numbers:
            first, second = (math.fsum(real(part, what) for part in told) / n for what in ("sum", "squares"))
            variance = second - first * first
            std = math.sqrt(variance) if variance > FLAT * second else 1.0
            made.append(replace(column, mean=column.mean + first, std=std))
        elif column.number:
            made.append(column)
        else:
            found = {value for part in told for value in part["values"]}
            known = [value for value in column.values if value]
            try:
                named = spellings({*found, *known}, f"column {column.name!r}", ours.notation)
            except DataError as error:
                raise ConfigError(f"{error}, in the data of the example") from None
            words = sorted({named[value] for value in found})
            if not 0 < len(words) <= MOST:
                rule = f"have 1 to {MOST} categories at all nodes together; got {len(words)}"
                raise ConfigError(f"column {column.name!r} must {rule}; name another kind by --data.types")
            made.append(replace(column, values=(*words, *([""] if "" in column.values else ()))))
    return _with(inputs, replace(ours, columns=tuple(made)))


def inputs_with(inputs: Inputs, content: Any) -> Inputs:
    """The inputs with an encoding that a message brought. Raises ConfigError unless it is one of the app's columns."""
    ours = encoding_of(inputs)
    try:
        found = typed(content, Encoding)
        if json.loads(json.dumps(untyped(found))) != content:
            raise ValueError("it has entries that an encoding does not have")
        for column in found.columns:
            if column.values:
                _check_values([value for value in column.values if value])
        whole = json.loads(json.dumps(untyped(found))) == content  # nothing is left out, and nothing beside it
        facts = [(one.single, one.label, len(one.columns)) for one in (found, ours)]
        right = whole and facts[0] == facts[1] and all(map(_alike, found.columns, ours.columns))
    except (FedskewError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"the server's encoding must be one: {one_line(error)}") from None
    if not right:
        raise ConfigError("the server's encoding must be of the columns of the app's inputs")
    return _with(inputs, found)


def _alike(found: Column, ours: Column) -> bool:
    """Whether a column differs from that of the example in its scale or its categories alone."""
    scaled = math.isfinite(found.mean) and 0 < found.std < math.inf
    values = ours.values if ours.number else found.values
    filled = ("" in values) == ("" in ours.values) and len(set(values)) == len(values) and bool(values or ours.number)
    known = (found.unseen, found.whole) == (ours.unseen, ours.whole)  # which equality leaves out
    return scaled and filled and known and found == replace(ours, mean=found.mean, std=found.std, values=values)


def _with(inputs: Inputs, encoding: Encoding) -> Inputs:
    return replace(inputs, shape=(encoding.width,), encoding=encoding)
