"""Sums that show a server no summand: the protocol of Bonawitz et al. (2017) for servers that are honest but curious.

`secure_sum` runs the whole protocol in one process. `Client` and `Server` are its two sides, for messages over a
network. The room knows no engine, no method and no deployment. It needs the extra ``secure``, whose package is imported
when a sum begins.

Source: Bonawitz et al. 2017, Practical Secure Aggregation for Privacy-Preserving Machine Learning (CCS), figure 4
without the underlined steps, https://doi.org/10.1145/3133956.3133982
"""

from fedskew.privacy.encoding import FixedPoint
from fedskew.privacy.machines import PHASES, Client, Message, Server
from fedskew.privacy.simulation import SecureSum, secure_sum

__all__ = ["PHASES", "Client", "FixedPoint", "Message", "SecureSum", "Server", "secure_sum"]
