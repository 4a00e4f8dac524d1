"""What the papers claim, and what our runs say of it: the program finds the word and the numbers.

The texts of a claim name quantities, which are read from runs, from the ledger or from the printed numbers.

A quantity is "KIND a | b | c"; each kind is a function below. An asterisk stands for all settings of a study; after the
beginning of a name, for the settings that begin so; in the place of a method, for all other methods. A study is a
protocol, or one of those that ship with the package. Fewer than five seeds give no number.

A condition is a quantity with "> NUMBER", "< NUMBER" or "= printed". "count CONDITION" stands for how often it is met.
"""

from __future__ import annotations

import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from inspect import signature
from pathlib import Path

import numpy as np

from fedskew.errors import require
from fedskew.seam import (
    FEWEST,
    Run,
    Spec,
    Study,
    check_names,
    files_of,
    read_spec,
    reuse_archived,
    shipped,
    shipped_names,
    t_interval,
    table_from,
)
from fedskew_papers import names
from fedskew_papers.printed import Printed, printed
from fedskew_papers.rows import Row
from fedskew_papers.runs import RESULTS, Runs, cells, entries_of, is_whole
from fedskew_papers.tables import protocol

VERDICTS = ("holds", "holds in part", "does not hold here", "not resolved", "no verdict", "not testable here")
ALL = "*"
BRACES = re.compile(r"\{(.+?)\}")
CONDITION = re.compile(r"(.+?) ([<>=]) (\S+)")
BY_STATE = {"agrees": True, "differs": False, "within": True, "outside": False}
METRIC = "final_accuracy"


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, and what would decide it.

    Attributes:
        paper: The paper.
        claim: What it says, in our words.
        evidence: What we say of it, in sentences; a quantity in braces is replaced by its value, and a sentence of
            which one has no value is left out.
        conditions: What the claim comes to: conditions on quantities. None where nothing that can be run decides it.
        cause: Why we differ, or what was tried.
    """

    paper: str
    claim: str
    evidence: Sequence[str]
    conditions: Sequence[str] = ()
    cause: str = ""


@dataclass(frozen=True)
class Verdict:
    """What our runs say of a claim.

    Attributes:
        claim: The claim.
        word: One of `VERDICTS`.
        evidence: The text with its numbers.
        seeds: The fewest and the most seeds that it rests on; empty where it rests on none.
    """

    claim: Claim
    word: str
    evidence: str
    seeds: tuple[int, ...] = ()


def claims() -> tuple[Claim, ...]:
    """Every claim, in the order of the papers.

    Example:
        >>> from fedskew_papers.verdicts import claims
        >>> claims()[0].paper
        'FedBal'
    """
    return tuple(Claim(**claim) for claim in table_from(Path(__file__).with_suffix(".toml"))["claim"])


def verdict_of(claim: Claim, evidence: Evidence) -> Verdict:
    """What the runs say of a claim.

    Raises:
        ConfigError: A quantity or a condition of it is none.
    """
    outcomes = [outcome for condition in claim.conditions for outcome in evidence.outcomes(condition)]
    seeds = sorted({outcome.seeds for outcome in outcomes if outcome.there and outcome.seeds})
    sentences = [text for sentence in claim.evidence if (text := evidence.fill(sentence))]
    return Verdict(claim, word_of(outcomes), " ".join(sentences), tuple(seeds[:1] + seeds[1:][-1:]))


def word_of(outcomes: Sequence[Outcome]) -> str:
    """The word for what became of the conditions of a claim, each under each of its settings.

    "holds": all are met. "holds in part": more are met than refuted. "does not hold here": at least as many are refuted
    as met, and one is. "not resolved": the runs decide none. "no verdict": there are too few runs. "not testable here":
    the claim has no condition.

    Example:
        >>> from fedskew_papers.verdicts import Outcome, word_of
        >>> word_of([Outcome(True, 5), Outcome(None, 5)]), word_of([Outcome(True, 5), Outcome(False, 5)])
        ('holds in part', 'does not hold here')
    """
    if not outcomes:
        return "not testable here"
    if not any(outcome.there for outcome in outcomes):
        return "no verdict"
    met, refuted = (sum(outcome.met is is_ for outcome in outcomes) for is_ in (True, False))
    if met == len(outcomes):
        return "holds"
    return "holds in part" if met > refuted else "does not hold here" if refuted else "not resolved"


@dataclass(frozen=True)
class Outcome:
    """Whether a condition is met under one setting.

    Attributes:
        met: True, False, or None where the runs do not decide.
        seeds: Seeds that it rests on; 0 where they are too few, or where it rests on none.
        there: Whether there is enough to judge by.
    """

    met: bool | None
    seeds: int = 0
    there: bool = True


@dataclass(frozen=True)
class Quantity:
    """A quantity under one setting.

    Attributes:
        name: The setting, where there are several.
        values: One for each seed, or configuration.
        text: What stands on the page; empty where there are too few seeds.
        state: What decides a condition "= printed": a state or a level of the ledger.
        study: The protocol that it is read from.
    """

    name: str
    text: str
    values: tuple[float, ...] = ()
    state: str = ""
    study: str = ""

    @property
    def seeds(self) -> int:
        """How many seeds it rests on; configurations of published logs are none."""
        return len(self.values) if self.study else 0

    def judged(self, sign: str, number: str) -> Outcome:
        """Whether a condition is met: by the 95 % t interval of the values, or by what the ledger says."""
        if sign == "=":
            there = self.state not in ("", "no verdict", "not run")
            return Outcome(BY_STATE.get(self.state), self.seeds, there)
        ends = t_interval(np.array(self.values)) if len(self.values) >= FEWEST else None
        if ends is None:
            return Outcome(None, there=False)
        low, high = (end - float(number) for end in ends)
        if sign == "<":
            low, high = -high, -low
        return Outcome(True if low > 0 else False if high < 0 else None, self.seeds)


@dataclass
class Evidence:
    """The ledger and the runs, and what is read from them.

    Args:
        rows: The ledger.
        runs: Our finished runs of protocols.
        studies: Folder of the archives of studies that are no protocols, each named as the study.
    """

    rows: Sequence[Row]
    runs: Runs
    studies: Path = RESULTS.parent / "studies"
    _cells: dict[str, dict[tuple[str, str], dict[int, Run]]] = field(default_factory=dict)

    def fill(self, text: str) -> str | None:
        """A text with every quantity in braces replaced by its value; None where one of them has none.

        Raises:
            ConfigError: A quantity is none.
        """
        values = {named: self._text(named) for named in BRACES.findall(text)}
        if None in values.values():
            return None
        return BRACES.sub(lambda named: str(values[named[1]]), text)

    def _text(self, named: str) -> str | None:
        kind, _, rest = named.partition(" ")
        if kind == "count":
            met = [outcome.met for outcome in self.outcomes(rest) if outcome.there]
            reverse = f" (the reverse in {met.count(False)})" if False in met else ""
            return f"{met.count(True)} of {len(met)}{reverse}" if met else None
        quantities = [quantity for quantity in self.find(named) if quantity.text]
        if len(quantities) > 1:
            return "; ".join(f"{quantity.name}: {quantity.text}" for quantity in quantities)
        return quantities[0].text if quantities else None

    def outcomes(self, condition: str) -> list[Outcome]:
        """Whether a condition is met, under each of its settings.

        Raises:
            ConfigError: It is none.
        """
        match = CONDITION.fullmatch(condition)
        require(match is not None, "condition", "be a quantity with > NUMBER, < NUMBER or = printed", condition)
        assert match is not None
        return [quantity.judged(match[2], match[3]) for quantity in self.find(match[1])]

    def find(self, quantity: str) -> list[Quantity]:
        """A quantity under each of its settings.

        Raises:
            ConfigError: Its kind, its study, setting or method is unknown, or it has too few parts.
        """
        kind, _, rest = quantity.partition(" ")
        check_names("kind of quantity", [kind], KINDS)
        parts = [part.strip() for part in rest.split(" | ")]
        taken = list(signature(KINDS[kind]).parameters.values())[1:]
        least = sum(parameter.default is parameter.empty for parameter in taken)
        require(least <= len(parts) <= len(taken), "quantity", f"have {least} to {len(taken)} parts", quantity)
        return list(KINDS[kind](self, *parts))

    def held(self, study: str) -> dict[tuple[str, str], dict[int, Run]]:
        """The runs of a study by method and setting, at the scale of the paper where there is one."""
        if study not in self._cells:
            if study in names():
                scales = [cells(protocol(study), scale, self.runs).entries for scale in ("paper", "small")]
                self._cells[study] = scales[0] or scales[1]
            else:
                archive = self.studies / f"{study}.jsonl"
                self._cells[study] = shipped_entries(_spec(study), archive) if files_of(archive)[0].is_file() else {}
        return self._cells[study]

    def pairs(self, study: str, setting: str, method: str, other: str, metric: str) -> dict[int, tuple[float, float]]:
        """A metric of two methods, by seed."""
        first, second = (self.held(study).get((name, setting), {}) for name in (method, other))
        values = {s: tuple(runs[s].summary.get(metric) for runs in (first, second)) for s in first if s in second}
        return {seed: (float(a), float(b)) for seed, (a, b) in values.items() if a is not None and b is not None}

    def state(self, study: str, setting: str, method: str, other: str, metric: str) -> str:
        """What the ledger says of a gain that is printed; nothing where none is."""
        for row in self.by_study[study, setting]:
            rule = protocol(study).metrics[row.number.metric].partition(" ")[0]
            if row.gain is None or row.gain.reference != other:
                continue
            if rule == metric and row.number.labels in ((method,), (method, other)):
                return row.state
        return ""

    @cached_property
    def by_study(self) -> dict[tuple[str, str], list[Row]]:
        """The ledger by study and setting."""
        ledger: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in self.rows:
            ledger[row.study, row.number.setting].append(row)
        return ledger


def shipped_entries(spec: Spec, archive: Path) -> dict[tuple[str, str], dict[int, Run]]:
    """The finished runs of a study by method and setting. Where it is tuned, its trials say which runs are compared."""
    if spec.tuning is None:
        return entries_of(spec.cells(), Runs.of(archive))
    entries: dict[tuple[str, str], dict[int, Run]] = defaultdict(dict)
    with tempfile.TemporaryDirectory() as folder:
        study = Study(spec, Path(folder) / "store")
        reuse_archived(study, archive, keep=False)
        for planned, run in study.entries():
            if run and run.state == "finished":
                entries[planned.cell.label, planned.cell.setting][planned.cell.seed] = run
    return entries


def _spec(study: str) -> Spec:
    """The settings and methods of a protocol, or of a study that ships with the package. Raises ConfigError."""
    check_names("study", [study], [*names(), *shipped_names()])
    return protocol(study).spec if study in names() else read_spec(shipped(study) or study)


def _places(study: str, setting: str, *methods: str) -> Iterator[tuple[str, ...]]:
    """(setting, method, ...) of what a quantity names, asterisks replaced."""
    spec = _spec(study)
    known, settings = [m.name for m in spec.methods], [name for name, _ in spec.axes]
    check_names("method", [name for name in methods if name != ALL], known)
    begin = setting.removesuffix(ALL)
    among = [name for name in settings if name == setting or (setting.endswith(ALL) and name.startswith(begin))]
    check_names("setting", [] if among else [setting], settings)
    for at in among:
        for last in [n for n in known if n not in methods] if methods[-1] == ALL else (methods[-1],):
            yield at, *methods[:-1], last


def _stood_for(name: str, asked: str) -> str:
    """What an asterisk stands for in a name."""
    return name.removeprefix(asked.removesuffix(ALL)) if asked.endswith(ALL) else ""


# Kinds: what is named by its first word


def gain(
    evidence: Evidence, study: str, setting: str, method: str, other: str, metric: str = METRIC
) -> Iterator[Quantity]:
    """Points of a metric of one method over another, paired by seed."""
    for at, _, against in _places(study, setting, method, other):
        pairs = evidence.pairs(study, at, method, against, metric)
        each = tuple(100 * (a - b) for a, b in pairs.values())
        state = evidence.state(study, at, method, against, metric)
        name = ", ".join(filter(None, (_stood_for(at, setting), _stood_for(against, other))))
        yield Quantity(name, _shown(each, "{:+z.1f}"), each, state, study)


def across(
    evidence: Evidence, study: str, setting: str, method: str, other: str, metric: str = METRIC
) -> Iterator[Quantity]:
    """The same with a value for each setting, the mean over its seeds: an interval over settings, all of them run."""
    places = _places(study, setting, method, other)
    gains = [evidence.pairs(study, at, method, against, metric) for at, _, against in places]
    each = tuple(100 * sum(a - b for a, b in g.values()) / len(g) for g in gains) if all(gains) else ()
    above = f", above 0 in {sum(x > 0 for x in each)} of {len(each)} settings"
    yield Quantity(setting, f"{shown}{above}" if (shown := _shown(each, "{:+z.1f}")) else "", each)


def growth(
    evidence: Evidence, study: str, start: str, end: str, method: str, other: str, metric: str = METRIC
) -> Iterator[Quantity]:
    """By how many points a gain is larger under one setting than under another, paired by seed."""
    for place in (start, end):
        next(_places(study, place, method, other))
    less, more = (evidence.pairs(study, at, method, other, metric) for at in (start, end))
    each = tuple(100 * (more[s][0] - more[s][1] - less[s][0] + less[s][1]) for s in sorted(less) if s in more)
    yield Quantity(end, _shown(each, "{:+z.1f}"), each, study=study)


def ratio(evidence: Evidence, study: str, setting: str, method: str, other: str, metric: str) -> Iterator[Quantity]:
    """A count of one method over that of another, paired by seed."""
    for at, _, against in _places(study, setting, method, other):
        each = tuple(a / b for a, b in evidence.pairs(study, at, method, against, metric).values())
        yield Quantity(at, _shown(each, "{:.2f}"), each, study=study)


def sooner(evidence: Evidence, study: str, setting: str, method: str, other: str, share: str) -> Iterator[Quantity]:
    """Rounds of another method to a share of its own last accuracy over those of one, by seed: least and greatest."""
    for at, _, against in _places(study, setting, method, other):
        ours, others = (evidence.held(study).get((name, at), {}) for name in (method, against))
        pairs = [(ours[seed], others[seed]) for seed in sorted(ours) if seed in others]
        pairs = [pair for pair in pairs if all(map(is_whole, pair))]
        each = tuple(_reaches(theirs, float(share)) / _reaches(mine, float(share)) for mine, theirs in pairs)
        text = f"{min(each):.1f} to {max(each):.1f} times" if len(each) >= FEWEST else ""
        yield Quantity(at, text, each, study=study)


def _reaches(entry: Run, share: float) -> int:
    """The first evaluated round with a share of the run's last accuracy."""
    target = share * entry.summary[METRIC]
    return next(int(row["round"]) for row in entry.rows if (row.get("accuracy") or 0) >= target)


