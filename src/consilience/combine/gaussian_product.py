"""Gaussian product: draws from the product of the Gaussians fitted to the shards.

Formula. N(mu, V) with V⁻¹ = sum a_b V_b⁻¹ and mu = V sum a_b V_b⁻¹ mu_b, where a_b = w_b for inflated draws
and a_b = 1 for sub-posterior draws; V⁻¹ is corrected for the noise of the estimated V_b (see `moments`).

Assumptions. Gaussian sub-posteriors; exact then. A shard only has to send its mean and covariance.

Fails on any other shape, silently: skewness and modes are gone.

Reference. Neiswanger, Wang and Xing (2014), Asymptotically exact, embarrassingly parallel MCMC, UAI, the
parametric estimator; Huang and Gelman (2005), Sampling for Bayesian computation with large datasets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from consilience.draws import Subposteriors
from consilience.errors import InputError, must_be

from .base import Combined, Equivariance, Kind, Need, effective_sizes, shared_out
from .moments import gaussian_product, shard_moments


@dataclass(frozen=True)
class GaussianProduct:
    """Sample from the product of the shards' Gaussian approximations.

    Parameters
    ----------
    num_draws : int, optional
        How many draws come out; as many as all shards brought together, if not given.

    Examples
    --------
    >>> shards = np.random.default_rng(0).normal(size=(4, 1000, 1))
    >>> combined = GaussianProduct(num_draws=5000).combine(Subposteriors.of(shards, kind="subposterior"))
    >>> combined.array.shape, round(float(combined.array.std()), 1)
    ((5000, 1), 0.5)
    """

    num_draws: int | None = None

    name: ClassVar[str] = "gaussian-product"
    reference: ClassVar[str] = "Neiswanger, Wang and Xing (2014), UAI, parametric estimator"
    kind: ClassVar[Kind] = "any"
    needs: ClassVar[tuple[Need, ...]] = ("draws",)
    exact_for_gaussian: ClassVar[bool] = True
    joint: ClassVar[bool] = True
    equivariance: ClassVar[Equivariance] = "affine"

    def __post_init__(self) -> None:
        if self.num_draws is not None and (not isinstance(self.num_draws, int) or self.num_draws < 1):
            raise must_be(
                "gaussian-product",
                "num_draws",
                "a positive whole number",
                self.num_draws,
                "Leave it out.",
                error=InputError,
            )

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0) -> Combined:
        """Sample from the product."""
        weights = np.asarray(subposteriors.weights)
        powers = weights if subposteriors.kind == "inflated" else np.ones_like(weights)
        product = gaussian_product(shard_moments(subposteriors), powers)
        total = self.num_draws or sum(subposteriors.num_draws)
        error = product.mean_error + product.covariance / total
        return Combined(
            array=sample_gaussian(product.mean, product.covariance, total, seed),
            effective_sizes=effective_sizes(product.covariance, error),
            warnings=product.warnings,
        )

    def draws_per_shard(self, total: int, num_shards: int) -> int:
        """As many draws come out as all shards brought."""
        return shared_out(total, num_shards)


def sample_gaussian(mean: np.ndarray, covariance: np.ndarray, total: int, seed: int) -> np.ndarray:
    """Draw from N(mean, covariance).

    Examples
    --------
    >>> sample_gaussian(np.zeros(1), np.eye(1), 3, seed=0).shape
    (3, 1)
    """
    scale = np.sqrt(np.diagonal(covariance))
    root = np.linalg.cholesky(covariance / np.outer(scale, scale))
    return mean + (np.random.default_rng(seed).standard_normal((total, len(mean))) @ root.T) * scale
