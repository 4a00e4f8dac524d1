"""A machine that has too little: a disk that is full, files, descriptors or memory that are limited by the system.

This file is also the script that makes such machines: forked processes, each in a limit or a file system of its own.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.attack import Line, some
from support.lives import ended, finished, fork, tried_by, unlike, warm

WORDS = (
    "run scaffold --data digits --clients 6 --cohort 3 --rounds 3 --checkpoint.every 2 --model mlp --model.hidden 64"
    " --epochs 1 --engine sequential"
)
HOMES = ("disk", "device")
PAGE = 4 << 10
NEWNS, NEWUSER, PRIVATE, REMOUNT = 0x20000, 0x10000000, 1 << 18 | 1 << 14, 32
Found = list[str]  # of each attack "" or what went wrong

if sys.platform != "linux":
    pytest.skip("these limits are Linux's", allow_module_level=True)


def words(home: str) -> list[str]:
    return [*WORDS.split(), "--memory", home]


# What a life in a limit must look like


def harm(
    given: list[str], out: Path, plain: Path, limit: Callable[[], object], relief: Callable[[], object] | None = None
) -> str:
    """What a limit did: "" where the run ended as documented, and without the limit goes on to the same result."""
    said = out.parent / f"{out.name}.txt"
    code = ended(fork([*given, "--out", str(out)], said, limit))
    told = said.read_text(encoding="utf-8", errors="replace")
    if wrong := misbehaved(code, told, out):
        return wrong
    if code:
        (out.parent / "bitten").touch()
    if relief:
        relief()
    again = ["run", "--resume", str(out)] if (out / "rounds.jsonl").exists() else [*given, "--out", str(out)]
    if code := ended(fork(again, said)):
        return f"cannot go on: {code}, {said.read_text(encoding='utf-8')[-300:]!r}"
    return unlike(plain, out)


def misbehaved(code: int, told: str, out: Path) -> str:
    """What is wrong with the end of a life: neither 0 of a finished run, nor 2 and one line."""
    if code not in (0, 2):
        return f"ended with {code}, {told[-300:]!r}"
    if code == 0 and not finished(out):
        return "ended with 0 and is not finished"
    lines = [line for line in told.splitlines() if not line.startswith("scaffold")]
    return f"said {told[-300:]!r}" if code == 2 and (len(lines) != 1 or not lines[0].startswith("fedskew: ")) else ""


def spread(values: list[int], most: int) -> list[int]:
    """At most so many of the values, evenly."""
    return values[:: max(1, -(-len(values) // most))]


# A disk of a few pages


def mount(size: int, place: Path, flags: int = 0) -> None:
    """Mount a tmpfs of so many bytes, or give it another size. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", str(place).encode(), b"tmpfs", flags, f"size={size}".encode()):
        raise OSError(ctypes.get_errno(), "mount")


def apart() -> None:
    """From here on this process has mounts of its own, which end with it. Raises OSError where it may not."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group, root = os.getuid(), os.getgid(), os.geteuid() == 0
    if libc.unshare(NEWNS | (0 if root else NEWUSER)):
        raise OSError(ctypes.get_errno(), "unshare")
    if not root:
        for name, told in ("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1"):
            Path(f"/proc/self/{name}").write_text(told)
    if libc.mount(b"none", b"/", None, PRIVATE, None):
        raise OSError(ctypes.get_errno(), "mount")


def forked(work: Callable[[], str]) -> str:
    """What work returns in a process of its own."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            told = work()
        except BaseException as error:
            told = f"{type(error).__name__}: {error}"
        os.write(writing, told.encode()[:4000] or b"-")
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        told = stream.read().decode()
    os.waitpid(pid, 0)
    return "" if told == "-" else told


def on_small_disk(home: str, size: int, base: Path, plain: Path) -> str:
    """A run on a disk of so many bytes, then on the same disk made larger."""
    place = base / f"{home}-{size}"
    place.mkdir()

    def work() -> str:
        apart()
        mount(size, place)
        told = harm(words(home), place / "run", plain, lambda: None, lambda: mount(64 << 20, place, REMOUNT))
        return told or ("bitten" if (place / "bitten").exists() else "")

    told = forked(work)
    if told == "bitten":  # its mounts are gone with the process
        (place / "bitten").touch()
    return "" if told == "bitten" else told


