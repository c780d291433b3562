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
    marked = [(element, marks[gid]) for element in root.iter() if (gid := element.get("id", "")) in marks]
    _take_namespaces(root)
    _name_ids(root, name)
    _use_theme(root, name)
    for element, mark in marked:
        _tell(element, *mark)
    width = float(root.get("width", "0").removesuffix("pt"))
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.set("role", "img")
    root.set("aria-label", title)
    root.set("style", f"--inches: {width / 72:.1f}")
    return ElementTree.tostring(root, encoding="unicode")


def _take_namespaces(root: ElementTree.Element) -> None:
    """Remove namespaces from the names of elements and attributes."""
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        attributes = list(element.attrib.items())
        element.attrib.clear()
        for key, value in attributes:
            element.set(key.rpartition("}")[2], value)


def _name_ids(root: ElementTree.Element, name: str) -> None:
    """Begin ids, and references to them, with a name; only ids of paths are referred to."""
    for element in root.iter():
        if element.tag not in ("path", "clipPath", "image"):
            element.attrib.pop("id", None)
        elif "id" in element.attrib:
            element.set("id", f"{name}-{element.attrib['id']}")
        if element.get("href", "").startswith("#"):
            element.set("href", f"#{name}-{element.attrib['href'][1:]}")


def _use_theme(root: ElementTree.Element, name: str) -> None:
    """Shorten coordinates, refer to named clips, and replace colours by those of the theme."""
    for element in root.iter():
        for key, value in element.attrib.items():
            if key in ("d", "x", "y"):
                element.set(key, DIGITS.sub(r"\1", value))
            elif key not in ("id", "href") and "#" in value:
                value = value.replace("url(#", f"url(#{name}-")
                for color in VARIABLES.keys() & set(HEX.findall(value)):
                    value = value.replace(color, f"var(--{VARIABLES[color]})")
                element.set(key, value)


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
