"""The rows of a node: a client of a named dataset, or data of the node's own."""

import importlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedskew import deployment as lib
from fedskew import rng
from fedskew.data import Dataset, Federation, Partition
from fedskew.errors import ConfigError, DataError, FieldError, claim, closest, json_file
from fedskew.fields import typed, untyped
from fedskew.flower.options import NodeOptions


def one_owner(rows: np.ndarray, client: int, clients: int) -> Partition:
    """The partition in which one client has these rows, and no other has any."""
    offsets = np.zeros(clients + 1, np.int64)
    offsets[client + 1 :] = len(rows)
    return Partition(rows.astype(np.int64), offsets)


def dataset_of(
    name: str, inputs: lib.Inputs, x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor, augment: tuple[str, ...] = ()
) -> Dataset:
    """The dataset of training and test rows that are what inputs say."""
    names, scale = inputs.label_names, (inputs.mean, inputs.std)
    return Dataset(name, x, y, x_test, y_test, len(names), names, *scale, augment, encoding=inputs.encoding)


@dataclass(frozen=True, eq=False)
class NodeRows:
    """The data of one node.

    ``x`` and ``y`` are samples and class numbers, in the order in which the client owns them; the test rows are the
    client's own, and are empty where it keeps none.
    """

    inputs: lib.Inputs
    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    augment: tuple[str, ...] = ()

    def federation(self, client: int, clients: int) -> Federation:
        """A federation in which this client alone has rows; row i of the client is row i of the data."""
        n = len(self.y)
        x, y = torch.cat([self.x, self.x_test]), torch.cat([self.y, self.y_test])
        data = dataset_of("node", self.inputs, x, y, x[:0], y[:0], self.augment)
        counts = torch.zeros(clients, data.classes, dtype=torch.int64)
        counts[client] = torch.bincount(self.y, minlength=data.classes)
        train, test = (one_owner(np.arange(a, b), client, clients) for a, b in ((0, n), (n, len(y))))
        return Federation(data, train, lib.Iid(), clients, 0, counts, held=test, local_test=0.0)


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
    spelling = lib.spellings(units.tolist(), where, notation)
    return raw._replace(units=np.unique([spelling[unit] for unit in units.tolist()], return_inverse=True)[1])


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
    return RawRows(rows.what, table, y, rows.numbers)


def _given(x: Any, y: Any, inputs: lib.Inputs, what: str) -> RawRows:
    return RawRows(f"x of {what}", x, inputs.labels(y, f"y of {what}"))


def _returned(source: str, inputs: lib.Inputs) -> RawRows:
    """What a function of the node's operator returns: (x, y), samples or columns by name, and labels."""
    module, _, name = source.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise DataError(f"data must name a function as module:function; got {source!r}: {error}") from None
    rows = function()
    pair = isinstance(rows, tuple) and len(rows) == 2
    claim(pair, source, "return (x, y)", type(rows).__name__)
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
