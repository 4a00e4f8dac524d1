"""Where what clients keep lives between rounds: all homes give the same bits, and a kill leaves a checkpoint whole."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch

import fedskew as fs
from fedskew import tree
from fedskew.engines.memory import HOMES, Held, Mapped, home
from fedskew.errors import ConfigError, FedskewError, RecordError
from fedskew.session import Session
from support.federations import skewed
from support.methods import tiny
from support.resuming import Died, equal, stop_after
from support.runs import go, rows_of, same

TEMPLATE = {
    "a": {"w": torch.zeros(3, 2), "flag": torch.tensor(False)},
    "bare": {},
    "b": {"n": torch.zeros((), dtype=torch.int64), "half": torch.zeros(5, dtype=torch.bfloat16)},
}
COHORT = 3


def alike(a: Any, b: Any) -> bool:
    """Equal trees."""
    return same(*({".".join(where): leaf for where, leaf in tree.flatten(t) if leaf is not None} for t in (a, b)))


def filled(value: float) -> dict[str, Any]:
    """A memory of the template's structure."""
    found: dict[str, Any] = tree.map_tree(lambda leaf: torch.full_like(leaf, value), TEMPLATE)
    return found


@pytest.mark.parametrize("name", HOMES)
def test_homes_give_back_what_they_got(name: str, tmp_path: Path) -> None:
    kept = home(name, TEMPLATE, tmp_path)
    assert kept.read(7) is None
    for value in (1, 2, 3):
        for client in (7, 0, 10**6):
            kept.write({client: filled(value * (client % 5 + 1))})
    again = home(name, TEMPLATE, tmp_path)
    again.load(kept.dump())
    for side in (kept, again):
        for client in (7, 0, 10**6):
            found = side.read(client)
            assert found is not None and list(found) == list(TEMPLATE)
            assert alike(found, filled(3 * (client % 5 + 1)))
        assert side.read(8) is None


def test_the_file_grows_and_forgets_no_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mapped, "GROWTH", 100)
    kept = Mapped(TEMPLATE, tmp_path / "m")
    for client in range(200):
        kept.write({client: filled(client)})
    assert all(alike(kept.read(client), filled(client)) for client in range(200))
    assert kept.size == 4 * 64 and (tmp_path / "m").stat().st_size < 2 * 200 * kept.size


def allocates(monkeypatch: pytest.MonkeyPatch, most: int, code: int) -> None:
    """A file system that gives a file at most so many bytes."""
    plain = os.posix_fallocate

    def allocate(file: int, begin: int, length: int) -> None:
        if begin + length > most:
            raise OSError(code, os.strerror(code))
        plain(file, begin, length)

    monkeypatch.setattr(os, "posix_fallocate", allocate)


NEEDS_ALLOCATION = pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system cannot allocate")


