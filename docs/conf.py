"""How the site is built: ``make docs``, offline, warnings are errors."""

import os
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
# Figures must not depend on how many cores the builder has, nor on a screen.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "agg")

import api_pages  # noqa: E402
import site_facts  # noqa: E402

import mgpa  # noqa: E402

project, author, copyright = "mgpa", "The MGPA developers", "The MGPA developers, MIT licence"
version = release = mgpa.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # MathJax from the registry, copied into the site
    "numpydoc",
    "sphinx_design",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    # From _ext, ours.
    "api_names",
    "api_pages",
    "command_help",
    "diagrams",
    "idea_picture",
    "interval_figure",
    "site_facts",
    "stored_figure",
    "table_figure",
    "theory_code",
]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
exclude_patterns = [
    "_build",
    "_ext",
    "_templates",
    "gallery",
    "theory",
    "**/GALLERY_HEADER.rst",
    "bench/results.md",
]
templates_path = ["_templates"]
nitpicky = True

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autosummary_generate = True
autosummary_context = {"exported": api_pages.exported}
suppress_warnings = ["config.cache"]  # that function is not stored between builds
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

# Types of other libraries are named, not linked: their indexes would have to be fetched.
nitpick_ignore_regex = [
    (
        r"py:.*",
        r"(numpy|np|sklearn|scipy|torch|mne|pandas|pyarrow|dask|distributed|typing|pathlib|pydantic|requests)\b.*",
    ),
]

sphinx_gallery_conf = {
    "examples_dirs": ["gallery", "theory"],
    "gallery_dirs": ["auto/gallery", "auto/theory"],
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"(^|/)gaussian\.py$",  # what the theory pages import
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "show_memory": False,
    "show_signature": False,
    "download_all_examples": False,
    "remove_config_comments": True,
    "doc_module": ("mgpa",),
    "backreferences_dir": "auto/backreferences",
    "matplotlib_animations": False,
    "plot_gallery": True,
    "write_computation_times": False,
    "ignore_repr_types": r".*Figure",  # they are shown already
}

html_theme = "pydata_sphinx_theme"
html_title = "mgpa"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {
    "logo": {"text": f"mgpa {release}"},
    "navbar_align": "left",
    "navbar_persistent": [],
    "header_links_before_dropdown": 8,
    "navbar_end": ["search-button", "theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": []}
if address := site_facts.repository():
    html_theme_options["icon_links"] = [
        {"name": "Repository", "url": address, "icon": "fa-solid fa-code-branch"}
    ]


def setup(app):
    """Copy the studies' reports as they are: they link to one another."""

    def copy(app, _):
        shutil.copytree(HERE / "studies/reports", app.outdir / "studies/reports", dirs_exist_ok=True)

    app.connect("build-finished", copy)
