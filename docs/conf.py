"""Sphinx settings."""

import logging
from importlib.metadata import version as installed
from typing import Any

from sphinx.util import logging as sphinx_logging

logger = sphinx_logging.getLogger(__name__)

project = "Consilience"
author = "The Consilience authors"
copyright = "The Consilience authors"
version = release = installed("consilience")
extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "Consilience"
html_static_path = ["_static"]
html_math_renderer = "mathml"
exclude_patterns = ["_build"]
numpydoc_show_class_members = False
autodoc_typehints = "none"
nitpicky = False

# JAX tells which accelerators it did not find.
logging.getLogger("jax").setLevel(logging.WARNING)


def visit_math(translator: Any, node: Any) -> None:
    """Write MathML, which browsers show by themselves: pages read the same without a network."""
    from docutils import nodes
    from docutils.utils.math import MathError
    from docutils.utils.math.latex2mathml import tex2mathml

    try:
        translator.body.append(tex2mathml(node.astext(), as_block=not isinstance(node, nodes.math)))
    except MathError as error:
        logger.warning("formula %r: %s", node.astext(), error, location=node)
    raise nodes.SkipNode


def setup(app: Any) -> None:
    """Register the renderer of formulas."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math, None))
