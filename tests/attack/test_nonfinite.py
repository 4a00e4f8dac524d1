"""Values that are not finite: the run stops and says where, or goes on as if that client had not been chosen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fedskew as fs
from fedskew.method import Component, Method
from fedskew.method.paces import Fixed
from fedskew.records import folder as records
from fedskew.types import Assignment, Cohort, Context, LocalRun, Params, Query, View
from support.attack import FULL, Line, some
from support.federations import RAGGED, blobs, skewed
from support.methods import FixedCohort, each
from support.nets import norm_net
from support.runs import measured as go
from support.runs import rows_of, same

ENGINES = ("sequential", "threaded", "batched", "debug")
PACE = Fixed(epochs=1, lr=0.1, batch_size=2)
WHO, WHEN, LAST = 2, 2, 4  # client 2 makes four steps, fewer than others in its stack
KINDS = {  # what is poisoned: (what is found, in which step)
    "gradient": ("loss", 3), "last gradient": ("parameter", LAST), "upload": ("upload", LAST),
    "memory": ("memory", LAST),
}  # fmt: skip


@dataclass(frozen=True)
class Poison(Component):
    """Makes something of some clients' runs NaN or infinite, in round 2."""

    name = "poison"
    kind: str
    clients: tuple[int, ...] = (WHO,)
    endless: bool = False  # infinite rather than NaN

    def init_client(self, params: Params, buffers: Params, task: Any) -> Any:
        return {"runs": torch.zeros(())}

    def init_server(self, params: Params, fed: Any, task: Any) -> Any:
        return {"round": torch.zeros(())}

    def broadcast(self, state: Any, ids: Tensor | None) -> tuple[Any, Any]:
        if ids is None:
            return {}, None
        return {}, {"on": torch.isin(ids, torch.tensor(self.clients)) & (state["round"] == WHEN - 1)}

    def _poisoned(self, t: Tensor, ctx: Context, now: Any = True) -> Tensor:
        return torch.where(ctx.shared[self.name]["on"] & now, torch.inf if self.endless else torch.nan, t)

    def correct(self, grads: Params, view: View) -> Params:
        steps = {"gradient": 2, "last gradient": view.progress.steps}
        if self.kind not in steps:
            return grads
        now = view.progress.step == steps[self.kind]
        return {n: self._poisoned(g, view.ctx, now) for n, g in grads.items()}

    def finish(self, local: LocalRun) -> tuple[Any, Any]:
        upload, memory = local.report.loss.float(), local.memory[self.name]["runs"] + 1
        if self.kind == "upload":
            upload = self._poisoned(upload, local.ctx)
        if self.kind == "memory":
            memory = self._poisoned(memory, local.ctx)
        return {"told": upload}, {"runs": memory}

    def absorb(self, state: Any, cohort: Cohort, key: Tensor) -> tuple[Any, None]:
        return {"round": state["round"] + 1}, None


@dataclass(frozen=True)
class ByRound(FixedCohort):
    """Other chains in round 2."""

    name = "by_round"
    second: tuple[tuple[int, ...], ...] = ()

    def init_server(self, params: Params, fed: Any, task: Any) -> Any:
        return {"round": torch.zeros(())}

    def select(self, state: Any, k: int, key: Tensor) -> Assignment:
        return Assignment(torch.tensor(self.second if int(state["round"]) == WHEN - 1 else self.chains))

    def absorb(self, state: Any, cohort: Cohort, key: Tensor) -> tuple[Any, None]:
        return {"round": state["round"] + 1}, None


def poisoned(kind: str, name: str = "fedavg", clients: tuple[int, ...] = (WHO,), **slots: Any) -> Method:
    method = fs.methods.METHODS[name]()
    slots = {"pace": replace(method.pace, lr=0.1) if name == "fedvc" else PACE, "selector": each(0, 2, 3, 1)} | slots
    return replace(method, parts=(*method.parts, Poison(kind, clients, name == "scaffold")), **slots)


def run(method: Method, engine: str = "sequential", **options: Any) -> fs.Result:
    options = {"rounds": 3, "dtype": "float32", "threads": 2, "nonfinite": "drop"} | options
    return go(blobs(RAGGED), method, engine=engine, **options)


def without(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "dropped"}


