"""A figure of the page's own tables: each table's row of means, one mark per method."""

from __future__ import annotations

import re
from io import BytesIO
from pathlib import Path
from textwrap import shorten

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

ALT = "Each method as a mark: source readable against task kept. The tables below have the numbers."
TOLD = ", told"
# Whose colour and marker a column has, where its name is not a method's.
KEYS = {
    "uncorrected": "identity", "paper, closed form": "pds", "paper, 48 stages": "iterative_mgpa",
    "closed form": "closed_form_mgpa",
}  # fmt: skip

Means = dict[str, tuple[float, float]]


def cells(line: str) -> list[str]:
    """Return a table row's cells without bold."""
    return [cell.strip().strip("*") for cell in line.strip().strip("|").split("|")]


def means_of(text: str) -> dict[str, Means]:
    """Return the first two numbers of every table's row of means, by the bold words above and by method."""
    found: dict[str, Means] = {}
    for title, table in re.findall(r"^\*\*([^*]+)\*\*[^|]*?\n\n(\|(?:.*\n)+?)(?=\n)", text, re.MULTILINE):
        head, _, *rows = table.splitlines()
        mean = next((cells(row) for row in rows if cells(row)[0] == "mean"), None)
        if mean is None or "uncorrected" not in head:
            continue
        values = [[float(v) for v in cell.split("/")] for cell in mean[1:]]
        found[title] = {
            name: (parts[0], parts[1]) for name, parts in zip(cells(head)[1:], values, strict=True)
        }
    return found


def draw(tables: dict[str, Means]) -> bytes:
    """Return source readable against task kept, one panel per table, as SVG."""
    from mgpa.audit.plots import colour_of, style
    from mgpa.audit.plots.drawing import CHANCE, canvas
    from mgpa.audit.plots.palette import marker_of

    with style():
        figure, axes = canvas(6.2, 2.3, len(tables), 2, extra=0.6)
        for ax, (title, means) in zip(axes, tables.items(), strict=True):
            for name, (S, task) in means.items():
                method = name.removesuffix(TOLD)
                key = KEYS.get(method, method.lower())
                color = colour_of(key)
                face = "white" if name.endswith(TOLD) else color
                ax.plot(S, task, marker_of(key), color=color, mfc=face, ls="", ms=6, label=name)
            ax.axvline(0.5, **CHANCE)
            ax.set_title(shorten(title, 38, placeholder=" …"), loc="left")
            ax.set(xlabel="source readable, S", ylabel="existing heads, T_f")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=5)
        stream = BytesIO()
        figure.savefig(stream, format="svg", metadata={"Date": None})
    return stream.getvalue()


class TableFigure(Directive):
    """Draw the tables of the page it stands on."""

    def run(self) -> list[nodes.Node]:
        """Return the picture."""
        from mgpa.audit.report import themed

        page = Path(self.state.document.settings.env.doc2path(self.state.document.settings.env.docname))
        text = page.read_text("utf-8")
        tables = means_of(text)
        if not tables or "S / T_f" not in text:
            raise self.error(f"{page.name} has no tables with means of S / T_f")
        svg = themed(draw(tables), f"{page.stem}-means", ALT)
        return [nodes.raw("", f'<figure class="mgpa-figure">{svg}</figure>', format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("table-figure", TableFigure)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
