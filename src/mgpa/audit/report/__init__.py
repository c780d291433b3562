"""An audit as one HTML file that opens offline, as a LaTeX table and as CSV; and a map as such a file.

The HTML has the verdict and every number in it as text; its script only draws charts from the same numbers.
Names of methods, sources and participants are other people's text, and are escaped wherever they go.
"""

from __future__ import annotations

from .data import chart_data
from .map_page import Motion, html_map, motion
from .notebook import InlineReport, inline_verdict
from .page import html_report
from .settings import snippet
from .tables import contrast_csv, csv_table, latex_table
from .verdict import ranking, verdict_text

__all__ = [
    "InlineReport",
    "Motion",
    "chart_data",
    "contrast_csv",
    "csv_table",
    "html_map",
    "html_report",
    "inline_verdict",
    "latex_table",
    "motion",
    "ranking",
    "snippet",
    "verdict_text",
]
