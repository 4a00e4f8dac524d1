"""Differential privacy by clipping and noise: what is computed, what is said of it, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fedskew as fs
from fedskew import noise
from fedskew.data.federation import Federation
from fedskew.engines.fitting import fits_by_shares
from fedskew.method import Method
from fedskew.methods import METHODS
from fedskew.privacy.accounting import Mechanism
from fedskew.studies.spec import spec_from, tuning_of
from support.command import output_of, refused
from support.federations import RAGGED, blobs, skewed
from support.methods import tiny
from support.nets import norm_net
from support.paths import ROOT
from support.runs import gap, go, rows_of, same

CLIENT: dict[str, Any] = {"dp": "client", "dp_clip": 1.0, "dp_noise": 1.0}
FITTED = CLIENT | {"fit_logits": "last"}
EXAMPLE: dict[str, Any] = {"dp": "example", "dp_clip": 1.0, "dp_noise": 1.0}


def of_clients(name: str = "fedavg", **slots: Any) -> Method:
    return replace(tiny(name), **{"weighting": fs.weightings.Uniform(), "selector": fs.selectors.Poisson(), **slots})


def of_rows(name: str = "fedavg", **slots: Any) -> Method:
    changed = {"weighting": fs.weightings.Uniform(), "sampler": fs.samplers.PoissonBatches(), **slots}
    return replace(tiny(name), **changed)


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clipping without noise."""
    monkeypatch.setattr(noise.Noise, "multiplier", 0.0)
    monkeypatch.setattr(noise.Noise, "_epsilon", lambda *_: 1.0)


# Clients


@pytest.mark.usefixtures("silent")
def test_a_large_clip_without_noise_is_a_plain_run() -> None:
    method = of_clients(selector=fs.selectors.Random())
    plain, private = (go(skewed(), method, **more) for more in ({}, CLIENT | {"dp_clip": 1e9}))
    assert gap(plain.params, private.params) < 1e-12
    assert [row["clients"] for row in plain.rounds] == [row["clients"] for row in private.rounds]


@pytest.mark.usefixtures("silent")
def test_updates_are_clipped_and_divided_by_the_clients_on_average(monkeypatch: pytest.MonkeyPatch) -> None:
    """The divisor is k, whoever comes; the norm is over all parameters together."""
    seen, clipped = list[Any](), noise.Noise.clipped
    monkeypatch.setattr(noise.Noise, "clipped", lambda self, r: seen.append((r, clipped(self, r))) or seen[-1][1])
    result = go(skewed(), of_clients(), rounds=1, cohort=3, seed=4, **CLIENT | {"dp_clip": 0.3})
    raw, held = (one.cohort.deltas for one in seen[0])
    came = len(next(iter(raw.values())))
    norms = torch.stack([raw[n].flatten(1).square().sum(1) for n in raw]).sum(0).sqrt()
    assert came not in (0, 3) and (norms > 0.3).any()
    for n in raw:
        factor = (0.3 / norms).clamp(max=1).view(-1, *[1] * (raw[n].dim() - 1))
        torch.testing.assert_close(held[n], raw[n] * factor)
    before = seen[0][0].cohort.before
    mean = {n: before[n] + held[n].sum(0) / 3 for n in held}
    assert gap(mean, result.params) < 1e-12
    assert result.rounds[0]["weights"] == pytest.approx([1 / 3] * came)


def test_the_noise_has_its_size_and_is_of_the_round() -> None:
    quiet = go(skewed(), of_clients(), rounds=1, model="mlp", **CLIENT)
    loud = go(skewed(), of_clients(), rounds=1, model="mlp", **CLIENT | {"dp_noise": 101.0})
    drawn = torch.cat([(loud.params[n] - quiet.params[n]).flatten() for n in quiet.params]) / 100 * 3  # z S / k
    assert float(drawn.std()) == pytest.approx(1, rel=0.02) and abs(float(drawn.mean())) < 0.02
    assert len(drawn.unique()) == len(drawn)


