"""Gallery thumbnails that are drawn for their size: one panel of a figure, without its small print.

Figures are made for a column of text, and several panels of one, shrunk to a thumbnail, show nothing. Here
the panel that says most is drawn again, alone, as large as the thumbnail is.
"""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx_gallery.scrapers import matplotlib_scraper

SIZE, DPI = (2.0, 1.4), 200  # 400 by 280 pixels, which is what the gallery shows
# Of examples whose first panel is not the one: which figure, and which panel of it.
PANELS: dict[str, tuple[int, int]] = {}

_figures_before: dict[str, int] = {}


def draw(figure: Any, panel: int, path: Path) -> None:
    """Draw one panel of a figure, which stays as it is, as a thumbnail."""
    import matplotlib.pyplot as plt

    figure = pickle.loads(pickle.dumps(figure))
    shown = figure.axes[panel]
    for ax in figure.axes:
        if ax is not shown:
            figure.delaxes(ax)
    for words in [*figure.texts, *figure.legends, *shown.texts, shown.get_legend()]:
        if words is not None:
            words.remove()
    shown.set(title="", xlabel="", ylabel="")
    shown.set_title("", loc="left")
    shown.tick_params(labelleft=False, labelbottom=False)
    for line in shown.lines:
        line.set_linewidth(1.4 * line.get_linewidth())
    figure.set_layout_engine("none")
    figure.set_size_inches(SIZE)
    shown.set_aspect("auto")
    shown.set_position((0.04, 0.05, 0.92, 0.9))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI, facecolor="white")
    plt.close(figure)  # a copy of a figure of pyplot's is one too, and would be shown on the page


def scrape(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any], **options: Any) -> str:
    """Keep a thumbnail of the example's panel, if this block drew it; then go on as usual."""
    import matplotlib.pyplot as plt

    source = Path(block_vars["src_file"])
    before, numbers = _figures_before.get(str(source), 0), plt.get_fignums()
    number, panel = PANELS.get(source.stem, (0, 0))
    if before <= number < before + len(numbers):
        draw(plt.figure(numbers[number - before]), panel, _place(Path(block_vars["target_file"])))
    _figures_before[str(source)] = before + len(numbers)
    rst: str = matplotlib_scraper(block, block_vars, gallery_conf, **options)
    return rst


def _place(target: Path) -> Path:
    return target.parent / "images" / "panels" / f"{target.stem}.png"


def _get_sg_image_scraper() -> Any:
    return scrape


def put_in_place(app: Sphinx) -> None:
    """Put the panels where the gallery, which is done by now, has its own thumbnails."""
    for panel in Path(app.srcdir, "auto").glob("*/images/panels/*.png"):
        thumbnail = panel.parents[1] / "thumb" / f"sphx_glr_{panel.stem}_thumb.png"
        if thumbnail.exists():
            shutil.copyfile(panel, thumbnail)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register what happens after the gallery has run."""
    app.connect("builder-inited", put_in_place, priority=900)
    return {"parallel_read_safe": True}
