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

from fedskew import deployment as lib
from fedskew import rng
from fedskew.data import Dataset, Federation
from fedskew.errors import (
    ConfigError,
    DataError,
    FedskewError,
    FieldError,
    claim,
    closest,
    json_file,
    one_line,
    require,
)
from fedskew.fields import typed, untyped
from fedskew.flower.contract import column_contract, disagreement
from fedskew.flower.node import Reply
from fedskew.flower.options import NodeOptions
from fedskew.flower.standin import Hello, NodeRows, dataset_of
from fedskew.flower.wire import LONGEST, Envelope, expect, quoted, real, table


def rows_of_client(fed: Federation, k: int) -> NodeRows:
    """The rows of client k of a federation, in its order, with its share of the test rows or its own test rows."""
    data = fed.dataset
    at = torch.from_numpy(fed.rows(k))
    test = torch.from_numpy(fed.test_rows(k) if fed.held is None else fed.local_test_rows(k))
    x, y = (data.x_test, data.y_test) if fed.held is None else (data.x, data.y)
    return NodeRows(lib.Inputs.of(data), data.x[at], data.y[at], x[test], y[test], data.augment)


class RawRows(NamedTuple):
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

    def samples(self, inputs: lib.Inputs) -> Tensor:
        """The rows as a model takes them. Raises DataError."""
        x = inputs.samples(self.x, encoded=not hasattr(self.x, "keys"), what=self.what, rows=self.numbers, new=False)
        got = f"{len(x)} samples and {len(self.y)} labels"
        claim(len(x) == len(self.y), self.what, "have a label for each sample", got)
        return x

    def for_test(self, fraction: float) -> np.ndarray:
        """Which rows the node keeps for its own test, bool [n]. Raises DataError where no unit is small enough."""
        test, key = np.zeros(len(self.y), bool), rng.key(0, "node", "test")
        count = min(int(fraction * len(test) + 0.5), len(test) - 1)
        if self.units is None:
            test[rng.generator(key).permutation(len(test))[:count]] = True
            return test
        test[lib.draw_whole(np.zeros(len(test), np.int64), self.units, np.array([count]), key)] = True
        rule = f"have values of split_by that a test of {count} rows can take whole"
        claim(not count or test.any(), self.what, rule)
        return test


def rows_of_node(inputs: lib.Inputs, raw: RawRows, options: NodeOptions, augment: tuple[str, ...] = ()) -> NodeRows:
    """The rows of a node as samples, some of them kept for its own test. Raises DataError, in one line."""
    x, y, test = raw.samples(inputs), raw.y, torch.from_numpy(raw.for_test(options.local_test))
    return NodeRows(inputs, x[~test], y[~test], x[test], y[test], augment)


def read_raw(inputs: lib.Inputs, options: NodeOptions, split_by: str = "") -> RawRows:
    """The rows that a node's configuration names. Raises ConfigError or DataError, in one line.

    Args:
        inputs: Their columns and classes; categories may be others.
        options: Of the node.
        split_by: Column none of whose values lies among the training and the test rows; "" for none.
    """
    raw = _read(options.data, inputs, options, split_by)
    claim(len(raw.y), options.data, "hold rows; it holds none")
    if not split_by:
        return raw
    known = list(raw.x.keys()) if hasattr(raw.x, "keys") else []
    claim(split_by in known, raw.what, f"have the column {split_by!r} of split_by{closest(split_by, known)}")
    units, where = lib.spelt(lib.plain_values(raw.x[split_by])), f"{raw.what}: column {split_by!r}"
    claim(len(units) == len(raw.y) and not len(lib.missing_rows(units)), where, "have a value in every row")
    notation = lib.PLAIN if inputs.encoding is None else inputs.encoding.notation
    one = lib.spellings(units.tolist(), where, notation)
    return raw._replace(units=np.unique([one[unit] for unit in units.tolist()], return_inverse=True)[1])


