"""Samplers: which rows a client trains on this round."""

from fedskew.method.samplers import ClassBalanced as ClassBalanced
from fedskew.method.samplers import Shuffle as Shuffle
from fedskew.methods.astraea import Augmentation as Augmentation
from fedskew.methods.fedvc import VirtualClient as VirtualClient
from fedskew.methods.seolkim import DecayingOversampling as DecayingOversampling
