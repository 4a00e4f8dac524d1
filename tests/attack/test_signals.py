"""Runs that are killed, asked to end, or stopped, at any time: each ends as documented, and what is resumed is equal.

This file is also the script of most attacks: it imports torch once, and forks a process for each life of a run.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, cycle
from pathlib import Path

import pytest

from fedskew.cli import interrupt
from support.attack import FULL, Line, some
from support.command import fedskew
from support.disk import Disk
from support.lives import ended, finished, fork, start, tried_by, unlike, wait_for, warm

ROUNDS = 6
WORDS = "--data digits --clients 8 --cohort 3 --checkpoint.every 2 --model logistic --threads 2 --rounds"
METHODS = ("scaffold", "moon", "pfedme", "feddyn", "fedgc", "fedadam", "powerofchoice")
HOMES, ENGINES = ("ram", "device"), ("threaded", "sequential", "batched")
Words = list[str]
# what a signal does to a run: its exit codes. SIGQUIT and SIGKILL leave no time for an end
ASKS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
LEFT = {signal.SIGQUIT: -signal.SIGQUIT, signal.SIGKILL: -signal.SIGKILL}

if os.name != "posix":
    pytest.skip("signals are POSIX", allow_module_level=True)


def words(method: str, home: str, engine: str, rounds: int = ROUNDS) -> Words:
    return ["run", method, *WORDS.split(), str(rounds), "--memory", home, "--engine", engine]


def combinations() -> Iterator[tuple[str, str, str]]:
    """(method, home, engine) without end, each method with every home and engine sooner or later."""
    for number, method in enumerate(cycle(METHODS)):
        turn = number // len(METHODS) + number
        yield method, HOMES[turn % 2], ENGINES[(turn // 3 + number) % 3]


class Plain:
    """Runs that nobody disturbs, each made once."""

    def __init__(self, base: Path) -> None:
        self.base, self.seconds = base, {}  # type: Path, dict[str, float]

    def of(self, given: Words) -> Path:
        name = "-".join(given[1:2] + given[-3:])
        out = self.base / f"plain-{name}"
        if name not in self.seconds:
            begun = time.monotonic()
            assert ended(fork([*given, "--out", str(out)], self.base / "plain.txt")) == 0
            self.seconds[name] = time.monotonic() - begun
        return out

    def lasts(self, given: Words) -> float:
        self.of(given)
        return self.seconds["-".join(given[1:2] + given[-3:])]


def life(given: Words, out: Path) -> Words:
    """The words of the next life: the run is begun, or it is resumed where the folder holds one."""
    return ["run", "--resume", str(out)] if (out / "rounds.jsonl").exists() else [*given, "--out", str(out)]


def harm(given: Words, out: Path, plain: Path) -> str:
    """What was lost: "" where the run can be brought to its end, and is the one that nobody disturbed."""
    output = out.parent / f"{out.name}.txt"
    code = ended(fork(life(given, out), output))
    return f"cannot be resumed: {code}, {output.read_text()[-300:]!r}" if code else unlike(plain, out)


def wrong_end(number: int, code: int, text: str, out: Path) -> str:
    """What is wrong with the end of a life that got a signal: its code, its words, its record."""
    if code == 0:
        return "" if finished(out) else "ended with 0 and is not finished"
    if code == -number and not text and not (out / "rounds.jsonl").exists():
        return ""  # while it imports, it ends by the signal itself
    if code not in {ASKS.get(number), LEFT.get(number)}:
        return f"ended with {code}, {text[-300:]!r}"
    if "Traceback" in text or "Exception" in text or "fault" in text:
        return f"said {text[-600:]!r}"
    return ""


# ---------------------------------------------------------------------------------------------------------------------
# The attacks of the script: each gives what was tried as {name: what went wrong, or ""}


def random_kills(base: Path) -> dict[str, str]:
    """SIGKILL at random instants, up to four in one life, so that many come while the run is resumed."""
    draw, plain, kinds, results, kills = random.Random(14), Plain(base), combinations(), {}, 0
    for number in count():
        if kills >= some(6, 210):
            break
        given = words(*next(kinds))
        whole, lasts, out = plain.of(given), plain.lasts(given), base / f"life-{number}"
        wanted, hit = draw.randint(1, 4), 0
        while hit < wanted:
            pid = fork(life(given, out), base / "said.txt")
            time.sleep(draw.uniform(0.0, 1.1 * lasts))
            os.kill(pid, signal.SIGKILL)
            code = ended(pid)
            if code == 0:
                break
            hit += 1
            if code != -signal.SIGKILL:
                results[f"life {number}"] = f"ended with {code}, {(base / 'said.txt').read_text()[-300:]!r}"
        kills += hit
        wrong = harm(given, out, whole)
        for kill in range(hit):  # each kill is an attack; what a life lost is told once
            results[f"{' '.join(given[1:2] + given[-3:])}, {out.name}, kill {kill}"] = wrong if not kill else ""
    return results


def kills_in_writes(base: Path) -> dict[str, str]:
    """SIGKILL before, amid and after every call by which a run writes."""
    plain, results = Plain(base), {}
    for home in HOMES[: some(1, 2)]:
        given = words("scaffold", home, "sequential", rounds=3)
        whole, seen = plain.of(given), base / f"seen-{home}"
        with pytest.MonkeyPatch.context() as patch:
            pipe = base / f"calls-{home}"
            noted = partial(_at_end, Disk(seen).attach(patch), pipe)
            ended(fork([*given, "--out", str(seen)], base / "said.txt", noted))
        made = pipe.read_text().splitlines()
        fates = ("kill", "kill halfway", "kill after")
        for at in range(0, len(made), some(len(made) // 4, 1)):
            for fate in fates if FULL else fates[at % 3 :][:1]:
                out = base / f"{home}-{at}-{fate.replace(' ', '-')}"
                before = lambda: Disk(out, lambda n: fate if n == at else "").attach(pytest.MonkeyPatch())  # noqa: B023
                code = ended(fork([*given, "--out", str(out)], base / "said.txt", before))
                name = f"{home}, {fate} {made[at]} ({at})"
                results[name] = harm(given, out, whole) if code == -signal.SIGKILL else f"ended with {code}"
    return results


def _at_end(disk: Disk, file: Path) -> None:
    """Write down a disk's calls when this process comes to its end."""
    plain = os._exit

    def leave(code: int) -> None:
        file.write_text("\n".join(disk.calls))
        plain(code)

    os._exit = leave  # type: ignore[assignment]


