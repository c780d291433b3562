"""Oracle LEACE: erase the source's mean shift when the source of each row is known (Belrose et al. 2023)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from .._common.parameters import Constraint
from ..estimators.streamed import Evidence
from ..maps import RoutedMap
from ._base import SourceAware, routed_map


class OracleLEACE(SourceAware):
    """Replace each source's mean by the common mean: given labels, the least edit without linear trace.

    Reference: Belrose et al., NeurIPS 2023 and the EleutherAI note "Oracle LEACE". The regression on source
    indicators it is defined by is a shift of means, so nothing of the ``concept-erasure`` package is
    needed; equal to its ``OracleFitter`` (whose cut-off of .01 drops rare sources; this does not).

    Needs source labels, also at application. No pairs, no task.

    What it cannot do: correct a row of an unknown or unseen source. It shifts means only: differences in
    spread stay, and the authors warn that a nonlinear reader may find the source more easily afterwards.
    A difference of population between the sources is removed like any other.
    """

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {}

    def _solve(self, data: Evidence) -> RoutedMap:
        data.require_sources()
        standardizer, moments = data.standardizer(True), data.moments
        shifts = (moments.mean - moments.means) / standardizer.scale
        unscaled = np.ones(len(standardizer.scale))
        transports = [(unscaled, np.zeros_like(shift), shift) for shift in shifts]
        return routed_map(standardizer, transports, self._evidence_info(data))
