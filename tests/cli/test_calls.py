"""How much of fedskew runs before a run begins: a command line is parsed once, by few calls."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import fedskew as fs
from fedskew.cli.command import main, root

MOST = 400


@pytest.mark.parametrize("words", ["run fedavg --clip 5 --epochs 3", "run fedbal --partition shards --seed 1 --lr=0.2"])
def test_few_calls_stand_between_a_command_line_and_its_run(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted the second time: before, modules are imported, and the defaults of each class are checked once."""
    package, calls = str(Path(fs.__file__).parent), 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename.startswith(package)

    monkeypatch.setattr(root.commands["run"], "callback", lambda **_: sys.setprofile(None))
    for _ in range(2):
        calls = 0
        sys.setprofile(count)
        try:
            with pytest.raises(SystemExit) as stop:
                main(words.split())
        finally:
            sys.setprofile(None)
    assert stop.value.code == 0 and 0 < calls < MOST
