"""An audit in a notebook: the verdict with its table, or the whole report in a frame."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from ..looks import label
from ..metrics import METRICS
from ..result import Audit
from .page import html_report
from .pieces import bullets, plain_table
from .verdict import ALONE, ranking, spoken


def inline_verdict(audit: Audit) -> str:
    """Return what is best, the table of estimates, and the rest folded away; without a script."""
    (_, best), blocks = ranking(audit), spoken(audit)
    first = max(1, len(best))
    parts = [f"<p><strong>{escape(warning)}</strong></p>" for warning in audit.warnings]
    for head, sentences in blocks[:first]:
        said = sentences if head == ALONE else sentences[:1]
        parts.append(f"<p><strong>{escape(head)}</strong></p>{bullets(said)}")
    columns = ["Method", *(f"{METRICS[m].subject}: {METRICS[m].wanted}" for m in audit.columns)]
    space = "\N{NO-BREAK SPACE}"  # an interval stays in one line
    rows = [
        [label(name), *(f"{found[m]:.3f}".replace(" ", space) if m in found else "–" for m in audit.columns)]
        for name, found in audit.estimates.items()
    ]
    parts.append(plain_table(columns, rows, "Means over EVAL participants, with 95 % intervals"))
    parts += [
        f"<details><summary>{escape(head)}</summary>{bullets(sentences)}</details>"
        for head, sentences in blocks
    ]
    return f'<div class="mgpa">{"".join(parts)}</div>'


@dataclass(frozen=True)
class InlineReport:
    """The report of an audit, which a notebook shows in a frame of its own."""

    audit: Audit
    height: int = 800

    def _repr_html_(self) -> str:
        # In a sandbox: its script draws charts, and reaches nothing of the notebook.
        page = escape(html_report(self.audit), quote=True)
        return (
            f'<iframe srcdoc="{page}" sandbox="allow-scripts" title="Audit report" width="100%" '
            f'height="{int(self.height)}" style="border: 0"></iframe>'
        )
