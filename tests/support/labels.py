"""Labels to split, and counts of what was split."""

from __future__ import annotations

import hashlib

import numpy as np

BALANCED = np.repeat(np.arange(10), 200)
MIXED = np.random.default_rng(5).permutation(np.repeat(np.arange(10), np.arange(60, 260, 20)))
SITES = {"site": np.arange(len(MIXED)) % 7}


def counted(partitioner, labels, clients, seed=0, columns=None):
    return partitioner.split(labels, clients, seed, columns).counts(labels, int(labels.max()) + 1)


def histograms(partition, labels):
    return partition.counts(labels, int(labels.max()) + 1)


def content(parts):
    """A digest of who has which rows."""
    return hashlib.sha256(parts.offsets.astype("<i8").tobytes() + parts.rows.astype("<i8").tobytes()).hexdigest()[:12]
