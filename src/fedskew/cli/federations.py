"""``fedskew describe``, ``partition`` and ``advise``: a federation, its file, and what helped on those like it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedskew.cli.base import TYPED, CommandGroup
from fedskew.cli.composed import Beside, FileOrOptions
from fedskew.cli.output import say, show
from fedskew.cli.values import FILE, POSITIVE, RUN
from fedskew.errors import plural, require

if TYPE_CHECKING:
    from fedskew.config.experiment import Experiment


def source_of(file: str | None, experiment: Experiment | None) -> Any:
    """What is described: the FILE, or the federation that the options name."""
    if file is not None:
        return Path(file)
    assert experiment is not None
    return experiment.federation()


@click.command(
    cls=FileOrOptions,
    slots=("data", "partition"),
    fields="federation",
    lines=(
        "fedskew describe --data digits --partition dirichlet --partition.alpha 0.1",
        "fedskew describe --partition shards --clients 20 --out shards.svg",
        "fedskew describe split.npz --json",
    ),
)
@click.argument("file", required=False, metavar="[FILE]", type=FILE)
@click.option(
    "--out", metavar="PICTURE", type=FILE,
    help="a picture's file, .png, .svg or .pdf  [default: no picture]",
)  # fmt: skip
@click.option("--wide", is_flag=True, help="print all measures")
@click.option("--json", "as_json", is_flag=True, help="print numbers as JSON instead of the table")
def describe(file: str | None, out: str | None, wide: bool, as_json: bool, experiment: Experiment | None) -> None:
    """Show how skewed a federation is, as a table of one screen and, with --out, as a picture.

    FILE is a partition (split.npz) or a matrix of counts, a row for each client (csv, npy). Without it, the
    options describe the federation. Other options of `fedskew run` are accepted and ignored.
    """
    import fedskew.data.describe as words
    from fedskew.config.flags import flagged
    from fedskew.plots import canvas, skew

    path = canvas.target(out) if out else None
    source = source_of(file, experiment)
    counted = words.counted(source)
    dataset = getattr(source, "dataset", None)
    notes = [flagged(note, experiment) for note in dataset.notes] if dataset else []
    if as_json:
        say(json.dumps({**words.describe(source), "notes": notes}, indent=1))
    else:
        show(words.describe_table(source, wide=wide))
        lines = list(dataset.reading.lines()) if dataset else []
        for line in ["\nwhat was read", *lines] if lines else []:
            say(line)
        for note in notes:
            say(f"note: {note}")
    if path is not None:
        drawn = canvas.save(skew.draw(counted.counts, counted.title, counted.class_names), path)
        say(f"heat map: {drawn}", sys.stderr if as_json else sys.stdout)
    elif not as_json:
        say("`--out federation.png` draws it" + ", `--wide` shows all measures" * (not wide))


MADE = "fedskew partition make --partition shards --clients 20 --out split.npz"


@click.group(
    cls=CommandGroup, kind="action of fedskew partition",
    lines=(MADE, "fedskew partition verify split.npz --data digits"),
)  # fmt: skip
def partition() -> None:
    """Make and verify partition files; `fedskew describe FILE` shows one."""


@partition.command("make", cls=FileOrOptions, slots=("data", "partition"), fields="federation", lines=(MADE,))
@click.option("--out", type=FILE, help="a new file  [default: partition.npz]")
def _make(out: str | None, experiment: Experiment) -> None:
    """Divide a dataset over clients and write the partition to a file.

    `fedskew run METHOD --partition file --partition.path FILE` trains on it. Other options of `fedskew run` are
    accepted and ignored.
    """
    from fedskew.data.partitioners.file import save_partition

    path = Path(out or "partition.npz")
    path = path.with_suffix(path.suffix or ".npz")
    require(not path.exists(), "--out", "be a new file: runs may use the old one", str(path))
    fed = experiment.federation()
    digest = save_partition(path, fed)
    rows = plural(fed.report()["training_rows"], "row")
    beside = {"validation": fed.validation_rows, "auxiliary": fed.auxiliary_rows,
              "kept by clients for a test": fed.local_test_rows()}  # fmt: skip
    aside = "".join(f", {len(kept):,} {what}" for what, kept in beside.items() if len(kept))
    size = path.stat().st_size / 1e6
    say(f"{path}: {plural(fed.clients, 'client')}, {rows}{aside}, {size:.1f} MB, sha256 {digest[:16]}…")


@partition.command(
    "verify", cls=Beside, slots=("data",), fields="path", missing="a file",
    lines=("fedskew partition verify split.npz", "fedskew partition verify split.npz --data digits"),
)  # fmt: skip
@click.argument("file", required=False, metavar="FILE", type=FILE)
def _verify(file: str, experiment: Experiment | None) -> None:
    """Check that the partition in FILE is intact and, with --data, that it fits the dataset."""
    from fedskew.data.describe import named
    from fedskew.data.partitioners.file import verify_partition

    facts = verify_partition(file, experiment.data.load(experiment.path) if experiment else None)
    split = f"{plural(facts['clients'], 'client')}, {plural(facts['rows'], 'row')} of {facts['dataset']['name']}"
    copies = f" and {facts['shared_copies']:,} copies" * bool(facts["shared_copies"])
    how = f"{named(facts['convention'])}, seed {facts['seed']}, {split}{copies}"
    say(f"{file}: intact, sha256 {facts['sha256'][:16]}…; {how}; {facts['data']}")


@click.command(
    cls=FileOrOptions,
    slots=("data", "partition", "model"),
    fields="federation",
    lines=(
        "fedskew advise --data digits --partition labels_k --partition.labels 3",
        "fedskew advise --from runs/fedavg",
        "fedskew advise split.npz --top 3",
    ),
)
@click.argument("file", required=False, metavar="[FILE]", type=FILE)
@click.option("--from", "source", type=RUN, help="a run folder or its config.json: its federation")
@click.option(
    "--measure", metavar="NAME", default="accuracy",
    help="a name: accuracy or macro_f1, of the last ten rounds",
)  # fmt: skip
@click.option("--top", type=POSITIVE, default=5, help="a whole number: methods to list at most")
@click.option("--json", "as_json", is_flag=True, help="print everything as JSON")
@click.pass_context
def advise(
    ctx: click.Context, file: str | None, source: str | None, measure: str, top: int,
    as_json: bool, experiment: Experiment | None,
) -> None:  # fmt: skip
    """Say what follows for your federation from the measured ones nearest to it.

    That is FedAvg averaged, fitted or trained longer, or another method, and at what cost.

    FILE is a partition (split.npz) or a matrix of counts, a row for each client (csv, npy). Without it, the
    options describe the federation; --model, --cohort and --from also set the model and the clients of a round.
    """
    from fedskew.advice import adviser
    from fedskew.advice.table import advice_table

    typed = dict(ctx.meta[TYPED]).keys()
    model = experiment.model.name if experiment and typed & {"--model", "--from"} else None
    cohort = experiment.cohort if experiment and typed & {"--cohort", "--from"} else None
    advice = adviser.advise(source_of(file, experiment), model=model, cohort=cohort, measure=measure, top=top)
    say(json.dumps(advice.to_json(), indent=1)) if as_json else show(advice_table(advice))
