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
    """Pack studies as files, merge stores of runs, and verify runs by repeating some of them."""


@study.command(
    "archive", cls=Command, missing=STORED, lines=("fedskew study archive study --out results/studies/mine.jsonl",)
)
@click.argument("place", required=False, metavar="STUDY|STORE", type=FOLDER)
@click.option("--out", type=FILE, help="the archive, which is replaced; one that ends in .xz is compressed")
@click.option("--points", type=POSITIVE, default=25, help="a whole number: most rounds to keep of each run")
def archive(place: str, out: str | None, points: int) -> None:
    """Write the finished runs of a study as one file, one line a run, without weights.

    `fedskew compare` reads every archive in results/studies of the current folder (or --archives) and does not compute
    these runs again. If the archive is compressed by `fedskew study pack`, the new runs alone are written beside it.
    """
    from pathlib import Path

    from fedskew.studies.packing import write

    if out is None:
        raise ConfigError("--out must name the file, such as results/studies/mine.jsonl")
    count = write(place, out, points)
    say(f"{plural(count, 'run')} in {out}, {_size(Path(out).stat().st_size)}" if count else f"{out}.xz has all runs")


@study.command(
    "pack", cls=Command, missing="a study, a store or an archive",
    lines=("fedskew study pack study --out study.zip", "fedskew study pack results/studies/mine.jsonl"),
)  # fmt: skip
@click.argument("place", required=False, metavar="STUDY|STORE|ARCHIVE", type=FOLDER)
@click.option("--out", type=FILE, help="the zip file, not for an ARCHIVE  [default: study.zip]")
@click.option("--whole", is_flag=True, help="include whole run folders, with weights and every round")
def pack(place: str, out: str | None, whole: bool) -> None:
    """Write the runs of a study as one zip file with digests, or compress an archive.

    STUDY is a folder with study.json, as `fedskew compare --out` writes it; for a STORE, all runs are packed.
    Unfinished runs are left out. The file holds configuration, summary, environment and at most 100 rounds of each run.

    ARCHIVE is a file of `fedskew study archive`, such as mine.jsonl. Its runs go into mine.jsonl.xz, beside those that
    are there, and the text is removed. `fedskew compare` reads both. Later runs go to a new mine.jsonl, until it is
    packed, too. If both files have a run and its numbers differ, nothing is written.
    """
    from pathlib import Path

    from fedskew.studies.lines import PACKED, TEXT
    from fedskew.studies.packing import compress, pack

    if place.endswith((TEXT, PACKED)) and not Path(place).is_dir():
        if out or whole:
            raise ConfigError(f"--{'out' if out else 'whole'} must be left out with an archive; got {place!r}")
        count, written = compress(place)
    else:
        written = Path(out or "study.zip")
        count = pack(place, written, whole)
    say(f"{plural(count, 'run')} in {written}, {_size(written.stat().st_size)}")


@study.command("unpack", cls=Command, missing="a zip file", lines=("fedskew study unpack study.zip --into theirs",))
@click.argument("file", required=False, metavar="ZIP", type=FILE)
@click.option("--into", metavar="STORE", type=FOLDER, help="the store for the runs, created if missing")
def unpack(file: str, into: str | None) -> int:
    """Check a zip file of `fedskew study pack`, and merge its runs into a store.

    Names, lengths and digests are compared with the manifest before anything reaches the store.
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
@click.option("--into", metavar="STORE", type=FOLDER, help="the store for the runs, created if missing")
def merge(stores: tuple[str, ...], into: str | None) -> int:
    """Copy the runs of stores into another store, each address once.

    Every copy is compared with its digests. If a run's numbers differ from those of the same address in the other
    store, the run is named and not copied, and the exit code is 2. All other runs are copied.
    """
    from fedskew.studies.merging import existing, merge
    from fedskew.studies.store import Store

    if into is None:
        raise ConfigError("--into must name the store that gets the runs")
    sources = [existing(store) for store in stores]
    return _print_merged(merge(sources, Store(into)), into)


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
    from fedskew.studies.packing import runs_of

    entries = runs_of(place)
    drawn = repeating.sample(entries, sample, seed)
    if not drawn:
        raise ConfigError(f"{place!r} must hold a finished run")
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
