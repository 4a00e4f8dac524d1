"""A paper's table or figure as a study, at three scales."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedskew.config.words import Pair
from fedskew.errors import ConfigError, FedskewError, require, unknown
from fedskew.papers.printed import Printed, printed
from fedskew.studies.arguments import options_of_table, seeds_of
from fedskew.studies.spec import Spec, check_names, spec_of, table_from, without

SCALES = ("smoke", "small", "paper")
FOLDER = Path(__file__).parent / "protocols"
KEYS = ("paper", "table", "dataset", "title", "metrics", "reading", "study", "scale")
OF_SCALE = ("seeds", "settings", "methods", "options", "method", "reduced")
# What every table becomes in a test, unless its file says otherwise: all methods, one setting, seconds
SMOKE = (("data", "digits"), ("clients", "6"), ("cohort", "3"), ("rounds", "2"), ("model", "mlp"), ("epochs", "1"))


@dataclass(frozen=True)
class Scale:
    """What a scale changes of the protocol. ``options`` win over those of settings and methods, ``own`` over all."""

    options: tuple[Pair, ...] = ()
    seeds: tuple[int, ...] = ()
    settings: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    own: tuple[tuple[str, tuple[Pair, ...]], ...] = ()
    """options of one method alone, by its label"""
    reduced: str = ""


@dataclass(frozen=True)
class Protocol:
    """A table of a paper.

    Attributes:
        name: Name of the study, such as "fedga-table1-mnist".
        paper: The paper.
        tables: Tables and figures whose numbers it gives.
        dataset: Data set, as the paper names it.
        title: What is compared.
        metrics: What gives a printed metric: an entry of the summary, with a factor: "final_accuracy * 100".
        reading: What we run where the paper is silent or contradicts itself.
        spec: The study at the scale of the paper: settings and methods are named as the paper names them.
        scales: What the other scales change.
    """

    name: str
    paper: str
    tables: tuple[str, ...]
    dataset: str
    title: str
    metrics: Mapping[str, str]
    reading: str
    spec: Spec
    scales: Mapping[str, Scale] = field(default_factory=dict)

    def at(self, scale: str) -> Spec:
        """The study at a scale. Raises ConfigError for a scale that there is not."""
        check_names("scale", [scale], SCALES)
        if scale == "paper":
            return self.spec
        return scaled(self.spec, self.scales.get(scale, Scale()))

    def reduced(self, scale: str) -> str:
        """What a scale reduces, in words; nothing at the scale of the paper."""
        return "" if scale == "paper" else self.scales.get(scale, Scale()).reduced

    def numbers(self) -> list[Printed]:
        """The printed numbers that it repeats: those of which it has the setting, the metric and every method."""
        found = [p for p in printed() if p.paper == self.paper and p.table in self.tables and p.kind != "input"]
        found = [p for p in found if p.dataset == self.dataset and p.setting in self.spec.names]
        labels = {m.name for m in self.spec.methods}
        return [p for p in found if p.metric in self.metrics and labels.issuperset(p.labels)]


def scaled(spec: Spec, scale: Scale) -> Spec:
    """A study with the options of a scale in the place of its own. Raises ConfigError for a name that it has not."""
    check_names("setting", scale.settings, [name for name, _ in spec.axes()])
    check_names("method", (*scale.methods, *(label for label, _ in scale.own)), [m.name for m in spec.methods])
    own = {m.name: dict(scale.own).get(m.name, ()) for m in spec.methods}
    chosen = [i for i, name in enumerate(spec.names) if name in scale.settings or not scale.settings]
    methods = [m for m in spec.methods if m.name in scale.methods or not scale.methods]
    return replace(
        spec,
        methods=tuple(
            replace(m, options=(*without(m.options, [*scale.options, *own[m.name]]), *own[m.name]), label=m.name)
            for m in methods
        ),
        options=(*without(spec.options, scale.options), *scale.options),
        settings=tuple(tuple(without(spec.settings[i], scale.options)) for i in chosen),
        names=tuple(spec.names[i] for i in chosen),
        seeds=scale.seeds or spec.seeds,
        baseline=spec.baseline if spec.baseline in [m.name for m in methods] else "",
    )


@lru_cache(1)
def names() -> tuple[str, ...]:
    """The names of the protocols, paper by paper."""
    return tuple(sorted(file.stem for file in FOLDER.glob("*.toml")))


@lru_cache(64)
def protocol(name: str) -> Protocol:
    """A protocol by its name.

    Raises:
        ConfigError: There is none of this name, or its file has a mistake.

    Example:
        >>> from fedskew.papers.tables import protocol
        >>> len(protocol("fedga-table1-mnist").numbers())
        60
    """
    if name not in names():
        raise ConfigError(f"{unknown('protocol', name, names())}; `fedskew reproduce` lists them")
    file = FOLDER / f"{name}.toml"
    try:
        return _protocol(name, table_from(file))
    except FedskewError as error:
        raise ConfigError(f"{file.name}: {error}") from None


def _protocol(name: str, content: Mapping[str, Any]) -> Protocol:
    check_names("entry of a protocol", content, KEYS)
    tables = content["table"] if isinstance(content["table"], list) else [content["table"]]
    told = {"title": content["title"], "notes": content["reading"], "metric": "final_accuracy"}
    spec = spec_of({**told, **content["study"]})  # papers print global models, of their last round
    require(bool(spec.names) and all(spec.names), "settings", "each have a name", list(spec.names))
    scales = {key: _scale(key, table) for key, table in content.get("scale", {}).items()}
    smoke = scales.get("smoke", Scale())
    first = (spec.names[0],)
    scales["smoke"] = replace(
        smoke, options=(*without(SMOKE, smoke.options), *smoke.options), seeds=smoke.seeds or (spec.seeds[0],),
        settings=smoke.settings or first,
    )  # fmt: skip
    return Protocol(
        name, content["paper"], tuple(map(str, tables)), content["dataset"], content["title"], content["metrics"],
        content["reading"], spec, scales,
    )  # fmt: skip


def _scale(name: str, table: Mapping[str, Any]) -> Scale:
    check_names("scale", [name], SCALES[:2])
    check_names(f"entry of scale.{name}", table, OF_SCALE)
    own = {
        label: options_of_table(each, f"scale.{name}.method.{label}") for label, each in table.get("method", {}).items()
    }
    return Scale(
        options_of_table(table.get("options", {}), f"scale.{name}.options"),
        seeds_of(table["seeds"]) if "seeds" in table else (),
        tuple(table.get("settings", ())), tuple(table.get("methods", ())), tuple(own.items()), table.get("reduced", ""),
    )  # fmt: skip