def empty_seed(fed: Federation, method: Method, rounds: int) -> int:
    """A seed of which the last round is without clients."""
    state = method.selector.init_server({}, fed, None)  # type: ignore[arg-type]
    draw = lambda seed: method.selector.select(state, 1, fs.rng.key(seed, rounds, "select")).ids
    return next(seed for seed in range(99) if len(draw(seed)) == 0)


@pytest.mark.parametrize("more", [{}, CLIENT, CLIENT | {"secure": "none", "engine": "batched"}])
def test_a_round_may_be_without_clients(more: dict[str, Any]) -> None:
    """Its update is 0, and noise."""
    fed, method = skewed(), of_clients()
    seed = empty_seed(fed, method, 2)
    one, two = (go(fed, method, cohort=1, seed=seed, rounds=rounds, served="every", **more) for rounds in (1, 2))
    last = two.rounds[-1]
    assert last["clients"] == last["weights"] == [] and last["samples"] == 0 and last["contacts"] == 0
    assert same(one.params, two.params) is not bool(more)
    if more:
        assert two.rounds[-1]["epsilon"] > one.rounds[-1]["epsilon"]


def test_poisson_draws_each_client_by_itself() -> None:
    fed = blobs([*RAGGED, [0] * len(RAGGED[0])])
    method = of_clients()
    state = method.selector.init_server({}, fed, None)  # type: ignore[arg-type]
    drawn = torch.zeros(400, fed.clients)
    for i in range(400):
        drawn[i, method.selector.select(state, 2, fs.rng.key(i)).ids] = 1
    rate = 2 / len(RAGGED)
    assert drawn[:, -1].sum() == 0  # without rows
    torch.testing.assert_close(drawn[:, :-1].mean(0), torch.full((len(RAGGED),), rate), atol=0.09, rtol=0)
    assert drawn.sum(1).unique().numel() > 2 and abs(float(drawn[:, :2].T.corrcoef()[0, 1])) < 0.15


@pytest.mark.parametrize("name", ["fedga", "fedadam", "fedrod", "moon"])
def test_methods_whose_server_reads_nothing_run(name: str) -> None:
    result = go(skewed(), of_clients(name), **CLIENT)
    assert result.summary["privacy"]["unit"] == "client" and all(p.isfinite().all() for p in result.params.values())


@pytest.mark.parametrize("name", ["fedavg", "fedga"])
def test_the_server_may_see_the_sum_alone(name: str) -> None:
    """Clients clip before they mask; the server adds the noise."""
    options = CLIENT | {"cohort": 4, "dp_clip": 0.2}
    method = of_clients(name, selector=fs.selectors.Random())
    plain, sums = (go(skewed(), method, secure=secure, **options) for secure in ("none", "sums"))
    assert gap(plain.params, sums.params) < 1e-6
    assert [row["epsilon"] for row in plain.rounds] == [row["epsilon"] for row in sums.rounds]


# The fit, of which clients tell shares of the classes


ALIKE = [[6, 2, 1], [1, 3, 5], [0, 4, 5], [9, 0, 0]]
"""as many rows at each client, so that their mean shares are those of all rows"""


def test_without_noise_the_fit_is_that_of_the_histogram(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise.Noise, "multiplier", 1e-9)
    monkeypatch.setattr(noise.Noise, "_epsilon", lambda *_: 1.0)
    fed = blobs(ALIKE)
    result = go(fed, of_clients(), cohort=4, **FITTED)
    exact = fs.functional.prior_biases(fed.counts.sum(0)).tolist()
    assert result.summary["final_fit"]["balanced"]["b"] == pytest.approx(exact, abs=1e-6)
    assert result.summary["final_fit"]["prior"]["b"] == [0, 0, 0]
    assert result.summary["final_fitted_accuracy"] == result.summary["final_accuracy"]
    y = fed.dataset.y_test
    right = result.predict(fed.dataset.x_test, encoded=True, fitted="balanced") == y
    recalls = [float(right[y == c].double().mean()) for c in range(3)]
    assert result.summary["final_fitted_per_class_recall"] == pytest.approx(recalls)


