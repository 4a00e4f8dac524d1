"""`fedskew study`: archives written, stores merged and verified; what is altered or differs is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedskew.records.files import Hold
from fedskew.studies import repeating
from fedskew.studies.spec import spec_from
from fedskew.studies.store import Store, archive_line
from fedskew.studies.study import Study
from fedskew.studies.work import RunJob, work
from support.command import fedskew, mistake, output_of, printed
from support.scheduling import without_workers

OPTIONS = [("clients", "5"), ("rounds", "2"), ("model", "logistic")]


def made_store(folder: Path, methods: list[str], seeds: tuple[int, ...] = (0, 1)) -> Study:
    """A study whose runs are done, in this process."""
    study = Study(spec_from(methods, OPTIONS, seeds=seeds), folder / "store")
    for one in study.missing():
        assert work(RunJob(one.address, one.job, str(study.store.folder))).state == "finished"
    study.save(folder / "study")
    return study


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("studies")
    made_store(place / "one", ["fedavg", "fedla"])
    made_store(place / "two", ["fedavg", "fedprox"])
    return place


@pytest.fixture
def place(originals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two stores of four runs each, of which they share two, as ``one/store`` and ``two/store``."""
    shutil.copytree(originals, tmp_path, dirs_exist_ok=True)
    for name in ("one", "two"):
        file = tmp_path / name / "study/study.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "store": "../store"}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are repeated in this process: another one takes seconds to begin."""
    without_workers(monkeypatch)


def addresses(store: str) -> list[str]:
    return sorted(p.name for p in Path(store, "runs").glob("[!.]*"))


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a run but the notes of who holds it."""
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and not p.name.startswith(".")
    }


# Merging


def test_merge_is_the_union_by_address(place: Path) -> None:
    words = ["study", "merge", "one/store", "two/store", "--into", "all"]
    assert output_of(*words) == "all: 6 runs added, 2 were there, 0 refused\n"
    assert addresses("all") == sorted({*addresses("one/store"), *addresses("two/store")})
    for address in addresses("one/store"):
        assert content(place / "all/runs" / address) == content(place / "one/store/runs" / address)
    assert output_of(*words) == "all: 0 runs added, 8 were there, 0 refused\n", "a second time adds nothing"
    assert fedskew("verify", "all") == 0


def rewritten(store: str, address: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Another summary in a run folder, vouched for as if the run had written it."""
    from fedskew.records.manifest import Manifest

    folder = Path(store, "runs", address)
    summary = json.loads((folder / "summary.json").read_text())
    change(summary)
    (folder / "summary.json").write_text(json.dumps(summary))
    vouched = Manifest.read(folder)
    vouched.vouch(["summary.json"], vouched.last)


def shared() -> str:
    return sorted({*addresses("one/store")} & {*addresses("two/store")})[0]


def test_a_run_that_differs_under_one_address_is_named_and_refused(place: Path) -> None:
    rewritten("two/store", shared(), lambda summary: summary.update(final_accuracy=0.123))
    before = content(place / "one/store/runs" / shared())
    said = printed("study", "merge", "two/store", "--into", "one/store", code=2)
    assert said.out == "one/store: 2 runs added, 1 were there, 1 refused\n", "the others are merged"
    assert f"refused: run {shared()} must be the same in both stores; final_accuracy is 0.123 and " in said.err
    assert content(place / "one/store/runs" / shared()) == before


def test_times_and_the_last_digits_make_no_other_run(place: Path) -> None:
    rewritten("two/store", shared(), lambda s: s.update(total_wall_s=99.0, final_loss=s["final_loss"] + 1e-9))
    assert fedskew("study", "merge", "two/store", "--into", "one/store") == 0


