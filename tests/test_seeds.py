"""Seeds of single draws: the split, the initial weights and the sequence of clients vary by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import fedskew as fs
from fedskew.config.flags import experiment_from
from fedskew.plots.groups import groups_of
from support.federations import skewed
from support.runs import go

WORDS = "fedavg --data digits --clients 8 --cohort 3 --rounds 2 --model logistic --batch-size 16"


def ran(words: str) -> fs.Result:
    return experiment_from([*WORDS.split(), *words.split()]).run()


def clients(result: fs.Result) -> list[Any]:
    return [row["clients"] for row in result.rounds]


def weights(result: fs.Result) -> torch.Tensor:
    return result.params["fc.weight"]


def test_own_seeds_that_equal_the_seed_change_nothing() -> None:
    plain, own = ran("--seed 3"), ran("--seed 3 --seed.partition 3 --seed.model 3 --seed.clients 3")
    assert clients(plain) == clients(own) and torch.equal(weights(plain), weights(own))


def test_the_seed_of_clients_changes_the_sequence_and_the_seed_leaves_it() -> None:
    assert clients(ran("--seed 0")) != clients(ran("--seed 0 --seed.clients 1"))
    assert clients(ran("--seed 1 --seed.clients 0 --seed.partition 0")) == clients(ran("--seed 0"))


def test_the_seed_of_clients_reaches_candidates_that_a_selector_asks() -> None:
    words = "--selector power_of_choice --selector.candidates 5 --seed.partition 0 --seed.model 0"
    drawn = [clients(ran(f"{words} --seed {seed} --seed.clients {own}")) for seed, own in ((0, 7), (1, 7), (0, 8))]
    assert drawn[0][0] == drawn[1][0] != drawn[2][0]


def test_the_seed_of_the_model_changes_the_initial_weights_alone() -> None:
    fed, still = skewed(), fs.methods.fedavg().with_("fixed", lr=1e-9)
    a, b, other = (weights(go(fed, still, seed=s, seed_model=m)) for s, m in ((0, 0), (1, 0), (0, 1)))
    assert torch.allclose(a, b, atol=1e-6) and not torch.allclose(a, other, atol=1e-2)


def test_the_seed_of_the_partition_divides_and_the_seed_leaves_the_division() -> None:
    def counts(words: str) -> torch.Tensor:
        return experiment_from([*WORDS.split(), *words.split()]).federation().counts

    assert torch.equal(counts("--seed 0"), counts("--seed 5 --seed.partition 0"))
    assert not torch.equal(counts("--seed 0"), counts("--seed 0 --seed.partition 5"))


def test_repetitions_by_any_seed_share_a_line_of_a_figure(tmp_path: Path) -> None:
    for i, words in enumerate(("--seed 0", "--seed 0 --seed.model 1", "--seed 0 --seed.partition 2")):
        experiment_from([*WORDS.split(), *words.split()]).run(tmp_path / str(i))
    groups = groups_of(tmp_path / str(i) for i in range(3))
    assert [len(group.runs) for group in groups] == [3]
