"""LEAF's layout: FEMNIST's writers and Shakespeare's speakers, from small files of its form and from a plain text."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedskew as fs
from fedskew.data import load
from fedskew.data.sources.leaf import LETTERS, NAMES
from fedskew.models import CharLSTM
from support.command import fedskew
from support.data_files import GEN, fails
from support.methods import tiny
from support.runs import gap, go


def leaf(file: Path, users: dict[str, tuple[list[Any], list[Any]]]) -> Path:
    """A file as LEAF writes it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    data = {user: {"x": x, "y": y} for user, (x, y) in users.items()}
    counts = [len(y) for _, y in users.values()]
    file.write_text(json.dumps({"users": list(users), "num_samples": counts, "user_data": data}))
    return file


def writer(rows: int, first: int = 0) -> tuple[list[Any], list[Any]]:
    x = GEN.integers(0, 256, (rows, 784)) / 255
    return x.tolist(), [(first + i) % 62 for i in range(rows)]


def test_femnist_has_writers_and_62_classes(tmp_path: Path) -> None:
    users = {"f0001_41": writer(5), "f0002_10": writer(3, 40)}
    leaf(tmp_path / "train/all_data_0_keep_0_train_9.json", users)
    leaf(tmp_path / "train/all_data_1_keep_0_train_9.json", {"f0003_09": writer(2)})
    leaf(tmp_path / "test/all_data_0_keep_0_test_9.json", {"f0001_41": writer(2)})
    fed = fs.federate("femnist", "natural", path=str(tmp_path))
    assert fed.client_names == ("f0001_41", "f0002_10", "f0003_09") and fed.sizes.tolist() == [5, 3, 2]
    data = fed.dataset
    assert data.shape == (1, 28, 28) and data.x.dtype == torch.uint8 and data.classes == 62 and data.test_is_official
    assert data.label_names[9:12] == ("9", "A", "B") and data.label_names[61] == "z"
    given = torch.tensor(users["f0001_41"][0], dtype=torch.float64).reshape(5, 1, 28, 28)
    assert torch.equal(data.x[:5].double() / 255, given)
    assert load("femnist", str(tmp_path), normalize="half", augment=True).augment == ("crop",)
    x, y = writer(40)
    leaf(tmp_path / "one/all_data/all_data.json", {"a": ((np.array(x) * 0.999).tolist(), [i % 2 for i in range(40)])})
    other = load("femnist", str(tmp_path / "one"))  # pixels that are no 255ths, and no split of its own
    assert other.x.dtype == torch.float32 and len(other.y_test) == 8 and not other.test_is_official and y


def test_shakespeare_s_files_are_windows_of_tokens(tmp_path: Path) -> None:
    window = (LETTERS + "~é")[-WINDOW:]
    rows = [window] * 4
    for split in ("train", "test"):
        leaf(tmp_path / split / "a.json", {"ROMEO": (rows, list("ab c")), "JULIET": (rows[:1], ["\n"])})
    fed = fs.federate("shakespeare", "natural", path=str(tmp_path))
    data = fed.dataset
    assert fed.client_names == ("JULIET", "ROMEO") and fed.sizes.tolist() == [1, 4]
    assert data.x.dtype == torch.int16 and data.shape == (80,) and data.classes == 80 and len(set(NAMES)) == 80
    expected = [LETTERS.index(c) if c in LETTERS else LETTERS.index(" ") for c in window]
    assert data.x[0].tolist() == expected and expected[-2:] == [LETTERS.index(" ")] * 2
    assert [data.label_names[c] for c in data.y] == ["a", "b", "space", "c", "line feed"]
    thin = load("shakespeare", str(tmp_path), stride=2, least=2)
    assert [thin.label_names[c] for c in thin.y] == ["a", "space"] and thin.column_names["client"] == ("ROMEO",)


WINDOW = 80


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
    runs = [go(fed, tiny("scaffold"), model=CharLSTM(hidden=4), cohort=2, engine=e) for e in ("sequential", "batched")]
    assert gap(runs[0].params, runs[1].params) <= 1e-8  # int16 tokens, in float64
    out = tmp_path / "run"
    words = ["--data", "shakespeare", "--data.path", place, "--data.stride", 40, "--partition", "natural"]
    words += ["--model", "char_lstm", "--model.hidden", 4, "--rounds", 1, "--out", out]
    assert fedskew("run", "fedavg", *words) == 0 and fedskew("evaluate", out) == 0
    trained = fs.load_model(out)
    assert torch.equal(trained.predict(data.x_test), trained.predict(data.x_test.float()))


def test_files_of_another_form_are_one_line(tmp_path: Path) -> None:
    file = tmp_path / "all_data/a.json"
    good = writer(1)[0][0]
    for users, said in (
        (
            {"u": ([good, good[:-1]], [0, 1])},
            "a.json: user 'u', row 1 must have 784 finite numbers in x; got shape (783,",
        ),
        ({"u": ([good, "x"], [0, 1])}, "row 1 must have 784 numbers in x; got 'x'"),
        ({"u": ([good], [62])}, "row 0 must have a label 0..61 in y; got 62"),
        ({"u": ([good], [True])}, "row 0 must have a label 0..61 in y; got True"),
        ({"u": ([good], [])}, "user 'u' has 1 x and 0 y; they must agree"),
        ({}, "must hold 'user_data', as LEAF writes it; got 'users', 'num_samples', 'user_data'"),
    ):
        leaf(file, users)  # type: ignore[arg-type]
        fails("femnist", tmp_path, said)
    for content, said in (
        ("{", "a.json is not a whole JSON file"),
        ("[1]", "must hold 'user_data', as LEAF writes it; got list"),
        ('{"user_data": {"u": {"x": []}}}', "user 'u' must have lists 'x' and 'y'; got 'x'"),
    ):
        file.write_text(content)
        fails("femnist", tmp_path, said)
    leaf(file, {"u": (["short"], ["a"])})
    fails("shakespeare", tmp_path, "user 'u', row 0 must have 80 characters in x; got 5 characters")
    leaf(file, {"u": (["a" * 80], ["ab"])})
    fails("shakespeare", tmp_path, "row 0 must have one character in y; got 'ab'")
    (tmp_path / "train").mkdir()
    leaf(tmp_path / "train/a.json", {"u": (["a" * 80], ["a"])})
    fails("shakespeare", tmp_path, "must hold train/*.json and test/*.json; got train only")
    bad = tmp_path / "text"
    bad.mkdir()
    (bad / "play.txt").write_text("ROMEO:\nO!\n\nJuliet says\nnothing\n")
    fails("shakespeare", bad, "play.txt must begin each speech with the speaker's name and a colon; line 4 is 'Juliet")
    (bad / "play.txt").write_text("ROMEO:\nO!\n\nJULIET:\nAh!\n")
    fails("shakespeare", bad, "must have a speaker of 1 training rows at least; got none; lower least")
    fails("femnist", tmp_path / "text", "dataset 'femnist' was not found in")


@pytest.mark.skipif(
    not (Path(os.environ.get("FEDSKEW_DATA", "nowhere")) / "shakespeare/tinyshakespeare.txt").is_file(),
    reason="needs FEDSKEW_DATA with tinyshakespeare.txt",
)
def test_the_real_text() -> None:
    data = load("shakespeare", stride=10)
    assert (len(data.y), len(data.y_test), len(data.column_names["client"])) == (80135, 18784, 247)
    assert set(data.column_names["client"]) >= {"MENENIUS", "DUKE VINCENTIO", "KING RICHARD II"}
