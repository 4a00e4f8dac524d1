"""The tests as killers of mutants: which could notice a fault, and how to run them in a forked process.

The parent imports everything but the library (`warm`), so that a child has only the library and the tests to import. A
first run without faults records how long each test takes and which functions of the library it enters (`profile`).
"""

from __future__ import annotations

import ast
import builtins
import compileall
import contextlib
import gc
import hashlib
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"

import pytest
from mutants_operators import Mutant

__all__ = ["ROOT", "Slot", "Suite", "Watch", "drain", "prepare", "profile", "run_pytest", "warm"]

ROOT = Path(__file__).resolve().parent.parent
# Test files and folders below tests/, likeliest to notice first; the folder of a fault's own room comes before them.
ROUNDS = (
    "slots/test_ingredients.py", "method", "methods/test_hooks.py", "methods/test_compositions.py",
    "methods/test_invariants.py", "methods/test_against_oracle.py", "methods/test_server_against_oracle.py",
    "test_client.py", "test_server.py", "engines/test_planning.py", "engines/test_queries.py", "methods",
    "engines/test_engines.py", "slots/test_compose.py", "functional", "privacy", "data", "models", "engines", "records",
    "config", "studies", "plots", "report", "advice", "track", "presets", "catalogue", "cli", "",
)  # fmt: skip
# They read the source, attack whole commands, or need an environment of their own.
LEFT_OUT = (
    "house",
    "attack",
    "flower",
    "engines/ray",
    "cli/test_flower.py",
    "cli/test_startup.py",
    "test_installed.py",
)
PROFILE = ROOT / ".pytest_cache" / "mutants.json"  # what the run without faults found; made again when stale
SLOW = 6.0  # seconds; a test that takes longer is no killer
BUDGET_S = 20.0  # of the tests that are run against one fault
ENTER = "mutants_enter"


def test_files(places: Iterable[str], root: Path) -> list[str]:
    """The test files at these places, relative to ``root``, each once and in order. Raises FileNotFoundError."""
    tests = root / "tests"
    at = [p for place in places for p in sorted((tests / place).rglob("test_*.py")) or [tests / place]]
    if gone := [str(p) for p in at if not p.is_file()]:
        raise FileNotFoundError(f"no tests at {', '.join(gone)}")
    names = dict.fromkeys(p.relative_to(tests).as_posix() for p in at)
    return [f"tests/{name}" for name in names if not name.startswith(LEFT_OUT)]


def digest(paths: Iterable[Path]) -> str:
    """A hash of files by name and content."""
    total = hashlib.sha1()
    for path in sorted(paths):
        total.update(path.name.encode() + path.read_bytes())
    return total.hexdigest()[:12]


# Runs of pytest in a forked process


