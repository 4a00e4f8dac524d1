"""Names of classes, columns and files come from others: none reaches a terminal or a picture as anything but text."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedskew.cli.output import SPELT, say
from fedskew.errors import DEEPEST, from_json, visible
from fedskew.plots import canvas, skew
from support.command import SMALL, mistake, printed
from support.old_format import as_format_1

NAMES = np.array(["[/b]$a", "\x1b[2Jcat", "$\\frac{$", "_d", "漢字\u202e"])
PNG = b"\x89PNG"


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    y = np.arange(60) % len(NAMES)
    gen = np.random.Generator(np.random.PCG64(0))
    np.savez(tmp_path / "[red]$x.npz", x=gen.normal(size=(60, 4)), y=NAMES[y])
    return tmp_path / "[red]$x.npz"


def test_names_with_markup_dollars_and_escape_codes(odd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(odd.parent)
    data = ["--data", "npz", "--path", odd.name]
    commands = (
        ["describe", *data, "--clients", 3, "--out", "federation.png"],
        ["run", "fedavg", *SMALL, *data, "--out", "[/b]run$"],
        ["plot", "[/b]run$"],
        ["evaluate", "[/b]run$"],
        ["plot", "[/b]run$", "--figure", "weights"],
    )
    said = "".join(text for words in commands for text in printed(*words))
    assert "\x1b" not in said and r"\x1b[2Jcat" in said and "[/b]$a" in said
    assert (odd.parent / "[/b]run$" / "comparison.png").read_bytes().startswith(PNG)


def test_a_legend_shows_a_label_that_begins_with_an_underscore() -> None:
    assert canvas.entry("_d").strip() == "_d" and not canvas.entry("_d").startswith("_") and canvas.entry("a_") == "a_"


def test_a_dollar_in_a_picture_is_a_dollar(tmp_path: Path) -> None:
    drawn = skew.draw(np.eye(5) + 1, title="$\\frac{$ and $", class_names=list(NAMES))
    picture = canvas.save(drawn, tmp_path / "a.svg")
    assert "<svg" in picture.read_text()


def test_an_error_with_escape_codes_is_one_plain_line(tmp_path: Path) -> None:
    said = mistake("plot", str(tmp_path / "\x1b[2J\n\rx"))
    assert "\x1b" not in said and "\r" not in said and r"\x1b" in said


def test_visible_keeps_what_people_write() -> None:
    assert visible("Çağ 漢字 🎈 a\u200db\n\tc") == "Çağ 漢字 🎈 a\u200db\n\tc"
    assert visible("\x9b1m\u202e\udcff\r") == r"\x9b1m\u202e\udcff\r"


def test_a_strict_ascii_terminal(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fedskew", "describe", "--clients", "4"]
    env = {"PYTHONIOENCODING": "ascii:strict", "PATH": "", "HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, env=env, capture_output=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.isascii() and not done.stderr


def test_characters_that_a_terminal_lacks_are_spelt(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors=SPELT)
    say("0.9 ±0.1 … 漢", out)
    assert out.buffer.getvalue() == b"0.9 +-0.1 ... \\u6f22\n"  # type: ignore[attr-defined]


def test_json_is_read_within_bounds() -> None:
    assert from_json("[" * DEEPEST + "]" * DEEPEST)
    for text in ("[" * 65 + "]" * 65, "[" * 50_000, '{"a":' * 50_000, b"\xff", "9" * 5000):
        with pytest.raises(ValueError) as error:
            from_json(text)
        assert "\n" not in str(error.value)


LONG = "a" * 300


@pytest.mark.parametrize("words", [
    ["plot", LONG], ["evaluate", LONG], ["describe", LONG], ["advise", LONG], ["run", "--from", LONG],
    ["run", "--resume", LONG], ["run", "fedavg", "--data", "npz", "--path", LONG], ["run", "fedavg", "--out", LONG],
    ["partition", "verify", LONG], ["partition", "make", "--out", LONG],
])  # fmt: skip
def test_a_path_that_no_file_system_takes_is_one_line(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "too long" in mistake(*words)


def test_a_folder_that_may_not_be_searched_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "locked/run")

    monkeypatch.setattr(Path, "exists", refused)
    monkeypatch.setattr(Path, "is_file", refused)
    said = mistake("plot", "locked/run")
    assert said == "fedskew: locked/run cannot be used: Permission denied\n"


def test_more_memory_than_there_is_is_one_line(tmp_path: Path) -> None:
    words = ["run", "fedavg", "--clients", 3, "--model", "2nn", "--model.hidden", 10**6, "--out", tmp_path / "a"]
    assert "memory ran out" in mistake(*words)  # 4 TB, which no system gives


BROKEN = {
    "rounds.jsonl": ('{"round": "one"}\n', "'round' must be a whole number; got 'one'"),
    "summary.json": ('{"rounds": 1}', "'stopped' is missing"),
    "config.json": ('{"label_names": [3]}', "'label_names[0]' must be a word; got 3"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_record_with_an_entry_of_another_type_names_it(name: str, run: Path) -> None:
    content, expected = BROKEN[name]
    as_format_1(run)
    (run / name).write_text(content)
    assert expected in mistake("plot", run)


def test_a_record_that_is_no_utf8_is_one_line(run: Path) -> None:
    (run / "rounds.jsonl").write_bytes(b'{"round": 1, "x": "\xff"}\n')
    assert "not a run folder" in mistake("plot", run)


def test_a_record_names_no_file_outside_its_folder(run: Path) -> None:
    rows = [json.loads(line) for line in (as_format_1(run) / "rounds.jsonl").read_text().splitlines()]
    rows[-1]["diagnostics"] = {"features": {"file": "/etc/passwd"}}
    (run / "rounds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "run/features/passwd is missing" in mistake("plot", run, "--figure", "tsne")
