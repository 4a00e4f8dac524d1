"""Who may ask what of a deployment: every path, from this machine and from others, without and with a node's key.

The shipped scripts run as processes, over TLS. What a node may say once it is let in is in tests/attack/.
"""

from __future__ import annotations

import base64
import datetime
import json
import os
import re
import shutil
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedskew.flower import launcher
from support.deployment import BIN, Deployment
from support.lives import below

pytestmark = pytest.mark.flower
NODES = 2
WORDS = ("--data", "digits", "--model", "logistic", "--cohort", NODES, "--rounds", 1)
needs_front = pytest.mark.skipif(shutil.which("haproxy") is None, reason="the front is HAProxy, which is not installed")
of_flower = pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # when it makes a bundle
EVIL = "from pathlib import Path\nMARK = Path({mark!r})\nMARK.touch()\n"
SERVER = """from flwr.app import Message, RecordDict
from flwr.serverapp import ServerApp
import time
app = ServerApp()


@app.main()
def main(grid, context):
    while not (nodes := list(grid.get_node_ids())):
        time.sleep(0.2)
    messages = [Message(RecordDict(), dst_node_id=node, message_type="query") for node in nodes]
    replies = grid.send_and_receive(messages, timeout=60)
    MARK.with_suffix(".heard").write_text(str([r.error.reason if r.has_error() else "done" for r in replies]))
"""
CLIENT = """from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp
app = ClientApp()


@app.query()
def query(message, context):
    return Message(RecordDict(), reply_to=message)
"""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with Deployment(tmp_path_factory.mktemp("doors"), "fedavg", *WORDS, nodes=NODES) as made:
        made.superlink()
        if shutil.which("haproxy"):
            made.front()
        made.output("sh", "register.sh")
        for k in range(NODES):
            made.node(k)
        for k in range(NODES):
            made.until(lambda name=f"node-{k}": "SuperNode ID" in made.log(name), f"node-{k}", 120)
        yield made


@pytest.fixture
def evil(deployment: Deployment, tmp_path: Path) -> Path:
    """An app that leaves a file ``server`` or ``node`` beside it where it is unpacked and run."""
    app = tmp_path / "app"
    (app / "app").mkdir(parents=True)
    for name in ("pyproject.toml", "LICENSE", "app/__init__.py", "app/inputs.json"):
        shutil.copy(deployment.app / name, app / name)
    (app / "app/server.py").write_text(EVIL.format(mark=str(tmp_path / "server")) + SERVER, encoding="utf-8")
    (app / "app/client.py").write_text(EVIL.format(mark=str(tmp_path / "node")) + CLIENT, encoding="utf-8")
    return app


def routes() -> list[tuple[str, str]]:
    """Every method and path of Flower's SuperLink."""
    from flwr.superlink.main import create_app

    found = [(m, str(r.path)) for r in create_app().routes if hasattr(r, "methods") for m in sorted(r.methods)]
    schema = create_app().openapi()["paths"]
    return sorted({*found, *((m.upper(), path) for path, methods in schema.items() for m in methods)})


def signed(key: Path) -> list[str]:
    """The headers by which a node says who it is."""
    from cryptography.hazmat.primitives import serialization
    from flwr.common.constant import TIMESTAMP_HEADER
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message

    private = serialization.load_ssh_private_key(key.read_bytes(), None)
    now = datetime.datetime.now(datetime.UTC).isoformat()
    public = base64.b64encode(public_key_to_bytes(private.public_key())).decode()
    signature = base64.b64encode(sign_message(private, now.encode())).decode()
    return [f"flwr-public-key: {public}", f"flwr-signature: {signature}", f"{TIMESTAMP_HEADER}: {now}"]


def status(deployment: Deployment, port: int, method: str, url: str, *headers: str, body: bytes = b"") -> int:
    """The status of the answer to one request over TLS, which is sent as it stands; 0 for none."""
    head = [f"{method} {url} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Connection: close",
            "Content-Type: application/protobuf", *headers]  # fmt: skip
    if not any("length" in h.lower() or "encoding" in h.lower() for h in headers):
        head.append(f"Content-Length: {len(body)}")
    with connected(deployment, port) as stream:
        stream.sendall("\r\n".join([*head, "", ""]).encode() + body)
        try:
            answer = stream.recv(64)
        except OSError:
            return 0
    return int(answer.split()[1]) if answer else 0


