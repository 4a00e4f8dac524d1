"""The way from a call of `fedskew.run` to a local step is short, and what is checked of a run is checked once."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import fedskew as fs
from fedskew.config.flags import experiment_from
from fedskew.method import steps
from fedskew.method.steps import SGD

MOST = 14  # frames from `fedskew.run` to the clipping of a gradient, both included
ONCE = ("check_device", "check_engine", "choose", "cohort_of")
HOME = str(Path(fs.__file__).parent)


def test_few_frames_lie_between_a_run_and_its_local_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """With hooks that are looked at, as in the first round, and without, as in the second."""
    seen: list[list[str]] = []  # names of the functions on the way to each clipping, the innermost first
    plain = steps.clip_by_norm

    def clip_by_norm(grads: Any, limit: float) -> Any:
        frame: FrameType | None = sys._getframe()
        names = [frame.f_code.co_name]
        while frame is not None and frame.f_code is not fs.run.__code__:
            frame = frame.f_back
            names.append(frame.f_code.co_name if frame else "")
        seen.append(names)
        return plain(grads, limit)

    monkeypatch.setattr(steps, "clip_by_norm", clip_by_norm)
    fed = fs.federate("digits", "iid", clients=2)
    method = fs.methods.fedavg().with_(local=SGD(clip=5.0))
    fs.run(fed, method, model="logistic", rounds=2, cohort=1, engine="sequential", served="none", fit_logits="none")
    assert seen and all(names[-1] == "run" for names in seen)
    assert max(map(len, seen)) <= MOST, max(seen, key=len)


@pytest.mark.parametrize("way", ["python", "command"])
def test_what_is_checked_of_a_run_is_checked_once(way: str) -> None:
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name in ONCE and code.co_filename.startswith(HOME):
            calls[code.co_name] += 1

    words = ["fedavg", "--model", "logistic", "--clients", "2", "--cohort", "1", "--rounds", "1", "--served", "none"]
    experiment = experiment_from([*words, "--fit-logits", "none"])
    fed = experiment.federation()
    sys.setprofile(count)
    try:
        if way == "command":
            experiment.run()
        else:
            fs.run(fed, experiment.method, model="logistic", rounds=1, cohort=1, served="none", fit_logits="none")
    finally:
        sys.setprofile(None)
    assert calls == dict.fromkeys(ONCE, 1)
