"""The cluster that the tests of a file share."""

from __future__ import annotations

from support.cluster import cluster

__all__ = ["cluster"]
