"""Each way of bringing data that the guide shows: its block runs, on files of that form, and is five lines at most."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedskew as fs
from support.command import fedskew
from support.data_files import encoded, write_parquet
from support.paths import ROOT

PAGE = (ROOT / "docs/guide/own-data.md").read_text(encoding="utf-8")
(PART,) = re.findall(r"^## Your own data\n(.*?)^## ", PAGE, re.M | re.S)
WAYS = {part.partition("\n")[0]: part for part in re.split(r"^### ", PART, flags=re.M)[1:]}
BLOCKS = {name: re.findall(r"^```python\n(.*?)^```", part, re.M | re.S) for name, part in WAYS.items()}
COMMANDS = [line for part in WAYS.values() for line in re.findall(r"^fedskew (.*)$", part, re.M)]
GEN = np.random.default_rng(0)
FRAME = {
    "age": [np.nan if i % 9 == 4 else 40.5 + i for i in range(40)],
    "sex": [None if i % 7 == 3 else "fm"[i % 2] for i in range(40)],
    "stage": [("I", "II", "III")[i % 3] for i in range(40)],
    "place": [2 - i % 3 for i in range(40)],
    "outcome": [("ill", "well")[i // 2 % 2] for i in range(40)],
    "hospital": [("north", "south")[i % 2] for i in range(40)],
}


def csv(file: Path, names: list[str], rows: slice = slice(None)) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame(FRAME)[names].rename(columns={"outcome": "label", "hospital": "client"})
    frame[rows].to_csv(file, index=False)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with everything that the blocks name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDSKEW_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    csv(tmp_path / "patients.csv", [*FRAME])
    for k, site in enumerate(("north", "south")):
        csv(tmp_path / f"hospitals/{site}.csv", ["place", "outcome"], slice(k, None, 2))
        (tmp_path / "phones").mkdir(exist_ok=True)
        np.savez(tmp_path / f"phones/{site}.npz", x=GEN.normal(size=(12, 3)), y=np.arange(12)[:, None] % 2)
    pictures, codes = GEN.integers(0, 256, (60, 28, 28, 3)).astype(np.uint8), (np.arange(60) % 3)[:, None]
    np.savez(
        tmp_path / "dermamnist.npz", train_images=pictures, train_labels=codes, test_images=pictures[:9],
        test_labels=codes[:9], val_images=pictures[:6], val_labels=codes[:6],
    )  # fmt: skip
    (tmp_path / "large").mkdir()
    for name, array in (
        ("x_train", GEN.normal(size=(30, 4)).astype(np.float32)), ("y_train", np.arange(30) % 3),
        ("x_test", GEN.normal(size=(6, 4)).astype(np.float32)), ("y_test", np.arange(6) % 3),
        ("client", np.array(["a", "b", "c"])[np.arange(30) % 3]),
    ):  # fmt: skip
        np.save(tmp_path / f"large/{name}.npy", array)
    return tmp_path


def parquet(files: Path) -> None:
    pd.DataFrame(FRAME).rename(columns={"outcome": "label"}).to_parquet(files / "patients.parquet")


def images(files: Path) -> None:
    for place in (files / f"photos/{k}/{c}" for k in ("ada", "bob") for c in ("cat", "dog")):
        place.mkdir(parents=True)
        for i in range(4):
            (place / f"{i}.png").write_bytes(encoded(GEN.integers(0, 256, (40, 36, 3)).astype(np.uint8), "PNG"))


def letters(files: Path) -> None:
    pictures = GEN.integers(0, 256, (20, 5, 5, 3)).astype(np.uint8)
    columns = {"letter": ["a", "b"] * 10, "writer": [f"w{i % 4}" for i in range(20)]}
    write_parquet(files / "letters/train-00000-of-00001.parquet", pictures, column="picture", **columns)


CLIENTS: dict[str, tuple[int, ...]] = {  # way -> clients of the federation that each line makes
    "A csv file": (2,), "A parquet file": (2,), "Columns in memory, such as a pandas frame": (2,),
    "One file a client": (2, 2), "An npz file, and MedMNIST": (10,), "Data larger than the memory": (3,),
    "Folders of images": (2,), "Hugging Face datasets": (4,),
}  # fmt: skip
NEEDS: dict[str, Any] = {"A parquet file": parquet, "Folders of images": images, "Hugging Face datasets": letters}


def test_every_way_has_a_block_of_five_lines_at_most() -> None:
    assert {name for name, blocks in BLOCKS.items() if blocks} == set(CLIENTS)
    assert all(len(block.strip().splitlines()) <= 5 for blocks in BLOCKS.values() for block in blocks)


@pytest.mark.parametrize("way", CLIENTS)
def test_the_block_of_each_way_runs(way: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    NEEDS.get(way, lambda _: None)(files)
    made: list[Any] = []
    federate = fs.federate

    def watched(*args: Any, **options: Any) -> fs.Federation:
        made.append(federate(*args, **options))
        return made[-1]

    monkeypatch.setattr(fs, "federate", watched)
    for block in BLOCKS[way]:
        exec(compile(block, f"own-data.md: {way}", "exec"), {"fs": fs, "frame": FRAME})
    assert tuple(fed.clients for fed in made) == CLIENTS[way]
    assert all(int(fed.sizes.sum()) == len(fed.dataset.y) for fed in made)
    names = {name for fed in made for name in fed.client_names}
    assert names or "Dirichlet" in BLOCKS[way][0]


@pytest.mark.parametrize("line", COMMANDS)
def test_the_command_of_each_way_runs(line: str, files: Path) -> None:
    if "images" in line:
        images(files)
    words = shlex.split(re.sub(r"--rounds \d+", "--rounds 1", line))
    assert fedskew(*words, *(["--out", files / "run"] if words[0] == "run" else [])) == 0
