"""What the machines of a run compute with, in words: two that differ in them may round otherwise."""

from __future__ import annotations

import os
import platform
import warnings
from pathlib import Path

import torch

__all__ = ["Processors", "processor"]

CPUINFO = Path("/proc/cpuinfo")
# of one core; the latter three are those of ARM, which has no model name
TOLD = ("model name", "cpu family", "model", "CPU implementer", "CPU architecture", "CPU part")
# variables by which libraries take other instructions than those of the processor; torch's own shows in its capability
LIMITS = (
    "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE",
)  # fmt: skip


class Processors:
    """The types of processor that a run is on; none where it is on this machine alone, which env.json describes."""

    def __init__(self) -> None:
        self.kinds: list[str] = []  # as they were met

    def meet(self, kind: str) -> None:
        """The run is on a processor of this type. The first that differs is told, by a warning; the run goes on."""
        if kind in self.kinds:
            return
        self.kinds.append(kind)
        if len(self.kinds) == 2:
            which = f"{self.kinds[0]!r} and {kind!r}"
            may = "they may round otherwise, so its bytes may not be those of a run on one type of processor"
            warnings.warn(f"this run is on unlike processors, {which}: {may}", RuntimeWarning, stacklevel=2)

    def facts(self) -> dict[str, list[str]]:
        """What the record holds of them."""
        return {"processors": list(self.kinds)} if self.kinds else {}


def processor(device: str = "cpu") -> str:
    """The processor of this machine, the instructions that torch takes of it, limits that are set, and the GPU.

    Args:
        device: where clients train, "cpu", "cuda" or "cuda:NUMBER".

    Returns:
        As in "Intel(R) Xeon(R) Processor, cpu family 6, model 207, AVX512".
    """
    limits = [f"{name}={os.environ[name]}" for name in LIMITS if os.environ.get(name)]
    gpu = [torch.cuda.get_device_name(device)] if device.startswith("cuda") else []
    return ", ".join([*_core(), torch.backends.cpu.get_cpu_capability(), *limits, *gpu])


def _core() -> list[str]:
    """What the system says of the first core; where it has no such file, what Python knows."""
    try:
        lines = CPUINFO.read_text(encoding="utf-8", errors="replace").strip().split("\n\n")[0].splitlines()
    except OSError:
        lines = []
    pairs = (line.partition(":") for line in lines)
    found = {name.strip(): " ".join(value.split()) for name, _, value in pairs}
    told = [found[n] if n == "model name" else f"{n} {found[n]}" for n in TOLD if found.get(n)]
    return told or [platform.processor() or platform.machine()]
