"""What crosses each door, with a method that needs it, against a computation by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fedskew as fs
import tiny
from fedskew import functional as F
from fedskew import tree
from fedskew.engines import LocalEngine
from fedskew.method import Component, LocalStep, Method, Weighting
from fedskew.methods.fedbal import AggregationBalancer, LocalBalancer
from fedskew.methods.fednova import FedNova
from fedskew.methods.fedprox import Proximal
from fedskew.methods.pfedme import Moreau
from fedskew.methods.seolkim import DecayingOversampling
from fedskew.records import folder as records
from fedskew.shared import SGD, Fixed
from fedskew.types import Answers, Carry, Cohort, Context, LocalRun, Params, Query, View, Weights
from tiny import WHOLE, blobs, changed, each, gap, go, rows_of, same, skewed, spied

RAGGED = [[9, 3, 1], [2, 5, 0], [1, 1, 6], [8, 8, 8]]
ENGINES = pytest.mark.parametrize("engine", ["sequential", "batched"])


# Gradients by hand, of logistic regression on a client's rows


def logits_of(params: Params, x: Tensor) -> Tensor:
    return x @ params["fc.weight"].T + params["fc.bias"]


def rows(fed: Any, k: int) -> tuple[Tensor, Tensor]:
    at = torch.from_numpy(fed.rows(k))
    return fed.dataset.x[at].double(), fed.dataset.y[at]


def gradient(params: Params, x: Tensor, y: Tensor) -> Params:
    error = torch.softmax(logits_of(params, x), 1) - nn.functional.one_hot(y, params["fc.bias"].numel())
    return {"fc.weight": error.T @ x / len(y), "fc.bias": error.mean(0)}


def descend(params: Params, x: Tensor, y: Tensor, lr: float, steps: int = 1) -> Params:
    for _ in range(steps):
        params = tree.add(params, gradient(params, x, y), -lr)
    return params


def start_of(fed: Any) -> Params:
    """The initial parameters of a run, seed 0."""
    module = fs.models.build("logistic", tuple(fed.dataset.x.shape[1:]), fed.dataset.classes, 0)
    return {name: p.detach().double() for name, p in module.named_parameters()}


def kept(folder: Path) -> dict[int, dict[str, Any]]:
    """What the checkpoint holds of every client's memory."""
    content, _ = records.load_tree(folder / "checkpoint" / "state.safetensors")
    return {int(k): memory for k, memory in content.get("memory", {}).items()}