def test_the_noise_of_the_shares_has_its_size() -> None:
    """Ten sums over all clients, each with noise of 2, in units of the noise of all of them."""
    fed, told = blobs(ALIKE), list[Tensor]()
    for seed in range(300):
        asked = fs.settings.Settings(rounds=1, seed=seed, dp="client", dp_clip=1.0, dp_noise=2.0)
        told.append(noise.Noise(of_clients(), fed, asked, 4, lambda _: []).shares)
    drawn = torch.stack(told) - 10 * (fed.counts / fed.sizes.unsqueeze(1)).sum(0) / (2 * 10**0.5)
    assert float(drawn.std()) == pytest.approx(1, rel=0.06) and abs(float(drawn.mean())) < 0.1
    assert len(drawn.unique()) == drawn.numel()


def test_shares_are_of_samples() -> None:
    fed = blobs([*ALIKE, *ALIKE])
    asked = fs.settings.Settings(rounds=1, dp="client", dp_clip=1.0, dp_noise=1.0)
    one, all_ = (noise.Noise(of_clients(), fed, asked, k, lambda _: []).shares.sum() for k in (2, 8))
    assert 0.05 < float(one / all_) < 0.5  # a quarter of them on average


def test_the_fit_costs_as_much_as_ten_rounds() -> None:
    result = go(skewed(), of_clients(), rounds=3, **FITTED)
    spent = [Mechanism("poisson", 3, 6, 1.0).epsilon(10 + t, 1e-5) for t in (1, 2, 3)]
    assert [row["epsilon"] for row in result.rounds] == spent
    told = result.summary["privacy"]
    assert told["epsilon"] == spent[-1] and told["released"].startswith(
        "models of all rounds, and shares of the classes"
    )
    plain = go(skewed(), of_clients(), rounds=3, **CLIENT)
    assert same(plain.params, result.params)  # under the noise that is given


def test_all_models_share_what_was_told() -> None:
    every = {"fit_logits": "every", "average_models": "last"}
    one, all_ = (go(skewed(), of_clients(), **FITTED | more) for more in ({}, every))
    assert one.summary["final_fit"] == all_.summary["final_fit"] and one.summary["privacy"] == all_.summary["privacy"]
    assert all("fitted_balanced_accuracy" in row for row in all_.rounds)
    assert "final_averaged_fitted_accuracy" in all_.summary


def test_a_share_below_its_noise_counts_as_the_noise() -> None:
    fit = fits_by_shares(torch.tensor([8.0, 0.5, -3.0]), 10, 2)["balanced"]
    assert fit.b == pytest.approx(fs.functional.prior_biases(torch.tensor([8, 1, 1])).tolist())
    assert fit.upload_bytes == 10 * 2 * 3 * 8 and fit.exchanges == 10


# Rows


@pytest.mark.usefixtures("silent")
def test_the_gradient_of_each_row_is_clipped() -> None:
    """One client, by plain autograd, a row at a time."""
    fed, clip = blobs([[6, 5, 7]]), 0.4
    method = of_rows(pace=fs.paces.Fixed(epochs=2, lr=0.5, batch_size=6))
    result = go(fed, method, rounds=1, cohort=1, **EXAMPLE | {"dp_clip": clip})
    begun = go(fed, replace(method, pace=fs.paces.Fixed(epochs=1, lr=1e-30, batch_size=0)), rounds=1, cohort=1)
    w = {n: p.clone() for n, p in begun.params.items()}
    drawn = lots(fed, method, epochs=2, size=6)
    for rows in drawn:
        total = {n: torch.zeros_like(p) for n, p in w.items()}
        for i in rows:
            leaves = {n: p.clone().requires_grad_() for n, p in w.items()}
            x = fed.dataset.x[i].double().flatten()
            bias, weight = sorted(leaves.values(), key=torch.Tensor.dim)
            logits = weight @ x + bias
            torch.nn.functional.cross_entropy(logits[None], fed.dataset.y[i][None]).backward()
            norm = torch.stack([p.grad.square().sum() for p in leaves.values()]).sum().sqrt()  # type: ignore[union-attr]
            for n, p in leaves.items():
                total[n] += p.grad * min(1, clip / float(norm))
        w = {n: p - 0.5 * total[n] / 6 for n, p in w.items()}
    assert gap(w, result.params) < 1e-9 and len({len(rows) for rows in drawn}) > 1


