"""Files that are replaced whole: bytes, tensors, and trees of tensors with JSON facts."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fedskew import tree
from fedskew.errors import RecordError, from_json, regular
from fedskew.records import digests
from fedskew.tree import Tree

DAMAGED = "restore it from a copy, or start the run again in another folder"  # what to do


class UnwritableError(RecordError):
    """The disk takes no file: it is full, read-only or broken."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise UnwritableError for what the disk says while a file or folder is written."""
    try:
        yield
    except OSError as error:
        raise UnwritableError(f"cannot write {path}: {error.strerror}") from None


def write_atomic(path: Path, content: bytes) -> None:
    """Replace a file atomically: a reader, or a kill, sees the old content or the new.

    Args:
        path: The file.
        content: Its new content.

    Raises:
        UnwritableError: The file cannot be written.
    """
    replace_whole(path, lambda waiting: waiting.write_bytes(content))


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str] | None = None) -> None:
    """Replace a safetensors file atomically, without a second copy of all tensors in memory.

    Args:
        path: The file.
        tensors: Tensors by name.
        header: Strings for the header.

    Raises:
        UnwritableError: The file cannot be written.
    """
    replace_whole(path, lambda waiting: save_file(_apart(tensors), waiting, None if header is None else dict(header)))


def replace_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Write a temporary file, sync it, rename it, and sync its folder. Raises UnwritableError where that fails."""
    waiting = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        waiting.unlink(missing_ok=True)  # a link of this name would lead to a file elsewhere
        write(waiting)
        sync(waiting)
        os.replace(waiting, path)
        sync(path.parent)  # until then a power failure may bring the old file back
    except BaseException as error:
        with suppress(OSError):  # what is half written takes room on a full disk
            waiting.unlink(missing_ok=True)
        if isinstance(error, OSError | SafetensorError):
            raise UnwritableError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from None
        raise


def sync(path: Path) -> None:
    """Return when a file, or the names in a folder, are on the disk. Raises OSError where they cannot be written."""
    if path.is_dir() and not hasattr(os, "O_DIRECTORY"):
        return  # Windows syncs no folder
    place = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(place)
    finally:
        os.close(place)


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the host, contiguous. Tensors that share memory are copied, because the format requires it."""
    seen: set[int] = set()
    plain_tensors = {}
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        memory = plain.untyped_storage()
        shared = memory.data_ptr() in seen or memory.nbytes() != plain.numel() * plain.element_size()
        seen.add(memory.data_ptr())
        plain_tensors[name] = plain.clone() if shared else plain
    return plain_tensors


def save_tree(path: Path, content: Tree, facts: Mapping[str, Any]) -> None:
    """Write a tree and JSON facts as one safetensors file. Tensors are numbered; the header lists their paths.

    Args:
        path: The file.
        content: A tree of tensors.
        facts: What JSON can hold.

    Raises:
        UnwritableError: The file cannot be written.
    """
    pairs = list(tree.flatten(content))
    whole = {f"t{i}": leaf for i, (_, leaf) in enumerate(pairs) if leaf is not None}
    tensors = _apart(whole)
    header = {"facts": json.dumps(facts), "paths": json.dumps([list(p) for p, _ in pairs])}
    write_tensors(path, tensors, {**header, "digest": _digest(tensors, header)})


def _digest(tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> str:
    """Of all tensors and of the header; safetensors has none."""
    return digests.of_parts(digests.of_tensors(tensors), header["facts"], "\n", header["paths"])


def load_tree(path: Path) -> tuple[Tree, dict[str, Any]]:
    """Read what `save_tree` wrote.

    Args:
        path: The file.

    Returns:
        (tree, facts).

    Raises:
        RecordError: The file is missing or damaged.

    Example:
        >>> from pathlib import Path
        >>> import torch
        >>> from fedskew.records.folder import load_tree, save_tree
        >>> save_tree(Path("state.safetensors"), {"server": {"w": torch.tensor([1.0, 2.0])}}, {"round": 3})
        >>> load_tree(Path("state.safetensors"))
        ({'server': {'w': tensor([1., 2.])}}, {'round': 3})
    """
    try:
        with safe_open(regular(path), framework="pt") as file:
            header = file.metadata()
            paths = [tuple(p) for p in from_json(header["paths"])]
            # clones: memory mapped from the file has another alignment, so products would round differently
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            if _digest(tensors, header) != header["digest"]:
                raise ValueError("its digest does not match its content")
            pairs = [(p, tensors.get(f"t{i}")) for i, p in enumerate(paths)]
            return tree.unflatten(pairs), from_json(header["facts"])
    except FileNotFoundError:
        raise RecordError(f"no checkpoint at {path}") from None
    except (OSError, SafetensorError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise RecordError(f"checkpoint {path} is damaged: {error}; {DAMAGED}") from None
