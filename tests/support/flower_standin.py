"""The few classes of Flower that a deployment touches, so that it is simulated where Flower is not installed.

They hold what they are given and check nothing. `test_simulated.py` compares them with Flower's own where there are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

__all__ = ["Array", "ArrayRecord", "ConfigRecord", "Error", "Message", "RecordDict", "installed"]


@dataclass
class Array:
    dtype: str
    shape: tuple[int, ...]
    stype: str
    data: bytes


class ArrayRecord(dict[str, Array]):
    pass


class ConfigRecord(dict[str, Any]):
    pass


class RecordDict(dict[str, Any]):
    pass


@dataclass
class Error:
    code: int
    reason: str


@dataclass
class Metadata:
    dst_node_id: int
    message_type: str
    message_id: str = ""
    reply_to_message_id: str = ""


@dataclass
class Message:
    content: Any = None
    dst_node_id: int = 0
    message_type: str = ""
    reply_to: Message | None = None
    error: Error | None = None
    metadata: Metadata = field(init=False)

    def __post_init__(self) -> None:
        asked = self.reply_to
        self.metadata = Metadata(self.dst_node_id, self.message_type)
        if asked is not None:
            self.metadata = Metadata(0, asked.metadata.message_type, "", asked.metadata.message_id)

    def has_error(self) -> bool:
        return self.error is not None


def context(node_config: Mapping[str, Any], run_config: Mapping[str, Any]) -> Any:
    """What Flower gives a node beside a message."""
    return SimpleNamespace(node_config=node_config, run_config=run_config)


@contextmanager
def installed() -> Iterator[None]:
    """`from flwr.app import ...` gives these classes."""
    app = ModuleType("flwr.app")
    app.__dict__.update({name: globals()[name] for name in __all__ if name != "installed"})
    with patch.dict(sys.modules, {"flwr": ModuleType("flwr"), "flwr.app": app}):
        yield
