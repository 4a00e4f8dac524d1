"""Methods on Flower, the upper storey: names of `__all__` and messages stay, all else may change, nothing imports it.

An app whose server and nodes are fedskew, and a strategy for a Flower project of your own. Of the library's insides the
room uses what `fedskew.deployment` names; an import contract holds it. Whoever changes a message raises `wire.FORMAT`.

It needs the extra ``flower``. Flower is imported when something is called, never with fedskew.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fedskew.errors import ConfigError, install

if TYPE_CHECKING:
    from fedskew.flower.functions import aggregation_weights, server_step
    from fedskew.flower.serve import client_app, server_app
    from fedskew.flower.strategy import FedSkewStrategy

__all__ = ["FedSkewStrategy", "aggregation_weights", "client_app", "require_flower", "server_app", "server_step"]

_HOMES = {
    "FedSkewStrategy": "strategy", "aggregation_weights": "functions", "client_app": "serve", "server_app": "serve",
    "server_step": "functions",
}  # fmt: skip


def require_flower() -> None:
    """Raises ConfigError that names the extra where the package flwr is missing."""
    package = find_spec("flwr")
    if package is None or package.origin is None:
        raise ConfigError(f"this needs the package flwr, which is not installed; {install('flower')}")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _HOMES[name] == "strategy":
        require_flower()
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