@pytest.mark.usefixtures("here")
def test_a_record_of_an_earlier_version_lacks_entries_and_is_the_same_run(place: Path) -> None:
    for address in addresses("one/store"):
        rewritten("one/store", address, lambda s: [s.pop("final_macro_f1"), s.pop("worst_class")])
    assert fedskew("study", "verify", "one/store", "--sample", 2) == 0
    assert fedskew("study", "merge", "one/store", "--into", "two/store") == 0
    rewritten("one/store", addresses("one/store")[0], lambda s: s.update(final_invented=0.5))
    assert fedskew("study", "verify", "one/store", "--sample", 9) == 1, "an entry that no run writes is not verified"


def test_a_run_that_was_altered_is_refused(place: Path) -> None:
    address = addresses("one/store")[0]
    file = place / "one/store/runs" / address / "final.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    said = printed("study", "merge", "one/store", "--into", "all", code=2)
    assert "was altered" in said.err and address in said.err and ".new" not in said.err
    assert address not in addresses("all") and len(addresses("all")) == 3
    assert not [p for p in Path("all").rglob(".*") if ".merge" in p.name]


def test_a_finished_run_replaces_one_that_has_not_ended_and_never_the_reverse(place: Path) -> None:
    address = shared()
    for name in ("summary.json", "final.safetensors", "model.json"):
        (place / "one/store/runs" / address / name).unlink()
    assert fedskew("study", "merge", "one/store", "--into", "two/store") == 0
    assert (place / "two/store/runs" / address / "summary.json").exists()
    assert fedskew("study", "merge", "two/store", "--into", "one/store") == 0
    assert (place / "one/store/runs" / address / "summary.json").exists()


def test_a_run_in_progress_is_not_merged(place: Path) -> None:
    hold = Hold(place / "one/store/runs" / shared())
    try:
        said = printed("study", "merge", "one/store", "--into", "all", code=2).err
    finally:
        hold.release()
    assert "is in use; merge again when that process has ended" in said
    assert shared() not in addresses("all")


def as_archive(store: str, into: str, change: Callable[[dict[str, Any]], None] = lambda entry: None) -> None:
    """The runs of a store as an archive of another one."""
    source, target = Store(store), Store(into)
    lines = []
    for address in addresses(store):
        entry = source.entry(address)
        assert entry is not None
        line = json.loads(archive_line(entry))
        change(line)
        lines.append(json.dumps(line))
    (target.folder / "old.jsonl").write_text("\n".join(lines) + "\n")


def test_archives_are_merged_and_a_folder_goes_before_a_line(place: Path) -> None:
    as_archive("one/store", "archived")
    said = output_of("study", "merge", "archived", "two/store", "--into", "all")
    assert said == "all: 8 runs added, 0 were there, 0 refused\n"
    store = Store("all")
    assert {*store.archived} == {*addresses("one/store")} and addresses("all") == addresses("two/store")
    assert all(store.entry(address) for address in [*addresses("one/store"), *addresses("two/store")])
    as_archive("one/store", "wrong", lambda line: line["summary"].update(final_loss=77.0))
    assert printed("study", "merge", "wrong", "--into", "all", code=2).err.count("final_loss is 77.0 and") == 4


def test_an_archive_is_merged(place: Path) -> None:
    """As text or compressed; a failed run of it stays one. What differs is refused."""
    Store("one/store").refuse("0" * 16, "failed", "infinite loss")
    for name in ("a.jsonl", "a.jsonl.xz"):
        assert output_of("study", "archive", "one/store", "--out", name).startswith(f"5 runs in {name}, ")
        said = output_of("study", "merge", name, "two/store", "--into", f"of-{name}")
        assert said == f"of-{name}: 8 runs added, 0 were there, 0 refused\n"
        assert Store(f"of-{name}").refusal("0" * 16) == ("failed", "infinite loss")
    Path("a.jsonl.xz").unlink()
    Path("a.jsonl").write_text(Path("a.jsonl").read_text().replace('"final_loss":', '"final_loss":7'))
    assert printed("study", "merge", "a.jsonl", "--into", "one/store", code=2).err.count("final_loss is 7") == 4


