"""A printed table run again: which cells come out as stated, and under which readings of what is not stated.

Each cell is run as stated, with the first reading of every setting that is not. One that differs is run with each other
reading once, all else as before, and where all of these differ with the nearest of them beside each other reading.
"""

import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from fedskew.errors import plural
from fedskew.seam import NO_VERDICT, WITHIN, Cell, Equivalence, Run, Spec, Study, csv_text, words_of
from fedskew_papers.printed import Printed
from fedskew_papers.rows import values_in
from fedskew_papers.rules import at_level
from fedskew_papers.runs import Cells
from fedskew_papers.tables import Protocol, Reading, respanned, under

Readings = tuple[Reading, ...]
NO_RUN = "not run"
VERDICTS = ("agrees", WITHIN, "not resolved", "differs", NO_VERDICT, NO_RUN)
DEPTH = 2  # readings at a time, at most
CELLS = ("setting", "method", "metric", "printed", "ours less printed", "seeds", "verdict", "cause")  # see cells_of


@dataclass(frozen=True)
class Trial:
    """A cell under some readings.

    Attributes:
        readings: What differs from the first readings; none as stated.
        seeds: How many runs of ours there are.
        comparison: Ours beside the printed number, in points; of counts as logarithms. None without a run.
    """

    readings: Readings
    seeds: int = 0
    comparison: Equivalence | None = None

    @property
    def verdict(self) -> str:
        """That of `Equivalence`, or "not run"."""
        return NO_RUN if self.comparison is None else self.comparison.verdict

    @property
    def place(self) -> str:
        """The same by the interval alone, of any number of seeds: what is worth a search is no verdict yet."""
        return NO_RUN if self.comparison is None else self.comparison.place

    @property
    def name(self) -> str:
        """The readings in words."""
        return ", ".join(map(str, self.readings)) or "as stated"

    @property
    def span(self) -> str:
        """The 90 % interval of ours less the printed number."""
        if self.comparison is None:
            return ""
        if self.comparison.low is None or self.comparison.high is None:
            return f"{self.comparison.apart:+z.2f}" if self.comparison.apart == self.comparison.apart else ""
        return f"{self.comparison.low:+z.2f} to {self.comparison.high:+z.2f}"


@dataclass(frozen=True)
class Case:
    """A printed cell, and what was tried: first as stated."""

    number: Printed
    trials: tuple[Trial, ...]

    @property
    def verdict(self) -> str:
        """That of the cell as stated, or "no data"."""
        return self.trials[0].verdict if self.trials else "no data"

    @property
    def cause(self) -> str:
        """What brings a cell that differs to the printed level, of all that was run; why another is no data."""
        if not self.trials:
            return self.number.note
        if self.verdict != "differs":
            return ""
        for words, phrase in ((("agrees",), "agrees under"), (("not resolved", WITHIN), "not excluded:")):
            if fitting := [trial.name for trial in self.trials[1:] if trial.verdict in words]:
                return f"{phrase} {'; or '.join(fitting)}"
        ran = sum(trial.comparison is not None for trial in self.trials[1:])
        return f"differs under {plural(ran, 'reading')} more" if ran else "no other reading was run"


@dataclass(frozen=True)
class Part(Spec):
    """Some of the runs of a study, by method and setting."""

    wanted: frozenset[tuple[str, str]] = field(default_factory=frozenset)

    def cells(self) -> Iterator[Cell]:
        """The runs that are wanted."""
        return (cell for cell in super().cells() if (cell.label, cell.setting) in self.wanted)


