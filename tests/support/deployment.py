"""A deployment of Flower on this machine: a SuperLink over TLS, its front, and registered SuperNodes.

Each is a group of processes.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from support.lives import below
from support.paths import ROOT

__all__ = ["NODES", "Deployment"]

NODES = 5
BIN = Path(sys.executable).parent
# kills the groups of processes of a file once the tests' process has gone, however it ended
REAPER = """while kill -0 "$1" 2>/dev/null; do sleep 1; done
for group in $(cat "$2"); do kill -9 "-$group" 2>/dev/null; done"""


def _ports(count: int) -> list[int]:
    """Ports in a row that nobody listens to, below those that Linux gives to connections.

    A node that begins again must find its port free: a connection of another node may not have taken it meanwhile.
    """
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="utf-8").split()[0])
    for _ in range(100):
        begin = random.SystemRandom().randrange(10_000, lowest - count)
        if not any(_answers(port) for port in range(begin, begin + count)):
            return list(range(begin, begin + count))
    raise AssertionError("no free ports")


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Deployment:
    """An app, written by ``fedskew flower init``, with a SuperLink and nodes beside it."""

    def __init__(self, folder: Path, *words: object, nodes: int = NODES) -> None:
        """``words`` are options of ``fedskew flower init``, the method first."""
        self.app, self.nodes = folder / "app", nodes
        self.alive: dict[str, subprocess.Popen[bytes]] = {}
        port, outside, *others = _ports(nodes + 3)
        paths = os.pathsep.join([str(BIN), os.environ["PATH"]])
        self.env = {
            **{name: value for name, value in os.environ.items() if name != "FLWR_HOME"},
            "PATH": paths, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1", "LINK_PORT": str(port), "PORT": str(outside), "NODE_PORT": str(others[0]),
        }  # fmt: skip
        self.port, self.outside, self.groups = port, outside, folder / "groups"
        self.groups.touch()
        words_of = ["sh", "-c", REAPER, "reaper", str(os.getpid()), str(self.groups)]
        self.reaper = subprocess.Popen(words_of, start_new_session=True, stderr=subprocess.DEVNULL)
        self.output("fedskew", "flower", "init", *words, "--clients", nodes, "--out", self.app)
        self.output("fedskew", "flower", "keys", "--app", self.app, "--nodes", nodes + 1)
        config = self.app / ".flwr" / "config.toml"
        config.write_text(re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{port}", config.read_text()), encoding="utf-8")
        spare = self.app / "keys" / f"node-{nodes}.pub"  # of a node that nobody has registered
        spare.rename(spare.with_suffix(".unregistered"))

    def __enter__(self) -> Deployment:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill every process, and those that they began."""
        for name in list(self.alive):
            self.kill(name)
        self.reaper.kill()
        self.reaper.wait()

    def noted(self) -> None:
        """Tell the reaper which groups there are."""
        self.groups.write_text(" ".join(str(process.pid) for process in self.alive.values()), encoding="utf-8")

    def output(self, *words: object, timeout: float = 300, code: int = 0, home: str = "") -> str:
        """What a command says, both streams. It must end with the code."""
        env = {**self.env, **({"FLWR_HOME": str(self.app / home)} if home else {})}
        done = subprocess.run(
            list(map(str, words)), env=env, timeout=timeout, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            cwd=self.app if self.app.exists() else None,
        )  # fmt: skip
        assert done.returncode == code, f"{words} ended with {done.returncode}:\n{done.stdout[-3000:]}"
        return done.stdout

    # processes

    def start(self, name: str, *words: object, env: Mapping[str, str] | None = None) -> None:
        """Begin a group of processes; what they say goes to NAME.log."""
        with open(self.app / f"{name}.log", "ab") as stream:
            self.alive[name] = subprocess.Popen(
                list(map(str, words)), cwd=self.app, env={**self.env, **(env or {})}, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
            )  # fmt: skip
        self.noted()

    def kill(self, name: str, *, alone: bool = False) -> None:
        """Kill a group of processes, and unless ``alone`` those that it began in groups of their own."""
        process = self.alive.pop(name)
        children = [] if alone else below(process.pid)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        process.wait(timeout=300)
        self.noted()

    def end(self, name: str) -> None:
        """Ask a group of processes to end, and wait until it has."""
        process = self.alive.pop(name)
        process.terminate()
        process.wait(timeout=300)
        self.noted()

    def log(self, name: str) -> str:
        """What a group of processes has said."""
        return (self.app / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def superlink(self) -> None:
        """Begin the SuperLink, and wait until it listens."""
        self.start("superlink", "sh", "superlink.sh")
        self.until(lambda: _answers(self.port), "superlink")

    def front(self) -> None:
        """Begin the front, and wait until it listens."""
        self.start("front", "sh", "front.sh")
        self.until(lambda: _answers(self.outside), "front")

    def node(self, k: int, allow: str = "histogram", env: Mapping[str, str] | None = None) -> None:
        """Begin the node of client k, beyond the front where there is one.

        A server that is told histograms records what one process records.
        """
        server = ["127.0.0.1"] if "front" in self.alive else []
        self.start(f"node-{k}", "sh", "node.sh", k, *server, env={"ALLOW": allow, **(env or {})})

    def begin(self, allow: Mapping[int, str] | None = None, env: Mapping[int, Mapping[str, str]] | None = None) -> None:
        """Begin the SuperLink and all nodes; ``allow`` and ``env`` are of single nodes."""
        self.superlink()
        self.output("sh", "register.sh", timeout=300)
        for k in range(self.nodes):
            self.node(k, (allow or {}).get(k, "histogram"), (env or {}).get(k))

    def until(self, holds: Callable[[], bool], name: str, seconds: float = 600) -> None:
        """Wait until something holds; the process of that name must live meanwhile."""
        end = time.monotonic() + seconds
        while not holds():
            code = self.alive[name].poll()
            assert code is None, f"{name} ended with {code}:\n{self.log(name)[-3000:]}"
            assert time.monotonic() < end, f"waited {seconds} s for {name}:\n{self.log(name)[-3000:]}"
            time.sleep(0.1)

    # runs

    def run(self, out: str, *, name: str = "", **options: Any) -> str:
        """Begin a run as a process of its own; its name. A dash of an option is an underscore, a dot two."""
        config = {"flower.out": str(self.app / out), "flower.poll-s": 0.1}
        config |= {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
        words = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        name = name or f"run-{out}"
        self.start(name, "sh", "run.sh", "--run-config", words)
        return name

    def stop(self, name: str) -> None:
        """Stop a run, as its user does."""
        number = re.findall(r"Successfully started run (\d+)", self.log(name))[-1]
        self.output("flwr", "stop", number, "deployment", home=".flwr")

    def ended(self, name: str, seconds: float = 900, code: int | None = None) -> str:
        """What a run has said, once it has ended; with the code, where one is named."""
        process = self.alive[name]
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{name} did not end in {seconds} s:\n{self.log(name)[-3000:]}") from None
        del self.alive[name]
        self.noted()
        assert code in (None, process.returncode), f"{name} ended with {process.returncode}:\n{self.log(name)[-3000:]}"
        return self.log(name)

    def free(self, out: str) -> bool:
        """Whether no server trains in a run folder any more."""
        from fedskew.errors import RecordError
        from fedskew.records.files import Hold

        try:
            Hold(self.app / out).release()
        except RecordError:
            return False
        return True

    def rounds(self, out: str) -> int:
        """Rounds that a run folder holds."""
        file = self.app / out / "rounds.jsonl"
        return file.read_bytes().count(b"\n") if file.exists() else 0
