"""Methods as values: what a slot takes, the one line that a wrong kind gets, and composing in one call."""

from __future__ import annotations

import numpy as np
import pytest

import fedskew as fs
from fedskew.method import check_method
from fedskew.methods import METHODS
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


# Composing in one call: with_


m, w = fs.methods, fs.weightings


def test_it_sets_fields_of_a_part_and_of_a_slot() -> None:
    before = m.fedbal()
    after = before.with_("local_balancer", eps=1.0, early=1).with_("aggregation_balancer", beta=2.0)
    assert after.parts == (fs.parts.LocalBalancer(1.0, eps=1.0, early=1),)
    assert after.weighting == w.AggregationBalancer(beta=2.0)
    assert before == m.fedbal()
    assert after.name == "fedbal" and after.reference == before.reference


def test_a_slot_names_its_ingredient() -> None:
    assert m.pfedme().with_("pace", lr=0.1).pace == fs.paces.Fixed(lr=0.1)
    assert m.seolkim().with_("pace", lr=0.2).pace == fs.paces.Dynamic(lr=0.2)


def test_it_reaches_a_weighting_inside_a_weighting() -> None:
    method = m.fednova(w.FedNova(w.Dual()))
    assert method.with_("dual", eps=0.5).weighting == w.FedNova(w.FedNova(w.Dual(eps=0.5)))
    assert method.with_("weighting.base", tau_eff="steps").weighting == w.FedNova(w.FedNova(w.Dual(), "steps"))
    assert method.with_("fednova", tau_eff="steps").weighting == w.FedNova(w.FedNova(w.Dual()), "steps")
    assert method.with_("weighting", base=w.Uniform()).weighting == w.FedNova(w.Uniform())


def test_places_of_all_ingredients() -> None:
    places = [place for place, _ in m.fednova(w.Dual()).with_(parts=(fs.parts.Proximal(),)).ingredients()]
    assert places == [
        "parts.cross_entropy", "parts.proximal", "sampler", "selector", "pace", "weighting", "weighting.base", "server",
        "local",
    ]  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_every_place_and_every_name_is_found(name: str) -> None:
    method = METHODS[name]()
    for place, ingredient in method.ingredients():
        assert method.with_(place) == method.with_(ingredient.name) == method


def test_it_replaces_slots_and_renames_after_other_parts() -> None:
    method = m.fedbal()
    uniform = method.with_(weighting=w.Uniform())
    assert uniform.weighting == w.Uniform() and uniform.name == "fedbal"
    proximal = method.with_(parts=(fs.parts.Proximal(),), weighting=w.Uniform())
    assert [p.name for p in proximal.parts] == ["cross_entropy", "proximal"]
    assert proximal.name == "fedbal(parts=proximal)"
    assert proximal.with_(parts=(fs.parts.Focal(),)).name == "fedbal(parts=focal)"
    assert method.with_(parts=()).name == "fedbal(parts=none)"
    assert method.with_(parts=(fs.parts.LocalBalancer(7.0),)).name == "fedbal"
    assert method.with_(parts=(), name="mine").name == "mine"
    assert m.fedavg().with_(parts=[fs.parts.CrossEntropy()]) == m.fedavg()


def test_unknown_names_come_with_a_suggestion() -> None:
    method = m.fedbal()
    told = "unknown ingredient of fedbal 'local_balncer'; did you mean 'local_balancer'"
    refused(lambda: method.with_("local_balncer", eps=1.0), told)
    refused(lambda: method.with_("local_balancer", esp=1.0), "unknown field of local_balancer 'esp'; did you mean 'eps")
    refused(lambda: method.with_(weigthing=w.Uniform()), "unknown slot of a method 'weigthing'; did you mean 'weight")
    refused(lambda: method.with_("base", eps=1.0), "unknown ingredient of fedbal 'base'")