@NEEDS_ALLOCATION
def test_a_full_disk_is_told_before_a_page_is_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file takes less than it would like where the disk has room for less, and stays whole where it has none."""
    monkeypatch.setattr(Mapped, "GROWTH", 10 * 256)
    kept = Mapped(TEMPLATE, tmp_path / "m")
    allocates(monkeypatch, 5 * 256, errno.ENOSPC)
    for client in range(5):
        kept.write({client: filled(client)})
    with pytest.raises(RecordError, match=r"cannot write .*m: No space left on device"):
        kept.write({5: filled(5)})
    assert (tmp_path / "m").stat().st_size == 5 * 256
    assert all(alike(kept.read(client), filled(client)) for client in range(5)) and kept.read(5) is None


@NEEDS_ALLOCATION
def test_zeros_are_written_where_nothing_can_be_allocated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allocates(monkeypatch, 0, errno.EOPNOTSUPP)
    kept = Mapped(TEMPLATE, tmp_path / "m")
    for client in range(9000):  # more than the file has at first
        kept.write({client: filled(client % 100)})
    assert (tmp_path / "m").stat().st_blocks * 512 >= (tmp_path / "m").stat().st_size > Mapped.GROWTH
    assert all(alike(kept.read(client), filled(client % 100)) for client in range(0, 9000, 97))


@NEEDS_ALLOCATION
def test_a_copy_with_holes_gets_its_room_when_it_is_opened(tmp_path: Path) -> None:
    """`cp` and `rsync` may leave holes where a file has zeros; writing to one on a full disk would end the process."""
    kept = Mapped(TEMPLATE, tmp_path / "m")
    kept.write({0: filled(1)})
    dumped = kept.dump()
    with open(tmp_path / "copy", "wb") as file:
        file.write((tmp_path / "m").read_bytes()[:256])
        file.truncate(1 << 20)
    again = Mapped(TEMPLATE, tmp_path / "copy")
    again.load(dumped)
    assert alike(again.read(0), filled(1)) and (tmp_path / "copy").stat().st_blocks * 512 >= 1 << 20


def test_records_of_the_last_checkpoint_stay(tmp_path: Path) -> None:
    """Whatever is written after a checkpoint, a process that opens the file with that checkpoint finds its values."""
    kept = Mapped(TEMPLATE, tmp_path / "m")
    for value in range(1, 6):
        for client in range(4):
            kept.write({client: filled(10 * value + client)})
        dumped = kept.dump()
        for later in range(3):
            for client in range(6):
                kept.write({client: filled(-later)})
            other = Mapped(TEMPLATE, tmp_path / "m")
            other.load(dumped)
            assert all(alike(other.read(client), filled(10 * value + client)) for client in range(4))
    assert kept.used <= 6 + 4 + 6  # those kept, those of the checkpoint, and none for every write


def test_an_interruption_amid_a_rounds_writes_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = home("disk", TEMPLATE, tmp_path)
    kept.write({0: filled(1), 1: filled(1)})
    put, calls = Mapped._put, [0]

    def interrupted(self: Mapped, memory: Any) -> int:
        calls[0] += 1
        if calls[0] == 2:
            raise KeyboardInterrupt
        return put(self, memory)

    monkeypatch.setattr(Mapped, "_put", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kept.write({0: filled(2), 1: filled(2), 2: filled(2)})
    assert alike(kept.read(0), filled(1)) and alike(kept.read(1), filled(1)) and kept.read(2) is None
    kept.write({0: filled(3), 2: filled(3)})
    assert alike(kept.read(0), filled(3)) and alike(kept.read(1), filled(1)) and alike(kept.read(2), filled(3))


def test_who_is_interrupted_while_a_round_is_kept_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = go(skewed(), fs.methods.scaffold(), rounds=5, cohort=COHORT, memory="disk", out=tmp_path / "whole")
    put, calls = Mapped._put, [0]

    def interrupted(self: Mapped, memory: Any) -> int:
        calls[0] += 1
        if calls[0] == 2 * COHORT + 2:  # the second client of the third round
            raise KeyboardInterrupt
        return put(self, memory)

    with monkeypatch.context() as patch:
        patch.setattr(Mapped, "_put", interrupted)
        half = go(skewed(), fs.methods.scaffold(), rounds=5, cohort=COHORT, memory="disk", out=tmp_path / "half")
    assert half.stopped == "interrupted" and len(half.rounds) == 3  # the round was done; its memories are written again
    rest = go(
        skewed(), fs.methods.scaffold(), rounds=5, cohort=COHORT, memory="disk", out=tmp_path / "half", resume=True
    )
    assert same(whole.params, rest.params) and rows_of(whole) == rows_of(rest)


def test_without_a_folder_the_file_goes_with_its_owner() -> None:
    kept = Mapped(TEMPLATE, None)
    kept.write({1: filled(2)})
    path = kept.path
    assert path.exists() and alike(kept.read(1), filled(2))
    kept.close()
    assert not path.exists()


def test_mistakes_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown memory 'dsik'.*disk"):
        home("dsik", TEMPLATE, None)
    with pytest.raises(ConfigError, match=r"a\.w of a client's memory must match what init_client returned"):
        Mapped(TEMPLATE, tmp_path / "m").write(
            {0: {**filled(1), "a": {"w": torch.zeros(2), "flag": torch.tensor(True)}}}
        )
    kept = Mapped(TEMPLATE, tmp_path / "n")
    kept.write({0: filled(1)})
    dumped = kept.dump()
    with pytest.raises(RecordError, match="memory must be disk"):
        Held(TEMPLATE).load(dumped)
    with pytest.raises(RecordError, match="must hold the clients' memories; it is missing"):
        Mapped(TEMPLATE, tmp_path / "gone").load(dumped)
    (tmp_path / "short").write_bytes(b"x")
    with pytest.raises(RecordError, match="must hold the clients' memories; it has 1 bytes of 256"):
        Mapped(TEMPLATE, tmp_path / "short").load(dumped)
    with pytest.raises(RecordError, match="cannot write"):
        Mapped(TEMPLATE, tmp_path / "n" / "under").write({0: filled(1)})


@pytest.mark.parametrize("engine", ["sequential", "threaded", "batched"])
@pytest.mark.parametrize("name", ["scaffold", "moon", "pfedme"])
def test_every_home_gives_the_same_run(name: str, engine: str, tmp_path: Path) -> None:
    options = {"rounds": 3, "cohort": 4, "engine": engine, "dtype": "float32"}
    runs = [go(skewed(), tiny(name), memory=where, out=tmp_path / where, **options) for where in HOMES]
    assert all(same(r.params, runs[0].params) and rows_of(r) == rows_of(runs[0]) for r in runs)
    assert (tmp_path / "disk" / "memory.bin").exists() and not (tmp_path / "ram" / "memory.bin").exists()


def test_a_run_on_disk_goes_on(tmp_path: Path) -> None:
    options = {"rounds": 6, "memory": "disk"}
    go(skewed(), fs.methods.scaffold(), out=tmp_path / "whole", **options)
    go(skewed(), fs.methods.scaffold(), out=tmp_path / "half", on_round=stop_after(3), **options)
    with pytest.raises(FedskewError, match="memory must be disk"):
        go(skewed(), fs.methods.scaffold(), out=tmp_path / "half", resume=True, rounds=6)
    go(skewed(), fs.methods.scaffold(), out=tmp_path / "half", resume=True, **options)
    equal(tmp_path / "whole", tmp_path / "half")


def test_a_run_in_ram_goes_on_disk(tmp_path: Path) -> None:
    whole = go(skewed(), fs.methods.scaffold(), rounds=6, out=tmp_path / "whole")
    go(skewed(), fs.methods.scaffold(), rounds=6, out=tmp_path / "half", on_round=stop_after(3))
    rest = go(skewed(), fs.methods.scaffold(), rounds=6, out=tmp_path / "half", resume=True, memory="disk")
    assert same(whole.params, rest.params) and rows_of(whole) == rows_of(rest)


def test_who_died_between_checkpoints_goes_on_from_the_last(tmp_path: Path) -> None:
    """Rounds 3 and 4 have overwritten every client's memory before the process dies."""
    options = {"rounds": 6, "cohort": 6, "checkpoint_every": 2, "memory": "disk"}
    whole = go(skewed(), fs.methods.scaffold(), out=tmp_path / "whole", **options)

    def die(row: dict[str, Any]) -> None:
        if row["round"] == 4:
            raise Died

    plain = Session.checkpoint
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "checkpoint", lambda s: plain(s) if s.state.round == 2 else None)
        with pytest.raises(Died):
            go(skewed(), fs.methods.scaffold(), out=tmp_path / "dead", on_round=die, **options)
    again = go(skewed(), fs.methods.scaffold(), out=tmp_path / "dead", resume=True, **options)
    assert same(whole.params, again.params) and rows_of(whole) == rows_of(again)
