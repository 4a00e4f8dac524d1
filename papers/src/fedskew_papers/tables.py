"""A table or figure that somebody printed, as a study at three scales: protocol, numbers, and what is not stated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedskew.errors import ConfigError, FedskewError, regular, require, unknown
from fedskew.seam import (
    Entry,
    Natural,
    Pair,
    Real,
    Row,
    Spec,
    as_word,
    check_names,
    entries,
    fault_of,
    full,
    instead,
    options_of_table,
    read_table,
    seeds_of,
    spec_of,
    table_from,
    without,
)
from fedskew_papers import FOLDER, names
from fedskew_papers.printed import Printed, printed

SCALES = ("smoke", "small", "paper")
SPANS = {"last": "final", "best": "best", "mean10": "mean10", "mean50": "mean50"}  # readings of "metric"
CELL: Any = entries("Cell", {"setting": str, "method": str}, {
    "value": Real, "spread": Real, "runs": Natural, "round": Natural, "metric": str, "no_data": str,
})  # fmt: skip
TABLE = entries("Table", {"title": str, "study": Row}, {
    "paper": str, "table": str | list[str], "dataset": str, "source": str, "metrics": dict[str, str], "reading": str,
    "scale": Row, "unstated": Row, "cells": list[Row], "csv": str, "like": str,
})  # fmt: skip
OF_SCALE = ("seeds", "settings", "methods", "options", "method", "reduced")
# What every table becomes in a test, unless its file says otherwise: all methods, one setting, seconds
SMOKE = (("data", "digits"), ("clients", "6"), ("cohort", "3"), ("rounds", "2"), ("model", "mlp"), ("epochs", "1"))


@dataclass(frozen=True)
class Scale:
    """What a scale changes. ``options`` win over those of settings and methods, ``method_options`` over all."""

    options: tuple[Pair, ...] = ()
    seeds: tuple[int, ...] = ()
    settings: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    method_options: tuple[tuple[str, tuple[Pair, ...]], ...] = ()
    """options of one method alone, by its label"""
    reduced: str = ""


@dataclass(frozen=True)
class Reading:
    """A value of a setting that a table does not state.

    Attributes:
        option: An option of a run, "method", or "metric": which rounds are reported.
        value: Its value.
        of: The method that it concerns, by its label; all unless given.
    """

    option: str
    value: Any
    of: str = ""

    def __str__(self) -> str:
        return f"{self.option} {as_word(self.value)}" + (f" of {self.of}" if self.of else "")


@dataclass(frozen=True)
class Protocol:
    """A table of a paper, or of anybody.

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
        source: Where the numbers are printed.
        cells: The numbers, where the file of the table holds them; those of `printed` unless given.
        unstated: The readings of each setting that is not stated. The first of each is in ``spec`` and ``metrics``.
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
    source: str = ""
    cells: tuple[Printed, ...] = ()
    unstated: tuple[tuple[Reading, ...], ...] = ()

    def at(self, scale: str) -> Spec:
        """The study at a scale. Raises ConfigError for a scale that there is not."""
        check_names("scale", [scale], SCALES)
        if scale == "paper":
            return self.spec
        return replace(scaled(self.spec, self.scales.get(scale, Scale())), title=self.titled(scale))

    def titled(self, scale: str) -> str:
        """The title at a scale: a smoke test names the data that it runs on, not those of the table."""
        if scale != "smoke":
            return self.title
        data = dict(self.scales[scale].options).get("data", "digits")
        return f"Smoke test of {self.name} on {data}, which repeats no printed number"

    def reduced(self, scale: str) -> str:
        """What a scale reduces, in words; nothing at the scale of the paper."""
        return "" if scale == "paper" else self.scales.get(scale, Scale()).reduced

    def numbers(self) -> list[Printed]:
        """The printed numbers that it repeats: those of which it has the setting, the metric and every method."""
        if self.cells:
            return list(self.cells)
        numbers = [p for p in printed() if p.paper == self.paper and p.table in self.tables and p.kind != "input"]
        numbers = [p for p in numbers if p.dataset == self.dataset and p.setting in self.spec.names]
        labels = {m.name for m in self.spec.methods}
        return [p for p in numbers if p.metric in self.metrics and labels.issuperset(p.labels)]


