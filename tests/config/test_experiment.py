"""Configuration files: what they say comes back, and each wrong value is one line."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Iterator
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
import torch

from fedskew.config import experiment as config
from fedskew.config.experiment import Experiment, load
from fedskew.config.flags import experiment_from
from fedskew.errors import ConfigError, FedskewError
from fedskew.methods import METHODS
from fedskew.records.folder import read
from fedskew.settings import check_device
from support.command import SMALL, fedskew, mistake, refused
from support.runs import rows_of

BROKEN: dict[str, tuple[Any, Any, str]] = {  # path inside the file, value, what is said
    "a word for a number": (["rounds"], "ten", "rounds must be a whole number; got 'ten'"),
    "a fraction for a whole number": (["cohort"], 2.5, "cohort must be a whole number; got 2.5"),
    "true for a number": (["seed"], True, "seed must be a whole number; got True"),
    "a number for a word": (["device"], 3, "device must be a word; got 3"),
    "NaN": (["validation"], float("nan"), "validation must be a number; got nan"),
    "a list for an ingredient": (["data"], ["digits"], "data must be a name, or"),
    "a number for a name": (["partition", "name"], 3, "the name of partition must be a word; got 3"),
    "a list for a method": (["method"], ["fedavg"], "it has no method"),
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


def test_options_that_are_gone_do_not_keep_an_older_record_from_being_read() -> None:
    content = experiment_from(["fedavg", *SMALL]).to_json()
    assert Experiment.from_json({**content, "eval_rows": 100, "ray_sum": 8}).to_json() == content


@pytest.mark.parametrize("text", ["[]", "3", "{}", "{", ""])
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
    assert rows_of(read(run)[1]) == rows_of(read(tmp_path / "b")[1])
    assert "cannot read" in mistake(capsys, "run", "--from", tmp_path)


def test_a_gpu_is_one_of_those_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for name in ("cpu", "cuda", "cuda:0", "cuda:1"):
        check_device(name)
    refused(lambda: check_device("cuda:2"), "Settings.device must be one of the GPUs, at most cuda:1; got 'cuda:2'")
    refused(lambda: check_device("cuda:"), "Settings.device must be cpu, cuda or cuda:NUMBER")


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


def test_a_tuple_of_an_ingredient_comes_back_from_json() -> None:
    experiment = config.Experiment(METHODS["fedpals"]().with_("weighting", target=(1.0, 2.5, 3.0)))
    again = config.Experiment.from_json(json.loads(json.dumps(experiment.to_json())))
    assert again.method == experiment.method and again.method.weighting.target == (1.0, 2.5, 3.0)


WRONG = (None, True, -1, 10**30, 1.5, math.nan, "x", "", [], ["x"], [[1]], {}, {"name": ["x"]}, {"name": "x"}, {"a": 1})


def places(node: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a configuration."""
    for key in node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
        yield (*way, key)
        yield from places(node[key], (*way, key))


def test_an_entry_that_is_missing_or_of_another_type_is_told_in_its_own_words(tmp_path: Path) -> None:
    content = json.loads(json.dumps(Experiment(METHODS["fedprox"](), clients=4, rounds=1).to_json()))
    for *outer, key in places(content):
        for wrong in ("missing", *WRONG):
            changed = copy.deepcopy(content)
            holder = reduce(getitem, outer, changed)
            holder[key] = wrong
            if wrong == "missing":
                del holder[key]
            (tmp_path / "c.json").write_text(json.dumps(changed))
            try:
                load(tmp_path / "c.json")
            except FedskewError as error:
                said = str(error)
                assert "\n" not in said and not re.search(r"[A-Z]\w*Error", said), (outer, key, wrong, said)
    with pytest.raises(ConfigError, match="the name of a method must be a word; got"):
        Experiment.from_json({**content, "method": {**content["method"], "name": ["x"]}})
    with pytest.raises(ConfigError, match="method must have the entry 'parts'; got"):
        Experiment.from_json({**content, "method": {"name": ["x"]}})
