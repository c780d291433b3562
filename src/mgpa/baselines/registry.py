"""The table of all methods and their requirements, and construction of methods by name."""

from __future__ import annotations

import difflib
from dataclasses import astuple, fields, replace
from typing import Any

from .._common.markup import rows_html, text_table
from ..estimators.base import MethodTags
from ..estimators.closed_form import ClosedFormMGPA
from ..estimators.iterative import IterativeMGPA
from ..estimators.mgpa import MGPA
from .adapter import AugmentationInvariance
from .calibration_transfer import DS, FEATMAP, PDS, SST
from .conditional import CIRCEHead
from .igbp import IGBP
from .leace import LEACE, SPLINCE, OracleLEACE, QuadraticLEACE
from .mance import MANCE
from .matching import CORAL, ComBat
from .predictors import AwAR, SlopeBias
from .projections import EPO, INLP, NCM, PISCO, Identity
from .riemannian import RiemannianProcrustes, RiemannianRecentring
from .sdda import SDDA
from .signals import CMMN, EuclideanAlignment
from .traveling import TravelingSubjects

# Name, class, reference, and the extra that the method needs beyond `pip install mgpa`.
_METHODS: tuple[tuple[str, Any, str, str], ...] = (
    ("mgpa", MGPA, "this package", ""),
    ("closed_form_mgpa", ClosedFormMGPA, "this package's paper", ""),
    ("iterative_mgpa", IterativeMGPA, "this package's paper", "torch"),
    ("identity", Identity, "no correction", ""),
    ("leace", LEACE, "Belrose et al. 2023", ""),
    ("oracle_leace", OracleLEACE, "Belrose et al. 2023", ""),
    ("quadratic_leace", QuadraticLEACE, "Quirke & Belrose 2025", "baselines"),
    ("splince", SPLINCE, "Holstege et al. 2025", ""),
    ("inlp", INLP, "Ravfogel et al. 2020", ""),
    ("igbp", IGBP, "Iskander et al. 2023", "torch"),
    ("mance", MANCE, "Avitan et al. 2026", "torch"),
    ("ncm", NCM, "Bai et al. 2025", ""),
    ("pisco", PISCO, "Ngweta et al. 2023", ""),
    ("epo", EPO, "Roger et al. 2003", ""),
    ("sst", SST, "Du et al. 2011", ""),
    ("ds", DS, "Wang et al. 1991", ""),
    ("pds", PDS, "Wang et al. 1991", ""),
    ("featmap", FEATMAP, "Donle et al. 2026", ""),
    ("traveling_subjects", TravelingSubjects, "Yamashita et al. 2019", ""),
    ("augmentation_invariance", AugmentationInvariance, "Eikenberry et al. 2026", "torch"),
    ("coral", CORAL, "Sun et al. 2016", ""),
    ("combat", ComBat, "Johnson et al. 2007", ""),
    ("euclidean_alignment", EuclideanAlignment, "He & Wu 2020", ""),
    ("riemannian_recentring", RiemannianRecentring, "Zanini et al. 2018", "baselines"),
    ("riemannian_procrustes", RiemannianProcrustes, "Rodrigues et al. 2019", "baselines"),
    ("cmmn", CMMN, "Gnassounou et al. 2023", ""),
    ("slope_bias", SlopeBias, "Osborne & Fearn 1983", ""),
    ("circe", CIRCEHead, "Pogodin et al. 2023", "torch"),
    ("awar", AwAR, "Wu et al. 2016", ""),
    ("sdda", SDDA, "Liu et al. 2026", "torch"),
)


class MethodTable(tuple[MethodTags, ...]):
    """Methods, printed as a table; ``pandas.DataFrame(list_methods())`` converts them to a data frame."""

    __slots__ = ()

    def _cells(self) -> list[list[str]]:
        def text(value: Any) -> str:
            return ("yes" if value else "-") if isinstance(value, bool) else str(value) or "-"

        names = [field.name.replace("_", " ") for field in fields(MethodTags)]
        return [names, *(list(map(text, astuple(method))) for method in self)]

    def _repr_html_(self) -> str:
        return rows_html(self._cells())

    def __str__(self) -> str:
        head, *lines = text_table(self._cells())
        return "\n".join([head, "-" * len(head), *lines])

    __repr__ = __str__


def list_methods() -> MethodTable:
    """Return all methods with their requirements for fitting and application.

    Examples
    --------
    >>> [method.name for method in list_methods() if method.needs_pairs and method.source_blind]
    ['mgpa', 'closed_form_mgpa', 'iterative_mgpa', 'ncm', 'pisco', 'epo', 'augmentation_invariance']
    """
    return MethodTable(
        replace(cls.tags, name=name, streams=hasattr(cls, "partial_fit"), extra=extra, reference=reference)
        for name, cls, reference, extra in _METHODS
    )


def references() -> dict[str, str]:
    """Return the reference of each method by class name, as stored in maps."""
    return {cls.__name__: reference for _, cls, reference, _ in _METHODS}


def canonical_name(name: Any) -> str:
    """Return a name in the listed form: lower case with underscores ("closed_form_mgpa")."""
    return str(name).lower().replace("-", "_").replace(" ", "_")


def make_method(name: str, **params: Any) -> Any:
    """Return an unfitted estimator by its name in :func:`list_methods`; case and hyphens do not matter.

    Examples
    --------
    >>> make_method("leace", ridge=0.1)
    LEACE(ridge=0.1)
    """
    classes = {entry: cls for entry, cls, _, _ in _METHODS}
    key = canonical_name(name)
    if key not in classes:
        close = difflib.get_close_matches(key, classes, n=3)
        hint = f" Did you mean {' or '.join(close)}?" if close else ""
        raise ValueError(f"No method {name!r}.{hint} Available: {', '.join(classes)}.")
    return classes[key](**params)
