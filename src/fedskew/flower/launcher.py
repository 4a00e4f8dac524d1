"""Flower's SuperLink and SuperNode, which run the app of one folder and no other.

Flower runs whatever app it is sent. These programs compare the SHA-256 of the bundle with that of the folder from which
they were started, before it is unpacked: ``python -m fedskew.flower.launcher supernode FOLDER [OPTIONS OF FLOWER]``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedskew.errors import ConfigError, FedskewError
from fedskew.flower import require_flower

__all__ = ["CONTROL", "FLEET", "RUNTIME", "Door", "bundle", "main"]

LOG = logging.getLogger("flwr")
TESTED = "1.41"  # of Flower; another may serve other paths, and call what is wrapped here by other names
LARGEST = 16 << 20  # bytes of a request that starts a run; Flower's bundles have at most 10 MB
FLEET = (
    "activate-node", "deactivate-node", "send-node-heartbeat", "pull-messages", "push-messages", "get-run", "get-fab",
    "push-object", "pull-object", "confirm-message-received",
)  # fmt: skip
CONTROL = (
    "start-run", "list-runs", "stop-run", "stream-logs", "register-node", "unregister-node", "list-nodes",
)  # fmt: skip
RUNTIME = (
    "acquire-task", "send-task-heartbeat", "pull-task-input", "push-task-output", "push-object", "pull-object",
    "confirm-message-received", "push-logs", "push-messages", "pull-messages", "get-nodes",
)  # fmt: skip
START = "/v1/control/start-run"
PATHS = frozenset(
    f"/v1/{api}/{name}"
    for api, names in (("fleet", FLEET), ("control", CONTROL), ("runtime", RUNTIME))
    for name in names
)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


def bundle(folder: Path) -> str:
    """SHA-256, 64 hex digits, of the bundle that Flower makes of an app's folder. Raises ConfigError."""
    from flwr.cli.build import build_fab_from_disk

    try:
        return hashlib.sha256(build_fab_from_disk(folder)).hexdigest()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder} must be the folder of an app: {error}") from None


def accepted(folder: Path, content: bytes) -> bool:
    """Whether a bundle is that of the folder, as it is now; a line of the log says which one was refused."""
    theirs, ours = hashlib.sha256(content).hexdigest(), bundle(folder)
    if theirs != ours:
        LOG.error("fedskew: an app was refused: its SHA-256 is %s, that of %s is %s", theirs, folder, ours)
    return theirs == ours


class Door:
    """ASGI: what a SuperLink serves. It refuses other paths than `PATHS`, and other apps than the folder's."""

    def __init__(self, inner: App, folder: Path) -> None:
        self.inner, self.folder = inner, folder

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with 403."""
        if scope["type"] != "http":
            return await self.inner(scope, receive, send)
        if scope["path"] not in PATHS:
            LOG.error("fedskew: %s is not served here", ascii(scope["path"])[:100])
            return await _refuse(send, "this path is not served here")
        if scope["path"] != START:
            return await self.inner(scope, receive, send)
        body = await _whole(receive)
        if wrong := self._wrong(body):
            return await _refuse(send, wrong)
        given = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def again() -> Message:
            return next(given, None) or await receive()

        return await self.inner(scope, again, send)

    def _wrong(self, body: bytes) -> str:
        from flwr.proto.control_pb2 import StartRunRequest
        from google.protobuf.message import DecodeError

        try:
            request = StartRunRequest.FromString(body)
        except DecodeError:
            return "the request is damaged"
        if request.app_spec or not accepted(self.folder, request.fab.content):
            return "this SuperLink runs the app of its own folder alone"
        return ""


async def _whole(receive: Receive) -> bytes:
    """The body of a request; of one that is longer than LARGEST a part that is no request."""
    parts, size, more = [], 0, True
    while more and size <= LARGEST:
        message = await receive()
        parts.append(message.get("body", b""))
        size, more = size + len(parts[-1]), bool(message.get("more_body"))
    return b"".join(parts) if size <= LARGEST else b"\xff"


async def _refuse(send: Send, why: str) -> None:
    body = why.encode()
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def superlink(folder: Path, words: Sequence[str]) -> None:
    """Flower's SuperLink behind a `Door`."""
    import uvicorn
    from flwr.superlink.cli import flower_superlink

    serve = uvicorn.run

    def behind(app: App, **options: Any) -> None:
        serve(Door(app, folder), **options)

    uvicorn.run = behind
    sys.argv = ["flower-superlink", *words]
    flower_superlink()


def supernode(folder: Path, words: Sequence[str]) -> None:
    """Flower's SuperNode, which trusts one signature: that of this process, which signs the folder's bundle alone.

    Flower refuses a bundle without a signature that it trusts before it is unpacked. So should a Flower to come fetch
    bundles in another way, all are refused.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from flwr.supernode import start_client_internal
    from flwr.supernode.cli import flower_supernode

    key = Ed25519PrivateKey.generate()
    connect = start_client_internal.http_request_response

    def signed(fab: Any) -> Any:
        fab.verifications.clear()
        if accepted(folder, fab.content):
            now = int(time.time())
            signature = key.sign(now.to_bytes(8, "big") + hashlib.sha256(fab.content).digest())
            told = {"signed_at": now, "signature": base64.urlsafe_b64encode(signature).decode()}
            fab.verifications.update({"valid_license": "yes", "folder": json.dumps(told)})
        return fab

    @contextmanager
    def connected(*given: Any, **options: Any) -> Iterator[Any]:
        with connect(*given, **options) as (node, receive, send, get_run, get_fab, *others):
            yield node, receive, send, get_run, lambda *asked: signed(get_fab(*asked)), *others

    start_client_internal.http_request_response = connected
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump({"folder": public.decode()}, file)  # JSON is YAML
        file.flush()
        sys.argv = ["flower-supernode", *words, "--trusted-entities", file.name]
        flower_supernode()


PROGRAMS = {"superlink": superlink, "supernode": supernode}


def main(words: Sequence[str]) -> int:
    """Run one of `PROGRAMS`; 2 and one line where it cannot."""
    try:
        require_flower()
        if not version("flwr").startswith(f"{TESTED}."):
            raise ConfigError(f"flwr must be {TESTED}, with which the doors are tested; got {version('flwr')}")
        program, folder, *others = words
        path = Path(folder).resolve()
        LOG.info("fedskew: the %s runs the app of %s alone; SHA-256 of its bundle: %s", program, path, bundle(path))
        PROGRAMS[program](path, others)
    except FedskewError as error:
        sys.stderr.write(f"{words[0]}: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
