"""``fedskew study``: stores merged, handed on as one file, and verified by repeating some of their runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import click

from fedskew.cli.base import Command, Group
from fedskew.cli.output import say
from fedskew.cli.values import FILE, FOLDER, POSITIVE, Value
from fedskew.errors import ConfigError, plural
from fedskew.fields import AtLeast

if TYPE_CHECKING:
    from fedskew.studies.merging import Merged
    from fedskew.studies.repeating import Repeated

__all__ = ["study"]

VERDICTS = {
    "bits": "agrees to the bit",
    "near": "agrees within 1e-6",
    "differs": "DIFFERS",
    "failed": "NOT REPEATED",
}
COUNTED = {"bits": "to the bit", "near": "within 1e-6", "differs": "differ", "failed": "not repeated"}
STORED = "a study or a store"


@click.group(
    "study", cls=Group, kind="action of fedskew study",
    lines=("fedskew study pack study --out study.zip", "fedskew study unpack study.zip --into theirs"),
)  # fmt: skip
def study() -> None:
    """Hand a study on as one file, merge stores of runs, and verify records by repeating some of them."""


@study.command("pack", cls=Command, missing=STORED, lines=("fedskew study pack study --out study.zip",))
@click.argument("place", required=False, metavar="STUDY|STORE", type=FOLDER)
@click.option("--out", type=FILE, default="study.zip", help="the zip file")
@click.option("--whole", is_flag=True, help="put whole run folders into it, with weights and every round")
def pack(place: str, out: str, whole: bool) -> None:
    """Write the runs of a study as one zip file with a digest of everything in it.

    STUDY is a folder with study.json, as `fedskew compare --out` writes it; of a STORE, all runs are packed. Runs that
    have not ended are left out. Of each run it holds configuration, summary, environment and at most 100 rounds.
    """
    from pathlib import Path

    from fedskew.studies.packing import pack

    count = pack(place, out, whole)
    say(f"{plural(count, 'run')} in {out}, {_size(Path(out).stat().st_size)}")


@study.command(
    "archive", cls=Command, missing=STORED, lines=("fedskew study archive study --out results/studies/mine.jsonl",)
)
@click.argument("place", required=False, metavar="STUDY|STORE", type=FOLDER)
@click.option("--out", type=FILE, help="the archive; what it held is replaced")
@click.option("--points", type=POSITIVE, default=25, help="a whole number: rounds that are kept of each run, at most")
def archive(place: str, out: str | None, points: int) -> None:
    """Write the finished runs of a study as one file to keep beside the code: one line a run, without weights.

    `fedskew compare` finds runs in results/studies/*.jsonl of the current folder, or where --archives says, and does
    not compute them again.
    """
    from pathlib import Path

    from fedskew.studies.archives import write

    if out is None:
        raise ConfigError("--out must name the file, such as results/studies/mine.jsonl")
    count = write(place, out, points)
    say(f"{plural(count, 'run')} in {out}, {_size(Path(out).stat().st_size)}")


@study.command("unpack", cls=Command, missing="a zip file", lines=("fedskew study unpack study.zip --into theirs",))
@click.argument("file", required=False, metavar="ZIP", type=FILE)
@click.option("--into", metavar="STORE", type=FOLDER, help="the store that gets the runs; made where there is none")
def unpack(file: str, into: str | None) -> int:
    """Check a zip file of `fedskew study pack`, and merge its runs into a store.

    A name, a length or a digest that is not as its manifest says is refused before anything reaches the store.
    """
    from fedskew.studies.packing import unpack

    if into is None:
        raise ConfigError("--into must name the store that gets the runs")
    merged, written = unpack(file, into)
    if written:
        say(f"study: {written}")
    return _print_merged(merged, into)


@study.command(
    "merge", cls=Command, missing="at least one STORE", lines=("fedskew study merge theirs --into runs/store",)
)
@click.argument("stores", nargs=-1, metavar="STORE [STORE ...]", type=FOLDER)
@click.option("--into", metavar="STORE", type=FOLDER, help="the store that gets the runs; made where there is none")
def merge(stores: tuple[str, ...], into: str | None) -> int:
    """Copy the runs of stores into another one, each address once.

    Every copy is compared with its digests. A run whose numbers differ from those of the same address in the other
    store is named and not copied; the exit code is then 2, and all other runs are there.
    """
    from fedskew.studies.merging import existing, merge
    from fedskew.studies.store import Store

    if into is None:
        raise ConfigError("--into must name the store that gets the runs")
    sources = [existing(store) for store in stores]
    return _print_merged(merge(sources, Store(into)), into)


@study.command("verify", cls=Command, missing=STORED, lines=("fedskew study verify study --sample 2",))
@click.argument("place", required=False, metavar="STUDY|STORE", type=FOLDER)
@click.option("--sample", type=POSITIVE, default=5, help="a whole number: runs to repeat")
@click.option(
    "--seed", type=Value(Annotated[int, AtLeast(0)]), default=0,
    help="a whole number: it decides which runs are drawn",
)  # fmt: skip
@click.option("--processes", type=POSITIVE, help="worker processes, one thread each  [default: a core]")
def verify(place: str, sample: int, seed: int, processes: int | None) -> int:
    """Repeat a random handful of runs, and compare every number of their summaries but the times.

    The runs are repeated from their recorded configuration in a store that is thrown away. Another processor may round
    otherwise: what agrees within 1e-6 is said to. The exit code is 1 where a run does not agree.
    """
    from fedskew.studies import repeating
    from fedskew.studies.packing import runs_of

    entries = runs_of(place)
    drawn = repeating.sample(entries, sample, seed)
    if not drawn:
        raise ConfigError(f"{place!r} must hold a run that has ended")
    say(f"repeating {len(drawn)} of {plural(len(entries), 'run')}")
    found = repeating.repeat(drawn, processes or 0, _print_repeated)
    counts = {words: sum(one.verdict == verdict for one in found) for verdict, words in COUNTED.items()}
    say(", ".join(f"{count} {words}" for words, count in counts.items() if count))
    return int(any(one.verdict in ("differs", "failed") for one in found))


def _print_repeated(one: Repeated) -> None:
    run = one.run
    words = f"; {one.words}" if one.words else ""
    say(f"{run.address} {run.label}, seed {run.config.get('seed')}: {VERDICTS[one.verdict]}{words}")


def _print_merged(done: Merged, into: str) -> int:
    """Say what a merge did; the exit code."""
    for why in done.refused.values():
        say(f"fedskew: refused: {why}", sys.stderr)
    say(f"{into}: {plural(len(done.added), 'run')} added, {len(done.there)} were there, {len(done.refused)} refused")
    return 2 if done.refused else 0


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"
