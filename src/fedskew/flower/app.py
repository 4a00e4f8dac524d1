"""`fedskew flower init` and `keys`: the files of a Flower app, and what a deployment over TLS needs."""

import base64
import contextlib
import datetime
import ipaddress
import json
import math
import os
import re
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from fedskew import deployment as lib
from fedskew.errors import ConfigError, install, require, visible
from fedskew.flower.contract import PERMITS, needs
from fedskew.flower.launcher import FLEET, LARGEST
from fedskew.flower.rows import inputs_text

YEARS = 2
MOST_NAME = 64  # characters of a common name in a certificate
LABEL = re.compile(r"[a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9_])?")  # of a DNS name
SCRIPTS = ("superlink.sh", "front.sh", "front.cfg", "register.sh", "node.sh", "run.sh", "simulate.sh")


def config_of(experiment: lib.Experiment, *, own_data: bool, clients: int) -> dict[str, Any]:
    """``[tool.flwr.app.config]`` of an app: what is often changed.

    Args:
        experiment: what the app trains.
        own_data: nodes bring their own data.
        clients: number of nodes.
    """
    usual = {
        "method": experiment.method.name.partition("(")[0], "clients": clients, "cohort": experiment.cohort or clients,
        "rounds": experiment.rounds, "seed": experiment.seed, "model": experiment.model.name,
    }  # fmt: skip
    if not own_data:
        usual |= {"data": experiment.data.name, "partition": experiment.partition.name}
    pace = experiment.method.pace
    usual |= {"epochs": pace.epochs, "lr": pace.lr, "eval-every": experiment.eval_every}
    usual |= {"batch-size": size} if (size := getattr(pace, "batch_size", None)) is not None else {}
    # Flower's --run-config takes no key that is not here
    return {
        **usual, "keep-own": experiment.keep_own, "flower.out": "run", "flower.own-data": own_data,
        "flower.missing": "wait", "flower.bad": "stop", "flower.wait-s": 600.0, "flower.poll-s": 0.2, "flower.test": "",
    }  # fmt: skip


def write_app(
    folder: Path, experiment: lib.Experiment, config: Mapping[str, Any], inputs: lib.Inputs, augment: tuple[str, ...]
) -> list[str]:
    """Write an app's files.

    Args:
        folder: where; it must not hold an app.
        experiment: what is trained.
        config: of `config_of`.
        inputs: what a sample is, and the names of the classes.
        augment: augmentations of training batches.

    Returns:
        Names of the files.

    Raises:
        ConfigError: the folder holds an app already.
        RecordError: it cannot be written.
    """
    taken = any((folder / name).exists() for name in ("pyproject.toml", "app"))
    require(not taken, "out", "name a folder without an app", str(folder))
    from fedskew import __version__

    least = lib.sums.LEAST * (experiment.secure == "sums")
    permits = [] if least else [*needs(experiment.method)]
    permits += ["columns"] if config.get("flower.encoding") == "nodes" else []
    needed = ["the number of its rows", *(PERMITS[permit] for permit in permits)]
    if least:
        needed = [f"its part of sums over at least {least} nodes"]
    values = {
        "method": experiment.method.name, "version": __version__,
        "description": _toml(f"{experiment.method.name} by fedskew on Flower"),
        "clients": str(config["clients"]), "needs": ", ".join(needed), "secure": str(least),
        "config": "\n".join(f"{_toml(key)} = {_toml(value)}" for key, value in config.items()),
        "allow": ", ".join(permits) or "none", "permits": ", ".join(PERMITS), "largest": str(LARGEST),
        "paths": " ".join(f"/v1/fleet/{path}" for path in FLEET),
    }  # fmt: skip
    templates = {
        "pyproject.toml": "project.toml", **{name: name for name in ("LICENSE", "README.md", *SCRIPTS)},
        "app/server.py": "server.py.txt", "app/client.py": "client.py.txt",
    }  # fmt: skip
    files = {path: _filled(template, values) for path, template in templates.items()} | {
        ".gitignore": "keys/\nstate/\n.flwr/\nrun/\n*.db\n",
        "app/__init__.py": f"{_toml(f'{experiment.method.name} on Flower.')}\n",
        "app/inputs.json": inputs_text(inputs, augment) + "\n",
    }
    _connection(folder, int(config["clients"]))
    for path, text in files.items():
        _write(folder / path, text)
    return list(files)


def _connection(folder: Path, clients: int) -> None:
    """Where ``flwr run`` finds superlinks: .flwr/config.toml of the app."""
    if (folder / ".flwr" / "config.toml").exists():
        return  # it may name another port by now
    values = {"clients": str(clients), "root": _toml(str((folder / "keys" / "ca.crt").resolve()))}
    _write(folder / ".flwr" / "config.toml", _filled("connection.toml", values))


def _filled(file: str, values: Mapping[str, str]) -> str:
    """A file of the folder ``files``, with values in the place of their names in braces."""
    text = (resources.files("fedskew.flower") / "files" / file).read_text(encoding="utf-8")
    return re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], match[0]), text)


