"""Mistakes on the command line: each is one line and exit code 2, and nothing is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.command import SMALL, fedskew, mistake
from support.old_format import as_format_1

LINES = {  # of `fedskew run`
    "method": (["fedprx"], "unknown method 'fedprx'; did you mean 'fedprox'?"),
    "dataset": (["fedavg", "--data", "digit"], "unknown dataset 'digit'; did you mean 'digits'?"),
    "partition": (["fedavg", "--partition", "dirichlt"], "unknown partition 'dirichlt'; did you mean 'dirichlet'?"),
    "option": (["fedavg", "--roundz", "3"], "unknown option '--roundz'; did you mean '--rounds'?"),
    "field": (["fedbal", "--parts.local_balancer.strenght", "3"], "did you mean '--parts.local_balancer.strength'?"),
    "engine": (["fedavg", "--engine", "batch"], "debug, ray, flower; got 'batch'; did you mean 'batched'?"),
    "type": (["fedavg", "--rounds", "ten"], "rounds must be a whole number; got 'ten'"),
    "choice": (["fedga", "--parts.calibrated_targets.form", "exct"], "did you mean 'exact'?"),
    "cohort of the run": (["fedavg", "--clients", "5", "--cohort", "6"], "must be at most the number of clients, 5"),
    "empty clients": (["fedavg", "--partition.alpha", "0.001", "--cohort", "100"], "that have rows"),
    "two methods": (["fedavg", "fedla"], "one METHOD"),
    "no method": ([], "name a METHOD"),
    "pace": (["seolkim", "--batch-size", "8"], "--batch-size has no meaning here"),
    "lr": (["fedavg", "--lr", "-1"], "--lr must be positive; got -1.0"),
    "auxiliary": (["fedrl", "--auxiliary", "0"], "--auxiliary must be at least 1"),
    "two losses": (["fedbal", "--parts", "local_balancer,calibrated_targets"], "at most one classification loss"),
    "chains": (["scaffold", "--selector", "mediators"], "--selector must not pass a model from client to client"),
    "momentum with prox in fednova": (["fednova", "--parts", "proximal", "--momentum", "0.9"], "--momentum must be 0"),
    "resume nothing": (["--resume", "no/such/run"], "--resume must be a run folder"),
    "from nothing": (["--from", "no/such.json"], "cannot read"),
    "option of another": (
        ["fedavg", "--weighting.beta", "3"], "of this run has no beta; --weighting aggregation_balancer has",
    ),
    "option near": (["fedbal", "--weighting.bta", "3"], "did you mean '--weighting.beta'"),
    "csv without a file": (["fedavg", "--data", "csv"], "fedskew: --data.path must name the file of dataset 'csv'"),
    "precision": (["fedavg", "--precision", "bfloat"], "got 'bfloat'; did you mean 'bfloat16'"),
    "device": (["fedavg", "--device", "tpu"], "--device must be cpu, cuda or cuda:NUMBER; got 'tpu'"),
    "noise": (["fedavg", "--dp", "client"], "--dp.noise or --dp.epsilon must be given, too"),
    "no such GPU": (["fedavg", "--device", "cuda:99"], "--device must be"),
    "rounds": (["fedavg", "--rounds", "0"], "--rounds must be at least 1; got 0"),
    "huge whole number": (["fedavg", "--rounds", "9" * 30], "--rounds must be a whole number"),
    "beyond float32": (["fedadam", "--server.tau", "1e300"], "--server.tau must be a number that float32 holds"),
    "beyond its square": (["fedadam", "--server.tau", "1e20"], "--server.tau must be at most 1.8e+19, or inf"),
    "negative mu": (["fedprox", "--parts.proximal.mu", "-1"], "--parts.proximal.mu must be at least 0"),
    "flag twice": (["fedavg", "--lr", "0.1", "--lr", "0.2"], "--lr must be given once; got '--lr 0.1' and '--lr 0.2'"),
    "alias twice": (["fedavg", "--lr=0.1", "--pace.lr", "0.2"], "--pace.lr must be given once"),
    "alpha": (["fedavg", "--alpha", "0.1"], "unknown option '--alpha'; did you mean '--partition.alpha'?"),
    "mu": (["fedprox", "--mu", "1"], "unknown option '--mu'; did you mean '--parts.proximal.mu'?"),
    "optimizer": (["fedavg", "--optimizer", "adam"], "did you mean '--local' or '--server'?"),
    "gamma of a part": (["fedavg", "--parts.unbalanced_softmax.gamma", "one"], "add --parts unbalanced_softmax, or"),
    "one dash": (["fedavg", "-lr", "0.1"], "unknown option '-lr'; did you mean '--lr'?"),
    "no number": (["fedavg", "--rounds"], "--rounds must be followed by a value"),
    "no number before a flag": (["fedbal", "--weighting.beta", "--lr", "1"], "--weighting.beta must be followed"),
    "no name": (["fedavg", "--model"], "--model must be followed by a value"),
    "no folder": (["fedavg", "--out"], "--out must be followed by a value, a folder"),
    "no run": (["--from"], "--from must be followed by a value, a run folder or its config.json"),
}  # fmt: skip


OTHERS = {  # of other commands, and of the words before options
    "command": (["rnu"], "unknown command 'rnu'; did you mean 'run'?"),
    "option before the command": (["--dta", "x"], "unknown option '--dta'"),
    "no action": (["partition"], "fedskew partition needs one of make, verify"),
    "action": (["partition", "verfy"], "unknown action of fedskew partition 'verfy'; did you mean 'verify'?"),
    "no file": (["partition", "verify"], "fedskew partition verify needs a file"),
    "two files": (["partition", "verify", "a", "b"], "one FILE at a time"),
    "nothing to cite": (["cite"], "fedskew cite needs at least one method, ingredient or dataset, or fedskew"),
    "two forms of a page": (["methods", "fedavg", "--json"], "takes NAME or --json; got both"),
    "a switch with a value": (["methods", "--json=1"], "--json takes no value; got '1'"),
    "option of a page": (["plot", "x", "--figur", "y"], "'--figur' of fedskew plot; did you mean '--figure'?"),
    "alias and field": (["run", "fedavg", "--server-lr", "-1"], "--server-lr must be positive; got -1.0"),
    "field as typed": (["run", "fedavg", "--server.lr", "-1"], "--server.lr must be positive; got -1.0"),
    "bool": (["run", "fedavg", "--data.augment", "treu"], "must be true or false; got 'treu'; did you mean 'true'?"),
    "rows": (["run", "fedavg", "--partition", "counts", "--partition.matrix", "1,2"], "rows such as [[1,2],[3,4]]"),
    "resume and more": (["run", "fedavg", "--resume", "x"], "--resume must be used alone"),
    # a flag that ends the line is looked up before its value is missed
    "run": (["run", "fedavg", "--roundss"], "unknown option '--roundss'; did you mean '--rounds'?"),
    "report": (["report", "a", "--outt"], "unknown option '--outt' of fedskew report; did you mean '--out'?"),
    "show": (["show", "a", "--qqq", "1"], "it takes --metric, --ascii; see `fedskew show --help`"),
    "no command": (["--qqq"], "unknown option '--qqq'; options follow a command: see `fedskew COMMAND --help`"),
    "a group": (["study", "--qqq"], "see `fedskew study COMMAND --help`"),
    "compare": (["compare", "fedavg", "fedprox", "--sees"], "unknown option '--sees'; did you mean '--seeds'?"),
    "a second method": (["compare", "fedavg", "fedprox", "--parts.proximal.mu"], "mu must be followed by a value"),
}  # fmt: skip


def test_a_flag_of_the_method_of_another_run_is_known(tmp_path: Path) -> None:
    assert fedskew("run", "fedprox", *SMALL, "--out", tmp_path / "prox") == 0
    said = mistake("run", "--from", tmp_path / "prox", "--parts.proximal.mu")
    assert "--parts.proximal.mu must be followed by a value" in said


@pytest.mark.parametrize(
    ("words", "expected"),
    [*((["run", *words], said) for words, said in LINES.values()), *OTHERS.values()],
    ids=[*LINES, *OTHERS],
)
def test_a_mistake_is_one_line(
    words: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert expected in mistake(*words)
    assert not list(tmp_path.iterdir()), "a mistake must be found before a run folder is made"


def test_a_device_that_is_not_there_can_be_overruled(run: Path) -> None:
    """A run of a GPU can be run again on a machine that has none."""
    file = as_format_1(run) / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "device": "cuda:99"}))
    assert "--device must be" in mistake("run", "--from", run, "--out", run.parent / "b")
    assert fedskew("run", "--from", run, "--device", "cpu", "--out", run.parent / "b") == 0
