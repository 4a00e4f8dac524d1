"""What type checkers and editors know of the public names: right uses pass, each wrong one is found."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fedskew as fs
from fedskew.slots import INGREDIENTS
from support.scripts import script

TYPED = Path(__file__).parent / "typed"
ROOT = Path(__file__).parents[2]
PYRIGHT = shutil.which("basedpyright") or shutil.which("pyright") or ""
CHECKERS = {
    "mypy": [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", f"--cache-dir={ROOT / '.mypy_cache'}"],
    "pyright": [PYRIGHT, "--level", "error", "--pythonpath", sys.executable],
}


@pytest.mark.parametrize("checker", CHECKERS)
def test_right_uses_pass_and_each_wrong_one_is_found(checker: str) -> None:
    command = CHECKERS[checker]
    if not command[0]:
        pytest.skip("pyright is not installed")
    done = subprocess.run([*command, "right.py", "wrong.py"], cwd=TYPED, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    text = (TYPED / "wrong.py").read_text(encoding="utf-8").splitlines()
    wrong = {("wrong.py", str(number)) for number, line in enumerate(text, 1) if line.endswith("# wrong")}
    assert len(wrong) >= 20 and {*re.findall(r"(\w+\.py):(\d+):.*error", done.stdout)} == wrong


def test_written_files_say_what_the_code_does() -> None:
    for path, text in script("scripts/typed.py").files().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.relative_to(ROOT)} differs: run scripts/typed.py"


def test_every_ingredient_stands_in_a_module_of_its_slot() -> None:
    modules = (fs.parts, fs.samplers, fs.selectors, fs.paces, fs.weightings, fs.servers, fs.steps)
    for module, table in zip(modules, INGREDIENTS.values(), strict=True):
        assert {kind.__name__ for kind in table.values()} <= {*module.__all__}, module.__name__


def test_help_lists_the_ingredients(capsys: pytest.CaptureFixture[str]) -> None:
    help(fs.parts)
    assert "class Proximal(" in capsys.readouterr().out
