"""Equal bytes are promised on processors of one type: others are told, once, and recorded, and the run goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from fedskew.config.recorded import read_run
from fedskew.engines import runtime as module
from fedskew.engines.runtime import processor
from support.federations import skewed
from support.methods import tiny
from support.resuming import equal, stop_after
from support.runs import measured as go

needs_ray = [
    pytest.mark.ray,
    # Ray's own: sockets and processes that it leaves to the collector
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
INTEL = "processor : 0\nvendor_id : X\ncpu family : 6\nmodel : 207\nmodel name :  Some  CPU\n\nmodel name : B\n"
ARM = "processor : 0\nCPU implementer : 0x41\nCPU architecture: 8\nCPU part : 0xd0c\n"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (INTEL, "Some CPU, cpu family 6, model 207, "),
        (ARM, "CPU implementer 0x41, CPU architecture 8, CPU part 0xd0c, "),
    ],
)
def test_the_type_of_a_processor(content: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpuinfo").write_text(content)
    monkeypatch.setattr(module, "CPUINFO", tmp_path / "cpuinfo")
    assert processor().startswith(told)
    plain = processor()
    monkeypatch.setenv("MKL_CBWR", "AVX2")
    assert processor() == f"{plain}, MKL_CBWR=AVX2"


@pytest.mark.parametrize("content", [None, "", "nothing of this kind\n"])
def test_a_system_that_does_not_say_its_processor(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if content is not None:
        (tmp_path / "cpuinfo").write_text(content)
    monkeypatch.setattr(module, "CPUINFO", tmp_path / "cpuinfo")
    name, *rest = processor().split(", ")
    assert name and rest


def said(found: list[warnings.WarningMessage]) -> list[str]:
    return [str(one.message) for one in found if "unlike processors" in str(one.message)]


class TestOnACluster:
    pytestmark = needs_ray

    def test_workers_that_are_unlike_the_driver_are_told_once(
        self, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Only the driver's word is another one, so the bytes stay."""
        options = {"rounds": 4, "engine": "ray"}
        go(skewed(), tiny("fedavg"), rounds=4, out=tmp_path / "whole")
        monkeypatch.setattr("fedskew.engines.ray.engine.processor", lambda device: "another, AVX2")
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            go(skewed(), tiny("fedavg"), out=tmp_path / "run", on_round=stop_after(2), **options)
        (words,) = said(found)
        assert "'another, AVX2'" in words and repr(processor()) in words and "\n" not in words
        assert read_run(tmp_path / "run").config["processors"] == ["another, AVX2", processor()]

        # on a cluster of one type: what the rounds before were on still counts
        monkeypatch.undo()
        with pytest.warns(RuntimeWarning, match="unlike processors"):
            go(skewed(), tiny("fedavg"), out=tmp_path / "run", resume=True, **options)
        equal(tmp_path / "whole", tmp_path / "run")
        assert read_run(tmp_path / "run").config["processors"] == [processor(), "another, AVX2"]

    def test_processors_of_one_type_are_recorded_and_not_told(self, cluster: Any, tmp_path: Path) -> None:
        go(skewed(), tiny("fedavg"), out=tmp_path / "run", engine="ray")  # a warning is an error
        assert read_run(tmp_path / "run").config["processors"] == [processor()]

    def test_the_command_says_it_in_a_line_and_reads_its_record(self, cluster: Any, tmp_path: Path) -> None:
        """The driver takes other instructions, as an older processor would."""
        run = ["run", "fedavg", "--clients", "6", "--cohort", "4", "--rounds", "2", "--model", "logistic"]
        words = [*run, "--engine", "ray", "--ray.address", cluster.address, "--out", "run"]
        command = [sys.executable, "-m", "fedskew", *words]
        environment = {**os.environ, "ATEN_CPU_CAPABILITY": "default"}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        (line,) = [line for line in done.stderr.splitlines() if "unlike processors" in line]
        there = json.loads((tmp_path / "run/config.json").read_text())["processors"]
        assert line.startswith("fedskew: note: ") and all(repr(kind) in line for kind in there)
        assert len(there) == 2 and there[0] != there[1] == processor()
        again = subprocess.run(
            [sys.executable, "-m", "fedskew", "run", "--resume", "run"], cwd=tmp_path, capture_output=True, text=True
        )
        assert again.returncode == 0 and "is finished" in again.stdout, again.stderr

    def test_a_machine_that_is_unlike_the_others(self, cluster: Any, tmp_path: Path) -> None:
        recorded = lambda: json.loads((tmp_path / "run/config.json").read_text())["processors"]

        def until_it_works(row: dict[str, Any]) -> None:
            time.sleep(0.05)  # the others would be done before it has begun
            if len(recorded()) == 2:
                raise KeyboardInterrupt

        node = cluster.add_node(num_cpus=1, env_vars={"ATEN_CPU_CAPABILITY": "default"})
        options = {"engine": "ray", "ray_workers": 3, "rounds": 1000, "on_round": until_it_works}
        try:
            with pytest.warns(RuntimeWarning, match="unlike processors"):
                go(skewed(), tiny("fedavg"), out=tmp_path / "run", **options)
        finally:
            cluster.remove_node(node)
        assert recorded()[1] != recorded()[0] == processor()
