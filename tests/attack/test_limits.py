"""A machine that has too little: a disk that is full, files, descriptors or memory that are limited by the system.

This file is also the script that makes such machines: forked processes, each in a limit or a file system of its own.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import typing
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedskew as fs
from fedskew.config.experiment import Experiment
from fedskew.config.flags import Option, compose, options_of, with_flags
from fedskew.config.tables import TABLES
from fedskew.data.partitioners import LabelsK, Shards
from fedskew.fields import MOST
from fedskew.methods import METHODS
from support.attack import FULL, Line, some
from support.bounds import bounded as bounded_room
from support.bounds import within
from support.lives import ended, finished, fork, tried_by, unlike, warm

WORDS = (
    "run scaffold --data digits --clients 6 --cohort 3 --rounds 3 --checkpoint.every 2 --model mlp --model.hidden 64"
    " --epochs 1 --engine sequential --threads 1"
)
HOMES = ("ram", "device")
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
    output = out.parent / f"{out.name}.txt"
    code = ended(fork([*given, "--out", str(out)], output, limit))
    text = output.read_text(encoding="utf-8", errors="replace")
    if wrong := misbehaved(code, text, out):
        return wrong
    if code:
        (out.parent / "bitten").touch()
    if relief:
        relief()
    again = ["run", "--resume", str(out)] if (out / "rounds.jsonl").exists() else [*given, "--out", str(out)]
    if code := ended(fork(again, output)):
        return f"cannot go on: {code}, {output.read_text(encoding='utf-8')[-300:]!r}"
    return unlike(plain, out)


def misbehaved(code: int, text: str, out: Path) -> str:
    """What is wrong with the end of a life: neither 0 of a finished run, nor 2 and one line."""
    if code not in (0, 2):
        return f"ended with {code}, {text[-300:]!r}"
    if code == 0 and not finished(out):
        return "ended with 0 and is not finished"
    lines = [line for line in text.splitlines() if not line.startswith("scaffold")]
    return f"said {text[-300:]!r}" if code == 2 and (len(lines) != 1 or not lines[0].startswith("fedskew: ")) else ""


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
        for name, content in ("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1"):
            Path(f"/proc/self/{name}").write_text(content)
    if libc.mount(b"none", b"/", None, PRIVATE, None):
        raise OSError(ctypes.get_errno(), "mount")


def forked(work: Callable[[], str]) -> str:
    """What work returns in a process of its own."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            answer = work()
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writing, answer.encode()[:4000] or b"-")
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        answer = stream.read().decode()
    os.waitpid(pid, 0)
    return "" if answer == "-" else answer


def on_small_disk(home: str, size: int, base: Path, plain: Path) -> str:
    """A run on a disk of so many bytes, then on the same disk made larger."""
    place = base / f"{home}-{size}"
    place.mkdir()

    def work() -> str:
        apart()
        mount(size, place)
        wrong = harm(words(home), place / "run", plain, lambda: None, lambda: mount(64 << 20, place, REMOUNT))
        return wrong or ("bitten" if (place / "bitten").exists() else "")

    answer = forked(work)
    if answer == "bitten":  # its mounts are gone with the process
        (place / "bitten").touch()
    return "" if answer == "bitten" else answer


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
    results = {}
    for n in beyond:
        results[f"{n >> 10} KiB"] = harm(words(home), base / f"{home}-space-{n}", plain, lambda n=n: bounded(n))
    return results


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
    warm(words("ram"))
    results: dict[str, dict[str, Any]] = {}
    for name in names:
        attack, variants = ATTACKS[name]
        results[name] = {}
        for variant in variants[: some(1, 2)]:
            place = base / f"{len(results)}-{variant}"
            place.mkdir()
            plain = place / "plain"
            code = ended(fork([*words(variant), "--out", str(plain)], place / "said.txt"))
            assert code == 0, (place / "said.txt").read_text()
            results[name][variant] = attack(variant, place, plain)
            assert any(place.rglob("bitten")) or isinstance(results[name][variant], str), (
                f"{name}: no run was ended by it"
            )
    print(json.dumps(results))


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


