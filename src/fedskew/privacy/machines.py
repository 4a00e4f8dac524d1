"""The two sides of a secure sum, phase by phase. A phase takes and returns messages, and knows nothing of a network.

    phase        a client sends                                      the server answers
    advertise    public keys c_u and s_u                             the keys of U1, who sent theirs
    share        shares of its secret key s_u and its seed b_u,      those for this client, from U2
                 encrypted for each other client of U1
    masked       y_u, its masked input                               U3, whose inputs arrived
    unmask       of each v in U2 one share: of b_v where v is        the sum over U3
                 in U3, of s_v where v dropped out

With s_uv the key that u and v agree on by s_u and s_v, and PRG a stream of ChaCha20 as numbers modulo 2^bits,

    y_u = e(x_u) + PRG(b_u) + sum_{v in U2: v < u} PRG(s_uv) - sum_{v in U2: v > u} PRG(s_uv)

Each set holds at least ``threshold`` clients, or the sum ends with an error. The second mask, b_u, is why an input that
arrives after its client was given up stays hidden: of one client the server learns b_u or s_u, never both.

Source: Bonawitz et al. 2017, Practical Secure Aggregation for Privacy-Preserving Machine Learning (CCS), figure 4
without the underlined steps, https://doi.org/10.1145/3133956.3133982. Two things are stricter than figure 4. Shares are
opened when they arrive, not before unmasking: a client that was lied to sends no input. The key that encrypts them
depends on the names and all public keys of the two clients, where figure 4 encrypts the names along with the shares: a
wrong key of masks is noticed, too.
"""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from torch import Tensor

from fedskew.errors import TrainingError, require
from fedskew.privacy.encoding import FixedPoint, Words
from fedskew.privacy.primitives import KEY, TAG, agree, public, seal, stream, unseal
from fedskew.privacy.shamir import PRIME, basis, recover, split

PHASES = ("advertise", "share", "masked", "unmask")
NUMBER = 8  # bytes of a client's number
SHARE = 33  # bytes of a number below PRIME

Message: TypeAlias = dict[int, bytes]  # a client's number, and bytes that belong to it: every message has this form
Replies: TypeAlias = Mapping[int, Mapping[int, bytes]]  # the messages that arrived, by the client that sent them


def size(message: Mapping[int, bytes]) -> int:
    """Bytes of a message, 8 of them for each client's number."""
    return sum(NUMBER + len(content) for content in message.values())


def _enough(phase: str, answered: int, threshold: int) -> None:
    if answered < threshold:
        rule = f"phase {phase!r} of a secure sum must have the answers of at least {threshold} clients, its threshold"
        raise TrainingError(f"{rule}; got {answered}")


def _masks(seed: bytes, count: int, encoding: FixedPoint) -> Words:
    """PRG(seed), [count]: uniform modulo 2^bits."""
    return encoding.wrap(np.frombuffer(stream(seed, count * encoding.word.itemsize), encoding.word))


def _pair(client: int, other: int) -> bytes:
    """The context of the seed of two clients' masks."""
    return b"mask" + b"".join(number.to_bytes(NUMBER, "big") for number in sorted((client, other)))


