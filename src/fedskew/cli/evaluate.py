"""``fedskew evaluate``: a recorded run's model on rows that it did not see."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from fedskew.cli.base import WORDS
from fedskew.cli.composed import Beside
from fedskew.cli.output import grid, note, say, show
from fedskew.cli.values import FILE, FOLDER, RUN, Value
from fedskew.config.words import ALIASES, Pair
from fedskew.errors import ConfigError, FedskewError, RecordError, closest, require, some

if TYPE_CHECKING:
    from rich.table import Table

    from fedskew.config.experiment import Experiment
    from fedskew.config.recorded import Run
    from fedskew.config.scoring import RowScores
    from fedskew.data.federation import Federation
    from fedskew.engines.trained import Trained
    from fedskew.records.decisions import Decision
    from fedskew.records.typed import Row


On = Literal["test", "validation", "train", "local"]

EXAMPLES = (
    "fedskew evaluate runs/fedavg",
    "fedskew evaluate runs/fedavg --out scores.csv",
    "fedskew evaluate runs/fedavg --data digits --json",
    "fedskew evaluate runs/fedavg --positive 8 --threshold 0.3 --figures pictures",
)
OF_THE_RUN = (  # options of data that a model settles
    "--data.normalize", "--data.augment", "--data.crop_padding", "--data.standardise", "--data.categories",
    "--data.exclude", "--data.named_labels", "--data.split_by",
)  # fmt: skip


class RunAndData(Beside):
    """A command that takes a RUN, and options that name the data."""

    def experiment(self, positional: list[str], options: list[Pair], given: dict[str, Any]) -> Experiment | None:
        """None where no data are named. Raises ConfigError for an option that the run decides."""
        for flag, _ in options:
            if ALIASES.get(flag, flag) in OF_THE_RUN:
                raise ConfigError(f"{flag} has no meaning here: rows are encoded like the run's training rows")
        if options and "--data" not in given:
            if near := closest(options[0][0], self.own_options, listed=False):
                raise ConfigError(f"unknown option {options[0][0]!r}{near}")
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
    help="use the biases and the temperature that the run fitted: to the training rows as they are for accuracy, loss "
    "and probabilities, with all classes weighing the same for recalls, F1 and balanced accuracy",
)  # fmt: skip
@click.option(
    "--on", type=Value(On), default="test",
    help="which rows of the run's own data: test, validation, train, or local (kept by clients for their own tests)",
)  # fmt: skip
@click.option(
    "--threshold", metavar="RULE",
    help="a threshold on the probability of --positive, chosen on validation rows: recall@specificity=0.9, "
    "specificity@recall=0.9, fp=1,fn=5 (costs of mistakes), prevalence, prevalence=0.2, or the threshold itself",
)  # fmt: skip
@click.option(
    "--per-client", is_flag=True,
    help="choose a threshold for each client on its own validation rows; a client with fewer than 5 rows of either "
    "kind gets the threshold of all rows",
)  # fmt: skip
@click.option(
    "--positive", metavar="CLASS",
    help="the class to find; shows sensitivity, specificity and others with intervals, for all rows and each client",
)  # fmt: skip
@click.option(
    "--figures", metavar="FOLDER", type=FOLDER, help="draw reliability.png and decision-curve.png of --positive there"
)
@click.option("--client", metavar="NAME", help="a client's own model, on its own test rows where there is no --data")
@click.option(
    "--by", type=Value(Literal["client"]),
    help="client: each client's results at the end of the run, worst first, with the model that it would use",
)  # fmt: skip
@click.option(
    "--csv", "table", type=FILE,
    help="with --by client: a new csv file with a row for each client and evaluated round, with all its metrics",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="print everything as JSON")
def evaluate(
    run: str, out: str | None, best: bool, fitted: bool, on: On, threshold: str | None,
    per_client: bool, positive: str | None, figures: str | None, client: str | None, by: str | None,
    table: str | None, as_json: bool,
    experiment: Experiment | None,
) -> None:  # fmt: skip
    """Evaluate the model of a finished RUN on test rows or new rows.

    Without --data, these are the test rows of the run's data. With --data, they are all rows of a csv, npz or parquet
    file or a folder of images (its test rows, if it has some), or the test rows of a dataset. Rows are encoded as in
    the run. Rows with labels give metrics. Rows without labels give probabilities, printed as csv without --out.
    """
    from fedskew.config.recorded import read_run
    from fedskew.config.scoring import scores_of
    from fedskew.data.inputs import Rows, rows_of
    from fedskew.engines.trained import client_number, load_model, read_description
    from fedskew.records.decisions import parsed_rule
    from fedskew.records.files import write_atomic
    from fedskew.records.metrics import PRECISION

    for name, new in (("out", out), ("csv", table)):
        require(new is None or not Path(new).exists(), name, "be a new file", new)
    if by:
        _by_client(run, as_json, table)
        return
    require(table is None, "csv", "be used with --by client", table)
    about = read_description(Path(run))
    trained, recorded = load_model(run, best=best, client=client), read_run(run)
    for warning in _notes(recorded, about, experiment, best, client):
        note(warning)
    require(experiment is None or on == "test", "on", "be used without --data, which names the rows", on)
    require(client is None or on == "test", "on", "be test for a client's own model", on)
    deciding = any(given is not None for given in (threshold, positive, figures))
    column = trained.column_of(positive) if deciding else None
    number = None if client is None else client_number(about, client)
    chosen = threshold is not None and parsed_rule(threshold)[0] != "number"
    rule = "go with a --threshold that is a rule, and without --client"
    require(not per_client or (chosen and client is None), "per_client", rule, client or threshold)
    fed, decision = None, None
    if chosen or (experiment is None and (client is not None or deciding or on != "test")):
        trained, fed = _divided(trained, recorded, about, threshold if chosen else None)
    if threshold is not None:
        decision = trained.decide(fed, threshold, positive, fitted=fitted, client=number, per_client=per_client)
    source: Any = fed
    if experiment is not None:
        source = rows_of(experiment.data, experiment.path, trained.inputs)
        for warning in source.notes if isinstance(source, Rows) else ():
            note(warning)
    elif fed is not None and number is not None:
        source = fed.of_client(number)
    recall_at = recorded.config.get("recall_at", PRECISION)
    scores = scores_of(trained, source or _own_data(recorded, about), recall_at, fitted, on, decision)
    require(figures is None or scores.labels is not None, "figures", "be drawn of rows with labels", figures)
    metrics = None if column is None or scores.labels is None else _one_against_rest(scores, column)
    pictures = () if column is None or figures is None else _drawn(scores, column, figures)
    of_decision = _decision_notes(scores, fed if experiment is None else None, on, client)
    for warning in (*scores.notes, *_of_others(scores, about, client), *of_decision):
        note(warning)
    if out is not None:
        write_atomic(Path(out), scores.text().encode())
    if as_json:
        decided = {"decision": decision and asdict(decision), "one_against_rest": metrics} if deciding else {}
        say(json.dumps({**scores.to_json(), **decided}, indent=1))
    else:
        _say_scores(scores, out is not None)
        if metrics is not None and column is not None:
            _say_report(scores.label_names[column], decision, metrics)
    for kind, file in (*(("picture", picture) for picture in pictures), *([("scores", out)] if out else [])):
        say(f"{kind}: {file}", sys.stderr if as_json else sys.stdout)


def _one_against_rest(scores: RowScores, column: int) -> Row:
    """What decisions for a class are worth, of rows with labels."""
    from fedskew.records.decisions import report

    decision = scores.decision
    limits = decision.thresholds(scores.whose or [""] * len(scores.numbers)) if decision else None
    metrics = report(scores.labels, scores.probabilities, column, limits, scores.owners, scores.clients)
    if decision and decision.each:
        for name, client in metrics.get("clients", {}).items():
            chosen = decision.of(name)
            client["chosen"] = {"threshold": chosen.threshold, "on": chosen.client or "all clients"}
    return metrics


def _drawn(scores: RowScores, column: int, folder: str) -> tuple[Path, ...]:
    """The files of the pictures of a class, of rows with labels."""
    from fedskew.plots.decisions import draw_decision

    p, positive, decision = scores.probabilities[:, column], scores.label_names[column], scores.decision
    return draw_decision(scores.labels == column, p, folder, positive, decision.threshold if decision else None)


def _divided(trained: Trained, run: Run, about: dict[str, Any], rule: str | None = None) -> tuple[Trained, Federation]:
    """The model, and the run's own federation; a ``rule`` is chosen on its rows.

    Raises RecordError, with a rule ConfigError.
    """
    try:
        fed: Federation = _own_data(run, about, divided=True)
        # a run over Flower, or an older one, has no split on record; its configuration gives the same one again
        return trained if trained.split else replace(trained, split=fed.split), fed
    except FedskewError as error:
        if rule is None:
            raise
        where = "be a number where the run's own rows, on which a rule is chosen, cannot be read"
        raise ConfigError(f"threshold must {where}; got {rule!r}: {error}") from None


def _say_scores(scores: RowScores, written: bool) -> None:
    """Print the metrics of rows with labels, and without them the probabilities unless they are written."""
    decided = None if scores.decision is None else _decided(scores.decision)
    if scores.labels is None:
        say(f"{scores.what}: {len(scores.numbers)} rows without labels" if written else scores.text().rstrip("\n"))
        if decided is not None:
            say(decided, sys.stdout if written else sys.stderr)
        return
    say(_line(scores))
    show(_classes(scores))
    if decided is not None:
        say(f"\n{decided}")


def _own_data(run: Run, about: dict[str, Any], divided: bool = False) -> Any:
    """The dataset of the run, or its federation, made again where it is ``divided``.

    Raises RecordError where the data are not those that the run was trained on, or have no name.
    """
    from fedskew.config.experiment import load

    named = f"--data must name the rows: {str(run.folder)!r} was"
    if run.config.get("started_by") == "python":
        raise RecordError(f"{named} started from Python, and its data have no name")
    if run.config.get("own_data"):
        raise RecordError(f"{named} trained over Flower, and its nodes kept theirs")
    experiment = load(run.folder)
    data: Any = experiment.federation() if divided else experiment.data.load(experiment.path)
    was, fingerprint = about["data"]["fingerprint"], (data.dataset if divided else data).fingerprint
    if was != fingerprint:
        raise RecordError(
            f"the data must be those of the run; fingerprint was {was}, is {fingerprint}; name them with --data"
        )
    return data


def _by_client(folder: str, as_json: bool, table: str | None) -> None:
    """Print what each client would use, as the run measured it, and write every measurement to the file ``table``.

    Raises ConfigError for options that are not read then.
    """
    from fedskew.cli.tables import shown_clients
    from fedskew.config.recorded import read_run
    from fedskew.engines.trained import read_description
    from fedskew.records.clients import clients_csv, read_clients
    from fedskew.records.files import write_atomic
    from fedskew.settings import MOST_CLIENTS
    from fedskew.studies.clients import by_client

    given = [word.partition("=")[0] for word in click.get_current_context().meta[WORDS] if word.startswith("--")]
    if other := [flag for flag in given if flag not in ("--by", "--csv", "--json")]:
        raise ConfigError(f"--by must be used without {other[0]}: it shows every client on its own test rows")
    read_description(Path(folder))  # refuses what has not ended
    run = read_run(folder)
    if not (rows := read_clients(run.folder)):
        most = f"runs of at most {MOST_CLIENTS:,} clients measure them at the end, others with --clients-every"
        raise RecordError(f"the run {str(run.folder)!r} has no rows of its clients; {most}")
    labels = run.config.get("label_names", ())
    if table is not None:
        write_atomic(Path(table), clients_csv(rows, labels).encode())
        say(f"clients: {table}", sys.stderr if as_json else sys.stdout)
    measured = by_client([(run.label or run.name, "all", rows)])
    if as_json:
        say(json.dumps([client.to_json(labels) for client in measured], indent=1))
        return
    for each in shown_clients(measured, labels):
        show(each)


def _notes(
    run: Run, about: dict[str, Any], experiment: Experiment | None, best: bool, client: str | None
) -> Iterator[str]:
    """What to know before the numbers are believed: a run that stopped early, or rows that it was trained on."""
    from fedskew.data.inputs import same_file

    if run.serves != "global" and client is None:
        name = "final_served_accuracy"
        theirs = f"; theirs have {name} {run.value(name):.4f}" if math.isfinite(run.value(name)) else ""
        use = "use" if run.serves == "own" else "may use"
        whose = "a global model that nobody uses" if run.serves == "own" else "the global model"
        see = "--client scores one" if "own" in about else "--keep-own true keeps them"
        yield f"clients of {run.label} {use} models of their own, and this is {whose}{theirs}; {see}"
    if best:
        yield f"the model of round {run.summary['best']['round']}, the best by {run.summary['best']['monitor']}"
    elif reason := run.summary["stopped"]:
        whole = f"round {about['round']} of {run.config.get('rounds')}"
        yield f"the run stopped after {whole} ({reason}); its model is that of this round"
    if experiment is not None and same_file(experiment.path, run.config.get("path")):
        yield f"{experiment.path} is the run's own file, training rows too; omit --data to use only its test rows"


def _line(scores: RowScores) -> str:
    """The metrics in one line, the worst class by name."""
    from fedskew.records.metrics import METRICS

    m, names = scores.metrics, scores.label_names
    present = [c for c, rows in enumerate(m["support"]) if rows]
    worst = min(present, key=lambda c: m["per_class_recall"][c])
    parts = [
        f"{metric.title}{f' ({names[worst]})' * metric.name.startswith('worst')} {m[metric.name]:.4f}"
        for metric in METRICS
        if "line" in metric.where and m.get(metric.name) is not None
    ]
    return f"{scores.what}: {len(scores.numbers)} rows, {', '.join(parts)}"


def _classes(scores: RowScores) -> Table:
    """Rows and metrics of each class."""
    from fedskew.records.metrics import METRICS
    from fedskew.report.tables import fixed

    m = scores.metrics
    none = [None] * len(m["support"])
    shown = {metric.name: metric.title for metric in METRICS if "class table" in metric.where}
    rates = [m.get(name, none) for name in shown]
    classes = zip(scores.label_names, m["support"], *rates, strict=True)
    lines = ((name, f"{rows:,}", *(fixed(cell if rows else None) for cell in cells)) for name, rows, *cells in classes)
    return grid(("class", "rows", *shown.values()), lines, words=1)


def _of_others(scores: RowScores, about: dict[str, Any], client: str | None) -> Iterator[str]:
    """That rows of other clients are scored by a client's own model."""
    from fedskew.engines.trained import client_number, owners_of

    if client is None:
        return
    owners = owners_of(about)
    owner = owners[client_number(about, client)]
    for names in scores.beside.values():
        others = sum(name != owner for name in names)
        if others and set(names) & ({*owners.values()} - {*map(str, owners)}):  # the column has clients' names
            yield f"{others} of {len(names)} rows are not of {owner}, whose own model scores them"


