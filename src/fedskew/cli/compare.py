"""``fedskew compare``: a study of several methods, settings and seeds."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import click

from fedskew.cli.output import note
from fedskew.cli.studying import (
    Optioned,
    print_plan,
    run_study,
    store_of,
    store_options,
    track_options,
    trackers,
)
from fedskew.cli.values import POSITIVE, Value
from fedskew.config.words import Pair, flag_of
from fedskew.errors import ConfigError

if TYPE_CHECKING:
    from fedskew.studies.spec import Spec


EXAMPLES = (
    "fedskew compare fedavg fedla --seeds 0-1 --rounds 3 --out study",
    "fedskew compare fedavg --controls --partition.alpha 0.1,1 --rounds 3",
    "fedskew compare fedga --tune lr=log:0.01..0.3 --tune-trials 2 --rounds 3",
    "fedskew compare fedavg 'fedbal(weighting=uniform)' --seeds 0-9 --dry-run",
)
MISSING = "at least one METHOD, or a study file"
ALONE = "weights"  # what --controls alone adds
CONTROLS = {ALONE, "local", "centralised", "rounds"}
OF_FILE = ("seeds", "metric", "baseline", "controls", "tune", "tune_trials", "tune_beyond", "title")  # what a file says


class CompareCommand(Optioned):
    """Its options, and how they take several values."""

    def about(self) -> str:
        """That an option may have several values, and a method its own options."""
        return (
            f"{super().about()} Separate several values by commas to compare them (--partition.alpha 0.1,1); for "
            "options that take a list, such as --parts, use semicolons. METHOD may have options of its own in "
            "brackets: 'fedbal(weighting=uniform)'."
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """``--controls`` may stand alone, or before names of controls."""
        words, rest = list[str](), list(args)
        while rest:
            word = rest.pop(0)
            if word == "--controls":
                named = bool(rest) and not CONTROLS.isdisjoint(rest[0].split(","))
                word = f"--controls={rest.pop(0) if named else ALONE}"
            words.append(word)
        return super().parse_args(ctx, words)


@click.command(cls=CompareCommand, lines=EXAMPLES, missing=MISSING)
@click.argument("methods", nargs=-1, metavar="METHOD [METHOD ...] | STUDY.toml")
@click.option("--seeds", metavar="NUMBERS", help="seeds of every method, such as 0-4 or 0,3,7  [default: 0]")
@store_options("results/studies")
@click.option("--shard", metavar="PART/PARTS", help="only this part of the runs, for job arrays, such as 2/8")
@click.option("--retry", is_flag=True, help="repeat runs that were refused or failed")
@click.option(
    "--controls", metavar="[NAMES]",
    help="add controls: weights (FedAvg with uniform and with size weights; what --controls alone adds), local (each "
    "client alone), centralised (all rows in one place), rounds (the baseline trained for twice the rounds, or for the "
    "work of the dearest method), or several, as local,centralised",
)  # fmt: skip
@click.option(
    "--metric", metavar="NAME",
    help="entry of summary.json to compare  [default: mean10_accuracy, or mean10_served_accuracy if a method makes "
    "clients' own models only]",
)  # fmt: skip
@click.option("--baseline", metavar="METHOD", help="method that others are compared with  [default: the first]")
@click.option(
    "--fitted", is_flag=True,
    help="also show the gains averaged (mean of the last ten models), fitted (biases and a temperature) and both; the "
    "metric is then that of the last evaluation unless you give --metric",
)  # fmt: skip
@click.option(
    "--by", type=Value(Literal["client"]),
    help="also print each client's results, worst first  [default: for up to ten named clients]",
)  # fmt: skip
@click.option(
    "--tune", metavar="SPACE", help="search space, such as lr=log:0.01..0.3; tunes the methods that have these options"
)  # fmt: skip
@click.option("--tune-trials", type=POSITIVE, help="trials of each method and setting  [default: 8]")
@click.option(
    "--tune-beyond", type=POSITIVE,
    help="trials to add beyond the range while the best value is at its edge, at most  [default: 0]",
)  # fmt: skip
@click.option("--title", metavar="TEXT", help="title of the report")
@track_options
def compare(
    methods: tuple[str, ...], out: str | None, store: str | None, options: list[Pair], **given: Any
) -> int:  # fmt: skip
    """Compare methods over settings and seeds under equal conditions.

    Every method gets the same partition, initial weights, sequence of clients and order of rows. Runs in the store are
    not computed again. You can stop the command; the same command continues.
    """
    from fedskew.records.summary import fitted_name
    from fedskew.studies.archiving import reuse_archived
    from fedskew.studies.study import Study, shard_of

    tracking = trackers(given["track"], given["track_folder"])
    spec = _spec(methods, options, given)
    if given["fitted"]:
        fitted_name(spec.metric)  # a metric without a fitted form is told before the runs are made
    if given["seeds"] and len(spec.seeds) == 1:
        note(f"--seeds {given['seeds']} is one seed, which gives no interval; 0-4 are five")
    study = Study(spec, store_of(store))
    part = shard_of(given["shard"]) if given["shard"] else (1, 1)
    processes = given["processes"] or 0
    reuse_archived(study, given["archives"], not given["dry_run"], note)
    if given["dry_run"]:
        return print_plan(study, processes)
    command = _command(methods, options, given)
    beside = tracking, given["fitted"] or spec.longer, given["by"]
    return run_study(study, processes, part, given["retry"], out, command, *beside)


def _spec(methods: Sequence[str], rest: Sequence[Pair], given: dict[str, Any]) -> Spec:
    """The study that the words name. Raises ConfigError."""
    from dataclasses import replace

    from fedskew.fields import deciding
    from fedskew.settings import Settings
    from fedskew.studies.arguments import full, seeds_of
    from fedskew.studies.shipped import shipped
    from fedskew.studies.spec import instead, read_spec, spec_from, tuning_of

    file = shipped(methods[0]) or (methods[0] if methods[0].endswith(".toml") else None)
    if file:
        where = deciding(Settings, "bits", "nothing")
        elsewhere = [pair for pair in rest if re.sub("[-.]", "_", full(pair[0])) in where]
        beside = [*methods[1:], *(f"--{pair[0]}" for pair in rest if pair not in elsewhere)]
        named = [flag_of(name) for name in OF_FILE if given[name] and name != "seeds"]
        if beside or named:
            words = " ".join([*beside, *named])
            raise ConfigError(
                "a study file must be used alone, or with --seeds and options of where to run it, such as --device; "
                f"got {words!r}"
            )
        spec = instead(read_spec(file), elsewhere)
        return replace(spec, seeds=seeds_of(given["seeds"])) if given["seeds"] else spec
    facts: dict[str, Any] = {n: given[n] for n in ("metric", "baseline", "title") if given[n]}
    if given["tune"]:
        facts["tuning"] = tuning_of(given["tune"], given["tune_trials"] or 8, beyond=given["tune_beyond"] or 0)
    elif alone := next((n for n in ("tune_trials", "tune_beyond") if given[n]), None):
        raise ConfigError(f"{flag_of(alone)} must be used with --tune")
    if several := next((m for m in methods if "," in m and "(" not in m), ""):
        raise ConfigError(f"METHOD must be one name; got {several!r}; write {' '.join(several.split(','))}")
    seeds = seeds_of(given["seeds"] or "0")
    spec = spec_from(methods, rest, seeds=seeds, controls=given["controls"] or False, **facts)
    if given["fitted"] and not given["metric"]:  # the last model is fitted, no other
        return replace(spec, metric=spec.metric.replace("mean10_", "final_"))
    return spec


def _command(methods: Sequence[str], rest: Sequence[Pair], given: dict[str, Any]) -> str:
    """The command that repeats the study."""
    from fedskew.studies.arguments import words_of

    words = ["fedskew", "compare", *methods, *words_of(rest)]
    for name in OF_FILE:
        if value := given[name]:
            words += [flag_of(name), *([] if value == ALONE else [str(value)])]
    words += [*["--fitted"] * given["fitted"], *(["--by", given["by"]] if given["by"] else [])]
    return shlex.join(words)
