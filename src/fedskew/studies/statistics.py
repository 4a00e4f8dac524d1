"""The statistics of a study, in one place: means, intervals, differences, ranks, costs of a target.

Pure functions of `Scores` or of the rows of a run. Draws are seeded, so the same scores give the same numbers.
docs/reference/statistics.md has the formula of each, what it assumes, and when it misleads.
"""

from fedskew.studies.differences import *
from fedskew.studies.scores import *
