"""FedBench's SCAFFOLD as its code has it, an ingredient outside the catalogue, and its preparation of Adult.

python benchmarks/agreement/fedbench.py adult FILE.npz    Adult as FedBench divides and scales it, from $FEDSKEW_DATA
python benchmarks/agreement/fedbench.py COMMAND ...       a command of fedskew that knows the part fedbench_variate
"""

from __future__ import annotations

import csv
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from fedskew import tree
from fedskew.cli.command import main
from fedskew.data.sources.tabular import ADULT_COLUMNS, ADULT_NUMBERS
from fedskew.methods.scaffold import ControlVariate
from fedskew.slots import INGREDIENTS
from fedskew.studies.pool import IMPORTED
from fedskew.tree import Tree
from fedskew.types import LocalRun


@dataclass(frozen=True)
class FedBenchVariate(ControlVariate):
    """SCAFFOLD's variate as FedBench's client.py sends it: another sign, no difference, and c_k = 0 in every round.

    The upload is (y_k - x) / (a lr), where the paper has c_k+ - c_k with c_k+ = c_k - c + (x - y_k) / (a lr). Since
    y_k - x = -a lr (m_k + c) with m_k the mean gradient, c becomes minus the mean gradient of the last round, and each
    round takes back what the last one did.
    """

    name = "fedbench_variate"

    spread: Literal["clients", "cohort", "size"] = "size"
    """as in the code"""

    def finish(self, local: LocalRun) -> tuple[Tree, Tree]:
        """(y_k - x) / (a lr) as the upload; what the client keeps on its disk is never loaded."""
        moved = tree.sub(local.params, local.ctx.params)
        return {"change": tree.scale(moved, 1 / (local.report.a_norm * local.ctx.lr))}, local.memory[self.name]


INGREDIENTS["parts"][FedBenchVariate.name] = FedBenchVariate


def adult(file: str) -> None:
    """Write Adult as FedBench prepares it: one fifth of adult.data is the test set, and each set is encoded by itself.

    Rows stand as in Kaggle's file, by capital loss and then capital gain. Columns are the six numbers, then each
    attribute's values but the first in their order, all standardised. So 3 of 99 columns of the test set mean another
    value than in the training set, which concerns 7 rows.
    """
    source = Path(os.environ["FEDSKEW_DATA"]) / "adult" / "adult.data"
    with source.open(encoding="utf-8", newline="") as opened:
        rows = np.array([row for row in csv.reader(opened, skipinitialspace=True) if row])
    gain, loss = (rows[:, ADULT_COLUMNS.index(name)].astype(int) for name in ("capital-gain", "capital-loss"))
    rows = rows[np.lexsort((np.arange(len(rows)), -gain, -loss))]
    order = np.random.default_rng(42).permutation(len(rows))
    tests = -(-len(rows) // 5)
    arrays = {}
    for part, chosen in (("test", order[:tests]), ("train", order[tests:])):
        blocks = [rows[chosen, ADULT_COLUMNS.index(name), None].astype(np.float64) for name in ADULT_NUMBERS]
        for i, name in enumerate(ADULT_COLUMNS):
            if name not in ADULT_NUMBERS:
                blocks.append((rows[chosen, i, None] == np.unique(rows[chosen, i])[1:]).astype(np.float64))
        x = np.concatenate(blocks, axis=1)
        spread = x.std(axis=0)
        arrays[f"x_{part}"] = ((x - x.mean(axis=0)) / np.where(spread == 0, 1, spread)).astype(np.float32)
        arrays[f"y_{part}"] = (rows[chosen, -1] == ">50K").astype(np.int64)
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    np.savez(file, **arrays)


if __name__ == "__main__":
    if sys.argv[1:2] == ["adult"]:
        adult(*sys.argv[2:])
    else:
        IMPORTED.append(Path(__file__).stem)  # by the workers of a study, which know the part then
        os.environ["PYTHONPATH"] = f"{Path(__file__).parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        main()
