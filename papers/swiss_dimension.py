"""SwISS section 4.1, the left plot of figure 2: accuracy as the dimension grows.

Sub-posteriors N(mu_b, V_b), mu_b ~ N(0, I_d), V_b ~ inverse Wishart(5 d, I_d), B = 10 shards of J = 5,000
draws, d in {5, 10, 20, 40, 80}. V_b are covariances of *sub*-posteriors, as the paper's own posterior
(V^-1 = sum V_b^-1) has it, so the inflated ones are N(mu_b, V_b / B); the paper does not say so.

With these laws shards contradict each other: standard deviations are about 1 / sqrt(4 d), the means one apart.
No data split at random does that, so the same is run with means mu_b ~ N(0, V_b), which is how far apart
shards of one data set are by chance.

Rules that keep every draw return 50,000, the others 5,000: the noise floor is shown for both sizes. The paper
gives this experiment as a figure only.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from papers.experiment import Experiment, Settings, main
from papers.gaussian_shards import GaussianShards
from papers.measuring import measured
from papers.rules import combine_all
from papers.tables import Collected, Table

SHARDS, DRAWS = 10, 5_000
DIMENSIONS = (5, 10, 20, 40, 80)
CAPTIONS = {
    "iad": "Integrated absolute distance to the exact marginals",
    "mahalanobis": "Mahalanobis distance of the mean to the exact mean",
    "skew": "Mean absolute skewness (0 is right)",
    "spread": "Ratio of standard deviations to the exact ones (geometric mean; 1 is right)",
}


def gaussian_shards(dimension: int, rng: np.random.Generator, scattered: bool = True) -> GaussianShards:
    """Covariances drawn as the paper does; means N(0, I) as it does, or N(0, V_b)."""
    # V ~ inverse Wishart(5 d, I) when V^-1 ~ Wishart(5 d, I), a sum of 5 d outer products.
    factors = rng.normal(size=(SHARDS, 5 * dimension, dimension))
    covariances = np.linalg.inv(np.swapaxes(factors, 1, 2) @ factors)
    means = rng.normal(size=(SHARDS, dimension))
    if not scattered:
        means = np.einsum("bij,bj->bi", np.linalg.cholesky(covariances), means)
    return GaussianShards(means, covariances)


def accuracy(
    dimension: int, draws: int, settings: Settings, found: dict[str, Collected], scattered: bool
) -> None:
    """Every rule against the exact posterior, one column per dimension."""
    column = str(dimension)
    for repetition in range(settings.runs):
        rng = np.random.default_rng([settings.seed, dimension, repetition])
        shards = gaussian_shards(dimension, rng, scattered)
        reference = shards.reference(draws, rng)
        rows = {f"floor, {n:,} exact draws": shards.sample(n, rng) for n in (SHARDS * draws, draws)}
        for row, sample in rows.items():
            values = measured(sample, reference)
            for measure in CAPTIONS:
                found[measure].add(row, {column: values[measure]})
        for name, posterior in combine_all(shards.draws(draws, rng), seed=repetition):
            values = measured(posterior, reference)
            for measure in CAPTIONS:
                found[measure].add(name, {column: values[measure]})
        print(f"d = {dimension}, repetition {repetition + 1}", file=sys.stderr, flush=True)


def tables(settings: Settings) -> Sequence[Table]:
    """Tables of accuracy, for the paper's means and for consistent ones."""
    dimensions, draws = ((5, 10), 300) if settings.small else (DIMENSIONS, DRAWS)
    columns = [str(d) for d in dimensions]
    out = []
    for scattered, means in ((True, "as in the paper"), (False, "as far apart as chance puts them")):
        found = {measure: Collected() for measure in CAPTIONS}
        for dimension in dimensions:
            accuracy(dimension, draws, settings, found, scattered)
        for measure, caption in CAPTIONS.items():
            title = f"{caption}; means {means}"
            out.append(found[measure].table(title, columns, titles={c: f"d = {c}" for c in columns}))
    return out


EXPERIMENT = Experiment("swiss_dimension", "SwISS section 4.1, figure 2, left", 3, tables)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
