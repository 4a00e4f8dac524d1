"""Flower's SuperLink and SuperNode, which run the app of one folder and no other.

Flower runs whatever app it is sent. These programs compare the SHA-256 of the bundle with that of the folder from which
they were started, before it is unpacked: ``python -m fedskew.flower.launcher supernode FOLDER [OPTIONS OF FLOWER]``.
"""

import base64
import hashlib
import json
import logging
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedskew.errors import ConfigError, FedskewError
from fedskew.flower import require_flower

LOG = logging.getLogger("flwr")
TESTED = "1.41"  # of Flower; another may serve other paths, and call what is wrapped here by other names
LARGEST = 16 << 20  # bytes of a request; Flower's bundles have at most 10 MB, parts of an array 5 MiB
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
START, PUSH = "/v1/control/start-run", "/v1/fleet/push-messages"
APIS = {"fleet": FLEET, "control": CONTROL, "runtime": RUNTIME}
PATHS = frozenset(f"/v1/{api}/{name}" for api, names in APIS.items() for name in names)

Message = MutableMapping[str, Any]  # of ASGI, as are the functions that bring and take it
App = Callable[..., Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]


def bundle(folder: Path) -> str:
    """SHA-256, 64 hex digits, of the bundle that Flower makes of an app's folder. Raises ConfigError."""
    from flwr.cli.build import build_fab_from_disk

    try:
        return hashlib.sha256(build_fab_from_disk(folder)).hexdigest()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder} must be the folder of an app: {error}") from None


def accepted(folder: Path, content: bytes) -> bool:
    """Whether a bundle is that of the folder, as it is now; a line of the log says which one was refused."""
    theirs = hashlib.sha256(content).hexdigest()
    try:
        ours = bundle(folder)
    except ConfigError as error:
        LOG.error("fedskew: an app was refused: %s", error)
        return False
    if theirs != ours:
        LOG.error("fedskew: an app was refused: its SHA-256 is %s, that of %s is %s", theirs, folder, ours)
    return theirs == ours


class RequestFilter:
    """ASGI: what a SuperLink serves.

    It refuses other paths than `PATHS`, other apps than the folder's, and messages of a node that answer nothing or are
    signed with the name of another: Flower takes these for the server's own.
    """

    def __init__(self, inner: App, folder: Path) -> None:
        self.inner, self.folder = inner, folder

    async def __call__(self, scope: Message, receive: Receive, send: App) -> None:
        """Pass a request on, or answer it with 403."""
        if scope["type"] != "http":
            return await self.inner(scope, receive, send)
        if scope["path"] not in PATHS:
            LOG.error("fedskew: %s is not served here", ascii(scope["path"])[:100])
            return await _refuse(send, "this path is not served here")
        body = await _whole(receive)
        if wrong := self._wrong(scope["path"], body):
            return await _refuse(send, wrong)
        given = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def again() -> Message:
            return next(given, None) or await receive()

        return await self.inner(scope, again, send)

    def _wrong(self, path: str, body: bytes | None) -> str:
        from flwr.proto.control_pb2 import StartRunRequest
        from flwr.proto.fleet_pb2 import PushMessagesRequest
        from google.protobuf.message import DecodeError

        if body is None:
            return f"a request has at most {LARGEST} bytes"
        try:
            if path == START:
                start = StartRunRequest.FromString(body)
                if start.app_spec or not accepted(self.folder, start.fab.content):
                    return "this SuperLink runs the app of its own folder alone"
            if path == PUSH:
                push = PushMessagesRequest.FromString(body)
                facts = [message.metadata for message in push.messages_list]
                if any(m.src_node_id != push.node.node_id or not m.reply_to_message_id for m in facts):
                    return "a node sends answers, in its own name"
        except DecodeError:
            return "the request is damaged"
        return ""


async def _whole(receive: Receive) -> bytes | None:
    """The body of a request; None where it is longer than LARGEST."""
    parts, size, more = [], 0, True
    while more and size <= LARGEST:
        message = await receive()
        parts.append(message.get("body", b""))
        size, more = size + len(parts[-1]), bool(message.get("more_body"))
    return b"".join(parts) if size <= LARGEST else None


async def _refuse(send: App, why: str) -> None:
    body = why.encode()
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def superlink(folder: Path, words: Sequence[str]) -> None:
    """Flower's SuperLink behind a `RequestFilter`."""
    from flwr.superlink.cli import flower_superlink

    uvicorn: Any = import_module("uvicorn")
    serve = uvicorn.run

    def behind(app: App, **options: Any) -> None:
        serve(RequestFilter(app, folder), **options)

    uvicorn.run = behind
    sys.argv = ["flower-superlink", *words]
    flower_superlink()


class Signer:
    """It signs the bundle of a folder, and no other.

    Flower refuses a bundle without a signature that it trusts before it is unpacked. It loads an app from a folder that
    it calls by the name and version of the run, which the SuperLink chooses; here they are those of the bundle.
    """

    def __init__(self, folder: Path) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self.folder, self.key, self.run = folder, Ed25519PrivateKey.generate(), None

    @property
    def public(self) -> str:
        """The public key in OpenSSH's form."""
        from cryptography.hazmat.primitives import serialization

        kinds = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        return str(self.key.public_key().public_bytes(*kinds).decode())

    def described(self, run: Any) -> Any:
        """A run, as the SuperLink describes it before it sends its bundle."""
        self.run = run
        return run

    def signed(self, fab: Any) -> Any:
        """A bundle with this signature, or with none."""
        from flwr.common.config import get_fab_config, get_metadata_from_config

        run, self.run = self.run, None
        fab.verifications.clear()
        if run is None or not accepted(self.folder, fab.content):
            return fab
        run.fab_id, run.fab_version = get_metadata_from_config(get_fab_config(fab.content))
        now = int(time.time())
        signature = self.key.sign(now.to_bytes(8, "big") + hashlib.sha256(fab.content).digest())
        verification = {"signed_at": now, "signature": base64.urlsafe_b64encode(signature).decode()}
        fab.verifications.update({"valid_license": "yes", "folder": json.dumps(verification)})
        return fab


def supernode(folder: Path, words: Sequence[str]) -> None:
    """Flower's SuperNode, which trusts one signature: that of a `Signer` of this process.

    Should a Flower to come fetch runs and bundles in another way, nothing is signed, and all are refused.
    """
    from flwr.supernode import start_client_internal
    from flwr.supernode.cli import flower_supernode

    signer = Signer(folder)
    connect = start_client_internal.http_request_response

    @contextmanager
    def connected(*given: Any, **options: Any) -> Iterator[Any]:
        with connect(*given, **options) as (node, receive, send, get_run, get_fab, *others):
            run = lambda *asked: signer.described(get_run(*asked))
            fab = lambda *asked: signer.signed(get_fab(*asked))
            yield node, receive, send, run, fab, *others

    start_client_internal.http_request_response = connected
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump({"folder": signer.public}, file)  # JSON is YAML
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