def lots(fed: Federation, method: Method, epochs: int, size: int) -> list[list[int]]:
    """The rows of each mini-batch of client 0 in round 1."""
    key = fs.rng.seed_of(0, 1, 0, "plan")
    counts = fed.counts[0].numpy()
    rows = fed.rows(0)
    drawn = method.sampler.plan(
        fed.dataset.y[rows].numpy(), counts, counts, (size, epochs, 0), {}, torch.tensor(fs.rng.folded(key, 0))
    )
    return [[int(rows[i]) for i in batch if i >= 0] for batch in drawn.reshape(-1, drawn.shape[2])]


def test_each_row_is_drawn_by_itself() -> None:
    """With probability B / n in each mini-batch, of which an epoch has n / B; some are without rows."""
    labels = torch.zeros(30, dtype=torch.int64).numpy()
    counts, sampler = torch.tensor([30]).numpy(), fs.samplers.PoissonBatches()
    plan = sampler.plan(labels, counts, None, (2, 40, 0), {}, fs.rng.key(0))
    assert plan.shape[:2] == (40, 15) and ((plan >= 0).sum(2) == 0).any()
    seen = torch.zeros(600, 30)
    for i, batch in enumerate(plan.reshape(600, -1)):
        real = batch[batch >= 0]
        assert len(set(real.tolist())) == len(real) and (batch[len(real) :] == -1).all()
        seen[i, real] = 1
    torch.testing.assert_close(seen.mean(0), torch.full((30,), 2 / 30), atol=0.045, rtol=0)
    assert float(seen.sum(1).var()) == pytest.approx(2 * (1 - 2 / 30), rel=0.15)
    whole = sampler.plan(labels, counts, None, (64, 1, 0), {}, fs.rng.key(0))
    assert sorted(whole[0, 0]) == list(range(30))


@pytest.mark.parametrize("engine", ["threaded", "batched", "debug"])
@pytest.mark.parametrize("model", ["mlp", "logistic"])
def test_all_engines_give_the_same(engine: str, model: str) -> None:
    """Stacks of clients up to rounding, the others to the bit; some mini-batches are without rows."""
    method = of_rows(pace=fs.paces.Fixed(epochs=1, lr=0.1, batch_size=2))
    one, other = (go(skewed(), method, engine=e, model=model, **EXAMPLE) for e in ("sequential", engine))
    assert gap(one.params, other.params) < (1e-9 if engine == "batched" else 1e-300)
    assert [row["epsilon"] for row in one.rounds] == [row["epsilon"] for row in other.rounds]


def test_a_network_of_convolutions_with_dropout() -> None:
    net = torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, 5)), torch.nn.Conv1d(1, 4, 3), torch.nn.GroupNorm(2, 4), torch.nn.ReLU(),
        torch.nn.Flatten(), torch.nn.Dropout(0.3), torch.nn.Linear(12, 3),
    )  # fmt: skip
    fed = blobs([[9, 4, 0], [3, 3, 8], [0, 9, 2]])
    one, two = (go(fed, of_rows(), model=net, head="6", engine=e, **EXAMPLE) for e in ("sequential", "batched"))
    assert gap(one.params, two.params) < 1e-9


@pytest.mark.thorough  # tracing takes ten seconds
def test_traced_steps_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedskew.engines import stepper

    options = EXAMPLE | {"engine": "threaded", "rounds": 1, "cohort": 1}
    plain = go(skewed(), of_rows(), **options)
    made = stepper.MAKERS[stepper.StepMode.TRACED][1]
    monkeypatch.setitem(stepper.MAKERS, stepper.StepMode.TRACED, (1, made))
    assert same(plain.params, go(skewed(), of_rows(), **options).params)


