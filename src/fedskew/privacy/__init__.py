"""Secure sums and accounts of noise; names of `__all__` and what a server sees stay, all else may change.

Sums show a server no summand, by the protocol of Bonawitz et al. (2017) for servers that are honest but curious.
`Client` and `Server` are the two sides of the protocol, for messages over a network. `fedskew.privacy.simulation` runs
all of it in one process, with keys that whoever knows the seed knows: it is no part of this package's names, so that
no deployment reaches it by them. The room knows no engine, no method and no deployment. It needs the extra ``secure``,
whose package is imported when a sum begins.

Source: Bonawitz et al. 2017, Practical Secure Aggregation for Privacy-Preserving Machine Learning (CCS), figure 4
without the underlined steps, https://doi.org/10.1145/3133956.3133982
"""

from fedskew.privacy.encoding import FixedPoint
from fedskew.privacy.machines import PHASES, Client, Message, Server, size

__all__ = ["PHASES", "Client", "FixedPoint", "Message", "Server", "size"]
