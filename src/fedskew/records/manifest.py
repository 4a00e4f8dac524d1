"""manifest.json: the name of a run, and a digest of every file of its folder that is written once.

A file that is written again and again carries its digest itself: the rounds and the checkpoint. The manifest is
replaced whole. While a file that it lists is replaced, it lists both digests, so it fits after a kill at any instant.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from pathlib import Path

from fedskew.errors import RecordError
from fedskew.records import digests
from fedskew.records.files import DAMAGED, member, write_atomic
from fedskew.records.typed import Natural, Row, entries, object_of

FILE = "manifest.json"
FORMAT = 2
ROUNDS = "rounds.jsonl"  # the last of the files that a new run begins with
AGAIN = "resume the run, which writes it again"
Last = entries("Last", {"round": Natural, "digest": str})
Content = entries("Content", {"run": str, "files": dict[str, list[str]], "last": Last | None, "digest": str})


class Manifest:
    """What a run folder vouches for. Make one with `create` or `read`.

    Attributes:
        run: Name of the run, 32 hex digits, drawn when it began.
        files: Digests that a file may have, by name: one, or two while it is replaced.
        last: (number, digest of the chain) of the last round, once the run has ended; else None.
    """

    def __init__(self, folder: Path, run: str, files: dict[str, list[str]], last: tuple[int, str] | None) -> None:
        self.folder, self.run, self.files, self.last = folder, run, files, last

    @classmethod
    def create(cls, folder: Path, names: Iterable[str]) -> Manifest:
        """Vouch for the files of a new run. Raises RecordError where the folder cannot be written."""
        made = cls(folder, uuid.uuid4().hex, {}, None)
        made.vouch(names)
        return made

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The manifest of a folder. Raises RecordError where there is none, it is damaged, or a file is a link."""
        file = member(folder, FILE)
        if not file.exists():
            begun = (folder / ROUNDS).exists()
            early = "the run ended before its first round: start it again in this folder; or only a part was copied"
            remedy = DAMAGED if begun else early
            raise RecordError(f"{file} is missing; {remedy}")
        try:
            content = object_of(file, Content)
        except RecordError as error:
            raise RecordError(f"{error}; {DAMAGED}") from None
        if content.pop("digest") != _digest(content):
            raise RecordError(f"{file} is damaged: its digest does not match its content; {DAMAGED}")
        if not all(map(_is_name, content["files"])):  # a forged digest fits, and a name could be that of any file
            raise RecordError(f"{file} is damaged: it must list files of its folder; {DAMAGED}")
        for name in content["files"]:
            member(folder, name)
        last = content["last"]
        return cls(folder, content["run"], content["files"], last and (last["round"], last["digest"]))

    def write(self) -> None:
        """Replace the file. Raises RecordError where it cannot be written."""
        last = self.last and {"round": self.last[0], "digest": self.last[1]}
        content = {"format": FORMAT, "run": self.run, "files": self.files, "last": last}
        text = json.dumps({**content, "digest": _digest(content)}, indent=1) + "\n"
        write_atomic(self.folder / FILE, text.encode())

    def vouch(self, names: Iterable[str], last: tuple[int, str] | None = None) -> None:
        """Vouch for files as they are now, beside those before, and for the last round. Raises RecordError."""
        for name in names:
            self.files[name] = [_of_file(self.folder / name)]
        self.last = last
        self.write()

    def forget(self, names: Iterable[str]) -> None:
        """Vouch no longer for files that a run writes at its end, nor for its last round: it goes on."""
        listed = [name for name in names if name in self.files]
        for name in listed:
            del self.files[name]
        if listed or self.last:
            self.last = None
            self.write()

    def replace(self, name: str, content: bytes) -> None:
        """Replace a file that is vouched for. After a kill at any instant the manifest fits it."""
        now = digests.of_parts(content)
        self.files[name] = [*self.files.get(name, ()), now]
        self.write()
        write_atomic(self.folder / name, content)
        self.files[name] = [now]
        self.write()

    def trouble(self, name: str) -> str:
        """What is wrong with a file; "" where it is as it was written."""
        file = self.folder / name
        if name not in self.files:
            return f"{file} is incomplete: the run has not ended" if file.exists() else f"{file} is missing"
        if not file.exists():
            return f"{file} is missing"
        if _of_file(file) in self.files[name]:
            return ""
        return f"{file} was altered after the run wrote it, by the digest in {FILE}"

    def check(self, *names: str, remedy: str = DAMAGED) -> None:
        """Raise RecordError, which says what to do, where one of the files is not as it was written."""
        for name in names:
            if trouble := self.trouble(name):
                raise RecordError(f"{trouble}; {remedy}")


def check_file(folder: Path, *names: str, remedy: str = AGAIN) -> None:
    """Raise RecordError where files of a run folder are links, or not as they were written; format 1 has no digests."""
    for name in names:
        member(folder, name)
    if member(folder, FILE).exists():
        Manifest.read(folder).check(*names, remedy=remedy)


def _is_name(name: str) -> bool:
    """Whether a name is that of a file of the folder itself."""
    return name == Path(name).name and name not in ("", ".", "..") and "\0" not in name


def _digest(content: Row) -> str:
    return digests.of_parts(json.dumps(content, sort_keys=True))


def _of_file(file: Path) -> str:
    try:
        return digests.of_file(file)
    except OSError as error:
        raise RecordError(f"cannot read {file}: {error.strerror}") from None
