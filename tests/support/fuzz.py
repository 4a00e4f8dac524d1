"""What fuzzed command lines share: files to name, a terminal that is strict, and what is wrong with an end."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

import numpy as np

import fedskew as fs
from fedskew.cli import command
from support.attack import Line
from support.bounds import Hung, within

__all__ = ["DATA", "FILES", "ended", "endless", "fault", "fuzz_place", "tried"]

SECONDS = 60  # that a command may take; alone it takes a tenth of a second, on a busy machine it may stall
PATIENCE = 4  # seconds until Ctrl-C ends a line that asks for endless work


def fuzz_place(folder: Path) -> Path:
    """Small data, a run, a partition, and files that are none of these, in a folder."""
    gen = np.random.Generator(np.random.PCG64(0))
    y = np.arange(60) % 3
    np.savez(folder / "table.npz", x=gen.normal(size=(60, 4)).astype(np.float32), y=y, client=np.arange(60) % 4)
    np.savez(
        folder / "images.npz",
        x=gen.integers(0, 256, (60, 1, 8, 8)).astype(np.uint8),
        y=np.array(["$a", "[/b]", "\x1bc"])[y],
    )
    lines = [f"{gen.normal():.3f},{i},{'ab'[i % 2]},s{i % 3}" for i in range(40)]
    (folder / "table.csv").write_text("\n".join(["x\x1b[1m,$id,label,client", *lines]))
    (folder / "counts.csv").write_text("cat,[/dog]\n5,0\n1,4\n")
    np.save(folder / "counts.npy", np.array([[1, 2], [3, 0]]))
    fed = fs.federate("digits", "dirichlet", clients=4)
    fs.data.save_partition(folder / "split.npz", fed)
    (folder / "text").write_bytes(b"\xff\xfe no file of ours \x1b[0m")
    (folder / "empty").write_text("")
    (folder / "folder").mkdir()
    (folder / "deep.json").write_text("[" * 50_000)
    with contextlib.chdir(folder):
        words = "--data npz --path table.npz --clients 3 --cohort 2 --rounds 2 --model logistic --diagnose drift"
        assert ended(["run", "fedavg", *words.split(), "--out", "run"])[0] == 0
    return folder


def ended(words: list[str], encoding: str = "utf-8") -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of a command on a strict terminal."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict") for _ in range(2)]
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = streams
    try:
        command.main(words)
    except SystemExit as stop:
        code = int(stop.code or 0)
    finally:
        sys.stdout, sys.stderr = before
    for stream in streams:
        stream.flush()
    out, err = (stream.buffer.getvalue().decode(encoding) for stream in streams)  # type: ignore[attr-defined]
    return code, out, err


def endless(words: list[str]) -> bool:
    """Whether a line asks for more work than a life holds; Ctrl-C must end it."""
    numbers = (word.rpartition("=")[2] for word in words)
    return any(number.isdecimal() and int(number) > 10**6 for number in numbers if len(number) < 25)


def tried(line: Line, words: list[str], encoding: str) -> None:
    """Give a line to the command, and count how it ends."""
    failure = fault(words, encoding)
    line.check(not failure, f"fedskew {' '.join(w if len(w) < 80 else w[:80] + '...' for w in words)!r}: {failure}")


def fault(words: list[str], encoding: str) -> str:
    """What is wrong with how a command ends; "" where nothing is."""
    try:
        with within(*(PATIENCE, KeyboardInterrupt) if endless(words) else (SECONDS, Hung)):
            code, out, err = ended(words, encoding)
    except Hung:
        return f"no end in {SECONDS} s"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"[:300]
    mistakes = [
        line for line in err.splitlines() if line.startswith("fedskew: ") and not line.startswith("fedskew: note: ")
    ]
    if code not in (0, 2, 75, 130):  # 75: the time that --max-minutes gives is over
        return f"exit code {code}: {err[-400:]}"
    if "Traceback" in err or "\x1b" in out or "\x1b" in err:
        return f"a traceback or an escape code: {(out + err)[-400:]!r}"
    return f"{len(mistakes)} lines of a mistake: {err[-400:]}" if code == 2 and len(mistakes) != 1 else ""


DATA = (
    ["--data", "npz", "--path", "table.npz"], ["--data", "npz", "--path", "images.npz"],
    ["--data", "npz", "--data.path", "table.npz"], ["--data", "csv", "--path", "table.csv"], [],
)  # fmt: skip
FILES = (
    "run", "run/config.json", "run/rounds.jsonl", "split.npz", "table.npz", "images.npz", "table.csv", "counts.csv",
    "counts.npy", "text", "empty", "deep.json", "folder", "absent", "a" * 300, "/dev/null", "table.npz/x",
    "run/checkpoint/state.safetensors",
)  # fmt: skip
