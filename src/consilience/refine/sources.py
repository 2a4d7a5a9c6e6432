"""Where else posterior mass could be: draws that a proposal must cover although a combined posterior may not.

    raw       the shards' inflated draws moved by SwISS: they keep the shards' modes and tails, which rules that
              average lose
    pooled    the shards' inflated draws as they are, shard b with share w_b: far wider than the posterior

Draws of sub-posteriors are drawn in about their shard's mean by sqrt(w_b), which makes a Gaussian with a flat prior
the inflated one.

Assumptions: the missing mass is where a shard's inflated draws are. Fails for mass that no shard came near.

Reference. Owen and Zhou (2000), Safe and effective importance sampling, JASA 95(449) (shares that are never given up).
"""

from __future__ import annotations

import numpy as np

from consilience.combine.swiss import Swiss
from consilience.draws import Subposteriors
from consilience.errors import DrawsError
from consilience.refine.base import Floats

# Draws that kernels are put on.
KERNELS = 2000


def inflated(subposteriors: Subposteriors) -> Subposteriors:
    """The shards' draws on the scale of the posterior.

    Examples
    --------
    >>> shards = np.random.default_rng(0).normal(size=(4, 500, 1))
    >>> narrow = inflated(Subposteriors.of(shards, kind="subposterior"))
    >>> narrow.kind, narrow.draws[0].std().round(1)
    ('inflated', np.float64(0.5))
    """
    if subposteriors.kind == "inflated":
        return subposteriors
    drawn_in = []
    for draws, weight in zip(subposteriors.draws, subposteriors.weights, strict=True):
        centre = draws.mean(axis=0)
        drawn_in.append(centre + np.sqrt(weight) * (draws - centre))
    return Subposteriors.of(drawn_in, kind="inflated", weights=subposteriors.weights)


def raw_draws(shards: Subposteriors, rng: np.random.Generator) -> Floats | None:
    """Some of SwISS' draws, or None where shards have too few draws for it."""
    try:
        moved = Swiss().combine(shards).array
    except DrawsError:
        return None
    edges = np.cumsum([0, *shards.num_draws])
    return moved[np.concatenate([edges[b] + chosen for b, chosen in enumerate(by_weight(shards, rng))])]


def pooled_draws(shards: Subposteriors, rng: np.random.Generator) -> Floats:
    """Some of the shards' draws, laid together in proportion to the shards' weights."""
    chosen = by_weight(shards, rng)
    return np.concatenate([draws[index] for draws, index in zip(shards.draws, chosen, strict=True)])


def by_weight(shards: Subposteriors, rng: np.random.Generator) -> list[np.ndarray]:
    """Which draws of each shard; no draw twice, and at least one of every shard."""
    wanted = np.ceil(KERNELS * np.asarray(shards.weights)).astype(int)
    return [
        rng.choice(len(draws), size=min(len(draws), int(count)), replace=False)
        for draws, count in zip(shards.draws, wanted, strict=True)
    ]
