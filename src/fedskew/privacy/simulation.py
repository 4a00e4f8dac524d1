"""A secure sum in one process, of all clients and the server, with clients that drop out.

The keys of these clients are derived from `fedskew.rng`, so that the same configuration gives the same bytes. Whoever
knows the seed of the run knows them: they show what the protocol does and costs, and protect nothing. A deployment uses
`fedskew.privacy.machines`, whose clients draw from the operating system and take no keys; an import contract keeps
this module away from it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from fedskew import rng
from fedskew.privacy.encoding import FixedPoint
from fedskew.privacy.machines import PHASES, Client, Message, Server, size


class _Derived(Client):
    """A client whose random bytes follow from a key of the run."""

    def __init__(self, number: int, threshold: int, encoding: FixedPoint, key: Tensor) -> None:
        super().__init__(number, threshold, encoding)
        self._generator = rng.generator(key, "secure sum", number)

    def _draw(self, count: int) -> bytes:
        return self._generator.bytes(count)


@dataclass(frozen=True)
class SecureSum:
    """The result of a secure sum.

    Attributes:
        total: The sum, float64 tensors of the inputs' shapes.
        survivors: The clients whose inputs it adds up, in ascending order.
        bytes_up: Bytes that each client sent.
        bytes_down: Bytes that each client was sent.
        view: All that the server received, by phase and client.
    """

    total: list[Tensor]
    survivors: tuple[int, ...]
    bytes_up: dict[int, int]
    bytes_down: dict[int, int]
    view: dict[str, dict[int, Message]] = field(repr=False)


def secure_sum(
    inputs: Mapping[int, Sequence[Tensor]],
    *,
    threshold: int,
    encoding: FixedPoint,
    key: Tensor,
    drops: Mapping[int, str] = {},
) -> SecureSum:
    """Add up the inputs of clients by the protocol, each phase of it, with keys derived from ``key``.

    The total is that of `FixedPoint.encode`, an addition modulo 2^bits and `FixedPoint.decode`, to the bit. Without
    drop-outs, each of K clients with M numbers of w bytes sends and gets

        up = w M + 131 K - 10,   down = 170 K - 90

    Args:
        inputs: The tensors of each client, by its number; all clients have the same shapes.
        threshold: Least number of clients that must answer each phase, between 2 and K.
        encoding: The encoding of the inputs.
        key: Key of the sum, (): the round, and which sum of the round it is.
        drops: Clients that drop out, and the phase in which their message is lost.

    Returns:
        The sum over the clients whose masked input arrived, and what it cost.

    Raises:
        ConfigError: The threshold or the encoding does not fit.
        TrainingError: A phase has fewer answers than the threshold, a number is outside the encoding's range, or a
            client has more or fewer numbers than the first.
        DataError: The extra ``secure`` is not installed.

    Example:
        >>> import torch
        >>> counts = {0: [torch.tensor([5, 0])], 1: [torch.tensor([1, 2])], 2: [torch.tensor([0, 7])]}
        >>> done = secure_sum(counts, threshold=2, encoding=FixedPoint(), key=rng.key(0), drops={2: "masked"})
        >>> done.total, done.survivors
        ([tensor([6., 2.], dtype=torch.float64)], (0, 1))
    """
    shapes = [tensor.shape for tensor in next(iter(inputs.values()), [])]
    server = Server(inputs, threshold, encoding, shapes)
    clients = {client: _Derived(client, threshold, encoding, key) for client in inputs}
    up, down = dict.fromkeys(inputs, 0), dict.fromkeys(inputs, 0)
    inbox: Any = {client: {} for client in inputs}
    for phase in PHASES:
        replies = {}
        for client, message in inbox.items():
            down[client] += size(message)
            if drops.get(client) != phase:
                asked = {"advertise": (), "masked": (message, inputs[client])}.get(phase, (message,))
                replies[client] = getattr(clients[client], phase)(*asked)
                up[client] += size(replies[client])
        inbox = getattr(server, phase)(replies)
    return SecureSum(inbox, tuple(server.received["masked"]), up, down, server.received)
