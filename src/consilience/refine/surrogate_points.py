"""Where a surrogate is fitted: mostly at the draws, and at the shards' own draws, which reach further.

A fit that has seen the draws alone knows nothing of mass that they miss. Three fifths of the points are draws;
one fifth each are draws of SwISS, whatever has been done to the draws since, and inflated draws of the shards,
pooled in proportion to their weights. Draws of sub-posteriors are first pulled towards their shard's mean by
sqrt(w_b), which gives them the scale of inflated ones.

Fails where no shard's draws come near the missing mass.

Reference. Owen and Zhou (2000), Safe and effective importance sampling, JASA 95 (defensive mixtures).
"""

from __future__ import annotations

import numpy as np

from consilience.draws import Subposteriors
from consilience.errors import DrawsError
from consilience.refine.base import Floats, FreshDraws

SHARE = 0.2


def fitting_points(
    draws: Floats,
    log_weights: Floats | None,
    subposteriors: Subposteriors | None,
    count: int,
    rng: np.random.Generator,
) -> Floats:
    """`count` points, the draws' first.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> shards = Subposteriors.of(rng.normal(100.0, 1.0, size=(2, 50, 1)), kind="inflated")
    >>> points = fitting_points(rng.normal(size=(50, 1)), None, shards, 20, rng)
    >>> points.shape, int(np.sum(points > 50))
    ((20, 1), 8)
    """
    others: list[Floats] = []
    if subposteriors is not None:
        share = round(SHARE * count)
        inflated = [inflated_draws(subposteriors, b) for b in range(len(subposteriors.draws))]
        chosen = rng.choice(len(inflated), size=share, p=np.asarray(subposteriors.weights))
        others.append(np.stack([inflated[b][rng.integers(len(inflated[b]))] for b in chosen]))
        swiss = swiss_draws(subposteriors, inflated)
        if swiss is not None:
            others.append(swiss[rng.integers(len(swiss), size=share)])
    first = draws[FreshDraws(log_weights, len(draws), rng).take(count - sum(map(len, others)))]
    return np.concatenate([first, *others])


def inflated_draws(subposteriors: Subposteriors, shard: int) -> Floats:
    """One shard's draws on the scale of the posterior."""
    draws = subposteriors.draws[shard]
    if subposteriors.kind == "inflated":
        return draws
    centre = draws.mean(axis=0)
    return np.asarray(centre + np.sqrt(subposteriors.weights[shard]) * (draws - centre))


def swiss_draws(subposteriors: Subposteriors, inflated: list[Floats]) -> Floats | None:
    """What SwISS makes of the shards, or None where they have too few draws for it."""
    from consilience.combine.swiss import Swiss

    weights, names = subposteriors.weights, subposteriors.names
    try:
        return (
            Swiss().combine(Subposteriors.of(inflated, kind="inflated", weights=weights, names=names)).array
        )
    except DrawsError:
        return None