def numbers_of(deployment: Deployment) -> list[int]:
    """Flower's numbers of the registered nodes."""
    listed = deployment.output("flwr", "supernode", "list", "deployment", "--format", "json", home=".flwr")
    return [int(number) for number in re.findall(r'"node-id": "?(\d+)', listed)]


def connected(deployment: Deployment, port: int, *protocols: str) -> ssl.SSLSocket:
    """A connection over TLS, which its caller closes."""
    context = ssl.create_default_context(cafile=str(deployment.app / "keys" / "ca.crt"))
    context.set_alpn_protocols(protocols or ("http/1.1",))
    return context.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=30), server_hostname="127.0.0.1")


def listening(pids: set[int]) -> set[tuple[str, int]]:
    """(address, port) of every TCP socket on which one of the processes listens."""
    inodes = set()
    for pid in pids:
        folder = Path(f"/proc/{pid}/fd")
        for entry in folder.iterdir() if folder.exists() else ():
            if found := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(entry)):
                inodes.add(found[1])
    found_at = set()
    for table, width in (("tcp", 4), ("tcp6", 16)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and inode in inodes:
                host, _, port = local.partition(":")
                raw = b"".join(bytes.fromhex(host)[at : at + 4][::-1] for at in range(0, width, 4))
                family = socket.AF_INET if width == 4 else socket.AF_INET6
                found_at.add((socket.inet_ntop(family, raw), int(port, 16)))
    return found_at


@needs_front
def test_one_port_is_open_to_other_machines(deployment: Deployment) -> None:
    pids = {p.pid for p in deployment.alive.values()}
    open_ports = listening(pids | {child for pid in pids for child in below(pid)})
    nodes = int(deployment.env["NODE_PORT"])
    here = {("127.0.0.1", deployment.port), *(("127.0.0.1", nodes + k) for k in range(NODES))}
    assert open_ports == {("0.0.0.0", deployment.outside), *here}


@needs_front
def test_the_front_passes_on_what_a_node_needs_and_nothing_else(deployment: Deployment) -> None:
    inside = {f"/v1/fleet/{name}" for name in launcher.FLEET}
    every, node = routes(), signed(deployment.app / "keys" / "node-0")
    assert len(every) > 60 and inside < {path for _, path in every}
    for method, path in every:
        plain = status(deployment, deployment.outside, method, path)
        known = status(deployment, deployment.outside, method, path, *node)
        if method == "POST" and path in inside:
            assert plain == 401 and known not in (0, 403), (path, plain, known)
        else:
            assert (plain, known) == (403, 403), (method, path, plain, known)


def test_the_superlink_answers_this_machine_what_the_scripts_ask(deployment: Deployment) -> None:
    """A request of the Fleet API without a node's key is refused there, too."""
    for method, path in routes():
        code = status(deployment, deployment.port, method, path)
        if path not in launcher.PATHS:
            assert code == 403, (method, path, code)
        elif method == "POST" and path.startswith("/v1/fleet/"):
            assert code == 401, (path, code)


PATHS = (
    "/v1/fleet/../control/list-runs", "/v1/fleet/%2e%2e/control/list-runs", "//v1/control/list-runs",
    "/v1/fleet/pull-messages/../../control/list-runs", "/v1//control/list-runs", "/v1/control/list-runs/",
    "/V1/CONTROL/LIST-RUNS", "/v1%2fcontrol%2flist-runs", "/v1/fleet/pull-messages;/../../control/list-runs",
    "/v1/fleet/pull-messages?/v1/control", "/v1/fleet/pull-messages#/../control/list-runs",
    "/v1/fleet\\..\\control\\list-runs", "*", "/", "", "https://127.0.0.1/v1/control/list-runs",
    "/v1/fleet/pull-messages%00/../../control/list-runs",
)  # fmt: skip
BODIES: dict[str, tuple[list[str], int]] = {
    "two framings": (["Content-Length: 4", "Transfer-Encoding: chunked"], 400),
    "chunks": (["Transfer-Encoding: chunked"], 400),
    "two lengths": (["Content-Length: 4", "Content-Length: 90"], 400),
    "large": ([f"Content-Length: {launcher.LARGEST + 1}"], 413),
}


@needs_front
@pytest.mark.parametrize("url", PATHS)
def test_a_disguised_path_goes_no_further_than_the_front(deployment: Deployment, url: str) -> None:
    before = deployment.log("superlink").count("/control/")
    for headers in ([], signed(deployment.app / "keys" / "node-0")):
        assert status(deployment, deployment.outside, "POST", url, *headers) in (400, 403)
    assert deployment.log("superlink").count("/control/") == before


@needs_front
@pytest.mark.parametrize("case", BODIES)
def test_a_body_that_is_not_of_a_node_goes_no_further_than_the_front(deployment: Deployment, case: str) -> None:
    headers, code = BODIES[case]
    hidden = b"0\r\n\r\nPOST /v1/control/list-runs HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
    node, before = signed(deployment.app / "keys" / "node-0"), deployment.log("superlink").count("/control/")
    url = "/v1/fleet/pull-messages"
    assert status(deployment, deployment.outside, "POST", url, *node, *headers, body=hidden) == code
    assert deployment.log("superlink").count("/control/") == before


@needs_front
def test_the_front_speaks_no_http_2(deployment: Deployment) -> None:
    """Its requests need no length, so none would bound them."""
    with connected(deployment, deployment.outside, "h2", "http/1.1") as stream:
        assert stream.selected_alpn_protocol() in (None, "http/1.1")
        stream.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        assert stream.recv(64).startswith(b"HTTP/1.1 4")


@needs_front
def test_a_node_sends_answers_in_its_own_name_alone(deployment: Deployment) -> None:
    """Flower would pass on what a node sends as if it were the server's, or another's."""
    from flwr.proto.fleet_pb2 import PushMessagesRequest

    numbers, node, codes = numbers_of(deployment), signed(deployment.app / "keys" / "node-0"), set()
    for own in numbers:
        for source, reply in ((own, ""), (sum(numbers) - own, "f" * 64)):
            request = PushMessagesRequest()
            request.node.node_id = own
            facts = request.messages_list.add().metadata
            facts.src_node_id, facts.reply_to_message_id = source, reply
            body = request.SerializeToString()
            codes.add(status(deployment, deployment.outside, "POST", "/v1/fleet/push-messages", *node, body=body))
    assert codes == {403}


@of_flower
def test_a_folder_that_is_no_app_any_more_is_no_apps(tmp_path: Path) -> None:
    assert not launcher.accepted(tmp_path, b"")


@needs_front
def test_a_node_speaks_for_no_other(deployment: Deployment) -> None:
    from flwr.proto.fleet_pb2 import PullMessagesRequest

    request = PullMessagesRequest()
    request.node.node_id = max(numbers_of(deployment))
    url, body = "/v1/fleet/pull-messages", request.SerializeToString()
    keys = [signed(deployment.app / "keys" / f"node-{k}") for k in range(NODES)]
    assert sorted(status(deployment, deployment.outside, "POST", url, *key, body=body) for key in keys) == [200, 401]


@needs_front
def test_a_stranger_with_the_authoritys_certificate_runs_nothing(
    deployment: Deployment, evil: Path, tmp_path: Path
) -> None:
    """The attack of the commands of Flower itself: list runs, register a key, submit an app."""
    home = tmp_path / "stranger"
    home.mkdir()
    root = deployment.app / "keys" / "ca.crt"
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "far"\n[superlink.far]\naddress = "127.0.0.1:{deployment.outside}"\n'
        f'root-certificates = "{root}"\n', encoding="utf-8",
    )  # fmt: skip
    public = str(deployment.app / "keys" / f"node-{NODES}.unregistered")
    listed = numbers_of(deployment)
    for words in (["list"], ["supernode", "list"], ["supernode", "register", public], ["run", str(evil)]):
        done = subprocess.run(
            [str(BIN / "flwr"), *words, "far"], env={**deployment.env, "FLWR_HOME": str(home)}, text=True, check=False,
            capture_output=True, timeout=120,
        )  # fmt: skip
        assert done.returncode != 0, (words, done.stdout)
    assert numbers_of(deployment) == listed
    assert not (tmp_path / "server").exists() and not (tmp_path / "node").exists()


