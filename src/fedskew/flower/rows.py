"""The rows of a node: a client of a named dataset, or data of the node's own."""

import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedskew import rng
from fedskew.data.arrays import Dataset, draw_whole
from fedskew.data.encoding import plain
from fedskew.data.federation import Federation
from fedskew.data.inputs import Inputs
from fedskew.data.sources.delimited import Csv
from fedskew.data.sources.folders import image_files
from fedskew.data.sources.readers import decode_images
from fedskew.data.sources.rows import Rows as FileRows
from fedskew.data.sources.rows import rows_of
from fedskew.data.sources.table import Npz, Parquet
from fedskew.data.values import lacking
from fedskew.errors import ConfigError, DataError, FieldError, closest, json_file
from fedskew.flower.node import Rows
from fedskew.flower.options import NodeOptions

KINDS: dict[str, Any] = {".csv": Csv, ".npz": Npz, ".parquet": Parquet}


def of_client(fed: Federation, k: int) -> Rows:
    """The rows of client k of a federation, in its order, with its share of the test rows or its own test rows."""
    data = fed.dataset
    if not 0 <= k < fed.clients:
        raise ConfigError(f"client must be at least 0 and below {fed.clients}, the clients of the data; got {k}")
    at = torch.from_numpy(fed.rows(k))
    if fed.held is None:
        test = torch.from_numpy(fed.test_rows(k))
        x_test, y_test = data.x_test[test], data.y_test[test]
    else:
        test = torch.from_numpy(fed.local_test_rows(k))
        x_test, y_test = data.x[test], data.y[test]
    return Rows(Inputs.of(data), data.x[at], data.y[at], x_test, y_test, data.augment)


class Raw(NamedTuple):
    """Rows before they are samples.

    Attributes:
        what: Where they come from, for messages.
        x: Columns by name, or an array of samples.
        y: Class numbers, [n].
        numbers: Number of each row in messages.
        units: What the node's own test takes whole, such as patients, [n]; None: rows.
    """

    what: str
    x: Any
    y: Tensor
    numbers: Sequence[Any] | None = None
    units: np.ndarray | None = None

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
    units = plain(raw.x[split_by])
    if len(units) != len(raw.y) or len(lacking(units)):
        raise DataError(f"{raw.what}: column {split_by!r} must have a value in every row")
    return raw._replace(units=np.unique(units, return_inverse=True)[1])


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
    if not inputs.images:
        raise DataError(f"{path} must be a csv or npz file: the model takes {inputs.shape} features, no images")
    found = image_files(path)
    if found.clients:
        raise DataError(f"{path} must hold images as class/image; got folders in the folders of classes")
    x = decode_images(found.files, str(path), "L" if inputs.shape[0] == 1 else "RGB")
    return _given(x, found.classes, inputs, str(path))


def inputs_of(folder: Path, file: str) -> tuple[Inputs, tuple[str, ...]]:
    """(inputs, augmentations) of an app's file. Raises ConfigError."""
    path = folder / file
    try:
        content = json_file(path)
        return Inputs.from_json(content["inputs"]), tuple(content.get("augment", ()))
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
    return json.dumps({"inputs": inputs.to_json(), "augment": list(augment)}, indent=1)
