"""How much of fedskew runs before a run begins: few calls, also in a process that imports and checks everything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import fedskew as fs

MOST = 460  # some 40 of them are checks of data, each of which is a call of `claim`
PROBE = """
import os, sys
package, calls = sys.argv.pop(1), 0

def count(frame, event, _):
    global calls
    code = frame.f_code
    if event == "call" and code.co_flags & 1 and (code.co_filename or "").startswith(package):  # no module, no class
        if code.co_qualname == "_prepared" and code.co_filename.endswith("_run.py"):
            print(calls, flush=True)
            os._exit(0)
        calls += not code.co_name.endswith(("comp>", "expr>"))  # which newer Pythons inline

sys.setprofile(count)
from fedskew.cli.command import main
main(sys.argv[1:])
"""


def test_few_calls_stand_between_a_command_line_and_its_run(tmp_path: Path) -> None:
    """Counted in a process of its own: functions that modules call while they are imported count, too."""
    words = "run fedbal --partition shards --seed 1 --lr=0.2 --clip 5"
    command = [sys.executable, "-c", PROBE, str(Path(fs.__file__).parent), *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert 100 < int(done.stdout) < MOST
