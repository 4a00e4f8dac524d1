"""Runs with differential privacy, ``dp="client"`` and ``dp="example"``, in simulation.

client: the server clips the update of each client, adds the updates up, and adds noise once a round. example: a client
clips the gradient of each row and adds noise at each local step. What the models of all rounds then tell of one client,
or of one row, is bounded by epsilon and delta. `check` refuses what breaks an assumption of the accountant. With
client the fit of logits reads no rows: clients tell their shares of the classes, with the same noise.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from fedskew import rng, tree
from fedskew.client import functorch
from fedskew.errors import FieldError
from fedskew.method import Component, Method, Selector, Weighting
from fedskew.method.component import SERVER, does_no_more, overrides, undeclared
from fedskew.method.samplers import PoissonBatches
from fedskew.method.selectors import Poisson, Random
from fedskew.method.steps import SGD, AdamW
from fedskew.method.weightings import Uniform
from fedskew.privacy.accounting import Mechanism, noise_for, worst
from fedskew.settings import Settings
from fedskew.types import Batch, Context, Federation, Params, Results, Task, View, Weights

INSTEAD = {Weighting: "take the weighting uniform", Selector: "take the selector poisson or random"}
OF_ALL = ("of", "offer")  # hooks that see the rows of all clients at once
SEES = ("start", "correct", "learn", "finish")  # hooks of the client half that may read rows, beside the loss
LARGEST = 1e6  # epsilon
TELLINGS = 10  # of shares of the classes, for the fit of logits: each spends as much as a round
PURPOSE = 0x6E6F697365  # of keys
Round = tuple[int, Sequence[int]]  # its number, and who took part


def check(method: Method, fed: Federation, settings: Settings, params: Params, buffers: Params, task: Task) -> None:
    """Raise FieldError where something breaks an assumption of the accountant."""
    dp, who = settings.dp, f"be none for {method.name}, whose"

    def demand(holds: bool, rule: str, hint: str = "") -> None:
        settings.demand("dp", holds, rule, hint)

    for _, part in reversed(list(method.ingredients())):  # what stands inside another one first
        hint = next((instead for kind, instead in INSTEAD.items() if isinstance(part, kind)), "")
        for read in part.reads:
            what = f" ({read.what})" * bool(read.what)
            demand(False, f"{who} {part.name!r} reads the {read.word} of clients{what}, without noise", hint)
        hook = undeclared(part, (*SERVER, *OF_ALL))
        demand(not hook, f"{who} {part.name!r} does not declare what its {hook!r} reads", "set `reads` in its class")
    crossed = method.selector.chained or method.selector.repeats or bool(method.having("combine"))
    demand(not crossed, f"be none for {method.name}, which does not add up one update a client")
    weighting = method.weighting
    demand(does_no_more(weighting, Uniform), f"{who} weights {weighting.name!r} differ", INSTEAD[Weighting])
    kept = method.named("private", (*params, *buffers), task) if dp == "client" else frozenset()
    moving = next((name for name in buffers if name not in kept), "")
    rule = f"be none for a network with BatchNorm: its statistics {moving!r} have no noise"
    demand(not moving, rule, "take a network with GroupNorm or without normalisation")
    demand(settings.dtype != "bfloat16", "be none with dtype bfloat16, in which a clipped norm is not exact")
    demand(not settings.diagnose.names, "be none with diagnostics, which record updates without noise")
    fits = settings.fit_logits != "none"
    rule = "be none with dp example: the fit reads rows of the clients without noise"
    settings.demand("fit_logits", not fits or dp == "client", rule)
    rule = "be none with dp and secure sums: the server adds up what each client tells for the fit"
    settings.demand("fit_logits", not fits or settings.secure == "none", rule)
    rule = "be false with dp: own models have no noise"
    settings.demand("keep_own", not settings.keep_own, rule)
    records = int(fed.has_rows.sum()) if dp == "client" else int(fed.sizes.max())
    few = settings.dp_delta * records < 1
    settings.demand("dp_delta", few, f"be below 1 / {records}, of the {'clients' if dp == 'client' else 'rows'}")
    if dp == "client":
        known = any(does_no_more(method.selector, kind) for kind in (Poisson, Random))
        demand(known, f"{who} selector is {method.selector.name!r}", "the accountant knows poisson and random")
        return
    demand(does_no_more(method.sampler, PoissonBatches), f"{who} sampler is {method.sampler.name!r}",
           "example takes the sampler poisson_batches, whose mini-batches its accountant knows")  # fmt: skip
    rows = fed.partition.rows
    demand(len(set(rows.tolist())) == len(rows), "be none or client where a row is at several clients")
    local = method.local
    single = type(local).step in (SGD.step, AdamW.step) and local.batches == 1
    demand(single, f"{who} local step {local.name!r} takes more than one gradient", "take the local step sgd or adamw")
    for part in method.components:
        hook = next((hook for hook in SEES if part is not local and overrides(part, hook)), "")
        demand(not hook, f"{who} {part.name!r} may read rows outside of the loss, in its hook {hook!r}")
    batch = method.pace.of(fed.sizes, 1, settings.rounds).batch
    same = bool((batch == getattr(method.pace, "batch_size", -1)).all())
    demand(same, f"{who} pace {method.pace.name!r} changes the size of mini-batches", "take the pace fixed")


class Unseen(Exception):
    """A loss reads what `Shut` does not have."""


class Shut(Context):
    """What a client may read where a row is differentiated: not how many rows of each class there are beside it."""

    __slots__ = ()

    @property
    def owned(self) -> Tensor:
        """Raise Unseen."""
        raise Unseen

    used = owned


@dataclass(frozen=True)
class PrivateGradient(Component):
    """The gradient of each row, clipped; their sum with noise, divided by the rows of a mini-batch on average.

    g = (sum_b g_b min(1, S / ||g_b||) + z S N(0, 1)) / min(B, n), in the place of the gradient of the mini-batch. A
    gradient that is not finite counts as 0.

    Source: Abadi et al. 2016, algorithm 1, https://arxiv.org/abs/1607.00133
    """

    name = "private_gradient"

    losses: tuple[Component, ...] = ()
    """whose sum is the loss of a row"""
    clip: float = 1.0
    """largest norm S"""
    noise: float = 1.0
    """standard deviation z of the noise in units of S"""
    batch_size: int = 0
    """rows of a mini-batch on average, B; 0: all n of the client"""

    def correct(self, grads: Params, view: View) -> Params:
        """The noised mean of the rows' gradients."""
        rows, count = view.batch, view.ctx.used.sum()
        given, key = Shut(*view.ctx), rng.fold(view.key, PURPOSE)

        def row_gradient(x: Tensor, y: Tensor, mask: Tensor, key: Tensor) -> Params:
            row = Batch(x.unsqueeze(0), y.unsqueeze(0), torch.ones_like(mask).unsqueeze(0))

            def objective(params: Params) -> tuple[Tensor, Any]:
                out, _ = view.forward(params, view.buffers, row.x, row.mask, train=True, key=key)
                seen = view._replace(params=params, out=out, batch=row, ctx=given, key=key)
                return sum((self._loss(part, seen) for part in self.losses), start=out.logits.new_zeros(())), {}

            gradient = functorch(objective, view.params)[0]
            norm = torch.sqrt(sum((g.square().sum() for g in gradient.values()), start=torch.zeros_like(mask)))
            factor = torch.where(norm.isfinite(), mask * (self.clip / norm).clamp(max=1.0), 0.0)
            return {name: g.nan_to_num(0.0, 0.0, 0.0) * factor for name, g in gradient.items()}

        total: Params = tree.zeros_like(grads)
        if len(rows.mask):
            keys = rng.fold(view.key, torch.arange(len(rows.mask), device=rows.mask.device))
            total = {name: g.sum(0) for name, g in torch.vmap(row_gradient)(rows.x, rows.y, rows.mask, keys).items()}
        mean = (count.clamp(max=self.batch_size) if self.batch_size else count).to(rows.mask)
        for i, (name, g) in enumerate(total.items()):
            drawn = rng.normal(rng.fold(key, i), tuple(g.shape), g.dtype)
            total[name] = (g + self.clip * self.noise * drawn) / mean
        return total

    def _loss(self, part: Component, seen: View) -> Tensor:
        try:
            return part.loss(seen)
        except Unseen:
            rule = f"not be example beside {part.name!r}, whose loss of a row reads the class counts of its client"
            raise FieldError("Settings", "dp", rule, "example") from None