Asked = list[tuple[int, Query, Answers]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Every question that is put to the engine: (round, question, answers)."""
    seen: Asked = []
    plain = LocalEngine.query

    def query(self: Any, query: Query, part: Component, method: Method, broadcast: Any) -> Answers:
        answers = plain(self, query, part, method, broadcast)
        seen.append((broadcast.round, query, answers))
        return answers

    monkeypatch.setattr(LocalEngine, "query", query)
    return seen


# ---------------------------------------------------------------------------------------------------------------------
# Offer, quota and pace of each client; the decay by way of `shared`: Seol-Kim


def test_offer_quota_and_pace_of_each_client(asked: Asked) -> None:
    fed = blobs([[9, 3, 1], [2, 5, 0], [1, 1, 6], [3, 4, 5]])
    method = changed(changed(fs.methods.seolkim(), "kld", threshold=0.0), "dynamic", epochs=2, beta=3)
    method, seen = spied(method)
    result = go(fed, method, rounds=1, cohort=3)
    (cohort,) = seen
    offered = F.oversample_target(fed.counts, 0.01, 0)
    assert torch.equal(asked[0][2].values, offered) and asked[0][1].what == "counts"
    assert torch.equal(cohort.owned, fed.counts[cohort.ids])
    assert torch.equal(cohort.offered, offered[cohort.ids]) and not torch.equal(cohort.offered, cohort.owned)
    pool = cohort.used.sum(0)
    assert (cohort.used <= cohort.offered).all() and (pool <= pool.max()).all()
    assert not torch.equal(cohort.used, cohort.offered)  # some quota bites
    n = cohort.used.sum(1)
    batch = (n // 3).clamp(min=1)
    assert torch.equal(cohort.reports.samples, n)
    assert torch.equal(cohort.reports.steps, 2 * torch.minimum(-(-n // batch), torch.tensor(3)))
    assert torch.allclose(cohort.reports.lr, 0.1 * 2 / torch.pi * torch.arctan(batch.double()))
    assert len(set(cohort.reports.lr.tolist())) > 1  # ragged in rate
    assert result.rounds[0]["weights"] == pytest.approx((n / n.sum()).tolist())


def test_the_decay_reaches_the_sampler() -> None:
    fed = blobs(RAGGED)
    sampler = DecayingOversampling(delta=0.0, increment=1.0, threshold=0.0)
    method, seen = spied(replace(fs.methods.fedavg(), sampler=sampler, selector=each(0, 1, 2)))
    result = go(fed, method, rounds=3)
    assert float(result.state.parts["decaying_oversampling"]["delta"]) == pytest.approx(
        float(sum(bool(c.offered.sum() > c.owned.sum()) for c in seen))
    )
    delta = 0.0
    for r, cohort in enumerate(seen):
        assert torch.equal(cohort.offered, F.oversample_target(cohort.owned, delta, r))
        delta += 1.0 if cohort.offered.sum() > cohort.owned.sum() else 0.0
    totals = [int(c.offered.sum()) for c in seen]
    assert totals[0] > totals[1] >= totals[2]


# ---------------------------------------------------------------------------------------------------------------------
# combine: FedGR, FedGC


@ENGINES
def test_combine_moves_the_classifier_before_averaging(engine: str) -> None:
    fed, strength = blobs(RAGGED), 3.0
    plain, parted = fs.methods.fedgr(strength=0.0), fs.methods.fedgr(strength=strength)
    (plain, before), (parted, after) = spied(plain), spied(parted)
    go(fed, plain, rounds=1, engine=engine)
    result = go(fed, parted, rounds=1, engine=engine)
    a, b = before[0], after[0]
    assert gap(a.trained, b.trained) <= 1e-12  # clients know nothing of it
    trained = b.before["fc.weight"] + b.trained["fc.weight"]
    step = strength * float(b.reports.lr.mean())
    expected = F.gravitation_step(trained, b.used > 0, step) - b.before["fc.weight"]
    assert torch.allclose(b.deltas["fc.weight"], expected) and gap(a.deltas, b.deltas) > 1e-4
    assert torch.equal(b.deltas["fc.bias"], b.trained["fc.bias"])
    share = b.weights.update[:, None, None]
    assert torch.allclose(result.params["fc.weight"], b.before["fc.weight"] + (share * expected).sum(0))


# ---------------------------------------------------------------------------------------------------------------------
# Memories written back by the server, private heads: FedGC


@dataclass(frozen=True)
class Starts(Component):
    """Notes the parameters with which each local run starts (sequential engine)."""

    name = "starts"
    seen: list[Params]

    def start(self, params: Params, ctx: Context) -> tuple[Params, Any]:
        self.seen.append(params)
        return params, ctx.memory[self.name]


def test_private_heads_are_corrected_and_written_back(tmp_path: Path) -> None:
    fed, strength = blobs(RAGGED), 3.0
    method, seen = spied(replace(fs.methods.fedgc(strength), selector=each(0, 2)))
    starts: list[Params] = []
    method = replace(method, parts=(*method.parts, Starts(starts)))
    first = go(fed, method, rounds=1, out=tmp_path / "a")
    (cohort,) = seen
    heads = cohort.before["fc.weight"] + cohort.trained["fc.weight"]
    corrected = F.fedgc_step(heads, cohort.used > 0, strength * 0.1)
    assert not torch.allclose(corrected, heads)
    memory = kept(tmp_path / "a")
    assert sorted(memory) == [0, 2]
    for i, k in enumerate((0, 2)):
        assert torch.allclose(memory[k]["private_head"]["head"]["fc.weight"], corrected[i])
    owned, p = cohort.used > 0, cohort.weights.average
    for c in range(3):  # the global row is the mean over its owners
        rows_c, share = corrected[owned[:, c], c], p[owned[:, c]]
        assert torch.allclose(first.params["fc.weight"][c], (share @ rows_c) / share.sum())

    starts.clear()
    second = go(fed, method, rounds=2)
    for i in (0, 1):  # in round 2 a client starts from its corrected head
        assert torch.allclose(starts[2 + i]["fc.weight"], corrected[i])
        assert not torch.allclose(starts[2 + i]["fc.weight"], second.state.params["fc.weight"])


def test_private_heads_make_the_personal_models(tmp_path: Path) -> None:
    fed = blobs(RAGGED)
    method = replace(fs.methods.fedgc(3.0), selector=each(0, 2))
    result = go(fed, method, out=tmp_path / "a", personal_every=1)
    assert all("personal_accuracy" in row for row in result.rounds)
    memory, total, seen = kept(tmp_path / "a"), 0.0, 0
    for k in range(4):
        at = torch.from_numpy(fed.test_rows(k))
        head = memory[k]["private_head"]["head"] if k in memory else result.params
        z = logits_of(head, fed.dataset.x_test[at].double())
        total += float(nn.functional.cross_entropy(z, fed.dataset.y_test[at], reduction="sum"))
        seen += len(at)
    assert result.rounds[-1]["personal_loss"] == pytest.approx(total / seen)
    assert result.rounds[-1]["personal_loss"] != pytest.approx(result.rounds[-1]["loss"])


# ---------------------------------------------------------------------------------------------------------------------
# Memory in a local step: pFedMe


@ENGINES
def test_a_local_step_with_memory(engine: str, tmp_path: Path) -> None:
    fed = blobs(RAGGED)
    pace = Fixed(epochs=2, lr=0.02, batch_size=0)
    local = Moreau(inner_steps=3, penalty=4.0, personal_lr=0.05, personal_decay=0.1)
    method = Method("p", pace=pace, local=local, selector=each(3))
    result = go(fed, method, rounds=1, cohort=1, engine=engine, out=tmp_path / "a")
    x, y = rows(fed, 3)
    w = theta = start_of(fed)
    for _ in range(2):
        for _ in range(3):
            g = gradient(theta, x, y)
            theta = {n: t - 0.05 * (g[n] + 0.1 * t + 4.0 * (t - w[n])) for n, t in theta.items()}
        w = {n: v - 0.02 * 4.0 * (v - theta[n]) for n, v in w.items()}
    assert gap(result.params, w) <= 1e-12
    assert gap(kept(tmp_path / "a")[3]["moreau"]["theta"], theta) <= 1e-12


# ---------------------------------------------------------------------------------------------------------------------
# Three mini-batches a step: Per-FedAvg


@dataclass(frozen=True)
class ThreeSums(LocalStep):
    """Notes the gradient on each of a step's three mini-batches; does not move."""

    name = "three"
    batches = 3
    seen: list[list[Params]]

    def step(self, carry: Carry, ctx: Context, differentiate: Any) -> tuple[Carry, Tensor]:
        found = [differentiate(carry, i) for i in range(3)]
        self.seen.append([grads for grads, _, _ in found])
        return carry, found[0][1]


def test_a_step_on_three_mini_batches() -> None:
    fed = blobs([[8, 8]])
    seen: list[list[Params]] = []
    go(fed, Method("m", local=ThreeSums(seen), pace=Fixed(epochs=1, batch_size=4)), rounds=1, cohort=1)
    assert len(seen) == 4  # 16 rows in mini-batches of 4: D, D' and D'' go through the rows in their own orders
    x, y = rows(fed, 0)
    whole = gradient(start_of(fed), x, y)
    for i in range(3):
        mean = tree.scale(tree.add(tree.add(seen[0][i], seen[1][i]), tree.add(seen[2][i], seen[3][i])), 0.25)
        assert gap(mean, whole) <= 1e-12
    assert all(gap(a, b) > 1e-3 for a, b, _ in seen) and all(gap(b, c) > 1e-3 for _, b, c in seen)


@ENGINES
def test_the_meta_step_by_hand(engine: str) -> None:
    fed = blobs(RAGGED)
    method = replace(fs.methods.perfedavg(0.3), pace=WHOLE, selector=each(0))
    result = go(fed, method, rounds=1, cohort=1, engine=engine)
    x, y = rows(fed, 0)
    w = start_of(fed)
    ahead = descend(w, x, y, 0.3)
    outer = gradient(ahead, x, y)
    bent = tree.sub(gradient(tree.add(w, outer, 1e-3), x, y), gradient(tree.add(w, outer, -1e-3), x, y))
    meta = tree.add(outer, bent, -0.3 / 2e-3)
    assert gap(result.params, tree.add(w, meta, -0.1)) <= 1e-10
    total, seen = 0.0, 0
    for k in range(4):  # each client's own model: one step of alpha on its rows
        own = descend(result.params, *rows(fed, k), 0.3)
        at = torch.from_numpy(fed.test_rows(k))
        z = logits_of(own, fed.dataset.x_test[at].double())
        total += float(nn.functional.cross_entropy(z, fed.dataset.y_test[at], reduction="sum"))
        seen += len(at)
    assert result.rounds[0]["personal_loss"] == pytest.approx(total / seen)


# ---------------------------------------------------------------------------------------------------------------------
# learn: Fed-GraB


@ENGINES
def test_what_a_client_learns_from_step_to_step(engine: str, tmp_path: Path) -> None:
    fed = blobs(RAGGED)
    method = replace(fs.methods.fedgrab(), pace=Fixed(epochs=2, batch_size=0), selector=each(0))
    result = go(fed, method, rounds=1, cohort=1, engine=engine, out=tmp_path / "a")
    x, y = rows(fed, 0)
    w, truth = start_of(fed), nn.functional.one_hot(y, 3).double()
    zero = torch.zeros(3, dtype=torch.float64)
    u, positive, negative, earlier, previous = (zero,) * 5
    for _ in range(2):
        error = torch.sigmoid(logits_of(w, x)) - truth
        weights = torch.where(truth > 0, F.fedgrab_map(u), F.fedgrab_map(-u))
        shaped = weights * error
        w = {"fc.weight": w["fc.weight"] - 0.1 * shaped.T @ x / len(y), "fc.bias": w["fc.bias"] - 0.1 * shaped.mean(0)}
        positive = positive + (shaped.abs() * truth).mean(0)
        negative = negative + (shaped.abs() * (1 - truth)).mean(0)
        e = negative - positive
        u = u + 10 * (e - previous) + 0.01 * e + 0.1 * (e - 2 * previous + earlier)
        earlier, previous = previous, e
    own = kept(tmp_path / "a")[0]["gradient_balancer"]
    expected = {"positive": positive, "negative": negative, "earlier": earlier, "previous": previous, "u": u}
    assert gap(own, expected) <= 1e-9
    assert gap(result.params, w) <= 1e-12


# ---------------------------------------------------------------------------------------------------------------------
# ask


def mean_loss(fed: Any, params: Params, k: int) -> float:
    x, y = rows(fed, k)
    return float(nn.functional.cross_entropy(logits_of(params, x), y))


def test_ask_of_candidates_before_selection(asked: Asked) -> None:
    fed = blobs([*RAGGED, [3, 3, 0], [0, 0, 7]])
    method = fs.methods.powerofchoice(4)
    result = go(fed, method, rounds=1, cohort=2)
    ((_, query, answers),) = asked
    assert query.what == "loss" and len(answers.ids) == 4
    losses = {int(k): mean_loss(fed, start_of(fed), int(k)) for k in answers.ids}
    assert answers.values.tolist() == pytest.approx(list(losses.values()))
    assert result.rounds[0]["clients"] == sorted(sorted(losses, key=lambda k: -losses[k])[:2])
    plain = go(fed, fs.methods.fedavg(), rounds=1, cohort=2).rounds[0]
    model = tree.size_bytes(start_of(fed))
    assert result.rounds[0]["download_bytes"] == plain["download_bytes"] + 4 * model  # every candidate gets the model
    assert result.rounds[0]["upload_bytes"] == plain["upload_bytes"] + 4 * 8  # and sends a loss


def test_ask_of_all_in_some_rounds(asked: Asked) -> None:
    fed = blobs(RAGGED)
    method = changed(fs.methods.climb(dual_lr=8.0, eps=0.0), "dual", primal_rounds=2)
    result = go(fed, method, rounds=4, cohort=2)
    assert [r for r, _, _ in asked] == [1, 3]
    assert all(q.ids == "all" and len(a.ids) == 4 for _, q, a in asked)
    losses = asked[0][2].values
    assert losses.tolist() == pytest.approx([mean_loss(fed, start_of(fed), k) for k in range(4)])
    duals = (8.0 / 4 * (losses - losses.mean())).clamp(0, 100)
    ids = result.rounds[2]["clients"]
    assert result.rounds[2]["weights"] == pytest.approx(((1 + duals - duals.mean())[ids] / 2).tolist())
    assert result.rounds[1]["weights"] == [0.5, 0.5]
    up = [row["upload_bytes"] for row in result.rounds]
    assert up[0] - up[1] == up[2] - up[3] == 4 * 8


def test_ask_of_the_cohort(asked: Asked) -> None:
    fed = skewed()
    result = go(fed, tiny.tiny("creff"))
    assert [a.ids.tolist() for _, _, a in asked] == [row["clients"] for row in result.rounds]
    values = asked[0][2].values
    assert values["gradients"].shape == (3, 10, 10, 64)
    assert torch.equal(values["present"], (fed.counts[asked[0][2].ids] > 0).double())


@dataclass(frozen=True)
class Anchor(Component):
    """Keeps, on the client, its mean logits under the model of round 1; later the loss pulls towards them."""

    name = "anchor"
    mu: float = 0.5

    def init_client(self, params: Params, buffers: Params, task: Any) -> Any:
        zero = params[task.weight].new_zeros(())
        return {"mean": zero.expand(task.classes).clone(), "seen": zero}

    def ask(self, state: Any, round: int, key: Tensor) -> Query | None:
        return Query("all", self.mean_logits, keep=True) if round == 1 else None

    def mean_logits(self, view: View) -> Any:
        return {"mean": view.out.logits.mean(0), "seen": view.out.logits.new_ones(())}

    def loss(self, view: View) -> Tensor:
        own = view.memory[self.name]
        return self.mu * own["seen"] * view.batch.mean((view.out.logits - own["mean"]).square().sum(1))


def test_an_answer_kept_on_the_client(tmp_path: Path) -> None:
    fed = blobs(RAGGED)
    method = replace(fs.methods.fedavg(), parts=(Anchor(),), pace=WHOLE)
    a, b = (go(fed, method, rounds=3, engine=e, out=tmp_path / e) for e in ("sequential", "batched"))
    assert gap(a.params, b.params) <= 1e-12
    assert gap(a.params, go(fed, replace(fs.methods.fedavg(), pace=WHOLE), rounds=3).params) > 1e-3
    memory, first = kept(tmp_path / "sequential"), start_of(fed)
    for k in range(4):  # also of clients that never took part
        assert torch.allclose(memory[k]["anchor"]["mean"], logits_of(first, rows(fed, k)[0]).mean(0))
    plain = go(fed, fs.methods.fedavg(), rounds=3)
    assert [r["upload_bytes"] for r in a.rounds] == [r["upload_bytes"] for r in plain.rounds]  # nothing came back

    def stop(row: dict[str, Any]) -> None:
        if row["round"] == 2:
            raise KeyboardInterrupt

    go(fed, method, rounds=3, out=tmp_path / "stopped", on_round=stop)
    again = go(fed, method, rounds=3, out=tmp_path / "stopped", resume=True)
    assert same(again.params, a.params) and rows_of(again) == rows_of(a)


def test_a_kept_answer_without_a_place_is_an_error() -> None:
    @dataclass(frozen=True)
    class Forgetful(Component):
        name = "forgetful"

        def ask(self, state: Any, round: int, key: Tensor) -> Query | None:
            return Query("all", lambda view: {"n": view.out.logits.sum()}, keep=True)

    with pytest.raises(fs.ConfigError, match="init_client"):
        go(blobs(RAGGED), Method("f", parts=(Forgetful(),)))


# ---------------------------------------------------------------------------------------------------------------------
# Data at the server: FedRL


@ENGINES
def test_the_server_trains_on_its_own_rows(engine: str, asked: Asked) -> None:
    fed = skewed()
    method = replace(fs.methods.fedrl(), pace=Fixed(epochs=2, lr=0.3, batch_size=0))
    result = go(fed, method, engine=engine)
    question, answers = asked[0][1:]
    assert question.rows == "auxiliary" and question.what == "delta"
    data, at = fed.dataset, torch.from_numpy(fed.auxiliary_rows)
    x, y = ((data.x[at].double() / 255 - 0.3) / 0.4).flatten(1), data.y[at]
    w = start_of(fed)
    for c in range(10):
        moved = tree.sub(descend(w, x[y == c], y[y == c], 0.3, steps=2), w)
        assert gap(tree.row(answers.values, c), moved) <= 1e-12
    ratios = F.ratio_of_changes(asked[1][2].values["fc.weight"], 0.8)
    assert torch.allclose(result.state.parts["ratio_loss"]["weights"], 1 + 0.1 * ratios)
    plain = go(fed, fs.methods.fedavg()).rounds[0]
    assert result.rounds[0]["upload_bytes"] == plain["upload_bytes"]  # it costs no traffic
    assert result.rounds[0]["download_bytes"] == plain["download_bytes"] + 3 * 10 * 8  # but C weights a client


def test_without_rows_at_the_server() -> None:
    with pytest.raises(fs.ConfigError, match="auxiliary must be at least 1"):
        go(blobs(RAGGED), fs.methods.fedrl())


# ---------------------------------------------------------------------------------------------------------------------
# serve: CReFF


def test_the_evaluated_model_is_not_the_broadcast_one() -> None:
    fed = skewed()
    result, plain = (go(fed, tiny.tiny(name)) for name in ("creff", "fedavg"))
    assert same(result.state.params, plain.params)
    assert gap(result.params, result.state.params) > 1e-3
    head = result.state.parts["federated_features"]["head"]
    assert same(result.params, head)
    data = fed.dataset
    z = logits_of(head, ((data.x_test.double() / 255 - 0.3) / 0.4).flatten(1))
    assert result.rounds[-1]["accuracy"] == pytest.approx(float((z.argmax(1) == data.y_test).double().mean()))
    assert result.rounds[-1]["loss"] == pytest.approx(float(nn.functional.cross_entropy(z, data.y_test)))


# ---------------------------------------------------------------------------------------------------------------------
# A weighting inside a weighting


@ENGINES
def test_fednova_over_the_aggregation_balancer(engine: str) -> None:
    fed = blobs(RAGGED)
    method, seen = spied(replace(fs.methods.fednova(AggregationBalancer()), pace=Fixed(batch_size=4)))
    result = go(fed, method, rounds=1, engine=engine)
    (cohort,) = seen
    before = torch.cat([cohort.before[n].flatten() for n in ("fc.weight", "fc.bias")])
    after = before + torch.cat([cohort.trained[n].flatten(1) for n in ("fc.weight", "fc.bias")], 1)
    v = nn.functional.cosine_similarity(after, before.expand_as(after))
    p = torch.softmax(v, 0)  # three clients: nothing is clipped at beta = 3
    tau = cohort.reports.steps.double()
    assert len(set(tau.tolist())) > 1
    assert torch.allclose(cohort.weights.average, p) and torch.allclose(cohort.weights.update, (p @ tau) * p / tau)
    for n, delta in cohort.trained.items():
        moved = torch.tensordot((p @ tau) * p / tau, delta, 1)
        assert torch.allclose(result.params[n], cohort.before[n] + moved)


# ---------------------------------------------------------------------------------------------------------------------
# Chains: Astraea


@ENGINES
@pytest.mark.parametrize("passes", [1, 2])
def test_a_model_is_passed_on(engine: str, passes: int) -> None:
    fed = blobs(RAGGED[:3])
    method = replace(fs.methods.astraea(alpha=0.0, gamma=2), pace=WHOLE)
    method = changed(method, "mediators", mediator_epochs=passes)
    result = go(fed, method, rounds=1, cohort=3, engine=engine)
    chains = result.rounds[0]["clients"]
    assert sorted(map(len, chains)) == [passes, 2 * passes]
    w, ends = start_of(fed), []
    for chain in chains:
        model = w
        for k in chain:
            model = descend(model, *rows(fed, k), 0.1)
        ends.append((sum(int(fed.sizes[k]) for k in chain), model))
    total = sum(n for n, _ in ends)
    expected = {name: sum(n / total * model[name] for n, model in ends) for name in w}
    assert gap(result.params, expected) <= 1e-12
    assert result.rounds[0]["samples"] == total and result.rounds[0]["steps"] == 3 * passes


def test_chains_refuse_what_needs_single_clients() -> None:
    chained = fs.methods.astraea().selector
    for method in (fs.methods.scaffold(), fs.methods.moon(), fs.methods.fedgr(), fs.methods.fedgc()):
        with pytest.raises(fs.ConfigError, match="must not pass a model from client to client beside"):
            go(skewed(), replace(method, selector=chained))


# ---------------------------------------------------------------------------------------------------------------------
# Progress in epochs, steps and rounds


@dataclass(frozen=True)
class Clock(Component):
    """A loss that adds nothing; notes the progress (sequential engine)."""

    name = "clock"
    seen: list[tuple[int, ...]]

    def loss(self, view: View) -> Tensor:
        self.seen.append(tuple(int(v) for v in view.progress))
        return view.out.logits.sum() * 0


def test_progress_counts_from_one() -> None:
    seen: list[tuple[int, ...]] = []
    method = Method("clock", parts=(Clock(seen),), pace=Fixed(epochs=3, batch_size=4), selector=each(1, 2))
    go(blobs([[1, 1], [3, 4], [2, 1]]), method)
    runs = [(e, 3, s, 6, r, 2) for r in (1, 2) for s, e in enumerate([1, 1, 2, 2, 3, 3], 1)]  # client 1: 7 rows
    short = [(e, 3, e, 3, r, 2) for r in (1, 2) for e in (1, 2, 3)]  # client 2: 3 rows
    assert seen == runs[:6] + short[:3] + runs[6:] + short[3:]


@ENGINES
@pytest.mark.parametrize("unit", ["epoch", "step", "round"])
def test_the_local_balancer_follows_its_unit(unit: Any, engine: str) -> None:
    """Two rounds of two epochs of full batches, by autograd on the printed formula."""
    fed = blobs(RAGGED)
    parts = (LocalBalancer(strength=20.0, schedule_unit=unit),)
    method = Method("lb", parts=parts, pace=Fixed(epochs=2, batch_size=5), selector=each(0))
    result = go(fed, method, cohort=1, engine=engine)
    seen: list[tuple[int, ...]] = []
    clock = replace(method, parts=(*parts, Clock(seen)))
    if engine == "sequential":
        assert same(go(fed, clock, cohort=1).params, result.params)
        index = {"epoch": (0, 1), "step": (2, 3), "round": (4, 5)}[unit]
        ratios = sorted({row[index[0]] / row[index[1]] for row in seen})
        assert ratios[-1] == 1.0 and len(ratios) == {"epoch": 2, "step": 6, "round": 2}[unit]
    others = [replace(method, parts=(LocalBalancer(20.0, u),)) for u in ("epoch", "step", "round") if u != unit]
    assert all(gap(go(fed, other, cohort=1, engine=engine).params, result.params) > 1e-6 for other in others)


def test_the_balancer_of_a_single_step_by_hand() -> None:
    fed = blobs(RAGGED)
    method = Method("lb", parts=(LocalBalancer(20.0, "round"),), pace=WHOLE, selector=each(0))
    result = go(fed, method, rounds=1, cohort=1)
    x, y = rows(fed, 0)
    log = torch.log(torch.tensor([9.0, 3.0, 1.0], dtype=torch.float64))
    gaps = (log[0] - log) / (log[0] - log[2])
    w = {n: p.requires_grad_() for n, p in start_of(fed).items()}
    z = logits_of(w, x) - 20.0 * gaps / x.norm(dim=1, keepdim=True)
    nn.functional.cross_entropy(z, y).backward()
    expected = {n: (p - 0.1 * p.grad).detach() for n, p in w.items() if p.grad is not None}
    assert gap(result.params, expected) <= 1e-7


# ---------------------------------------------------------------------------------------------------------------------
# a_norm in the report


def reach(steps: int, momentum: float = 0.0, shrink: float = 0.0) -> float:
    """||a||_1 by its definition: a unit gradient at every step, without any other force."""
    moved, velocity = 0.0, 0.0
    for _ in range(steps):
        velocity = momentum * velocity + 1 - shrink * moved
        moved += velocity
    return moved


@ENGINES
@pytest.mark.parametrize(("momentum", "mu"), [(0.0, 0.0), (0.9, 0.0), (0.0, 2.0)])
def test_the_report_says_how_far_a_rule_reaches(engine: str, momentum: float, mu: float) -> None:
    parts = (Proximal(mu),) if mu else ()
    method = Method("a", parts=parts, local=SGD(momentum=momentum), pace=Fixed(epochs=2, batch_size=4))
    method, seen = spied(method)
    go(blobs(RAGGED), method, rounds=1, engine=engine)
    report = seen[0].reports
    assert len(set(report.steps.tolist())) > 1
    expected = [reach(int(s), momentum, 0.1 * mu) for s in report.steps]
    assert report.a_norm.tolist() == pytest.approx(expected)


# ---------------------------------------------------------------------------------------------------------------------
# A share of the broadcast for each client, memories written back, and a user's own part


@dataclass(frozen=True)
class Turns(Component):
    """The server counts each client's turns and sends it the count; the client returns it doubled; the server writes
    back the count as memory."""

    name = "turns"

    def init_client(self, params: Params, buffers: Params, task: Any) -> Any:
        return {"told": torch.zeros(()), "written": torch.zeros(2)}

    def init_server(self, params: Params, fed: Any, task: Any) -> Any:
        return {"turns": torch.zeros(fed.clients), "echo": torch.zeros(fed.clients)}

    def broadcast(self, state: Any, ids: Tensor | None) -> tuple[Any, Any]:
        common = {"total": state["turns"].sum()}
        return common, None if ids is None else {"mine": 10.0 * ids + state["turns"][ids]}

    def finish(self, local: LocalRun) -> tuple[Any, Any]:
        told = local.ctx.shared[self.name]["mine"] + 100.0 * local.ctx.shared[self.name]["total"]
        return {"twice": 2 * told}, {**local.memory[self.name], "told": told}

    def absorb(self, state: Any, cohort: Cohort, key: Tensor) -> tuple[Any, Any]:
        echo = state["echo"].index_copy(0, cohort.ids, cohort.uploads[self.name]["twice"])
        turns = state["turns"].index_add(0, cohort.ids, torch.ones(len(cohort.ids)))
        told = cohort.uploads[self.name]["twice"] / 2
        written = torch.stack([turns[cohort.ids], cohort.ids.float()], 1)
        return {"turns": turns, "echo": echo}, {"told": told, "written": written}


@ENGINES
def test_each_client_gets_its_own_share(engine: str, tmp_path: Path) -> None:
    fed = blobs(RAGGED)
    method = replace(fs.methods.fedavg(), parts=(Turns(),), selector=each(3, 1))  # not in the order of the ids
    result = go(fed, method, rounds=3, engine=engine, out=tmp_path / "a")
    state = result.state.parts["turns"]
    assert state["turns"].tolist() == [0, 3, 0, 3]
    # round 3: a client was told 10 id + its turns before (2) + 100 * all turns before (4)
    assert state["echo"].tolist() == [0, 2 * (10 + 2 + 400), 0, 2 * (30 + 2 + 400)]
    memory = kept(tmp_path / "a")
    assert {k: m["turns"]["written"].tolist() for k, m in memory.items()} == {1: [3, 1], 3: [3, 3]}
    assert {k: float(m["turns"]["told"]) for k, m in memory.items()} == {1: 412, 3: 432}
    plain = go(fed, replace(fs.methods.fedavg(), selector=each(3, 1)), rounds=3)
    assert same(result.params, plain.params)
    for row, other in zip(result.rounds, plain.rounds, strict=True):
        assert row["upload_bytes"] - other["upload_bytes"] == 2 * 4
        assert row["download_bytes"] - other["download_bytes"] == 2 * 4 + 2 * 4


@ENGINES
def test_a_part_of_a_users_own(engine: str) -> None:
    @dataclass(frozen=True)
    class Shrink(fs.Component):
        name = "shrink"
        mu: float = 0.1

        def loss(self, view: View) -> Tensor:
            return self.mu * sum(p.square().sum() for p in view.params.values()) / 2

    method = fs.Method("mine", parts=(Shrink(),))
    decay = replace(fs.methods.fedavg(), local=SGD(weight_decay=0.1))
    assert gap(*(go(skewed(), m, engine=engine).params for m in (method, decay))) <= 1e-12


def test_a_users_own_weighting() -> None:
    @dataclass(frozen=True)
    class Rarest(Weighting):
        name = "rarest"

        def weigh(self, state: Any, cohort: Cohort) -> Weights:
            p = 1.0 / cohort.reports.samples.double()
            return Weights(p / p.sum(), p / p.sum())

    fed = blobs(RAGGED)
    result = go(fed, fs.Method("mine", weighting=Rarest()), cohort=4)
    p = 1 / fed.sizes.double()
    assert result.rounds[0]["weights"] == pytest.approx((p / p.sum()).tolist())
    nova = go(fed, fs.Method("mine", weighting=FedNova(Rarest()), pace=Fixed(batch_size=4)), cohort=4)
    steps = 2 * torch.ceil(fed.sizes / 4).double()
    expected = (p / p.sum()) / steps * (p / p.sum() * steps).sum()
    assert nova.rounds[0]["weights"] == pytest.approx(expected.tolist())
