"""Audits: measure the effect, cost and uncertainty of any correction with the paper's protocol.

:func:`run` measures methods on a table; its steps are also available as functions. Importing this package
loads nothing; each name imports only the modules that it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._common.extras import lazy_names

if TYPE_CHECKING:
    from .association import (
        assign_endpoints,
        assignment_probability,
        association_auroc,
        fit_association_heads,
    )
    from .bootstrap import (
        contrast,
        curve_coefficients,
        curve_minimum,
        estimate,
    )
    from .diagnostics import PairCheck, check_pairs, cramers_v
    from .estimates import Estimate
    from .heads import fit_heads, ridge_head, transfer_scores
    from .information import SourceInformation, identity_auroc, source_information
    from .measure import movement_by_group
    from .method_result import MethodResult
    from .metrics import METRICS, Metric, find_metric
    from .plan import AuditPlan
    from .protocol import run
    from .ranks import participant_auroc, twin_accuracy
    from .readers import run_readers, run_readers_on_each, run_residual_readers, run_token_readers
    from .result import Audit
    from .scorer import source_scorer

_HOMES: dict[str, tuple[str, ...]] = {
    ".association": (
        "assign_endpoints",
        "assignment_probability",
        "association_auroc",
        "fit_association_heads",
    ),
    ".bootstrap": ("contrast", "curve_coefficients", "curve_minimum", "estimate"),
    ".diagnostics": ("PairCheck", "check_pairs", "cramers_v"),
    ".estimates": ("Estimate",),
    ".heads": ("fit_heads", "ridge_head", "transfer_scores"),
    ".information": ("SourceInformation", "identity_auroc", "source_information"),
    ".measure": ("movement_by_group",),
    ".method_result": ("MethodResult",),
    ".metrics": ("METRICS", "Metric", "find_metric"),
    ".plan": ("AuditPlan",),
    ".protocol": ("run",),
    ".ranks": ("participant_auroc", "twin_accuracy"),
    ".readers": ("run_readers_on_each", "run_residual_readers", "run_readers", "run_token_readers"),
    ".result": ("Audit",),
    ".scorer": ("source_scorer",),
}

__all__ = [
    "METRICS", "Audit", "AuditPlan", "Estimate", "MethodResult", "Metric", "PairCheck", "SourceInformation",
    "assign_endpoints", "assignment_probability", "association_auroc", "check_pairs", "contrast",
    "cramers_v", "curve_coefficients", "curve_minimum", "estimate", "find_metric", "fit_association_heads",
    "fit_heads", "identity_auroc", "movement_by_group", "participant_auroc", "ridge_head", "run",
    "run_readers", "run_readers_on_each", "run_residual_readers", "run_token_readers", "source_information",
    "source_scorer", "transfer_scores", "twin_accuracy",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