# Numbers that no machine could do


FAR = (2**31, 2**33 + 1, 2**63, -1)
FREE = ("seed", "seed_model", "seed_clients", "seed_partition", "first", "second")  # draws and rounds: never a length


def wholes() -> dict[tuple[str, str], tuple[Experiment, Option]]:
    """Every option that is a whole number, of every method and ingredient: (class, field) -> an experiment with it."""
    made = [compose([method], []) for method in METHODS]
    made += [compose(["fedavg"], [("--data", name)]) for name in TABLES["data"]]
    slots = [slot for slot in TABLES if slot not in ("data", "preset")]
    for slot, name in ((place, name) for place in slots for name in TABLES[place]):
        with suppress(fs.FedskewError):  # some need others beside them
            made.append(compose(["fedavg"], [(f"--{slot}", name)]))
    options = [(experiment, option) for experiment in made for option in options_of(experiment)]
    return {(o.owner.__name__, o.place[-1]): (experiment, o) for experiment, o in options if whole(o.type)}


def whole(hint: Any) -> bool:
    return hint is int or any(map(whole, typing.get_args(hint)))


def test_every_whole_number_is_bounded_before_it_becomes_a_loop_or_an_array() -> None:
    numbers = wholes()
    assert len(numbers) > 80 and ("Experiment", "threads") in numbers and ("MLP", "hidden") in numbers
    with Line("limits", "whole numbers that no machine could do") as line, bounded_room(1 << 30), within(60):
        for (owner, name), (experiment, option) in numbers.items():
            for value in FAR:
                if name in FREE and value != 2**63:
                    continue
                given = partial(with_flags, experiment, [(option.flag, str(value))])
                line.refused(f"{owner}.{name}={value}", given, str(value), kind=fs.ConfigError)


def test_arguments_of_functions_are_bounded() -> None:
    x, y = np.zeros((40, 2), np.float32), np.arange(40) % 2
    digits = lambda **given: fs.federate("digits", **{"partition": "iid", "clients": 4} | given)
    calls: dict[str, Callable[[int], Any]] = {
        "classes": lambda n: fs.data.from_arrays(x, y, classes=n), "clients": lambda n: digits(clients=n),
        "auxiliary": lambda n: digits(auxiliary=n), "shards": lambda n: digits(partition=Shards(shards=n)),
        "labels": lambda n: digits(partition=LabelsK(labels=n)), "rounds": lambda n: fs.Settings(rounds=n),
    }  # fmt: skip
    with Line("limits", "arguments that no machine could do") as line, bounded_room(1 << 30):
        for name, call in calls.items():
            for value in FAR:
                line.refused(f"{name}={value}", partial(call, value))


@pytest.mark.skipif(not FULL, reason="make attack tries the largest numbers that are taken")
def test_the_largest_numbers_that_are_taken_end_in_one_line(tmp_path: Path) -> None:
    """Under 2 GiB and ten seconds a run of a million of anything ends, is refused, or is still at work."""
    warm(words("device"))
    with Line("limits", "a million of everything") as line:
        for (owner, name), (experiment, option) in wholes().items():
            slots = [f"--{slot}={getattr(experiment, slot).name}" for slot in ("data", "partition", "model")]
            given = ["run", experiment.method.name.partition("(")[0], *slots, f"{option.flag}={MOST}"]
            output = tmp_path / "said.txt"
            code = ended(fork([*given, "--out", str(tmp_path / f"{owner}-{name}")], output, few_seconds))
            text = output.read_text(errors="replace")
            line.check(
                code in (0, 2, -signal.SIGALRM) and "fault of" not in text, f"{owner}.{name}: {code}, {text[-200:]}"
            )


def few_seconds() -> None:
    """Let this process have 2 GiB more and ten seconds."""
    with open("/proc/self/statm") as file:
        more = int(file.read().split()[0]) * resource.getpagesize() + (2 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (more, more))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(10)


if __name__ == "__main__":
    main(sys.argv[2:], Path(sys.argv[1]))
