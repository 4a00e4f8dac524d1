"""The peers' virtual environments, one each, since their requirements contradict one another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BENCHMARKS = HERE.parent
ENVIRONMENTS = tuple(sorted(path.stem for path in (HERE / "requirements").glob("*.txt")))


def requirements(name: str) -> Path:
    """The file that says what an environment holds."""
    return HERE / "requirements" / f"{name}.txt"


def python_of(name: str) -> Path | None:
    """The interpreter of a finished environment; None where it is missing, or older than its requirements."""
    stamp, wanted = BENCHMARKS / ".envs" / name / "installed.txt", requirements(name)
    ready = stamp.exists() and stamp.read_text() == wanted.read_text()
    return BENCHMARKS / ".envs" / name / "bin" / "python" if ready else None


def install(names: list[str]) -> int:
    """Make environments; 1 if one could not be made. Each holds the CPU build of torch, or is not called ready."""
    failed = 0
    for name in names:
        if name not in ENVIRONMENTS:
            print(f"unknown peer {name!r}; known: {', '.join(ENVIRONMENTS)}", file=sys.stderr)
            return 2
        problem = "" if python_of(name) else _make(name)
        failed += bool(problem)
        print(f"{name}: {problem or 'ready'}", flush=True)
    return int(failed > 0)


def _make(name: str) -> str:
    """Why an environment could not be made, "" if it could."""
    folder = BENCHMARKS / ".envs" / name
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(requirements(name))]
    for words in ([sys.executable, "-m", "venv", str(folder)], pip):
        if subprocess.run(words).returncode:
            return f"failed: {' '.join(words)}"
    show = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    if not show.stdout.strip().endswith("+cpu"):
        return f"torch must be a CPU build; got {show.stdout.strip() or 'none'}"
    (folder / "installed.txt").write_text(requirements(name).read_text())
    return ""
