"""A cache of decoded datasets: one safetensors file each, with the facts as JSON in its header. Nothing is pickled.

Every file is verified when it is opened: the fingerprint is computed again from all tensors, and a digest covers the
facts and the key. A file that differs is decoded and written again. The folder is $FEDSKEW_CACHE, else
~/.cache/fedskew. A cache that cannot be read or written counts as empty.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from fedskew.data.arrays import Dataset, fingerprint
from fedskew.data.sources.files import replacing
from fedskew.errors import FedskewError, from_json
from fedskew.fields import hints_of, typed, untyped

VERSION = 9  # raise it when decoding or the file changes
TENSORS = ("x", "y", "x_test", "y_test")
FACTS = (
    "name", "classes", "label_names", "column_names", "test_is_official", "source", "fingerprint", "notes", "encoding",
    "reading",
)  # fmt: skip


def folder() -> Path:
    """Folder of the cache, which may not exist yet. Raises RuntimeError without a home directory."""
    return Path(os.environ.get("FEDSKEW_CACHE") or "~/.cache/fedskew").expanduser()


def key_of(name: str, options: Mapping[str, Any], files: Sequence[Path]) -> str:
    """Key of a decoded dataset.

    Args:
        name: Name of the dataset.
        options: Options that change decoding.
        files: Source files; path, size and time of each enter the key.

    Returns:
        `name-<24 hex digits>`.
    """
    folders = {folder: folder.resolve() for folder in {file.parent for file in files}}  # of many files, each once
    stats = [(str(folders[f.parent] / f.name), f.stat().st_size, f.stat().st_mtime_ns) for f in files]
    text = json.dumps([VERSION, name, dict(options), stats], sort_keys=True, default=str)
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:24]}"


def cached(key: str, decode: Callable[[], Dataset]) -> Dataset:
    """The stored dataset; where there is none, the decoded one, which is then stored."""
    if (data := fetch(key)) is None:
        store(key, data := decode())
    return data


def fetch(key: str) -> Dataset | None:
    """The stored dataset, without normalisation and augmentation; None if it is absent, damaged or altered."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(folder() / f"{key}.safetensors", framework="pt") as file:
            header = file.metadata()
            if header["sum"] != _sum(key, header["dataset"]):
                return None
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            kept, hints = from_json(header["dataset"]), hints_of(Dataset)
            facts = {name: typed(kept[name], hints[name]) for name in FACTS} | {name: tensors[name] for name in TENSORS}
            columns = {n.removeprefix("columns."): t for n, t in tensors.items() if n.startswith("columns.")}
            columns_test = {name: torch.tensor(codes) for name, codes in kept["columns_test"].items()}
            data = Dataset(**facts, columns=columns, columns_test=columns_test)
            return data if fingerprint(data) == data.fingerprint else None
    except (OSError, SafetensorError, FedskewError, KeyError, TypeError, ValueError, AttributeError, RuntimeError):
        return None


def store(key: str, data: Dataset) -> None:
    """Store a dataset under a key. A failure leaves no partial file and raises no error."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    tensors = {name: getattr(data, name).contiguous() for name in TENSORS}
    tensors |= {f"columns.{name}": codes.contiguous() for name, codes in data.columns.items()}
    facts = {name: untyped(getattr(data, name)) for name in FACTS}
    facts["columns_test"] = {name: codes.tolist() for name, codes in data.columns_test.items()}  # under the digest
    header = json.dumps(facts)
    gone = contextlib.suppress(OSError, SafetensorError, RuntimeError)
    with gone, replacing(folder() / f"{key}.safetensors") as waiting:
        save_file(tensors, waiting, metadata={"dataset": header, "sum": _sum(key, header)})


def _sum(key: str, facts: str) -> str:
    """Digest of what the header says; the fingerprint among the facts stands for the tensors."""
    return hashlib.sha256(f"{key} {facts}".encode()).hexdigest()
