"""Shakespeare's speakers, from a plain text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

import fedskew as fs
from fedskew.data import load
from fedskew.data.sources.shakespeare import LETTERS, NAMES
from fedskew.models import CharLSTM
from support.data_files import fails
from support.methods import tiny
from support.runs import go


def text(folder: Path, speeches: dict[str, int]) -> Path:
    """A text in which each speaker says so many characters, in two speeches."""
    said = [(name, (f"{name} speaks, and once more: " * 99)[: n // 2]) for name, n in speeches.items()] * 2
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "play.txt").write_text("\n\n".join(f"{name}:\n{speech}" for name, speech in said) + "\n")
    return folder


def test_a_text_is_cut_per_speaker_and_no_window_lies_in_both_parts(tmp_path: Path) -> None:
    place = text(tmp_path, {"First Witch": 1000, "MACBETH": 600, "Porter": 40})
    data = load("shakespeare", str(place))
    assert data.column_names["client"] == ("First Witch", "MACBETH")  # the porter says too little for a window
    assert [int((data.columns["client"] == k).sum()) for k in (0, 1)] == [800 - 80, 480 - 80]
    assert len(data.y_test) == (201 - 80) + (121 - 80)  # two speeches have a line feed between
    spoken = "".join(LETTERS[c] for c in data.x[0]) + LETTERS[data.y[0]]
    assert spoken.startswith("First Witch speaks, and once more: First Witch") and len(spoken) == 81
    assert torch.equal(data.x[1, :-1], data.x[0, 1:]) and int(data.x[1, -1]) == int(data.y[0])
    thin = load("shakespeare", str(place), stride=10)
    assert len(thin.y) == 72 + 40 and torch.equal(thin.x[1], data.x[10])
    assert thin.fingerprint != data.fingerprint == load("shakespeare", str(place)).fingerprint
    assert not data.test_is_official
    fed = fs.federate(load("shakespeare", str(place), stride=60), "natural")
    run = go(fed, tiny("scaffold"), model=CharLSTM(hidden=4), cohort=2, engine="sequential")
    assert torch.equal(run.predict(data.x_test), run.predict(data.x_test.float()))


def test_a_text_of_another_form_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "play.txt").write_text("ROMEO:\nO!\n\nJuliet says\nnothing\n")
    told = "play.txt must begin each speech with the speaker's name and a colon; line 4 is 'Juliet"
    fails("shakespeare", tmp_path, told)
    (tmp_path / "play.txt").write_text("ROMEO:\nO!\n\nJULIET:\nAh!\n")
    fails("shakespeare", tmp_path, "must have a speaker of 1 training rows at least; got none; lower least")
    (tmp_path / "play.txt").unlink()
    fails("shakespeare", tmp_path, "dataset 'shakespeare' was not found in")


def test_every_character_is_a_token(tmp_path: Path) -> None:
    said = (LETTERS[1:] + "~é") * 7
    (tmp_path / "play.txt").write_text(f"ROMEO:\n{said}\n")
    data = load("shakespeare", str(tmp_path))
    assert data.x.dtype == torch.int16 and data.shape == (80,) and data.classes == 80 and len(set(NAMES)) == 80
    assert data.x[0].tolist() == [LETTERS.index(c) if c in LETTERS else LETTERS.index(" ") for c in said[:80]]
    assert data.label_names[data.y[0]] == "space" and data.label_names[0] == "line feed"


@pytest.mark.skipif(
    not (Path(os.environ.get("FEDSKEW_DATA", "nowhere")) / "shakespeare/tinyshakespeare.txt").is_file(),
    reason="needs FEDSKEW_DATA with tinyshakespeare.txt",
)
def test_the_real_text() -> None:
    data = load("shakespeare", stride=10)
    assert (len(data.y), len(data.y_test), len(data.column_names["client"])) == (80135, 18784, 247)
    assert set(data.column_names["client"]) >= {"MENENIUS", "DUKE VINCENTIO", "KING RICHARD II"}
