"""Every method by name; names, options and numbers stay, since addresses have them. A new one is a file and a line."""

from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING

from fedskew import plugins
from fedskew.method import Method
from fedskew.methods.apfl import apfl as apfl
from fedskew.methods.astraea import astraea as astraea
from fedskew.methods.balancefl import balancefl as balancefl
from fedskew.methods.ccvr import ccvr as ccvr
from fedskew.methods.climb import climb as climb
from fedskew.methods.clusteredsampling import clusteredsampling as clusteredsampling
from fedskew.methods.creff import creff as creff
from fedskew.methods.ditto import ditto as ditto
from fedskew.methods.fedacg import fedacg as fedacg
from fedskew.methods.fedamp import fedamp as fedamp
from fedskew.methods.fedavg import fedavg as fedavg
from fedskew.methods.fedbabu import fedbabu as fedbabu
from fedskew.methods.fedbal import fedbal as fedbal
from fedskew.methods.fedbn import fedbn as fedbn
from fedskew.methods.fedcm import fedcm as fedcm
from fedskew.methods.fedcurv import fedcurv as fedcurv
from fedskew.methods.feddecorr import feddecorr as feddecorr
from fedskew.methods.feddisco import feddisco as feddisco
from fedskew.methods.feddyn import feddyn as feddyn
from fedskew.methods.fedetf import fedetf as fedetf
from fedskew.methods.fedexp import fedexp as fedexp
from fedskew.methods.fedfocal import fedfocal as fedfocal
from fedskew.methods.fedga import fedga as fedga
from fedskew.methods.fedgc import fedgc as fedgc
from fedskew.methods.fedgr import fedgr as fedgr
from fedskew.methods.fedgrab import fedgrab as fedgrab
from fedskew.methods.fedir import fedir as fedir
from fedskew.methods.fedla import fedla as fedla
from fedskew.methods.fedlc import fedlc as fedlc
from fedskew.methods.fedlesam import fedlesam as fedlesam
from fedskew.methods.fedloge import fedloge as fedloge
from fedskew.methods.fedmlb import fedmlb as fedmlb
from fedskew.methods.fednh import fednh as fednh
from fedskew.methods.fednova import fednova as fednova
from fedskew.methods.fedntd import fedntd as fedntd
from fedskew.methods.fedopt import fedadagrad as fedadagrad
from fedskew.methods.fedopt import fedadam as fedadam
from fedskew.methods.fedopt import fedavgm as fedavgm
from fedskew.methods.fedopt import fedyogi as fedyogi
from fedskew.methods.fedpals import fedpals as fedpals
from fedskew.methods.fedper import fedper as fedper
from fedskew.methods.fedprox import fedprox as fedprox
from fedskew.methods.fedrep import fedrep as fedrep
from fedskew.methods.fedrl import fedrl as fedrl
from fedskew.methods.fedrod import fedrod as fedrod
from fedskew.methods.fedrs import fedrs as fedrs
from fedskew.methods.fedsam import fedsam as fedsam
from fedskew.methods.fedsam import mofedsam as mofedsam
from fedskew.methods.fedsmoo import fedsmoo as fedsmoo
from fedskew.methods.fedsol import fedsol as fedsol
from fedskew.methods.fedspeed import fedspeed as fedspeed
from fedskew.methods.feduv import feduv as feduv
from fedskew.methods.fedvc import fedvc as fedvc
from fedskew.methods.fedvls import fedvls as fedvls
from fedskew.methods.ifca import ifca as ifca
from fedskew.methods.lgfedavg import lgfedavg as lgfedavg
from fedskew.methods.localonly import localonly as localonly
from fedskew.methods.moon import moon as moon
from fedskew.methods.perfedavg import perfedavg as perfedavg
from fedskew.methods.pfedme import pfedme as pfedme
from fedskew.methods.powerofchoice import powerofchoice as powerofchoice
from fedskew.methods.precisionweighted import precisionweighted as precisionweighted
from fedskew.methods.scaffold import scaffold as scaffold
from fedskew.methods.seolkim import seolkim as seolkim

_OWN: dict[str, Callable[[], Method]] = {n: made for n, made in sorted(globals().items()) if type(made) is FunctionType}
METHODS = plugins.Registry("method", _OWN, Method)

if not TYPE_CHECKING:  # checkers read the imports
    __all__ = ["METHODS", *_OWN]

    def __getattr__(name: str) -> Callable[[], Method]:
        """A method of a plug-in: `fs.methods.mine`."""
        if name.startswith("_") or name not in METHODS:
            raise AttributeError(f"there is no method {name!r}", name=name)
        return METHODS[name]