@dataclass
class Client:
    """One client in one sum; each of its phases happens once. Its keys come from the operating system alone.

    Its fields are all that it knows, as numbers and bytes, so that a process can keep it between messages. They must
    not leave the client, and a kept state must not be used twice.

    Attributes:
        number: The client's own, from 0.
        threshold: Least number of clients in each phase, at least 2. The client insists on it.
        encoding: The encoding of inputs.
        phase: Index of the next phase in `PHASES`; -1 after an error.
        secrets: Secret keys c_u and s_u, and the seed b_u.
        keys: Public keys of U1.
        shares: What is held of each client of U2: a share of s_v, and one of b_v.

    Example:
        >>> Client(number=3, threshold=2, encoding=FixedPoint()).unmask({})
        Traceback (most recent call last):
            ...
        fedskew.errors.TrainingError: client 3 of a secure sum must be asked for each phase once, in order; got 'unmask'
    """

    number: int
    threshold: int
    encoding: FixedPoint
    phase: int = 0
    secrets: dict[str, bytes] = field(default_factory=dict, repr=False)
    keys: Message = field(default_factory=dict, repr=False)
    shares: Message = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        require(0 <= self.number < 2 ** (8 * NUMBER), "number", "be in [0, 2^64)", self.number)
        require(self.threshold >= 2, "threshold", "be at least 2, or a sum is one client's input", self.threshold)

    def _draw(self, count: int) -> bytes:
        return os.urandom(count)

    def _begin(self, phase: str) -> None:
        at, self.phase = self.phase, -1
        if at != PHASES.index(phase):
            rule = f"client {self.number} of a secure sum must be asked for each phase once, in order"
            raise TrainingError(f"{rule}; got {phase!r}")

    def _end(self, phase: str, message: Message) -> Message:
        self.phase = PHASES.index(phase) + 1
        return message

    def _insist(self, holds: bool, rule: str) -> None:
        if not holds:
            raise TrainingError(f"client {self.number} ends its secure sum: {rule}")

    def _agree(self, secret: str, key: bytes, context: bytes, other: int) -> bytes:
        try:
            return agree(self.secrets[secret], key, context)
        except ValueError:
            raise TrainingError(f"client {self.number} ends its secure sum: a key of client {other} is none") from None

    def _channel(self, other: int) -> bytes:
        """The key that encrypts shares between two clients."""
        ends = sorted((self.number, other))
        context = b"share" + b"".join(number.to_bytes(NUMBER, "big") + self.keys[number] for number in ends)
        return self._agree("channel", self.keys[other][:KEY], context, other)

    def advertise(self) -> Message:
        """Draw both pairs of keys. Returns the public ones, 64 bytes, under the own number."""
        self._begin("advertise")
        self.secrets = {"channel": self._draw(KEY), "mask": self._draw(KEY)}
        self.keys = {self.number: public(self.secrets["channel"]) + public(self.secrets["mask"])}
        return self._end("advertise", dict(self.keys))

    def share(self, keys: Mapping[int, bytes]) -> Message:
        """Share the secret key of masks and the seed of the own mask.

        Args:
            keys: Public keys of U1, own ones among them.

        Returns:
            For each other client of U1 its two shares, encrypted, 82 bytes.

        Raises:
            TrainingError: U1 is below the threshold, a key occurs twice, or own keys are not those that were sent.
            FieldError: The encoding does not hold a sum over U1.
        """
        self._begin("share")
        _enough("share", len(keys), self.threshold)
        self._insist(keys.get(self.number) == self.keys[self.number], "its public keys came back changed")
        halves = {part for both in keys.values() for part in (both[:KEY], both[KEY:])}
        self._insist(len(halves) == 2 * len(keys), "two clients have one public key")
        self.encoding.hold(len(keys))
        self.keys = dict(keys)
        self.secrets["seed"] = self._draw(KEY)
        dealt = dict.fromkeys(keys, b"")
        for secret in ("mask", "seed"):
            # 16 bytes more than a number of the field has, so that the remainder is uniform to 2^-127
            drawn = [int.from_bytes(self._draw(KEY + 16), "big") % PRIME for _ in range(self.threshold - 1)]
            points = [number + 1 for number in keys]
            for x, part in split(int.from_bytes(self.secrets[secret], "big"), drawn, points).items():
                dealt[x - 1] += part.to_bytes(SHARE, "big")
        self.shares = {self.number: dealt.pop(self.number)}
        return self._end("share", {v: seal(self._channel(v), self.number, both) for v, both in dealt.items()})

    def masked(self, sealed: Mapping[int, bytes], inputs: Sequence[Tensor]) -> Message:
        """Open the shares of others, and mask the input.

        Args:
            sealed: What the other clients of U2 sent to this one.
            inputs: The summand, tensors of real numbers.

        Returns:
            y_u, under the own number.

        Raises:
            TrainingError: U2 is below the threshold, a share cannot be opened, or a number does not fit the encoding.
        """
        self._begin("masked")
        _enough("masked", len(sealed) + 1, self.threshold)
        for v, text in sealed.items():
            self._insist(v in self.keys and v != self.number, f"client {v} has sent no keys")
            both = unseal(self._channel(v), v, text)
            rule = f"the shares of client {v} do not open; they, or a public key, changed on the way"
            self._insist(both is not None and len(both) == 2 * SHARE, rule)
            self.shares[v] = both or b""
        words = self.encoding.encode(inputs, f"client {self.number}")
        words = words + _masks(self.secrets["seed"], len(words), self.encoding)
        for v in sealed:
            seed = self._agree("mask", self.keys[v][KEY:], _pair(self.number, v), v)
            masks = _masks(seed, len(words), self.encoding)
            words = words + masks if self.number > v else words - masks
        return self._end("masked", {self.number: self.encoding.wrap(words).tobytes()})

    def unmask(self, survivors: Iterable[int]) -> Message:
        """One share of each client of U2: of its seed where it is in U3, of its secret key where it dropped out.

        Args:
            survivors: The clients of U3.

        Returns:
            For each client of U2 a share, 33 bytes. A second question gets no answer.

        Raises:
            TrainingError: U3 is below the threshold, lacks this client, or has one that is not in U2.
        """
        self._begin("unmask")
        listed = set(survivors)
        _enough("unmask", len(listed), self.threshold)
        self._insist(self.number in listed and listed <= self.shares.keys(), "the survivors are not of its sum")
        picked = {v: both[SHARE:] if v in listed else both[:SHARE] for v, both in self.shares.items()}
        return self._end("unmask", picked)


