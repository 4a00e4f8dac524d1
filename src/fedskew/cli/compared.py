"""What a study says while its runs are done, and its tables at the end: those of the report, in a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedskew.cli.output import LEFT_OUT, say, table_of
from fedskew.errors import visible

if TYPE_CHECKING:
    from fedskew.report.compared import Compared
    from fedskew.studies.clients import ByClient
    from fedskew.studies.study import Planned, Study
    from fedskew.studies.work import Outcome


ALIKE = 0.01  # difference of two methods' work that is none
NAMED, WORST = 10, 20  # clients that are shown unasked; that are shown at most


class StudyProgress:
    """A line for each run that ends, with the time left."""

    def __init__(self, study: Study, total: int) -> None:
        self.total, self.done, self.lost = total, 0, list[str]()
        self.metrics = study.spec.metric, study.spec.trial[1]  # of a run that is compared, of a trial
        self._began = time.monotonic()

    def ended(self, outcome: Outcome, planned: Planned) -> None:
        """A run ended."""
        self.done += 1
        cell = planned.cell
        where = f"{cell.label}, {cell.setting}, seed {cell.seed}" + f", trial {cell.trial}" * (cell.trial >= 0)
        ending = outcome.state if outcome.score is None else f"{self.metrics[cell.trial >= 0]} {outcome.score:.4f}"
        if outcome.state in ("broken", "interrupted"):
            self.lost.append(f"fedskew: {where}: {outcome.reason}; the same command tries it again")
        why = f": {outcome.reason}" if outcome.state not in ("finished", "interrupted") else ""
        left = f", {self.left} left" if self.done < self.total else ""
        say(f"[{self.done}/{self.total}] {where}: {ending}{why} ({outcome.seconds:.1f} s{left})", sys.stderr)

    @property
    def left(self) -> str:
        """Time left, from the runs that are done."""
        passed = time.monotonic() - self._began
        return duration(passed / max(self.done, 1) * (self.total - self.done))


def study_tables(study: Study, fitted: bool = False) -> Iterator[Any]:
    """The results under each setting, with ``fitted`` those of the fitted models, too; then what they do not show."""
    from fedskew.report.compared import compare
    from fedskew.report.entries import of_rows

    entries, lost = of_rows(study.table(), study.store)
    if any(entry.run.last for entry in entries):
        yield from results_of(compare(entries, study.spec.metric, study.spec.reference), fitted)
    yield from map(visible, [*lost, *_work_notes(study), *_tuned_notes(study)])


def results_of(compared: Compared, fitted: bool = False) -> Iterator[Any]:
    """The results under each setting, the ranks over several, and what these numbers do not show."""
    from fedskew.report import listings, sentences
    from fedskew.report.compared import fitted_alone, fitted_words, twice
    from fedskew.studies.fitted import fitted_name

    alone = fitted_alone(compared) if fitted else None
    for each in filter(None, (compared, alone)):
        yield from (table_of(listings.results(each, setting, brief=True), LEFT_OUT) for setting in each.settings)
    if fitted:
        yield from map(visible, fitted_words(compared, len(compared.methods) * len(compared.settings)))
    if fitted and alone is None:
        lacking = fitted_name(compared.key)
        yield f"no run has {lacking}; --fit-logits tail also measures fitted models in the last ten rounds"
    ranked = twice(compared) if fitted else compared
    if len(compared.settings) > 1 and ranked.ranks is not None:
        yield table_of(listings.ranks(ranked))
    yield from map(visible, sentences.cautions(compared))


def comparison_tables(folders: Iterable[Path]) -> Iterator[Any]:
    """What runs are and what they came to, by setting: results, costs, and what these numbers do not show."""
    from fedskew.report import listings, sentences
    from fedskew.report.compared import compare
    from fedskew.report.entries import from_folders

    compared = compare(from_folders(folders))
    yield visible(sentences.compared_what(compared))
    for setting in compared.settings:
        yield table_of(listings.results(compared, setting), (*LEFT_OUT, "its 95 % interval", "significant"))
        yield table_of(listings.costs(compared, setting))
    yield from map(visible, sentences.cautions(compared))


def clients_tables(study: Study, wanted: bool) -> Iterator[Any]:
    """What each client would use, a table of each setting; unless ``wanted``, only of up to ten clients with names."""
    from fedskew.records.clients import read_clients
    from fedskew.studies.clients import by_client, is_natural

    ended = [(planned.cell, run) for planned, run in study.entries() if run and run.state == "finished"]
    runs = [(cell.label, cell.setting, read_clients(run.folder)) for cell, run in ended]
    measured = by_client(runs)
    few = len({client.client for client in measured}) <= NAMED and any(is_natural(rows) for *_, rows in runs)
    if wanted and not measured:
        yield "no run of this study has rows of its clients; run it again with --clients-every 1"
    if measured and (wanted or few):
        yield from shown_clients(measured, ended[0][1].config.get("label_names", ()))


def shown_clients(measured: Sequence[ByClient], labels: Sequence[str]) -> Iterator[Any]:
    """A table of the worst clients under each setting."""
    from fedskew.report.clients import clients_tables

    for table in clients_tables(measured, labels, WORST):
        yield table_of(table, [head for head in table.head if head == "AUPRC" or head.startswith("recall of ")])


def _work_notes(study: Study) -> Iterator[str]:
    """The local steps of the methods, where they differ, and what a step costs beside one gradient."""
    works = study.works()
    computed = {}
    for planned in study.plan():
        parts = planned.cell.experiment.method.components if planned.cell.experiment else ()
        computed[planned.cell.label] = "; ".join(part.compute for part in parts if "gradient" in part.compute)
    if any(abs(ratio - 1) > ALIKE for ratio in works.values()) or any(computed.values()):
        each = [f"{label} ×{ratio:.2f}{f' ({computed[label]})' * bool(computed[label])}"
                for label, ratio in works.items()]  # fmt: skip
        what = f"local steps of all clients together, as a multiple of those of {study.plain}"
        yield f"work a round, {what}: {', '.join(each)}; --epochs gives all methods as many"


def _tuned_notes(study: Study) -> Iterator[str]:
    """What the tuning chose."""
    yield from study.untuned()
    trials = study.trials()
    for (label, setting), options in study.chosen.items():
        where = "" if setting == "all" else f", {setting}"
        tried = [dict(p.options) for p in trials if (p.cell.label, p.cell.setting) == (label, setting)]
        ends = {option: _edge(value, [float(each[option]) for each in tried]) for option, value in options}
        if chosen := ", ".join(f"{option} {value}{ends[option]}" for option, value in options):
            yield f"tuned: {label}{where}: {chosen} (by {study.spec.trial[1]} on rows that are not those of the test)"


def _edge(value: str, tried: list[float]) -> str:
    """That a value is the smallest or the largest of those that were tried: a better one may lie beyond."""
    if min(tried) < float(value) < max(tried):
        return ""
    return f", the {'smallest' if float(value) == min(tried) else 'largest'} of {len(tried)} values"


def duration(seconds: float) -> str:
    """As in "40 s", "12 min" or "3.5 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
