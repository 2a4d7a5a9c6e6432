"""One stage of partition trees: several sets of draws to one, on an ensemble of random trees.

Draws of the "shard-gaussian" form are found by importance: candidates from the Gaussian product and, for what it
misses, from a Gaussian as wide as all sets together, weighed by the product over the candidates' density, and
resampled. The weights are at most 1 / 0.8 times the blocks' factors. The other two forms are drawn directly.

The Monte Carlo error of a product's mean has the parts that `Part.mean_error` adds up: the sets' means and weights
(`moments.gaussian_product`) as far as their Gaussians were used, the noise of the blocks' shares, sum_k pi_k² (m_k -
m)(m_k - m)' Var(log pi_k), and the draws that are made here. A product that goes on to the next stage carries it
along, and counts there as the number of draws that its precision is worth.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from consilience.errors import DrawsError, must_be
from consilience.numerics import log_sum_exp
from consilience.progress import tell

from .base import Floats
from .block_factors import (
    TreeFactors,
    average_over_trees,
    count_blocks,
    spread_of_factors,
    tree_factors,
)
from .block_products import draw_from_blocks
from .moments import ShardMoments, gaussian_product
from .product_candidates import candidates, chunks, systematic, weighted_moments
from .random_trees import Cut, Frame, Tree, grow_tree

# With fewer effective draws in a set, counts of blocks say nothing that its mean and covariance do not.
FEWEST_DRAWS = 100
# Candidates per draw that is wanted: of the last product, and of those in between, which are larger sets.
CANDIDATES = 4
INTERIM_CANDIDATES = 2


@dataclass(frozen=True)
class Options:
    """What the stages need to know of the rule's options and of the draws."""

    within: str
    cut: Cut
    num_trees: int
    least_share: float | None
    kind: str
    num_shards: int

    def share(self, effective: float) -> float | None:
        """Least share of draws in a block when the smallest set is worth so many; None for no cuts at all."""
        if effective < FEWEST_DRAWS:
            return None
        return self.least_share or float(np.clip(effective**-0.5, 0.01, 0.1))

    def powers(self, weights: Floats) -> Floats:
        return weights / weights.sum() if self.kind == "inflated" else np.ones_like(weights)


@dataclass(frozen=True, eq=False)
class Part:
    """A set of draws in the common frame: a shard's, or those of a product of shards."""

    array: Floats
    weight: float
    label: str
    mean: Floats
    covariance: Floats
    effective: float
    covariance_draws: float  # that the covariance is worth
    mean_error: Floats
    names: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())

    @classmethod
    def of(cls, moments: ShardMoments, shard: int, array: Floats, weight: float, frame: Frame) -> Part:
        """A shard, its moments carried over to the frame."""
        turn = frame.transform
        return cls(
            array=array,
            weight=float(weight),
            label=moments.labels[shard],
            mean=(moments.means[shard] - frame.centre) @ turn,
            covariance=turn.T @ moments.covariances[shard] @ turn,
            effective=float(moments.effective_draws[shard]),
            covariance_draws=float(moments.covariance_draws[shard]),
            mean_error=turn.T @ moments.mean_errors[shard] @ turn,
            names=moments.names,
        )


def median_pairs(
    parts: list[Part], options: Options, generator: np.random.Generator
) -> tuple[list[Part], list[str]]:
    """Multiply pairs until two or three sets are left; `parts` is used up."""
    done, total = 0, len(parts) - 2
    departed = multiplied = 0
    while len(parts) > 3:
        products = []
        groups = _matched([part.mean for part in parts])
        left = dict(enumerate(parts))
        # Sets are let go as soon as they are multiplied: the caller's list is emptied too.
        parts.clear()
        for group in groups:
            members = [left.pop(i) for i in group]
            # As many draws as the pair brought: no stage then holds more draws than the shards did.
            number = sum(len(x.array) for x in members)
            products.append(merge(members, number, options, generator, oversampling=INTERIM_CANDIDATES))
            departed += bool(products[-1].notes)
            multiplied += 1
            done += len(group) - 1
            tell("products of pairs", done, total)
        parts = products
    notes = [f"{departed} of {multiplied} products on the way departed from their Gaussians."]
    return parts, notes if departed else []


