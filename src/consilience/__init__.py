"""Divide-and-conquer Bayesian inference: shard, sample, combine, and say how far to trust the result.

The public names, found when first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from consilience.combine import combine, get_combiner, methods
    from consilience.data import (
        GroupPartition,
        RandomPartition,
        SitePartition,
        StratifiedPartition,
        TimePartition,
    )
    from consilience.diagnose import Discrepancy, compare
    from consilience.diagnose.agreement import Agreement, agreement
    from consilience.draws import Posterior, Subposteriors
    from consilience.draws.files import load
    from consilience.errors import ConsilienceError, ConvergenceWarning, InputError, RunError
    from consilience.fitted import Fit
    from consilience.model import Model, glm
    from consilience.pipeline import fit
    from consilience.sample import HMC, NUTS

# Sorted; each name with the module that has it.
_HOMES = {
    "Agreement": "consilience.diagnose",
    "ConsilienceError": "consilience.errors",
    "ConvergenceWarning": "consilience.errors",
    "Discrepancy": "consilience.diagnose",
    "Fit": "consilience.fitted",
    "GroupPartition": "consilience.data",
    "HMC": "consilience.sample",
    "InputError": "consilience.errors",
    "Model": "consilience.model",
    "NUTS": "consilience.sample",
    "Posterior": "consilience.draws",
    "RandomPartition": "consilience.data",
    "RunError": "consilience.errors",
    "SitePartition": "consilience.data",
    "StratifiedPartition": "consilience.data",
    "Subposteriors": "consilience.draws",
    "TimePartition": "consilience.data",
    "agreement": "consilience.diagnose",
    "combine": "consilience.combine",
    "compare": "consilience.diagnose",
    "fit": "consilience.pipeline",
    "get_combiner": "consilience.combine",
    "glm": "consilience.model",
    "load": "consilience.draws.files",
    "methods": "consilience.combine",
}

__all__ = [
    "HMC",
    "NUTS",
    "Agreement",
    "ConsilienceError",
    "ConvergenceWarning",
    "Discrepancy",
    "Fit",
    "GroupPartition",
    "InputError",
    "Model",
    "Posterior",
    "RandomPartition",
    "RunError",
    "SitePartition",
    "StratifiedPartition",
    "Subposteriors",
    "TimePartition",
    "agreement",
    "combine",
    "compare",
    "fit",
    "get_combiner",
    "glm",
    "load",
    "methods",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'consilience' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
