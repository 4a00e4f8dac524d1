"""What a node keeps between rounds, on a disk that is full and with a process that is killed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedskew.errors import RecordError
from fedskew.flower.memory import NodeMemory
from fedskew.tree import Tree
from support.disk import Disk

TEMPLATE: dict[str, Tree] = {"control": {"w": torch.zeros(3)}, "other": {"n": torch.zeros(1)}}


def memory(value: float) -> dict[str, Tree]:
    return {"control": {"w": torch.full((3,), value)}, "other": {"n": torch.tensor([value])}}


def test_a_memory_comes_back_by_its_receipt(tmp_path: Path) -> None:
    kept = NodeMemory(tmp_path / "client-0", TEMPLATE)
    first, second = kept.save(memory(1.0)), kept.save(memory(2.0))
    again = NodeMemory(tmp_path / "client-0", TEMPLATE)
    assert torch.equal(again.load(first)["control"]["w"], torch.ones(3))
    again.keep(second)
    assert torch.equal(again.load(second)["control"]["w"], torch.full((3,), 2.0))
    with pytest.raises(RecordError, match="must hold what this client kept; it is missing"):
        again.load(first)


@pytest.mark.parametrize("fate", ["fail", "short"])
def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path: Path, fate: str) -> None:
    kept = NodeMemory(tmp_path / "client-0", TEMPLATE)
    first = kept.save(memory(1.0))
    assert kept.newer("session", 1)
    with pytest.MonkeyPatch.context() as patch:
        made = Disk(kept.folder).attach(patch)
        kept.save(memory(2.0))
        kept.newer("session", 2)
    for number in range(len(made.calls)):
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(kept.folder, lambda n, number=number: fate if n == number else "").attach(patch)  # type: ignore[misc]
            try:
                kept.save(memory(3.0 + number))
                kept.newer("session", 3 + number)
            except (RecordError, OSError) as error:
                assert "\n" not in str(error) and "No space left on device" in str(error)
            assert disk.struck()
        assert torch.equal(kept.load(first)["control"]["w"], torch.ones(3))
        assert not list(kept.folder.glob(".*.tmp"))


def test_what_a_killed_process_had_half_written_goes(tmp_path: Path) -> None:
    kept = NodeMemory(tmp_path / "client-0", TEMPLATE)
    receipt = kept.save(memory(1.0))
    (kept.folder / ".memory-0.safetensors.99.tmp").write_bytes(b"half")
    kept.keep(receipt)
    assert [path.name for path in kept.folder.iterdir()] == [f"memory-{receipt}.safetensors"]


def test_a_message_is_answered_once_in_a_servers_session(tmp_path: Path) -> None:
    kept = NodeMemory(tmp_path / "client-0", TEMPLATE)
    assert [kept.newer("a", turn) for turn in (1, 3, 2, 3, 4)] == [True, True, False, False, True]
    assert kept.newer("b", 1)


@pytest.mark.parametrize("content", [b"[1", b'["a"]', b'{"turn": "a"}', b"[" * 10**5])
def test_a_damaged_note_is_one_line(tmp_path: Path, content: bytes) -> None:
    kept = NodeMemory(tmp_path / "client-0", TEMPLATE)
    (kept.folder / "notes.json").write_bytes(content)
    with pytest.raises(RecordError, match=r"notes\.json is damaged"):
        kept.newer("a")