@dataclass(frozen=True, eq=False)
class Noise:
    """The noise of a run, and what it has spent."""

    asked: Method
    fed: Federation
    settings: Settings
    cohort: int
    steps: Callable[[int], Sequence[int]]  # local steps of each client in a round

    @property
    def of_clients(self) -> bool:
        """Whether updates are clipped and noised, and not gradients."""
        return self.settings.dp == "client"

    @property
    def clip(self) -> float:
        """Largest norm."""
        assert self.settings.dp_clip is not None
        return self.settings.dp_clip

    @cached_property
    def multiplier(self) -> float:
        """Standard deviation of the noise in units of the clip, as given, or the least for the epsilon that is asked.

        Who takes part does not depend on rows, so that all rounds are known before the first.

        Raises:
            FieldError: The noise that is given is too little for the epsilon.
        """
        planned, given = self._planned(), self.settings.dp_noise
        most = LARGEST if self.settings.dp_epsilon is None else self.settings.dp_epsilon
        if given is None:
            return noise_for(most, lambda noise: self._epsilon(planned, noise))
        spent = self._epsilon(planned, given)
        rule = f"be so large that all rounds have an epsilon of at most {most:g}, not {spent:g}"
        self.settings.demand("dp_noise", spent <= most, rule)
        return given

    @cached_property
    def method(self) -> Method:
        """The method that trains."""
        if self.of_clients:
            return self.asked
        private = PrivateGradient(self.asked.having("loss"), self.clip, self.multiplier, self._size)
        return self.asked.with_(parts=(*self.asked.parts, private), name=self.asked.name)

    def clipped(self, results: Results) -> Results:
        """The round with each update scaled down to the largest norm."""
        cohort = results.cohort
        if cohort.deltas is None:
            return results
        squares = [delta.double().reshape(len(delta), -1).square().sum(1) for delta in cohort.deltas.values()]
        factor = (self.clip / torch.stack(squares).sum(0).sqrt()).clamp(max=1.0)
        held = {n: d * factor.view(-1, *[1] * (d.dim() - 1)).to(d) for n, d in cohort.deltas.items()}
        return results._replace(cohort=cohort._replace(deltas=held))

    def noised(self, results: Results, stays: frozenset[str]) -> Results:
        """The round with the sum of clipped updates over the clients of a round on average, and noise."""
        cohort, ones, s = results.cohort, torch.ones(len(results.cohort.ids), dtype=torch.float64), self.settings
        share = len(ones) / self.cohort  # the divisor does not depend on who came
        weights = cohort.weights or Weights(ones / len(ones), ones / len(ones))
        mean = results.delta if results.delta is not None else tree.aggregate(cohort.deltas, weights.update)
        draw, delta = rng.generator(rng.key(s.seed, cohort.round, "dp")), dict[str, Tensor]()
        for name, value in mean.items():
            drawn = torch.zeros(()) if name in stays else torch.from_numpy(draw.standard_normal(tuple(value.shape)))
            delta[name] = value * share + (self.clip * self.multiplier / self.cohort * drawn).to(value)
        weights = weights._replace(update=weights.update * share)
        return results._replace(cohort=cohort._replace(deltas=None, weights=weights), delta=delta)  # type: ignore[arg-type]

    @property
    def tellings(self) -> int:
        """How often clients tell their shares of the classes: not at all where nothing is fitted."""
        return TELLINGS if self.of_clients and self.settings.fit_logits != "none" else 0

    @cached_property
    def shares(self) -> Tensor:
        """Shares of the classes, a mean over clients in units of its noise, float64 [C].

            m = sum_i sum_k q_k / (z sqrt(M)) + N(0, 1),   q_k = n_k / sum_c n_kc

        i are M samples, drawn as the clients k of rounds are. q_k, the share of each class in a client's rows, has norm
        1 at most, so that noise z N(0, 1) on the sum of a sample costs what a round costs.
        """
        s, selector = self.settings, self.asked.selector
        client_shares = self.fed.counts / self.fed.sizes.clamp(min=1).double().unsqueeze(1)
        state = selector.init_server({}, self.fed, None)  # type: ignore[arg-type]
        keys = [rng.key(s.seed_of("clients"), number, "shares") for number in range(self.tellings)]
        total = torch.stack([client_shares[selector.select(state, self.cohort, key).ids].sum(0) for key in keys]).sum(0)
        drawn = torch.from_numpy(rng.generator(rng.key(s.seed, "shares")).standard_normal(client_shares.shape[1]))
        return drawn + total / (self.multiplier * math.sqrt(self.tellings))

    def epsilon(self, rows: Iterable[dict[str, Any]]) -> float:
        """What the models of these rounds have spent together, and the shares of the classes that clients tell."""
        return self._epsilon([(row["round"], row["clients"]) for row in rows], self.multiplier)

    def summary(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """What a summary says of it."""
        s, clients = self.settings, int(self.fed.has_rows.sum())
        poisson = not self.of_clients or self.asked.selector.varies
        share = f"{self._size or 'all'} rows of a client in a mini-batch"
        each = f"{self.cohort} of {clients} clients in a round" if self.of_clients else share
        fit_releases = f", and shares of the classes for the fit, which spend as much as {TELLINGS} rounds"
        return {
            "unit": s.dp, "epsilon": self.epsilon(rows), "delta": s.dp_delta, "clip": s.dp_clip,
            "noise": self.multiplier, "sampling": f"{'poisson' if poisson else 'fixed'}, {each}",
            "neighbour": f"one {s.dp} {'added or removed' if poisson else 'replaced'}",
            "released": "models of all rounds" + fit_releases * bool(self.tellings),
        }  # fmt: skip

    @property
    def _size(self) -> int:
        """Rows of a mini-batch on average; 0: all rows of a client."""
        return getattr(self.asked.pace, "batch_size", 0)

    def _planned(self) -> list[Round]:
        """Who takes part in each round of the run."""
        if self.of_clients:
            return [(number, ()) for number in range(1, self.settings.rounds + 1)]
        selector, seed = self.asked.selector, self.settings.seed_of("clients")
        state = selector.init_server({}, self.fed, None)  # type: ignore[arg-type]
        keys = {number: rng.key(seed, number, "select") for number in range(1, self.settings.rounds + 1)}
        return [(n, selector.select(state, self.cohort, key).ids.tolist()) for n, key in keys.items()]

    def _epsilon(self, rounds: Sequence[Round], noise: float) -> float:
        return worst(self._uses(rounds, noise), self.settings.dp_delta)

    def _uses(self, rounds: Sequence[Round], noise: float) -> list[tuple[Mechanism, int]]:
        """Mechanisms, and how often each was used: that of all clients together, or that of each client's rows."""
        if self.of_clients:
            how: Literal["poisson", "fixed"] = "poisson" if self.asked.selector.varies else "fixed"
            releases = len(rounds) + self.tellings
            return [(Mechanism(how, self.cohort, int(self.fed.has_rows.sum()), noise), releases)]
        done = Counter[int]()
        for number, clients in rounds:
            steps = self.steps(number)
            done.update({k: steps[k] for k in clients})
        sizes, size = self.fed.sizes.tolist(), self._size
        return [(Mechanism("poisson", min(size or n, n), n, noise), done[k]) for k, n in enumerate(sizes) if done[k]]
