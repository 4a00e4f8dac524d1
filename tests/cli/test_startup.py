"""How long the command takes to start, and what it imports."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fedskew as fs

SOURCE = str(Path(fs.__file__).parents[1])
LATE = ("torch", "numpy", "scipy", "sklearn", "rich", "matplotlib", "pandas", "datasets")


def process(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([SOURCE, os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *words], cwd=cwd, env={**os.environ, "PYTHONPATH": paths},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


STEPS = {  # one after another in a process: what is imported, or run by the command, and what must not be there then
    "import fedskew": LATE,
    "import fedskew.cli.command": (*LATE, "ray", "fedskew.privacy"),
    **{
        f"main({words})": LATE
        for words in (["--help"], ["--version"], ["completion", "--help"], ["plot", "-h"], ["rnu"])
    },
    "import fedskew as fs; fs.run, fs.methods, fs.parts": LATE[2:],
    "import fedskew.engines; fs.track.TRACKERS": ("ray", "tensorboard"),
    "import fedskew.privacy": ("cryptography",),
}
STEP = """
try: {code}
except SystemExit: pass
early += [({code!r}, name) for name in {late} if name in sys.modules]
"""


def test_what_is_not_used_is_not_imported() -> None:
    steps = "".join(STEP.format(code=code, late=late) for code, late in STEPS.items())
    main = "main = lambda words: fedskew.cli.command.main(words)"
    done = process("-c", f"import sys; early = []; {main}\n{steps}\nprint('early:', early)")
    assert done.stdout.endswith("early: []\n"), done.stdout + done.stderr


SLOW = (  # a second each, more or less; none is of use to a short run
    "sklearn", "scipy", "pandas", "pyarrow", "sympy", "torch._dynamo", "torch._inductor", "torch.onnx",
    "torch.fx.experimental.symbolic_shapes", "matplotlib",
)  # fmt: skip


def imported_after(code: str, cwd: Path) -> str:
    """Those of `SLOW` that these lines import beside torch, which in some versions imports some itself."""
    told = f"print('slow:', [name for name in {SLOW} if name in sys.modules and name not in before])"
    lines = f"import sys, torch; before = set(sys.modules)\ntry:\n    {code}\nexcept SystemExit: pass\n{told}"
    done = process("-c", lines, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.rpartition("slow: ")[2].strip()


@pytest.mark.parametrize(
    "options",
    [
        [],
        pytest.param(["--engine", "sequential"], marks=pytest.mark.thorough),
        pytest.param(["--model", "convnet", "--cohort", "2"], marks=pytest.mark.thorough),
    ],
)
def test_a_short_run_imports_no_compiler_and_no_other_library(options: list[str], tmp_path: Path) -> None:
    words = ["run", "fedavg", "--data", "digits", "--rounds", "3", "--out", "r", *options]
    assert imported_after(f"from fedskew.cli.command import main; main({words})", tmp_path) == "[]"
    assert (tmp_path / "r" / "summary.json").is_file()


@pytest.mark.thorough
def test_one_round_of_every_method_imports_no_compiler(tmp_path: Path) -> None:
    run = "fs.run(fed, method(), model='logistic', rounds=1, cohort=2, engine='batched')"
    code = (
        "import fedskew as fs; from fedskew.methods import METHODS; "
        "fed = fs.federate('digits', fs.partitioners.Dirichlet(alpha=1), clients=4, seed=0, auxiliary=5); "
        f"[{run} for name, method in METHODS.items() if name != 'creff']"  # which takes seconds of server steps
    )
    assert imported_after(code, tmp_path) == "[]"


@pytest.mark.thorough
def test_building_any_network_imports_no_compiler(tmp_path: Path) -> None:
    code = (
        "from fedskew.models import MODELS, build; [build(name, (3, 32, 32), 10, 0) for name in MODELS if name != 'hf']"
    )
    assert imported_after(code, tmp_path) == "[]"


def _seconds(*words: str) -> float:
    """The shortest of three."""
    found = []
    for _ in range(3):
        start = time.perf_counter()
        assert process(*words).returncode == 0
        found.append(time.perf_counter() - start)
    return min(found)


def test_help_takes_little_more_than_python() -> None:
    """0.1 s on an idle machine; the bound is against Python's own start, for machines that are not."""
    assert _seconds("-m", "fedskew", "--help") < 0.3 + 8 * _seconds("-c", "pass")