class Server:
    """The server in one sum. Each phase takes the messages that arrived, and goes on without the rest.

    A phase returns the next message to each client that goes on, and the last one the sum. Messages of clients that
    were not asked are left out. A message of another form is an error; `check` finds it before the phase is closed.

    Args:
        clients: The clients that are asked.
        threshold: Least number of answers in each phase, between 2 and the number of clients.
        encoding: The encoding of inputs.
        shapes: Shapes of the tensors of an input.

    Attributes:
        received: All that arrived and was taken, by phase and client: what the server knows.

    Raises:
        ConfigError: There are fewer than two clients, or the threshold is out of its range.

    Example:
        >>> server = Server([0, 1, 2], threshold=3, encoding=FixedPoint(), shapes=[(2,)])
        >>> server.advertise({0: {0: bytes(64)}})
        Traceback (most recent call last):
            ...
        fedskew.errors.TrainingError: phase 'advertise' of a secure sum must have the answers of at least 3 clients, ...
    """

    def __init__(
        self, clients: Iterable[int], threshold: int, encoding: FixedPoint, shapes: Sequence[Sequence[int]]
    ) -> None:
        self.clients, self.threshold, self.encoding, self.shapes = set(clients), threshold, encoding, list(shapes)
        most = len(self.clients)
        require(most >= 2, "clients", "be at least 2 in a secure sum", most)
        require(2 <= threshold <= most, "threshold", f"be in [2, {most}], as {most} clients take part", threshold)
        self.received: dict[str, dict[int, Message]] = {}
        self._count = sum(map(math.prod, self.shapes))

    def _those(self, phase: str) -> set[int]:
        return set(self.received[phase])

    def check(self, client: int, message: Mapping[int, bytes]) -> None:
        """Raise TrainingError unless a message has the form that the open phase asks of this client."""
        phase = PHASES[len(self.received)]
        names, length = {client}, 2 * KEY
        if phase == "share":
            names, length = self._those("advertise") - names, 2 * SHARE + TAG
        elif phase == "masked":
            length = self._count * self.encoding.word.itemsize
        elif phase == "unmask":
            names, length = self._those("share"), SHARE
        if set(message) != names or any(len(content) != length for content in message.values()):
            rule = f"client {client} must send {length} bytes for each of {len(names)} clients in phase {phase!r}"
            raise TrainingError(f"{rule} of a secure sum; got {size(message)} bytes for {len(message)}")

    def _take(self, phase: str, replies: Replies) -> dict[int, Message]:
        """Close a phase with the messages of those who were asked."""
        at = PHASES.index(phase)
        if at != len(self.received):
            raise TrainingError(f"a server of a secure sum must close each phase once, in order; got {phase!r}")
        asked = self._those(PHASES[at - 1]) if at else self.clients
        taken = {client: dict(replies[client]) for client in sorted(asked & replies.keys())}
        for client, message in taken.items():
            self.check(client, message)
        _enough(phase, len(taken), self.threshold)
        self.received[phase] = taken
        return taken

    def advertise(self, replies: Replies) -> dict[int, Message]:
        """Collect public keys. Returns those of U1 for each client of U1."""
        taken = self._take("advertise", replies)
        keys = {client: message[client] for client, message in taken.items()}
        return dict.fromkeys(keys, keys)

    def share(self, replies: Replies) -> dict[int, Message]:
        """Collect encrypted shares. Returns those for each client of U2, by sender."""
        taken = self._take("share", replies)
        return {u: {v: sent[u] for v, sent in taken.items() if v != u} for u in taken}

    def masked(self, replies: Replies) -> dict[int, Message]:
        """Collect masked inputs. Returns for each client of U3 the survivors: the numbers of U3, without content."""
        taken = self._take("masked", replies)
        survivors = dict.fromkeys(taken, b"")
        return dict.fromkeys(taken, survivors)

    def unmask(self, replies: Replies) -> list[Tensor]:
        """Collect shares, take the masks off and decode.

        Returns:
            The sum over U3, float64 tensors of the shapes.

        Raises:
            TrainingError: Too few answered, or the shares of a client give a key that is not its own.
        """
        taken = self._take("unmask", replies)
        weights = basis([client + 1 for client in list(taken)[: self.threshold]])
        arrived = self.received["masked"]
        total = np.zeros(self._count, self.encoding.word)
        for u, message in arrived.items():
            total += np.frombuffer(message[u], self.encoding.word)
            total -= _masks(self._secret(u, weights), self._count, self.encoding)
        keys = {u: message[u] for u, message in self.received["advertise"].items()}
        for lost in self._those("share") - arrived.keys():
            secret = self._secret(lost, weights)
            if public(secret) != keys[lost][KEY:]:
                raise TrainingError(f"the shares of client {lost} in a secure sum give a key that is not its own")
            for u in arrived:  # whose inputs have the masks that the lost input would have cancelled
                masks = _masks(agree(secret, keys[u][KEY:], _pair(u, lost)), self._count, self.encoding)
                total = total - masks if u > lost else total + masks
        return self.encoding.decode(self.encoding.wrap(total), self.shapes)

    def _secret(self, client: int, weights: Mapping[int, int]) -> bytes:
        """The seed or the key of a client, of the first shares of it that arrived."""
        answers = self.received["unmask"]
        secret = recover({x: int.from_bytes(answers[x - 1][client], "big") for x in weights}, weights)
        if secret.bit_length() > 8 * KEY:
            raise TrainingError(f"the shares of client {client} in a secure sum give no key of {KEY} bytes")
        return secret.to_bytes(KEY, "big")
