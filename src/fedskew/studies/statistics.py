"""The statistics of a study, in one place: means, intervals, differences, ranks, profiles, costs of a target.

Pure functions of `Scores` or of the rows of a run. Draws are seeded, so the same scores give the same numbers.
docs/reference/statistics.md has the formula of each, what it assumes, and when it misleads.
"""

from __future__ import annotations

from fedskew.studies.differences import (
    Difference,
    differences,
    holm,
    paired_t,
    pairs_needed,
    signed_rank,
    smallest_p,
)
from fedskew.studies.equivalence import Equivalence, equivalence
from fedskew.studies.intervals import Estimate, Summary, aggregate, interquartile_mean, summaries, t_interval
from fedskew.studies.orders import Agreement, agreement, permuted, printed_self_agreement, self_agreement, tau_b
from fedskew.studies.profiles import Improvement, Profile, improvement, profiles
from fedskew.studies.ranks import Ranks, average_ranks, critical_difference
from fedskew.studies.scores import Scores
from fedskew.studies.targets import Reached, Spent, TargetSummary, final_value, over_seeds, reach, reach_all

__all__ = [
    "Agreement", "Difference", "Equivalence", "Estimate", "Improvement", "Profile", "Ranks", "Reached", "Scores",
    "Spent", "Summary", "TargetSummary", "aggregate", "agreement", "average_ranks", "critical_difference",
    "differences", "equivalence", "final_value", "holm", "improvement", "interquartile_mean",
    "over_seeds", "paired_t", "pairs_needed", "permuted", "printed_self_agreement", "profiles", "reach",
    "reach_all", "self_agreement", "signed_rank", "smallest_p", "summaries", "t_interval", "tau_b",
]  # fmt: skip
