"""Convert figures to SVG for the report: theme colours, tooltips, and marks that can be highlighted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any
from xml.etree import ElementTree

from ..plots import drawing as draw
from ..plots.palette import COLORS, SOURCE_COLORS

# Colours of figures, by their names in the style sheet.
VARIABLES = {
    **{color: f"m{i}" for i, color in enumerate(COLORS)},
    **{color: f"s{i}" for i, color in enumerate(SOURCE_COLORS)},
    draw.INK: "ink", draw.MUTED: "muted", draw.FAINT: "line", draw.GRID: "grid", "#ffffff": "card",
    "#000000": "ink",
}  # fmt: skip
# Patterns of surplus digits of coordinates, and of colours.
DIGITS, HEX = re.compile(r"(\.\d\d)\d+"), re.compile(r"#[0-9a-f]{6}")


def svg(figure: Any, name: str, title: str) -> str:
    """Return a figure as an SVG element with theme colours, tooltips, and marks that can be highlighted.

    Element ids begin with ``name``; ``title`` is for screen readers.
    """
    file = draw.figure_bytes(figure, transparent=True)
    return themed(file, name, title, vars(figure).get("mgpa_marks", {}))


def themed(stored: bytes, name: str, title: str, marks: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Convert an SVG file of matplotlib to the form of :func:`svg`; ``marks`` has tooltips by id."""
    root = ElementTree.fromstring(stored)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith(("}metadata", "}style")) or child.get("id") == "stamp":
                parent.remove(child)
    for element in list(root.iter()):
        gid = element.get("id", "")
        _rename(element, name)
        if gid in marks:
            _tell(element, *marks[gid])
    width = float(root.get("width", "0").removesuffix("pt"))
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.set("role", "img")
    root.set("aria-label", title)
    root.set("style", f"--inches: {width / 72:.1f}")
    return ElementTree.tostring(root, encoding="unicode")


def _rename(element: ElementTree.Element, name: str) -> None:
    """Take namespaces off an element and its attributes, and give these the values of the page."""
    element.tag = element.tag.rpartition("}")[2]
    attributes = {key.rpartition("}")[2]: value for key, value in element.attrib.items()}
    element.attrib.clear()
    for key, value in attributes.items():
        value = _in_page(element.tag, key, value, name)
        if value or key != "id":
            element.set(key, value)


def _in_page(tag: str, key: str, value: str, name: str) -> str:
    """Return the value of an attribute: fewer digits, ids that begin with ``name``, colours of the theme."""
    if key in ("d", "x", "y"):
        return DIGITS.sub(r"\1", value)
    if key == "id":  # only ids of paths are referred to
        return f"{name}-{value}" if tag in ("path", "clipPath", "image") else ""
    if key == "href":
        return f"#{name}-{value[1:]}" if value.startswith("#") else value
    value = value.replace("url(#", f"url(#{name}-")
    for color in VARIABLES.keys() & set(HEX.findall(value)):
        value = value.replace(color, f"var(--{VARIABLES[color]})")
    return value


def _tell(element: ElementTree.Element, titles: Sequence[str], method: str, people: Sequence[int]) -> None:
    """Add tooltips, method and participants to the points of a mark."""
    if method:
        element.set("data-method", method)
    uses = [child for child in element.iter() if child.tag.endswith("use")]
    each = len(uses) == max(len(titles), len(people)) > 1
    for i, target in enumerate(uses if each else [element]):
        if i < len(people):
            target.set("data-person", str(people[i]))
        if i < len(titles) and titles[i]:
            title = ElementTree.Element("title")
            title.text = titles[i]
            target.insert(0, title)
