"""What ingredients declare to read of clients, against what their hooks read while they run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import fedskew as fs
from fedskew.engines import base
from fedskew.engines.guard import Guard
from fedskew.flower.contract import PERMITS
from fedskew.method import WORDS, Component, Read, suffices
from fedskew.method.component import hooks_of
from fedskew.methods import METHODS
from fedskew.slots import parts, samplers, selectors, servers, steps, weightings
from fedskew.types import Answers, Cohort, Query
from support.federations import skewed
from support.methods import NAMES, tiny
from support.paths import ROOT
from support.runs import go, same

SLOTS = (parts, samplers, selectors, servers, steps, weightings)
SERVER = ("weigh", "adds", "mass")  # hooks that compute what each client contributes, beside the sum


class Undeclared(AssertionError):
    """A hook has read what its ingredient does not declare."""


@dataclass
class Declared:
    """What one ingredient may read, and what it has read."""

    part: Component
    senders: set[str]  # ingredients that declare an upload
    used: set[str]

    def form(self, *words: str) -> str:
        """sum or each, of the first of these words that is declared; the hook has read it."""
        forms = {read.word: read.form for read in self.part.reads}
        for word in words:
            if word in forms:
                self.used.add(word)
                return forms[word]
        raise Undeclared(f"{self.part.name} reads {' or '.join(words)}")

    def counts(self, counts: Tensor, whole: bool) -> Tensor:
        """Rows of each class [K, C] as far as they are declared: what is not is thrown away."""
        words = {read.word: read.form for read in self.part.reads}
        known = [w for w in ("histogram", "labels", "rows") if w in words]
        if not known:
            raise Undeclared(f"{self.part.name} reads the rows of clients")
        word = next((w for w in known if words[w] == "each"), known[0])
        form = self.form(word)
        if word == "labels":
            counts = (counts > 0).long()
        if word == "rows":  # of which class they are, nobody has told
            counts = torch.zeros_like(counts).index_copy(1, torch.tensor([0]), counts.sum(1, keepdim=True))
        return counts if form == "each" or whole else counts.sum(0, keepdim=True)


class Fed:
    """A federation of which a hook sees what is declared."""

    def __init__(self, fed: Any, told: Declared) -> None:
        self._fed, self._told = fed, told
        self.clients, self.has_rows, self.auxiliary_rows = fed.clients, fed.has_rows, fed.auxiliary_rows

    @property
    def counts(self) -> Tensor:
        counts: Tensor = self._fed.counts
        return counts if self._told.form("histogram") == "each" else counts.sum(0, keepdim=True)

    @property
    def sizes(self) -> Tensor:
        sizes: Tensor = self._fed.sizes
        return sizes if self._told.form("rows", "histogram") == "each" else sizes.sum(0, keepdim=True)


class Seen:
    """A cohort of which a hook sees what is declared."""

    def __init__(self, cohort: Cohort, told: Declared, whole: bool) -> None:
        self._cohort, self._told, self._whole = cohort, told, whole

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._cohort, name)
        if name in ("owned", "offered", "used"):
            return self._told.counts(value, self._whole)
        if name == "reports":
            self._told.form("rows")
        if name in ("deltas", "trained"):
            self._told.form("update")
        if name == "uploads":
            self._told.used.add("upload")
            return {sender: sent for sender, sent in value.items() if sender in self._told.senders}
        return value


class Trap(Guard):
    """Gives hooks of the server half what their ingredients declare, and nothing else."""

    told: dict[str, Declared]
    asked: dict[str, Query]

    def call(self, part: Component, hook: str, original: Any, /, *args: Any, **named: Any) -> Any:
        told = self.told.setdefault(part.name, Declared(part, set(), set()))  # one of a probe is new
        given = [self._given(told, hook, value) for value in args]
        out = original(*given, **named)
        if isinstance(out, Query):
            self.asked[part.name] = out
        return out

    def _given(self, told: Declared, hook: str, value: Any) -> Any:
        if isinstance(value, Cohort):
            return Seen(value, told, hook in SERVER)
        if isinstance(value, fs.data.Federation):
            return Fed(value, told)
        if isinstance(value, Answers) and self.asked[told.part.name].rows == "own":
            what = self.asked[told.part.name].what
            told.form("probe" if callable(what) else {"counts": "histogram"}.get(what, what))
        return value


def trapped(monkeypatch: pytest.MonkeyPatch, method: fs.Method) -> dict[str, Declared]:
    """Let the next runs give hooks what is declared alone."""
    senders = {part.name for part in method.components if any(read.word == "upload" for read in part.reads)}
    told = {part.name: Declared(part, senders, set()) for part in method.components}

    def made(full: bool) -> Trap:
        trap = Trap(full=full)
        trap.told, trap.asked = told, {}
        return trap

    monkeypatch.setattr(base, "Guard", made)
    return told


@pytest.mark.parametrize("name", NAMES)
def test_a_method_reads_what_it_declares_and_declares_what_it_reads(name: str, monkeypatch: Any) -> None:
    """Hooks that see no more give the same bits; and every word that is declared is read."""
    honest(tiny(name), monkeypatch)


@pytest.mark.parametrize(
    "method",
    [
        tiny("fedrl").with_("ratio_loss", monitor=True),
        tiny("fedavg").with_(weighting=fs.weightings.UnionShare("all"), server=fs.servers.WeightedSum()),
        tiny("fedavg").with_(weighting=fs.weightings.UnionShare()),
        tiny("fedgr").with_(parts=(fs.parts.WeightedGravitation(row_average="owners"),)),
        fs.methods.clusteredsampling("similarity"),
        fs.methods.clusteredsampling("none"),
        tiny("fedlc").with_(parts=(fs.parts.PooledLogitCalibration(),)),
        tiny("feddyn").with_(parts=(fs.parts.WeightedRegulariser(0.01),)),
        tiny("scaffold").with_("control_variate", spread="size"),
        tiny("fednova").with_("global_momentum", gmf=0.5),
        tiny("fednova").with_(weighting=fs.weightings.FedNova(fs.weightings.LabelAware())),
        tiny("feddisco").with_(weighting=fs.weightings.DiscrepancyAware(fs.weightings.AggregationBalancer())),
        tiny("fednh").with_("non_parametric_head", weighs="confidence"),
        tiny("climb").with_("dual", report="cohort", apply="loss"),
    ],
    ids=lambda m: "-".join([m.name, m.weighting.name, m.selector.name, *(p.name for p in m.parts[:2])]),
)
def test_so_do_other_options_and_compositions(method: fs.Method, monkeypatch: pytest.MonkeyPatch) -> None:
    honest(method, monkeypatch)


def honest(method: fs.Method, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = skewed()
    plain = go(fed, method, rounds=3)
    told = trapped(monkeypatch, method)
    again = go(fed, method, rounds=3)
    assert same(again.params, plain.params) and same(again.state.params, plain.state.params)
    sent = {word for one in told.values() for word in one.used if word == "upload"}
    for part in method.components:
        declared = {read.word for read in part.reads} - ({"upload"} if sent else set())
        if "probe" in declared:  # its answer tells them
            declared -= {"histogram", "labels"}
        if "histogram" in declared:
            declared -= {"labels"}
        assert declared <= told[part.name].used, part.name


@dataclass(frozen=True)
class Silent(fs.Weighting):
    """Reads histograms, and says nothing of it."""

    name = "silent"

    def weigh(self, state: Any, cohort: Any) -> Any:
        weights = cohort.used[:, 0] / cohort.used[:, 0].sum()
        return fs.types.Weights(weights, weights)


def test_a_silent_ingredient_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    method = fs.methods.fedavg().with_(weighting=Silent())
    trapped(monkeypatch, method)
    with pytest.raises(Undeclared, match="silent reads the rows"):
        go(skewed(), method)


def test_a_liar_gets_what_it_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who declares the rows alone sees no classes."""
    method = fs.methods.fedpals()
    plain = go(skewed(), method)
    object.__setattr__(method.weighting, "reads", (Read("rows", "each"),))
    trapped(monkeypatch, method)
    assert not same(go(skewed(), method).params, plain.params)


def every(*slots: Any) -> Iterable[type[Component]]:
    for slot in slots:
        yield from (getattr(slot, name) for name in slot.__all__ if isinstance(getattr(slot, name), type))


def test_every_word_is_of_the_one_vocabulary() -> None:
    for kind in every(*SLOTS):
        assert all(read.word in WORDS and read.form in ("sum", "each") for read in kind().reads), kind
    assert set(PERMITS) - set(WORDS) == {"metrics", "fit", "columns"}
    assert "reads" in hooks_of(Component)


def test_the_page_says_what_each_method_reveals() -> None:
    found: dict[str, list[str]] = {}
    for name, factory in sorted(METHODS.items()):
        reads = [read for part in factory().components for read in part.reads]
        found.setdefault(suffices(reads), []).append(name)
    page = (ROOT / "docs/guide/privacy.md").read_text(encoding="utf-8").splitlines()
    head = page.index("| what suffices | methods |")
    table = page[head + 2 : page.index("", head)]
    found["sum"] = ["all others"]
    assert set(table) == {f"| {form} | {', '.join(names)} |" for form, names in found.items()}
