"""A hundred thousand messages of simulated deployments, most of them to nodes that answer without training."""

from __future__ import annotations

from itertools import count

import pytest

from support.attack import Line, some
from support.simulation import simulate, talk

PARTS = 4
DEPLOYMENTS, MESSAGES = some(20, 1000), 25_000  # of each part


@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_happens_to_messages_processes_disks_and_clocks(part: int) -> None:
    sent, seed = 0, DEPLOYMENTS * part
    with Line("deployments", "simulated seeds") as line:
        for report in map(simulate, range(seed, seed + DEPLOYMENTS)):
            sent += report.messages
            line.check(not report.wrong, f"scripts/simulate.py --seed {report.seed}: {report.wrong}")
    with Line("deployments", "simulated questions") as line:
        for number in count(seed):
            report = talk(number)
            sent += report.messages
            line.check(not report.wrong, f"questions of seed {report.seed}: {report.wrong}")
            if sent >= MESSAGES:
                break