def _read(source: str, inputs: lib.Inputs, options: NodeOptions, split_by: str) -> RawRows:
    path = Path(source).expanduser()
    if ":" in source and not path.exists():
        return _returned(source, inputs)
    rule = "be a csv, npz or parquet file, a folder of images by class, or module:function"
    claim(path.exists(), "data", rule, repr(source))
    if path.is_dir():
        return _images(path, inputs)
    claim(path.suffix in lib.TABLE_FILES, "data", f"end in {', '.join(lib.TABLE_FILES)}, or be a folder", repr(source))
    asked = {"y_column": options.y_column, "split_by": split_by} if path.suffix != ".npz" else {}
    named = {option: value for option, value in asked.items() if value}
    try:
        rows: Any = lib.read_rows(lib.TABLE_FILES[path.suffix](**named), str(path), inputs)
    except FieldError as error:
        raise DataError(error.named(error.field.replace("_", "-"))) from None
    columns = ", ".join(rows.x) if hasattr(rows.x, "keys") else "no labels"
    claim(rows.y is not None, "y-column", f"be a column of labels of {path}", f"none among {columns}")
    y = inputs.labels(rows.y, f"{rows.label} of {path}", rows.numbers)
    if not hasattr(rows.x, "keys"):
        return RawRows(f"x of {path}", rows.x, y)
    table = {name: values for name, values in rows.x.items() if name != rows.label}
    if inputs.encoding is not None:
        return RawRows(rows.what, table, y, rows.numbers)
    try:
        x = np.stack([np.asarray(values).astype(np.float32) for values in table.values()], 1)
    except ValueError as error:
        raise DataError(f"{path} must hold numbers in every column but {rows.label!r}: {error}") from None
    return RawRows(rows.what, x, y)


def _given(x: Any, y: Any, inputs: lib.Inputs, what: str) -> RawRows:
    return RawRows(f"x of {what}", x, inputs.labels(y, f"y of {what}"))


def _returned(source: str, inputs: lib.Inputs) -> RawRows:
    """What a function of the node's operator returns: (x, y), columns and labels, or a dataset."""
    module, _, name = source.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise DataError(f"data must name a function as module:function; got {source!r}: {error}") from None
    rows = function()
    if isinstance(rows, Dataset):
        hint = "return raw columns by name"
        claim(rows.encoding == inputs.encoding, source, "be encoded as the app's inputs say", hint=hint)
        return _given(rows.x, [rows.class_names[c] for c in rows.y.tolist()], inputs, source)
    pair = isinstance(rows, tuple) and len(rows) == 2
    claim(pair, source, "return (x, y) or a Dataset", type(rows).__name__)
    return _given(rows[0], rows[1], inputs, source)


def _images(path: Path, inputs: lib.Inputs) -> RawRows:
    """A folder of images, one folder a class."""
    images = len(inputs.shape) == 3
    claim(images, path, f"be a csv or npz file: the model takes {inputs.shape} features, no images")
    listed = lib.image_files(path)
    claim(not listed.clients, path, "hold images as class/image", "folders in the folders of classes")
    x = lib.decode_images(listed.files, str(path), "L" if inputs.shape[0] == 1 else "RGB")
    return _given(x, listed.classes, inputs, str(path))._replace(left_out=sorted(listed.left_out.items()))