def asked(base: Path, numbers: tuple[int, ...], tries: int, again: bool = False) -> dict[str, str]:
    """A signal at random instants; with ``again`` a second one soon after it."""
    draw, plain, kinds, results = random.Random(sum(numbers) + again), Plain(base), combinations(), {}
    for number, _ in zip(cycle(numbers), range(tries), strict=False):
        given = words(*next(kinds))
        whole, lasts, out = plain.of(given), plain.lasts(given), base / f"run-{len(results)}"
        output = base / f"said-{len(results)}.txt"

        def soon() -> None:
            interrupt.TWICE = 0.0

        pid = fork([*given, "--out", str(out)], output, soon if again else None)
        wait_for(lambda output=output: output.exists())  # type: ignore[misc]
        time.sleep(draw.uniform(0.05, 1.1 * lasts))
        os.kill(pid, number)
        if again:
            time.sleep(draw.uniform(0.0, 0.03))
            os.kill(pid, number)
        code = ended(pid)
        name = f"{signal.Signals(number).name} of {' '.join(given[1:2] + given[-3:])}, {out.name}"
        wrong = wrong_end(number, code, output.read_text(), out) or kept(number, out, again)
        results[name] = wrong or harm(given, out, whole)
    return results


def kept(number: int, out: Path, again: bool) -> str:
    """Whether a run that was asked to end once kept its whole rounds: its record says so."""
    if again or number not in ASKS or finished(out) or not (out / "summary.json").exists():
        return ""
    rows = (out / "rounds.jsonl").read_text().splitlines()
    summary = json.loads((out / "summary.json").read_text())
    whole = summary["stopped"] == "interrupted" and summary["rounds"] == len(rows)
    return "" if whole else f"the record says {summary}"


ATTACKS: dict[str, Callable[[Path], dict[str, str]]] = {
    "SIGKILL at random instants": random_kills,
    "SIGKILL before, amid and after every write": kills_in_writes,
    "SIGINT, SIGTERM, SIGHUP once": lambda base: asked(base, tuple(ASKS), some(3, 90)),
    "SIGINT, SIGTERM, SIGHUP twice": lambda base: asked(base, tuple(ASKS), some(1, 60), again=True),
    "SIGQUIT": lambda base: asked(base, (signal.SIGQUIT,), some(1, 20)),
}