def level(evidence: Evidence, study: str, setting: str, method: str, metric: str = METRIC) -> Iterator[Quantity]:
    """Ours beside the printed number."""
    for at, name in _places(study, setting, method):
        rows = [row for row in evidence.by_study[study, at] if row.number.labels == (name,)]
        rows = [r for r in rows if protocol(study).metrics[r.number.metric].partition(" ")[0] == metric]
        for row in rows:
            text = f"{row.texts[1]} where {row.texts[0]} is printed" if row.judged else ""
            yield Quantity(f"{at}, {name}", text, tuple(row.each.values()), row.level or "no verdict", study)


def rows(evidence: Evidence, paper: str, table: str) -> Iterator[Quantity]:
    """How many printed numbers of a table agree."""
    mine = [row for row in evidence.rows if (row.number.paper, row.number.table) == (paper, table)]
    mine = [row for row in mine if row.number.kind == "result"]
    require(bool(mine), "quantity", "name a table with printed numbers", f"{paper} | {table}")
    states = [row.state for row in mine]
    state = "agrees" if set(states) == {"agrees"} else "differs" if "differs" in states else "not resolved"
    judged = any(row.judged for row in mine)
    text = f"{states.count('agrees')} of {len(states)}" if judged else ""
    yield Quantity(table, text, state=state if judged else "not run")