@dataclass(frozen=True)
class Search:
    """The runs of a table under readings.

    Args:
        table: The table.
        spec: Its study, at one of its scales and with the methods, settings and seeds that are to be run.
    """

    table: Protocol
    spec: Spec

    def numbers(self) -> list[Printed]:
        """The printed numbers of the methods and settings of the study."""
        labels = {m.name for m in self.spec.methods}
        mine = [n for n in self.table.numbers() if n.setting in self.spec.names and labels.issuperset(n.labels)]
        names = {n.id for n in mine}
        full = self.spec.names == self.table.spec.names and len(labels) == len(self.table.spec.methods)
        return [n for n in self.table.numbers() if n.id in names or (full and n.kind == "no data")]

    def singles(self, number: Printed) -> list[Readings]:
        """Each further reading that concerns a number."""
        rule, readings = self.table.metrics[number.metric], list[Readings]()
        for first, *others in self.table.unstated:
            if first.option == "metric":
                readings += [(reading,) for reading in others if respanned(rule, reading) != rule]
            elif any(self._read(label, (first,)) for label in self._needed(number)):
                readings += [(reading,) for reading in others]
        return readings

    def part(self, asked: Mapping[Printed, Sequence[Readings]]) -> Part:
        """The study of what is asked: methods under readings stand beside those as stated, which cost nothing again."""
        methods, wanted = {m.name: m for m in self.spec.methods}, set[tuple[str, str]]()
        for number, several in asked.items():
            for readings in several:
                for label in self._needed(number):
                    name = self._label(label, readings)
                    entry = under(methods[label], self._read(label, readings))
                    methods.setdefault(name, type(entry)(entry.method, entry.options, name))
                    wanted.add((name, number.setting))
        s = self.spec
        facts = {"metric": s.metric, "baseline": s.baseline, "title": s.title, "notes": s.notes}
        return Part(tuple(methods.values()), s.options, s.settings, s.names, s.seeds, wanted=frozenset(wanted), **facts)  # type: ignore[arg-type]

    def trial(self, number: Printed, readings: Readings, runs: Mapping[tuple[str, str], dict[int, Run]]) -> Trial:
        """A number under readings, of the runs by method and setting."""
        rule = reduce(respanned, (r for r in readings if r.option == "metric"), self.table.metrics[number.metric])
        held = Cells(self.table, "", {
            (label, number.setting): runs.get((self._label(label, readings), number.setting), {})
            for label in self._needed(number)
        })  # fmt: skip
        each = list(values_in(held, number, rule).values())
        return Trial(readings, len(each), at_level(number, each) if each else None)

    def _needed(self, number: Printed) -> list[str]:
        """The methods whose runs give a number."""
        word, _, other = self.table.metrics[number.metric].partition(" ")
        base = {"rounds_to": other, "speedup": other, "change": self.spec.reference}.get(word)
        return list(dict.fromkeys([*number.labels, *([base] if base else [])]))

    def _read(self, label: str, readings: Readings) -> Readings:
        """The readings that change the runs of a method: one for all passes a method by that states the option."""
        stated = next(dict(m.options) for m in self.table.spec.methods if m.name == label)
        of_runs = [r for r in readings if r.option != "metric"]
        return tuple(r for r in of_runs if r.of == label or (not r.of and r.option not in stated))

    def _label(self, label: str, readings: Readings) -> str:
        text = ", ".join(map(str, self._read(label, readings)))
        return f"{label} [{text}]" if text else label


def arbitrate(table: Protocol, spec: Spec, work: Callable[[Spec], Study]) -> list[Case]:
    """Run a table, search the readings of the cells that differ, and judge each cell.

    Args:
        table: The table.
        spec: Its study at a scale, or a part of it.
        work: Does a study, and returns it.

    Returns:
        A case for each printed number, in their order.
    """
    search = Search(table, spec)
    tried: dict[Printed, list[Trial]] = {n: [] for n in search.numbers()}
    asked: dict[Printed, list[Readings]] = {n: [()] for n in tried if n.kind != "no data"}
    runs: dict[tuple[str, str], dict[int, Run]] = defaultdict(dict)
    for depth in range(DEPTH + 1):
        if not asked:
            break
        for planned, entry in work(search.part(asked)).entries():
            if entry is not None and entry.state == "finished":
                runs[planned.cell.label, planned.cell.setting][planned.cell.seed] = entry
        for number, several in asked.items():
            tried[number] += [search.trial(number, readings, runs) for readings in several]
        left = [n for n in asked if all(trial.place in ("differs", NO_RUN) for trial in tried[n])]
        left = [n for n in left if tried[n][0].place == "differs"]
        asked = {n: several for n in left if (several := _further(search.singles(n), tried[n], depth))}
    return [Case(number, tuple(trials)) for number, trials in tried.items()]


