"""``fedskew evaluate``: a recorded run's model on rows that it did not see."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedskew.cli.composed import Beside
from fedskew.cli.output import say, show
from fedskew.cli.values import FILE, RUN
from fedskew.config.words import Pair
from fedskew.errors import ConfigError, RecordError, require

if TYPE_CHECKING:
    from rich.table import Table

    from fedskew.config.experiment import Experiment
    from fedskew.config.recorded import Run
    from fedskew.config.scoring import Scores
    from fedskew.data.arrays import Dataset
    from fedskew.engines.trained import Trained

__all__ = ["evaluate"]

EXAMPLES = (
    "fedskew evaluate runs/fedavg",
    "fedskew evaluate runs/fedavg --out scores.csv",
    "fedskew evaluate runs/fedavg --data digits --json",
    "fedskew evaluate runs/fedavg --decompose",
)
OF_THE_RUN = (  # options of data that a model settles
    "--data.normalize", "--data.augment", "--data.crop_padding", "--data.standardise", "--data.categories",
    "--data.exclude", "--data.named_labels", "--data.types", "--data.split_by",
)  # fmt: skip


class RunAndData(Beside):
    """A command that takes a RUN, and options that name the data."""

    def experiment(self, positional: list[str], options: list[Pair], given: dict[str, Any]) -> Experiment | None:
        """None where no data are named. Raises ConfigError for an option that the run decides."""
        for flag, _ in options:
            if flag in OF_THE_RUN:
                raise ConfigError(f"{flag} has no meaning here: rows are encoded like the run's training rows")
        if options and "--data" not in given:
            raise ConfigError(f"{options[0][0]} must be used with --data")
        return super().experiment(positional, options, given)


@click.command(cls=RunAndData, slots=("data",), fields="path", missing="a run folder", lines=EXAMPLES)
@click.argument("run", required=False, metavar="RUN", type=RUN)
@click.option(
    "--out", type=FILE,
    help="a new csv file with the predicted class and all class probabilities of each row",
)  # fmt: skip
@click.option("--best", is_flag=True, help="the model of the best round by --monitor instead of the last one")
@click.option(
    "--fitted", is_flag=True,
    help="use the biases and the temperature that the run fitted: those of the training prior for accuracy, loss and "
    "probabilities, those of equal classes for recalls, F1 and balanced accuracy",
)  # fmt: skip
@click.option(
    "--decompose", is_flag=True,
    help="split the error into bias, calibration, ranking and features, by fits of biases, a temperature, both, and a "
    "new head on pooled features to the run's training rows",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="print everything as JSON")
def evaluate(
    run: str, out: str | None, best: bool, fitted: bool, decompose: bool, as_json: bool, experiment: Experiment | None
) -> None:
    """Evaluate the model of a finished RUN on test rows or new rows.

    Without --data, these are the test rows of the run's data. With --data, they are all rows of a csv, npz or parquet
    file or a folder of images (its test rows, if it has some), or the test rows of a dataset. Rows are encoded as in
    the run. Rows with labels give metrics. Rows without labels give probabilities, printed as csv without --out.
    """
    from fedskew.config.recorded import read_run
    from fedskew.config.scoring import scores_of
    from fedskew.data.sources.rows import rows_of
    from fedskew.engines.trained import load_model, read_description
    from fedskew.records.probabilities import PRECISION

    if out is not None:
        require(not Path(out).exists(), "out", "be a new file", out)
    about = read_description(Path(run))
    trained, recorded = load_model(run, best=best), read_run(run)
    for note in _notes(recorded, about, experiment, best):
        say(f"fedskew: note: {note}", sys.stderr)
    if decompose:
        given = {"--data": experiment is not None, "--out": out is not None, "--fitted": fitted}
        if other := next((flag for flag, there in given.items() if there), ""):
            raise ConfigError(f"--decompose must be used without {other}: it takes the rows and fits of the run")
        _decomposed(recorded, about, trained, as_json)
        return
    source: Any
    if experiment is None:
        source = _own_data(recorded, about)
    else:
        source = rows_of(experiment.data, experiment.path, trained.inputs)
    scores = scores_of(trained, source, recorded.config.get("recall_at", PRECISION), fitted)
    for note in scores.notes:
        say(f"fedskew: note: {note}", sys.stderr)
    if out is not None:
        scores.write(out)
    if as_json:
        say(json.dumps(scores.to_json(), indent=1))
    elif scores.labels is None:
        say(f"{scores.what}: {len(scores.numbers)} rows without labels" if out else scores.text().rstrip("\n"))
    else:
        say(_line(scores))
        show(_classes(scores))
    if out is not None:
        say(f"scores: {out}", sys.stderr if as_json else sys.stdout)


def _decomposed(run: Run, about: dict[str, Any], trained: Trained, as_json: bool) -> None:
    """Print what the error of the run's model is made of."""
    from rich.table import Table

    from fedskew.config import experiment as config
    from fedskew.engines.trained import STEPS
    from fedskew.engines.trained import decompose as parts

    _own_data(run, about)  # which refuses data that are not those of the run
    steps = parts(trained, config.load(run.folder).federation())
    if as_json:
        say(json.dumps(steps, indent=1))
        return
    view = Table(box=None, pad_edge=False, header_style="dim")
    view.add_column("step", no_wrap=True)
    for head in ("accuracy", "balanced", "loss", "ECE", "AUROC"):
        view.add_column(head, justify="right")
    view.add_column("fitted on training rows", overflow="fold")
    for step, row in steps.items():
        view.add_row(step, *("–" if value is None else f"{value:.4f}" for value in row.values()), STEPS[step])
    show(view)


