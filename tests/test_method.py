"""Methods as values: what a slot takes, and the one line that a wrong kind gets."""

from __future__ import annotations

import numpy as np

import fedskew as fs
from fedskew.method import check_method
from support.command import refused


def test_a_method_is_a_method() -> None:
    refused(lambda: check_method("fedavg"), "method must be a Method; got 'fedavg'; use fs.methods.fedavg()")
    refused(lambda: check_method(fs.methods.fedprox), "call it: fedprox()")
    refused(lambda: check_method(fs.Method), "the class Method")
    refused(lambda: check_method(fs.parts.Proximal(0.1)), "fs.Method('proximal', parts=(Proximal(mu=0.1),))")
    check_method(fs.methods.fedavg())


def test_a_component_stands_in_its_slot_as_an_instance_with_a_name() -> None:
    refused(lambda: fs.Method("m", parts=(fs.samplers.Shuffle(),)), "parts must not hold Shuffle", "sampler=Shuffle()")
    refused(lambda: fs.Method("m", sampler=fs.weightings.Size()), "sampler must not hold Size", "weighting=Size()")
    refused(lambda: fs.Method("m", server=fs.parts.Proximal(1.0)), "use parts=(Proximal(mu=1.0),)")
    refused(lambda: fs.Method("m", parts=(fs.parts.Proximal,)), "got the class Proximal; use Proximal()")
    refused(lambda: fs.Method("m", pace=fs.paces.Fixed), "got the class Fixed; use Fixed()")
    refused(lambda: fs.Method("m", sampler="shuffle"), "sampler must hold a Sampler; got 'shuffle'")
    refused(lambda: fs.Method("m", parts=fs.parts.Proximal(1.0)), "parts must be a tuple of components")
    refused(lambda: fs.Method("", parts=()), "the name of a method must be a word")
    assert fs.Method("m", parts=[fs.parts.Proximal(1.0)]).parts[1] == fs.parts.Proximal(1.0)


def test_fields_are_of_their_types() -> None:
    refused(lambda: fs.Method("m", pace=fs.paces.Fixed(batch_size=2.5)), "Fixed.batch_size must be a whole number")
    refused(lambda: fs.Method("m", parts=(fs.parts.Proximal(float("nan")),)), "Proximal.mu must be a number")
    refused(lambda: fs.Method("m", weighting=fs.weightings.FedNova(base="size")), "FedNova.base must be Weighting")
    refused(lambda: fs.weightings.AggregationBalancer(beta=1e300), "AggregationBalancer.beta must be a number that fl")
    fs.Method("m", pace=fs.paces.Fixed(lr=np.float64(0.1), batch_size=np.int64(8)))
