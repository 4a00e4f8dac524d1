"""Bytes and processor seconds of a secure sum beside a plain one, as docs/guide/privacy.md prints them.

python benchmarks/sums.py [NUMBERS]     of inputs of 100,000 numbers, at 10 and 100 clients

Keys are drawn as in a deployment, and the threshold is two thirds. A client's seconds are the mean over clients. In
rows with drop-outs a tenth of the clients share their secrets and send no input.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import torch

from fedskew.privacy import PHASES, Client, FixedPoint, Server
from fedskew.privacy.machines import size


def plain(clients: int, numbers: int) -> tuple[float, float]:
    """Seconds of a client, which makes bytes of float32, and of the server, which adds them up."""
    sent = [torch.full((numbers,), float(c)) for c in range(clients)]
    began = time.process_time()
    messages = [tensor.numpy().tobytes() for tensor in sent]
    made = time.process_time()
    total = np.zeros(numbers)
    for message in messages:
        total += np.frombuffer(message, np.float32)
    return (made - began) / clients, time.process_time() - made


def secure(count: int, numbers: int, encoding: FixedPoint, lost: int) -> tuple[float, float, int, int]:
    """Seconds of a client and of the server, bytes of the first client up and down."""
    threshold = 2 * count // 3
    clients = [Client(c, threshold, encoding) for c in range(count)]
    server = Server(range(count), threshold, encoding, [(numbers,)])
    inbox: Any = {c: {} for c in range(count)}
    own, others, up, down = 0.0, 0.0, 0, 0
    for phase in PHASES:
        replies = {}
        for c, message in inbox.items():
            if phase == "masked" and c >= count - lost:
                continue
            asked = {"advertise": (), "masked": (message, [torch.full((numbers,), float(c))])}.get(phase, (message,))
            began = time.process_time()
            replies[c] = getattr(clients[c], phase)(*asked)
            own += time.process_time() - began
        up, down = up + size(replies[0]), down + size(inbox[0])
        began = time.process_time()
        inbox = getattr(server, phase)(replies)
        others += time.process_time() - began
    assert inbox[0][0] == sum(range(count - lost))
    return own / count, others, up, down


def main() -> None:
    """Prints a row for each setting."""
    numbers = int(sys.argv[1]) if sys.argv[1:] else 100_000
    torch.set_num_threads(1)
    print("| clients | bits | drop-outs | KB up | KB down | x plain | s of a client | s of the server | x plain |")
    print("|---|---|---|---|---|---|---|---|---|")
    for count in (10, 100):
        for bits, lost in ((32, 0), (64, 0), (64, count // 10)):
            mine, theirs = plain(count, numbers)
            encoding = FixedPoint(bits=bits, fraction=16, range=100.0)
            client, server, up, down = secure(count, numbers, encoding, lost)
            row = (count, bits, lost, f"{up / 1e3:.0f}", f"{down / 1e3:.1f}", f"{up / 4 / numbers:.2f}")
            times = (f"{client:.4f}", f"{server:.3f}", f"{server / theirs:.0f}")
            print("|", " | ".join(map(str, row + times)), "|", f"plain: {mine:.5f} s, {theirs:.4f} s", flush=True)


if __name__ == "__main__":
    main()