# Decisions


def _decision_notes(scores: RowScores, fed: Federation | None, on: On, client: str | None) -> Iterator[str]:
    """What to know before the numbers of decisions, of other rows and of clients are believed."""
    if on == "train":
        yield "these rows trained the model, which makes their numbers too good"
    if fed is not None and on == "test" and fed.dealt:
        yield "no column says whose a test row is; a client's are dealt to it in proportion to its training rows"
    if scores.decision is None or not scores.decision.chosen_on:
        return
    from fedskew.records.decisions import FEW

    least = min(scores.decision.positives, scores.decision.rows - scores.decision.positives)
    if least < FEW:
        yield f"the threshold was chosen on {scores.decision.rows} rows, {least} of the rarer kind; it is hardly known"
    if client is not None and not scores.decision.client:
        yield f"no column says whose a {scores.decision.chosen_on} row is; it was chosen on all clients' rows"
    for name, d in scores.decision.each.items():
        if min(d.positives, d.rows - d.positives) < 2 * FEW:
            yield f"{name}: its threshold was chosen on {d.rows} rows, {d.positives} positive; it is hardly known"
    if scores.decision.each and scores.whose and (rest := sorted({*scores.whose} - {*scores.decision.each})):
        of_all = f"fewer than {FEW} {scores.decision.chosen_on} rows of either kind; the threshold of all rows decides"
        yield f"{some([name or 'rows without a client' for name in rest])}: {of_all}"
    if fed is not None and on == scores.decision.chosen_on:
        yield "the threshold was chosen on these rows, which makes their numbers too good"