# of methods whose weights rest on no sum over who entered the round, which a dropped client stays in
METHODS = ("scaffold", "fedavg", "fedadam", "moon", "fedsmoo", "feddyn", "fedbal", "pfedme", "fedgrab", "climb")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_dropped_client_was_never_chosen(engine: str) -> None:
    """All that the run leaves is bit by bit that of a run whose selector leaves the client out in that round."""
    with Line("not finite", "a dropped client was never chosen") as line:
        for name in METHODS[: some(1, len(METHODS))]:
            for kind, (tensor, step) in list(KINDS.items())[:: some(3, 1)]:
                got = run(poisoned(kind, name), engine)
                spared = ByRound(each(0, 2, 3, 1).chains, each(0, 3, 1).chains)
                want = run(poisoned(kind, name, (), selector=spared), engine)
                case = f"{name}, {kind}, {engine}"
                equal = same(got.params, want.params) and list(map(without, rows_of(got))) == rows_of(want)
                line.check(equal, f"{case}: another run")
                (dropped,) = got.rounds[WHEN - 1].get("dropped", [{}])
                # debug looks after each hook, and a step of pFedMe takes several gradients
                elsewhere = engine == "debug" or name == "pfedme"
                where = dropped.get("client") == WHO and (elsewhere or dropped.get("step") == step)
                line.check(where and (elsewhere or dropped["tensor"].startswith(tensor)), f"{case}: {dropped}")
                line.check(all("dropped" not in row for row in (got.rounds[0], got.rounds[2])), f"{case}: other rounds")


def test_engines_drop_the_same_clients() -> None:
    with Line("not finite", "engines drop the same clients") as line:
        for kind in list(KINDS)[:: some(2, 1)]:
            for clients in ((1, 2, 3), (0, 3))[: some(1, 2)]:
                method = poisoned(kind, "scaffold", clients)
                rows = {e: run(method, e).rounds for e in ("sequential", "threaded", "batched")}
                first = [(r["clients"], r.get("dropped")) for r in rows["sequential"]]
                for engine, rounds in rows.items():
                    line.check([(r["clients"], r.get("dropped")) for r in rounds] == first, f"{kind}, {engine}")
                line.check({f["client"] for f in first[1][1]} == {*clients}, f"{kind}: {first[1]}")


@pytest.mark.parametrize("chains", [((0, 2), (3, 1)), ((2, 0), (3, 1)), ((0, -1), (2, -1))])
def test_a_member_of_a_chain_is_dropped_alone(chains: tuple[tuple[int, ...], ...]) -> None:
    rest = tuple(tuple(-1 if k == WHO else k for k in chain) for chain in chains)
    rest = tuple(chain for chain in rest if any(k >= 0 for k in chain))
    gradient = replace(fs.methods.fedavg(), pace=PACE)
    for engine in ("sequential", "threaded", "batched"):
        part = Stateless("gradient")
        got = run(replace(gradient, parts=(part,), selector=FixedCohort(chains)), engine)
        calm = replace(gradient, parts=(replace(part, clients=()),), selector=ByRound(chains, rest))
        assert same(got.params, run(calm, engine).params)
        assert [f["client"] for f in got.rounds[WHEN - 1]["dropped"]] == [WHO]


@dataclass(frozen=True)
class Stateless(Poison):
    """What may stand beside chains: no memory and no upload."""

    name = "stateless"
    init_client = Component.init_client
    finish = Component.finish


@pytest.mark.parametrize("kind", ["gradient", "last gradient"][: some(1, 2)])
def test_a_run_that_drops_is_resumed(kind: str, tmp_path: Path) -> None:
    method = poisoned(kind, "scaffold")
    whole = run(method, out=tmp_path / "whole", rounds=4, checkpoint_every=1)
    for rounds in (1, 2, 3):
        out = tmp_path / str(rounds)
        run(method, out=out, rounds=rounds, checkpoint_every=1)
        rest = run(method, out=out, rounds=4, resume=True)
        assert same(whole.params, rest.params) and rows_of(records.read(out)[1]) == rows_of(whole)


@pytest.mark.parametrize("engine", ENGINES)
def test_stop_names_client_round_step_and_tensor(engine: str, tmp_path: Path) -> None:
    with Line("not finite", "stop names client, round, step and tensor") as line:
        for number, (kind, (tensor, step)) in enumerate(KINDS.items()):
            out = tmp_path / str(number)
            with pytest.raises(fs.TrainingError) as caught:
                run(poisoned(kind), engine, nonfinite="stop", out=out)
            message = str(caught.value)
            where = f"client {WHO}, round {WHEN}, step "
            exact = engine == "debug" or (f"{where}{step} of {LAST}" in message and f"the {tensor}" in message)
            line.check(where in message and exact and "\n" not in message, f"{kind}: {message}")
            line.check(len(records.read(out)[1]) == WHEN - 1, f"{kind}: rows")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_round_of_which_nobody_is_left_stops(engine: str) -> None:
    with pytest.raises(fs.TrainingError, match=r"every client of the round was dropped: .* round 2"):
        run(poisoned("gradient", clients=(0, 1, 2, 3)), engine)


