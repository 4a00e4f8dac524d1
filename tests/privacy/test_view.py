"""What a server learns, by enumeration: the distribution of all that it sees depends on the sum alone.

Inputs enter the protocol in masked inputs alone. There the machines run as they are, with the streams replaced: the
inputs have 8^6 equal numbers, and number j is masked by the j-th of all ways to draw the six masks of three clients
modulo 8. So one run is all runs, and the view is counted exactly. That ChaCha20's stream looks uniform, that a key that
two clients agree on looks random and that encrypted shares look like noise is what the proof assumes.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import numpy as np
import pytest
import torch

from fedskew.privacy import PHASES, Client, FixedPoint, Message, Server, machines

pytest.importorskip("cryptography", reason="cryptography is not installed: pip install -e '.[secure]'")

SMALL = FixedPoint(bits=3, fraction=0, range=1.0)
TAPES = 8**6
Inputs = tuple[int, int, int]


def seen(
    monkeypatch: pytest.MonkeyPatch, inputs: Inputs, lost: Iterable[int] = (), late: bool = False, without: str = ""
) -> np.ndarray:
    """How often a server sees what, over all tapes: masked inputs, and masks that it works out.

    Args:
        inputs: A number of each of three clients.
        lost: Clients whose masked input is lost.
        late: It arrives after all, when the server has asked for the masks.
        without: "own" or "pairs": the masks that a simpler protocol leaves out.
    """
    asked_for: list[bytes] = []
    tape: dict[bytes, int] = {}  # the digit of a seed
    clients = {c: Client(c, 2, SMALL) for c in range(3)}

    def stream(seed: bytes, size: int) -> bytes:
        asked_for.append(seed)
        kind = "own" if any(seed == client.secrets.get("seed") for client in clients.values()) else "pairs"
        digit = np.arange(TAPES) // 8 ** tape.setdefault(seed, len(tape)) % 8
        return bytes(size) if kind == without else digit.astype("<u4").tobytes()

    monkeypatch.setattr(machines, "stream", stream)
    server = Server(clients, 2, SMALL, [(TAPES,)])
    asked: dict[int, Message] = {c: {} for c in clients}
    masked: dict[int, Message] = {}
    for phase in PHASES[:-1]:
        replies = {}
        for c, client in clients.items():
            if phase == "advertise":
                replies[c] = client.advertise()
            elif phase == "share":
                replies[c] = client.share(asked[c])
            else:
                masked[c] = client.masked(asked[c], [torch.full((TAPES,), float(inputs[c]))])
        if phase == "masked":
            replies = {c: message for c, message in masked.items() if c not in lost}
        asked = getattr(server, phase)(replies)
    asked_for.clear()
    (total,) = server.unmask({c: clients[c].unmask(message) for c, message in asked.items()})
    assert (total == sum(x for c, x in enumerate(inputs) if c not in lost)).all()
    view = [np.frombuffer(m[c], "<u4") for c, m in masked.items() if late or c not in lost]
    view += [np.frombuffer(stream(seed, 4 * TAPES), "<u4") for seed in sorted(set(asked_for), key=tape.__getitem__)]
    code = sum(part.astype(np.int64) * 8**i for i, part in enumerate(view))
    return np.bincount(code, minlength=8 ** len(view))


def test_the_view_depends_on_the_sum_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    views = {x: seen(monkeypatch, x) for x in [(1, 0, -1), (0, 0, 0), (-1, 1, 0), (1, 0, 0), (0, 1, 0)]}
    assert all((views[x] == views[y]).all() == (sum(x) == sum(y)) for x, y in product(views, views))
    assert views[0, 0, 0].sum() == TAPES


def test_with_a_drop_out_it_depends_on_the_sum_of_the_survivors(monkeypatch: pytest.MonkeyPatch) -> None:
    views = {x: seen(monkeypatch, x, lost=[2]) for x in [(1, -1, 0), (0, 0, 1), (-1, 1, -1), (1, 0, -1)]}
    assert all((views[x] == views[y]).all() == (x[0] + x[1] == y[0] + y[1]) for x, y in product(views, views))


@pytest.mark.parametrize("without", ["", "own"])
def test_an_input_that_arrives_late_stays_hidden_by_its_second_mask(
    monkeypatch: pytest.MonkeyPatch, without: str
) -> None:
    """Without that mask it does not: the server has worked out the others, to take them off the inputs of survivors."""
    views = [seen(monkeypatch, (1, -1, x), lost=[2], late=True, without=without) for x in (0, 1)]
    assert (views[0] == views[1]).all() == (without == "")


def test_masks_of_pairs_are_what_hides_an_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server takes own masks off: a protocol without the others shows each input."""
    views = [seen(monkeypatch, x, without="pairs") for x in [(1, 0, -1), (0, 0, 0)]]
    assert (views[0] != views[1]).any()


def test_a_seed_of_8_bits_is_found_by_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 2^8 seeds gives numbers in the range: the server reads the input. It would try 2^255 whole seeds."""
    agreed = machines.agree
    monkeypatch.setattr(machines, "agree", lambda *words: agreed(*words)[:1] + bytes(31))
    encoding = FixedPoint(bits=32, fraction=8, range=4.0)
    secret = torch.tensor([1.5, -2.0, 0.25, 3.0])
    clients = {c: Client(c, 2, encoding) for c in range(2)}
    server = Server(clients, 2, encoding, [(4,)])
    keys = server.advertise({c: client.advertise() for c, client in clients.items()})
    sealed = server.share({c: clients[c].share(message) for c, message in keys.items()})
    inputs = {0: secret, 1: torch.ones(4)}
    listed = server.masked({c: clients[c].masked(message, [inputs[c]]) for c, message in sealed.items()})
    server.unmask({c: clients[c].unmask(message) for c, message in listed.items()})

    own = machines._masks(server._secret(0, machines.basis([1, 2])), 4, encoding)  # the server knows it by then
    masked = np.frombuffer(server.received["masked"][0][0], encoding.word) - own
    found = []
    for guess in range(2**8):
        masks = machines._masks(guess.to_bytes(1, "big") + bytes(31), 4, encoding)
        (read,) = encoding.decode(masked + masks, [(4,)])  # client 0 has subtracted the mask of client 1
        if float(read.abs().max()) <= 4.0:
            found.append(read)
    assert [read.tolist() for read in found] == [secret.tolist()]
