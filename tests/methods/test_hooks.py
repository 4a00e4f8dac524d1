"""Single hooks of the methods' components, called without a run and compared with plain computations."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedskew import functional as F
from fedskew import methods as m
from fedskew import parts as p
from fedskew import rng, samplers, selectors, steps
from fedskew import weightings as w
from fedskew.errors import FieldError
from fedskew.method import Method, Weighting
from fedskew.method.paces import Fixed
from fedskew.method.parts import DatasetMean
from fedskew.types import Answers, Output, Task, View
from support.federations import blobs, skewed
from support.runs import go
from support.view import TASK, view

# balancefl


def test_balancefl_measures_in_full_precision() -> None:
    seen = view([0, 1, 1, 0, 2, 2, 1])
    x, y = seen.out.features.numpy(), seen.batch.y.numpy()
    within = sum(np.cov(x[y == c], rowvar=False, bias=True) * (y == c).sum() for c in range(3)) / 7
    root = p.KnowledgeInheritance().covariance(seen)["root"]
    np.testing.assert_allclose(root @ root.T, within, rtol=1e-10)


def test_balancefl_adds_noise_to_rows_of_rare_classes() -> None:
    """Class 2 has the most rows: never; class c with probability 1 - n_c / 81."""
    labels = [0] * 600 + [1] * 600 + [2] * 600
    seen = view(labels)
    part = p.KnowledgeInheritance()
    root = torch.as_tensor(np.random.default_rng(0).normal(size=(4, 4)))
    noise = part._noise(seen._replace(memory={part.name: {"root": root}}), seen.ctx.used.to(root))
    hit = (noise != 0).all(1).reshape(3, 600).double().mean(1)
    assert hit.tolist() == pytest.approx([1 - 16 / 81, 1 - 1 / 81, 0.0], abs=0.05)
    weight = seen.params["fc.weight"]
    drawn = noise[(noise != 0).all(1)]
    np.testing.assert_allclose(np.cov(drawn.numpy().T), (weight @ root @ root.T @ weight.T).numpy(), rtol=0.35, atol=1)
    one = part._noise(seen._replace(memory={part.name: {"root": root}}, key=rng.key(1)), seen.ctx.used.to(root))
    assert not torch.equal(one, noise)


def test_one_row_of_every_class_needs_no_noise() -> None:
    part, seen = p.KnowledgeInheritance(), view([0, 1, 2] * 20)
    memory = {part.name: {"root": torch.eye(4, dtype=torch.float64)}}
    assert (part._noise(seen._replace(memory=memory), torch.ones(3).double()) == 0).all()


def test_balancefl_classifies_what_it_augmented_and_distils_what_it_did_not(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = view([0, 1, 0])
    seen = seen._replace(ctx=seen.ctx._replace(used=torch.tensor([2, 1, 0])))
    noise = torch.tensor([[0.5, -1.0, 2.0]], dtype=torch.float64).expand(3, 3)
    told = Output(seen.out.logits.flip(1), seen.out.features)
    monkeypatch.setattr(p.KnowledgeInheritance, "_noise", lambda *_: noise)
    monkeypatch.setattr(View, "teacher", lambda _: told)
    z, positive = seen.out.logits, torch.tensor([True, True, False])
    classify, distil, entropy = F.balancefl_terms(z, z + noise, told.logits, seen.batch.y, positive, 2.0)
    want = (classify + distil - 0.002 * entropy).mean()
    torch.testing.assert_close(p.KnowledgeInheritance().loss(seen), want, rtol=1e-12, atol=0)
    plain = F.balancefl_terms(z, z, told.logits, seen.batch.y, positive, 2.0)[0]
    assert not torch.allclose(plain, classify)


# losses that no method of the table has


def test_ldam_by_hand() -> None:
    seen = view([0, 1, 2])
    x, w = seen.out.features.numpy(), seen.params["fc.weight"].numpy()
    z = x @ w.T / np.linalg.norm(x, axis=1)[:, None] / np.linalg.norm(w, axis=1)
    z -= np.diag(0.5 * np.array([16, 1, 81.0]) ** -0.25)
    want = np.mean(np.log(np.exp(30 * z).sum(1)) - 30 * z.diagonal())
    assert float(p.LDAM().loss(seen)) == pytest.approx(want, rel=1e-6)
    served = p.LDAM().serve({"other": torch.ones(1), **seen.params}, {}, TASK)
    np.testing.assert_allclose(served["fc.weight"], w / np.linalg.norm(w, axis=1)[:, None], rtol=1e-12)
    assert served["fc.bias"].tolist() == [0, 0, 0] and served["other"].tolist() == [1]
    assert p.LDAM().serve({"fc.weight": seen.params["fc.weight"]}, {}, TASK).keys() == {"fc.weight"}


# climb


def test_a_client_without_rows_has_no_loss() -> None:
    """What it would report, 0, is neither its loss nor part of the mean."""
    part, fed = w.Dual(), blobs([[2, 1], [0, 0], [3, 3]])
    state = part.init_server({}, fed, TASK._replace(clients=3))
    told = part.receive(state, Answers(torch.arange(3), torch.tensor([1.0, 0.0, 4.0])), rng.key(0))
    assert told["losses"].tolist() == [1.0, 2.5, 4.0] and told["known"].tolist() == [1, 0, 1]


# creff


def test_creff_asks_the_cohort_for_augmented_draws() -> None:
    question = p.FederatedFeatures(draws=7).ask({}, 3, rng.key(0))
    assert question is not None and (question.ids, question.draws, question.augment) == ("cohort", 7, True)
    assert (question.rows, question.keep) == ("own", False)


# fedgrab


def test_a_batch_of_one_row_is_averaged_over_one() -> None:
    part, seen = p.GradientBalancer(), view([1])
    seen = seen._replace(memory={part.name: part.init_client(seen.params, {}, TASK)})
    learnt, chance = part.learn(seen), seen.out.logits[0].sigmoid()
    torch.testing.assert_close(learnt["positive"], (1 - chance) * torch.tensor([0.0, 1.0, 0.0]))
    torch.testing.assert_close(learnt["negative"], chance * torch.tensor([1.0, 0.0, 1.0]))


def controlled(**options: Any) -> tuple[p.GradientBalancer, View]:
    """A balancer whose controllers have all an output of 2, and what it sees of three rows."""
    part, seen = p.GradientBalancer(**options), view([0, 2, 1])
    memory = {n: torch.full_like(t, 2.0) for n, t in part.init_client(seen.params, {}, TASK).items()}
    return part, seen._replace(memory={part.name: memory})


def test_outside_of_the_analysers_tail_weights_are_1_and_controllers_start_anew() -> None:
    part, seen = controlled()
    tail = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    told = seen._replace(ctx=seen.ctx._replace(shared={"prior_analyser": {"tail": tail}}))
    f = F.fedgrab_map(torch.tensor([0.0, 2.0, 0.0], dtype=torch.float64))
    g = F.fedgrab_map(torch.tensor([0.0, -2.0, 0.0], dtype=torch.float64))
    want = seen.batch.mean(F.weighted_bce(seen.out.logits, seen.batch.y, f, g))
    assert torch.equal(part.loss(told), want) and not torch.equal(part.loss(seen), want)
    learnt = part.learn(told)
    assert learnt["u"][[0, 2]].tolist() == [0, 0] and learnt["u"][1] != 0
    assert (learnt["positive"] > 2).all()  # gradients are accumulated for every class


def test_a_released_class_has_weight_1_and_is_not_accumulated() -> None:
    part, seen = controlled(release=True)
    free = F.fedgrab_release(rng.uniform(rng.fold(seen.key, 301), (3,), torch.float64), torch.ones(3))
    assert free[0] and not free.all()  # the first class always
    f, g = (torch.where(free, 1.0, F.fedgrab_map(torch.tensor(u, dtype=torch.float64))) for u in (2.0, -2.0))
    torch.testing.assert_close(part.loss(seen), seen.batch.mean(F.weighted_bce(seen.out.logits, seen.batch.y, f, g)))
    learnt = part.learn(seen)
    assert (learnt["positive"][free] == 2).all() and (learnt["negative"][free] == 2).all()
    assert (learnt["negative"][~free] > 2).all()


def test_the_analyser_tells_the_tail_of_the_mean_share() -> None:
    part = p.PriorAnalyser()
    state = part.init_server(view([0]).params, None, TASK)  # type: ignore[arg-type]
    assert not part.broadcast(state, None)[0]["tail"].any()
    for number, rows in enumerate(([9.0, 1.0, 1.0], [9.0, 1.0, 1.0]), start=1):
        after = {"fc.weight": torch.tensor(rows, dtype=torch.float64)[:, None] * torch.eye(3, 4, dtype=torch.float64)}
        cohort: Any = SimpleNamespace(after=after, task=TASK, round=number)
        state, _ = part.absorb(state, cohort, rng.key(0))
    assert state["tail"].tolist() == [0, 1, 1] and part.record(state) == {"tail": [1, 2]}


# climb


def test_climbs_defaults_act() -> None:
    """At 1 and 1, the parser's defaults, no client's dual variable leaves 0."""
    moved = []
    for method in (m.climb(), m.climb(1.0, 1.0)):
        result = go(skewed(), method.with_("dual", primal_rounds=1), rounds=6)
        moved.append(result.rounds[-1]["components"]["dual"]["dual_max"])
    assert moved[0] > 0.05 > moved[1]


# fedrl


def test_the_ratio_loss_may_take_minus_the_gradient_for_the_change() -> None:
    def forward(params: Any, buffers: Any, x: Tensor, mask: Tensor, **how: Any) -> tuple[Output, Any]:
        assert how["train"] is False
        return Output(x @ params["fc.weight"].T + params["fc.bias"], x), buffers

    seen = view([0, 2, 1], forward=forward)
    seen = seen._replace(batch=seen.batch._replace(mask=torch.tensor([1.0, 1, 0], dtype=torch.float64)))
    error = seen.out.logits.softmax(1) - torch.eye(3)[seen.batch.y]
    change: Any = p.RatioLoss(estimator="gradient").ask({}, 1, rng.key(0)).what(seen)  # type: ignore[union-attr, operator]
    assert change.keys() == {"fc.weight"}
    torch.testing.assert_close(change["fc.weight"], -error[:2].T @ seen.batch.x[:2] / 2)
    flipped: Any = p.RatioLoss(estimator="unflipped").ask({}, 1, rng.key(0)).what(seen)  # type: ignore[union-attr, operator]
    torch.testing.assert_close(flipped["fc.weight"], -change["fc.weight"])
    assert p.RatioLoss().ask({}, 1, rng.key(0)).what == "delta"  # type: ignore[union-attr]


def test_the_monitor_is_given_the_update_of_the_round() -> None:
    draw = np.random.default_rng(0)
    changes, before, after = (torch.as_tensor(draw.normal(size=s)) for s in ((3, 3, 4), (3, 4), (3, 4)))
    cohort: Any = SimpleNamespace(
        task=TASK, ids=torch.tensor([0, 3]), before={"fc.weight": before}, after={"fc.weight": after},
        reports=SimpleNamespace(samples=torch.tensor([30, 12])),
    )  # fmt: skip
    state = {"changes": {"fc.weight": changes}, "rows": torch.tensor(4.0), "weights": torch.ones(3)}
    got, written = p.RatioLoss(2.0, 0.5, monitor=True).absorb(state, cohort, rng.key(0))
    assert written is None and got.keys() == {"weights", "rows", "estimated"}
    torch.testing.assert_close(got["estimated"], F.ratio_monitor(changes, after - before, 42, 8.0))
    torch.testing.assert_close(got["weights"], 2 + 0.5 * F.ratio_of_changes(changes))
    assert p.RatioLoss().absorb(state, cohort, rng.key(0))[0].keys() == {"weights", "rows"}


def test_the_monitor_counts_the_rows_that_the_server_holds_of_a_class() -> None:
    state = p.RatioLoss().init_server(view([0]).params, blobs([[2, 3, 4]], auxiliary=5), TASK)  # type: ignore[arg-type]
    assert float(state["rows"]) == 5 and state["weights"].tolist() == [1, 1, 1]
    assert state["weights"].dtype == torch.float64


# fedvc


def test_virtual_clients_offer_their_size_in_proportion() -> None:
    counts = torch.tensor([[1, 0, 0], [0, 0, 0], [2, 1, 3], [1, 1, 1]])
    offered = samplers.VirtualClient(10).offer(counts, {}, 1, rng.key(0))
    assert offered.tolist() == [[10, 0, 0], [0, 0, 0], [3, 2, 5], [4, 3, 3]]  # largest remainders, then lowest index


def test_many_equal_remainders_go_to_the_lowest_classes() -> None:
    offered = samplers.VirtualClient(40).offer(torch.ones(1, 300, dtype=torch.int64), {}, 1, rng.key(0))
    assert offered[0].tolist() == [1] * 40 + [0] * 260


# pfedme


def test_a_client_that_never_took_part_has_the_global_model() -> None:
    part, seen = steps.Moreau(), view([0])
    theta = {n: p + 1 for n, p in seen.params.items()}
    for told, want in ((0.0, seen.params), (1.0, theta)):
        ctx = seen.ctx._replace(memory={part.name: {"theta": theta, "seen": torch.tensor(told)}})
        own = part.personalize(seen.params, ctx, lambda p: p)
        assert all(torch.equal(own[n], want[n]) for n in want)


# powerofchoice


def test_candidates_are_asked_by_size_and_chosen_by_loss() -> None:
    part, fed = selectors.PowerOfChoice(1), blobs([[1, 0], [0, 0], [3, 3], [2, 1]])
    state = part.init_server({}, fed, TASK)
    asked = [part.ask(state, 1, rng.key(seed, "candidates")) for seed in range(1000)]
    drawn = torch.bincount(
        torch.cat([q.ids for q in asked if q is not None and not isinstance(q.ids, str)]), minlength=4
    )
    assert (drawn / 1000).tolist() == pytest.approx([0.1, 0, 0.6, 0.3], abs=0.05)
    assert asked[0] is not None and asked[0].what == "loss"
    close = torch.tensor([1.0, 1.0 + 1e-12], dtype=torch.float64)
    told = part.receive(state, Answers(torch.tensor([0, 3]), close), rng.key(0))
    assert selectors.PowerOfChoice(2).select(told, 1, rng.key(0)).chains.tolist() == [[3]]


def test_candidates_need_not_outnumber_the_clients_that_have_rows() -> None:
    part = selectors.PowerOfChoice(2)
    state = part.init_server({}, blobs([[1, 0], [0, 0], [3, 3]]), TASK)
    told = part.receive(state, Answers(torch.tensor([0, 2]), torch.tensor([1.0, 2.0])), rng.key(0))
    assert part.select(told, 3, rng.key(0)).chains.tolist() == [[0], [2]]


# scaffold


def test_scaffold_remembers_a_gradient_only_where_it_needs_one() -> None:
    params = view([0]).params
    assert p.ControlVariate().init_client(params, {}, TASK).keys() == {"c"}
    assert p.ControlVariate(1).init_client(params, {}, TASK).keys() == {"c", "gradient"}


@pytest.mark.parametrize(("rows", "share"), [(1, 2.0), (4, 0.5), (0, 2.0)])
def test_dataset_mean_divides_by_the_rows_of_the_client(rows: int, share: float) -> None:
    seen = view([0, 2])
    counts = torch.tensor([rows, 0, 0])
    seen = seen._replace(ctx=seen.ctx._replace(owned=counts))
    assert float(DatasetMean().correct({"w": torch.tensor(1.0)}, seen)["w"]) == share


# what does not fit the federation, or the rest of the method

TWO, LARGEST, WIDER = TASK._replace(classes=2), TASK._replace(features=4096), TASK._replace(features=4097)
CLIPPED = m.feddyn().with_("local", clip=1.0).with_("dynamic_regulariser", clip=1.0)


def having(part: Any, epochs: int = 3) -> Method:
    """A method of this part, or of this weighting."""
    slots = {"weighting": part} if isinstance(part, Weighting) else {"parts": (part,)}
    return Method("mine", pace=Fixed(epochs=epochs), **slots)


@pytest.mark.parametrize(
    ("method", "task", "rule"),
    [
        (having(p.KnowledgeInheritance()), LARGEST, ""),
        (having(p.KnowledgeInheritance()), WIDER, "be false for a head with more than 4096 features"),
        (having(p.KnowledgeInheritance(augment_features=False)), WIDER, ""),
        (having(p.VirtualRepresentations()), LARGEST, ""),
        (having(p.VirtualRepresentations()), WIDER, "at most 4096 features; got 4097; the model's projection linear"),
        (having(p.VirtualRepresentations()), TASK._replace(norms=("2.running_mean",)), "serves must be last for a net"),
        (having(p.LocalBalancer(early=2)), TASK, ""),
        (having(p.LocalBalancer(early=3)), TASK, "early must be less than the number of epochs, 3; got 3"),
        (having(p.LocalBalancer(schedule_unit="round", early=8)), TASK, ""),
        (having(p.LocalBalancer(schedule_unit="round", early=9)), TASK, "less than the number of rounds, 9; got 9"),
        (having(p.LocalBalancer(schedule_unit="step", early=99)), TASK, ""),
        (having(p.CalibratedTargets("binary")), TWO, ""),
        (having(p.CalibratedTargets("binary")), TASK, "form must be softce or exact for 3 classes; got 'binary'"),
        (having(p.CalibratedTargets("exact", probability="class")), TASK, ""),
        (having(p.CalibratedTargets("binary", probability="class")), TWO, "must be row for the form binary; got 'cl"),
        (having(p.RatioLoss()), TASK, ""),
        (having(w.DiscrepancyAware(target=(0.0, 0.0, 0.0))), TASK, "hold 3 numbers, one for each class, not all 0"),
        (having(w.DiscrepancyAware(target=(1.0, 1.0))), TASK, "hold 3 numbers, one for each class, not all 0"),
        (CLIPPED, TASK, "clip must be 0 beside the clip of sgd"),
    ],
)
def test_a_method_checks_what_it_is_given(method: Method, task: Task, rule: str) -> None:
    fed: Any = SimpleNamespace(auxiliary_rows=[3])  # one row at the server is enough
    with pytest.raises(FieldError, match=rule) if rule else nullcontext():
        method.check(fed, task)
