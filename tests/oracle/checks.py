"""Comparison and central differences."""

import numpy as np


def near(a, b, tol=2e-10):
    np.testing.assert_allclose(np.asarray(a, float), np.asarray(b, float), rtol=0, atol=tol)


def numeric(f, x, h=1e-5):
    """Central differences of a scalar function of an array."""
    g = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += h
        down[i] -= h
        g[i] = (f(up) - f(down)) / (2 * h)
    return g
