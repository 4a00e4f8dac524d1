"""Folders of models as transformers writes them: read here, because a stranger may have written them.

transformers gets values, never a place to look for more: the configuration as JSON, and tensors out of safetensors
files of the folder. Tokenizers and image processors are read by transformers itself, in a folder that was checked.
"""

from __future__ import annotations

import math
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path, PurePath
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.nn.modules import module as hooks

from fedskew.errors import ConfigError, FedskewError, afford, install, json_file, one_line, quietly, regular, some
from fedskew.models.precision import FLOATS

CONFIG, WEIGHTS, INDEX, ADAPTERS = (
    "config.json", "model.safetensors", "model.safetensors.index.json", "adapter_config.json",
)  # fmt: skip
ON_HUB = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")  # a repository of models
READ = ("*.json", "*.txt", "*.model", "model*.safetensors")  # files of a repository that are downloaded
CODE = re.compile(r"_implementation(_internal)?$")  # entries that choose kernels, which may be code of the hub
ELSEWHERE = ("quantization_config", "transformers_weights")  # entries by which weights are not those of the file
LABELS = ("num_labels", "id2label", "label2id")  # entries on classes, in whose place come the data's
LARGEST = 1 << 24  # a whole number in a configuration; a larger one becomes a float, which no size or count may be
PARTS = 1 << 15  # layers and tensors of a network; the largest that are published have a tenth
SMALL = 1 << 24  # numbers that a network may hold whatever its files hold


def library(name: str) -> Any:
    """A package of the extra. Raises ConfigError that names the extra where it is missing."""
    try:
        return import_module(name)
    except ImportError:
        message = f"this needs the package {name}, which is not installed; {install('hf')}"
        raise ConfigError(message) from None


def refused(rule: str, got: str) -> ConfigError:
    """The error of a folder."""
    return ConfigError(f"HF.path must {one_line(rule)}; got {one_line(got)}")


@contextmanager
def theirs(rule: str, name: str = "HF.path") -> Iterator[None]:
    """What a library makes of a stranger's values: any fault is one line, and nothing else is printed.

    Raises:
        ConfigError: the library raised anything.
    """
    try:
        with quietly():
            yield
    except (FedskewError, MemoryError):
        raise
    except Exception as error:  # a value of a wrong type can fail anywhere, in any way
        message = one_line(str(error) or "no message")
        raise ConfigError(f"{name} must {rule}; got {type(error).__name__}: {message}") from None


@dataclass(frozen=True)
class Folder:
    """The folder of a model.

    Attributes:
        place: Where it is.
        root: Where its files lie, also those that are links: the folder itself, or the hub's cache of the model.
        revision: The commit of a model of the hub; "" of a folder.
    """

    place: Path
    root: Path
    revision: str = ""

    def file(self, name: str) -> Path:
        """The regular file of a plain name. Raises ConfigError for a path, a link to outside, a pipe or a device."""
        if PurePath(name).name != name or "\\" in name or "\0" in name:
            raise refused("name files of its own folder alone", repr(name))
        if not self.holds(name):
            raise refused(f"hold {name}", f"no such file in {self.place}")
        return self._own(self.place / name, stat.S_ISREG)

    def holds(self, name: str) -> bool:
        """Whether there is anything of this name."""
        return os.path.lexists(self.place / name)

    def _own(self, path: Path, *kinds: Callable[[int], bool]) -> Path:
        """The path. Raises ConfigError unless it is of one of these kinds, and of this folder."""
        mode = path.stat().st_mode if os.path.exists(path) else 0
        if not any(is_kind(mode) for is_kind in kinds) or not path.resolve().is_relative_to(self.root.resolve()):
            what = f"{path.name!r}, which is a folder, a pipe, a device or a link to outside"
            raise refused("hold regular files of its own folder", what)
        return path

    def checked(self) -> str:
        """The folder's path for a library that opens its files by itself, all of which are looked at before.

        Raises:
            ConfigError: a file is no regular one, or a link leads to outside.
        """
        for path in (*self.place.iterdir(), *self.place.glob("*/*")):
            self._own(path, stat.S_ISREG, stat.S_ISDIR)
        return str(self.place)

    def content(self, name: str) -> dict[str, Any]:
        """The object of a JSON file. Raises ConfigError where it is none."""
        try:
            content = json_file(self.file(name))
        except (OSError, ValueError) as error:
            raise refused(f"hold {name} that is JSON", str(error)) from None
        if not isinstance(content, dict):
            raise refused(f"hold {name} that is a JSON object", type(content).__name__)
        return content

    def configuration(self) -> Any:
        """The configuration, as transformers makes it of the values of `config.json`.

        Raises:
            ConfigError: there is none, its values are no network's, or they ask for other weights than the folder's.
        """
        if self.holds(ADAPTERS):
            raise refused("be a whole model: merge adapters into it and save it", ADAPTERS)
        config = _sanitised({name: value for name, value in self.content(CONFIG).items() if name not in LABELS})
        for entry in ELSEWHERE:
            if config.get(entry) is not None:
                raise refused(f"have no entry {entry} in {CONFIG}", f"{config[entry]!r}")
        kind = config.get("model_type")
        if kind == "mistral" and "layer_types" in config:  # as AutoConfig reads it
            kind = "ministral"
        known = library("transformers").CONFIG_MAPPING
        if not isinstance(kind, str) or kind not in known or kind.startswith("timm"):
            rule = "have the model_type of a network of transformers, without code of its own"
            raise refused(rule, f"model_type {kind!r} in {CONFIG}")
        with theirs(f"hold a {CONFIG} of a network {kind!r}"):
            return known[kind].from_dict(config)

    def files(self) -> list[Path]:
        """The safetensors files of its weights. Raises ConfigError where there are none, or the index names others."""
        if self.holds(WEIGHTS):
            return [self.file(WEIGHTS)]
        if not self.holds(INDEX):
            odd = sorted(path.name for path in self.place.iterdir() if path.suffix in (".bin", ".pt", ".pth", ".h5"))
            raise refused(f"hold weights in {WEIGHTS}", some(odd) if odd else f"no such file in {self.place}")
        named = self.content(INDEX).get("weight_map")
        if not isinstance(named, dict) or not named or not all(isinstance(n, str) for n in named.values()):
            raise refused(f"hold an {INDEX} that says the file of each tensor", type(named).__name__)
        names = sorted(set(named.values()))
        if odd := [name for name in names if not name.endswith(".safetensors")]:
            raise refused(f"have safetensors files alone in {INDEX}", repr(odd[0]))
        return [self.file(name) for name in names]

    def weights(self) -> dict[str, Tensor]:
        """The tensors of its files by their names. Raises ConfigError where a file is damaged or a tensor is of fp8."""
        tensors: dict[str, Tensor] = {}
        for file in self.files():
            try:
                with safe_open(regular(file), framework="pt") as held:
                    tensors |= {name: held.get_tensor(name) for name in held.keys()}  # noqa: SIM118
            except (OSError, SafetensorError, RuntimeError, ValueError, LookupError, TypeError) as error:
                raise refused(f"hold a whole {file.name}", str(error)) from None
        return tensors