@pytest.mark.parametrize("policy", ["stop", "drop"])
@pytest.mark.parametrize("engine", ENGINES)
def test_statistics_and_the_evaluation_are_looked_at(engine: str, policy: str) -> None:
    """BatchNorm at a rate of a million: it once finished with running_var not finite and a loss of NaN."""
    method = replace(fs.methods.fedavg(), pace=Fixed(lr=1e6, batch_size=16))
    with Line("not finite", "BatchNorm at absurd rates ends in one line") as line:
        for rate in (1e6, 1e12, 1e20, 1e30)[: some(1, 4)]:
            method = replace(method, pace=replace(method.pace, lr=rate))
            try:
                options = {"dtype": "float32", "engine": engine, "nonfinite": policy}
                result = go(skewed(), method, model=norm_net(), rounds=4, **options)
            except fs.TrainingError as error:
                line.check("\n" not in str(error), str(error))
            else:
                finite = all(torch.isfinite(t).all() for t in (*result.params.values(), *result.buffers.values()))
                numbers = all(row["loss"] == row["loss"] and abs(row["loss"]) < float("inf") for row in result.rounds)
                line.check(bool(finite) and numbers, f"{rate}: finished and is not finite")


@dataclass(frozen=True)
class Spoilt(Component):
    """Spoils the server's half in round 2."""

    name = "spoilt"
    stage: str

    def init_server(self, params: Params, fed: Any, task: Any) -> Any:
        return {"round": torch.zeros(()), "kept": torch.zeros(3)}

    def absorb(self, state: Any, cohort: Cohort, key: Tensor) -> tuple[Any, None]:
        kept = torch.full((3,), torch.nan) if self.stage == "state" and cohort.round == WHEN else state["kept"]
        return {"round": state["round"] + 1, "kept": kept}, None

    def serve(self, params: Params, state: Any, task: Any) -> Params:
        wild = self.stage == "served" and int(state["round"]) == WHEN
        return {n: p * torch.inf if wild else p for n, p in params.items()}

    def ask(self, state: Any, round: int, key: Tensor) -> Query | None:
        return Query("cohort", self._answer) if self.stage == "answer" and round == WHEN else None

    def _answer(self, view: View) -> Tensor:
        return torch.full((), torch.nan)

    def receive(self, state: Any, answers: Any, key: Tensor) -> Any:
        return {**state, "kept": state["kept"] + answers.values.mean()}


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ("state", "the server's state 'spoilt.kept' has a NaN after round 2"),
        ("answer", "the server's state 'spoilt.kept' has a NaN after round 2"),
        ("served", "the evaluation's 'loss' is nan after round 2, although the model is finite"),
    ],
)
@pytest.mark.parametrize("policy", ["stop", "drop"])
def test_what_no_client_is_to_blame_for_stops_the_run(stage: str, message: str, policy: str) -> None:
    method = replace(fs.methods.fedavg(), pace=PACE)
    with pytest.raises(fs.TrainingError, match=message):
        run(replace(method, parts=(*method.parts, Spoilt(stage))), nonfinite=policy)


def test_another_policy_is_another_run(tmp_path: Path) -> None:
    """In both directions, though the default is not recorded."""
    method = poisoned("gradient", clients=())
    for before, after in (("stop", "drop"), ("drop", "stop")):
        run(method, rounds=1, out=tmp_path / before, nonfinite=before)
        with pytest.raises(fs.RecordError, match=rf'nonfinite was "{before}" and is "{after}"'):
            run(method, rounds=2, out=tmp_path / before, nonfinite=after, resume=True)


def test_both_policies_are_the_same_run_where_all_is_finite() -> None:
    for engine in ENGINES if FULL else ("sequential", "batched"):
        stopping, dropping = (run(poisoned("gradient", "scaffold", ()), engine, nonfinite=p) for p in ("stop", "drop"))
        assert same(stopping.params, dropping.params) and rows_of(stopping) == rows_of(dropping)


@dataclass(frozen=True)
class Huge(Component):
    """Uploads finite numbers whose sum is not, and remembers an infinity: nothing was seen yet."""

    name = "huge"

    def init_client(self, params: Params, buffers: Params, task: Any) -> Any:
        return {"least": torch.tensor(torch.inf), "runs": torch.zeros(())}

    def finish(self, local: LocalRun) -> tuple[Any, Any]:
        memory = local.memory[self.name]
        return {"told": torch.full((4,), 3e38)}, {**memory, "runs": memory["runs"] + 1}


@pytest.mark.parametrize("engine", ENGINES)
def test_sums_that_overflow_and_infinities_that_are_meant_are_no_fault(engine: str) -> None:
    method = replace(fs.methods.fedavg(), pace=PACE, selector=each(0, 2, 3, 1))
    kept = replace(method, parts=(*method.parts, Huge()))
    assert same(run(method, engine).params, run(kept, engine, nonfinite="stop").params)