def _decided(decision: Decision) -> str:
    """The threshold, and how it was chosen."""
    rule = f"threshold for {decision.positive}: p >= {decision.threshold:.6g}"
    if not decision.chosen_on:
        return rule
    rows = f"{decision.rows} {decision.chosen_on} rows{f' of {decision.client}' * bool(decision.client)}"
    clients = "".join(f"\n{name}: p >= {d.threshold:.6g}, on its own {d.rows} rows, {d.positives} of them positive"
                      for name, d in decision.each.items())  # fmt: skip
    return f"{rule}, chosen by {decision.rule} on {rows}, {decision.positives} of them positive{clients}"


def _say_report(positive: str, decision: Decision | None, metrics: Row) -> None:
    """Print sensitivity and others of all rows, then of each client's."""
    from fedskew.records.decisions import SHARES

    kinds = [kind for kind in ("argmax", "threshold") if kind in metrics]
    limits = {"argmax": "most probable class", "threshold": f"p >= {decision.threshold:.4f}" if decision else ""}
    if decision and decision.each:
        limits["threshold"] = "threshold of each client"
    heads = dict(zip(SHARES, ("sensitivity", "specificity", "PPV", "NPV"), strict=True))
    lines = ((head, *(_cell(metrics[k][share]) for k in kinds)) for share, head in {**heads, "f1": "F1"}.items())
    of_all = f"{positive}: {metrics['positives']} of {metrics['rows']} rows"
    say("")
    show(grid((of_all, *map(limits.__getitem__, kinds)), lines, words=1))
    names = {"brier": "Brier score", "ece_positive": f"ECE of p({positive})", "auroc": "AUROC", "auprc": "AUPRC"}
    say(", ".join(f"{title} {_cell(metrics[name])}" for name, title in names.items() if metrics[name]))
    notes = {note: [""] for note in metrics["notes"]}
    if metrics.get("clients"):
        view = grid(("client", "positive", "AUROC", "sensi-\ntivity", "speci-\nficity", "PPV", "NPV"), (), words=1)
        view.columns[0].min_width = 6
        if decision and decision.each:
            view.add_column("p >=", justify="right")
        for name, client in metrics["clients"].items():
            threshold = [f"{client['chosen']['threshold']:.4f}"] if "chosen" in client else []
            intervals = [client["auroc"], *(client[kinds[-1]][share] for share in SHARES)]
            cells = [f"{client['positives']:,} of {client['rows']:,}", *(_cell(metric, "\n") for metric in intervals)]
            view.add_row(name, *cells, *threshold)
            for note in client["notes"]:
                notes.setdefault(note, []).append(name)
        say("")
        show(view)
    for note, clients in notes.items():
        say(note if clients == [""] else f"{some([name or 'all rows' for name in clients])}: {note}")


def _cell(metric: Row | None, between: str = " ") -> str:
    """A value and its interval."""
    return f"{metric['value']:.4f}{between}{metric['low']:.2f}–{metric['high']:.2f}" if metric else "–"
