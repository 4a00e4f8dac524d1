"""What a terminal shows of a study, or of runs that are compared: tables and sentences, to be printed one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedskew.cli.output import table_of

if TYPE_CHECKING:
    from fedskew.report.compared import Compared
    from fedskew.studies.clients import ByClient
    from fedskew.studies.study import Study


NAMED, WORST = 10, 20  # clients that are shown unasked; that are shown at most


def study_tables(study: Study, under_controls: bool) -> Iterator[Any]:
    """The results under each setting and the work of the methods, and what these numbers do not show.

    Args:
        study: What is shown.
        under_controls: Whether the gains of each model under the controls are shown, too.
    """
    from fedskew.report.compared import compare
    from fedskew.report.entries import of_rows

    entries, lost = of_rows(study.table(), study.store)
    if any(entry.run.last for entry in entries):
        compared = compare(entries, study.spec.metric, study.spec.reference)
        yield from results_of(compared, under_controls, _computed(study))
    yield from [*lost, *_tuned_notes(study)]


def results_of(compared: Compared, under_controls: bool, computed: Mapping[str, str] | None = None) -> Iterator[Any]:
    """The results under each setting, a verdict for each method, the work, and what these numbers do not show."""
    from fedskew.report import controls, listings, sentences

    models = None if under_controls else [controls.model_of(compared)]
    for setting in compared.settings:
        yield table_of(listings.results(compared, setting, models, brief=True))
    yield "\n".join(["", *sentences.verdict(compared)])
    if under_controls and "fitted" not in controls.models_of(compared):
        yield f"no run of {compared.baseline} has fitted numbers; --fit-logits last measures them"
    work = controls.work(compared, computed)
    yield from [table_of(work)] if work else []
    if len(compared.settings) > 1 and compared.ranks is not None:
        yield table_of(listings.ranks(compared))
    yield from sentences.cautions(compared)


def comparison_tables(folders: Iterable[Path]) -> Iterator[Any]:
    """What runs are and what they came to, by setting: results, costs, and what these numbers do not show."""
    from fedskew.report import listings, sentences
    from fedskew.report.compared import compare
    from fedskew.report.entries import from_folders

    compared = compare(from_folders(folders))
    yield sentences.compared_what(compared)
    for setting in compared.settings:
        yield table_of(listings.results(compared, setting, [], brief=True))
        yield table_of(listings.costs(compared, setting))
    yield from sentences.cautions(compared)


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


def _computed(study: Study) -> dict[str, str]:
    """By method, what a step computes beside one gradient."""
    computed = dict[str, str]()
    for planned in study.plan():
        parts = planned.cell.experiment.method.components if planned.cell.experiment else ()
        computed[planned.cell.label] = "; ".join(part.compute for part in parts if "gradient" in part.compute)
    return computed


def _tuned_notes(study: Study) -> Iterator[str]:
    """What the tuning chose."""
    yield from study.untuned()
    trials = study.trials()
    for (label, setting), options in study.chosen.items():
        where = "" if setting == "all" else f", {setting}"
        tried = [dict(p.options) for p in trials if (p.cell.label, p.cell.setting) == (label, setting)]
        choices = [
            f"{option} {value}{_edge(value, [float(each[option]) for each in tried])}"
            for option, value in options.items()
        ]
        if chosen := ", ".join(choices):
            yield f"tuned: {label}{where}: {chosen} (by {study.spec.trial[1]} on rows that are not those of the test)"


def _edge(value: float, tried: list[float]) -> str:
    """That a value is the smallest or the largest of those that were tried: a better one may lie beyond."""
    if min(tried) < value < max(tried):
        return ""
    return f", the {'smallest' if value == min(tried) else 'largest'} of {len(tried)} values"
