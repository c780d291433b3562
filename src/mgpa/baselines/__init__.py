"""Every method MGPA is compared with, under one interface: ``fit(X, y, source=, pairs=)``, ``transform``.

:func:`available` lists them with what each needs; :func:`make` builds one by name.
"""

from __future__ import annotations

from .calibration_transfer import EPO, PDS, SST
from .combat import ComBat
from .coral import CORAL
from .euclidean_alignment import EuclideanAlignment
from .featmap import FEATMAP
from .identity import Identity
from .igbp import IGBP
from .inlp import INLP
from .leace import LEACE
from .mance import MANCE
from .monge import CMMN
from .ncm import NCM
from .oracle_leace import OracleLEACE
from .pisco import PISCO
from .quadratic_leace import QuadraticLEACE
from .registry import Method, MethodTable, available, make
from .riemannian_procrustes import RiemannianProcrustes
from .splince import SPLINCE

__all__ = [
    "CMMN",
    "CORAL",
    "EPO",
    "FEATMAP",
    "IGBP",
    "INLP",
    "LEACE",
    "MANCE",
    "NCM",
    "PDS",
    "PISCO",
    "SPLINCE",
    "SST",
    "ComBat",
    "EuclideanAlignment",
    "Identity",
    "Method",
    "MethodTable",
    "OracleLEACE",
    "QuadraticLEACE",
    "RiemannianProcrustes",
    "available",
    "make",
]
