"""Formulas of docstrings as the site shows them."""

from __future__ import annotations

import pytest

from support.scripts import script

FORMULAS = script("scripts/docs_formulas.py")
typeset = FORMULAS.typeset


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x <- x + lr m_k", "<i>x</i> ← <i>x</i> + lr <i>m</i><sub><i>k</i></sub>"),
        ("||f||_2^2 / (2 tau)", "‖<i>f</i>‖<sub>2</sub><sup>2</sup> / (2 <i>τ</i>)"),
        ("sum_{j != k} e^(-x)", "∑<sub><i>j</i> ≠ <i>k</i></sub> <i>e</i><sup>-<i>x</i></sup>"),
    ],
)
def test_indices_powers_and_greek_letters_are_typeset(text: str, shown: str) -> None:
    assert typeset(text) == shown


@pytest.mark.parametrize("text", ["a client's rows", "the weight_decay of 1e-12", '"smooth_l1"', "one of the classes"])
def test_words_stay_words(text: str) -> None:
    assert typeset(text) == text


def test_the_formulas_of_a_sentence_are_found_and_nothing_is_lost() -> None:
    text = "Rows n_k of the client, at most lambda * N; `alpha` and a weight_decay stay."
    pieces = list(FORMULAS.pieces(text))
    assert "".join(piece for _, piece in pieces) == text
    assert [piece for found, piece in pieces if found] == ["n_k", "lambda", " * ", "N"]
