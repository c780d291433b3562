"""SPLINCE: LEACE that leaves the covariance with a given task untouched (Holstege et al. 2025)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from .._common.parameters import Constraint
from ..estimators.base import MethodTags
from ..estimators.streamed import Evidence, MomentEstimator
from ..maps import AffineMap
from ..moments import PrincipalAxes
from ._base import Floats, blind_map
from .leace import NO_EFFECT, source_covariance

# Singular values below this share of the largest are rounding.
RELATIVE_RANK = 1e-8


def oblique_erasure(covariance: PrincipalAxes, source: Floats, task: Floats) -> tuple[Floats, Floats, float]:
    """Return readout, direction and the sine of the smallest angle between source and task.

    In whitened coordinates, Z the span of source covariances and Y that of task covariances, the least
    edit with kernel Z that fixes Y is I - B_z (B_z'N B_z)⁻¹ B_z'N with N = I - B_y B_y'.
    """
    root = np.sqrt(covariance.values)[:, None]
    B_z, B_y = _span(covariance.along(source) / root), _span(covariance.along(task) / root)
    free = B_z - B_y @ (B_y.T @ B_z)
    inner = B_z.T @ free
    sine = float(np.sqrt(max(np.linalg.eigvalsh(inner)[0], 0.0))) if inner.size else 1.0
    if sine < 1e-6:
        raise ValueError(
            "SPLINCE has no solution here: in these rows source and task vary along a common direction, so "
            "no edit can remove the one and keep the other. Use rows in which they are less associated, "
            "LEACE (which then removes task too), or MGPA, which relies on pairs instead."
        )
    direction = np.asarray(np.linalg.solve(inner, B_z.T).T if inner.size else B_z, np.float64)
    return covariance.back(free / root), covariance.back(direction * root), sine


def _span(columns: Floats) -> Floats:
    U, values, _ = np.linalg.svd(columns, full_matrices=False)
    return np.asarray(U[:, values > max(RELATIVE_RANK * values.max(initial=0.0), NO_EFFECT**0.5)])


class SPLINCE(MomentEstimator):
    """Remove every linear trace of the source while the covariance with a task label stays exactly the same.

    Reference: Holstege, Ravfogel, Wouters, "Preserving task-relevant information under linear concept
    removal", NeurIPS 2025 (arXiv 2506.10703). Written here from its derivation.

    Needs source labels and task labels y, in fit only. No pairs. Source-blind at application.

    What it cannot do: preserve a task it was not told, or serve several tasks with one map. The more source
    and task align, the larger its movement; where they vary along one direction it has no solution and
    says so. A refitted linear head sees the same as after LEACE: the gain is for frozen or regularised heads.
    """

    tags: ClassVar[MethodTags] = MethodTags(source_blind=True, needs_task=True)

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {}

    def _solve(self, data: Evidence) -> AffineMap:
        data.require_sources()
        labels = [label for label, (weight, _) in data.task.parts.items() if weight]
        if len(labels) < 2:
            raise ValueError(f"y has 1 distinct value ({labels[0]!r}); a task needs at least two.")
        standardizer, mean = data.standardizer(True), data.moments.mean
        scale = standardizer.scale
        covariance, source = source_covariance(data, scale)
        total = data.moments.weights.sum()
        task = np.stack([w / total * (part - mean) / scale for w, part in data.task.parts.values()], axis=1)
        readout, direction, _ = oblique_erasure(covariance, source, task[:, 1:])
        info = self._evidence_info(data)
        return blind_map(standardizer, mean, readout, direction, info)
