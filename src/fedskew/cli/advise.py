"""``fedskew advise``: what helped on the federations nearest to one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from fedskew.cli.base import TYPED
from fedskew.cli.composed import FileOrOptions
from fedskew.cli.describe import source_of
from fedskew.cli.output import say, show
from fedskew.cli.values import FILE, POSITIVE, RUN, Names

if TYPE_CHECKING:
    from fedskew.config.experiment import Experiment


EXAMPLES = (
    "fedskew advise --data digits --partition labels_k --partition.labels 3",
    "fedskew advise --from runs/fedavg",
    "fedskew advise split.npz --top 3",
)


@click.command(cls=FileOrOptions, slots=("data", "partition", "model"), fields="federation", lines=EXAMPLES)
@click.argument("file", required=False, metavar="[FILE]", type=FILE)
@click.option("--from", "source", type=RUN, help="a run folder or its config.json: its federation")
@click.option(
    "--measure", metavar="NAME", type=Names("measure of advice"), default="accuracy",
    help="a name: accuracy or macro_f1, of the last ten rounds",
)  # fmt: skip
@click.option("--top", type=POSITIVE, default=5, help="a whole number: methods to list at most")
@click.option("--json", "as_json", is_flag=True, help="print everything as JSON")
@click.pass_context
def advise(
    ctx: click.Context, file: str | None, source: str | None, measure: str, top: int,
    as_json: bool, experiment: Experiment | None,
) -> None:  # fmt: skip
    """Show what helped on the measured federations nearest to yours.

    FILE is a partition (split.npz) or a matrix of counts, a row for each client (csv, npy). Without it, the
    options describe the federation; --model, --cohort and --from also set the model and the clients of a round.
    """
    from fedskew.advice import adviser
    from fedskew.advice.table import advice_table

    typed = dict(ctx.meta[TYPED]).keys()
    model = experiment.model.name if experiment and typed & {"--model", "--from"} else None
    cohort = experiment.cohort if experiment and typed & {"--cohort", "--from"} else None
    found = adviser.advise(source_of(file, experiment), model=model, cohort=cohort, measure=measure, top=top)
    say(json.dumps(found.to_json(), indent=1)) if as_json else show(advice_table(found))