def _own_data(run: Run, about: dict[str, Any]) -> Dataset:
    """The dataset of the run. Raises RecordError where it is not what the run was trained on, or has no name."""
    from fedskew.config.experiment import load

    named = f"--data must name the rows: {str(run.folder)!r} was"
    if run.config.get("started_by") == "python":
        raise RecordError(f"{named} started from Python, and its data have no name")
    if run.config.get("own_data"):
        raise RecordError(f"{named} trained over Flower, and its nodes kept theirs")
    experiment = load(run.folder)
    data: Dataset = experiment.data.load(experiment.path)
    was, fingerprint = about["data"]["fingerprint"], data.fingerprint
    if was != fingerprint:
        raise RecordError(
            f"the data must be those of the run; fingerprint was {was}, is {fingerprint}; name them with --data"
        )
    return data


def _notes(run: Run, about: dict[str, Any], experiment: Experiment | None, best: bool) -> list[str]:
    """What to know before the numbers are believed: a run that stopped early, or rows that it was trained on."""
    from fedskew.data.sources.rows import same_file

    notes = []
    if run.serves == "own":
        name = "final_served_accuracy"
        told = f"; theirs have {name} {run.value(name):.4f}" if math.isfinite(run.value(name)) else ""
        notes.append(
            f"clients of {run.label} use models of their own, and this is a global model that nobody uses{told}"
        )
    if best:
        notes.append(f"the model of round {run.summary['best']['round']}, the best by {run.summary['best']['monitor']}")
    elif reason := run.summary["stopped"]:
        whole = f"round {about['round']} of {run.config.get('rounds')}"
        notes.append(f"the run stopped after {whole} ({reason}); its model is that of this round")
    if experiment is not None and same_file(experiment.path, run.config.get("path")):
        notes.append(
            f"{experiment.path} is the run's own file, training rows too; omit --data to use only its test rows"
        )
    return notes


def _line(scores: Scores) -> str:
    """The metrics in one line, the worst class by name."""
    m, names = scores.metrics, scores.label_names
    present = [c for c, rows in enumerate(m["support"]) if rows]
    worst = min(present, key=lambda c: m["per_class_recall"][c])
    parts = [
        f"accuracy {m['accuracy']:.4f}", f"balanced accuracy {m['balanced_accuracy']:.4f}",
        f"macro-F1 {m['macro_f1']:.4f}", f"G-mean {m['g_mean']:.4f}",
        f"worst class {names[worst]} with recall {m['per_class_recall'][worst]:.4f}", f"loss {m['loss']:.4f}",
    ]  # fmt: skip
    for name, score in (("AUROC", "auroc_macro"), ("AUPRC", "auprc_macro"), ("calibration error", "ece")):
        parts += [f"{name} {m[score]:.4f}"] if m.get(score) is not None else []
    return f"{scores.what}: {len(scores.numbers)} rows, {', '.join(parts)}"


def _classes(scores: Scores) -> Table:
    """Rows, recall, precision, F1, AUROC and AUPRC of each class."""
    from rich.table import Table

    view = Table(box=None, pad_edge=False, header_style="dim")
    view.add_column("class", overflow="fold")
    for head in ("rows", "recall", "precision", "F1", "AUROC", "AUPRC"):
        view.add_column(head, justify="right")
    m = scores.metrics
    none = [None] * len(m["support"])
    rates = [m.get(f"per_class_{rate}", none) for rate in ("recall", "precision", "f1", "auroc", "auprc")]
    for name, rows, *cells in zip(scores.label_names, m["support"], *rates, strict=True):
        view.add_row(name, f"{rows:,}", *("–" if cell is None or not rows else f"{cell:.4f}" for cell in cells))
    return view