def main(names: list[str], base: Path) -> None:
    warm(*(words("scaffold", "ram", engine, rounds=1) for engine in ENGINES))
    results = {}
    for number, name in enumerate(names):
        place = base / str(number)
        place.mkdir()
        results[name] = ATTACKS[name](place)
    print(json.dumps(results))


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, str]]:
    return tried_by(__file__, ATTACKS, tmp_path_factory.mktemp("lives"))


@pytest.mark.parametrize("what", ATTACKS)
def test_a_run_that_gets_a_signal(what: str, tried: Callable[[str], dict[str, str]]) -> None:
    with Line("signals", what) as line:
        for name, wrong in tried(what).items():
            line.check(not wrong, f"{name}: {wrong}")


# ---------------------------------------------------------------------------------------------------------------------
# True processes. This one is the second process, which resumes


LONG = words("scaffold", "ram", "threaded", rounds=some(120, 400))


def rounds_of(out: Path) -> int:
    file = out / "rounds.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of some seconds that nobody disturbs."""
    out = tmp_path_factory.mktemp("long") / "run"
    assert fedskew(*LONG, "--out", out) == 0
    return out


def begun(out: Path) -> subprocess.Popen[bytes]:
    """A true process that has done some rounds of a long run."""
    process = start([*LONG, "--out", str(out)], out.with_suffix(".txt"))
    wait_for(lambda: rounds_of(out) > 3 or process.poll() is not None)
    return process


def test_a_stopped_run_holds_its_folder(long: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-Z, and a second process that resumes: refused in one line. Then `fg`, or an end, and the same result."""
    with Line("signals", "SIGSTOP, a second process that resumes, SIGCONT and an end") as line:
        for turn, last in enumerate([signal.SIGTERM, 0, signal.SIGKILL, signal.SIGHUP][: some(1, 4)]):
            out = tmp_path / f"run-{turn}"
            process = begun(out)
            process.send_signal(signal.SIGSTOP)
            capsys.readouterr()
            code, error = fedskew("run", "--resume", out), capsys.readouterr().err
            one_line = error.startswith("fedskew: ") and error.count("\n") == 1 and f"process {process.pid} on" in error
            line.check(code == 2 and one_line, f"a second process ended with {code}, {error!r}")
            process.send_signal(last)
            process.send_signal(signal.SIGCONT)
            code = process.wait(300)
            wanted = {0: 0, **ASKS, **LEFT}[last]
            line.check(code == wanted, f"the first process ended with {code}, not {wanted}")
            text = out.with_suffix(".txt").read_text()
            line.check(last not in ASKS or "continues it" in text, f"said {text[-300:]!r}")
            line.check(not last or fedskew("run", "--resume", out) == 0, "cannot be resumed")
            line.check(not (wrong := unlike(long, out)), wrong)


@pytest.mark.skipif(not FULL, reason="each of these begins a process that imports torch; `make attack` does it")
@pytest.mark.parametrize("amid", [True, False], ids=["amid the rounds", "at any time"])
def test_a_true_process_that_gets_a_signal(amid: bool, long: Path, tmp_path: Path) -> None:
    """Amid the rounds the documents promise an exit code. While it imports, too, it ends without a traceback."""
    draw, given, plain = random.Random(3 + (not amid)), words("scaffold", "ram", "threaded"), long
    if not amid:
        plain = tmp_path / "plain"
        assert fedskew(*given, "--out", plain) == 0
    when = "amid the rounds" if amid else "at any time"
    with Line("signals", f"true processes: INT, TERM, HUP, QUIT, KILL {when}") as line:
        for turn, number in enumerate([*ASKS, *LEFT] * (4 if amid else 10)):
            out, name = tmp_path / f"run-{turn}", f"{signal.Signals(number).name}, {turn}"
            process = begun(out) if amid else start([*given, "--out", str(out)], out.with_suffix(".txt"))
            # Python itself needs some time before the command can answer
            time.sleep(draw.uniform(0, 1.0) if amid else draw.uniform(0.3, 4.0))
            process.send_signal(number)
            code, text = process.wait(120), out.with_suffix(".txt").read_text()
            wrong = wrong_end(number, code, text, out)
            line.check(not wrong and (code != 0 or not amid), f"{name}: {wrong or 'came too late'}")
            line.check(not amid or number not in ASKS or "continues it" in text, f"{name}: said {text[-300:]!r}")
            code = fedskew(*life(given, out))
            line.check(code == 0 and not unlike(plain, out), f"{name}: went on with {code}, {unlike(plain, out)}")


if __name__ == "__main__":
    main(sys.argv[2:], Path(sys.argv[1]))
