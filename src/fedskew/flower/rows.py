"""The rows of a node: a client of a named dataset, or data of the node's own."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedskew import rng
from fedskew.data.arrays import Dataset
from fedskew.data.federation import Federation
from fedskew.data.inputs import Inputs
from fedskew.data.sources.delimited import Csv
from fedskew.data.sources.folders import image_files
from fedskew.data.sources.pictures import decode_images
from fedskew.data.sources.rows import Rows as FileRows
from fedskew.data.sources.rows import rows_of
from fedskew.data.sources.table import Npz, Parquet
from fedskew.errors import ConfigError, DataError, FieldError, json_file
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


def of_node(inputs: Inputs, options: NodeOptions, augment: tuple[str, ...] = ()) -> Rows:
    """The rows that a node's configuration names. Raises ConfigError or DataError, in one line."""
    x, y = _read(options.data, inputs, options)
    if len(x) != len(y):
        raise DataError(f"{options.data} must have a label for each sample; got {len(x)} samples and {len(y)} labels")
    if not len(y):
        raise DataError(f"{options.data} must hold rows; it holds none")
    held = torch.zeros(len(y), dtype=torch.bool)
    count = min(int(options.local_test * len(y) + 0.5), len(y) - 1)
    order = rng.generator(rng.key(0, "node", "test")).permutation(len(y))
    held[torch.from_numpy(order[:count])] = True
    return Rows(inputs, x[~held], y[~held], x[held], y[held], augment)


def _read(source: str, inputs: Inputs, options: NodeOptions) -> tuple[Tensor, Tensor]:
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
    named = {"y_column": options.y_column} if options.y_column and path.suffix != ".npz" else {}
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
        return inputs.samples(found.x, encoded=True, what=f"x of {path}"), y
    table = {name: values for name, values in found.x.items() if name != found.label}
    if inputs.encoding is not None:
        return inputs.samples(table, what=found.what, rows=found.numbers), y
    try:
        x = np.stack([np.asarray(values).astype(np.float32) for values in table.values()], 1)
    except ValueError as error:
        raise DataError(f"{path} must hold numbers in every column but {found.label!r}: {error}") from None
    return inputs.samples(x, what=found.what), y


def _encoded(x: Any, y: Any, inputs: Inputs, what: str) -> tuple[Tensor, Tensor]:
    return inputs.samples(x, encoded=True, what=f"x of {what}"), inputs.labels(y, f"y of {what}")


def _called(source: str, inputs: Inputs) -> tuple[Tensor, Tensor]:
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
        return _encoded(found.x, [found.class_names[c] for c in found.y.tolist()], inputs, source)
    if not isinstance(found, tuple) or len(found) != 2:
        raise DataError(f"{source} must return (x, y) or a Dataset; got {type(found).__name__}")
    x, y = found
    return inputs.samples(x, encoded=not hasattr(x, "keys"), what=f"x of {source}"), inputs.labels(y, f"y of {source}")


def _pictures(path: Path, inputs: Inputs) -> tuple[Tensor, Tensor]:
    """A folder of images, one folder a class."""
    if not inputs.images:
        raise DataError(f"{path} must be a csv or npz file: the model takes {inputs.shape} features, no images")
    found = image_files(path)
    if found.clients:
        raise DataError(f"{path} must hold images as class/image; got folders in the folders of classes")
    x = decode_images(found.files, str(path), "L" if inputs.shape[0] == 1 else "RGB")
    return _encoded(x, found.classes, inputs, str(path))


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
    x, y = _read(test, inputs, NodeOptions(data=test)) if test else (none, labels)
    names = inputs.label_names
    return Dataset("nodes", none, labels, x, y, len(names), names, inputs.mean, inputs.std, encoding=inputs.encoding)


def written(inputs: Inputs, augment: tuple[str, ...]) -> str:
    """The file that `inputs_of` reads."""
    return json.dumps({"inputs": inputs.to_json(), "augment": list(augment)}, indent=1)
