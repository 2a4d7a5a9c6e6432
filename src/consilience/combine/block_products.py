"""Products of the shards' densities on the blocks of a random partition tree, as the paper has them.

Formula. Shard b has J_b draws, n_bk of them in block A_k; its power a_b is w_b for inflated draws and 1 for
sub-posterior draws; A = sum a_b. The product's share of block k is

    prod_b (n_bk / J_b)^a_b |A_k|^(1 - A).

Within a block, "uniform" draws evenly, and "block-gaussian" from N(m_k, S_k), S_k⁻¹ = sum a_b S_bk⁻¹ and m_k = S_k
sum a_b S_bk⁻¹ m_bk, of the draws in the block. For inflated draws A = 1: the volume drops out, and the shares are
geometric means.

Fails as histograms do: "uniform" widens what varies within a block. "block-gaussian" takes what a block cuts off for
the shape of the shard, and multiplies it; it pulls draws to the middle of blocks that are wider than the posterior.

Reference. Wang, Guo, Heller and Dunson (2015), Parallelizing MCMC with random partition trees, NIPS 28, section 2.
"""

from __future__ import annotations

import numpy as np

from consilience.numerics import estimate_precision, symmetric_root

from .base import Floats
from .random_trees import Integers, Tree

# Added to counts, as the authors do: no shard alone can forbid a block.
PSEUDO_COUNT = 0.1


def draw_from_blocks(
    arrays: list[Floats],
    effective: Floats,
    powers: Floats,
    trees: list[Tree],
    total: int,
    within: str,
    generator: np.random.Generator,
) -> tuple[Floats, Floats]:
    """Draws from the product of histograms, as many from each tree.

    Parameters
    ----------
    arrays : per shard (J_b, d)
    effective : (B,)
        What the draws are worth.
    powers : (B,)
    trees : list of Tree
    total : int
    within : "uniform" or "block-gaussian"
    generator : numpy.random.Generator

    Returns
    -------
    draws : (total, d)
    mean_error : (d, d)
        Monte Carlo covariance of their mean.
    """
    sizes = np.array([len(x) for x in arrays], dtype=np.float64)
    numbers = np.bincount(np.arange(total) % len(trees), minlength=len(trees))
    made, noise = [], np.zeros((arrays[0].shape[1],) * 2)
    for tree, number in zip(trees, numbers, strict=True):
        members = [tree.blocks_of(x) for x in arrays]
        counts = np.array([np.bincount(k, minlength=tree.num_blocks) for k in members], dtype=np.float64)
        shares = np.exp(histogram_log_shares(tree, counts, sizes, powers))
        blocks = generator.choice(tree.num_blocks, size=number, p=shares / shares.sum())
        if within == "uniform":
            made.append(sample_uniform(tree, blocks, generator))
        else:
            made.append(sample_block_gaussians(blocks, arrays, members, powers, generator))
        # sum_k pi_k² (x_k - m)(x_k - m)' Var(log pi_k), with x_k the middle of the block.
        middles = 0.5 * (tree.lower + tree.upper)
        pulls = shares[:, None] * (middles - shares @ middles)
        variance = np.sum((powers**2 * sizes / effective)[:, None] / np.maximum(counts, 1.0), axis=0)
        noise += (pulls * variance[:, None]).T @ pulls / len(trees)
    draws = generator.permutation(np.concatenate(made))
    return draws, noise + np.atleast_2d(np.cov(draws, rowvar=False)) / total


def histogram_log_shares(tree: Tree, counts: Floats, sizes: Floats, powers: Floats) -> Floats:
    """Log shares of a tree's blocks in the product of histograms, normalised.

    Parameters
    ----------
    tree : Tree
    counts : (B, K)
    sizes : (B,)
    powers : (B,)
    """
    volumes = np.sum(np.log(tree.upper - tree.lower), axis=1)
    logs = powers @ np.log((counts + PSEUDO_COUNT) / sizes[:, None]) - (powers.sum() - 1.0) * volumes
    logs -= logs.max()
    return logs - np.log(np.sum(np.exp(logs)))


def sample_uniform(tree: Tree, blocks: Integers, generator: np.random.Generator) -> Floats:
    """One draw, evenly within each of these blocks."""
    low, high = tree.lower[blocks], tree.upper[blocks]
    return low + (high - low) * generator.random(low.shape)


def sample_block_gaussians(
    blocks: Integers,
    arrays: list[Floats],
    members: list[Integers],
    powers: Floats,
    generator: np.random.Generator,
) -> Floats:
    """One draw for each of these blocks from the product of the shards' Gaussians in it.

    Parameters
    ----------
    blocks : (n,) numbers of blocks
    arrays : per shard (J_b, d)
    members : per shard (J_b,) the block of every draw
    powers : (B,)
    generator : numpy.random.Generator
    """
    drawn = generator.standard_normal((len(blocks), arrays[0].shape[1]))
    for block in np.unique(blocks):
        inside = [x[k == block] for x, k in zip(arrays, members, strict=True)]
        mean, covariance = _block_gaussian(inside, powers)
        rows = blocks == block
        drawn[rows] = mean + drawn[rows] @ symmetric_root(covariance)[0]
    return drawn


def _block_gaussian(inside: list[Floats], powers: Floats) -> tuple[Floats, Floats]:
    """Product of Gaussians in one block; where some shard has too few draws there, of all draws together."""
    d = inside[0].shape[1]
    sizes = np.array([len(x) for x in inside])
    if sizes.min() > d + 4:
        means = np.array([x.mean(axis=0) for x in inside])
        covariances = np.array([np.atleast_2d(np.cov(x, rowvar=False)) for x in inside])
        if np.linalg.eigvalsh(covariances).min() > 0:
            precisions = estimate_precision(covariances, sizes).precision * powers[:, None, None]
            covariance = np.linalg.inv(precisions.sum(axis=0))
            return covariance @ np.einsum("bij,bj->i", precisions, means), covariance
    together = np.concatenate(inside)
    centred = together - together.mean(axis=0)
    return together.mean(axis=0), centred.T @ centred / (len(together) * powers.sum())
