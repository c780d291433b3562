"""An audit as one HTML file that opens offline, in a notebook, as a LaTeX table and as CSV.

The HTML has the verdict, every number and every chart in it without a script; the script highlights, sorts
and changes the theme. Names of methods, sources and participants are other people's text, and are escaped.
"""

from __future__ import annotations

from .page import html_report, inline_verdict, report
from .tables import contrast_csv, csv_table, latex_table

__all__ = [
    "contrast_csv",
    "csv_table",
    "html_report",
    "inline_verdict",
    "latex_table",
    "report",
]
