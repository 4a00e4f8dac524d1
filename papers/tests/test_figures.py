"""Each study of a figure has the data, the skew and the clients that the paper names for the figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from fedskew.config.experiment import Experiment
from fedskew_papers.tables import names, protocol
from smoked import firsts


@dataclass(frozen=True)
class Figure:
    """What caption and text of a figure name. None: they do not name it, and the study says what it takes.

    Attributes:
        data: Data sets.
        skew: Values of alpha, of labels a client, or of the ratio of two classes.
        clients: How many clients there are.
        methods: Methods that it compares, as the study labels them.
        shows: What it shows, in words of the title.
        at_hand: The data that stand in for those of the caption.
    """

    data: tuple[str, ...]
    skew: tuple[float, ...] | None
    clients: int | None
    methods: tuple[str, ...]
    shows: str
    at_hand: str = ""


SIX = ("FedAvg", "FedProx", "FedRL", "CLIMB", "FedNTD", "FedGA")
FIGURES = {
    # FedBal: captions, section 5.1 (20 clients), Appendices A.1, C.1 and C.3
    "fedbal-figure1b": Figure(("cifar10",), None, 20, ("FedAvg", "FedAvg (uniform)"), "averages by size and uniform"),
    "fedbal-figure2": Figure(("cifar10",), None, 20, (), "heat map of the rows of each label"),
    "fedbal-figure3": Figure(("cifar10",), (0.1,), 20, ("FedAvg",), "cosine of each layer"),
    "fedbal-figure4": Figure(("cifar10",), (0.05,), 20, ("FedBal",), "aggregation weights"),
    # FedGA: captions, and the section Experiments (100 clients)
    "fedga-figure2": Figure(("mnist",), None, 100, ("FedAvg",), "before and after local training"),
    "fedga-figure3": Figure(("mnist",), (10, 100), None, ("cross-entropy", "FedGA, binary"), "error asymmetry"),
    "fedga-figure4": Figure(("cifar10",), None, 100, ("FedAvg", "FedGA"), "over the rounds"),
    "fedga-figure5": Figure(("cifar10",), None, 100, SIX, "error asymmetry, every ten rounds"),
    "fedga-figure6": Figure(("mnist",), None, 100, SIX, "before and after local training"),
    "fedga-figure7": Figure(("svhn",), (0.5,), 100, SIX, "over the rounds"),
    "fedga-figure7-mnist": Figure(("svhn",), None, 100, SIX, "over the rounds", "mnist"),
    # FedGR: captions, sections 1 (10 clients), 4.1 (100), 4.4 and 4.5
    "fedgr-figure2": Figure(("cifar10",), None, 10, ("FedAvg",), "under one imbalance and under both"),
    "fedgr-figure4": Figure(("cifar10", "fashion_mnist"), (2, 3), 100, ("lambda=0.5",), "lambda"),
    "fedgr-figure5": Figure(("cifar10",), None, 100, ("FedAvg", "FedGR"), "t-SNE"),
}


def skew(made: Experiment) -> Any:
    """What makes clients, or classes, uneven."""
    alpha = getattr(made.partition, "alpha", None)
    return made.longtail or (getattr(made.partition, "labels", None) if alpha is None else alpha)


def test_every_study_of_a_figure_stands_in_the_table() -> None:
    assert set(FIGURES) == {name for name in names() if "-figure" in name}


@pytest.mark.parametrize("scale", ["small", "paper"])
@pytest.mark.parametrize("name", FIGURES)
def test_a_study_of_a_figure_has_what_the_paper_names(name: str, scale: str) -> None:
    figure, found, made = FIGURES[name], protocol(name), firsts(name, scale)
    every = made.values()
    assert {one.data.name for one in every} == ({figure.at_hand} if figure.at_hand else set(figure.data))
    assert figure.skew is None or {skew(one) for one in every} == set(figure.skew)
    assert {one.clients for one in every} == {figure.clients or 1}
    assert set(figure.methods) <= {label for label, _ in made}
    assert figure.shows in found.title


@pytest.mark.parametrize("name", FIGURES)
def test_a_study_of_a_figure_says_what_the_paper_does_not_name(name: str) -> None:
    figure, reading = FIGURES[name], protocol(name).reading
    assert "caption" in reading and "not at hand: what" not in reading
    if figure.at_hand:
        assert "stands in" in reading and "SVHN" in reading
    elif figure.skew is None and name != "fedgr-figure2":  # three imbalances, which the caption of Figure 1 names
        assert any(said in reading for said in ("names no alpha", "is not named", "does not name", "names neither"))


def test_the_layers_of_fedbal_are_compared_over_30_rounds() -> None:
    assert {one.rounds for one in firsts("fedbal-figure3").values()} == {30}


def test_fedgr_shows_three_imbalances() -> None:
    """Quantities alone, labels alone, and both, as in its Figure 1."""
    made = [one for (label, _), one in firsts("fedgr-figure2").items() if label == "FedAvg"]
    assert [(one.partition.labels, one.partition.exponent > 0) for one in made] == [(10, True), (3, False), (3, True)]
