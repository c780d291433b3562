"""A figure of one of the page's own tables: values with intervals, a row a mark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from docutils import nodes
from docutils.parsers.rst import Directive, directives
from sphinx.application import Sphinx
from table_figure import cells

NUMBER = r"([+-]?\d*\.?\d+)"
# A number, perhaps with an interval; one with a unit of time is no value.
CELL = re.compile(rf"{NUMBER}(?![\d.]* ?[mµ]?s\b)(?:\s*\[{NUMBER}, {NUMBER}\])?")
# Whose colour and marker a row has, where its name is not the palette's.
KEYS = {
    "mgpa-cf": "closed_form_mgpa",
    "mgpa-iter": "iterative_mgpa",
    "mgpa, closed form": "closed_form_mgpa",
    "uncorrected": "identity",
    "uncorrected rows": "identity",
    "no alignment": "identity",
    "closed form": "closed_form_mgpa",
    "iterative": "iterative_mgpa",
    "mance++": "mance",
    "travelling subjects": "traveling_subjects",
    "slope and bias of the predictions": "slope_bias",
    "source given": "featmap",
}


class Cell(NamedTuple):
    """A value and the ends of its interval, which are the value itself where there is none."""

    value: float
    low: float
    high: float


Table = tuple[list[str], dict[str, list[Cell | None]]]


def read_cell(text: str) -> Cell | None:
    """Return the number at the start of a cell with its interval; None for words."""
    match = CELL.match(text.replace("−", "-"))
    if match is None:
        return None
    value, low, high = (float(part) if part else float(match[1]) for part in match.groups())
    return Cell(value, low, high)


def table_below(text: str, marker: str) -> Table:
    """Return the columns' names and the rows of the first table below a line that begins with it.

    A row is called by its first cell; where several rows have the same, also by those before its numbers.
    """
    start = re.search(rf"^(?:#+ |\*\*)?{re.escape(marker)}", text, re.MULTILINE)
    if start is None:
        raise ValueError(f"no line begins with {marker!r}")
    table = re.search(r"(?:^\|.*\n)+", text[start.start() :], re.MULTILINE)
    if table is None:
        raise ValueError(f"no table below {marker!r}")
    head, _, *rows = map(cells, table[0].replace("`", "").strip().splitlines())
    numbers = [any(read_cell(row[k]) for row in rows) for k in range(1, len(head))]
    first = 1 + numbers.index(True)
    names = [row[0] for row in rows]
    read = {
        name if names.count(name) == 1 else ", ".join(row[:first]): [read_cell(cell) for cell in row[first:]]
        for name, row in zip(names, rows, strict=True)
    }
    return head[first:], {name: row for name, row in read.items() if any(row)}


def known_methods() -> set[str]:
    """Return the names of all methods, and of the identity."""
    from mgpa.baselines import list_methods

    return {"identity", *(method.name for method in list_methods())}


def key_of(row: str) -> str:
    """Return the name that gives a row its colour and marker: of the parts of its name, the first method."""
    from mgpa.baselines.registry import canonical_name

    name = re.sub(r" (→|\().*", "", row.lower().replace("()", ""))
    parts = [canonical_name(KEYS.get(part, part)) for part in (name, *name.split(", "))]
    longest = sorted(known_methods(), key=len, reverse=True)
    return next((m for part in parts for m in longest if f"{part}_".startswith(f"{m}_")), parts[0])


def draw_panels(columns: Sequence[str], rows: dict[str, list[Cell | None]]) -> bytes:
    """Return one panel for each column, a row for each method, and a line where nothing is corrected."""
    from mgpa.audit.plots import PAGE, colour_of, style
    from mgpa.audit.plots.drawing import canvas, figure_bytes, plain
    from mgpa.audit.plots.drawing import rows as plain_rows
    from mgpa.audit.plots.palette import marker_of

    with style():
        figure, axes = canvas(PAGE, 0.17 * len(rows) + 0.5, len(columns), len(columns), sharey=True)
        for k, (ax, column) in enumerate(zip(axes, columns, strict=True)):
            for y, (name, row) in enumerate(rows.items()):
                if (cell := row[k]) is not None:
                    color = colour_of(key_of(name))
                    told = re.search("→|given|source-aware", name)
                    face = "white" if told else color
                    ax.plot([cell.low, cell.high], [y, y], color=color, lw=1.2)
                    ax.plot(cell.value, y, marker_of(key_of(name)), color=color, mfc=face, ms=4.5)
            name, first = next((name, row[k]) for name, row in rows.items())
            if first is not None and key_of(name) == "identity":
                ax.axvline(first.value, color="#666666", ls=":", lw=0.8, zorder=0)
            ax.set_title(plain(column), fontsize=7, loc="left")
            plain_rows(ax)
        axes[0].set_yticks(range(len(rows)), [plain(name) for name in rows])
        axes[0].set_ylim(len(rows) - 0.5, -0.5)
        return figure_bytes(figure)


def draw_beside(columns: Sequence[str], rows: dict[str, list[Cell | None]]) -> bytes:
    """Return one panel in which each row has a mark for every column; methods keep their colours."""
    from mgpa.audit.plots import PAGE, SOURCE_COLORS, colour_of, style
    from mgpa.audit.plots.drawing import canvas, figure_bytes, plain
    from mgpa.audit.plots.drawing import rows as plain_rows

    with style():
        figure, [ax] = canvas(PAGE, 0.25 * len(rows) + 0.6)
        for k, (column, marker) in enumerate(zip(columns, "oDs^", strict=False)):
            label: str | None = plain(column)
            method = key_of(column) if key_of(column) in known_methods() else ""
            color = colour_of(method) if method else SOURCE_COLORS[k]
            face = "white" if "given" in column else color
            for y, row in enumerate(rows.values()):
                if (cell := row[k]) is not None:
                    at = y + 0.22 * (k - (len(columns) - 1) / 2)
                    ax.plot([cell.low, cell.high], [at, at], color=color, lw=1.2)
                    ax.plot(cell.value, at, marker, color=color, mfc=face, ms=4.5, label=label)
                    label = None
        if min(cell.low for row in rows.values() for cell in row if cell is not None) < 0:
            ax.axvline(0, color="#666666", ls=":", lw=0.8, zorder=0)
        plain_rows(ax)
        ax.set_yticks(range(len(rows)), [plain(name) for name in rows])
        ax.set_ylim(len(rows) - 0.5, -0.5)
        figure.legend(loc="outside lower center", ncols=len(columns))
        return figure_bytes(figure)


def draw_lines(columns: Sequence[str], rows: dict[str, list[Cell | None]]) -> bytes:
    """Return one panel for each measure, over the rows in their order; "method: measure" heads columns."""
    from mgpa.audit.plots import PAGE, colour_of, style
    from mgpa.audit.plots.drawing import canvas, figure_bytes, grid, plain
    from mgpa.audit.plots.palette import marker_of

    series, method = [], ""  # "MGPA-CF: S", "T_f", "worst", "MGPA-Iter: S", …
    for k, column in enumerate(columns):
        method, measure = column.split(": ") if ": " in column else (method, column)
        series.append((method, measure, [row[k].value if row[k] else float("nan") for row in rows.values()]))  # type: ignore[union-attr]
    measures = list(dict.fromkeys(measure for _, measure, _ in series))
    with style():
        figure, axes = canvas(PAGE, 1.7, len(measures), len(measures), extra=0.3)
        for name, measure, values in series:
            ax, key = axes[measures.index(measure)], key_of(name)
            ax.plot(range(len(rows)), values, f"{marker_of(key)}-", color=colour_of(key), label=plain(name))
            ax.set_title(plain(measure), loc="left")
            ax.set_xticks(range(len(rows)), [plain(name.split(" (")[0]) for name in rows])
            grid(ax, "y")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        return figure_bytes(figure)


def draw_aims(columns: Sequence[str], rows: dict[str, list[Cell | None]]) -> bytes:
    """Return ratios as dots and their aims as lines, on one logarithmic axis."""
    from mgpa.audit.plots import COLORS, PAGE, style
    from mgpa.audit.plots.drawing import canvas, figure_bytes, plain
    from mgpa.audit.plots.drawing import rows as plain_rows

    ratio, aim = columns.index("ratio"), columns.index("aim")
    with style():
        figure, [ax] = canvas(PAGE, 0.17 * len(rows) + 0.6)
        for y, (name, row) in enumerate(rows.items()):
            if (value := row[ratio]) is not None:
                ax.plot(value.value, y, "o", color=COLORS[1], ms=4.5, label="" if y else "measured")
            if (wanted := row[aim]) is not None:
                ax.plot(wanted.value, y, "|", color=COLORS[0], ms=9, mew=1.6, label="" if y else "aim")
            ax.text(-0.01, y, plain(name), ha="right", va="center", transform=ax.get_yaxis_transform())
        plain_rows(ax)
        ax.set(xscale="log", yticks=[], ylim=(len(rows) - 0.5, -0.5), xlabel="times the bare work")
        ax.set_xticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
        ax.minorticks_off()
        figure.legend(loc="outside lower center", ncols=2)
        return figure_bytes(figure)


DRAWN = {"panels": draw_panels, "beside": draw_beside, "lines": draw_lines, "aims": draw_aims}


class IntervalFigure(Directive):
    """Draw the first table below a heading, or below a line in bold, of the page it stands on."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar = {
        "alt": directives.unchanged_required,
        "columns": directives.unchanged_required,
        "as": lambda text: directives.choice(text, tuple(DRAWN)),
    }

    def run(self) -> list[nodes.Node]:
        """Return the picture."""
        from mgpa.audit.report import themed

        page = Path(self.state.document.settings.env.doc2path(self.state.document.settings.env.docname))
        marker = self.arguments[0]
        try:
            columns, rows = table_below(page.read_text("utf-8"), marker)
        except ValueError as error:
            raise self.error(f"{page.name}: {error}") from None
        if only := self.options.get("columns"):
            wanted = [name.strip() for name in only.split(";" if ";" in only else ",")]
            if unknown := [name for name in wanted if name not in columns]:
                raise self.error(f"{page.name}: the table below {marker!r} has no column {unknown[0]!r}")
            at = [columns.index(name) for name in wanted]
            columns, rows = wanted, {name: [row[i] for i in at] for name, row in rows.items()}
        rows = {name: row for name, row in rows.items() if any(row)}
        svg = DRAWN[self.options.get("as", "panels")](columns, rows)
        name = re.sub(r"\W+", "-", f"{page.stem}-{marker}".lower())
        picture = themed(svg, name, self.options["alt"])
        return [nodes.raw("", f'<figure class="mgpa-figure">{picture}</figure>', format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("interval-figure", IntervalFigure)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
