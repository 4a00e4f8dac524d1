"""What a newcomer ran into: each mistake is one line and exit code 2, and each page says what was asked."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import warnings
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedskew as fs
import tiny
from fedskew.catalogue import listing as catalogue
from fedskew.cli import command as cli
from fedskew.cli import interrupt as _interrupt
from fedskew.config import experiment as config
from fedskew.config.experiment import TABLES
from fedskew.config.flags import experiment_from
from fedskew.data.arrays import from_arrays
from fedskew.data.sources.table import load
from fedskew.method import check_method
from fedskew.methods import METHODS
from fedskew.records.folder import read

SMALL = ["--clients", "6", "--cohort", "3", "--rounds", "2", "--partition.alpha", "0.5", "--model", "logistic"]


def fedskew(*words: object) -> int:
    """The command in this process: its exit code."""
    with pytest.raises(SystemExit) as stop:
        cli.main([str(w) for w in words])
    return int(stop.value.code or 0)


def mistake(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The one line that the command says of a mistake."""
    assert fedskew(*words) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and said.err.startswith("fedskew: ")
    return said.err


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A run of two rounds by the command."""
    assert fedskew("run", "fedavg", *SMALL, "--checkpoint.every", 1, "--out", tmp_path / "run") == 0
    capsys.readouterr()
    return tmp_path / "run"


# Mistakes on the command line

LINES = {
    "device": (["fedavg", "--device", "tpu"], "--device must be cpu, cuda or cuda:NUMBER; got 'tpu'"),
    "no such GPU": (["fedavg", "--device", "cuda:99"], "--device must be"),
    "rounds": (["fedavg", "--rounds", "0"], "--rounds must be at least 1; got 0"),
    "cohort": (["fedavg", "--cohort", "0"], "--cohort must be at least 1; got 0"),
    "personal": (["fedavg", "--eval.personal", "-1"], "--eval.personal must be at least 0; got -1"),
    "huge whole number": (["fedavg", "--rounds", "9" * 30], "--rounds must be a whole number"),
    "beyond float32": (["fedadam", "--server.tau", "1e300"], "--server.tau must be a number; got 1e+300"),
    "server lr": (["fedavg", "--server-lr", "0"], "--server-lr must be positive; got 0.0"),
    "negative mu": (["fedprox", "--parts.proximal.mu", "-1"], "--parts.proximal must be at least 0"),
    "flag twice": (["fedavg", "--lr", "0.1", "--lr", "0.2"], "--lr must be given once; got '--lr 0.1' and '--lr 0.2'"),
    "alias twice": (["fedavg", "--lr=0.1", "--pace.lr", "0.2"], "--pace.lr must be given once"),
    "parts twice": (["fedavg", "--parts", "proximal", "--parts", "ldam"], "--parts must be given once"),
    "out twice": (["fedavg", "--out", "a", "--out=b"], "--out must be given once; got 'a' and 'b'"),
    "alpha": (["fedavg", "--alpha", "0.1"], "unknown option '--alpha'; did you mean '--partition.alpha'?"),
    "mu": (["fedprox", "--mu", "1"], "unknown option '--mu'; did you mean '--parts.proximal.mu'?"),
    "mu elsewhere": (["fedavg", "--mu", "1"], "--parts.proximal.mu with --parts proximal"),
    "one dash": (["fedavg", "-lr", "0.1"], "unknown option '-lr'; did you mean '--lr'?"),
    "no number": (["fedavg", "--rounds"], "--rounds must be followed by a value, a whole number: rounds"),
    "no number before a flag": (["fedbal", "--weighting.beta", "--lr", "1"], "--weighting.beta must be followed"),
    "no name": (["fedavg", "--model"], "--model must be followed by a value, one of 2nn, convnet"),
    "no folder": (["fedavg", "--out"], "--out must be followed by a value, a folder"),
    "no run": (["--from"], "--from must be followed by a value, a run folder or its config.json"),
}  # fmt: skip


@pytest.mark.parametrize("case", LINES)
def test_a_mistake_is_one_line(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words, expected = LINES[case]
    assert expected in mistake(capsys, "run", *words)
    assert not list(tmp_path.iterdir())


def test_a_device_that_is_not_there_can_be_overruled(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run of a GPU can be run again on a machine that has none."""
    file = run / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "device": "cuda:99"}))
    assert "--device must be" in mistake(capsys, "run", "--from", run, "--out", run.parent / "b")
    assert fedskew("run", "--from", run, "--device", "cpu", "--out", run.parent / "b") == 0