def scaled(spec: Spec, scale: Scale) -> Spec:
    """A study with the options of a scale in the place of its own. Raises ConfigError for a name that it has not."""
    check_names("setting", scale.settings, [name for name, _ in spec.axes])
    check_names("method", (*scale.methods, *dict(scale.method_options)), [m.name for m in spec.methods])
    chosen = [i for i, name in enumerate(spec.names) if name in scale.settings or not scale.settings]
    given, method_options = instead(spec, scale.options), dict(scale.method_options)
    methods = [
        replace(m, options=(*without(m.options, method_options.get(m.name, ())), *method_options.get(m.name, ())))
        for m in given.methods
        if m.name in scale.methods or not scale.methods
    ]
    return replace(
        given,
        methods=tuple(methods),
        settings=tuple(given.settings[i] for i in chosen),
        names=tuple(spec.names[i] for i in chosen),
        seeds=scale.seeds or spec.seeds,
        baseline=spec.baseline if spec.baseline in [m.name for m in methods] else "",
    )


@lru_cache(64)
def protocol(name: str) -> Protocol:
    """A table by its name, or by its file: a path that ends in ".toml".

    Raises:
        ConfigError: There is none of this name, or its file has a mistake.

    Example:
        >>> from fedskew_papers.tables import protocol
        >>> len(protocol("fedga-table1-mnist").numbers())
        60
    """
    file = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if file.parent == FOLDER and file.stem not in names():
        raise ConfigError(f"{unknown('protocol', name, names())}; `fedskew reproduce` lists them")
    content, beside = table_from(file), file.parent
    try:
        if other := content.get("like"):  # what this file lacks is as in that table
            check_names("protocol", [other], names())
            beside = beside if "csv" in content else FOLDER
            content = {**table_from(FOLDER / f"{other}.toml"), **content}
        return _protocol(name, beside, content)
    except FedskewError as error:
        raise ConfigError(f"{file.name}: {error}") from None


def _protocol(name: str, beside: Path, content: Mapping[str, Any]) -> Protocol:
    check_names("entry of a protocol", content, TABLE.__annotations__)
    if fault := fault_of(content, TABLE):
        raise ConfigError(fault.replace("an object", "a table"))
    given = content.get("table", "")
    defaults = {"title": content["title"], "notes": content.get("reading", ""), "metric": "final_accuracy"}
    spec = spec_of({**defaults, **content["study"]})  # papers print global models, of their last round
    require(bool(spec.names) and all(spec.names), "settings", "each have a name", list(spec.names))
    scales = {key: _scale(key, table) for key, table in content.get("scale", {}).items()}
    smoke = scales.get("smoke", Scale())
    first = (spec.names[0],)
    scales["smoke"] = replace(
        smoke, options=(*without(SMOKE, smoke.options), *smoke.options), seeds=smoke.seeds or (spec.seeds[0],),
        settings=smoke.settings or first,
    )  # fmt: skip
    metrics = dict(content.get("metrics", {"accuracy": "final_accuracy"}))
    made = Protocol(
        name, content.get("paper", ""), tuple(given if isinstance(given, list) else [given]),
        content.get("dataset", ""), content["title"], metrics, content.get("reading", ""), spec, scales,
        content.get("source", ""), unstated=tuple(_unstated(content.get("unstated", {}), spec)),
    )  # fmt: skip
    return _numbered(_read(made), [*content.get("cells", []), *_curves(beside, content.get("csv", ""))])


def _unstated(content: Mapping[str, Any], spec: Spec) -> list[tuple[Reading, ...]]:
    """The readings of each setting, those of one method under its label. Raises ConfigError."""
    readings: list[tuple[Reading, ...]] = []
    for key, values in content.items():
        inner = values if isinstance(values, Mapping) else {key: values}
        of = key if isinstance(values, Mapping) else ""
        check_names("method", [of] if of else [], [m.name for m in spec.methods])
        for option, several in options_of_table(inner, "unstated"):
            require(isinstance(several, tuple), f"unstated.{option}", "be a list of readings", several)
            if option == "metric":
                require(not of, "unstated.metric", "concern all methods", of)
                check_names("reading of metric", several, SPANS)
            readings.append(tuple(Reading(option, value, of) for value in several))
    return readings


