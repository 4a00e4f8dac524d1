"""The slots' own ingredients, those that no single method owns."""

from fedskew.shared.paces import Fixed
from fedskew.shared.samplers import Shuffle
from fedskew.shared.selectors import Random
from fedskew.shared.servers import Plain
from fedskew.shared.steps import SGD
from fedskew.shared.weightings import Size, Uniform

__all__ = ["SGD", "Fixed", "Plain", "Random", "Shuffle", "Size", "Uniform"]
