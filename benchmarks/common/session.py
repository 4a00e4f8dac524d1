"""Where the checkout stands, and what the numbers of a session depend on beside the work."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).resolve().parents[1]
ROOT = BENCHMARKS.parent
CPU = Path("/proc/cpuinfo")


def setting() -> dict[str, Any]:
    """What the numbers depend on beside the work."""

    def git(*words: str) -> str:
        try:
            return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()
        except FileNotFoundError:
            return ""

    told = CPU.read_text().splitlines() if CPU.exists() else []
    models = [line.split(":")[1].strip() for line in told if line.startswith("model name")]
    return {
        "session": time.strftime("%Y-%m-%dT%H:%M:%S"),
        # a machine may have a copy without git
        "commit": os.environ.get("COMMIT")
        or git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "src") else ""),
        "machine": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
    }
