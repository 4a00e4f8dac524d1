"""Power failures: every prefix of what a run, a merge or a deletion writes; what is not synced is lost or torn.

After each of them the run goes on to the same bytes, and what was promised is there.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import fedskew as fs
from fedskew.errors import RecordError
from fedskew.records.folder import Record
from fedskew.studies import merging, runs
from fedskew.studies.store import Store
from support.attack import Line, some
from support.command import fedskew
from support.lives import unlike
from support.platter import Platter, State

WORDS = (
    "run scaffold --data digits --clients 4 --cohort 2 --checkpoint.every 1 --model logistic --epochs 1"
    " --engine sequential --partition.alpha 0.5"
)


def words(home: str, rounds: int) -> list[str]:
    return [*WORDS.split(), "--memory", home, "--rounds", str(rounds)]


def recorded(folder: Path, work: Callable[[], Any], *promises: tuple[Any, str, Callable[..., str]]) -> Platter:
    """What work writes below a folder, and what it promises."""
    with pytest.MonkeyPatch.context() as patch:
        platter = Platter(folder).attach(patch)
        for promise in promises:
            platter.promise(patch, *promise)
        work()
    return platter


def drawn(states: Iterable[State], every: int) -> list[State]:
    """All states; in the short form, one in so many."""
    return list(states)[:: some(every, 1)]


def harm_to_run(state: State, base: Path, plain: Path, home: str, rounds: int) -> str:
    """What a power failure did to a run; "" where it goes on to the same bytes from no earlier round than promised."""
    out = state.build(base / "run")
    try:
        promised = max((int(words.split()[-1]) for words in state.promises), default=0)
        begun = (out / "rounds.jsonl").exists()
        if promised and not begun:
            return "the run is gone"
        if promised:
            record = Record.open(out)
            try:
                restored = record.restore()
            finally:
                record.close()
            if restored is None or len(restored[2]) < promised:
                return f"round {promised} was promised; there are {0 if restored is None else len(restored[2])}"
        resumed = ["run", "--resume", str(out), "--rounds", str(rounds)]
        ended = fedskew(*(resumed if begun else [*words(home, rounds), "--out", str(out)]))
        return f"ended with {ended}" if ended else unlike(plain, out)
    except RecordError as error:
        return str(error)
    finally:
        shutil.rmtree(out)


CHECKPOINT = (Record, "checkpoint", lambda self, content, facts: f"round {facts['round']}")


@pytest.mark.parametrize("home", ["ram", "device"][: some(1, 2)])
def test_the_power_fails_at_any_instant_of_a_run(home: str, tmp_path: Path) -> None:
    rounds, plain, out = 3, tmp_path / "plain", tmp_path / "out"
    assert fedskew(*words(home, rounds), "--out", plain) == 0
    out.mkdir()
    platter = recorded(out, lambda: fedskew(*words(home, rounds), "--out", out), CHECKPOINT)
    assert [step.words for step in platter.steps if step.kind == "promise"] == [f"round {r}" for r in (1, 2, 3)]
    with Line("power", f"every prefix of a run of {rounds} rounds, memory {home}") as line:
        for number, state in enumerate(drawn(platter.states(), 12)):
            wrong = harm_to_run(state, tmp_path / str(number), plain, home, rounds)
            line.check(not wrong, f"{state.words}: {wrong}")


OWN, NEW, LATE = ("aaaaaaaaaaaaaaa" + end for end in "012")  # addresses


def run_into(store: Store, address: str, seed: int, rounds: int = 2) -> None:
    fed = fs.federate("digits", "iid", clients=4)
    out = store.run_folder(address)
    fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=rounds, cohort=2, seed=seed, out=out)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store with a finished run and one that was killed early; another with the rest of it, a new one, and a note."""
    base = tmp_path_factory.mktemp("stores")
    mine, theirs = Store(base / "mine"), Store(base / "theirs")
    run_into(mine, OWN, 0)
    run_into(mine, LATE, 1)
    (mine.run_folder(LATE) / "summary.json").unlink()  # as of a run that was killed at its end
    run_into(theirs, LATE, 1)
    run_into(theirs, NEW, 2)
    theirs.refuse("aaaaaaaaaaaaaaaf", "refused", "it cannot be")
    return mine.folder, theirs.folder


def whole(store: Store, address: str) -> str:
    """What is wrong with a run of a store; "" where it is whole, "missing" where there is none."""
    try:
        run = store.finished(address)
    except RecordError as error:
        return f"{address} is damaged: {error}"
    if run is None:
        return "missing"
    return "" if len(run.rows) == run.summary["rounds"] == 2 else f"{address} has {len(run.rows)} rounds"


def harm_to_store(state: State, base: Path, theirs: Path) -> str:
    """What a power failure during a merge did; "" where runs are whole, promises kept, and a merge brings the rest."""
    folder = state.build(base / "store")
    try:
        store = Store(folder)
        if wrong := whole(store, OWN):
            return wrong
        for address in (NEW, LATE):
            wrong = whole(store, address)
            if wrong and (wrong != "missing" or state.promises):
                return f"{address}: {wrong}, after {state.promises}"
        done = merging.merge([Store(theirs)], Store(folder))
        return str(done.refused or "") or "".join(whole(Store(folder), address) for address in (OWN, NEW, LATE))
    except RecordError as error:
        return str(error)
    finally:
        shutil.rmtree(folder)


def test_the_power_fails_at_any_instant_of_a_merge(stores: tuple[Path, Path], tmp_path: Path) -> None:
    mine, theirs = stores
    shutil.copytree(mine, tmp_path / "into")
    merged = (merging, "merge", lambda sources, into: "merged")
    platter = recorded(tmp_path / "into", lambda: merging.merge([Store(theirs)], Store(tmp_path / "into")), merged)
    assert not harm_to_store(list(platter.states())[-1], tmp_path, theirs)
    with Line("power", "every prefix of a merge") as line:
        for number, state in enumerate(drawn(platter.states(), 12)):
            wrong = harm_to_store(state, tmp_path / str(number), theirs)
            line.check(not wrong, f"{state.words}: {wrong}")


def harm_to_list(state: State, base: Path) -> str:
    """What a power failure during a deletion did; "" where the other run is whole and it can be deleted again."""
    folder = state.build(base / "store")
    try:
        store = Store(folder)
        if wrong := whole(store, OWN):
            return wrong
        for run in runs.described([store.folder / "runs"]):
            if run.folder.name == NEW and (wrong := runs.remove(run, [store.folder])):
                return wrong
        files = (path for path in (folder / "runs" / NEW).rglob("[!.]*") if path.is_file())
        if left := {path.name for path in files} - {"config.json"}:  # which alone is no run
            return f"{left} are left, and no list names them"
        return "" if whole(Store(folder), NEW) == "missing" else "it comes back"
    except RecordError as error:
        return str(error)
    finally:
        shutil.rmtree(folder)


def test_the_power_fails_at_any_instant_of_a_deletion(stores: tuple[Path, Path], tmp_path: Path) -> None:
    mine, theirs = stores
    folder = tmp_path / "into"
    shutil.copytree(mine, folder)
    merging.merge([Store(theirs)], Store(folder))
    run = next(run for run in runs.described([folder / "runs"]) if run.folder.name == NEW)
    platter = recorded(folder, lambda: runs.remove(run, [folder]))
    with Line("power", "every prefix of a deletion") as line:
        for number, state in enumerate(drawn(platter.states(), 6)):
            wrong = harm_to_list(state, tmp_path / str(number))
            line.check(not wrong, f"{state.words}: {wrong}")
