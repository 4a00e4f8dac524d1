"""Whether a run folder is as the run wrote it: every file, every round."""

from collections.abc import Iterator
from pathlib import Path

from fedskew.errors import RecordError
from fedskew.records import digests, rounds
from fedskew.records import folder as records
from fedskew.records.files import load_tree
from fedskew.records.manifest import Manifest
from fedskew.records.typed import Row

# what other content leads to
UNLIKE = (ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError)


def troubles(folder: str | Path) -> tuple[int, list[str]]:
    """Compare every file of a run folder with its digest.

    What a kill leaves is no trouble: a torn last line, rounds after the checkpoint, temporary files.

    Args:
        folder: A run folder of format 2.

    Returns:
        (rounds that are whole, a line for each file, round or record that is not as it was written).

    Raises:
        RecordError: It is no run folder, or one of format 1, which has no digests.

    Example:
        >>> import fedskew as fs
        >>> from fedskew.records.verify import troubles
        >>> fed = fs.federate("digits", "iid", clients=5)
        >>> done = fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=2, cohort=5, out="checked-run")
        >>> troubles("checked-run")
        (2, [])
    """
    path = Path(folder)
    try:
        return _troubles(path)
    except UNLIKE as error:
        words = " ".join(str(error).split())[:120]
        return 0, [f"{path} holds something that no run writes ({type(error).__name__}: {words})"]


def _troubles(path: Path) -> tuple[int, list[str]]:
    """As `troubles`, of files that hold what a run writes."""
    if not (path / "config.json").exists():
        raise RecordError(f"{str(path)!r} must be a run folder; it has no config.json")
    try:
        vouched = Manifest.read(path)
    except RecordError as error:
        if not (path / "manifest.json").exists() and records.read(path)[0].get("format", 1) == 1:
            raise RecordError(f"{str(path)!r} is of format 1, whose files have no digests to compare with") from None
        return 0, [str(error)]
    read = rounds.scan(path / rounds.FILE, vouched.run, vouched.last)
    lines = [trouble for name in vouched.files if (trouble := vouched.trouble(name))]
    lines += [f"{path / rounds.FILE}: {read.trouble}"] if read.trouble else []
    lines += [*_of_checkpoint(path, read, vouched), *_of_features(path, read.rows)]
    return len(read.rows), lines


def _of_checkpoint(folder: Path, read: rounds.Scan, vouched: Manifest) -> Iterator[str]:
    file = folder / records.CHECKPOINT
    if not file.exists():
        return
    try:
        _, facts = load_tree(file)
    except RecordError as error:
        yield str(error)
        return
    number = facts["round"]
    if facts["run"] != vouched.run:
        yield f"{file} is the checkpoint of another run"
    elif len(read.rows) >= number and read.digest(number, vouched.run) != facts["digest"]:
        yield f"{file} does not belong to the rounds before it"


def _of_features(folder: Path, rows: list[Row]) -> Iterator[str]:
    for row in rows:
        written = row.get("diagnostics", {}).get("features", {})
        if "digest" not in written:
            continue
        file = folder / "features" / Path(written["file"]).name  # of its own folder, whatever is named
        if not file.is_file() or digests.of_file(file) != written["digest"]:
            yield f"{file}, written in round {row['round']}, {'was altered' if file.is_file() else 'is missing'}"