def inputs_of(folder: Path) -> tuple[lib.Inputs, tuple[str, ...]]:
    """(inputs, augmentations) of an app's file inputs.json. Raises ConfigError."""
    path = folder / "inputs.json"
    try:
        content = json_file(path)
        return typed(content["inputs"], lib.Inputs), tuple(content.get("augment", ()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} must be what `fedskew flower init` writes: {error!r}") from None


def server_data(inputs: lib.Inputs, test: str) -> Dataset:
    """The server's own rows where nodes bring theirs: those of a file of test rows, or none."""
    kind = torch.uint8 if inputs.images else torch.float32
    none = torch.empty(0, *inputs.shape, dtype=kind), torch.empty(0, dtype=torch.int64)
    raw = read_raw(inputs, NodeOptions(data=test)) if test else None
    return dataset_of("nodes", inputs, *none, *((raw.samples(inputs), raw.y) if raw else none))


def inputs_text(inputs: lib.Inputs, augment: tuple[str, ...]) -> str:
    """The file that `inputs_of` reads."""
    return json.dumps({"inputs": untyped(inputs), "augment": list(augment)}, indent=1)


# Scale and categories of columns


MOST = 1000  # categories of a column, those of all nodes together
WIDEST = 3.5e38  # of a number: float32 holds no larger one
FLAT = 1e-13  # of the mean square: a variance below it is rounding
NEAR = 1 + 1e-9  # for sums that are rounded


def encoding_of(inputs: lib.Inputs) -> lib.Encoding:
    """The encoding of an app's inputs. Raises ConfigError where samples are no rows of a table."""
    if inputs.encoding is None:
        raise ConfigError("flower.encoding must be example where the app's inputs are no columns of a table; got nodes")
    return inputs.encoding


def _numbers(encoding: lib.Encoding) -> list[lib.Column]:
    """The columns whose scale is asked for; none where the example's numbers are not standardised."""
    numbers = [column for column in encoding.columns if column.number]
    return numbers if any((c.mean, c.std) != (0.0, 1.0) for c in numbers) else []


def column_facts(encoding: lib.Encoding, raw: RawRows, test: np.ndarray) -> dict[str, dict[str, Any]]:
    """What a node tells of its columns.

    Args:
        encoding: Of the example.
        raw: The node's rows, by column.
        test: Those that it keeps for its own test, bool [n]: of these, categories alone, where nothing is filled.

    Returns:
        By column ``sum`` and ``squares``, or ``values``.

    Raises:
        DataError: A column is missing, or a value is missing or of another kind.
    """
    claim(hasattr(raw.x, "keys"), raw.what, "be columns by name, whose sums are asked for")
    facts: dict[str, dict[str, Any]] = {}
    if numbers := _numbers(encoding):
        replace(encoding, columns=tuple(numbers)).encode(raw.x, raw.what, raw.numbers, [])  # which checks them
        rows = range(len(test)) if raw.numbers is None else raw.numbers
        for column in numbers:
            apart = encoding.values(column, raw.x[column.name], raw.what, rows)[~test] - column.mean
            facts[column.name] = {"sum": math.fsum(apart).hex(), "squares": math.fsum(apart * apart).hex()}
    for column in (c for c in encoding.columns if not c.number):
        where = f"{raw.what}: column {column.name!r}"
        claim(column.name in list(raw.x.keys()), raw.what, f"have the column {column.name!r}")
        cells = encoding.notation.meant(lib.plain_values(raw.x[column.name]), column.values)
        filled = "" in column.values
        values = np.unique(cells[~test] if filled else cells).tolist()
        doubtful = [v for v in values if v and lib.is_absent(v) and v not in column.values]
        if doubtful and encoding.notation.missing_words is None:
            hint = "leave it blank if the value is missing, or set missing_words where the example is read"
            raise DataError(f"{where} has {doubtful[0]!r}, which may mean no value; {hint}")
        claim(filled or "" not in values, where, "have a value in every row")
        facts[column.name] = {"values": [value for value in values if value]}
    return facts


class ColumnNode:
    """A node that knows no encoding yet: it says hello, and what the encoding is made of."""

    def __init__(self, inputs: lib.Inputs, raw: RawRows, client: int, options: NodeOptions) -> None:
        """Raises DataError where the rows do not fit."""
        test, self.contract = raw.for_test(options.local_test), column_contract(inputs)
        self.facts = options.hello(client, int((~test).sum()), int(test.sum()))
        self.facts["columns"] = column_facts(encoding_of(inputs), raw, test)

    def answer(self, message: Envelope) -> Reply:
        """What is new in the reply to a hello. Raises ConfigError for anything else."""
        kind = message.facts.get("kind")
        expect(kind == "hello", "a node without an encoding", "be told hello", kind)
        wrong, fatal = disagreement(self.contract, table(message.facts, "contract"))
        return {**self.facts, "differs": wrong, "fatal": fatal}, {}


def check_columns(hello: Hello, encoding: lib.Encoding) -> None:
    """Raise ConfigError unless a hello tells of the columns what may be true of its rows."""
    facts: Any = hello.facts.get("columns")
    numbers, n = _numbers(encoding), hello.facts["rows"]
    asked = [c for c in encoding.columns if c in numbers or not c.number]
    try:
        names = [column.name for column in asked]
        expect(isinstance(facts, dict) and set(facts) == set(names), "they", f"be {quoted(names)}", facts)
        for column in asked:
            part = table(facts, column.name)
            if column.number:
                _check_sums(n, real(part, "sum"), real(part, "squares"), abs(column.mean))
            else:
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


def pooled_inputs(inputs: lib.Inputs, hellos: Sequence[Hello]) -> lib.Inputs:
    """The inputs with scale and categories of all nodes' rows. Raises ConfigError for too many or no categories.

    A number's mean and standard deviation are those of all training rows. Categories are sorted, those of the rows
    that any node has. What fills a missing value, and the order of ordered categories, are the example's.
    """
    ours, made = encoding_of(inputs), []
    n, numbers = max(sum(hello.facts["rows"] for hello in hellos), 1), _numbers(ours)
    for column in ours.columns:
        parts = [hello.facts["columns"].get(column.name, {}) for hello in hellos]
        if column in numbers:
            first, second = (math.fsum(real(part, what) for part in parts) / n for what in ("sum", "squares"))
            variance = second - first * first
            std = math.sqrt(variance) if variance > FLAT * second else 1.0
            made.append(replace(column, mean=column.mean + first, std=std))
        elif column.number:
            made.append(column)
        else:
            sent = {value for part in parts for value in part["values"]}
            known, where = [value for value in column.values if value], f"column {column.name!r}"
            try:
                named = lib.spellings({*sent, *known}, where, ours.notation)
            except DataError as error:
                raise ConfigError(f"{error}, in the data of the example") from None
            words = sorted({named[value] for value in sent})
            rule, hint = f"have 1 to {MOST} categories at all nodes together", "leave it out by --data.exclude"
            require(0 < len(words) <= MOST, where, rule, len(words), hint)
            made.append(replace(column, values=(*words, *([""] if "" in column.values else ()))))
    encoding = replace(ours, columns=tuple(made))
    return replace(inputs, shape=(encoding.width,), encoding=encoding)


def inputs_with(inputs: lib.Inputs, content: Any) -> lib.Inputs:
    """The inputs with an encoding that a message brought. Raises ConfigError unless it is one of the app's columns.

    It differs from that of the example in scales and in categories alone.
    """
    ours, columns = encoding_of(inputs), []
    try:
        for column, sent in zip(ours.columns, typed(content, lib.Encoding).columns, strict=True):
            if column.number:
                holds = math.isfinite(sent.mean) and 0 < sent.std < math.inf
                columns.append(replace(column, mean=sent.mean, std=sent.std))
            else:
                _check_values([value for value in sent.values if value])
                holds = len(set(sent.values)) == len(sent.values) > 0 and ("" in sent.values) == ("" in column.values)
                columns.append(replace(column, values=sent.values))
            expect(holds, f"column {column.name!r}", "have a finite scale, or categories", sent)
        encoding = replace(ours, columns=tuple(columns))
        expect(json.loads(json.dumps(untyped(encoding))) == content, "it", "be of the columns of the app", content)
    except (FedskewError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"the server's encoding must be one of the app's columns: {one_line(error)}") from None
    return replace(inputs, shape=(encoding.width,), encoding=encoding)
