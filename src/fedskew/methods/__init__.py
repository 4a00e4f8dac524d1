"""Every method by name. A new one is a file and a row here."""

from collections.abc import Callable

from fedskew.method import Method
from fedskew.methods import centralised as centralised  # its parts belong to no method of their own
from fedskew.methods.apfl import apfl
from fedskew.methods.astraea import astraea
from fedskew.methods.balancefl import balancefl
from fedskew.methods.ccvr import ccvr
from fedskew.methods.climb import climb
from fedskew.methods.clusteredsampling import clusteredsampling
from fedskew.methods.creff import creff
from fedskew.methods.ditto import ditto
from fedskew.methods.fedacg import fedacg
from fedskew.methods.fedamp import fedamp
from fedskew.methods.fedavg import fedavg
from fedskew.methods.fedbabu import fedbabu
from fedskew.methods.fedbal import fedbal
from fedskew.methods.fedbn import fedbn
from fedskew.methods.fedcm import fedcm
from fedskew.methods.fedcurv import fedcurv
from fedskew.methods.feddecorr import feddecorr
from fedskew.methods.feddisco import feddisco
from fedskew.methods.feddyn import feddyn
from fedskew.methods.fedetf import fedetf
from fedskew.methods.fedexp import fedexp
from fedskew.methods.fedfocal import fedfocal
from fedskew.methods.fedga import fedga
from fedskew.methods.fedgc import fedgc
from fedskew.methods.fedgr import fedgr
from fedskew.methods.fedgrab import fedgrab
from fedskew.methods.fedir import fedir
from fedskew.methods.fedla import fedla
from fedskew.methods.fedlc import fedlc
from fedskew.methods.fedlesam import fedlesam
from fedskew.methods.fedloge import fedloge
from fedskew.methods.fedmlb import fedmlb
from fedskew.methods.fednh import fednh
from fedskew.methods.fednova import fednova
from fedskew.methods.fedntd import fedntd
from fedskew.methods.fedopt import fedadagrad, fedadam, fedavgm, fedyogi
from fedskew.methods.fedpals import fedpals
from fedskew.methods.fedper import fedper
from fedskew.methods.fedprox import fedprox
from fedskew.methods.fedrep import fedrep
from fedskew.methods.fedrl import fedrl
from fedskew.methods.fedrod import fedrod
from fedskew.methods.fedrs import fedrs
from fedskew.methods.fedsam import fedsam, mofedsam
from fedskew.methods.fedsmoo import fedsmoo
from fedskew.methods.fedsol import fedsol
from fedskew.methods.fedspeed import fedspeed
from fedskew.methods.feduv import feduv
from fedskew.methods.fedvc import fedvc
from fedskew.methods.fedvls import fedvls
from fedskew.methods.ifca import ifca
from fedskew.methods.lgfedavg import lgfedavg
from fedskew.methods.localonly import localonly
from fedskew.methods.moon import moon
from fedskew.methods.perfedavg import perfedavg
from fedskew.methods.pfedme import pfedme
from fedskew.methods.powerofchoice import powerofchoice
from fedskew.methods.precisionweighted import precisionweighted
from fedskew.methods.scaffold import scaffold
from fedskew.methods.seolkim import seolkim

METHODS: dict[str, Callable[[], Method]] = {
    "apfl": apfl,
    "astraea": astraea,
    "balancefl": balancefl,
    "ccvr": ccvr,
    "climb": climb,
    "clusteredsampling": clusteredsampling,
    "creff": creff,
    "ditto": ditto,
    "fedacg": fedacg,
    "fedadagrad": fedadagrad,
    "fedadam": fedadam,
    "fedamp": fedamp,
    "fedavg": fedavg,
    "fedavgm": fedavgm,
    "fedbabu": fedbabu,
    "fedbal": fedbal,
    "fedbn": fedbn,
    "fedcm": fedcm,
    "fedcurv": fedcurv,
    "feddecorr": feddecorr,
    "feddisco": feddisco,
    "feddyn": feddyn,
    "fedetf": fedetf,
    "fedexp": fedexp,
    "fedfocal": fedfocal,
    "fedga": fedga,
    "fedgc": fedgc,
    "fedgr": fedgr,
    "fedgrab": fedgrab,
    "fedir": fedir,
    "fedla": fedla,
    "fedlc": fedlc,
    "fedlesam": fedlesam,
    "fedloge": fedloge,
    "fedmlb": fedmlb,
    "fednh": fednh,
    "fednova": fednova,
    "fedntd": fedntd,
    "fedpals": fedpals,
    "fedper": fedper,
    "fedprox": fedprox,
    "fedrep": fedrep,
    "fedrl": fedrl,
    "fedrod": fedrod,
    "fedrs": fedrs,
    "fedsam": fedsam,
    "fedsmoo": fedsmoo,
    "fedsol": fedsol,
    "fedspeed": fedspeed,
    "feduv": feduv,
    "fedvc": fedvc,
    "fedvls": fedvls,
    "fedyogi": fedyogi,
    "ifca": ifca,
    "lgfedavg": lgfedavg,
    "localonly": localonly,
    "mofedsam": mofedsam,
    "moon": moon,
    "perfedavg": perfedavg,
    "pfedme": pfedme,
    "powerofchoice": powerofchoice,
    "precisionweighted": precisionweighted,
    "scaffold": scaffold,
    "seolkim": seolkim,
}

__all__ = ["METHODS", *sorted(METHODS)]
