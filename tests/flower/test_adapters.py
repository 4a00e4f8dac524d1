"""A federation of adapters over Flower's messages: what is trained travels, and the backbone does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("peft")
import numpy as np

import fedskew as fs
from support.flower_grid import alone, config, served
from support.pretrained import folder_of, skewed

pytestmark = pytest.mark.flower


@pytest.mark.parametrize("family", ["bert", "vit"])
def test_the_adapters_of_the_simulated_run_and_little_more_travel(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = skewed(family == "bert").dataset
    np.savez(tmp_path / "data.npz", x=data.x, y=data.y, x_test=data.x_test, y_test=data.y_test)
    content = config(
        tmp_path, data="npz", path=str(tmp_path / "data.npz"), model="hf", rounds=1, fit_logits="none", served="none",
        model__path=str(folder_of(family)), model__train="lora", model__weights="random", model__rank=128,
    )  # fmt: skip
    found = _counted(tmp_path, content, monkeypatch)
    update = sum(p.nbytes for p in found[0].params.values())
    assert all("lora_" in n or n.startswith("head.") for n in found[0].params)
    assert len(found[1]) == 3 and all(update <= size <= 1.05 * update for size in found[1]), (update, found[1])
    assert found[0].rounds[0]["upload_bytes"] == 3 * update
    more = served(tmp_path, {**content, "rounds": 3})
    simulated = alone(content, tmp_path / "alone", rounds=3)
    assert all(torch.equal(more.params[n], simulated.params[n]) for n in simulated.params)
    assert torch.equal(fs.load_model(more.folder).params["head.weight"], simulated.params["head.weight"])


def _counted(tmp_path: Path, content: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> tuple[fs.Result, list[int]]:
    """The run, and the bytes of each answer of a client that trained."""
    sizes: list[int] = []

    def weighed(client: int, reply: Any) -> Any:
        size = sum(len(array.data) for held in reply.array_records.values() for array in held.values())
        (texts,) = reply.config_records.values()
        if '"kind": "train"' in str(texts["facts"]):
            sizes.append(size + sum(len(str(text)) for text in texts.values()))
        return reply

    return served(tmp_path, content, lie=weighed), sizes
