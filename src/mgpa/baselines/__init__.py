"""Correction methods for comparison, with a common interface: ``fit(X, y, source=, pairs=)``, ``transform``.

:func:`list_methods` lists the methods and their requirements; :func:`make_method` builds a method by name.
"""

from __future__ import annotations

from .adapter import AugmentationInvariance
from .calibration_transfer import DS, FEATMAP, PDS, SST
from .conditional import CIRCEHead, ConditionalDependence, circe
from .igbp import IGBP
from .leace import LEACE, SPLINCE, OracleLEACE, QuadraticLEACE
from .mance import MANCE
from .matching import CORAL, ComBat
from .predictors import AwAR, SlopeBias, task_scores, transfer_scores
from .projections import EPO, INLP, NCM, PISCO, Identity
from .registry import MethodTable, list_methods, make_method
from .riemannian import RiemannianProcrustes, RiemannianRecentring
from .sdda import SDDA
from .signals import CMMN, EuclideanAlignment
from .traveling import SourceSplit, TravelingSubjects, split_source_difference

__all__ = [
    "CMMN",
    "CORAL",
    "DS",
    "EPO",
    "FEATMAP",
    "IGBP",
    "INLP",
    "LEACE",
    "MANCE",
    "NCM",
    "PDS",
    "PISCO",
    "SDDA",
    "SPLINCE",
    "SST",
    "AugmentationInvariance",
    "AwAR",
    "CIRCEHead",
    "ComBat",
    "ConditionalDependence",
    "EuclideanAlignment",
    "Identity",
    "MethodTable",
    "OracleLEACE",
    "QuadraticLEACE",
    "RiemannianProcrustes",
    "RiemannianRecentring",
    "SlopeBias",
    "SourceSplit",
    "TravelingSubjects",
    "circe",
    "list_methods",
    "make_method",
    "split_source_difference",
    "task_scores",
    "transfer_scores",
]