class Watch:
    """A pytest plugin: chosen tests only, in order, each with a time limit; notes what runs and what fails."""

    def __init__(self, order: dict[str, int], limits: dict[str, float], note: Path) -> None:
        self.order, self.limits, self.note = order, limits, note
        self.ran, self.failed = 0, ""

    def limit(self, nodeid: str, seconds: float) -> None:
        """The default action of the alarm ends the process, whatever it is busy with."""
        self.note.write_text(json.dumps({"by": nodeid, "ran": self.ran}))
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """The tests that could notice, likeliest first."""
        items[:] = sorted((i for i in items if i.nodeid in self.order), key=lambda i: self.order[i.nodeid])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A new test, a new limit."""
        self.ran += 1
        self.limit(nodeid, 10 + 10 * self.limits.get(nodeid, 60.0))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A failure's name."""
        if report.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A test file that cannot be imported."""
        if report.failed:
            self.failed = f"import of {report.nodeid}"


class Profiler:
    """A pytest plugin: how long each test takes, which functions of the library it enters, and whether it passes."""

    def __init__(self) -> None:
        self.seconds, self.calls, self.bad = dict[str, float](), dict[str, list[str]](), list[str]()
        self.imported: set[str] = set()  # functions entered while a test file was read
        self.now = self.imported
        setattr(builtins, ENTER, lambda place: self.now.add(place))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """What follows belongs to this test."""
        self.now = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Times add up over setup, call and teardown."""
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if not report.passed:
            self.bad.append(report.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """The test is over."""
        self.calls[nodeid], self.now = sorted(self.now), self.imported

    def content(self) -> dict[str, Any]:
        """As JSON."""
        good = {n: s for n, s in self.seconds.items() if n not in self.bad}
        tests = {n: {"seconds": s, "calls": self.calls[n]} for n, s in good.items()}
        return {"tests": tests, "imported": sorted(self.imported), "bad": self.bad, "modules": third_party()}


def third_party() -> list[str]:
    """Modules that a warm parent may import beforehand: those of neither the library nor the tests."""
    homes = (str(ROOT), tempfile.gettempdir())
    files = {name: str(getattr(module, "__file__", None) or "") for name, module in list(sys.modules.items())}
    environment = sys.prefix  # .venv may stand within the checkout
    return [n for n, f in files.items() if f and (f.startswith(environment) or not f.startswith(homes))]


def run_pytest(files: list[str], plugin: object, slot: Slot, stop: bool) -> int:
    """The exit code of the first file that fails, else 0; files are collected only when their turn comes."""
    options = ["--assert=plain", "--tb=line", "-p", "no:cacheprovider", "-p", "no:faulthandler"]
    options += ["-m", "not slow and not thorough"]
    options += ["--rootdir", str(slot.root), "--basetemp", str(slot.scratch / "tmp"), *(["-x"] if stop else [])]
    for file in files:
        code = int(pytest.main([*options, file], plugins=[plugin]))
        if code not in (0, 5) and stop:
            return code
    return 0


def prepare(scratch: Path, workers: int) -> list[Slot]:
    """Copies of the package, one a worker, and of the tests."""
    slots = [Slot(scratch / str(i)) for i in range(workers)]
    ignored = shutil.ignore_patterns("__pycache__")
    for slot in slots:
        shutil.copytree(ROOT / "src" / "fedskew", slot.tree / "fedskew", ignore=ignored)
    for name in ("tests", "examples"):
        shutil.copytree(ROOT / name, slots[0].root / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", slots[0].root)
    return slots


@dataclass
class Slot:
    """A place to run one mutant at a time: a copy of the package, and a process."""

    scratch: Path
    pid: int = 0
    started: float = 0.0
    done: Callable[[int], None] = lambda status: None  # is given the wait status

    @property
    def tree(self) -> Path:
        """Goes first on sys.path."""
        return self.scratch / "tree"

    @property
    def root(self) -> Path:
        """The tests as they were at the start: others may be editing them."""
        return self.scratch.parent / "root"

    def write(self, file: str, source: str) -> Path:
        """Puts a version of one file in place; bytecode of another version must not be mistaken for it."""
        path = self.tree / Path(file).relative_to("src")
        path.write_text(source)
        for stale in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            stale.unlink()
        return path

    def fork(self, work: Callable[[], int], done: Callable[[int], None]) -> None:
        """Runs ``work`` in a child whose library is this slot's copy."""
        self.done = done
        sys.stdout.flush()
        self.started, self.pid = time.monotonic(), os.fork()
        if self.pid:
            return
        try:
            os.setpgid(0, 0)
            log = os.open(self.scratch / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.chdir(self.root)
            sys.path.insert(0, str(self.tree))
            os.environ["PYTHONPATH"] = str(self.tree)
            code = work()
        except BaseException as error:
            print(repr(error), flush=True)
            code = 3
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
            os._exit(code)

    def kill(self) -> None:
        """Ends the child with all that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


def drain(slots: list[Slot], jobs: Iterator[Callable[[Slot], None]]) -> None:
    """Keeps every slot busy until the jobs are done; an interrupt ends what still runs."""
    free, busy = list(slots), dict[int, Slot]()
    try:
        while True:
            while free and (job := next(jobs, None)):
                job(slot := free.pop(0))
                busy[slot.pid] = slot
            if not busy:
                return
            pid, status = os.wait()
            if pid in busy:  # and no process of an import
                free.append(slot := busy.pop(pid))
                slot.kill()
                slot.done(status)
    finally:
        for slot in busy.values():
            slot.kill()


# The run without faults


@dataclass
class Suite:
    """What is known of the tests."""

    files: dict[str, dict[str, Any]]
    version: str
    seconds: dict[str, float] = field(default_factory=dict)
    entering: dict[str, list[str]] = field(default_factory=dict)  # "file:line" of a function, or file -> tests
    imported: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for content in self.files.values():
            self.imported |= set(content["imported"])
            for test, facts in content["tests"].items():
                self.seconds[test] = facts["seconds"]
                for place in {*facts["calls"], *(c.split(":")[0] for c in facts["calls"])}:
                    self.entering.setdefault(place, []).append(test)

    def killers(self, mutant: Mutant) -> list[str]:
        """Tests that could notice, likeliest first: by the order of the files, then named like the file, then fast."""
        inside = mutant.file.removeprefix("src/fedskew/")
        place = f"{inside}:{mutant.scope}"
        whole = not mutant.scope or place in self.imported  # runs at import: any test of the file may see it
        room = f"tests/{inside.rpartition('/')[0]}/"
        files = sorted(self.files, key=lambda file: not file.startswith(room))
        rank = {file: i for i, file in enumerate(files)}
        words = {Path(inside).stem, *mutant.owner.split()}

        def key(test: str) -> tuple[int, bool, float]:
            return rank[test.split("::")[0]], not any(w in test for w in words), self.seconds[test]

        tests = (t for t in self.entering.get(inside if whole else place, []) if self.seconds[t] <= SLOW)
        return self.affordable(sorted(tests, key=key))

    def affordable(self, tests: list[str]) -> list[str]:
        """The first tests, as many as `BUDGET_S` allows: what every round enters is entered by thousands."""
        until = accumulate(self.seconds[test] for test in tests)
        return [test for test, seconds in zip(tests, until, strict=True) if seconds <= BUDGET_S]


def announcing(file: str, source: str) -> str:
    """The file with a first statement in every function that says it was entered: far cheaper than a trace function."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            place = f"{file.removeprefix('src/fedskew/')}:{first}"
            node.body.insert(ast.get_docstring(node) is not None, ast.parse(f"{ENTER}({place!r})").body[0])
    return ast.unparse(tree)


def profile(slots: list[Slot], sources: dict[str, str]) -> Suite:
    """Runs every test file once without faults, or reads what an earlier run found."""
    root = slots[0].root
    tests = {file: root / file for file in test_files(ROUNDS, root)}
    common = [p for p in (root / "tests").rglob("*.py") if not p.name.startswith("test_")]
    common += [*(slots[0].tree / "fedskew").rglob("*.py")]
    base = digest([*common, *(root / "tests" / "golden").glob("*.json"), *(root / "examples").glob("*.py")])
    known = json.loads(PROFILE.read_text()) if PROFILE.exists() else {}
    version = {file: base + digest([path]) for file, path in tests.items()}
    found = {file: known[file] for file in tests if known.get(file, {}).get("version") == version[file]}

    def job(file: str) -> Callable[[Slot], None]:
        def start(slot: Slot) -> None:
            slot.fork(lambda: trace(slot), lambda status: note(slot, status))

        def trace(slot: Slot) -> int:
            profiler = Profiler()
            run_pytest([file], profiler, slot, stop=False)
            (slot.scratch / "profile").write_text(json.dumps(profiler.content()))
            return 0

        def note(slot: Slot, status: int) -> None:
            if status:
                sys.exit(f"the run of {file} without faults ended badly: {(slot.scratch / 'log').read_text()[-2000:]}")
            found[file] = {**json.loads((slot.scratch / "profile").read_text()), "version": version[file]}
            PROFILE.parent.mkdir(exist_ok=True)
            PROFILE.write_text(json.dumps({**known, **found}))

        return start

    missing = sorted((f for f in tests if f not in found), key=lambda f: "battery" not in f)  # the longest first
    if missing:
        print(f"without faults: {', '.join(missing)}", flush=True)
        for slot in slots:
            for file, source in sources.items():
                slot.write(file, announcing(file, source))
        drain(slots, iter([job(file) for file in missing]))
        for slot in slots:
            for file, source in sources.items():
                slot.write(file, source)
    for file in tests:
        if (failing := found[file]["bad"]) or not found[file]["tests"]:
            print(f"{file}: left out, since they do not pass without a fault: {', '.join(failing) or 'all tests'}")
    return Suite({f: found[f] for f in tests}, hashlib.sha1(json.dumps(version).encode()).hexdigest()[:12])


def warm(suite: Suite, scratch: Path) -> None:
    """Compiles the copies, imports what the tests import but for the library, makes torch load what it loads late."""
    import torch

    compileall.compile_dir(scratch, quiet=2, workers=1)

    torch.set_num_threads(1)
    torch.vmap(torch.func.grad(lambda x: x.square().sum().log()))(torch.ones(2, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in dict.fromkeys(m for content in suite.files.values() for m in content["modules"]):
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    assert "fedskew" not in sys.modules, "the parent must not hold the library"
    gc.collect()
    gc.freeze()