def test_a_refusal_is_merged_where_nothing_is_known(place: Path) -> None:
    Store("one/store").refuse("0" * 16, "refused", "no such labels")
    Store("one/store").refuse(addresses("two/store")[0], "failed", "not there")
    assert fedskew("study", "merge", "one/store", "--into", "two/store") == 0
    assert Store("two/store").refusal("0" * 16) == ("refused", "no such labels")
    assert Store("two/store").refusal(addresses("two/store")[0]) is None


# Verifying


@pytest.mark.usefixtures("here")
def test_runs_that_are_repeated_agree_to_the_bit(place: Path) -> None:
    said = output_of("study", "verify", "one/study", "--sample", 3).splitlines()
    assert said[0] == "repeating 3 of 4 runs" and said[-1] == "3 to the bit"
    assert all(line.endswith("agrees to the bit") for line in said[1:-1]) and len(said) == 5
    assert fedskew("study", "archive", "one/study", "--out", "thin.jsonl.xz") == 0
    assert fedskew("study", "merge", "thin.jsonl.xz", "--into", "thin") == 0
    said = output_of("study", "verify", "thin", "--sample", 99)
    assert said.splitlines()[-1] == "4 to the bit", "an archive is repeatable, too"
    assert fedskew("study", "archive", "one/study", "--out", "mine.jsonl.xz") == 0
    assert output_of("study", "verify", "mine.jsonl.xz", "--sample", 1).splitlines()[-1] == "1 to the bit"


@pytest.mark.usefixtures("here")
def test_a_record_whose_numbers_are_made_up_is_found(place: Path) -> None:
    first, second, third, fourth = addresses("one/store")
    rewritten("one/store", first, lambda s: s.update(final_macro_f1=s["final_macro_f1"] + 0.01))
    rewritten("one/store", second, lambda s: s.update(final_loss=s["final_loss"] + 1e-8))
    rewritten("one/store", third, lambda s: s["worst_class"].update(recall=s["worst_class"]["recall"] + 0.5))
    rewritten("one/store", fourth, lambda s: s.update(total_wall_s=1e9))
    said = output_of("study", "verify", "one/store", "--sample", 4, code=1)
    assert f"{first} " in said and "DIFFERS; final_macro_f1 is " in said
    assert "agrees within 1e-6; final_loss is " in said and "DIFFERS; worst_class.recall is " in said
    assert said.splitlines()[-1] == "1 to the bit, 1 within 1e-6, 2 differ"


@pytest.mark.usefixtures("here")
def test_a_run_that_cannot_be_repeated_is_named(place: Path) -> None:
    as_archive("one/store", "strange", lambda line: line["config"].update(fingerprint="0" * 16))
    as_archive("one/store", "unknown", lambda line: line["config"].update(method={"name": "x", "parts": []}))
    for store, told in (("strange", "fingerprint was"), ("unknown", "its configuration cannot be read")):
        said = output_of("study", "verify", store, "--sample", 1, code=1)
        assert "NOT REPEATED" in said and told in said and "Traceback" not in said


def test_a_sample_is_drawn_by_its_seed(place: Path) -> None:
    entries = [entry for address in addresses("one/store") if (entry := Store("one/store").entry(address))]
    drawn = {tuple(e.address for e in repeating.sample(entries, 2, seed)) for seed in range(20)}
    assert len(drawn) > 3 and all(len(set(some)) == 2 for some in drawn)
    assert repeating.sample(entries, 2, 5) == repeating.sample(entries[::-1], 2, 5)
    assert len(repeating.sample(entries, 9)) == 4


@pytest.mark.usefixtures("here")
def test_data_that_lay_elsewhere_are_looked_for_where_ours_lie(place: Path) -> None:
    as_archive("one/store", "moved", lambda line: line["config"].update(path="/no/such/place"))
    assert fedskew("study", "verify", "moved", "--sample", 1) == 0


