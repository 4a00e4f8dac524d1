"""Selectors: which clients take part, and how much data of each class each may use."""

from fedskew.method.selectors import Failing as Failing
from fedskew.method.selectors import Random as Random
from fedskew.methods.astraea import Mediators as Mediators
from fedskew.methods.clusteredsampling import Clustered as Clustered
from fedskew.methods.clusteredsampling import ClusteredByUpdate as ClusteredByUpdate
from fedskew.methods.fedvc import BySize as BySize
from fedskew.methods.powerofchoice import PowerOfChoice as PowerOfChoice
from fedskew.methods.seolkim import KLD as KLD