def _read(table: Protocol) -> Protocol:
    """The table under the first reading of each setting."""
    spec, metrics = table.spec, table.metrics
    for first in (readings[0] for readings in table.unstated):
        pair = [(first.option, first.value)]
        if first.option == "metric":
            metrics = {name: respanned(rule, first) for name, rule in metrics.items()}
        elif not first.of:
            spec = replace(spec, options=(*without(spec.options, pair), *pair))
        else:
            options = {m.name: (*without(m.options, pair), *pair) for m in spec.methods if m.name == first.of}
            methods = [Entry(m.method, options.get(m.name, m.options), m.name) for m in spec.methods]
            spec = replace(spec, methods=tuple(methods))
    return replace(table, spec=spec, metrics=metrics)


def respanned(rule: str, reading: Reading) -> str:
    """The rule of a metric under a reading of which rounds are reported; itself where it is of no span.

    Example:
        >>> from fedskew_papers.tables import Reading, respanned
        >>> respanned("final_accuracy * 100", Reading("metric", "best"))
        'best_accuracy * 100'
    """
    span, _, rest = rule.partition("_")
    return f"{SPANS[reading.value]}_{rest}" if span in SPANS.values() else rule


def under(entry: Entry, readings: Sequence[Reading]) -> Entry:
    """A method under readings, which win over its own options and over those of the study. Its label stays.

    A reading of ``parts`` also replaces the options of the parts, and so of every slot.
    """
    pairs = [(reading.option, reading.value) for reading in readings]
    kept = [p for p in without(entry.options, pairs) if not any(full(p[0]).startswith(f"{o}.") for o, _ in pairs)]
    method = str(dict(pairs).get("method", entry.method))
    return Entry(method, (*kept, *(pair for pair in pairs if pair[0] != "method")), entry.name)


def _curves(folder: Path, name: str) -> list[Row]:
    """The cells of a csv in the folder of a table. Raises ConfigError."""
    if not name:
        return []
    require(Path(name).name == name, "csv", "name a file beside the table", name)
    try:
        (_, head), *rows = read_table(regular(folder / name))
        check_names(f"column of {name}", head, CELL.__annotations__)
        return [{key: _value(key, text) for key, text in zip(head, row, strict=True) if text} for _, row in rows]
    except (OSError, ValueError) as error:
        raise ConfigError(f"{name}: {error}") from None


def _value(column: str, text: str) -> Any:
    return int(text) if column in ("runs", "round") else float(text) if column in ("value", "spread") else text


def _numbered(table: Protocol, cells: Sequence[Row]) -> Protocol:
    """The table with its cells as printed numbers. Raises ConfigError for a cell of which it has no run."""
    numbers, metrics = [], dict(table.metrics)
    for at, cell in enumerate(cells, 1):
        if fault := fault_of(cell, CELL):
            raise ConfigError(f"cell {at}: {fault}")
        metric = cell.get("metric", next(iter(table.metrics)))
        check_names("metric", [metric], table.metrics)
        absent = cell.get("no_data", "")
        if not absent:
            require("value" in cell, f"cell {at}", "have a value, or no_data", cell)
            check_names("setting", [cell["setting"]], table.spec.names)
            check_names("method", [cell["method"]], [m.name for m in table.spec.methods])
        if "round" in cell:
            name = f"{metric}, round {cell['round']}"
            metrics[name] = f"round {cell['round']} {table.metrics[metric].partition('_')[2]}"
            metric = name
        numbers.append(Printed(
            f"{table.name}-{at:03d}", table.paper, table.tables[0], table.dataset, cell["setting"], "", cell["method"],
            metric, cell.get("value"), cell.get("spread"), "no data" if absent else "result",
            absent or (f"{cell['runs']} runs" if "runs" in cell else ""),
        ))  # fmt: skip
    return replace(table, cells=tuple(numbers), metrics=metrics)


def _scale(name: str, table: Mapping[str, Any]) -> Scale:
    check_names("scale", [name], SCALES[:2])
    check_names(f"entry of scale.{name}", table, OF_SCALE)
    method_options = {
        label: options_of_table(each, f"scale.{name}.method.{label}") for label, each in table.get("method", {}).items()
    }
    return Scale(
        options_of_table(table.get("options", {}), f"scale.{name}.options"),
        seeds_of(table["seeds"]) if "seeds" in table else (),
        tuple(table.get("settings", ())), tuple(table.get("methods", ())), tuple(method_options.items()),
        table.get("reduced", ""),
    )  # fmt: skip
