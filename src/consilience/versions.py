"""Versions of what the numbers depend on."""

from __future__ import annotations

import platform
from importlib.metadata import version


def versions() -> dict[str, str]:
    """Versions of Python, this package and the libraries that compute.

    Examples
    --------
    >>> sorted(versions())
    ['blackjax', 'consilience', 'jax', 'jaxlib', 'numpy', 'numpyro', 'python', 'scipy']
    """
    packages = ("blackjax", "consilience", "jax", "jaxlib", "numpy", "numpyro", "scipy")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}
