"""Personalised methods, each with what the oracle is told of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fedskew import methods as m
from fedskew.method import Method
from support.replay import PACE

HEAVY: dict[str, Any] = {"momentum": 0.5, "weight_decay": 0.02, "clip": 0.6}


# ---------------------------------------------------------------------------------------------------------------------
# Against the oracle


FIXED = ("fc.classifier.weight", "fc.classifier.bias")  # behind a projection head
BODY, HEAD = ("hidden1.weight", "hidden1.bias"), ("fc.weight", "fc.bias")
EVERY = (*BODY, *HEAD)
OWN = ("realigned_heads.own.weight", "realigned_heads.own.bias")
SECOND = ("personal_head.weight", "personal_head.bias")


def head_first(epoch: int, epochs: int) -> tuple[str, ...]:
    return HEAD if epoch <= 1 else BODY


def body_first(epoch: int, epochs: int) -> tuple[str, ...]:
    return BODY if epoch <= epochs - 1 else HEAD


def case(method: Method, **options: Any) -> tuple[Method, dict[str, Any]]:
    """The method with small mini-batches, and what the oracle is told."""
    return replace(method, pace=PACE), options


def heavy(method: Method, **options: Any) -> tuple[Method, dict[str, Any]]:
    """The same with momentum, weight decay and clipping."""
    return case(replace(method, local=replace(method.local, **HEAVY)), **options, **HEAVY)


TIMED = m.fedrep().with_("alternating", epochs=1)
CASES = {
    "fedper": case(m.fedper(), private=HEAD),
    "fedper heavy": heavy(m.fedper(("fc.weight", "hidden*.bias")), private=("fc.weight", "hidden1.bias")),
    "lgfedavg": case(m.lgfedavg(), private=BODY),
    "localonly": heavy(m.localonly(), private=EVERY),
    "fedrep": case(TIMED, private=HEAD, phases=head_first),
    "fedrep heavy": heavy(TIMED, private=HEAD, phases=head_first),
    "fedrep body first": case(TIMED.with_("alternating", first="body"), private=HEAD, phases=body_first),
    "fedbabu": case(m.fedbabu(), frozen=HEAD),
    "fedbabu heavy": heavy(m.fedbabu(), frozen=HEAD),
    "ditto": case(m.ditto(0.3), tie=0.3),
    "ditto heavy": heavy(m.ditto(), tie=0.1),
    "ditto at a rate of its own": heavy(m.ditto(0.3).with_("tethered", personal_lr=0.03), tie=0.3, own_lr=0.03),
    "apfl": case(m.apfl(), mix=(0.5, "round")),
    "apfl once a round": heavy(m.apfl(0.7), mix=(0.7, "round")),
    "apfl every step": heavy(m.apfl(0.7, learns="step"), mix=(0.7, "step")),
    "apfl heavy": heavy(m.apfl(0.3, learnt=False), mix=(0.3, None)),
    "fedrod": case(m.fedrod(), private=SECOND, second=True, tau=1.0),
    "fedrod heavy": heavy(m.fedrod(0.5), private=SECOND, second=True, tau=0.5),
    "fedrod hyper": case(m.fedrod(hyper=3), hyper=True, tau=1.0),
    "fedrod hyper heavy": heavy(m.fedrod(0.5, hyper=7), hyper=True, tau=0.5),
    "fedetf": case(m.fedetf(), frozen=FIXED, cosine=True, tau=1.0),
    "fedetf heavy": heavy(m.fedetf(4.0), frozen=FIXED, cosine=True, tau=1.0),
    "fedetf wide": case(m.fedetf(projection=7), frozen=FIXED, cosine=True, tau=1.0),
    "fedetf without a projection": heavy(m.fedetf(4.0, 0), frozen=HEAD, cosine=True, tau=1.0),
    "fedloge": case(m.fedloge(), private=OWN, frozen=HEAD, beside=True),
    "fedloge heavy": heavy(m.fedloge(0.3, 1.5), private=OWN, frozen=HEAD, beside=True),
}
