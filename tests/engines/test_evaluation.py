"""What an evaluation keeps while it goes over the test rows, and evaluations that are recorded."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedskew as fs
from fedskew import rng
from fedskew.engines import evaluation, programs, stepper
from fedskew.engines.clients import auxiliary_source
from fedskew.engines.evaluation import LEAST
from fedskew.engines.programs import Captured, HostError, NoHost, StepFunction, captured_if_faster, rebuild
from fedskew.engines.stepper import StepMode
from fedskew.errors import DataError
from fedskew.functional import cross_entropy
from fedskew.models.sequences import CharLSTM, CharTransformer
from support.federations import blobs, skewed
from support.methods import tiny
from support.nets import CONVOLUTIONAL, dropout_net, norm_net
from support.runs import go, rows_of

ROWS = 20 * LEAST  # a chunk of a small dense model has at most eight times LEAST rows


@pytest.fixture(scope="module")
def fed() -> fs.Federation:
    gen = np.random.Generator(np.random.PCG64(0))
    x, y = gen.normal(size=(ROWS, 4)).astype(np.float32), np.arange(ROWS) % 3
    return fs.federate(fs.data.from_arrays(x[:60], y[:60], x, y), "iid", clients=3)


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many chunks' logits there were when each chunk was done."""
    seen: list[weakref.ref[torch.Tensor]] = []
    counted: list[int] = []

    def noted(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen.append(weakref.ref(logits))
        counted.append(sum(ref() is not None for ref in seen))
        return cross_entropy(logits, y)

    monkeypatch.setattr("fedskew.engines.evaluation.cross_entropy", noted)
    monkeypatch.setattr("fedskew.engines.evaluation.CACHE", 0)  # chunks of LEAST rows
    return counted


OPTIONS: dict[str, Any] = {"model": "logistic", "cohort": 2, "rounds": 2, "threads": 1}


def test_logits_of_all_chunks_are_kept_only_where_scores_are_measured(fed: fs.Federation, alive: list[int]) -> None:
    """Of 10 000 classes and a million rows they would be 80 GB."""
    plain = fs.run(fed, fs.methods.fedavg(), served="none", average_models="none", **OPTIONS)
    rounds, last = alive[:40], alive[40:]
    assert len(alive) == 60 and max(rounds) <= 2 and max(last) == 20, (
        "two evaluations, and the scores of the last model"
    )
    alive.clear()
    scored = fs.run(fed, fs.methods.fedavg(), scores="every", served="none", average_models="none", **OPTIONS)
    assert max(alive) >= 20
    for one, other in zip(plain.rounds, scored.rounds, strict=True):
        assert {name: other[name] for name in one if not name.endswith("_s")} == {
            name: value for name, value in one.items() if not name.endswith("_s")
        }, "and the numbers are the same"


def test_classes_whose_confusion_matrix_fits_nowhere_are_refused_before_the_training() -> None:
    """And nothing of [C, C] is made for a server that has no rows."""
    x, y = np.arange(8.0)[:, None], np.arange(8) % 2
    fed = fs.federate(fs.data.from_arrays(x, y, x, y, classes=1 << 20), "iid", clients=2)
    source = auxiliary_source(fed)
    assert source.rows == [] and source.counts.shape == (0, 1 << 20)
    with pytest.raises(
        DataError, match=r"confusion matrices of 1048576 classes must fit into half of the memory"
    ) as told:
        fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=1, threads=1)
    assert "MiB; keep fewer classes" in str(told.value)


# --- recorded -----------------------------------------------------------------------------------------------------

NETWORKS: dict[str, Any] = {
    **CONVOLUTIONAL, "logistic": "logistic", "batch_norm_dense": norm_net(), "dropout": dropout_net(),
    "char_lstm": CharLSTM(vocabulary=12, embedding=4, hidden=6),
    "char_transformer": CharTransformer(vocabulary=12, width=8, heads=2),
}  # fmt: skip
TESTED: dict[str, Any] = {"engine": "batched", "rounds": 5, "cohort": 2}


def federation(net: str) -> fs.Federation:
    """Digits, or sequences of tokens, with 40 test rows."""
    if not net.startswith("char"):
        return skewed()
    tokens = rng.generator(0, "tokens").integers(0, 12, (60, 6))
    x, y = tokens.astype(np.float32), tokens[:, -2] % 3
    return fs.federate(fs.data.from_arrays(x[:20], y[:20], x[20:], y[20:]), "iid", clients=3)


