"""Paces: a client's batch size, number of steps and learning rate."""

from fedskew.methods.seolkim import Dynamic as Dynamic
from fedskew.shared.paces import Cosine as Cosine
from fedskew.shared.paces import Drops as Drops
from fedskew.shared.paces import Fixed as Fixed
from fedskew.shared.paces import Part as Part
from fedskew.shared.paces import Staged as Staged
from fedskew.shared.paces import Steps as Steps
