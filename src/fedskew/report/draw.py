"""Pictures and tables that Python asks for: ``study.plot()``, ``result.plot()`` and ``print(study)``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedskew.config.recorded import Run
from fedskew.errors import RecordError, unknown
from fedskew.plots import canvas, drawing
from fedskew.plots.canvas import Figure
from fedskew.plots.drawing import Heat, Picture, figure_of
from fedskew.report import figures, listings, sentences
from fedskew.report.clients import measured
from fedskew.report.compared import Compared, compare
from fedskew.report.controls import model_of
from fedskew.report.entries import LabelledRun, of_rows
from fedskew.report.tables import to_text
from fedskew.studies.clients import ByClient, by_client

if TYPE_CHECKING:
    from fedskew._run import Result
    from fedskew.studies.study import Study

KINDS = ("gains", "curves", "recalls", "clients", "confusion")


def compared_of(study: Study) -> Compared:
    """The finished runs of a study. Raises RecordError where there is none."""
    entries, _ = of_rows(study.table(), study.store)
    return compare(entries, study.spec.metric, study.spec.reference)


def of_study(study: Study, kind: str, setting: str) -> Figure:
    """The picture of a study, one of `KINDS`; errors are those of `Study.plot`."""
    compared = compared_of(study)
    setting = compared.whole or setting
    if kind != "gains" and setting not in compared.settings:
        raise unknown("setting", setting, compared.settings)
    return _figure(kind, compared, setting, measured(compared, [setting]) if kind == "clients" else [])


def of_result(result: Result, kind: str) -> Figure:
    """The picture of one run, one of `KINDS` but "gains"; errors are those of `Result.plot`."""
    run = Run(result.folder or Path(), {"label_names": result.trained.label_names}, result.rounds, result.summary)
    compared = compare([LabelledRun("this run", "", 0, run)])
    return _figure(kind, compared, "", by_client([("this run", "", result.client_rows)]))


def _clients(every: Sequence[ByClient]) -> Heat | None:
    """The accuracy of each client under each method, the worst client first."""
    methods = tuple(dict.fromkeys(client.method for client in every))
    clients = tuple(dict.fromkeys(client.client for client in every))
    cells = np.full((len(methods), len(clients)), np.nan)
    for client in every:
        cells[methods.index(client.method), clients.index(client.client)] = client.accuracy
    title = "Accuracy of what each client would use, the worst client first, %"
    return Heat("clients", title, cells, methods, clients, "client", "", "", numbers=True) if every else None


@canvas.styled
def _figure(kind: str, compared: Compared, setting: str, every: Sequence[ByClient]) -> Figure:
    """One picture, or several heat maps side by side."""
    known = KINDS if len(compared.methods) > 1 else KINDS[1:]
    if kind not in known:
        raise unknown("kind", kind, known)
    pictures: dict[str, Callable[[], Sequence[Picture | None]]] = {
        "gains": lambda: [figures.gains(compared)],
        "curves": lambda: figures.curves(compared, setting, compared.order, 10**6)[:1],
        "recalls": lambda: [figures.recalls(compared, setting, compared.order)],
        "clients": lambda: [_clients(every)],
        "confusion": lambda: [figures.confusion(compared, method, setting) for method in compared.present(setting)],
    }
    shown = [picture for picture in pictures[kind]() if picture is not None]
    if not shown:
        raise RecordError(f"no run on record has what {kind!r} shows")
    if len(shown) == 1:
        return figure_of(shown[0])
    columns = min(3, len(shown))
    figure = canvas.figure(3.4 * -(-len(shown) // columns), 3.6 * columns)
    panels = list(figure.subplots(-(-len(shown) // columns), columns, squeeze=False).flat)
    for picture, axes in zip(shown, panels, strict=False):
        assert isinstance(picture, Heat)
        drawing.heat(axes, picture)
    for axes in panels[len(shown) :]:
        axes.set_axis_off()
    return figure


def text_of(study: Study) -> str:
    """The results under each setting, and a sentence for each method."""
    compared = compared_of(study)
    models = None if study.spec.longer else [model_of(compared)]  # where a verdict rests on them, all models are shown
    tables = [listings.results(compared, setting, models, brief=True) for setting in compared.settings]
    return "\n\n".join([*map(to_text, tables), "\n".join(sentences.verdict(compared))])
