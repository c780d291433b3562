"""Links from names on the theory pages to their code: to an API page, or to a page with the source."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from api_names import documented, find
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

THEORY = Path(__file__).parents[1] / "theory"
NAME = re.compile(r"mgpa(\.\w+)+")
PAGE = "reference/theory_code"


def internal_names() -> dict[str, Any]:
    """Return what the theory pages name and no API page describes, by its full name."""
    from api_pages import homes

    texts = [path.read_text("utf-8") for path in sorted(THEORY.iterdir()) if path.suffix in (".py", ".rst")]
    names = sorted({name for text in texts for name in re.findall(r"``(mgpa\.[\w.]+)``", text)})
    found = {name: find(name, None) for name in names}
    return {name: value for name, value in found.items() if id(value) not in homes()}


class TheoryCode(SphinxDirective):
    """The source of every such name, in alphabetical order."""

    def run(self) -> list[nodes.Node]:
        """Return a section for each."""
        sections: list[nodes.Node] = []
        for name, value in internal_names().items():
            section = nodes.section("", ids=[name.replace(".", "-")], names=[name])
            section += nodes.title(name, name)
            if inspect.ismodule(value):
                section += nodes.paragraph(text=(value.__doc__ or "").partition("\n\n")[0])
            else:
                code = inspect.getsource(value)
                section += nodes.literal_block(code, code, language="python")
            sections.append(section)
        return sections


def link(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Turn literals that name something of the package into links, on the theory pages."""
    if not docname.startswith("auto/theory/"):
        return
    internal = internal_names()
    for literal in list(doctree.findall(nodes.literal)):
        text = literal.astext()
        if not NAME.fullmatch(text) or isinstance(literal.parent, nodes.reference):
            continue
        if text in internal:
            place, anchor = PAGE, text.replace(".", "-")
        else:
            described = documented(app.env).get(id(find(text, None)))
            if described is None:
                continue
            entry = app.env.get_domain("py").objects[described]
            place, anchor = entry.docname, entry.node_id
        literal.replace_self(make_refnode(app.builder, docname, place, anchor, literal.deepcopy(), text))


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.add_directive("theory-code", TheoryCode)
    app.connect("doctree-resolved", link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
