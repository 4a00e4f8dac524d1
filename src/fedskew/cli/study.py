"""``fedskew study``: studies written as archives, stores merged, and runs verified by repeating some of them."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import click

from fedskew.cli.base import Command, CommandGroup
from fedskew.cli.output import say
from fedskew.cli.values import FILE, FOLDER, POSITIVE, Value
from fedskew.errors import ConfigError, plural
from fedskew.fields import AtLeast

if TYPE_CHECKING:
    from fedskew.studies.repeating import Repeated


VERDICTS = {  # said of a run, and of several after their number
    "bits": ("agrees to the bit", "to the bit"), "near": ("agrees within 1e-6", "within 1e-6"),
    "differs": ("DIFFERS", "differ"), "failed": ("NOT REPEATED", "not repeated"),
}  # fmt: skip
STORED = "a study or a store"


@click.group(
    "study", cls=CommandGroup, kind="action of fedskew study",
    lines=("fedskew study archive study --out study.jsonl.xz", "fedskew study merge study.jsonl.xz --into runs/store"),
)  # fmt: skip
def study() -> None:
    """Write studies as archives, merge archives and stores, and verify runs by repeating some of them."""


@study.command(
    "archive", cls=Command, missing=STORED, lines=("fedskew study archive study --out results/studies/mine.jsonl",)
)
@click.argument("place", required=False, metavar="STUDY|STORE", type=FOLDER)
@click.option("--out", type=FILE, help="the archive, which is replaced; one that ends in .xz is compressed")
@click.option("--points", type=POSITIVE, default=25, help="a whole number: most rounds to keep of each run")
def archive(place: str, out: str | None, points: int) -> None:
    """Write the finished runs of a study as one file, one line a run, without weights.

    `fedskew compare` reads every archive in results/studies of the current folder (or --archives) and does not compute
    these runs again. `fedskew study merge` brings them into a store.
    """
    from pathlib import Path

    from fedskew.studies.archiving import write

    if out is None:
        raise ConfigError("--out must name the file, such as results/studies/mine.jsonl")
    count, size = write(place, out, points), Path(out).stat().st_size
    say(f"{plural(count, 'run')} in {out}, {f'{size / 1e6:.1f} MB' if size >= 1e5 else f'{size / 1e3:.1f} kB'}")


@study.command(
    "merge", cls=Command, missing="at least one STORE or ARCHIVE",
    lines=("fedskew study merge results/studies/mine.jsonl --into theirs",),
)  # fmt: skip
@click.argument("places", nargs=-1, metavar="STORE|ARCHIVE [STORE|ARCHIVE ...]", type=FOLDER)
@click.option("--into", metavar="STORE", type=FOLDER, help="the store for the runs, created if missing")
def merge(places: tuple[str, ...], into: str | None) -> int:
    """Copy the runs of stores and archives into another store, each address once.

    Every copy of a run folder is compared with its digests. If a run's numbers differ from those of the same address in
    the other store, the run is named and not copied, and the exit code is 2. All other runs are copied.
    """
    from pathlib import Path

    from fedskew.studies.lines import files_of
    from fedskew.studies.merging import existing, merge
    from fedskew.studies.store import Store

    if into is None:
        raise ConfigError("--into must name the store that gets the runs")
    sources = [place if files_of(place := Path(name))[0].is_file() else existing(name) for name in places]
    merged = merge(sources, Store(into))
    for why in merged.refused.values():
        say(f"fedskew: refused: {why}", sys.stderr)
    added, there, refused = (len(runs) for runs in (merged.added, merged.there, merged.refused))
    say(f"{into}: {plural(added, 'run')} added, {there} were there, {refused} refused")
    return 2 if merged.refused else 0


@study.command(
    "verify", cls=Command, missing="a study, a store or an archive", lines=("fedskew study verify study --sample 2",)
)
@click.argument("place", required=False, metavar="STUDY|STORE|ARCHIVE", type=FOLDER)
@click.option("--sample", type=POSITIVE, default=5, help="a whole number: runs to repeat")
@click.option(
    "--seed", type=Value(Annotated[int, AtLeast(0)]), default=0,
    help="a whole number: seed of the sample",
)  # fmt: skip
@click.option(
    "--processes", type=POSITIVE, help="worker processes, one thread each  [default: one per core; on a GPU 4]"
)
def verify(place: str, sample: int, seed: int, processes: int | None) -> int:
    """Repeat a random sample of runs, and compare every number of their summaries except times.

    The runs are repeated from their recorded configuration in a temporary store. Another processor may round
    differently: agreement within 1e-6 is reported as such. The exit code is 1 if a run does not agree.
    """
    from fedskew.studies import repeating
    from fedskew.studies.archiving import runs_of

    entries = runs_of(place)
    drawn = repeating.sample(entries, sample, seed)
    if not drawn:
        raise ConfigError(f"{place!r} must hold a finished run")
    say(f"repeating {len(drawn)} of {plural(len(entries), 'run')}")
    repeated = repeating.repeat(drawn, processes or 0, _print_repeated)
    counts = Counter(outcome.verdict for outcome in repeated)
    say(", ".join(f"{counts[verdict]} {words}" for verdict, (_, words) in VERDICTS.items() if counts[verdict]))
    return int(any(outcome.verdict in ("differs", "failed") for outcome in repeated))


def _print_repeated(outcome: Repeated) -> None:
    run = outcome.run
    words = f"; {outcome.words}" if outcome.words else ""
    say(f"{run.address} {run.label}, seed {run.config.get('seed')}: {VERDICTS[outcome.verdict][0]}{words}")
