"""What a server is not to learn of its clients: sums alone, histograms with noise, or models with differential privacy.

The rooms that do it are imported where a run asks for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedskew.engines.counted import as_declared
from fedskew.engines.fitting import fits_by_shares
from fedskew.engines.planning import length_of, paces_of
from fedskew.method import Method
from fedskew.models.prepare import Model
from fedskew.server import Opened
from fedskew.settings import Settings
from fedskew.types import Cohort, Federation, Results, Task

if TYPE_CHECKING:
    from fedskew.noise import Noise
    from fedskew.privacy.histograms import Release
    from fedskew.sums import Adder


@dataclass(eq=False)
class Protection:
    """What stands between the clients of a run and its server."""

    seed: int
    histograms: Release | None = None  # noise on what clients tell of their histograms
    noise: Noise | None = None  # on updates or gradients
    adder: Adder | None = None  # of what clients send
    declared: Federation | None = None  # as clients tell it, where they tell other histograms than they have

    @property
    def needs_each(self) -> bool:
        """Whether updates come back one by one, and not as the engine's sum."""
        return bool(self.adder or (self.noise and self.noise.of_clients))

    def of_method(self, method: Method) -> Method:
        """The method that trains."""
        return self.noise.method if self.noise else method

    def begin(self, engine: Any, fed: Federation, settings: Settings, cohort: int, *, outside: bool) -> Federation:
        """Put it between an engine's clients and the server; what the server knows of the federation."""
        if self.histograms:
            engine.noisy_histograms = self.histograms
            self.declared = replace(fed, counts=self.histograms(fed.counts))
        if self.noise and self.noise.tellings:
            engine.noisy_fits = fits_by_shares(self.noise.shares, self.noise.tellings, cohort)
        if settings.secure != "none":
            if outside:  # clients that are elsewhere send messages
                self.adder = engine.adder(settings.secure_threshold)
            else:
                simulated = import_module("fedskew.simulated")
                self.adder = simulated.Simulated(settings.secure_threshold, seed=self.seed)
        known = self.declared or fed
        return self.adder.known(known) if self.adder else known

    def as_known(self, cohort: Cohort, method: Method, opened: Opened) -> Cohort:
        """A cohort as the server knows it."""
        if self.declared is None:
            return cohort
        return as_declared(cohort, method, opened.assignment, opened.broadcast, self.declared, self.seed)

    def closed(self, results: Results, method: Method, opened: Opened, attempts: Sequence[Cohort]) -> Results:
        """What the server gets of a round.

        Args:
            results: of local training, with the cohort as the server knows it.
            method: by which the clients have trained.
            opened: the round.
            attempts: clients that entered the round, before and after some were dropped; nobody where none trained.
        """
        noise = self.noise if self.noise and self.noise.of_clients else None
        results = noise.clipped(results) if noise else results
        if self.adder and attempts:
            results = self.adder.closed(method, opened.state, results, attempts[0])
        return noise.noised(results, opened.broadcast.stays) if noise else results


def protection_of(
    method: Method, fed: Federation, settings: Settings, cohort: int, prepared: Model, task: Task, *, outside: bool
) -> Protection:
    """That of a run. Raises FieldError where something reads more than it lets through.

    Args:
        method: what is trained.
        fed: on what.
        settings: how.
        cohort: clients of a round.
        prepared: the network.
        task: the run's task.
        outside: whether clients are elsewhere, as over Flower.
    """
    if settings.secure != "none":
        import_module("fedskew.sums").check(method, settings, cohort, fed.unseen is not None)
    histograms = None if settings.histogram_epsilon is None else _histograms(method, settings, outside)
    if settings.dp == "none":
        return Protection(settings.seed, histograms)
    settings.demand("dp", not outside, "be none over Flower: noise is added in simulation so far")
    room = import_module("fedskew.noise")
    room.check(method, fed, settings, prepared.params, prepared.buffers, task)

    def steps(number: int) -> list[int]:
        paces = paces_of(method.pace.of(fed.sizes, number, settings.rounds))
        return [length_of(rows, pace) for rows, pace in zip(fed.sizes.tolist(), paces, strict=True)]

    return Protection(settings.seed, histograms, room.Noise(method, fed, settings, cohort, steps))


def _histograms(method: Method, settings: Settings, outside: bool) -> Any:
    field = "histogram_epsilon"
    settings.demand(field, not outside, "be unset over Flower: histograms get noise in simulation so far")
    settings.demand(field, settings.dp == "none", "be unset with dp, whose epsilon counts no histograms")
    for _, part in method.ingredients():
        words = {read.word for read in part.reads}
        rule = f"be unset for {method.name}, whose {part.name!r} asks for statistics that tell the true histogram"
        hint = "`fedskew methods` lists what a method reads"
        settings.demand(field, "probe" not in words or not words & {"histogram", "labels"}, rule, hint)
    return import_module("fedskew.privacy.histograms").Release(settings.histogram_epsilon, settings.seed)
