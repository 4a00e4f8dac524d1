"""`fedskew verify`: whole folders, altered ones, and those that cannot be compared."""

from __future__ import annotations

import shutil
from pathlib import Path

from support.command import SMALL, fedskew, output_of, printed
from support.old_format import as_format_1


def test_verify_says_what_is_whole_and_what_was_altered(tmp_path: Path) -> None:
    words = ["run", "scaffold", *SMALL, "--diagnose", "features"]
    assert fedskew(*words, "--out", tmp_path / "a") == 0
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert output_of("verify", tmp_path).splitlines() == [f"{tmp_path / run}: whole, 2 rounds" for run in "ab"]
    changes = {
        "env.json": "was altered after the run wrote it",
        "checkpoint/state.safetensors": "is damaged",
        "features/round-000002.safetensors": "was altered after the run wrote it",
        "rounds.jsonl": "round 1 was altered",
    }
    for name, told in changes.items():
        content = bytearray((tmp_path / "b" / name).read_bytes())
        content[-1 if name == "checkpoint/state.safetensors" else 12] ^= 1
        (tmp_path / "b" / name).write_bytes(content)
        said = output_of("verify", tmp_path / "b", code=2)
        assert f"{tmp_path / 'b'}: ALTERED: " in said and told in said and name in said
        shutil.copy(tmp_path / "a" / name, tmp_path / "b" / name)
    assert fedskew("verify", tmp_path / "b") == 0


def test_a_folder_of_format_1_has_nothing_to_compare_with(run: Path) -> None:
    as_format_1(run)
    assert "is of format 1, whose files have no digests" in output_of("verify", run, code=2)
    assert fedskew("plot", run, "--out", run / "picture.svg") == 0, "it is still read"
    said = printed("run", "--resume", run, "--rounds", 5, code=2).err
    assert "must be of format 2 to be resumed; got 1" in said and "begin the run again in another folder" in said