@pytest.mark.slow
def test_runs_are_repeated_by_worker_processes(place: Path) -> None:
    assert output_of("study", "verify", "one/study", "--sample", 2, "--processes", 2).splitlines()[-1] == "2 to the bit"


MISTAKES = {
    "no store": (["merge"], "fedskew study merge needs at least one STORE or ARCHIVE"),
    "no target": (["merge", "one/store"], "--into must name the store that gets the runs"),
    "not a store": (["merge", "one", "--into", "x"], "'one' must be a store; it has no store.json"),
    "itself": (["merge", "one/store", "--into", "one/store"], "must be another store than the one it is merged into"),
    "no archive": (["merge", "one/study/study.json", "--into", "x"], "must hold one run a line; line 1 is not"),
    "no study": (["archive", "one", "--out", "x"], "'one' must be a study or a store; it has neither"),
    "sample": (["verify", "one/store", "--sample", "0"], "--sample must be at least 1; got 0"),
    "nothing to verify": (["verify", "empty"], "must hold a finished run"),
    "other layout": (["merge", "old", "--into", "x"], "must be of layout 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_line(case: str, place: Path) -> None:
    words, expected = MISTAKES[case]
    Store("empty")
    Path("old").mkdir()
    Path("old/store.json").write_text('{"layout": 9, "address": 1}')
    assert expected in mistake("study", *words)


def test_a_study_whose_store_is_gone_is_one_line(place: Path) -> None:
    shutil.rmtree("one/store")
    assert "must name its store; there is none at '../store'" in mistake("study", "verify", "one/study")


def test_an_archive_is_not_computed_again(place: Path) -> None:
    """`compare` finds what `study archive` wrote: beside the study that is named, and in results/studies of here."""
    words = ["compare", "fedavg", "fedla", "--seeds", "0-1", "--clients", 5, "--rounds", 2, "--model", "logistic"]
    said = output_of("study", "archive", "one/study", "--out", "results/studies/one.jsonl", "--points", 1)
    assert "4 runs in results/studies/one.jsonl" in said
    said = printed(*words, "--store", "empty", "--dry-run")
    assert "4 done, 0 missing" in said.out and not list(Path("empty").glob("*.jsonl"))
    assert said.err == "fedskew: note: 4 runs reused from results/studies/one.jsonl\n"
    assert "nothing to do" in output_of(*words, "--store", "empty", "--out", "again")
    assert (place / "again/runs.csv").read_text() == (place / "one/study/runs.csv").read_text()
    assert "0 done, 4 missing" in output_of(*words, "--store", "new", "--dry-run", "--archives", "none")
    shutil.move("results", "elsewhere")
    said = printed(*words, "--store", "empty", "--dry-run")  # the study's own store has them now
    assert "0 missing" in said.out and not said.err
    assert "0 done, 4 missing" in output_of(*words, "--store", "new", "--dry-run")
    said = output_of(*words, "--store", "new", "--dry-run", "--archives", "elsewhere/studies/one.jsonl")
    assert "4 done, 0 missing" in said


def test_archives_that_cannot_be_read_or_written(place: Path) -> None:
    assert "there is none at 'nowhere'" in mistake(
        "compare", "fedavg", "--rounds", 2, "--dry-run", "--archives", "nowhere"
    )
    Path("bad.jsonl").write_text("{}\n")
    assert "line 1 is not" in mistake("compare", "fedavg", "--rounds", 2, "--dry-run", "--archives", "bad.jsonl")
    assert "--out must name the file" in mistake("study", "archive", "one/study")
    assert "cannot write" in mistake("study", "archive", "one/study", "--out", "bad.jsonl/sub/a.jsonl")
    Store("nothing")
    assert "hold a finished run" in mistake("study", "archive", "nothing", "--out", "a.jsonl")
