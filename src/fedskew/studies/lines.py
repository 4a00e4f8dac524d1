"""Lines of an archive, which is NAME.jsonl, text, or NAME.jsonl.xz, compressed lines behind a list of their addresses.

Both together are one archive, in which the text counts. A file may come from anybody: it is read a line at a time, and
what it unpacks to is bounded before it is there.
"""

import io
import lzma
from collections.abc import Iterator
from os.path import lexists
from pathlib import Path
from typing import Any

from fedskew.errors import RecordError, opened

TEXT, PACKED = ".jsonl", ".jsonl.xz"
MAGIC = b"\xfd7zXZ\x00"  # an xz file begins with it, by whatever name
RATIO, FREE = 300, 1 << 26  # a file may unpack to so many times its size, or to so many bytes at any rate
LONGEST = FREE  # bytes of a line
MEMORY = 1 << 27  # bytes that the decoder takes: enough for each preset of xz
PIECE = 1 << 18  # bytes


def files_of(file: Path) -> list[Path]:
    """The files that are there of the archive that one of them names, the text last; of another name, the file."""
    text = _text(file)
    both = (text.with_name(f"{text.name}.xz"), text) if file.name.endswith((TEXT, PACKED)) else ()
    return [path for path in both if lexists(path)] or [file]


def archives(place: Path) -> list[Path]:
    """A file of each archive in a folder, or the file that is named."""
    if not place.is_dir():
        return [place]
    return sorted({_text(file) for end in (TEXT, PACKED) for file in place.glob(f"*{end}")})


def _text(file: Path) -> Path:
    return file.with_name(file.name.removesuffix(".xz"))


def may_hold(size: int) -> int:
    """The most bytes that a file of a size may unpack to."""
    return max(FREE, RATIO * size)


def lines_of(file: Path) -> Iterator[bytes]:
    """The lines of a file, text or xz.

    Raises:
        RecordError: It cannot be read, is damaged or cut off, unpacks to too much, or has too long a line.
    """
    try:
        with opened(file) as source:
            packed = source.peek(len(MAGIC)).startswith(MAGIC)
            lines = io.BufferedReader(_Unpacked(source, file), PIECE) if packed else source
            while line := lines.readline(LONGEST + 1):
                if len(line) > LONGEST:
                    raise RecordError(f"{file} must have lines of at most {LONGEST >> 20} MiB")
                yield line
    except OSError as error:
        raise RecordError(f"cannot read the archive {str(file)!r}: {error.strerror}") from None


class _Unpacked(io.RawIOBase):
    """What an xz file holds, a piece at a time."""

    def __init__(self, source: io.BufferedReader, file: Path) -> None:
        self._source, self._file, self._left = source, file, may_hold(file.stat().st_size)
        self._decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content, decoder = b"", self._decoder
        while not content and not decoder.eof:
            more = self._source.read(PIECE) if decoder.needs_input else b""
            if decoder.needs_input and not more:
                raise self._damaged("it is cut off")
            try:
                content = decoder.decompress(more, min(len(buffer), self._left + 1))
            except lzma.LZMAError as error:
                raise self._damaged(str(error)) from None
        self._left -= len(content)
        if self._left < 0:
            raise RecordError(f"{self._file} unpacks to more than {RATIO} times its size: it is no archive")
        if decoder.eof and (decoder.unused_data or self._source.read(1)):
            raise self._damaged("it goes on after its end")
        buffer[: len(content)] = content
        return len(content)

    def _damaged(self, why: str) -> RecordError:
        return RecordError(f"{self._file} is a damaged xz file: {why}; restore it from a copy")


def compressed(text: bytes) -> bytes:
    """A text as the content of an xz file: equal texts give equal bytes with one version of liblzma.

    Raises:
        RecordError: The text shrinks to what `lines_of` refuses.
    """
    content = lzma.compress(text, lzma.FORMAT_XZ, lzma.CHECK_CRC64)
    if len(text) > may_hold(len(content)):
        raise RecordError(f"an archive that shrinks to less than 1 / {RATIO} of its size must stay text")
    return content
