"""A figure as SVG inside a page: colours of the theme, tooltips, and marks that can be highlighted."""

from __future__ import annotations

import re
from io import BytesIO
from typing import Any
from xml.etree import ElementTree

from ..plots.drawing import COLORS, FAINT, GRID, INK, MUTED, SOURCE_COLORS, Mark

# Colours of figures, by the names they have in the style sheet.
VARIABLES = {
    **{color: f"m{i}" for i, color in enumerate(COLORS)},
    **{color: f"s{i}" for i, color in enumerate(SOURCE_COLORS)},
    INK: "ink", MUTED: "muted", FAINT: "line", GRID: "grid", "#ffffff": "card",
}  # fmt: skip


def svg(figure: Any, name: str, title: str) -> str:
    """Return a figure as an SVG element whose ids begin with ``name``; ``title`` is for screen readers."""
    stream = BytesIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(stream.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith(("}metadata", "}style")) or child.get("id") == "stamp":
                parent.remove(child)
    marks: dict[str, Mark] = vars(figure).get("mgpa_marks", {})
    elements = list(root.iter())
    for element in elements:
        element.tag = element.tag.rpartition("}")[2]
        attributes = {key.rpartition("}")[2]: value for key, value in element.attrib.items()}
        element.attrib.clear()
        for key, value in attributes.items():
            element.set(key, _rewritten(key, value, name))
    for element in elements:
        gid = element.get("id", "").removeprefix(f"{name}-")
        if element.tag not in ("path", "clipPath"):  # others refer to these only
            element.attrib.pop("id", None)
        _hoist_style(element)
        if gid in marks:
            _tell(element, marks[gid])
    width = float(root.get("width", "0").removesuffix("pt"))
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.set("role", "img")
    root.set("aria-label", title)
    root.set("style", f"--inches: {width / 72:.1f}")
    return ElementTree.tostring(root, encoding="unicode")


def _rewritten(key: str, value: str, name: str) -> str:
    """Return an attribute with ids of this figure, colours of the theme, and two digits."""
    if key == "id":
        return f"{name}-{value}"
    if key == "href":
        return f"#{name}-{value[1:]}" if value.startswith("#") else value
    if key in ("d", "x", "y"):
        return re.sub(r"(\.\d\d)\d+", r"\1", value)
    value = value.replace("url(#", f"url(#{name}-")
    return re.sub(
        r"#[0-9a-f]{6}", lambda c: f"var(--{VARIABLES[c[0]]})" if c[0] in VARIABLES else c[0], value
    )


def _hoist_style(element: ElementTree.Element) -> None:
    """Say once what all markers of a line have in common."""
    uses = [child for child in element if child.tag == "use"]
    styles = {child.get("style", "") for child in uses}
    if len(uses) > 1 and len(styles) == 1:
        element.set("style", styles.pop())
        for child in uses:
            child.attrib.pop("style", None)


def _tell(element: ElementTree.Element, mark: Mark) -> None:
    """Put tooltips into a mark's points, and say whose they are."""
    if mark.method:
        element.set("data-method", mark.method)
    uses = [child for child in element.iter() if child.tag == "use"]
    each = len(uses) == max(len(mark.titles), len(mark.people)) > 1
    for i, target in enumerate(uses if each else [element]):
        if i < len(mark.people):
            target.set("data-person", str(mark.people[i]))
        if i < len(mark.titles) and mark.titles[i]:
            title = ElementTree.Element("title")
            title.text = mark.titles[i]
            target.insert(0, title)