class Recordings:
    """Records the evaluations of a device from the second on, however long a launch takes; what comes of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, mode: StepMode, record: Any = None) -> None:
        self.made: list[Captured | None] = []
        self.launches = 0
        self._record = record
        monkeypatch.setitem(stepper.MAKERS, mode, (2, self._make))
        monkeypatch.setattr(programs, "PAYS", float("inf"))
        monkeypatch.setattr(evaluation, "CHUNK", {"convolutional": 16, "cuda": 16})  # of 40 test rows
        monkeypatch.setattr(evaluation, "LEAST", 16)
        monkeypatch.setattr(evaluation, "CACHE", 0)

    def _make(self, *given: Any) -> Captured | None:
        made = captured_if_faster(*given, self._record)
        self.made.append(made)
        if made is not None:
            made.replay = self._noted(given[0], made, made.replay)
        return made

    def _noted(self, function: StepFunction, made: Captured, replay: Callable[[], None]) -> Callable[[], None]:
        """A launch that is held against the plain pass of the same model."""

        def noted() -> None:
            self.launches += 1
            replay()
            (loss, matrix), _ = function((), rebuild(made._template[0], iter(made._fixed)), (), ())
            assert torch.equal(loss, made._carry[0]) and torch.equal(matrix, made._carry[1])

        return noted


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> Recordings:
    """On a CPU, where a function stands for its recording."""
    return Recordings(monkeypatch, StepMode.AUTOGRAD, lambda function: function)


def plainly(monkeypatch: pytest.MonkeyPatch, mode: StepMode, *given: Any, **options: Any) -> fs.Result:
    """A run without recordings of evaluations."""
    with monkeypatch.context() as patch:
        patch.setitem(stepper.MAKERS, mode, (float("inf"), None))
        return go(*given, **options)


@pytest.mark.parametrize("net", NETWORKS)
def test_a_recorded_evaluation_has_the_bits_of_a_plain_one(
    net: str, recordings: Recordings, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**TESTED, "model": NETWORKS[net], "dtype": "float32"}
    one = go(federation(net), tiny("fedavg"), **options)
    other = plainly(monkeypatch, StepMode.AUTOGRAD, federation(net), tiny("fedavg"), **options)
    assert rows_of(one) == rows_of(other)
    assert recordings.made and None not in recordings.made and recordings.launches == TESTED["rounds"] - 1


def test_an_evaluation_in_another_precision_is_recorded(
    recordings: Recordings, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**TESTED, "model": "mlp", "dtype": "float32", "precision": "bfloat16"}
    one = go(skewed(), tiny("fedavg"), **options)
    other = plainly(monkeypatch, StepMode.AUTOGRAD, skewed(), tiny("fedavg"), **options)
    assert rows_of(one) == rows_of(other) and recordings.launches == TESTED["rounds"] - 1


class Asking(nn.Module):
    """Looks at its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc(x)
        return out if float(x.abs().max()) > 1e9 else 2 * out


def test_a_network_that_asks_the_host_is_evaluated_as_it_is(
    recordings: Recordings, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**TESTED, "engine": "sequential", "model": Asking()}
    one = go(blobs([[4, 4, 4], [4, 4, 4]]), tiny("fedavg"), **options)
    other = plainly(monkeypatch, StepMode.AUTOGRAD, blobs([[4, 4, 4], [4, 4, 4]]), tiny("fedavg"), **options)
    assert rows_of(one) == rows_of(other) and recordings.made == [None]


def test_a_recording_that_saves_no_time_is_not_kept(recordings: Recordings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "PAYS", 0.0)
    go(skewed(), tiny("fedavg"), **TESTED)
    assert recordings.made == [None]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
class TestOnAGpu:
    """Recorded evaluations beside plain ones, bit by bit."""

    @pytest.fixture
    def recordings(self, monkeypatch: pytest.MonkeyPatch) -> Recordings:
        return Recordings(monkeypatch, StepMode.WHOLE)

    @pytest.mark.parametrize("net", NETWORKS)
    def test_networks(self, net: str, recordings: Recordings) -> None:
        go(federation(net), tiny("fedavg"), **TESTED, model=NETWORKS[net], dtype="float32", device="cuda")
        assert len(recordings.made) == 1 and recordings.launches == TESTED["rounds"] - 1

    @pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
    @pytest.mark.parametrize("net", ["convolutions", "batch_norm_dense"])
    def test_precisions(self, net: str, precision: str, recordings: Recordings) -> None:
        options = {**TESTED, "model": NETWORKS[net], "dtype": "float32", "device": "cuda", "precision": precision}
        go(skewed(), tiny("fedavg"), **options)
        assert len(recordings.made) == 1 and recordings.launches == TESTED["rounds"] - 1

    def test_what_asks_the_host_is_refused_before_it_is_recorded(self, recordings: Recordings) -> None:
        fed = blobs([[4, 4, 4], [4, 4, 4]])
        go(fed, tiny("fedavg"), **{**TESTED, "engine": "sequential", "model": Asking(), "device": "cuda"})
        go(fed, tiny("fedavg"), **TESTED, device="cuda")
        assert recordings.made[0] is None and recordings.made[1] is not None

    def test_numbers_from_the_host_are_noticed(self) -> None:
        with pytest.raises(HostError), NoHost():  # type: ignore[no-untyped-call]
            torch.tensor([1.0], device="cuda")
