"""Colours: by name, the same in every chart, and apart for colour-blind readers."""

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from mgpa.audit.plots import colour_of, marker_of, source_colours
from mgpa.audit.plots.palette import COLORS, DARK_COLORS, DARK_SOURCE_COLORS, SOURCE_COLORS, places
from mgpa.baselines import list_methods

# Machado, Oliveira & Fernandes 2009, severity 1, on linear RGB.
VISION = {
    "normal": np.eye(3),
    "protanopia": np.array([
        [0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998],
    ]),
    "deuteranopia": np.array([
        [0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881],
    ]),
}  # fmt: skip
XYZ = np.array([
    [0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041],
])  # fmt: skip
PAGE, DARK_PAGE = "#ffffff", "#171b21"


def linear(color):
    c = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    t = XYZ @ np.clip(rgb, 0, 1) / [0.95047, 1, 1.08883]
    f = np.where(t > 216 / 24389, np.cbrt(t), (24389 / 27 * t + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(a, b):
    low, high = sorted(XYZ[1] @ linear(c) + 0.05 for c in (a, b))
    return high / low


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize(
    ("colors", "least"),
    [(COLORS, 29), (DARK_COLORS, 29), (SOURCE_COLORS, 32), (DARK_SOURCE_COLORS, 32)],
    ids=["methods", "methods, dark", "sources", "sources, dark"],
)
def test_colours_are_apart(colors, least, vision):
    seen = [lab(VISION[vision] @ linear(color)) for color in colors]
    assert min(np.linalg.norm(a - b) for a, b in combinations(seen, 2)) >= least


def test_the_measure_finds_colours_that_a_colour_blind_reader_confuses():
    teal, crimson = (lab(VISION["protanopia"] @ linear(c)) for c in ("#0e7c86", "#c2405b"))
    assert np.linalg.norm(teal - crimson) < 16


@pytest.mark.parametrize(
    ("colors", "page"),
    [(COLORS, PAGE), (SOURCE_COLORS, PAGE), (DARK_COLORS, DARK_PAGE), (DARK_SOURCE_COLORS, DARK_PAGE)],
)
def test_marks_have_enough_contrast_with_the_page(colors, page):
    assert min(contrast(color, page) for color in colors) >= 3


def test_every_method_has_its_own_mark():
    names = [method.name for method in list_methods()]
    assert len({(colour_of(name), marker_of(name)) for name in names}) == len(names)


def test_a_listed_method_looks_the_same_in_every_company():
    for others in (["mgpa", "leace"], ["coral", "ours", "leace", "mgpa"], ["leace", "identity", "mgpa"]):
        for name in {*others} - {"ours"}:
            color, marker = places(others)[name]
            assert (COLORS[color], marker) == (colour_of(name), marker_of(name))
    assert colour_of("LEACE") == colour_of("leace") == colour_of("leace", dark=False)


def test_own_names_that_collide_are_told_apart_whatever_their_order():
    names = [f"trial {i}" for i in range(60)]
    assert places(names) == places(names[::-1])
    assert len({color for color, _ in places(names[:5]).values()}) == 5
    assert len(set(places(names).values())) == 60


def test_sources_keep_their_colour_whichever_comes_first():
    assert source_colours(["b", "a"]) == source_colours(["a", "b", "a"])
    assert len(set(source_colours("abcdef").values())) == 6


def test_the_site_has_the_same_colours():
    css = (Path(__file__).resolve().parents[2] / "docs/_static/site.css").read_text("utf-8")
    light, dark = ({}, {})
    for block in re.findall(r"([^{}]*)\{([^{}]*)\}", css):
        theme = dark if 'data-theme="dark"' in block[0] else light
        theme |= dict(re.findall(r"--((?:m|s|mgpa-)\w+): (#[0-9a-f]{6});", block[1]))
    for theme, methods, sources in (
        (light, COLORS, SOURCE_COLORS),
        (dark, DARK_COLORS, DARK_SOURCE_COLORS),
    ):
        assert [theme[f"m{i}"] for i in range(len(methods))] == list(methods)
        assert [theme[f"s{i}"] for i in range(len(sources))] == list(sources)
        assert (theme["mgpa-a"], theme["mgpa-b"]) == sources[:2]
