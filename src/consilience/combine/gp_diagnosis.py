"""What can be said about a product of surfaces: refusals, warnings and notes.

Surfaces are judged by what is left of the log densities that they were fitted to, by where the combined draws
lie beside the shards' own, and by how far realisations of the process agree; chains by R-hat.
"""

from __future__ import annotations

import numpy as np

from consilience.draws import Subposteriors
from consilience.errors import DrawsError, must_be

from .base import Floats
from .gp_density import Product
from .gp_realisations import Spread

# Scatter of log densities about their surface: a hundredth of what they vary by, and all of it.
ROUGH, HOPELESS = 0.1, 1.0
WORTH_WARNED = 0.5
OUTSIDE_WARNED = 0.05
RHAT_WARNED = 1.05
# Realisations and reach are looked at on so many of the draws.
LOOKED_AT = 500


def judged(array: Floats, lengths: tuple[int, ...]) -> tuple[Floats, tuple[str, ...]]:
    """Independent draws that means of the array are worth, and a warning when its chains disagree."""
    from consilience.chains import effective_sample_size, rhat

    # The last chain may be cut short: what it adds is told by the others.
    whole = sum(length == lengths[0] for length in lengths)
    chains = array[: whole * lengths[0]].reshape(whole, lengths[0], -1)
    share = len(array) / (whole * lengths[0])
    sizes = np.minimum(effective_sample_size(chains, "mean") * share, len(array))
    worst = float(np.max(np.nan_to_num(rhat(chains), nan=1.0)))
    if worst <= RHAT_WARNED:
        return sizes, ()
    return sizes, (
        f"The chains on the product disagree (R-hat {worst:.2f}): it may have modes that they do not cross. "
        "Compare with another rule.",
    )


def roughness(subposteriors: Subposteriors, product: Product, order: list[int]) -> tuple[str, ...]:
    """Refuse or warn of log densities that scatter about every smooth surface."""
    scatter = np.array([shard.surface.noise_deviation for shard in product.shards])
    worst = int(np.argmax(scatter))
    label = subposteriors.labels[order[worst]]
    causes = (
        "they belong to other columns or coordinates, were rounded when written, or vary too much for the "
        "number of points"
    )
    advice = "Check where they come from, or raise num_points."
    if scatter[worst] > HOPELESS:
        raise must_be(
            "gp-product",
            "log_densities",
            "a smooth function of the draws",
            f"values that scatter by {scatter[worst]:.2g} about every smooth one in shard {label}",
            f"Either {causes}. {advice}",
            error=DrawsError,
        )
    if scatter[worst] <= ROUGH:
        return ()
    return (
        f"Log densities of {int(np.sum(scatter > ROUGH))} of {len(scatter)} shards scatter about every smooth "
        f"function of the draws (by {scatter[worst]:.2g} in shard {label}): {causes}. {advice}",
    )


def out_of_reach(
    subposteriors: Subposteriors, product: Product, order: list[int], draws: Floats
) -> tuple[str, ...]:
    """Warn when the product lies where a shard has no draws; a quadratic reaches everywhere."""
    worst, label = 0.0, ""
    for shard, b in zip(product.shards, order, strict=True):
        if shard.surface.has_process:
            reach = np.max(np.sum(shard.surface.points**2, axis=1))
            distances = np.sum(shard.place(draws) ** 2, axis=1)
            outside = float(np.mean(distances > reach))
            if outside > worst:
                worst, label = outside, subposteriors.labels[b]
    if worst <= OUTSIDE_WARNED:
        return ()
    return (
        f"{100 * worst:.0f} % of the combined draws lie farther from shard {label} than all of its own draws: its log "
        "density is extrapolated there. Use fewer shards, or compare with another rule.",
    )


def disagreement(spread: Spread | None) -> tuple[str, ...]:
    if spread is None or spread.worth >= WORTH_WARNED:
        return ()
    return (
        f"The surfaces leave the posterior open: weighed by one realisation of them, the draws are worth "
        f"{100 * spread.worth:.0f} % of their number. Give more draws or points per shard, or use fewer shards.",
    )


def notes(product: Product) -> tuple[str, ...]:
    number, processes = len(product.shards), len(product.processes)
    points = [shard.surface.num_values for shard in product.shards]
    between = f"{min(points)}" if min(points) == max(points) else f"{min(points)} to {max(points)}"
    if not processes:
        return (f"All log densities are quadratic (at {between} points per shard): the product is Gaussian.",)
    return (f"Surfaces through {between} points per shard; {processes} of {number} are no plain quadratics.",)
