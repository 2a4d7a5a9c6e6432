"""Thesis section 3.3.1, table 3.1: three-dimensional Gaussian shards of very different covariances.

Sub-posteriors N(mu_b, Sigma_b), mu_b ~ N(0, I_3), Sigma_b^-1 ~ Wishart(5, I_3 / 5), 2,000 draws of every
shard; measured on the first parameter, the thesis' theta. The thesis does not say how many shards there
were: 10 are taken here. Its chapter 3 defines IAD without the factor 1/2 and yet bounds it by 1; ours has
the 1/2.

The rows "fed sub-posterior draws" make the silent mistake on purpose: rules for inflated draws given the
others, which are sqrt(B) too wide. The thesis' IAD of .70 is what that gives.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

import consilience as cs
from papers.experiment import Experiment, Settings, main
from papers.gaussian_shards import GaussianShards
from papers.measuring import Reference, gaussian_law, measured
from papers.rules import combine, combine_all
from papers.tables import Collected, Table

SHARDS, DRAWS, DIMENSION = 10, 2_000, 3
COLUMNS = ("standardised_mean", "skew", "iad", "spread")
PAPER = {
    "marginal-views": ("0.06 (0.04)", "0.05 (0.04)", "0.05 (<0.01)"),
    "consensus": ("0.02 (0.02)", "0.06 (0.04)", "0.03 (0.01)"),
    "semiparametric-product": ("0.26 (0.20)", "0.18 (0.15)", "0.16 (0.07)"),
    "pie": ("0.32 (0.26)", "0.08 (0.06)", "0.74 (0.02)"),
    "gaussian-barycenter": ("0.33 (0.22)", "0.07 (0.06)", "0.70 (0.01)"),
    "recentering": ("0.28 (0.15)", "0.06 (0.05)", "0.70 (0.01)"),
}


def gaussian_shards(rng: np.random.Generator) -> GaussianShards:
    """Means and covariances drawn as the thesis does."""
    factors = rng.normal(size=(SHARDS, 5, DIMENSION)) / np.sqrt(5)
    covariances = np.linalg.inv(np.swapaxes(factors, 1, 2) @ factors)
    return GaussianShards(rng.normal(size=(SHARDS, DIMENSION)), covariances)


def tables(settings: Settings) -> Sequence[Table]:
    """One table, of the first parameter."""
    draws = 200 if settings.small else DRAWS
    found = Collected()
    for repetition in range(settings.runs):
        rng = np.random.default_rng([settings.seed, repetition])
        shards = gaussian_shards(rng)
        mean, covariance = shards.posterior()
        law = gaussian_law(mean[:1], covariance[:1, :1])
        reference = Reference(shards.sample(draws, rng)[:, :1], law)
        for number in (SHARDS * draws, draws):
            row = f"floor, {number:,} exact draws"
            found.add(row, measured(shards.sample(number, rng)[:, :1], reference))
        kinds = shards.draws(draws, rng)
        for name, posterior in combine_all(kinds, seed=repetition):
            found.add(name, measured(posterior.array[:, :1], reference))
        wrong = cs.Subposteriors.of(kinds["subposterior"].draws, kind="inflated")
        for name in ("recentering", "gaussian-barycenter"):
            array = combine(name, wrong, repetition).array[:, :1]
            found.add(f"{name}, fed sub-posterior draws", measured(array, reference))
    paper = {rule: dict(zip(COLUMNS, values, strict=False)) for rule, values in PAPER.items()}
    caption = "First of three parameters against its exact law; the thesis' numbers with standard deviations"
    return [found.table(caption, COLUMNS, paper)]


EXPERIMENT = Experiment("thesis_trivariate", "Vyner's thesis, section 3.3.1, table 3.1", 50, tables)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
