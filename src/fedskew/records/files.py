"""Files that are replaced whole, bytes, tensors, and trees of tensors with JSON facts; and the hold on their folder.

One process writes a folder, a run or a store, at a time. The system's own file lock (flock) holds ``.lock`` and ends
with the process, however it ends, so a dead owner's lock is free at once. ``.owner.json`` says who holds it. A file
system without such locks refuses, and so does a run on it. A folder in which a file that is written in place leads
elsewhere is not held: nothing is written through a link.
"""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fedskew import tree
from fedskew.errors import RecordError, from_json, json_file, regular
from fedskew.records import digests
from fedskew.tree import Tree

DAMAGED = "restore it from a copy, or start the run again in another folder"  # what to do
BUFFER = 2 << 20  # bytes
IN_PLACE = (".lock", "rounds.jsonl")  # all else that a run writes is replaced whole
INNER = ("checkpoint", "features")  # folders of a run


def member(folder: Path, name: str | Path) -> Path:
    """The path of a file of a folder, there or not. The folder itself may be a link; what is in it may not.

    Args:
        folder: A run folder.
        name: The file's name in it.

    Raises:
        RecordError: The file, or a folder between the two, is a link.
    """
    path = folder
    for part in Path(name).parts:
        path = path / part
        if path.is_symlink():
            raise RecordError(f"{path} must be a file or folder of {str(folder)!r}; it is a link; replace it by a copy")
    return path


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
    bytearray(BUFFER)  # raises MemoryError, where safetensors would end the process for its buffer of 1 MiB
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


class InUseError(RecordError):
    """Another process writes the folder."""


class Hold:
    """The hold of this process on a folder.

    Args:
        folder: An existing folder.
        wait: Seconds for which the end of another hold is waited for.

    Raises:
        InUseError: Another process holds the folder.
        RecordError: The file system has no locks, or a file that is written in place is a link, a pipe or a device.

    Example:
        >>> from pathlib import Path
        >>> from fedskew.records.files import Hold
        >>> hold = Hold(Path("."))
        >>> hold.release()
    """

    def __init__(self, folder: Path, wait: float = 0) -> None:
        _check_plain(folder)
        self._owner = folder / ".owner.json"
        self._lock = FileLock(folder / ".lock", timeout=wait)
        try:
            self._lock.acquire()
        except Timeout:
            raise InUseError(f"{folder} is in use {self._told()}; wait for it, or end it") from None
        except (OSError, NotImplementedError) as error:
            why = getattr(error, "strerror", None) or error
            raise UnwritableError(f"{folder} cannot be locked: {why}; a run needs a file system with locks") from None
        facts = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        with suppress(RecordError):  # only words: a full disk is told where something is lost
            write_atomic(self._owner, (json.dumps(facts) + "\n").encode())

    def _told(self) -> str:
        """Who holds the folder, as far as it is known."""
        try:
            facts = json_file(member(self._owner.parent, self._owner.name))
            return f"by process {facts['pid']} on {facts['host']} since {facts['since']}"
        except (RecordError, OSError, ValueError, KeyError, TypeError):
            return "by another process"

    def release(self, delete: bool = False) -> None:
        """Let others have the folder. Does nothing the second time.

        Args:
            delete: Delete the lock's file as well. It goes while it is held: later it may be that of another hold,
                which would then keep nobody out.
        """
        if self._lock.is_locked:
            file, early = self._owner.with_name(".lock"), os.name != "nt"  # where nobody deletes a file that is open
            with suppress(OSError):  # a disk that fails ends no run that is over, and keeps no lock
                self._owner.unlink(missing_ok=True)
            with suppress(OSError):
                file.unlink() if delete and early else None
            self._lock.release()
            with suppress(OSError):
                file.unlink() if delete and not early else None


def _check_plain(folder: Path) -> None:
    """Raise RecordError where a file leads elsewhere: a run would write there, or wait for a reader."""
    for name in IN_PLACE:
        file = folder / name
        if os.path.lexists(file) and (os.path.islink(file) or not os.path.isfile(file)):
            raise RecordError(f"{file} must be a file of this folder; it is a link, a pipe or a device")


@contextmanager
def held(folder: Path) -> Iterator[Hold]:
    """Hold a folder, and let it go if what follows raises; otherwise the caller keeps the hold."""
    hold = Hold(folder)
    try:
        yield hold
    except BaseException:
        hold.release()
        raise