def _matched(means: list[Floats]) -> list[list[int]]:
    """Pair each set with the one at the median distance of those left; an odd one joins the last pair."""
    left = list(range(len(means)))
    groups: list[list[int]] = []
    while len(left) > 1:
        first = left.pop(0)
        distances = [float(np.sum((means[i] - means[first]) ** 2)) for i in left]
        groups.append([first, left.pop(int(np.argsort(distances)[(len(left) - 1) // 2]))])
    groups[-1] += left
    return groups


def merge(
    parts: list[Part],
    total: int,
    options: Options,
    generator: np.random.Generator,
    oversampling: int = CANDIDATES,
) -> Part:
    """Multiply sets of draws and make `total` draws of their product, from so many candidates for each."""
    weights = np.array([part.weight for part in parts])
    powers = options.powers(weights)
    share = options.share(min(part.effective for part in parts))
    trees = _grow(parts, powers, share, options, generator)
    if options.within == "shard-gaussian":
        made = _by_shard_gaussians(parts, powers, trees, total, oversampling * total, options, generator)
    else:
        arrays = [part.array for part in parts]
        worth = np.array([part.effective for part in parts])
        array, error = draw_from_blocks(arrays, worth, powers, trees, total, options.within, generator)
        made = array, error, min(float(total), float(worth.min())), ()
    array, mean_error, effective, notes = made
    return Part(
        array=array,
        weight=float(weights.sum()),
        label=" x ".join(part.label for part in parts[:2]) + (" x …" if len(parts) > 2 else ""),
        mean=array.mean(axis=0),
        covariance=weighted_moments(array, np.full(total, 1.0 / total))[0] * (total / max(total - 1, 1)),
        effective=effective,
        covariance_draws=effective,
        mean_error=mean_error,
        names=parts[0].names,
        notes=notes,
    )


def _grow(
    parts: list[Part], powers: Floats, share: float | None, options: Options, generator: np.random.Generator
) -> list[Tree]:
    if share is None:
        if options.within == "shard-gaussian":
            return []
        worst = min(parts, key=lambda part: part.effective)
        raise must_be(
            "partition-trees",
            "draws",
            f"worth at least {FEWEST_DRAWS} independent ones per shard to be cut into blocks",
            f"draws worth {worst.effective:.0f} in shard {worst.label}",
            "Draw longer chains, or choose within='shard-gaussian'.",
            error=DrawsError,
        )
    points = np.concatenate([part.array for part in parts])
    ends = np.cumsum([len(part.array) for part in parts])
    # The caller's parts become slices of it: one copy of their draws is enough.
    parts[:] = [
        replace(part, array=points[end - len(part.array) : end])
        for part, end in zip(parts, ends, strict=True)
    ]
    shards = np.repeat(np.arange(len(parts), dtype=np.int32), [len(part.array) for part in parts])
    each = powers / powers.sum() / np.array([len(part.array) for part in parts])
    mass = each[shards]
    trees = []
    for t in range(options.num_trees):
        trees.append(grow_tree(points, mass, shards, cut=options.cut, least_share=share, generator=generator))
        tell("trees", t + 1, options.num_trees)
    return trees


Made = tuple[Floats, Floats, float, tuple[str, ...]]


def _by_shard_gaussians(
    parts: list[Part],
    powers: Floats,
    trees: list[Tree],
    total: int,
    num_candidates: int,
    options: Options,
    generator: np.random.Generator,
) -> Made:
    """Draws from the Gaussian product times the blocks' factors."""
    product = gaussian_product(_stacked(parts), powers)
    factors, spread, left = _factors(parts, powers, trees, options.num_shards, generator)
    shrunk = np.einsum("bij,bji->b", product.shares, product.shares) / len(product.mean)
    worth = 1.0 / float(np.sum(shrunk / np.array([part.effective for part in parts])))
    effective = 1.0 / (1.0 / worth + 1.0 / total)
    if not factors:
        root = np.linalg.cholesky(product.covariance)
        array = generator.standard_normal((total, len(product.mean)))
        for chunk in chunks(0, total):
            array[chunk] = product.mean + array[chunk] @ root.T
        return array, product.mean_error + product.covariance / total, effective, ()
    points, log_proposal, log_target = candidates(
        np.array([part.mean for part in parts]),
        np.array([part.covariance for part in parts]),
        powers / powers.sum(),
        product,
        num_candidates,
        generator,
    )
    log_factors, noise = average_over_trees(points, log_target - log_proposal, trees, factors)
    log_weights = log_target - log_proposal + log_factors
    weights = np.exp(log_weights - log_sum_exp(log_weights))
    array = points[systematic(weights, total, generator)]
    covariance, squared = weighted_moments(points, weights)
    sampling = covariance / total + squared
    error = left * product.mean_error + noise + sampling
    note = f"Blocks showed that densities differ from the shards' Gaussians by {spread**0.5:.0%}."
    return array, error, effective, (note,)


def _stacked(parts: list[Part]) -> ShardMoments:
    return ShardMoments(
        labels=tuple(part.label for part in parts),
        names=parts[0].names,
        sizes=np.array([len(part.array) for part in parts], dtype=np.float64),
        means=np.array([part.mean for part in parts]),
        covariances=np.array([part.covariance for part in parts]),
        effective_draws=np.array([part.effective for part in parts]),
        mean_errors=np.array([part.mean_error for part in parts]),
        dependent=(),
        slow=(),
        covariance_draws=np.array([part.covariance_draws for part in parts]),
    )


def _factors(
    parts: list[Part], powers: Floats, trees: list[Tree], num_shards: int, generator: np.random.Generator
) -> tuple[list[TreeFactors], float, float]:
    """The blocks' factors, their variance before they were shrunk, and the share of the Gaussians that they leave."""
    if not trees:
        return [], 0.0, 1.0
    effective = np.array([part.effective for part in parts])
    noise_ratio = effective / np.array([2 * len(part.array) for part in parts])
    gaussians: list[Iterable[Floats]] = [_gaussian_draws(part, generator) for part in parts]
    counts = count_blocks(trees, [part.array for part in parts], gaussians, effective)
    spread = spread_of_factors(counts, noise_ratio)
    if spread == 0.0:
        return [], 0.0, 1.0
    expected = np.concatenate([found.expected.ravel() for found in counts])
    left = float(np.sum(expected / (1.0 + num_shards * spread * expected)) / np.sum(expected))
    return [tree_factors(x, powers, noise_ratio, num_shards * spread) for x in counts], spread, left


def _gaussian_draws(part: Part, generator: np.random.Generator) -> Iterator[Floats]:
    """Two draws of a set's Gaussian for each of its draws, in pairs on either side of the mean."""
    root = np.linalg.cholesky(part.covariance)
    for chunk in chunks(0, len(part.array)):
        apart = generator.standard_normal(part.array[chunk].shape) @ root.T
        yield part.mean + apart
        yield part.mean - apart
