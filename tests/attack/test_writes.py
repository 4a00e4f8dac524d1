"""A disk that fails: every write of a run, one after another. The run ends in one line, and what it kept can go on."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from support.attack import FULL, Line, some
from support.command import fedskew
from support.disk import Disk
from support.lives import finished, unlike

WORDS = (
    "run scaffold --data digits --clients 6 --cohort 3 --checkpoint.every 2 --model logistic --epochs 1"
    " --engine sequential --diagnose features --local-test 0.3 --clients-every 1"
)
HOMES = ("device", "ram")


def words(home: str, rounds: int = 3) -> list[str]:
    return [*WORDS.split(), "--memory", home, "--rounds", str(rounds)]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs that nothing disturbed, in a folder for each home of the clients' memories."""
    base = tmp_path_factory.mktemp("plain")
    for home in HOMES:
        assert fedskew(*words(home), "--out", base / home) == 0
    return base


def more(out: Path) -> list[str]:
    """The words that give a run of two rounds its third."""
    return ["run", "--resume", str(out), "--rounds", "3"]


def calls(out: Path, given: list[str]) -> list[str]:
    """The calls by which an undisturbed run writes."""
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(out).attach(patch)
        assert fedskew(*given) == 0
    return disk.calls


def picked(made: list[str], first: int = 0) -> list[int]:
    """The numbers of the calls that are struck: all of them; some of them in `make test-all`."""
    return list(range(len(made))) if FULL else list(range(first, len(made), max(1, len(made) // 6)))


def fault_of(output: str) -> str:
    """What is wrong with what a run on a failing disk said; "" where nothing is."""
    lines = [line for line in output.splitlines() if not line.startswith("scaffold round ")]
    ok = len(lines) == 1 and lines[0].startswith("fedskew: ") and "fault of fedskew" not in output
    return "" if ok and "Traceback" not in output else f"said {output[-300:]!r}"


def harm(
    given: list[str], out: Path, plain: Path, fate: Callable[[int], str], code: int, capsys: pytest.CaptureFixture[str]
) -> str:
    """What a failing disk did: "" where the run ended as documented and went on to the same result."""
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(out, fate, code).attach(patch)
        ended = fedskew(*given)
    output = capsys.readouterr().err
    if not disk.struck():
        return "nothing was struck"
    if ended not in (0, 2):
        return f"ended with {ended}, {output[-300:]!r}"
    if ended == 0 and not finished(out):
        return "ended with 0 and is not finished"
    if ended == 2 and (wrong := fault_of(output)):
        return wrong
    if ended == 2 and any(out.rglob(".*.tmp")) and fate(10**9) == "":
        return f"left {[p.name for p in out.rglob('.*.tmp')]}"
    if (out / "rounds.jsonl").exists():  # with this file the folder holds a run
        given = ["run", "--resume", str(out), "--rounds", "3"]
    if again := fedskew(*given):
        return f"cannot go on: {again}, {capsys.readouterr().err[-300:]!r}"
    return unlike(plain, out)


FATES: dict[str, tuple[Callable[[int, int], str], int]] = {
    "fails once (EIO)": (lambda n, at: "fail" if n == at else "", errno.EIO),
    "is short, once (ENOSPC)": (lambda n, at: "short" if n == at else "", errno.ENOSPC),
    "and all after it fail (ENOSPC)": (lambda n, at: "fail" if n >= at else "", errno.ENOSPC),
}


@pytest.mark.parametrize("home", HOMES[: some(1, len(HOMES))])
@pytest.mark.parametrize("what", FATES)
def test_any_write_of_a_run_fails(
    what: str, home: str, plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = calls(tmp_path / "seen", [*words(home), "--out", str(tmp_path / "seen")])
    rule, code = FATES[what]
    with Line("writes", f"each write {what}, memory {home}") as line:
        for at in picked(made, 2 * list(FATES).index(what)):
            out = tmp_path / str(at)
            given = [*words(home), "--out", str(out)]
            wrong = harm(given, out, plain / home, lambda n, at=at: rule(n, at), code, capsys)  # type: ignore[misc]
            line.check(not wrong, f"call {at}, {made[at]}: {wrong}")


@pytest.mark.parametrize("home", HOMES[: some(1, len(HOMES))])
def test_any_write_fails_while_a_run_is_resumed(
    home: str, plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run of two rounds that gets a third one, on a disk that fails."""
    half, seen = tmp_path / "half", tmp_path / "seen"
    assert fedskew(*words(home, 2), "--out", half) == 0
    shutil.copytree(half, seen)
    made = calls(seen, more(seen))
    with Line("writes", f"each write of a resumed run fails, memory {home}") as line:
        for at in picked(made):
            for what in FATES if FULL else list(FATES)[at % 3 :][:1]:
                out, (rule, code) = tmp_path / f"{at}-{what[:5]}", FATES[what]
                shutil.copytree(half, out)
                fate = lambda n, at=at, rule=rule: rule(n, at)  # type: ignore[misc]
                wrong = harm(more(out), out, plain / home, fate, code, capsys)
                line.check(not wrong, f"call {at}, {made[at]}, {what}: {wrong}")
