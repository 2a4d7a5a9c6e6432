"""Sphinx settings."""

from importlib.metadata import version as installed

project = "Consilience"
author = "The Consilience authors"
copyright = "The Consilience authors"
version = release = installed("consilience")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "numpydoc"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "Consilience"
html_static_path = ["_static"]
exclude_patterns = ["_build"]
numpydoc_show_class_members = False
autodoc_typehints = "none"
nitpicky = False
