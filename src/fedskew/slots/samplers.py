"""Samplers: which rows a client trains on this round."""

from fedskew.methods.astraea import Augmentation as Augmentation
from fedskew.methods.fedvc import VirtualClient as VirtualClient
from fedskew.methods.seolkim import DecayingOversampling as DecayingOversampling
from fedskew.shared.samplers import ClassBalanced as ClassBalanced
from fedskew.shared.samplers import Shuffle as Shuffle