def test_adamw_takes_the_private_gradient() -> None:
    go(skewed(), of_rows(local=fs.steps.AdamW()), **EXAMPLE)


def test_a_gradient_that_is_not_finite_counts_as_0() -> None:
    part = noise.PrivateGradient((Sharp(),), clip=1.0, noise=0.0, batch_size=2)
    x = torch.tensor([[1.0], [2.0]])
    out = lambda params, buffers, x, mask, train, key: (fs.types.Output(x * params["w"], x), buffers)
    ctx = fs.types.Context(None, {}, {}, {}, {}, torch.tensor([2]), torch.tensor([2]), torch.ones(()))  # type: ignore[arg-type]
    batch = fs.types.Batch(x, torch.zeros(2, dtype=torch.int64), torch.ones(2))
    params = {"w": torch.ones(1)}
    view = fs.types.View(out, params, {}, None, batch, ctx, {}, fs.rng.key(0), None)  # type: ignore[arg-type]
    assert float(part.correct(params, view)["w"]) == -0.5  # of the first row, clipped, over two


@dataclass(frozen=True)
class Sharp(fs.Component):
    """Infinite slope at the second row."""

    name = "sharp"

    def loss(self, view: fs.types.View) -> Tensor:
        return 9 * (2 - view.out.logits.sum()).sqrt()


# What is said


def test_epsilon_is_in_each_round_and_in_the_summary(tmp_path: Path) -> None:
    result = go(skewed(), of_clients(), rounds=3, out=tmp_path / "run", **CLIENT)
    shares = [Mechanism("poisson", 3, 6, 1.0).epsilon(t, 1e-5) for t in (1, 2, 3)]
    assert [row["epsilon"] for row in result.rounds] == shares
    told = json.loads((tmp_path / "run/summary.json").read_text())["privacy"]
    assert told == {
        "unit": "client", "epsilon": shares[-1], "delta": 1e-5, "clip": 1.0, "noise": 1.0,
        "sampling": "poisson, 3 of 6 clients in a round", "neighbour": "one client added or removed",
        "released": "models of all rounds",
    }  # fmt: skip
    fixed = go(skewed(), of_clients(selector=fs.selectors.Random()), **CLIENT).summary["privacy"]
    assert fixed["epsilon"] == Mechanism("fixed", 3, 6, 1.0).epsilon(2, 1e-5)
    assert fixed["sampling"].startswith("fixed, 3 of 6") and fixed["neighbour"] == "one client replaced"


