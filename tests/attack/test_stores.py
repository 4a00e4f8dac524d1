"""Stores, archives and run folders of an attacker: no other file is touched, nothing hangs, a mistake is one line."""

from __future__ import annotations

import contextlib
import errno
import json
import lzma
import os
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedskew.config.recorded import Run
from fedskew.errors import FedskewError, RecordError
from fedskew.records.files import Hold
from fedskew.records.folder import troubles
from fedskew.records.manifest import Manifest
from fedskew.studies import lines, repeating
from fedskew.studies.archiving import reuse_archived, write
from fedskew.studies.lines import compressed
from fedskew.studies.merging import take
from fedskew.studies.spec import spec_from
from fedskew.studies.store import Store, read_archive, read_line
from fedskew.studies.study import Study
from fedskew.studies.work import RunJob, work
from fedskew_papers.runs import Runs
from support.attack import Line, outcome, some, stand
from support.bounds import bounded, within
from support.command import fedskew, mistake
from support.disk import Disk
from support.fuzz import fault
from support.grammar import mutated
from support.old_format import as_format_1
from support.scheduling import without_workers

OPTIONS = [("clients", "5"), ("rounds", "2"), ("model", "logistic"), ("diagnose", "features")]
WORDS = [word for option, value in OPTIONS for word in (f"--{option}", value)]
VICTIM = '{"kept": true}'
ADDRESSES = (
    "../../victim", "../victim", "..", ".", "", "x", "0" * 15, "0" * 17, "A" * 16, "0" * 15 + "\n", "/etc/passwd",
    "0" * 8 + "/" + "0" * 7, "\u0660" * 16, "\ud800" * 16, "0" * 100_000, None, 0, 1e300, True, [], {}, ["0" * 16],
)  # fmt: skip


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two runs, a study of them and an archive."""
    place = tmp_path_factory.mktemp("stores")
    study = Study(spec_from(["fedavg", "fedla"], OPTIONS), place / "store")
    for run in study.missing():
        assert work(RunJob(run.address, run.job, str(study.store.folder))).state == "finished"
    study.save(place / "study")
    write(place / "store", place / "good.jsonl")
    return place


@pytest.fixture
def place(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy, with a file that nobody may touch; work is done in this process."""
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    (tmp_path / "victim.json").write_text(VICTIM)
    without_workers(monkeypatch)
    with contextlib.chdir(tmp_path):
        yield tmp_path
    assert (tmp_path / "victim.json").read_text() == VICTIM


def first(place: Path) -> dict[str, Any]:
    """The first run of the good archive."""
    run: dict[str, Any] = json.loads((place / "good.jsonl").read_text().splitlines()[0])
    return run


def evil(place: Path, text: str) -> None:
    """A store whose archive holds a text, and no store to merge into."""
    for name in ("evil", "into", "new"):
        shutil.rmtree(place / name, ignore_errors=True)
    Store(place / "evil")
    (place / "evil/a.jsonl").write_text(text + "\n")


READERS = (
    ("study", "merge", "evil", "--into", "into"), ("study", "archive", "evil", "--out", "out.jsonl"),
    ("study", "verify", "evil"), ("study", "merge", "evil/a.jsonl", "--into", "into"),
    ("compare", "fedavg", *WORDS, "--store", "new", "--archives", "evil/a.jsonl"), ("ledger", "--archives", "evil"),
)  # fmt: skip

# Addresses


