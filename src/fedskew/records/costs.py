"""What a round costs: bytes as they would cross a network, and seconds of one stage after another."""

import time
from dataclasses import dataclass

from fedskew import tree
from fedskew.types import Answers, Assignment, Query, Tree


@dataclass
class Traffic:
    """Bytes of one round, added up as the round goes on."""

    up: int = 0
    down: int = 0

    def add_query(self, question: Query, answers: Answers, broadcast_bytes: int) -> None:
        """Count a query: answers go up unless the client keeps them, the model goes down unless counts are asked for.

        Args:
            question: what was asked; the server's own rows cost nothing.
            answers: the replies, leaves [Q, ...].
            broadcast_bytes: bytes of the model and of what else every client is sent.
        """
        if question.rows != "own":
            return
        if not question.keep:
            self.up += tree.size_bytes(answers.values)
        if question.what != "counts":
            self.down += len(answers.ids) * broadcast_bytes

    def add_training(
        self, assignment: Assignment, each: Tree, uploads: Tree, *, update_bytes: int, broadcast_bytes: int
    ) -> None:
        """Count local training: the model down to every member, updates and uploads up.

        Args:
            assignment: the chains [G, M], and the quota that their members are told.
            each: what single clients are sent, leaves [K, ...].
            uploads: what clients send besides their update, leaves [K, ...].
            update_bytes: bytes of one client's parameters and BatchNorm statistics.
            broadcast_bytes: bytes of the model and of what else every client is sent.
        """
        members = int((assignment.chains >= 0).sum())
        quota = 0 if assignment.quota is None else assignment.quota.numel() * 8
        self.down += members * broadcast_bytes + tree.size_bytes(each) + quota
        self.up += members * update_bytes + tree.size_bytes(uploads)


class Stopwatch:
    """Seconds of the stages of a round."""

    def __init__(self) -> None:
        self.stages: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """End a stage."""
        now = time.perf_counter()
        self.stages[stage] = self.stages.get(stage, 0.0) + now - self._last
        self._last = now
