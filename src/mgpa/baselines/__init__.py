"""Every method MGPA is compared with, under one interface: ``fit(X, y, source=, pairs=)``, ``transform``.

:func:`available` lists them with what each needs; :func:`make` builds one by name.
"""

from __future__ import annotations

from .calibration_transfer import FEATMAP, PDS, SST
from .igbp import IGBP
from .leace import LEACE, SPLINCE, OracleLEACE, QuadraticLEACE
from .matching import CORAL, ComBat
from .projections import EPO, INLP, NCM, PISCO, Identity
from .registry import MethodTable, available, make
from .signals import EuclideanAlignment

__all__ = [
    "CORAL",
    "EPO",
    "FEATMAP",
    "IGBP",
    "INLP",
    "LEACE",
    "NCM",
    "PDS",
    "PISCO",
    "SPLINCE",
    "SST",
    "ComBat",
    "EuclideanAlignment",
    "Identity",
    "MethodTable",
    "OracleLEACE",
    "QuadraticLEACE",
    "available",
    "make",
]