@pytest.mark.parametrize("state", ["finished", "failed"])
def test_an_address_out_of_an_archive_is_no_path(state: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = {"state": "failed", "reason": "infinite loss"} if state == "failed" else first(place)
    with Line("stores", f"addresses of {state} runs in archives") as attack:
        for number, hostile in enumerate((*ADDRESSES, str(place / "victim"))):
            evil(place, json.dumps({**line, "address": hostile}))
            message = mistake(capsys, *READERS[number % len(READERS)])
            attack.check("evil/a.jsonl must hold one run a line; line 1 is not" in message, f"{hostile!r}: {message}")
            attack.check((place / "victim.json").exists(), f"{hostile!r}: the file is gone")


def test_every_path_of_a_store_is_made_of_a_checked_address(place: Path) -> None:
    """Whoever calls, and whatever was read: the store itself takes no other address."""
    store = Store(place / "store")
    run = Run(Path("../../victim"), {}, [], {"stopped": ""})
    for made in (store.run_folder, store.forgive, store.refusal, store.entry, lambda a: store.refuse(a, "failed", "")):
        with pytest.raises(RecordError, match="must be 16 hexadecimal digits"):
            made("../../victim")
    with pytest.raises(RecordError, match="must be 16 hexadecimal digits"):
        take([run], store)


def test_names_in_a_store_that_are_no_addresses_are_left_alone(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = next((place / "store/runs").iterdir())
    for name in ("victim", "\x1b[2J", "-rf", "=cmd", "A" * 16):
        shutil.copytree(run, place / "store/runs" / name)
        (place / f"store/refused/{name}.json").write_text('{"state": "failed", "reason": "x"}')
    assert fedskew("study", "merge", "store", "--into", "into") == 2
    output = capsys.readouterr()
    assert "into: 2 runs added, 0 were there, 5 refused" in output.out and "\x1b" not in output.err
    assert len(list((place / "into/runs").iterdir())) == 2 and not list((place / "into/refused").iterdir())
    assert fedskew("study", "archive", "store", "--out", "o.jsonl") == 0 and "2 runs" in capsys.readouterr().out


def test_a_study_names_no_run_outside_of_its_store(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = place / "study/study.json"
    content = json.loads(file.read_text())
    content["runs"] = [{"address": a} for a in ADDRESSES if isinstance(a, str)] + content["runs"]
    file.write_text(json.dumps(content))
    assert fedskew("study", "archive", "study", "--out", "o.jsonl") == 0 and "2 runs" in capsys.readouterr().out


# Lines

LINES = (
    "", "{}", "[]", "null", "1", '"text"', "NaN", "{", "[" * 50_000, '{"a":' * 50_000, "\ufeff{}",
    '{"state": "failed"}',
    '{"state": "failed", "address": "0000000000000000", "reason": 1}', "1" * 5_000, '{"address": "0000000000000000"}',
)  # fmt: skip


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[:20] or "empty")
def test_a_line_that_is_no_run_is_named(line: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = (place / "good.jsonl").read_text().splitlines()
    evil(place, "\n".join([good[0], line, good[1]]))
    for words in READERS[:2]:
        assert "evil/a.jsonl must hold one run a line; line 2 is not" in mistake(capsys, *words)


@pytest.mark.parametrize("part", range(some(1, 10)))
def test_fuzzed_lines_of_archives(part: int, place: Path) -> None:
    gen = np.random.Generator(np.random.PCG64(6000 + part))
    good = [json.loads(line) for line in (place / "good.jsonl").read_text().splitlines()]
    content = {**json.loads((place / "study/study.json").read_text()), "store": "../evil"}
    (place / "study/study.json").write_text(json.dumps(content))
    with Line("stores", "fuzzed lines of archives") as attack, bounded():
        for number in range(some(14, 400)):
            bad = mutated(good[0], gen, int(gen.integers(1, 3)))
            evil(place, "\n".join(map(json.dumps, (bad, good[1]))))
            (place / "page.html").unlink(missing_ok=True)
            words = (*READERS, ("report", "study", "--out", "page.html"))[number % (len(READERS) + 1)]
            if words[0] == "compare" or words[1] == "verify":
                words = READERS[0]  # what a configuration asks for is not fuzzed here: it may train for hours
            failure = fault(list(words), "utf-8")
            attack.check(not failure, f"{words[:2]} {json.dumps(bad)[:300]}: {failure}")


@pytest.mark.parametrize("entry", ["partition", "init_from"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_line_that_names_a_pipe_or_a_device_hangs_no_reader(entry: str, kind: str, place: Path) -> None:
    """The ledger hashes the file of a partition that a run names."""
    os.mkfifo(place / "pipe.safetensors")
    path = str(place / "pipe.safetensors") if kind == "pipe" else "/dev/zero"
    config = {**first(place)["config"], entry: {"name": "file", "path": path} if entry == "partition" else path}
    with bounded(), within(10):
        assert not Runs([read_line(json.dumps({**first(place), "config": config}))])._by


def test_a_record_sends_no_verifier_to_a_cluster(place: Path) -> None:
    config = {**first(place)["config"], "ray_address": "attacker.example:10001", "ray_workers": 3}
    assert repeating._experiment(config).ray_address is None


# Compressed archives


def evil_xz(place: Path, content: bytes) -> None:
    """A store whose archive is a compressed file of this content, and no store to merge into."""
    evil(place, "")
    (place / "evil/a.jsonl").unlink()
    (place / "evil/a.jsonl.xz").write_bytes(content)


def wants(content: bytes, size: int) -> bytes:
    """An xz file whose header asks for a dictionary of 2 ** size bytes."""
    length = 4 * (content[12] + 1)  # of the header of its only block
    head = bytearray(content[12 : 12 + length - 4])
    head[head.index(b"\x21\x01") + 2] = 2 * (size - 12)
    return content[:12] + bytes(head) + zlib.crc32(head).to_bytes(4, "little") + content[12 + length :]


def test_a_damaged_compressed_archive_is_one_line(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every cut is noticed, and every flipped bit, whatever the lines before it say."""
    good = compressed((place / "good.jsonl").read_bytes())
    gen = np.random.Generator(np.random.PCG64(7000))
    cuts = [good[:at] for at in (6, 11, 12, 30, len(good) // 2, len(good) - 13, len(good) - 1)]
    flips = []
    for at in gen.integers(6, len(good), some(20, 400)):  # without its first bytes it is no xz file, but a bad text
        flips.append(good[:at] + bytes([good[at] ^ (1 << int(gen.integers(8)))]) + good[at + 1 :])
    with Line("stores", "damaged compressed archives") as attack, bounded():
        for number, bad in enumerate([*cuts, *flips, good + b"\x00", good + good, wants(good, 31)]):
            evil_xz(place, bad)
            words = READERS[number % len(READERS)]
            with within(20):
                ended = fedskew(*words)
            output = capsys.readouterr().err
            fine = ended == 2 and output.count("\n") == 1 and "evil/a.jsonl.xz is a damaged xz file: " in output
            attack.check(fine, f"{number}, {words[:2]}: {ended}, {output[-300:]!r}")


@pytest.mark.parametrize("text", ["0", f'{{"address":"{"0" * 16}","state":"failed","reason":"{"x" * 1000}"}}\n'])
def test_a_compressed_archive_that_unpacks_to_gigabytes_fills_no_memory(
    text: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    maker = lzma.LZMACompressor()
    piece = text.encode() * ((1 << 20) // len(text))
    bomb = b"".join(maker.compress(piece) for _ in range(some(200, 4000))) + maker.flush()
    for words in READERS[: some(2, 6)]:
        evil_xz(place, bomb)
        with bounded(1 << 30), within(60):
            message = mistake(capsys, *words)
        rules = "unpacks to more than 300 times its size", "must have lines of at most 64 MiB"
        assert any(f"evil/a.jsonl.xz {rule}" in message for rule in rules)


def test_a_file_is_text_or_xz_by_its_bytes(place: Path) -> None:
    text = (place / "good.jsonl").read_bytes()
    evil_xz(place, text)
    whole = list(read_archive(place / "good.jsonl"))
    assert list(read_archive(place / "evil/a.jsonl.xz")) == whole
    (place / "good.jsonl").write_bytes(compressed(text))
    assert list(read_archive(place / "good.jsonl")) == whole


def test_a_line_has_a_limit(place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without an end of line is not read whole before it is refused."""
    monkeypatch.setattr(lines, "LONGEST", 1 << 20)
    evil(place, "0" * ((1 << 20) + 1))
    assert "evil/a.jsonl must have lines of at most 1 MiB" in mistake(capsys, *READERS[0])


# Writers


def test_a_store_that_another_process_holds_is_one_line(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedskew.studies import store

    monkeypatch.setattr(store, "WAIT_S", 0.1)
    into, before = Store("into"), Hold(place / "into")
    assert "into is in use by process" in mistake(capsys, "study", "merge", "store", "--into", "into")
    study = Study(spec_from(["fedavg"], OPTIONS), into)
    with pytest.raises(RecordError, match="is in use"):
        reuse_archived(study, place / "good.jsonl")
    before.release()
    assert reuse_archived(study, place / "good.jsonl") == 1 and not study.missing()


@pytest.mark.parametrize(("folder", "code"), [("store", errno.ENOSPC), ("out", errno.EROFS)])
def test_a_study_on_a_disk_that_takes_no_more_is_one_line_and_goes_on(
    folder: str, code: int, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["compare", "fedavg", *WORDS, "--seeds", "0-1", "--store", "store", "--out", "out"]
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(place / folder).attach(patch)
        assert fedskew(*words) == 0
    many = len(disk.calls)
    capsys.readouterr()
    with Line("stores", f"a study whose {folder} takes no more") as attack:
        for at in range(0, many, max(1, many // some(4, 40))):
            for name in ("store", "out"):
                shutil.rmtree(place / name, ignore_errors=True)
            with pytest.MonkeyPatch.context() as patch:
                Disk(place / folder, lambda n, at=at: "fail" if n >= at else "", code).attach(patch)  # type: ignore[misc]
                ended = fedskew(*words)
            lines = [
                x for x in capsys.readouterr().err.splitlines() if x.startswith("fedskew: ") and ": note: " not in x
            ]
            attack.check(ended in (0, 2) and len(lines) == (ended == 2), f"call {at}: {ended}, {lines}")
            attack.check(fedskew(*words) == 0, f"call {at}: it does not go on")
            capsys.readouterr()


def test_an_archive_on_a_full_disk_is_one_line(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "x").mkdir()
    (place / "x/o").write_text("before")
    with pytest.MonkeyPatch.context() as patch:
        Disk(Path("x"), lambda n: "fail", errno.ENOSPC).attach(patch)
        message = mistake(capsys, "study", "archive", "store", "--out", "x/o")
    assert "cannot write x/o" in message and (place / "x/o").read_text() == "before"


def test_a_merge_into_a_full_store_loses_nothing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = next((place / "store/runs").iterdir())
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(place / "into").attach(patch)
        assert fedskew("study", "merge", "store", "--into", str(place / "into")) == 0
    capsys.readouterr()
    with Line("stores", "a merge into a store that takes no more") as attack:
        for at in range(0, len(disk.calls), max(1, len(disk.calls) // some(8, 60))):
            shutil.rmtree(place / "into")
            half = place / "into/runs" / run.name  # a run that has begun there
            shutil.copytree(run, half)
            (half / "summary.json").unlink()
            with pytest.MonkeyPatch.context() as patch:
                Disk(place / "into", lambda n, at=at: "fail" if n == at else "").attach(patch)  # type: ignore[misc]
                ended = fedskew("study", "merge", "store", "--into", str(place / "into"))
            output = capsys.readouterr().err
            fine = ended in (0, 2) and output.count("\n") == (ended == 2) and (half / "rounds.jsonl").exists()
            attack.check(fine, f"call {at}: {ended}, {output!r}, {half.exists()}")


# Links, pipes and devices

ODD = ("config.json", "manifest.json", "rounds.jsonl", "summary.json", "final.safetensors", "model.json", "env.json",
       "checkpoint/state.safetensors", "memory.bin", ".lock", ".owner.json")  # fmt: skip


@pytest.mark.parametrize("kind", ["pipe", "device", "link", "loop", "nothing"])
def test_a_run_folder_with_pipes_devices_and_links(kind: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = next((place / "store/runs").iterdir())
    commands = (
        ("show", run), ("evaluate", run), ("verify", run), ("runs", "store"), ("study", "verify", "store"),
        ("report", run, "--out", "page.html"), ("plot", run, "--out", "plot.png"), ("run", "--resume", run),
        ("study", "merge", "store", "--into", "new"), ("study", "archive", "store", "--out", "o.jsonl"),
        ("compare", "fedavg", *WORDS, "--store", "store"), ("runs", "store", "--delete", "--yes"),
    )  # fmt: skip
    shutil.copytree(run, place / "whole")
    with Line("stores", f"a {kind} in the place of a file of a run") as attack, bounded():
        for number, name in enumerate(ODD):
            for words in commands[number % some(6, 1) :: some(6, 1)]:
                shutil.rmtree(run, ignore_errors=True)
                shutil.copytree(place / "whole", run)
                for left in ("new", "page.html", "plot.png"):
                    shutil.rmtree(place / left, ignore_errors=True)
                    Path(left).unlink(missing_ok=True)
                stand(run / name, kind, place / "victim.json")
                with within(20):
                    ended = fedskew(*words)
                output = capsys.readouterr()
                kept = (place / "victim.json").read_text() == VICTIM
                fine = ended in (0, 1, 2) and "a fault of fedskew" not in output.err and "Traceback" not in output.err
                attack.check(kept and fine, f"{name}, {words[:2]}: {ended}, {kept}, {output.err[-200:]}")


@pytest.mark.parametrize("name", [".lock", ".owner.json", "rounds.jsonl"])
def test_nothing_is_written_through_a_link(name: str, place: Path) -> None:
    run = next((place / "store/runs").iterdir())
    stand(run / name, "link", place / "victim.json")
    with contextlib.suppress(RecordError):
        Hold(run).release()
    assert (place / "victim.json").read_text() == VICTIM


@pytest.mark.parametrize("what", ["file", "folder", "features"])
def test_a_merged_run_holds_no_file_of_elsewhere(what: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, secret = next((place / "store/runs").iterdir()), place / "secret"
    led = run / {"file": "final.safetensors", "folder": "", "features": "features"}[what]
    shutil.move(led, secret)
    led.symlink_to(secret)
    assert fedskew("study", "merge", "store", "--into", "new") == (0 if what == "folder" else 2)
    assert what == "folder" or "is a link" in capsys.readouterr().err
    assert not (place / "new/runs" / run.name).exists()


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with every kind of file."""
    folder = tmp_path_factory.mktemp("full") / "run"
    words = ("--keep-own", "true", "--validation", "0.2", "--monitor", "val_accuracy", "--partition.alpha", "1")
    assert fedskew("run", "ditto", *WORDS, *words, "--out", folder) == 0
    return folder


OPENED = {  # members that no manifest lists, by what opens them; all others are opened by everything
    "checkpoint": ("verify", "more"), "checkpoint/state.safetensors": ("verify", "more"), ".lock": ("more",),
    "features": ("verify", "tsne", "more"), "features/round-000001.safetensors": ("verify",),
    "features/round-000002.safetensors": ("verify", "tsne"),
    "rounds.jsonl": ("verify", "show", "report", "plot", "--resume"),
}  # fmt: skip


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("inside", [False, True])
def test_a_member_of_a_run_folder_that_is_a_link_is_refused(
    old: bool, inside: bool, full: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, start = tmp_path / "run", ("--clients", "5", "--rounds", "2", "--model", "logistic", "--init-from")
    readers: dict[str, tuple[object, ...]] = {
        "show": ("show", run), "evaluate": ("evaluate", run), "best": ("evaluate", run, "--best"),
        "client": ("evaluate", run, "--client", "0"), "by": ("evaluate", run, "--by", "client"),
        "report": ("report", run, "--out", tmp_path / "p.html"), "plot": ("plot", run, "--out", tmp_path / "p.png"),
        "tsne": ("plot", run, "--figure", "tsne", "--out", tmp_path / "p.png"), "verify": ("verify", run),
        "--from": ("run", "--from", run, "--out", tmp_path / "out"), "--resume": ("run", "--resume", run),
        "more": ("run", "--resume", run, "--rounds", "3"),
        "--init-from": ("run", "fedavg", *start, run, "--out", tmp_path / "out"),
    }  # fmt: skip
    of_format_1 = {  # what opens a file where no manifest lists it
        "config.json": ("show", "evaluate", "plot", "report", "--from", "--resume"), "summary.json": ("show", "plot"),
        "rounds.jsonl": ("show", "plot", "--resume"), "model.json": ("evaluate", "client"),
        "final.safetensors": ("evaluate", "--init-from"), "best.safetensors": ("best",), "own.safetensors": ("client",),
        "clients.jsonl": ("by",), "features/round-000002.safetensors": ("tsne",), "features": ("tsne",),
    }  # fmt: skip
    everything = ("show", "evaluate", "by", "report", "plot", "verify", "--from", "--resume", "--init-from")
    names = [path.relative_to(full).as_posix() for path in sorted(full.rglob("*"))]
    assert {"own.safetensors", "best.safetensors", "clients.jsonl", "env.json", "features"} < set(names)
    with Line("stores", f"a member of a run folder that is a link {'inside' if inside else 'outside'}") as attack:
        for name in names:
            shutil.rmtree(run, ignore_errors=True)
            shutil.copytree(full, run)
            if old:
                as_format_1(run)
            if not (run / name).exists():
                continue
            elsewhere = run / "aside" if inside else tmp_path / "elsewhere"
            shutil.rmtree(elsewhere) if elsewhere.is_dir() else elsewhere.unlink(missing_ok=True)
            shutil.move(run / name, elsewhere)
            (run / name).symlink_to(elsewhere)
            asked = of_format_1.get(name, ()) if old else OPENED.get(name, everything)
            for command in asked:
                ended = fedskew(*readers[command])
                output = capsys.readouterr()
                text = output.err + output.out if command == "verify" else output.err
                fine = ended == 2 and "is a link" in text and (command == "verify" or text.count("\n") == 1)
                attack.check(fine, f"{name}, {command}: {ended}, {text[-300:]!r}")


def test_a_run_folder_may_itself_be_a_link(full: Path, tmp_path: Path) -> None:
    (tmp_path / "led").symlink_to(full)
    for words in (["verify"], ["show"], ["evaluate"], ["run", "--resume"]):
        assert fedskew(*words, tmp_path / "led") == 0, words


def test_nothing_is_written_through_a_folder_that_is_a_link(tmp_path: Path) -> None:
    for name in ("checkpoint", "features"):
        elsewhere = tmp_path / f"of-{name}"
        elsewhere.mkdir()
        (tmp_path / name).mkdir()
        (tmp_path / name / name).symlink_to(elsewhere)
        assert fedskew("run", "fedavg", *WORDS, "--out", tmp_path / name) == 2
        assert not list(elsewhere.iterdir())


def test_an_archive_follows_no_link_of_its_own_name(place: Path) -> None:
    (place / f".o.jsonl.{os.getpid()}.tmp").symlink_to(place / "victim.json")
    assert fedskew("study", "archive", "store", "--out", "o.jsonl") == 0


# What a run folder says of files


@pytest.mark.parametrize(
    "files", [{"../../../victim.json": ["x"]}, {"/dev/zero": ["x"]}, {"a": "x"}, {"a": [1]}, [], {"..": ["x"]}, None]
)
def test_a_forged_manifest_names_files_of_its_folder_alone(files: Any, place: Path) -> None:
    run = next((place / "store/runs").iterdir())
    vouched = Manifest.read(run)
    vouched.files = files
    vouched.write()
    with within(10):
        trouble = str(troubles(run)[1])
        error = outcome(lambda: Store("store").entry(run.name))
    assert isinstance(error, FedskewError)
    for message in (trouble, str(error)):
        assert "it must list files of its folder" in message or "manifest.json is damaged: 'files" in message


@pytest.mark.parametrize("entry", [{"file": "/dev/zero", "digest": "x"}, {"file": 1, "digest": "x"}, [], 1, "digest"])
def test_a_forged_round_names_features_of_its_folder_alone(entry: Any, place: Path) -> None:
    from fedskew.records import rounds

    run = next((place / "store/runs").iterdir())
    vouched = Manifest.read(run)
    rows = rounds.scan(run / rounds.FILE, vouched.run).rows
    rows[-1]["diagnostics"] = {"features": entry}
    (run / rounds.FILE).unlink()
    writer = rounds.Rounds(run, vouched.run)
    writer.settle(rows)
    vouched.last = (len(rows), writer.digest)
    vouched.write()
    with within(10):
        assert troubles(run)[1] and "/dev/zero" not in str(troubles(run)[1])
        assert fedskew("study", "merge", "store", "--into", "new") == 2
        assert fedskew("verify", str(run)) in (1, 2)


def test_a_study_of_millions_of_settings_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = ", ".join(map(str, range(1, 21)))
    names = ("clients", "rounds", "epochs", "cohort", "batch_size", "lr")
    Path("big.toml").write_text('methods = ["fedavg"]\n[options]\n' + "".join(f"{n} = [{values}]\n" for n in names))
    with within(20):
        assert "settings must be at most 2000" in mistake(capsys, "compare", "big.toml", "--dry-run", "--store", "new")