def _further(singles: list[Readings], trials: Sequence[Trial], depth: int) -> list[Readings]:
    """What is tried next: each reading, then the nearest beside each reading of another setting."""
    ran = [t for t in trials if t.comparison is not None and len(t.readings) == depth]
    if depth == 0 or not ran:
        return singles if depth == 0 else []
    nearest = min(ran, key=lambda t: abs(t.comparison.apart) if t.comparison else 0.0).readings
    return [(*nearest, *single) for single in singles if single[0].option not in {r.option for r in nearest}]


# What is written


def command_of(table: Protocol, scale: str, **part: str) -> str:
    """The command that repeats a table, or some of its ``methods`` and ``settings``."""
    options = [*([("scale", scale)] if scale != "paper" else []), *part.items()]
    return shlex.join(["fedskew", "arbitrate", table.name, *words_of(options)])


def sheet(cases: Iterable[Case]) -> str:
    """Every trial of every cell as CSV, a cell as stated first."""
    rows = [("setting", "method", "metric", "printed", "spread", "readings", "apart_low", "apart_high", "seeds",
             "verdict")]  # fmt: skip
    for case in cases:
        n = case.number
        for t in case.trials or (None,):
            low, high = (t.comparison.low, t.comparison.high) if t and t.comparison else (None, None)
            columns = (t.name, low, high, t.seeds, t.verdict) if t else ("", "", "", "", case.verdict)
            rows.append((n.setting, n.method, n.metric, n.mean, n.spread, *columns))
    return csv_text([["" if v is None else f"{v:.6g}" if isinstance(v, float) else v for v in row] for row in rows])


def page(table: Protocol, scale: str, cases: Sequence[Case]) -> str:
    """The page of a table, as Markdown: what was run, each reading, and each cell with its cause and its command."""
    counted = Counter(case.verdict for case in cases)
    lines = [f"# {table.title}\n", table.reading + "\n"] if table.reading else [f"# {table.title}\n"]
    lines += [f"Source: {table.source}\n"] if table.source else []
    reduced = table.reduced(scale)
    lines += [f"Reduced: {reduced}.\n"] if reduced else []
    lines += [f"`{command_of(table, scale)}`: {', '.join(f'{n} {word}' for word, n in counted.items())}.\n"]
    lines += [RULE, "## Readings\n", *header("reading", *VERDICTS)]
    by: dict[str, Counter[str]] = defaultdict(Counter)
    for case in cases:
        for trial in case.trials:
            by[trial.name][trial.verdict] += 1
    for name, of in by.items():
        lines.append(line(name, *(of[word] or "" for word in VERDICTS)))
    lines += ["", "## Cells\n"]
    lines += header(*CELLS)
    for case in cases:
        lines.append(line(*cells_of(case)))
    tried = [case for case in cases if len(case.trials) > 1 or case.verdict == "differs"]
    if tried:
        lines += ["", "## What was tried\n", *header("command", "readings", "ours less printed", "seeds", "verdict")]
    for case in tried:
        n = case.number
        command = command_of(table, scale, settings=n.setting, methods=n.method)
        for trial in case.trials:
            place = f"`{command}`: {n.metric}" if not trial.readings else ""
            lines.append(line(place, trial.name, trial.span, trial.seeds, trial.verdict))
    return "\n".join(lines) + "\n"


def header(*cells: str) -> Iterator[str]:
    """The first two lines of a table in Markdown."""
    yield line(*cells)
    yield line(*("---" for _ in cells))


def line(*cells: object) -> str:
    """A line of a table in Markdown."""
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


RULE = """
Ours less the printed number, in points, is a 90 % interval; the spread of the printed runs is part of it. Inside of
±1 point a cell *agrees*, outside of it *differs*, across an end it is *not resolved*; where the printed spread alone is
too wide for ±1, a mean inside of it is *within the printed spread*. Fewer than five seeds give *no verdict*. A cell
that is outside as stated is run under each other reading of what is not stated. What agrees under a reading is one way
to the printed number, and not proof that its authors went it.
"""


def cells_of(case: Case) -> tuple[str, ...]:
    """A case as cells of the columns CELLS."""
    n, first = case.number, case.trials[0] if case.trials else Trial(())
    place = n.setting, n.method, n.metric
    return *place, n.text, first.span, str(first.seeds or ""), case.verdict, case.cause
