"""Ctrl-C: one word of the command, and Python's own behaviour in a program of the user's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import fedskew as fs
from fedskew.catalogue import listing as catalogue
from fedskew.cli import interrupt as _interrupt
from support.command import mistake, printed

# A process that is started in the background, as by `make test &`, ignores SIGINT, and its children inherit that.
RESTORED = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.executable, sys.argv[1:])"
)


def interrupted(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A process that gets SIGINT in the midst of importing torch, whatever became of SIGINT here."""
    (tmp_path / "torch").mkdir(exist_ok=True)
    (tmp_path / "torch/__init__.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)"
    )
    paths = os.pathsep.join([str(tmp_path), str(Path(fs.__file__).parents[1])])
    environment = {**os.environ, "PYTHONPATH": paths}
    child = [sys.executable, "-c", RESTORED, sys.executable, *words]
    return subprocess.run(child, env=environment, capture_output=True, text=True, timeout=60)


def test_an_interruption_while_importing_is_one_word(tmp_path: Path) -> None:
    done = interrupted(tmp_path, "-m", "fedskew", "methods")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


LATE = """
import os, signal, sys
sys.argv = ["fedskew", "cite", "fedavg"]
from fedskew.cli import command, interrupt
plain = interrupt.over
interrupt.over = lambda code: (os.kill(os.getpid(), signal.SIGTERM), plain(code))[1]
command.main()
"""


def test_a_signal_between_the_end_of_the_command_and_of_its_process_is_one_word(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(fs.__file__).parents[1])}
    child = [sys.executable, "-c", LATE]
    done = subprocess.run(child, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (143, "interrupted\n")


def test_a_program_of_the_user_s_keeps_python_s_own_behaviour(tmp_path: Path) -> None:
    done = interrupted(tmp_path, "-c", "import fedskew; fedskew.run")
    assert done.returncode != 130 and "KeyboardInterrupt" in done.stderr
    assert not _interrupt.is_command(["prog.py"], ["python", "prog.py"])
    assert not _interrupt.is_command(["-m"], ["python", "-m", "pytest", "fedskew"])
    assert _interrupt.is_command(["/usr/bin/fedskew", "run"], ["python", "/usr/bin/fedskew", "run"])
    before = [signal.getsignal(number) for number in (signal.SIGINT, *_interrupt.ASKED)]
    _interrupt.end()
    assert [signal.getsignal(number) for number in (signal.SIGINT, *_interrupt.ASKED)] == before


@pytest.mark.parametrize("fails", [False, True])
def test_an_interruption_of_a_command_is_one_word(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            if fails:
                raise RuntimeError("a stack of transforms is empty")

    monkeypatch.setattr(catalogue, "catalogue", pressed)
    assert printed("methods", code=130).err == "interrupted\n"


RUN = ["run", "fedavg", "--data", "digits", "--clients", "5", "--cohort", "2", "--model", "logistic", "--rounds"]


ASKED_IN_EXEC = """
import os, signal
from fedskew.session import Session
Session.round = lambda session: exec("os.kill(os.getpid(), signal.SIGTERM)", {"os": os, "signal": signal})
"""


def test_a_signal_amid_exec_keeps_its_exit_code(tmp_path: Path) -> None:
    """exec() makes dataclasses. Python remembers that it was interrupted, and `python -m` would end by SIGINT."""
    (tmp_path / "sitecustomize.py").write_text(ASKED_IN_EXEC)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(fs.__file__).parents[1])])}
    command = [sys.executable, "-m", "fedskew", *RUN, "3", "--out", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 143, done.stderr
    assert "stopped after 0 rounds" in done.stdout and done.stderr == ""


LACKS = {
    "memory": MemoryError(),
    "an allocation of torch's": RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 B"),
    "a thread": RuntimeError("can't start new thread"),
    "a descriptor": OSError(24, "Too many open files", "a/file"),
}


@pytest.mark.parametrize("what", LACKS)
def test_a_machine_that_lacks_something_is_one_line(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking() -> None:
        raise LACKS[what]

    monkeypatch.setattr(catalogue, "catalogue", lacking)
    assert "fault" not in (said := mistake("methods"))
    assert "a/file cannot be used: Too many open files" in said if what == "a descriptor" else "memory ran out" in said


LOST = """
import os, signal, sys, time
sys.argv = ["fedskew"]
from fedskew.cli import interrupt
interrupt.end()
class Asks:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
try:
    Asks()
    time.sleep(60)
except KeyboardInterrupt:
    sys.exit(interrupt.over(interrupt.INTERRUPTED))
"""


def test_a_request_to_end_that_is_lost_in_a_callback_is_made_again() -> None:
    """A scheduler asks once: Python forgets an exception that a signal raises while an object is deleted."""
    done = subprocess.run([sys.executable, "-c", LOST], capture_output=True, text=True, timeout=50)
    assert done.returncode == 128 + signal.SIGTERM and done.stderr == ""
