"""A stored SVG on the page itself, in the colours of the page's theme: light, dark and print."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import Directive, directives
from sphinx.application import Sphinx


class StoredFigure(Directive):
    """Put an SVG that matplotlib wrote on the page; its path is relative to the page."""

    required_arguments = 1
    option_spec: ClassVar = {"alt": directives.unchanged_required, "link": directives.uri}

    def run(self) -> list[nodes.Node]:
        """Return the picture."""
        from mgpa.audit.report import themed

        page = Path(self.state.document.current_source or "").parent
        path = page / self.arguments[0]
        self.state.document.settings.record_dependencies.add(str(path))
        svg = themed(path.read_bytes(), path.stem, escape(self.options["alt"]))
        if link := self.options.get("link"):
            svg = f'<a href="{escape(link)}">{svg}</a>'
        return [nodes.raw("", f'<figure class="mgpa-figure">{svg}</figure>', format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("stored-figure", StoredFigure)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
