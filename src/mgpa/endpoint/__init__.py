"""Operating points: how much of a fitted correction to apply (section 4.3, appendix B).

Native applies the whole map. A movement budget stops where held-out rows have moved by a given share. The
development rule of the reuse study picks the point with the best worst-association AUROC among those that
cost no head more than .01.
"""

from ..errors import BudgetNotAttained
from .budget import Endpoint, movement, movement_budget, native, relative_movement, stage_movement
from .development import STRENGTHS, operating_points, select_by_development, select_within_family

__all__ = [
    "STRENGTHS",
    "BudgetNotAttained",
    "Endpoint",
    "movement",
    "movement_budget",
    "native",
    "operating_points",
    "relative_movement",
    "select_by_development",
    "select_within_family",
    "stage_movement",
]