def _toml(value: Any) -> str:
    """A key or value of TOML. A dotted key is quoted, since a table of its own would stand beside a plain value.

    Raises:
        ConfigError: the text is not Unicode, as a path whose bytes are no UTF-8; TOML cannot hold it.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # inf and nan, which JSON calls otherwise
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # the one character that JSON leaves
    require(not re.search("[\ud800-\udfff]", text), "text of an app", "be Unicode", visible(str(value)), "rename it")
    return text


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    with lib.writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)


def nodes_of(folder: Path) -> int:
    """How many nodes an app wants. Raises ConfigError where the folder holds none."""
    try:
        content = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        return int(content["tool"]["flwr"]["app"]["config"]["clients"])
    except (OSError, ValueError, KeyError, TypeError):
        hint = "`fedskew flower init` makes one; --nodes says how many without it"
        raise ConfigError(f"app must be the folder of an app; got {str(folder)!r}; {hint}") from None


def write_keys(folder: Path, nodes: int, host: str) -> list[str]:
    """Write certificates and keys for a deployment of one's own: an authority, the server's, and a key a node.

    Args:
        folder: of the app; they go to its folder keys, those that are there stay.
        nodes: number of nodes.
        host: name or address of the server, as nodes reach it; localhost and 127.0.0.1 are always certified, too.

    Returns:
        Names of the files that are new.

    Raises:
        ConfigError: the host is no name or address, or the package cryptography, which comes with the extra flower, is
            missing.
        RecordError: a file cannot be written.
    """
    _check_host(host)
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID
    except ImportError:
        raise ConfigError(f"keys need the package cryptography; {install('flower')}") from None
    place, new = folder / "keys", []
    with lib.writing(place):
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(0o700)

    def pem(key: Any, kind: Any) -> str:
        return str(key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption()).decode())

    def certificate(subject: str, key: Any, issuer: Any, signer: Any, *, authority: bool) -> Any:
        named = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
        now = datetime.datetime.now(datetime.UTC)
        extensions: list[tuple[Any, bool]] = [
            (x509.BasicConstraints(ca=authority, path_length=0 if authority else None), True),
            (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
            (x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False),
            # a server signs what it says, an authority certificates and lists of revoked ones; nobody anything else
            (x509.KeyUsage(not authority, False, False, False, False, authority, authority, False, False), True),
        ]
        if not authority:
            names = {name: _address(name) for name in (host, "localhost", "127.0.0.1")}
            known = [x509.IPAddress(address) if address else x509.DNSName(name) for name, address in names.items()]
            extensions.append((x509.SubjectAlternativeName(known), False))
        built = x509.CertificateBuilder().subject_name(named).issuer_name(issuer or named)
        built = built.public_key(key.public_key()).serial_number(x509.random_serial_number())
        built = built.not_valid_before(now - datetime.timedelta(days=1))
        built = built.not_valid_after(now + datetime.timedelta(days=365 * YEARS))
        for extension, critical in extensions:
            built = built.add_extension(extension, critical=critical)
        return built.sign(signer, hashes.SHA256())

    if not (place / "ca.crt").exists():
        root, server = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
        authority = certificate("fedskew deployment", root, None, root, authority=True)
        served = certificate(host, server, authority.subject, root, authority=False)
        plain = serialization.PrivateFormat.PKCS8
        _write(place / "server.key", pem(server, plain), 0o600)
        for name, certified in (("server.crt", served), ("ca.crt", authority)):  # last: with it the three are there
            _write(place / name, certified.public_bytes(serialization.Encoding.PEM).decode())
        new += ["keys/ca.crt", "keys/server.crt", "keys/server.key"]
    for k in range(nodes):
        if (place / f"node-{k}").exists():
            continue
        key = ec.generate_private_key(ec.SECP384R1())
        line = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        _write(place / f"node-{k}.pub", line.decode() + f" node-{k}\n")
        _write(place / f"node-{k}", pem(key, serialization.PrivateFormat.OpenSSH), 0o600)
        new += [f"keys/node-{k}", f"keys/node-{k}.pub"]
    # public keys as Flower sends them with each message: the front passes nobody else on
    kinds = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    public = [serialization.load_ssh_public_key(path.read_bytes()) for path in sorted(place.glob("node-*.pub"))]
    _write(place / "nodes.lst", "".join(f"{base64.b64encode(key.public_bytes(*kinds)).decode()}\n" for key in public))
    _connection(folder, nodes)
    return new


def _check_host(host: str) -> None:
    """Raise ConfigError unless a certificate can name the host."""
    if _address(host) and "%" not in host:
        return
    *_, last = labels = host.split(".")
    holds = len(host) <= MOST_NAME and all(map(LABEL.fullmatch, labels)) and not last.isdigit()
    hint = "for example server.example.org or 192.0.2.1"
    require(holds, "host", f"be a DNS name of at most {MOST_NAME} characters, or an address", host, hint)


def _address(name: str) -> Any:
    """The address that a name is, or None."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(name)