def located(path: str, revision: str = "") -> Folder:
    """The folder of a path; only where there is none, the hub's model of that name, downloaded without code.

    Raises:
        ConfigError: there is neither.
    """
    place = Path(path)
    if place.is_dir():
        if revision:
            raise ConfigError(f"HF.revision must stay unset for a folder; got {revision!r}")
        return Folder(place, place)
    if place.exists() or not ON_HUB.fullmatch(path):
        raise refused("be the folder of a model, or its name on the hub", repr(path))
    hub = library("huggingface_hub")
    with theirs("be the folder of a model, or its name on a hub that can be reached"):
        snapshot = Path(
            hub.snapshot_download(path, revision=revision or None, allow_patterns=[*READ], ignore_patterns=["*/*"])
        )
    return Folder(snapshot, snapshot.parents[1], snapshot.name)


def _sanitised(value: Any) -> Any:
    """JSON values without the entries that choose kernels, and whole numbers above `LARGEST` as floats."""
    if isinstance(value, dict):
        return {name: _sanitised(inner) for name, inner in value.items() if not CODE.search(name)}
    if isinstance(value, list):
        return [_sanitised(inner) for inner in value]
    if isinstance(value, int) and abs(value) > LARGEST:
        return float(value) if abs(value) < 1 << 1023 else math.inf
    return value


@contextmanager
def bounded(most: float) -> Iterator[None]:
    """Networks that this thread builds inside hold so many numbers at most, and what half of the memory holds.

    Args:
        most: Numbers of parameters and buffers together.

    Raises:
        ConfigError: a network is larger than its files say, or has too many layers.
        DataError: it does not fit into the memory.
    """
    thread, held = threading.get_ident(), [0, 0]

    def count(layer: Any, name: str, part: Any) -> None:
        if threading.get_ident() != thread:
            return
        held[0] += part.numel() if isinstance(part, Tensor) else 0
        held[1] += 1
        if held[1] > PARTS:
            raise refused(f"declare a network of at most {PARTS:,} layers and tensors", "more")
        if held[0] > most:
            raise refused(f"declare the network of its files, which hold {most:,.0f} numbers at most", "a larger one")
        afford(4 * held[0], "the network that HF.path declares")

    made = [
        hooks.register_module_parameter_registration_hook(count),
        hooks.register_module_buffer_registration_hook(count),
        hooks.register_module_module_registration_hook(count),
    ]
    try:
        yield
    finally:
        for handle in made:
            handle.remove()


def largest(files: list[Path]) -> float:
    """Numbers that a network with the weights of these files may hold.

    A number takes a byte at least in a file of half precision, which leaves room for shared tensors.
    """
    return max(sum(file.stat().st_size for file in files), SMALL)


def floating(tensors: dict[str, Tensor], network: torch.nn.Module) -> dict[str, Tensor]:
    """The tensors that may become weights, and whole numbers only where the network counts by them."""
    counts = {name.rpartition(".")[2] for name, b in network.named_buffers() if not b.is_floating_point()}
    return {n: t for n, t in tensors.items() if t.dtype in FLOATS or n.rpartition(".")[2] in counts}