def test_the_superlink_runs_the_app_of_its_folder_alone(deployment: Deployment, evil: Path, tmp_path: Path) -> None:
    said = deployment.output("flwr", "run", evil, "deployment", code=1, home=".flwr")
    assert "Successfully started" not in said
    assert "an app was refused: its SHA-256 is " in deployment.log("superlink")
    assert not (tmp_path / "server").exists()


def test_a_run_leaves_nothing_that_others_of_the_machine_may_read(deployment: Deployment) -> None:
    deployment.ended(deployment.run("plain"), code=0)
    for name in ("keys", "state", "superlink.db", "plain", "keys/server.key", "keys/node-0"):
        mode = stat.S_IMODE((deployment.app / name).stat().st_mode)
        assert not mode & 0o077, (name, oct(mode))


@of_flower
def test_a_node_runs_the_app_of_its_folder_alone(deployment: Deployment, evil: Path, tmp_path: Path) -> None:
    """The SuperLink is the attacker's here: Flower's own, with the same certificate."""
    deployment.kill("superlink")
    keys = deployment.app / "keys"
    (tmp_path / "hostile.py").write_text(HOSTILE, encoding="utf-8")
    deployment.start(
        "hostile", sys.executable, tmp_path / "hostile.py", tmp_path / "names.json", "--ssl-ca-certfile",
        keys / "ca.crt", "--ssl-certfile", keys / "server.crt", "--ssl-keyfile",
            keys / "server.key", "--enable-supernode-auth", "--port", deployment.port, "--database",
        "superlink.db", "--disable-runtime-dependency-installation",
    )  # fmt: skip
    try:
        deployment.until(lambda: "Uvicorn running" in deployment.log("hostile"), "hostile", 60)
        deployment.output("flwr", "run", evil, "deployment", home=".flwr")
        deployment.until((tmp_path / "server.heard").exists, "hostile", 120)
        assert (tmp_path / "server.heard").read_text() == str(["The FAB could not be verified."] * NODES)
        assert all("an app was refused" in deployment.log(f"node-{k}") for k in range(NODES))
        assert not (tmp_path / "node").exists()
        # the right bundle under a name by which Flower loads an app that lies elsewhere on the node's machine
        planted = tmp_path / f"x.{launcher.bundle(deployment.app)[:8]}"
        shutil.copytree(evil, planted)
        names = ["/", "/" + "../" * 30 + str(tmp_path / "x").lstrip("/")]
        (tmp_path / "names.json").write_text(json.dumps(names), encoding="utf-8")
        deployment.ended(deployment.run("elsewhere"), code=0)
        assert not (tmp_path / "node").exists()
        (tmp_path / "names.json").unlink()
        deployment.end("node-0")
        deployment.start(
            "plain", "flower-supernode", "--root-certificates", keys / "ca.crt", "--auth-supernode-private-key",
            keys / "node-0", "--superlink", f"127.0.0.1:{deployment.port}", "--port", deployment.env["NODE_PORT"],
        )  # fmt: skip
        deployment.output("flwr", "run", evil, "deployment", home=".flwr")
        deployment.until((tmp_path / "node").exists, "plain", 120)  # so it would have run: Flower's own node runs it
    finally:
        deployment.kill("hostile")
        deployment.superlink()


HOSTILE = """import json, pathlib, sys
from flwr.superlink.servicer.fleet import fleet_handlers

plain, names = fleet_handlers.run_to_proto, pathlib.Path(sys.argv.pop(1))


def altered(run):
    told = plain(run)
    if names.exists():
        told.fab_id, told.fab_version = json.loads(names.read_text())
    return told


fleet_handlers.run_to_proto = altered
from flwr.superlink.cli import flower_superlink

flower_superlink()
"""


def test_without_haproxy_the_front_says_so(deployment: Deployment, tmp_path: Path) -> None:
    (tmp_path / "dirname").symlink_to(str(shutil.which("dirname")))
    words, env = ["/bin/sh", str(deployment.app / "front.sh")], {"PATH": str(tmp_path)}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    said = "front.sh: haproxy must be installed (apt-get install haproxy); nodes of this machine need no front\n"
    assert (done.returncode, done.stderr) == (2, said)


def test_another_flower_is_refused(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launcher, "version", lambda name: "1.44.0")
    assert launcher.main(["supernode", str(deployment.app)]) == 2
    assert "flwr must be 1.41" in capsys.readouterr().err
