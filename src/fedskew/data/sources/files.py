"""Where datasets are searched for, and checks that the content is the published one."""

import hashlib
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedskew.data.arrays import Dataset
from fedskew.data.encoding import value_of
from fedskew.errors import ConfigError, DataError, FedskewError, FieldError, claim, closest, one_line, require, some

SPLITS = {
    "train": "training", "training": "training", "test": "test", "testing": "test",
    "val": "validation", "valid": "validation", "validation": "validation",
}  # fmt: skip
TRAINING = re.compile(r"(?i)(?<![a-z])train(ing)?(set|data(set)?|images?|imgs?|split|files?)?(?![a-z])")


class SplitFacts(NamedTuple):
    """Published facts of one split."""

    rows: int
    digest: str = ""  # see rows_digest; empty: not known
    labels: str = ""  # md5 of the labels as bytes in the official order
    inexact: tuple[int, ...] = ()  # rows left out of the digest: they differ between public copies
    proven: bool = True  # False: the digest is of a copy that was not checked against the official files
    counts: tuple[int, ...] = ()  # published rows of each class, compared where no digest is known


BothSplits = tuple[SplitFacts, SplitFacts]  # training, test


def listed(names: str | None) -> list[str]:
    """The names in a comma-separated option."""
    return [name.strip() for name in (names or "").split(",") if name.strip()]


def with_options(kind: Any, what: str, options: Mapping[str, Any]) -> Any:
    """A source with these options. Raises ConfigError for one that it does not have, or that breaks a rule."""
    known = [field.name for field in fields(kind)]
    for option in options:
        if option not in known:
            raise ConfigError(f"{what} has no option {option!r}{closest(option, known)}")
    return kind(**options)


def paired(text: str) -> dict[str, str]:
    """The values by name in a comma-separated option, as in age=number,ward=category; "" for a name alone."""
    return {name.strip(): value.strip() for name, _, value in (entry.partition("=") for entry in listed(text))}


def insist_on_names(options: Any, field: str, rule: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise FieldError, with a suggestion, unless all names that a field of options gives are known."""
    for name in given:
        if name not in known:
            raise FieldError(type(options).__name__, field, rule, name, closest(name, known).removeprefix("; "))


def insist_on_different(what: object, names: Sequence[str], things: str = "columns") -> None:
    """Raise DataError for two columns, or other things, of one name."""
    repeats = [name for name, times in Counter(names).items() if times > 1]
    claim(not repeats, what, f"have {things} of different names", f"{some([*map(repr, repeats)])} twice", "rename one")


@contextmanager
def reading(what: object, fault: str) -> Iterator[None]:
    """Say in one line what cannot be read: of a damaged file any element can fail, in any way."""
    try:
        yield
    except (FedskewError, MemoryError):  # a machine short of memory says nothing of the file
        raise
    except Exception as error:
        raise DataError(f"{what} {fault}: {one_line(str(error) or type(error).__name__)}") from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file to write, which then takes the place of `path`; after an error there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.", suffix=".part")
    os.close(handle)
    try:
        yield Path(name)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def altered(files: Sequence[Path], why: str) -> DataError:
    """The error for files that are not the published ones."""
    first, more = list(map(str, files))[:6], " and more" * (len(files) > 6)
    return DataError(f"{', '.join(first)}{more}: {why}; for files of your own in this format set verify to false")


def places(path: str | None, folders: Sequence[str]) -> list[Path]:
    """Existing places to search for a dataset.

    Args:
        path: Root given by the user; None takes $FEDSKEW_DATA.
        folders: Names of subfolders to search before the root.

    Returns:
        Existing subfolders, then the root; empty without a root.

    Raises:
        DataError: The root does not exist.
    """
    given = path or os.environ.get("FEDSKEW_DATA")
    if not given:
        return []
    root = Path(given).expanduser()
    claim(root.exists(), "path" if path else "FEDSKEW_DATA", "name a folder or file that exists", f"'{given}'")
    inner = [root / name for name in folders] if root.is_dir() else []
    return [p for p in (*inner, root) if p.exists()]


def absent(name: str, path: str | None, download: str = "") -> DataError:
    """The error for a dataset that is nowhere; `download` adds what to do about the hub."""
    root = path or os.environ.get("FEDSKEW_DATA")
    where = f"'{root}'" if root else "any folder (FEDSKEW_DATA is not set)"
    return DataError(f"dataset {name!r} was not found in {where}; set FEDSKEW_DATA or --data.path{download}")


def given_file(name: str, path: str | None) -> Path:
    """The path as given; sources of a user's own files search nowhere else."""
    require(bool(path), "path", f"name the file of dataset {name!r}", path or "")
    return places(path, ())[0]


def together(folder: Path, names: Sequence[Sequence[str]]) -> tuple[Path, ...]:
    """Files of a folder that belong together.

    Args:
        folder: The folder.
        names: Alternative names of each file.

    Returns:
        The first existing file of each group; empty if all are absent.

    Raises:
        DataError: Some files are there and some are missing.
    """
    files = [next((folder / n for n in group if (folder / n).is_file()), None) for group in names]
    lacking = [group[0] for group, file in zip(names, files, strict=True) if file is None]
    claim(len(lacking) in (0, len(names)), folder, f"have all files of the dataset; it lacks {some(lacking)}")
    return tuple(file for file in files if file is not None)


def by_split(places: Iterable[Path]) -> dict[str, Path]:
    """The files or folders that have the name of a split, in any case. Raises DataError for two of one split."""
    splits: dict[str, Path] = {}
    for place in places:
        name = place.stem if place.is_file() else place.name
        if (split := SPLITS.get(name.casefold())) and (other := splits.setdefault(split, place)) != place:
            raise DataError(f"{place.parent} must have one {split} set; got {other.name}, {place.name}")
    return splits


def holds_training(names: Iterable[str]) -> bool:
    """Whether a name tells of a training set, as seg_train, trainset and TrainData do: then the names are of splits."""
    return any(TRAINING.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)) for name in names)


