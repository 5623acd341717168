"""Configure the site: ``make docs`` builds it into ``dist/site``, and fails on a warning."""

from __future__ import annotations

import re
from pathlib import Path

# Python 3.10 has no reader of TOML.
(_VERSION,) = re.findall(
    r'^version = "(.+)"', (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE
)

project = "UpStream for Spark"
author = "The UpStream for Spark authors"
copyright = author  # noqa: A001 Sphinx's name
release = version = _VERSION

extensions = ["myst_parser", "sphinx_copybutton", "sphinx_design"]
source_suffix = {".md": "markdown"}
nitpicky = True

# Anchors of headings as GitHub makes them, so that one link works there and here.
myst_heading_anchors = 4

html_theme = "pydata_sphinx_theme"
html_title = project
html_show_sourcelink = False
# The side navigation of every page is the whole site, so the bar at the top has none.
templates_path = ["_templates"]
html_sidebars = {"**": ["site-navigation"]}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "logo": {"text": project},
    "navbar_center": [],
    "navbar_persistent": ["search-button-field"],
    "navbar_end": ["theme-switcher"],
    "navigation_depth": 2,
    "show_nav_level": 1,
    "show_toc_level": 2,
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
    "footer_start": ["copyright"],
    "footer_end": [],
}
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
