"""A method on a small model of transformers with adapters: whether it trains, and what is sent."""

from __future__ import annotations

from typing import NamedTuple

import torch

import fedskew as fs
from fedskew.models import HF
from support.methods import tiny
from support.pretrained import folder_of, skewed


class Tried(NamedTuple):
    """What became of a method."""

    name: str
    error: str  # "" where it trained
    same: bool = False  # threads gave the bits of one after another
    moved: bool = False  # an adapter moved in two rounds, at the server or in the clients' own models
    sent: float = 0.0  # bytes up of a client in the last round, by those of adapters and head


def tried(name: str, family: str) -> Tried:
    """Two rounds."""
    model = HF(path=str(folder_of(family)), train="lora", rank=2, weights="random")
    runs = []
    for engine in ("sequential", "threaded"):
        try:
            runs.append(fs.run(fed_of(name, family), tiny(name), model=model, rounds=2, cohort=3, engine=engine))
        except fs.FedskewError as error:
            return Tried(name, "no: vmap" if "vmap" in str(error) else str(error))
    a, b = (run.params for run in runs)
    sizes = sum(v.nbytes for n, v in a.items() if "lora_" in n or n.startswith("head."))
    moved = any(bool(v.any()) or n in runs[0].state.stays for n, v in a.items() if "lora_B" in n)
    sent = runs[0].rounds[-1]["upload_bytes"] / len(runs[0].rounds[-1]["clients"]) / sizes
    return Tried(name, "", all(torch.equal(a[n], b[n]) for n in a), moved, sent)


def fed_of(name: str, family: str) -> fs.data.Federation:
    """Four clients under label skew, and rows of the server where the method wants some."""
    fed = skewed(family == "bert")
    wanted = min(max(part.auxiliary for part in tiny(name).components), 10)
    if not wanted:
        return fed
    return fs.federate(fed.dataset, fs.partitioners.Dirichlet(alpha=0.5), clients=4, seed=0, auxiliary=wanted)
