"""Pictures and tables that Python asks for: ``study.plot()``, ``result.plot()`` and ``print(study)``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedskew.config.recorded import Run
from fedskew.errors import RecordError, unknown
from fedskew.plots import canvas, drawing
from fedskew.plots.canvas import Figure
from fedskew.plots.curves import chart_of, curve_of, recalls_of
from fedskew.plots.drawing import Heat, Picture, figure_of
from fedskew.report import figures, listings, sentences
from fedskew.report.clients import measured
from fedskew.report.compared import Compared, compare
from fedskew.report.controls import model_of
from fedskew.report.entries import Entry, of_rows
from fedskew.report.tables import to_text
from fedskew.studies.clients import ByClient, by_client

if TYPE_CHECKING:
    from fedskew._run import Result
    from fedskew.studies.study import Study

KINDS = ("gains", "curves", "recalls", "clients", "confusion")
FOLLOWED = ("accuracy", "macro_f1", "worst_class_recall", "served_accuracy")  # metrics of a single run


def compared_of(study: Study) -> Compared:
    """The finished runs of a study. Raises RecordError where there is none."""
    entries, _ = of_rows(study.table(), study.store)
    return compare(entries, study.spec.metric, study.spec.reference)


def of_study(study: Study, kind: str, setting: str) -> Figure:
    """The picture of a study.

    Args:
        study: What is drawn.
        kind: One of `KINDS`.
        setting: Which setting; "" where there is one. "gains" are over all of them.

    Raises:
        ConfigError: There is no such kind or setting, or matplotlib is missing.
        RecordError: No run is finished, or none has what the picture shows.
    """
    if kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    found = compared_of(study)
    if kind == "gains":
        return _figure(kind, [figures.gains(found)])
    setting = found.whole or setting
    if setting not in found.settings:
        raise unknown("setting", setting, found.settings)
    of = {
        "curves": lambda: figures.curves(found, setting, found.order, 10**6)[:1],
        "recalls": lambda: [figures.recalls(found, setting, found.order)],
        "clients": lambda: [_clients(measured(found, [setting]))],
        "confusion": lambda: [figures.confusion(found, method, setting) for method in found.present(setting)],
    }
    return _figure(kind, of[kind]())


def of_result(result: Result, kind: str) -> Figure:
    """The picture of one run: its metrics over rounds, or another of `KINDS`, no "gains". Errors as `of_study`."""
    if kind not in KINDS[1:]:
        raise unknown("kind", kind, KINDS[1:])
    names = result.trained.label_names
    run = Run(result.folder or Path(), {"label_names": names}, result.rounds, result.summary)
    curves = [(figures.words(name), place, curve_of([run], name)) for place, name in enumerate(FOLLOWED)]
    of = {
        "curves": lambda: [chart_of(curves, "rounds", "", "share of test rows, %", times=100)],
        "recalls": lambda: [recalls_of({"": [run]}, "Recall of each class at the last evaluation, %")],
        "clients": lambda: [_clients(by_client([("", "", result.client_rows)]))],
        "confusion": lambda: [figures.confusion(compare([Entry("confusion", "", 0, run)]), "confusion", "")],
    }
    return _figure(kind, of[kind]())


def _clients(every: Sequence[ByClient]) -> Heat | None:
    """The accuracy of each client under each method, the worst client first."""
    methods, clients = (tuple(dict.fromkeys(getattr(one, name) for one in every)) for name in ("method", "client"))
    cells = np.full((len(methods), len(clients)), np.nan)
    for one in every:
        cells[methods.index(one.method), clients.index(one.client)] = one.accuracy
    title = "Accuracy of what each client would use, the worst client first, %"
    return Heat("clients", title, cells, methods, clients, "client", "", "", numbers=True) if every else None


@canvas.styled
def _figure(kind: str, pictures: Sequence[Picture | None]) -> Figure:
    """One picture, or several heat maps side by side."""
    shown = [picture for picture in pictures if picture is not None and getattr(picture, "lines", True)]
    if not shown:
        raise RecordError(f"no run on record has what {kind!r} shows")
    if len(shown) == 1:
        return figure_of(shown[0])
    columns = min(3, len(shown))
    figure = canvas.figure(3.4 * -(-len(shown) // columns), 3.6 * columns)
    panels = list(figure.subplots(-(-len(shown) // columns), columns, squeeze=False).flat)
    for picture, axes in zip(shown, panels, strict=False):
        drawing.heat(axes, picture)
    for axes in panels[len(shown) :]:
        axes.set_axis_off()
    return figure


def text_of(study: Study) -> str:
    """The results under each setting, and a sentence for each method."""
    found = compared_of(study)
    tables = [listings.results(found, setting, [model_of(found)], brief=True) for setting in found.settings]
    return "\n\n".join([*map(to_text, tables), "\n".join(sentences.verdict(found))])
