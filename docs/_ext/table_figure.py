"""A figure of the page's own tables: one panel per table, one mark per method."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import shorten

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

ALT = "Each method as a mark: accuracy at home against accuracy away. The tables below have the numbers."
# Whose colour and marker a method has, where its name is not the palette's.
GIVEN = "paired regression (source given)"
KEYS = {"closed form": "closed_form_mgpa", GIVEN: "featmap"}

Means = dict[str, tuple[float, float]]


def cells(line: str) -> list[str]:
    """Return a table row's cells without bold."""
    return [cell.strip().strip("*") for cell in line.strip().strip("|").split("|")]


def means_of(text: str) -> dict[str, Means]:
    """Return accuracies at home and away of every table of methods, by the bold words above and by method."""
    found: dict[str, Means] = {}
    for title, table in re.findall(r"^\*\*([^*]+)\*\*[^|]*?\n\n(\|(?:.*\n)+?)(?=\n)", text, re.MULTILINE):
        head, _, *rows = map(cells, table.splitlines())
        if head[:3] == ["method", "home", "away"]:
            means = {row[0]: (float(row[1]), float(row[2])) for row in rows}
            if max(away for _, away in means.values()) <= 1:  # else an error, not an accuracy
                found[title] = means
    return found


def draw(tables: dict[str, Means]) -> bytes:
    """Return accuracy at home against away, one panel per table, as SVG."""
    from mgpa.audit.plots import colour_of, style
    from mgpa.audit.plots.drawing import canvas, figure_bytes
    from mgpa.audit.plots.palette import marker_of

    with style():
        figure, axes = canvas(6.2, 2.3, len(tables), 2, extra=0.6)
        for ax, (title, means) in zip(axes, tables.items(), strict=True):
            for name, (home, away) in means.items():
                key = KEYS.get(name, name.lower())
                color = colour_of(key)
                face = "white" if name == GIVEN else color
                ax.plot(home, away, marker_of(key), color=color, mfc=face, ls="", ms=6, label=name)
            ax.set_title(shorten(title, 38, placeholder=" …"), loc="left")
            ax.set(xlabel="accuracy at home", ylabel="accuracy away")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=5)
        return figure_bytes(figure)


class TableFigure(Directive):
    """Draw the tables of the page it stands on."""

    def run(self) -> list[nodes.Node]:
        """Return the picture."""
        from mgpa.audit.report import themed

        page = Path(self.state.document.settings.env.doc2path(self.state.document.settings.env.docname))
        text = page.read_text("utf-8")
        tables = means_of(text)
        if not tables:
            raise self.error(f"{page.name} has no tables of methods with home and away")
        svg = themed(draw(tables), f"{page.stem}-means", ALT)
        return [nodes.raw("", f'<figure class="mgpa-figure">{svg}</figure>', format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("table-figure", TableFigure)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
