"""Hypothesis: what is drawn."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

seeds = st.integers(0, 2**31)
alphas = st.floats(-3, 6).map(lambda e: 10.0**e)


@st.composite
def tables(draw):
    """Labels of 10 classes, at least 20 rows each, in random order, with gaps in the numbering."""
    totals = np.array(draw(st.lists(st.integers(20, 80), min_size=10, max_size=10)))
    labels = np.repeat(np.arange(10) * draw(st.integers(1, 3)), totals)
    return np.random.default_rng(draw(seeds)).permutation(labels)