def test_epsilon_of_rows_is_that_of_the_worst_client() -> None:
    fed = skewed()
    result = go(fed, of_rows(), **EXAMPLE)
    sizes, done = fed.sizes.tolist(), [0] * fed.clients
    for row in result.rounds:
        for k in row["clients"]:
            done[k] += 2 * -(-sizes[k] // 16)
        each = [Mechanism("poisson", min(16, n), n, 1.0).epsilon(t, 1e-5) for n, t in zip(sizes, done, strict=True)]
        assert row["epsilon"] == max(each)
    assert result.rounds[-1]["steps"] <= sum(done)


@pytest.mark.parametrize("asked", [CLIENT, EXAMPLE])
def test_noise_is_found_for_an_epsilon(asked: dict[str, Any]) -> None:
    method = of_clients() if asked is CLIENT else of_rows()
    result = go(skewed(), method, **asked | {"dp_noise": None, "dp_epsilon": 2.0})
    assert 1.99 <= result.rounds[-1]["epsilon"] <= 2.0


@pytest.mark.parametrize(
    ("method", "asked"),
    [
        (of_clients(), FITTED), (of_rows(), EXAMPLE), (tiny("fedir"), {"secure": "sums", "cohort": 4}),
        (tiny("seolkim"), {"histogram_epsilon": 0.3}), (tiny("fedir"), {"histogram_epsilon": 0.3}),
    ],
)  # fmt: skip
def test_a_resumed_run_has_the_same_bits(method: Method, asked: dict[str, Any], tmp_path: Path) -> None:
    options = {**asked, "checkpoint_every": 1, "engine": "threaded"}
    whole = go(skewed(), method, rounds=3, **options)
    go(skewed(), method, rounds=1, out=tmp_path / "run", **options)
    resumed = go(skewed(), method, rounds=3, out=tmp_path / "run", resume=True, **options)
    assert same(whole.params, resumed.params) and rows_of(whole) == rows_of(resumed)
    assert whole.summary.get("privacy") == resumed.summary.get("privacy")
    assert whole.summary.get("final_fit") == resumed.summary.get("final_fit")


def test_noise_that_was_found_is_for_as_many_rounds(tmp_path: Path) -> None:
    options = CLIENT | {"dp_noise": None, "dp_epsilon": 2.0, "out": tmp_path / "run"}
    go(skewed(), of_clients(), **options)
    said = "rounds must stay 2, since the noise was found for all rounds of the run; got 3"
    refused(lambda: go(skewed(), of_clients(), rounds=3, resume=True, **options), said)


def test_the_command_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "run fedavg --dp client --dp.clip 1 --dp.noise 2 --dp.delta 1e-4 --weighting uniform --selector poisson"
    words += f" --fit-logits none --clients 8 --cohort 4 --rounds 2 --model logistic --out {tmp_path / 'run'}"
    said = output_of(capsys, *words.split())
    assert "privacy: epsilon " in said and "delta 0.0001 for one client added or removed" in said
    shown = " ".join(output_of(capsys, "show", tmp_path / "run").split())
    assert "poisson, 4 of 8 clients in a round; tuning is not counted" in shown


# What is refused


def test_tuning_is_refused() -> None:
    with pytest.raises(fs.ConfigError, match="tune must stand without dp: its trials read the same rows"):
        spec_from(["fedavg"], [("dp", "client"), ("rounds", 2)], tuning=tuning_of("lr=0.01..0.1", 2))


@dataclass(frozen=True)
class Longest(fs.paces.Fixed):
    """As many steps as the client with the most rows takes."""

    name = "longest"

    def of(self, used: Tensor, round: int, rounds: int) -> fs.types.PacePlan:
        return super().of(used.max().expand_as(used), round, rounds)


REFUSED: dict[str, tuple[Callable[[], Method], dict[str, Any], str]] = {
    "size": (lambda: of_clients(weighting=fs.weightings.Size()), CLIENT,
             "be none for fedavg, whose 'size' reads the rows of clients, without noise; got 'client'; take the"),
    "selector": (lambda: of_clients(selector=fs.selectors.PowerOfChoice()), CLIENT, "'power_of_choice' reads the"),
    "failing": (lambda: of_clients(selector=fs.selectors.Failing()), CLIENT, "whose selector is 'failing'"),
    "upload": (lambda: of_clients("scaffold"), CLIENT, "whose 'control_variate' reads the upload of clients"),
    "probe": (lambda: of_clients("ccvr"), CLIENT, "'virtual_representations' reads the"),
    "combine": (lambda: of_clients("fedavg", parts=(fs.parts.AverageProducts(),)), CLIENT, "reads the update of"),
    "batch norm": (of_clients, CLIENT | {"model": norm_net()}, "be none for a network with BatchNorm: its statistics"),
    "batch norm, rows": (of_rows, EXAMPLE | {"model": norm_net()}, "be none for a network with BatchNorm"),
    "fit": (of_rows, EXAMPLE | {"fit_logits": "last"}, "fit_logits must be none with dp example: the fit reads rows"),
    "fit of sums": (lambda: of_clients(selector=fs.selectors.Random()), FITTED | {"secure": "sums"},
                    "fit_logits must be none with dp and secure sums: the server adds up what each client tells"),
    "own": (of_clients, CLIENT | {"keep_own": True}, "keep_own must be false with dp"),
    "diagnose": (of_clients, CLIENT | {"diagnose": ("drift",)}, "dp must be none with diagnostics"),
    "dtype": (of_clients, CLIENT | {"dtype": "bfloat16"}, "dp must be none with dtype bfloat16"),
    "delta": (of_clients, CLIENT | {"dp_delta": 0.5}, "dp_delta must be below 1 / 6, of the clients; got 0.5"),
    "shuffled": (lambda: of_rows(sampler=fs.samplers.Shuffle()), EXAMPLE, "whose sampler is 'shuffle'"),
    "balanced": (lambda: of_rows(sampler=fs.samplers.ClassBalanced()), EXAMPLE, "whose sampler is 'class_balanced'"),
    "twice": (lambda: of_rows("fedsam"), EXAMPLE, "whose local step 'sam' takes more than one gradient"),
    "correct": (lambda: of_rows("fedprox"), EXAMPLE, "whose 'proximal' may read rows outside of the loss, in its"),
    "counts": (lambda: of_rows(parts=(fs.parts.LogitAdjustment(),)), EXAMPLE,
               "whose loss of a row reads the class counts of its client"),
    "pace": (lambda: of_rows(pace=fs.paces.Dynamic()), EXAMPLE, "whose pace 'dynamic' changes the size of"),
    "undeclared": (lambda: of_clients(pace=Longest()), CLIENT, "'longest' does not declare what its 'of' reads"),
    "clip": (of_clients, CLIENT | {"dp_clip": None}, "dp_clip must be given with dp; got None; for example 1"),
    "noise": (of_clients, CLIENT | {"dp_noise": None}, "dp_noise must be given with dp, or dp_epsilon in its place"),
    "both": (of_clients, CLIENT | {"dp_epsilon": 1.0}, "dp_noise must be so large that all rounds have"),
    "off": (of_clients, {"dp_clip": 1.0}, "dp_clip must be used with dp; got 1.0"),
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize(("made", "asked"), [(of_clients, CLIENT), (of_rows, EXAMPLE)], ids=["client", "example"])
def test_the_page_names_the_methods_that_run_under_noise(made: Callable[[str], Method], asked: dict[str, Any]) -> None:
    def runs(name: str) -> bool:
        try:
            go(skewed(), made(name), rounds=1, **asked)
        except fs.ConfigError:
            return False
        return True

    page = (ROOT / "docs/guide/privacy.md").read_text(encoding="utf-8")
    said = re.search(rf"^\| `{asked['dp']}` \| .* \| (.*) \|$", page, re.M)
    assert said is not None
    but, names = said[1].startswith("all but "), said[1].removeprefix("all but ").split(", ")
    assert names == [name for name in sorted(METHODS) if runs(name) != but]


@pytest.mark.parametrize("case", REFUSED)
def test_what_breaks_an_assumption_is_refused(case: str) -> None:
    made, options, said = REFUSED[case]
    refused(lambda: go(skewed(), made(), **options), said)


def test_a_row_at_several_clients_is_refused() -> None:
    fed = fs.federate("digits", fs.partitioners.Shared(fs.partitioners.LabelsK(2)), clients=6)
    refused(lambda: go(fed, of_rows(), **EXAMPLE), "dp must be none or client where a row is at several clients")


def test_the_engine_is_that_of_the_method_without_noise(tmp_path: Path) -> None:
    """So an address says it. The steps that the record names are those that run."""
    wide = fs.models.MLP(hidden=400)  # auto stacks it only where updates are written out
    for asked in ({}, EXAMPLE):
        go(skewed(), of_rows(), model=wide, engine="auto", rounds=1, out=tmp_path / f"run{len(asked)}", **asked)
    plain, private = (json.loads((tmp_path / f"run{n}/config.json").read_text()) for n in (0, 3))
    assert plain["engine_used"] == private["engine_used"] == "batched"
    assert plain["engine_reason"].endswith("steps are written out")
    assert private["engine_reason"].endswith("written out around the method's loss")
