"""One shard to draws: the target, its mode and curvature, and the samplers."""

from __future__ import annotations

from consilience.sample.hmc import HMC
from consilience.sample.kernel import Sampler
from consilience.sample.nuts import NUTS
from consilience.sample.registry import SAMPLERS, get_sampler

__all__ = ["HMC", "NUTS", "SAMPLERS", "Sampler", "get_sampler"]
