"""Completion on Tab: what the script of a shell offers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from support.command import mistake, output_of

TAB = """source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); _fedskew; echo "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_offers_commands_names_options_and_values(tmp_path: Path) -> None:
    script = tmp_path / "fedskew.sh"
    script.write_text(output_of("completion", "bash"))
    offers = {
        "fedskew par": ["partition", "partitions"],
        "fedskew partition m": ["make"],
        "fedskew run fedb": ["fedbabu", "fedbal", "fedbn"],
        "fedskew run --lr 0.1 fedpr": ["fedprox"],
        "fedskew run fedbal --data fash": ["fashion_mnist"],
        "fedskew run fedavg --server yo": ["yogi"],
        "fedskew run fedavg --fit": ["--fit-logits"],
        "fedskew describe --partition dirichlet --data mn": ["mnist"],
        "fedskew models res": ["resnet18", "resnet20", "resnet9"],
        "fedskew methods --js": ["--json"],
        "fedskew rnu ": [],
    }
    for line, offered in offers.items():
        done = subprocess.run(["bash", "-c", TAB, "_", script, *line.split(" ")], capture_output=True, text=True)
        assert (done.stdout.split(), done.stderr) == (offered, ""), line


@pytest.mark.parametrize(
    ("shell", "line"),
    [("zsh", "complete -o default -F _fedskew fedskew"), ("fish", "complete -c fedskew -l preset -x -a 'authors")],
)
def test_the_scripts_of_other_shells(shell: str, line: str) -> None:
    script = output_of("completion", shell)
    assert line in script and "fedbal" in script


def test_a_shell_that_is_not_known_is_refused() -> None:
    assert "bash" in mistake("completion", "tcsh")
