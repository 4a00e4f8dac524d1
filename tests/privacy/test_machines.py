"""Client and server as a deployment drives them: messages, states, lies, and what each side refuses."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields

import msgspec
import pytest
import torch
from torch import Tensor

from fedskew import rng
from fedskew.errors import ConfigError, DataError, TrainingError
from fedskew.privacy import PHASES, Client, FixedPoint, Message, Server, machines
from fedskew.privacy.machines import SHARE
from fedskew.privacy.shamir import basis, recover
from fedskew.privacy.simulation import secure_sum

pytest.importorskip("cryptography", reason="cryptography is not installed: pip install -e '.[secure]'")

ENCODING = FixedPoint(bits=32, fraction=16, range=4.0)
INPUTS = {c: [torch.tensor([c + 0.5, -float(c)])] for c in range(3)}
Sums = tuple[dict[int, Client], Server, dict[int, Message]]


def begun(until: str = "advertise", lost: Mapping[int, str] = {}, threshold: int = 2) -> Sums:
    """Three clients and their server before a phase, and what each client is asked then."""
    clients = {c: Client(c, threshold, ENCODING) for c in INPUTS}
    server = Server(clients, threshold, ENCODING, [(2,)])
    asked: dict[int, Message] = {c: {} for c in clients}
    for phase in PHASES[: PHASES.index(until)]:
        replies = {c: answer(clients[c], phase, message) for c, message in asked.items() if lost.get(c) != phase}
        asked = getattr(server, phase)(replies)
    return clients, server, asked


def answer(client: Client, phase: str, message: Message) -> Message:
    if phase == "advertise":
        return client.advertise()
    if phase == "masked":
        return client.masked(message, INPUTS[client.number])
    return getattr(client, phase)(message)  # type: ignore[no-any-return]


def ended(clients: dict[int, Client], server: Server, asked: dict[int, Message]) -> list[Tensor]:
    return server.unmask({c: clients[c].unmask(message) for c, message in asked.items()})


# Keys


def test_keys_of_a_client_come_from_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    real = os.urandom

    def counted(count: int) -> bytes:
        drawn.append(count)
        return real(count)

    monkeypatch.setattr(os, "urandom", counted)
    clients, _, _ = begun("masked")
    assert drawn == [32, 32] * 3 + [32, 48, 48] * 3  # both keys; the seed, and a coefficient of each secret
    assert {field.name for field in fields(Client) if field.init} == {
        "number", "threshold", "encoding", "phase", "secrets", "keys", "shares",
    }, "nothing that could derive a key"  # fmt: skip
    secrets = [secret for client in clients.values() for secret in client.secrets.values()]
    assert len(set(secrets)) == 9 and all(len(secret) == 32 for secret in secrets)


def test_two_sums_share_no_byte_of_a_masked_input_but_the_total() -> None:
    (one, server, asked), (other, again, asked_again) = begun("unmask"), begun("unmask")
    assert all(server.received["masked"][c] != again.received["masked"][c] for c in INPUTS)
    assert torch.equal(ended(one, server, asked)[0], ended(other, again, asked_again)[0])
    assert ended(*begun("unmask"))[0].tolist() == [4.5, -3.0]


def test_secrets_are_not_shown() -> None:
    clients, _, _ = begun("unmask")
    shown = repr(clients[0])
    assert "secrets" not in shown and "shares" not in shown and "keys" not in shown


# Messages and states


def test_messages_and_clients_survive_json_between_phases() -> None:
    """A node of a deployment is another process in each phase."""
    clients = {c: Client(c, 2, ENCODING) for c in INPUTS}
    server = Server(clients, 2, ENCODING, [(2,)])
    asked: dict[int, Message] = {c: {} for c in clients}
    for phase in PHASES:
        replies = {}
        for c, message in asked.items():
            client = msgspec.json.decode(msgspec.json.encode(clients[c]), type=Client)
            sent = msgspec.json.encode(answer(client, phase, message))
            clients[c], replies[c] = client, msgspec.json.decode(sent, type=dict[int, bytes])
        asked = getattr(server, phase)(replies)
    assert asked[0].tolist() == [4.5, -3.0]  # type: ignore[comparison-overlap]


@pytest.mark.parametrize("phase", PHASES)
def test_a_client_answers_each_phase_once_and_in_order(phase: str) -> None:
    clients, _, asked = begun(phase)
    answer(clients[0], phase, asked[0])
    for again in (phase, PHASES[PHASES.index(phase) - 1]):
        with pytest.raises(TrainingError, match=f"asked for each phase once, in order; got '{again}'"):
            answer(clients[0], again, asked[0])
    if phase != "unmask":
        late = PHASES[PHASES.index(phase) + 1]
        with pytest.raises(TrainingError, match="once, in order"):
            answer(clients[0], late, asked[0])  # what went wrong once does not go on


def test_a_client_never_answers_with_both_shares() -> None:
    clients, _, asked = begun("unmask", lost={2: "masked"})
    held = dict(clients[0].shares)
    told = clients[0].unmask(asked[0])
    assert told == {v: both[SHARE:] if v in (0, 1) else both[:SHARE] for v, both in held.items()}
    assert held[1][:SHARE] != held[1][SHARE:] and len(held) == 3
    for survivors in ((0, 1), (0, 1, 2), (0, 2)):  # the same question, and those that would tell the other shares
        with pytest.raises(TrainingError, match="client 0 of a secure sum must be asked for each phase once"):
            clients[0].unmask(survivors)


def test_the_server_learns_one_secret_of_each_client() -> None:
    """Seeds of those in the sum, the key of the one that is not; the shares of the other secret stay at the clients."""
    clients, server, asked = begun("unmask", lost={2: "masked"})
    assert ended(clients, server, asked)[0].tolist() == [2.0, -1.0]
    answers, weights = server.received["unmask"], basis((1, 2))
    for v, secret in {0: "seed", 1: "seed", 2: "mask"}.items():
        found = recover({u + 1: int.from_bytes(answers[u][v], "big") for u in (0, 1)}, weights)
        assert found.to_bytes(32, "big") == clients[v].secrets[secret]
    told = msgspec.json.encode(server.received)
    assert all(msgspec.json.encode(clients[2].secrets[secret])[1:-3] not in told for secret in ("seed", "mask"))


# What a client insists on


def changed(message: Message, at: int, byte: int) -> Message:
    content = bytearray(message[at])
    content[byte] ^= 1
    return {**message, at: bytes(content)}


KEYS: dict[str, tuple[Callable[[Message], Message], str]] = {
    "too few": (lambda m: {0: m[0]}, "phase 'share' .* at least 2 clients, its threshold; got 1"),
    "own": (lambda m: changed(m, 0, 40), "client 0 ends its secure sum: its public keys came back changed"),
    "absent": (lambda m: {1: m[1], 2: m[2]}, "its public keys came back changed"),
    "twice": (lambda m: {**m, 2: m[1]}, "two clients have one public key"),
    "one half twice": (lambda m: {**m, 2: m[2][:32] + m[1][32:]}, "two clients have one public key"),
    "low order": (lambda m: {**m, 2: bytes(32) + m[2][32:]}, "a key of client 2 is none"),
    "short": (lambda m: {**m, 2: m[2][:31]}, "a key of client 2 is none"),
}


@pytest.mark.parametrize("case", KEYS)
def test_a_client_insists_on_keys(case: str) -> None:
    clients, _, asked = begun("share")
    change, told = KEYS[case]
    with pytest.raises(TrainingError, match=told):
        clients[0].share(change(asked[0]))


SEALED: dict[str, tuple[Callable[[Message], Message], str]] = {
    "first byte": (lambda m: changed(m, 1, 0), "the shares of client 1 do not open; they, or a public key, changed"),
    "last byte": (lambda m: changed(m, 2, 81), "the shares of client 2 do not open"),
    "cut": (lambda m: {**m, 1: m[1][:5]}, "the shares of client 1 do not open"),
    "from another": (lambda m: {**m, 1: m[2]}, "the shares of client 1 do not open"),
    "stranger": (lambda m: {**m, 9: m[1]}, "client 9 has sent no keys"),
    "own": (lambda m: {**m, 0: m[1]}, "client 0 has sent no keys"),
    "too few": (lambda m: {}, "phase 'masked' .* its threshold; got 1"),
}


@pytest.mark.parametrize("case", SEALED)
def test_a_client_opens_no_changed_share(case: str) -> None:
    clients, _, asked = begun("masked")
    change, told = SEALED[case]
    with pytest.raises(TrainingError, match=told):
        clients[0].masked(change(asked[0]), INPUTS[0])
    assert "seed" in clients[0].secrets and clients[0].phase == -1


@pytest.mark.parametrize(("sender", "receiver"), [(1, 2), (0, 1)])
def test_a_share_that_was_sent_to_another_or_by_oneself_does_not_open(sender: int, receiver: int) -> None:
    """Two clients have one key; a nonce of its own tells who sent what, and no stream is used twice."""
    clients, _, asked = begun("masked")
    with pytest.raises(TrainingError, match="the shares of client 1 do not open"):
        clients[0].masked({**asked[0], 1: asked[receiver][sender]}, INPUTS[0])


@pytest.mark.parametrize("byte", [0, 63])  # of the key of the channel, of the key of the masks
def test_a_wrong_public_key_is_noticed_by_both(byte: int) -> None:
    """Masks of a wrong key would not cancel, and nobody would see it in the sum."""
    clients, server, asked = begun("share")
    replies = {c: clients[c].share(changed(m, 1, byte) if c == 0 else m) for c, m in asked.items()}
    inbox = server.share(replies)
    for c, other in ((0, 1), (1, 0)):
        with pytest.raises(TrainingError, match=f"client {c} .* shares of client {other} do not open; .* a public key"):
            clients[c].masked(inbox[c], INPUTS[c])
    assert clients[2].masked(inbox[2], INPUTS[2])


SURVIVORS = {
    (0,): "phase 'unmask' .* its threshold; got 1",
    (1, 2): "the survivors are not of its sum",
    (0, 1, 9): "the survivors are not of its sum",
}


@pytest.mark.parametrize("survivors", SURVIVORS)
def test_a_client_insists_on_survivors(survivors: tuple[int, ...]) -> None:
    clients, _, _ = begun("unmask")
    with pytest.raises(TrainingError, match=SURVIVORS[survivors]):
        clients[0].unmask(survivors)


def test_a_client_adds_to_no_sum_of_one() -> None:
    with pytest.raises(ConfigError, match="threshold must be at least 2, or a sum is one client's input; got 1"):
        Client(0, 1, ENCODING)


# What a server checks


def test_a_message_of_another_form_is_found_before_the_phase_is_closed() -> None:
    clients, server, _ = begun()
    good = {c: clients[c].advertise() for c in (1, 2)}
    with pytest.raises(TrainingError, match="client 0 must send 64 bytes for each of 1 clients in phase 'advertise'"):
        server.advertise({**good, 0: {1: bytes(64)}})
    assert set(server.advertise(good)) == {1, 2}, "the phase is still open"


@pytest.mark.parametrize(("phase", "length"), [("advertise", 64), ("share", 82), ("masked", 8), ("unmask", 33)])
def test_each_phase_has_its_form(phase: str, length: int) -> None:
    clients, server, asked = begun(phase)
    good = answer(clients[0], phase, asked[0])
    server.check(0, good)
    name = next(iter(good))
    for bad in ({**good, name: good[name] + b"0"}, {**good, 9: good[name]}, {}):
        with pytest.raises(TrainingError, match=f"client 0 must send {length} bytes .* in phase '{phase}'"):
            server.check(0, bad)


def test_a_server_listens_to_those_whom_it_asked() -> None:
    clients, server, asked = begun("masked", lost={2: "share"})
    replies = {c: clients[c].masked(message, INPUTS[c]) for c, message in asked.items()}
    told = server.masked({**replies, 2: {2: bytes(8)}, 7: {7: b"from nobody"}})
    assert set(told) == {0, 1} and all(set(message) == {0, 1} for message in told.values())


def test_a_server_closes_each_phase_once_and_in_order() -> None:
    _, server, _ = begun("masked")
    for phase in ("advertise", "share", "unmask"):
        with pytest.raises(TrainingError, match=f"close each phase once, in order; got '{phase}'"):
            getattr(server, phase)({})


def test_false_shares_of_a_key_are_noticed() -> None:
    clients, server, asked = begun("unmask", lost={2: "masked"})
    replies = {c: clients[c].unmask(message) for c, message in asked.items()}
    with pytest.raises(TrainingError, match="the shares of client 2 in a secure sum give "):
        server.unmask({**replies, 0: changed(replies[0], 2, 30)})


# The extra


def test_without_the_package_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(DataError, match=r"^a secure sum needs the extra secure: pip install '\.\[secure\]'"):
        secure_sum(INPUTS, threshold=2, encoding=ENCODING, key=rng.key(0))


def test_the_stream_is_chacha20() -> None:
    """The first bytes for key 0 and nonce 0, and a mask modulo 2^3 of them."""
    encoding = FixedPoint(bits=3, fraction=0, range=1.0)
    assert machines.stream(bytes(32), 8).hex() == "76b8e0ada0f13d90"
    assert machines._masks(bytes(32), 2, encoding).tolist() == [0x76 & 7, 0xA0 & 7]
