"""The Ray cluster that a run uses: one that is there, or one of this machine alone, which ends with the run."""

from __future__ import annotations

import os
import signal
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from fedskew.engines.runtime import Workers
from fedskew.errors import ConfigError

__all__ = ["Cluster", "require_ray"]

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))

HINT = "`ray start --head --port=6379` begins one, `ray status` shows it"
REACHED_S = 5.0


def require_ray() -> None:
    """Raises ConfigError that names the extra where the package ray is missing."""
    found = find_spec("ray")
    if found is None or found.origin is None:  # a folder of this name, such as a run's, is not the package
        raise ConfigError("the engine ray needs the package ray, which is not installed; pip install 'fedskew[ray]'")


class Cluster:
    """A connection to a cluster.

    A program that has called ``ray.init`` itself keeps its connection. Otherwise an address is joined: that of the
    option, else that of the environment variable RAY_ADDRESS. Without one, a cluster of this machine is begun.
    """

    def __init__(self, address: str | None, workers: int) -> None:
        """Connect.

        Args:
            address: "HOST:PORT" of a running cluster, "auto" for the one that runs on this machine, or None.
            workers: processes that a cluster of this machine shall hold; 0: one a core.

        Raises:
            ConfigError: the package ray is missing, or there is no cluster at the address.
        """
        require_ray()
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to anybody who was not asked
        import ray

        self.joined = not ray.is_initialized()  # by us
        if not self.joined:
            return
        where = address or os.environ.get("RAY_ADDRESS") or "local"
        _reached(where)
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": False}
        if where != "local":
            del quiet["include_dashboard"]  # which is the cluster's to say
        else:
            quiet["num_cpus"] = workers or Workers.cores()
            os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's 15 lets everything else on the machine go first
        self._printing = _silenced()
        try:
            with _signals_kept(), warnings.catch_warnings():
                # of a default to come for actors without a GPU, which here are told their device
                warnings.filterwarnings("ignore", "Tip: In future versions of Ray", FutureWarning)
                ray.init(address=where, **quiet)
        except (ConnectionError, RuntimeError, ValueError) as error:
            said = (str(error).strip().splitlines() or ["no answer"])[0]
            raise ConfigError(f"there is no Ray cluster at {where!r}: {said}; {HINT}") from None

    @staticmethod
    def room(gpus: float) -> int:
        """Workers that the cluster can hold, each with a core and so many GPUs; others may have taken some of it."""
        import ray

        has = ray.cluster_resources()
        cores = int(has.get("CPU", 0.0))
        return min(cores, int(has.get("GPU", 0.0) / gpus + 1e-6)) if gpus else cores

    def leave(self) -> None:
        """End the connection; a cluster of this machine ends with it."""
        import ray

        if self.joined and ray.is_initialized():
            with _signals_kept():
                ray.shutdown()
            self._printing()


def _reached(where: str) -> None:
    """Raise ConfigError where nothing answers at HOST:PORT. Ray itself would try for minutes, and write about it."""
    if where in ("local", "auto"):
        return
    host, _, port = where.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise ConfigError(f"the address of a Ray cluster must be HOST:PORT, auto or local; got {where!r}; {HINT}")
    try:
        socket.create_connection((host, int(port)), timeout=REACHED_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(f"there is no Ray cluster at {where!r}: {error}; {HINT}") from None


def _silenced() -> Callable[[], None]:
    """Ray prints a paragraph on stdout for each lost worker, and has no option against it. What undoes this.

    The pool says in a line of its own what was lost.
    """
    from ray._private import worker

    name = "print_to_stdstream"
    before = getattr(worker, name, None)
    if before is None:
        return lambda: None
    setattr(worker, name, lambda *args, **named: None)
    return lambda: setattr(worker, name, before)


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray puts its own handlers in the place of those that let a run end with whole rounds."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