def files_of(folder: Path, ending: str) -> list[Path]:
    """The files of a folder with an ending in any case, sorted by name; none that is hidden."""
    return sorted(f for f in folder.glob("[!.]*") if f.suffix.lower() == ending and f.is_file())


def splits_of(place: Path, ending: str) -> tuple[list[list[Path]], bool]:
    """The files of a user's own at a place.

    A folder has a training file and, optionally, a test file, named as splits. Else each file is a client: in the
    folder itself, or in its subfolders train and, optionally, test.

    Args:
        place: A file, or a folder.
        ending: Ending of the files, such as ".csv".

    Returns:
        ([training files] or [training files, test files], sorted by name; whether each file is a client).

    Raises:
        DataError: There is no file, only the subfolder test has some, names are those of splits, or files lie in both.
    """
    if place.is_file():
        return [[place]], False
    files, inner = files_of(place, ending), by_split(sorted(f for f in place.glob("*") if f.is_dir()))
    if "training" in (parted := by_split(files)):
        return [[parted[name]] for name in ("training", "test") if name in parted], False
    train, test = (files_of(inner[name], ending) if name in inner else [] for name in ("training", "test"))
    got, hint = some([file.name for file in files]), "name the splits train and test, or the clients otherwise"
    named = not parted and not holds_training(f.stem for f in files)
    claim(named, place, "have one file a client, named as the client", got, hint)
    got += f" beside {', '.join(sorted({file.parent.name for file in train + test}))}"
    claim(not files or not train + test, place, "have files of clients, or folders train and test, not both", got)
    claim(train or not test, place, f"have files train/*{ending} beside test/*{ending}")
    rule = f"name a {ending[1:]} file, or a folder with train{ending} or one {ending[1:]} file a client"
    claim(files or train, "path", rule, f"'{place}'")
    insist_on_different(place, [value_of(file.stem.strip()) for file in files or train], "files of clients")
    return [group for group in (files or train, test) if group], True


def beside(data: Dataset, place: Path) -> Dataset:
    """The dataset whose account counts the files of the folder that were not read, as those for validation."""
    read = {Path(name) for name, _ in data.reading.files}
    others = [*place.glob("[!.]*"), *place.glob("[!.]*/[!.]*")] if place.is_dir() else []
    count = sum(file.is_file() and file not in read for file in others)
    left_out = (("beside those that are read", count),) if count else ()
    return replace(data, reading=replace(data.reading, left_out=left_out))


def md5_of(content: bytes | memoryview | np.ndarray) -> str:
    """md5 as hex digits: a checksum of published files, not a defence."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()  # type: ignore[arg-type]


def rows_digest(x: np.ndarray, y: np.ndarray) -> str:
    """Checksum of rows in any order: the md5 of the sorted md5s of the rows (bytes of x[i], then the label's byte)."""
    marks = []
    for row, label in zip(x.reshape(len(x), -1), y.astype(np.uint8), strict=True):
        mark = hashlib.md5(row.tobytes(), usedforsecurity=False)
        mark.update(bytes([label]))
        marks.append(mark.digest())
    return md5_of(b"".join(sorted(marks)))


def verify(split: str, x: np.ndarray, y: np.ndarray, known: SplitFacts, files: Sequence[Path]) -> list[str]:
    """Compare a split with the published one.

    Args:
        split: "training" or "test", for messages.
        x: Samples, uint8 [n, ...].
        y: Labels, [n].
        known: Published facts.
        files: The files that hold it.

    Returns:
        Notes, for example that rows are not in the official order.

    Raises:
        DataError: The rows are not the published ones.
    """
    if len(y) != known.rows:
        raise altered(files, f"expected {known.rows} {split} rows, got {len(y)}")
    if not known.digest:
        for c, want in enumerate(known.counts):
            if (count := int((y == c).sum())) != want:
                raise altered(files, f"the {split} rows were altered: expected {want} rows of class {c}, got {count}")
        return [f"of the {split} rows only the number of each class was compared with the published data"]
    keep = np.ones(len(y), bool)
    keep[list(known.inexact)] = False
    got = rows_digest(x[keep], y[keep])
    if got != known.digest and known.proven:
        raise altered(files, f"the {split} rows were altered: expected content md5 {known.digest}, got {got}")
    notes = [] if got == known.digest else [f"the {split} rows differ from the copy this package was checked with"]
    if md5_of(y.astype(np.uint8)) != known.labels:
        notes.append(f"the {split} rows are not in the official order")
    return notes
