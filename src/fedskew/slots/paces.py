"""Paces: a client's batch size, number of steps and learning rate."""

from fedskew.method.paces import Cosine as Cosine
from fedskew.method.paces import Drops as Drops
from fedskew.method.paces import Fixed as Fixed
from fedskew.method.paces import Part as Part
from fedskew.method.paces import Staged as Staged
from fedskew.method.paces import Steps as Steps
from fedskew.methods.seolkim import Dynamic as Dynamic