def test_a_gpu_is_one_of_those_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for name in ("cpu", "cuda", "cuda:0", "cuda:1"):
        config.check_device(name)
    refused(lambda: config.check_device("cuda:2"), "--device must be one of the GPUs, at most cuda:1; got 'cuda:2'")
    refused(lambda: config.check_device("cuda:"), "--device must be cpu, cuda or cuda:NUMBER")


# Ctrl-C


def interrupted(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A process that gets SIGINT in the midst of importing torch."""
    (tmp_path / "torch").mkdir(exist_ok=True)
    (tmp_path / "torch/__init__.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)"
    )
    paths = os.pathsep.join([str(tmp_path), str(Path(fs.__file__).parents[1])])
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, timeout=60)


def test_an_interruption_while_importing_is_one_word(tmp_path: Path) -> None:
    done = interrupted(tmp_path, "-m", "fedskew", "methods")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_a_program_of_the_user_s_keeps_python_s_own_behaviour(tmp_path: Path) -> None:
    done = interrupted(tmp_path, "-c", "import fedskew")
    assert done.returncode != 130 and "KeyboardInterrupt" in done.stderr
    assert not _interrupt.is_command(["prog.py"], ["python", "prog.py"])
    assert not _interrupt.is_command(["-m"], ["python", "-m", "pytest", "fedskew"])
    assert _interrupt.is_command(["/usr/bin/fedskew", "run"], ["python", "/usr/bin/fedskew", "run"])


def test_an_interruption_of_a_command_is_one_word(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(words: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_methods", pressed)
    assert fedskew("methods") == 130 and capsys.readouterr().err == "interrupted\n"


# Configuration files

BROKEN: dict[str, tuple[Any, Any, str]] = {  # path inside the file, value, what is said
    "a word for a number": (["rounds"], "ten", "--rounds must be a whole number; got 'ten'"),
    "a fraction for a whole number": (["cohort"], 2.5, "--cohort must be a whole number; got 2.5"),
    "true for a number": (["seed"], True, "--seed must be a whole number; got True"),
    "a number for a word": (["device"], 3, "--device must be a word; got 3"),
    "NaN": (["validation"], float("nan"), "--validation must be a number; got nan"),
    "a list for an ingredient": (["data"], ["digits"], "data must be a name, or"),
    "a number for a name": (["partition", "name"], 3, "the name of partition must be a word; got 3"),
    "a list for a method": (["method"], ["fedavg"], "it names no method"),
    "parts of another kind": (["method", "parts"], "proximal", "parts must be a list; got 'proximal'"),
    "a word for a rate": (["method", "pace", "lr"], "fast", "pace.lr must be a number; got 'fast'"),
    "a list for a rate": (["method", "local", "momentum"], [0.9], "local.momentum must be a number; got [0.9]"),
    "a word for a field of data": (["partition", "alpha"], "0.1", "partition.alpha must be a number; got '0.1'"),
    "a choice": (["data", "normalize"], "protocl", "data.normalize must be one of protocol"),
    "out of range": (["method", "pace", "epochs"], 0, "pace.epochs must be at least 1; got 0"),
    "an unknown entry": (["roundz"], 3, "unknown entry 'roundz'; did you mean 'rounds'?"),
    "an unknown slot": (["method", "samplr"], {"name": "shuffle"}, "unknown entry of method 'samplr'"),
    "an unknown field": (["method", "pace", "ephocs"], 3, "did you mean 'epochs'?"),
    "an unknown dataset": (["data", "name"], "digit", "unknown dataset 'digit'; did you mean 'digits'?"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_configuration_with_a_wrong_value_is_one_line(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, value, expected = BROKEN[case]
    content = experiment_from(["fedavg", *SMALL]).to_json()
    place: Any = content
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    (tmp_path / "config.json").write_text(json.dumps(content))
    said = mistake(capsys, "run", "--from", tmp_path / "config.json", "--out", tmp_path / "b")
    assert expected in said and "config.json" in said and not (tmp_path / "b").exists()


@pytest.mark.parametrize("text", ["[]", "3", "{}", "{", '{"method": {"name": "fedavg"}}', ""])
def test_a_file_that_is_no_configuration(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.json").write_text(text)
    assert "is not a configuration that the command wrote" in mistake(capsys, "run", "--from", tmp_path / "c.json")


def test_a_whole_number_stands_for_a_rate(tmp_path: Path) -> None:
    content = experiment_from(["fedavg", *SMALL]).to_json()
    content["method"]["pace"]["lr"] = 1
    (tmp_path / "config.json").write_text(json.dumps(content))
    assert config.load(tmp_path / "config.json").method.pace.lr == 1


def test_from_takes_the_folder(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fedskew("run", "--from", run, "--out", tmp_path / "b") == 0
    assert tiny.rows_of(read(run)[1]) == tiny.rows_of(read(tmp_path / "b")[1])
    capsys.readouterr()
    assert "cannot read" in mistake(capsys, "run", "--from", tmp_path)


# Resuming


@pytest.mark.parametrize("lost", [0, 1])
def test_rounds_that_are_missing_before_the_checkpoint_are_noticed(
    lost: int, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run / "rounds.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    del lines[lost]
    file.write_text("".join(lines))
    said = mistake(capsys, "run", "--resume", run)
    assert f"must hold rounds 1 to 2, those before the checkpoint; round {lost + 1} is missing" in said
    assert file.read_text() == "".join(lines), "nothing was overwritten"


@dataclass(frozen=True)
class Entropy(fs.Component):
    """A part of the user's own."""

    name = "entropy_of_mine"
    reference = "Smith 2024, in words of my own"

    def loss(self, view: Any) -> torch.Tensor:
        return -0.01 * view.batch.mean(torch.special.entr(view.out.logits.softmax(1)).sum(1))


def test_a_run_from_python_is_resumed_from_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = fs.Method("mine", parts=(Entropy(),))
    tiny.go(tiny.skewed(), mine, out=tmp_path / "a")
    for flag in ("--resume", "--from"):
        said = mistake(capsys, "run", flag, tmp_path / "a")
        assert "started from Python" in said and "resume=True" in said
    assert len(tiny.go(tiny.skewed(), mine, rounds=3, out=tmp_path / "a", resume=True).rounds) == 3


# What a record says


def test_other_parts_are_another_name_in_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert fedskew("run", "fedbal", *SMALL, "--parts", "proximal,ldam") == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("fedbal-") and read(folder)[0]["method"]["name"] == "fedbal(parts=proximal,ldam)"
    again = experiment_from(["--from", str(folder)])
    assert again.method == experiment_from(["fedbal", "--parts", "proximal,ldam"]).method
    assert again.method.reference == METHODS["fedbal"]().reference
    assert experiment_from(["--from", str(folder), "--parts", "none"]).method.name == "fedbal(parts=none)"
    assert experiment_from(["fedbal", "--parts", "local_balancer"]).method.name == "fedbal"


def test_options_that_a_method_does_not_read_are_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unused = ["--auxiliary", "2", "--eval.personal", "1"]
    assert fedskew("run", "fedavg", *SMALL, *unused, "--out", tmp_path / "a") == 0
    notes = [line for line in capsys.readouterr().err.splitlines() if "note" in line]
    assert len(notes) == 2 and "--auxiliary 2: fedavg does not read them" in notes[0]
    assert "--eval.personal 1: fedavg has no models of the clients' own" in notes[1]
    assert fedskew("run", "fedrl", *SMALL, "--auxiliary", 2, "--out", tmp_path / "b") == 0
    assert fedskew("run", "perfedavg", *SMALL, "--eval.personal", 1, "--out", tmp_path / "c") == 0
    assert "note" not in capsys.readouterr().err


# Wrong kinds from Python


def refused(make: Any, *expected: str) -> None:
    with pytest.raises(fs.ConfigError) as error:
        make()
    said = str(error.value)
    assert "\n" not in said and all(e in said for e in expected), said


def test_a_method_is_a_method() -> None:
    refused(lambda: check_method("fedavg"), "method must be a Method; got 'fedavg'; use fs.methods.fedavg()")
    refused(lambda: check_method(fs.methods.fedprox), "call it: fedprox()")
    refused(lambda: check_method(fs.Method), "the class Method")
    refused(lambda: check_method(fs.parts.Proximal(0.1)), "fs.Method('proximal', parts=(Proximal(mu=0.1),))")
    check_method(fs.methods.fedavg())


def test_a_component_stands_in_its_slot_as_an_instance_with_a_name() -> None:
    refused(lambda: fs.Method("m", parts=(fs.samplers.Shuffle(),)), "parts must not hold Shuffle", "sampler=Shuffle()")
    refused(lambda: fs.Method("m", sampler=fs.weightings.Size()), "sampler must not hold Size", "weighting=Size()")
    refused(lambda: fs.Method("m", server=fs.parts.Proximal(1.0)), "use parts=(Proximal(mu=1.0),)")
    refused(lambda: fs.Method("m", parts=(fs.parts.Proximal,)), "got the class Proximal; use Proximal()")
    refused(lambda: fs.Method("m", pace=fs.paces.Fixed), "got the class Fixed; use Fixed()")
    refused(lambda: fs.Method("m", sampler="shuffle"), "sampler must hold a Sampler; got 'shuffle'")
    refused(lambda: fs.Method("m", parts=fs.parts.Proximal(1.0)), "parts must be a tuple of components")
    refused(lambda: fs.Method("", parts=()), "the name of a method must be a word")
    assert fs.Method("m", parts=[fs.parts.Proximal(1.0)]).parts[1] == fs.parts.Proximal(1.0)


def test_fields_are_of_their_types() -> None:
    refused(lambda: fs.Method("m", pace=fs.paces.Fixed(batch_size=2.5)), "Fixed.batch_size must be a whole number")
    refused(lambda: fs.Method("m", parts=(fs.parts.Proximal(float("nan")),)), "Proximal.mu must be a number")
    refused(lambda: fs.Method("m", weighting=fs.weightings.FedNova(base="size")), "FedNova.base must be Weighting")
    refused(lambda: fs.weightings.AggregationBalancer(beta=1e300), "AggregationBalancer.beta must be a number that fl")
    fs.Method("m", pace=fs.paces.Fixed(lr=np.float64(0.1), batch_size=np.int64(8)))


def test_a_component_needs_a_name_and_its_decorator() -> None:
    @dataclass(frozen=True)
    class Nameless(fs.Component):
        mu: float = 0.1

    class Plain(fs.Component):
        name = "plain_of_mine"
        mu: float = 0.1

    refused(lambda: fs.Method("m", parts=(Nameless(),)), "the class Nameless must have a name of its own")
    refused(lambda: fs.Method("m", parts=(Plain(),)), "@dataclass(frozen=True)", "'mu' is no field")


@pytest.mark.parametrize(
    ("base", "name", "meant"),
    [
        (fs.Component, "los", "loss"),
        (fs.Component, "brodcast", "broadcast"),
        (fs.Component, "init_clients", "init_client"),
        (fs.Sampler, "plans", "plan"),
        (fs.samplers.Shuffle, "offers", "offer"),
        (fs.Weighting, "weight", "weigh"),
        (fs.LocalStep, "steps", "step"),
    ],
)
def test_a_misspelt_hook_is_told_where_the_class_is_defined(base: type, name: str, meant: str) -> None:
    refused(lambda: type("Mine", (base,), {name: lambda self: None}), f"got {name!r}; did you mean {meant!r}?")
    type("Mine", (base,), {f"_{name}": lambda self: None, "helper": lambda self: None, meant: lambda self: None})


def test_a_model_is_an_instance() -> None:
    fed = tiny.skewed()
    refused(lambda: tiny.go(fed, METHODS["fedavg"](), model=fs.models.MLP), "got the class MLP; use MLP(...)")
    refused(lambda: tiny.go(fed, METHODS["fedavg"](), model=torch.nn.Linear), "got the class Linear")
    refused(lambda: tiny.go(fed, METHODS["fedavg"](), model=3), "got 3")


def test_a_reference_in_words_of_one_s_own_breaks_no_page(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = lambda: replace(METHODS["fedavg"](), name="mine", reference="Smith 2024, in words of my own")
    monkeypatch.setitem(METHODS, "mine", mine)
    assert fedskew("methods", "--json") == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["mine"]["reference"] == "Smith 2024, in words of my own"
    assert "unknown reference" in mistake(capsys, "cite", "mine")


# Pages of names


@pytest.mark.parametrize(("command", "slot"), [("datasets", "data"), ("partitions", "partition"), ("models", "model")])
def test_every_name_has_a_line_and_its_options(
    command: str, slot: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert fedskew(command) == 0
    said = capsys.readouterr().out
    for name in TABLES[slot]:
        assert f" {name} " in said, name
    rows = catalogue.named(slot)
    assert all(text and "object at 0x" not in " ".join(options) for _, text, options in rows)
    for name in TABLES[slot]:
        assert fedskew(command, name) == 0
        page = capsys.readouterr().out
        for option in [f.name for f in fields(config.make(slot, name))]:
            (line,) = [s for s in page.splitlines() if s.startswith(f"--{slot}.{option} = ")]
            assert len(line.partition(": ")[2]) > 5, line
    assert "did you mean" in mistake(capsys, command, f"{name}x")


def test_the_help_of_run_names_the_pages(capsys: pytest.CaptureFixture[str]) -> None:
    assert fedskew("run", "--help") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert all(f"fedskew {page}" in said for page in ("datasets", "partitions", "models"))


# Data of one's own

SITES = np.array(["north", "south", "west"])[np.arange(90) % 3]
NAMES = np.array(["cat", "dog"])[np.arange(90) // 3 % 2]
TABLE = (np.arange(90) // 3 % 2)[:, None] + np.linspace(0, 1, 180).reshape(90, 2)


def own_file(folder: Path, kind: str) -> Path:
    """The same ninety rows as npz, csv or parquet."""
    file = folder / f"own.{kind}"
    if kind == "npz":
        np.savez(file, x=TABLE, y=NAMES, client=SITES)
    elif kind == "csv":
        rows = [f"{a!r},{b!r},{n},{s}" for (a, b), n, s in zip(TABLE.tolist(), NAMES, SITES, strict=True)]
        file.write_text("\n".join(["a,b,label,client", *rows]))
    else:
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        columns = {"a": TABLE[:, 0], "b": TABLE[:, 1], "label": NAMES.tolist(), "client": SITES.tolist()}
        pq.write_table(pa.table(columns), file)
    return file


@pytest.mark.parametrize("kind", ["npz", "csv", "parquet"])
def test_a_file_names_its_clients_and_its_classes(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSKEW_CACHE", str(tmp_path / "cache"))
    file = own_file(tmp_path, kind)
    options: dict[str, Any] = {"x_column": "a,b"} if kind == "parquet" else {}
    if kind == "csv":
        options["standardise"] = False
    data = load(kind, str(file), **options)
    assert data.label_names == ("cat", "dog") and data.column_names == {"client": ("north", "south", "west")}
    fed = fs.federate(data, "natural")
    assert fed.clients == 3 and fed.client_names == ("north", "south", "west")
    stays = np.isin(TABLE[:, 1].astype(np.float32), data.x[:, 1].numpy())
    assert data.y.tolist() == (NAMES[stays] == "dog").astype(int).tolist()
    owner = [data.column_names["client"][c] for c in data.columns["client"]]
    assert owner == SITES[stays].tolist() and len(data.x) + len(data.x_test) == 90
    with pytest.raises(fs.ConfigError, match=r"unknown data.columns 'site'"):
        load(kind, str(file), columns="site", **options)


def test_a_csv_file_is_standardised_by_its_training_rows(tmp_path: Path) -> None:
    data = load("csv", str(own_file(tmp_path, "csv")))
    assert torch.allclose(data.x.mean(0), torch.zeros(2), atol=1e-5)
    assert torch.allclose(data.x.std(0, correction=0), torch.ones(2), atol=1e-5)
    assert data.fingerprint != load("csv", str(own_file(tmp_path, "csv")), standardise=False).fingerprint


def test_a_folder_with_a_test_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("a,y\n1,0\n2,1\n3,0\n4,1\n")
    (tmp_path / "test.csv").write_text("a,y\n5,1\n6,0\n")
    data = load("csv", str(tmp_path), standardise=False)
    assert data.x.flatten().tolist() == [1, 2, 3, 4] and data.y_test.tolist() == [1, 0] and data.test_is_official


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,y\n1,0\nx,1", {}, "feature column 'a' must hold numbers; row 3 has 'x'"),
        ("a,y\n1,0\n,1", {}, "row 3 has ''"),
        ("a,y\n1,0\n1", {}, "must have 2 values a row; row 3 has 1"),
        ("a,a,y\n1,1,0", {}, "different column names"),
        ("a,y\n", {}, "must have rows"),
        ("", {}, "must have rows"),
        ("a,b\n1,0", {}, "data.y_column must name one of the columns a, b"),
        ("a,y\n1,0", {"x_column": "c"}, "unknown data.x_column 'c'"),
        ("y\n1", {}, "data.x_column must name a column of features"),
    ],
)
def test_a_csv_file_that_cannot_be_read_is_one_line(
    text: str, options: dict[str, str], message: str, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(fs.FedskewError) as error:
        load("csv", str(tmp_path / "t.csv"), **options)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("kind", [str, object, bytes, list])
def test_labels_may_be_strings(kind: Any) -> None:
    words = ["dog", "ant", "cat"] * 10
    y = (
        words
        if kind is list
        else np.array([w.encode() for w in words] if kind is bytes else words, dtype=kind if kind is object else None)
    )
    data = from_arrays(np.zeros((30, 2)), y, np.zeros((2, 2)), ["bee", "dog"])
    assert data.label_names == ("ant", "bee", "cat", "dog") and data.classes == 4
    assert data.y[:3].tolist() == [3, 0, 2] and data.y_test.tolist() == [1, 3]
    with pytest.raises(fs.DataError, match="both hold numbers, or both strings"):
        from_arrays(np.zeros((30, 2)), y, np.zeros((2, 2)), [0, 1])


def test_the_hub_s_retries_are_not_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    datasets = pytest.importorskip("datasets")
    loggers = [logging.getLogger(n) for n in ("huggingface_hub.utils._http", "datasets.load", "urllib3.connectionpool")]
    before = logging.getLogger("huggingface_hub").level

    def unreachable(*_: object) -> None:
        for logger in loggers:
            logger.warning("Retrying in 1s [Retry 1/5].")
        warnings.warn("sending unauthenticated requests", stacklevel=1)
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(fs.DataError, match="could not be loaded: no route"):
        load("hub", repo="nobody/nothing")
    assert not caplog.records and capsys.readouterr().err == ""
    assert logging.getLogger("huggingface_hub").level == before


def test_what_is_known_of_the_data_is_told_by_describe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    plain = TABLES["data"]["digits"].load
    noted = lambda self, path=None: replace(plain(self, path), notes=("rows are not in the official order",))
    monkeypatch.setattr(TABLES["data"]["digits"], "load", noted)
    assert fedskew("describe", "--out", tmp_path / "f.png") == 0
    assert "note: rows are not in the official order" in capsys.readouterr().out
    assert fedskew("describe", "--json", "--out", tmp_path / "f.png") == 0
    assert json.loads(capsys.readouterr().out)["notes"] == ["rows are not in the official order"]


# The documents


def test_every_recorded_field_is_explained(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs/records.md").read_text(encoding="utf-8")
    words = [*SMALL, "--validation", "0.1", "--eval.personal", "1"]
    for name in ("perfedavg", "climb"):
        assert fedskew("run", name, *words, "--out", tmp_path / name) == 0
        _, rows, summary = read(tmp_path / name)
        for field in rows[-1]:
            assert f"`{field}`" in page or f"`{field.removeprefix('val_')}`" in page, field
        for field in summary:
            assert f"`{field}`" in page or f"`{field.partition('_')[0]}_...`" in page, field
        for file in (tmp_path / name).iterdir():
            assert f"`{file.name}" in page, file.name
