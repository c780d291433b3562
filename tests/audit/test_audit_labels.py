"""Names in figures stay inside, apart, and by their own points."""

import numpy as np
import pytest

plt = pytest.importorskip("matplotlib.pyplot")

from matplotlib.text import Text  # noqa: E402 (matplotlib may be missing)

from mgpa.audit.plots.drawing import Look, label_ends, label_points  # noqa: E402


@pytest.fixture
def axes():
    figure, ax = plt.subplots(figsize=(4, 3))
    ax.set(xlim=(0, 1), ylim=(0, 1))
    yield ax
    plt.close(figure)


def boxes(ax):
    ax.figure.draw_without_rendering()
    return [Text.get_window_extent(text) for text in ax.texts]  # without the lines that lead to them


def look(name):
    return Look(name, name, "black", "black", "o", hollow=False)


CORNERS = [(0.01, 0.5), (0.99, 0.5), (0.5, 0.01), (0.5, 0.99), (0.01, 0.01), (0.99, 0.99)]


@pytest.mark.parametrize("place", CORNERS)
def test_a_name_at_the_edge_stays_inside_the_axes(axes, place):
    label_points(axes, [(*place, look("a rather long name"))], [])
    frame, (box,) = axes.get_window_extent(), boxes(axes)
    assert frame.x0 <= box.x0
    assert box.x1 <= frame.x1
    assert frame.y0 <= box.y0
    assert box.y1 <= frame.y1


def test_names_of_near_points_do_not_touch_and_are_by_their_own_points(axes):
    places = [(0.5, 0.5), (0.53, 0.52), (0.47, 0.51)]
    label_points(axes, [(*place, look(name)) for place, name in zip(places, "ABC", strict=True)], [])
    shown, at = boxes(axes), axes.transData.transform(places)
    for i, box in enumerate(shown):
        assert not any(box.overlaps(other) for other in shown[:i])
        gaps = [np.hypot(max(box.x0 - x, x - box.x1, 0), max(box.y0 - y, y - box.y1, 0)) for x, y in at]
        assert np.argmin(gaps) == i


def test_a_name_keeps_off_a_line_beside_its_point(axes):
    label_points(axes, [(0.5, 0.5, look("name"))], [(0.5, 0.5, 1.0, 0.5)])
    (box,), line = boxes(axes), axes.transData.transform([(0.5, 0.5), (1.0, 0.5)])
    assert box.x1 < line[0, 0] or box.y0 > line[0, 1] or box.y1 < line[0, 1]


def test_names_at_the_ends_of_lines_are_moved_apart_in_their_order(axes):
    ends = [(1.0, y, look(str(y))) for y in (0.5, 0.505, 0.9, 0.495)]
    label_ends(axes, ends)
    middles = [(box.y0 + box.y1) / 2 for box in boxes(axes)]
    heights = [middles[i] for i in (3, 0, 1, 2)]
    assert np.all(np.diff(heights) >= 8.4 * axes.figure.dpi / 72)