def logs(_: Evidence, dataset: str, share: str) -> Iterator[Quantity]:
    """FedLA less FedAvg in the published logs, a value for each configuration of a data set and a participation."""
    by: dict[str, dict[str, float]] = defaultdict(dict)
    for p in printed():
        counts = (p.paper, p.table, p.dataset) == ("FedLA", "logs", dataset) and not p.setting.startswith("iid")
        if counts and p.setting.endswith(share) and p.mean is not None:
            by[p.setting][p.method] = p.mean
    each = tuple(accuracies["FedLA"] - accuracies["FedAvg(uniform)"] for accuracies in by.values())
    require(bool(each), "quantity", "name a data set and a participation of FedLA's logs", f"{dataset} | {share}")
    above = f"above 0 in {sum(x > 0 for x in each)} of {len(each)} configurations"
    yield Quantity(share, f"{_shown(each, '{:+z.2f}')}, {above}", each)


def first(_: Evidence, paper: str, table: str, method: str) -> Iterator[Quantity]:
    """In how many printed cells of a table a method is strictly the first."""
    by: dict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
    for p in printed():
        if (p.paper, p.table) == (paper, table) and p.mean is not None:
            by[p.dataset, p.setting, p.metric][p.method] = p.mean
    cells_ = [cell for cell in by.values() if method in cell]
    require(bool(cells_), "quantity", "name a method of a printed table", f"{paper} | {table} | {method}")
    ahead = sum(cell[method] > max(v for name, v in cell.items() if name != method) for cell in cells_)
    yield Quantity(method, f"{ahead} of {len(cells_)}", state="agrees" if ahead == len(cells_) else "differs")


def number(_: Evidence, ids: str) -> Iterator[Quantity]:
    """A printed number by its id, or the points between two: "fedga-012 - fedga-007"."""
    numbers = [_of(name.strip()) for name in ids.split(" - ")]
    if len(numbers) == 1:
        yield Quantity(ids, numbers[0].text)
        return
    points = [p.points * (p.mean or 0.0) for p in numbers]
    yield Quantity(ids, f"{points[0] - points[1]:+z.1f}")


KINDS: dict[str, Callable[..., Iterator[Quantity]]] = {
    **{kind.__name__: kind for kind in (gain, across, growth, ratio, sooner, level, rows, logs, first)},
    "printed": number,
}  # fmt: skip


def _of(name: str) -> Printed:
    known = {p.id: p for p in printed()}
    check_names("printed number", [name], known)
    return known[name]


def _shown(each: Sequence[float], form: str) -> str:
    """A mean with its 95 % t interval; nothing of too few values."""
    ends = t_interval(np.array(each)) if len(each) >= FEWEST else None
    if ends is None:
        return ""
    return f"{form.format(float(np.mean(each)))} ({' to '.join(form.format(end) for end in ends)})"