def may_mount(base: Path) -> str:
    """Why no file system can be mounted here; "" where it can."""

    def work() -> str:
        apart()
        mount(PAGE, base)
        return ""

    return forked(work)


# The attacks, as a script


def full_disks(home: str, base: Path, plain: Path) -> Any:
    """Disks from one page on, up to one on which the run finishes with room to spare."""
    if why := may_mount(base):
        return why
    pages = spread(list(range(1, 90)), some(4, 89))
    return {f"{n} pages": on_small_disk(home, n * PAGE, base, plain) for n in pages}


def small_files(home: str, base: Path, plain: Path) -> Any:
    """A limit on the size of a file, as of `ulimit -f`."""
    sizes = spread([*range(500, 40_000, 500), 100_000, 500_000, 2_000_000], some(4, 99))
    limit = lambda size: lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    return {f"{n} bytes": harm(words(home), base / f"{home}-file-{n}", plain, limit(n)) for n in sizes}


def little_memory(home: str, base: Path, plain: Path) -> Any:
    """Address space that runs out after the imports: some MB above what the process has.

    One thread: where there is no memory for a thread that has just begun, Python's own `Thread.start` waits for ever.
    """
    beyond = spread([*range(0, 8 << 20, 128 << 10), *range(8 << 20, 80 << 20, 2 << 20)], some(4, 120))
    found = {}
    for n in beyond:
        found[f"{n >> 10} KiB"] = harm(words(home), base / f"{home}-space-{n}", plain, lambda n=n: bounded(n))
    return found


def bounded(more: int) -> None:
    """Let this process have so many bytes more than now; what an earlier life freed inside the heap is taken."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    with open("/proc/self/statm") as file:
        has = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (has, resource.RLIM_INFINITY))
    for size in (1 << 20, 1 << 16, 1 << 12):
        while libc.malloc(size):
            pass
    resource.setrlimit(resource.RLIMIT_AS, (has + more, has + more))


def few_descriptors(home: str, base: Path, plain: Path) -> Any:
    """Descriptors that run out: so many beyond the three streams."""
    limit = lambda n: lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n))
    numbers = (3, 4, 5, 6, 8, 10, 32)
    return {
        f"{n}": harm(words(home), base / f"{home}-open-{n}", plain, limit(n)) for n in spread([*numbers], some(3, 9))
    }


ATTACKS = {
    "a disk of a few pages": (full_disks, HOMES),
    "a limit on the size of a file": (small_files, HOMES),
    "address space that runs out": (little_memory, HOMES),
    "descriptors that run out": (few_descriptors, HOMES),
}


def main(names: list[str], base: Path) -> None:
    warm(words("disk"))
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        attack, variants = ATTACKS[name]
        found[name] = {}
        for variant in variants[: some(1, 2)]:
            place = base / f"{len(found)}-{variant}"
            place.mkdir()
            plain = place / "plain"
            code = ended(fork([*words(variant), "--out", str(plain)], place / "said.txt"))
            assert code == 0, (place / "said.txt").read_text()
            found[name][variant] = attack(variant, place, plain)
            assert any(place.rglob("bitten")) or isinstance(found[name][variant], str), (
                f"{name}: no run was ended by it"
            )
    print(json.dumps(found))


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    return tried_by(__file__, ATTACKS, tmp_path_factory.mktemp("limits"))


@pytest.mark.parametrize("what", ATTACKS)
def test_a_machine_that_has_too_little(what: str, tried: Callable[[str], dict[str, Any]]) -> None:
    for variant, attacks in tried(what).items():
        if isinstance(attacks, str):
            pytest.skip(f"no file system can be mounted here: {attacks}")
        with Line("limits", f"{what}, {variant}") as line:
            for name, wrong in attacks.items():
                line.check(not wrong, f"{name}: {wrong}")


if __name__ == "__main__":
    main(sys.argv[2:], Path(sys.argv[1]))
