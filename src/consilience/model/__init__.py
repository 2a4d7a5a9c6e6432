"""WHAT is inferred: a prior and a per-row log-likelihood, and generalised linear models by formula."""

from __future__ import annotations

from consilience.model.glm import GLM, glm
from consilience.model.model import Model
from consilience.model.space import ParameterSpace

__all__ = ["GLM", "Model", "ParameterSpace", "glm"]
