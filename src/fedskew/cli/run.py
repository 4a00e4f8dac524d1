"""``fedskew run``: train a method and record the run."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedskew.cli.base import WORDS
from fedskew.cli.composed import Composed
from fedskew.cli.output import note, say
from fedskew.cli.studying import track_options, trackers
from fedskew.cli.values import FOLDER, RUN
from fedskew.config.words import SHORT, Pair, flag_of, scan
from fedskew.errors import ConfigError, FieldError

if TYPE_CHECKING:
    from fedskew.config.experiment import Experiment


EXAMPLES = (
    "fedskew run fedavg --partition.alpha 0.1 --rounds 20 --out runs/fedavg",
    "fedskew run scaffold --parts proximal --rounds 20 --out runs/mixed",
    "fedskew run --from runs/fedavg --seed 1 --out runs/again",
    "fedskew run --resume runs/fedavg",
    "fedskew run --resume runs/fedavg --rounds 30",
    "fedskew run fedbal --help",
)


class RunCommand(Composed):
    """``--resume RUN`` stands alone, or beside what ends a run or says where it is: its own record decides the rest."""

    def experiment(self, positional: list[str], options: list[Pair], given: dict[str, Any]) -> Experiment | None:
        """The run's own experiment where one is resumed. Raises ConfigError where other words stand beside it."""
        if "--resume" not in given:
            return super().experiment(positional, options, given)
        from fedskew.config.experiment import load, repeatable
        from fedskew.config.flags import with_flags
        from fedskew.config.schema import Config
        from fedskew.fields import resumed
        from fedskew.records.folder import insist_on_run
        from fedskew.records.typed import object_of
        from fedskew.settings import Settings

        new = map(flag_of, resumed(Settings, "new"))
        beside = [*(SHORT.get(flag, flag) for flag in new), "--track", "--track.folder"]
        others = {flag: value for flag, value in given.items() if SHORT.get(flag, flag) not in ("--resume", *beside)}
        if others or positional:
            rule = f"be used alone, or with {', '.join(beside)}: the run's config.json decides the rest"
            raise ConfigError(f"--resume must {rule}; got {' '.join([*positional, *chain(*others.items())])!r}")
        folder = Path(given["--resume"])
        insist_on_run(folder, "--resume")
        experiment = load(folder / "config.json")
        if (recorded := object_of(folder / "config.json", Config)).get("started_by") == "flower":
            hint = "`sh run.sh` in the folder of its app does"
            raise ConfigError(f"--resume cannot continue a run over Flower, whose nodes keep their memory; {hint}")
        repeatable(recorded, str(folder))
        far = [flag for flag, _ in options if flag.startswith("--ray")]
        if far and experiment.engine != "ray":
            raise ConfigError(f"{far[0]} must go with a run of the engine ray; {folder} is one of {experiment.engine}")
        return with_flags(experiment, options)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Whose options this page lists comes first where no METHOD and no run to begin from says it."""
        pairs = scan(ctx.meta.get(WORDS, []), self.bare)
        if not any(flag == "--from" or not (flag or (word or "-").startswith("-")) for flag, word in pairs):
            with formatter.section("You gave no METHOD, so these are the options of fedavg"):
                formatter.write_text("`fedskew run METHOD --help` lists those of another method.")
        super().format_help_text(ctx, formatter)


@click.command(cls=RunCommand, lines=EXAMPLES)
@click.argument("method", required=False, metavar="METHOD")
@click.option("--out", type=FOLDER, help="a folder for the record  [default: runs/METHOD-HASH]")
@click.option(
    "--from", "source", type=RUN,
    help="a run folder or its config.json: the same run again, with the changes of other options",
)  # fmt: skip
@click.option(
    "--resume", type=RUN,
    help="a run folder: continue after its last checkpoint; --rounds adds rounds, --ray.address "
    "names another cluster",
)  # fmt: skip
@track_options
def run(
    method: str | None, out: str | None, source: str | None, resume: str | None, track: str | None,
    track_folder: str | None, experiment: Experiment,
) -> int:  # fmt: skip
    """Train METHOD on a federation and record the run in a folder.

    METHOD and the names of --data, --server, --parts and so on decide which options exist. This page lists the options
    of the composition on the command line; `fedskew datasets`, `fedskew partitions`, `fedskew models` and `fedskew
    methods` explain the names.
    """
    from fedskew.cli.progress import report, run_progress
    from fedskew.config.experiment import new_folder
    from fedskew.config.flags import flagged
    from fedskew.track import several

    tracking = trackers(track, track_folder)
    folder = Path(resume or out or "")
    if resume and (done := _report_finished(experiment, folder)) is not None:
        return done
    if not (resume or out):
        folder = new_folder(experiment)
    for text in [*_unused(experiment), *(_renewed(source, experiment) if source else ())]:
        note(text)
    with run_progress(experiment.method.name, experiment.rounds) as shown:
        on_note = lambda text: note(flagged(text, experiment))
        on_round = several(shown, *(tracking.made() if tracking else ()))
        result = experiment.run(folder, resume=resume is not None, on_round=on_round, on_note=on_note)
    return report(experiment.method, result.summary, folder, result.stopped)


def _report_finished(experiment: Experiment, folder: Path) -> int | None:
    """Say of a run that is resumed that it has nothing left to do, and what it reached; None where it goes on."""
    from fedskew.cli.progress import report
    from fedskew.config.recorded import finished, read_run

    if not finished(folder, experiment.rounds, experiment.patience):
        return None
    run = read_run(folder)
    config, rows, summary = run.config, run.rows, run.summary
    asked = config["rounds"]
    if experiment.rounds < len(rows):
        raise FieldError("Settings", "rounds", f"be at least {len(rows)}, the completed rounds", experiment.rounds)
    best = summary.get("best", {})
    if best.get("stopped_early"):
        why = f"{best['monitor']} was best in round {best['round']} of {len(rows)}"
        done = f"{why}, and did not improve for {config['patience']} evaluations"
        more = f"`fedskew run --resume {folder} --patience {2 * config['patience']}` continues it"
    else:
        done = f"all {asked} rounds are done" if asked > 1 else "its round is done"
        more = f"`fedskew run --resume {folder} --rounds {2 * asked}` adds {asked}"
    say(f"{folder} is finished: {done}; {more}")
    return report(experiment.method, summary, folder)


def _renewed(source: str, experiment: Experiment) -> list[str]:
    """That a run which is begun again by ``--from`` had another formula."""
    from fedskew.config.experiment import renewed
    from fedskew.errors import json_file

    file = Path(source)
    change = renewed(json_file(file / "config.json" if file.is_dir() else file), experiment)
    return [f"--from {source}: it has {change}"] if change else []


def _unused(experiment: Any) -> list[str]:
    """What was asked for and nothing reads: said, not refused, since runs that are compared share their options."""
    method, notes = experiment.method, []
    if experiment.auxiliary and not any(c.auxiliary for c in method.components):
        rows = "the server's rows are taken from the training set but not used"
        notes.append(f"--auxiliary {experiment.auxiliary}: {method.name} does not read them; {rows}")
    if experiment.personal_every and not method.personal:
        notes.append(f"--eval.personal {experiment.personal_every}: {method.name} has no models of the clients' own")
    split = (experiment.partition, getattr(experiment.partition, "base", None))
    owners = getattr(experiment.data, "columns", None)
    if owners and isinstance(owners, str) and not any(hasattr(partitioner, "column") for partitioner in split):
        notes.append(f"--data.columns {owners}: {split[0].name} does not read them; --partition natural does")
    return notes
