"""Semiparametric product: the product of the shards' Gaussians, each corrected by kernels.

Formula. With f_b = N(m_b, V_b) fitted to sub-posterior b, each factor is the estimate of Hjort and Glad (1995),

    p_b(theta) = f_b(theta) r_b(theta),   r_b(theta) = (1 / n_b) sum_t N(theta; x_bt, h_b² V_b) / f_b(x_bt),

whose correction r_b is 1 on average for a Gaussian shard, whatever h_b is. The product is a mixture with one Gaussian
for every choice t of one draw per shard. With V⁻¹ = sum V_b⁻¹, mu = V sum V_b⁻¹ m_b and K_b = V_b⁻¹ / h_b², component
t has precision V⁻¹ + sum K_b and mean (V⁻¹ + sum K_b)⁻¹ (V⁻¹ mu + sum K_b x_bt), and weight

    W_t ~ w_t N(xbar_t; mu, V + (sum K_b)⁻¹) / prod_b f_b(x_bt),   w_t = prod_b N(x_bt; xbar_t, h_b² V_b),

with xbar_t = (sum K_b)⁻¹ sum K_b x_bt: the paper's (h_b² I in the place of h_b² V_b) where V_b = I.
component_weights="semiparametric" walks with W_t. The paper's other choice, "nonparametric", walks over these
components with w_t, which reaches farther and tends to the kernel product likewise. Taken as it is, it makes products
of Gaussian shards too narrow, with 1 - h² / (1 + h²)² of their variance, so draws are first pushed outwards, to
m_b + (1 + h_b²)^(1/2) (x_bt - m_b), which makes it exact for them at any h_b and changes nothing as h_b tends to 0.
The walk is that of `kernel_walk`, bandwidths are those of `kernel_bandwidth`, and V_b those of `common_precision`.

Weights. The sub-posteriors' product is the posterior whatever the shards' weights w_b are, as for `kernel_product`.

Where the correction cannot be seen. r_b is needed where the product is, and estimated from draws near there. Annealing
stops where its noise would move the product by more than `noise_limit` of its standard deviations, and for shards
whose draws cannot tell at any bandwidth r_b stays 1: they enter as Gaussians, with a warning. If that is all of
them, draws come from the product of the Gaussians, and the walk is not needed.

Assumptions. Shards that overlap, and few dimensions, for the correction to be seen: 5,000 draws of agreeing shards
do for 6 dimensions with semiparametric weights, for 16 with nonparametric ones. Beyond, shards near Gaussian.

Fails: f_b in the denominator makes tails loud. A shard with lighter tails than its Gaussian is fine, one with much
heavier tails has its outliers corrected upwards, by noise.

Cost O(d) per step and walker; memory: the draws' positions once, and two numbers per draw.

Reference. Neiswanger, Wang and Xing (2014), Asymptotically exact, embarrassingly parallel MCMC, UAI, section 3.3; Hjort
and Glad (1995), Nonparametric density estimation with a parametric start, Annals of Statistics 23(3).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from consilience.draws import Subposteriors

from .base import Combined, Equivariance, Floats, Kind, Need, effective_sizes, require_choice
from .gaussian_product import sample_gaussian
from .kernel_bandwidth import noise_of_correction, noise_of_spread_kernels
from .kernel_combination import Ingredients, Problem, Schedule, check_options, combined_by_walk, prepare
from .kernel_frame import Factors

Weights = Literal["semiparametric", "nonparametric"]


@dataclass(frozen=True)
class SemiparametricProduct:
    """Multiply the shards' Gaussians, corrected by kernels where draws can tell.

    Parameters
    ----------
    component_weights : "semiparametric" or "nonparametric"
        Weights W_t of the corrected Gaussians, or w_t of plain kernels.
    num_draws : int, optional
        How many draws come out; as many as the longest shard brought, if not given.
    bandwidth : float
        Multiple of the annealed bandwidth.
    noise_limit : float or None
        A shard is corrected only where the noise of its correction moves the product by no more than so many of
        its standard deviations. None corrects every shard, and anneals to the end.
    max_sweeps : int
        Most sweeps between two draws of a walker; they stop as soon as walkers have forgotten where they were.

    Examples
    --------
    >>> shards = np.random.default_rng(0).normal(size=(4, 2000, 1))
    >>> combined = SemiparametricProduct().combine(Subposteriors.of(shards, kind="subposterior"))
    >>> combined.array.shape, round(float(combined.array.std()), 1)
    ((2000, 1), 0.5)
    """

    component_weights: Weights = "semiparametric"
    num_draws: int | None = None
    bandwidth: float = 1.0
    noise_limit: float | None = 0.3
    max_sweeps: int = 500

    name: ClassVar[str] = "semiparametric-product"
    reference: ClassVar[str] = "Neiswanger, Wang and Xing (2014), UAI, semiparametric estimator"
    kind: ClassVar[Kind] = "subposterior"
    needs: ClassVar[tuple[Need, ...]] = ("draws",)
    exact_for_gaussian: ClassVar[bool] = True
    joint: ClassVar[bool] = True
    equivariance: ClassVar[Equivariance] = "affine"

    def __post_init__(self) -> None:
        choices = ("semiparametric", "nonparametric")
        require_choice("semiparametric-product", "component_weights", self.component_weights, choices)
        check_options(
            "semiparametric-product", self.num_draws, self.bandwidth, self.noise_limit, self.max_sweeps
        )

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0) -> Combined:
        """Walk over the components of the product, or sample the Gaussian product if none can be corrected."""
        problem = prepare(subposteriors, pull=None)
        total = self.num_draws or max(subposteriors.num_draws)
        bandwidths = self._bandwidths(problem, 1.0)
        warnings = _uncorrected_warning(problem, np.flatnonzero(np.isinf(bandwidths)))
        if np.all(np.isinf(bandwidths)):
            combined = _gaussian_draws(problem, total, seed)
        else:
            # Divided by their Gaussians, kernels as wide as these prefer outliers: a bad place to come from.
            schedule = Schedule(total, self.max_sweeps, from_widest=self.component_weights == "nonparametric")
            combined = combined_by_walk(problem, schedule, lambda f: self._ingredients(problem, f), seed)
        return replace(combined, warnings=combined.warnings + warnings)

    def draws_per_shard(self, total: int, num_shards: int) -> int:
        """As many draws come out as the longest shard brought."""
        return total

    def _bandwidths(self, problem: Problem, fraction: float) -> Floats:
        """Bandwidths, infinity for shards that enter as Gaussians: the same ones from beginning to end."""
        plain = self.component_weights == "nonparametric"
        noise = noise_of_spread_kernels if plain else noise_of_correction
        last = problem.bandwidths(1.0, self.bandwidth, noise, self.noise_limit)
        now = problem.bandwidths(fraction, self.bandwidth, noise, None)
        return np.where(np.isinf(last), np.inf, np.maximum(now, np.minimum(last, 1.0)))

    def _ingredients(self, problem: Problem, fraction: float) -> Ingredients:
        """Kernels of the shards that can be corrected, and the Gaussians."""
        bandwidths, frame = self._bandwidths(problem, fraction), problem.frame
        corrected = np.isfinite(bandwidths)
        identity = np.eye(frame.dimension)
        if self.component_weights == "semiparametric":
            precision, natural = identity, np.zeros(frame.dimension)
            shrinkage = np.ones_like(bandwidths)
            # To first order a correction takes back what its Gaussian's moments get wrong.
            mean_shares = covariance_shares = np.where(corrected, 0.0, 1.0)
        else:
            rest = frame.precisions[~corrected]
            precision, natural = rest.sum(axis=0), np.einsum("bij,bj->i", rest, frame.means[~corrected])
            finite = np.where(corrected, bandwidths, 0.0)
            shrinkage, share = np.sqrt(1.0 + finite**2), 1.0 / (1.0 + bandwidths**-2.0)
            # The components' Gaussian has the share h² / (1 + h²), and the kernels lean on moments themselves.
            mean_shares = share + (1.0 - share) * (1.0 - shrinkage)
            covariance_shares = share + (1.0 - share) * finite**2 / (1.0 + 2.0 * finite**2)
        factors = Factors(
            active=tuple(map(int, np.flatnonzero(corrected))),
            bandwidths=bandwidths,
            shrinkage=shrinkage,
            tilted=self.component_weights == "semiparametric",
            weights_precision=precision,
            weights_mean=natural,
            component_precision=identity,
        )
        return Ingredients(factors, mean_shares, covariance_shares)


def _gaussian_draws(problem: Problem, total: int, seed: int) -> Combined:
    """Draws of the Gaussian product."""
    product = problem.product
    own_seed = int(np.random.SeedSequence([seed, problem.key]).generate_state(1, np.uint64)[0])
    variance = np.sum(product.mean_variances + product.weight_variances, axis=0)
    return Combined(
        array=sample_gaussian(product.mean, product.covariance, total, own_seed),
        effective_sizes=effective_sizes(product.covariance, np.diag(variance) + product.covariance / total),
        warnings=product.warnings,
    )


def _uncorrected_warning(problem: Problem, uncorrected: np.ndarray) -> tuple[str, ...]:
    if not uncorrected.size:
        return ()
    number = problem.shards.num_shards
    distance = np.sqrt(problem.frame.squared_distances()[uncorrected])
    worst = int(np.argmax(distance))
    return (
        f"{uncorrected.size} of {number} shards enter as Gaussians: too few of their draws come near the product to "
        f"correct them there (shard {problem.shards.labels[uncorrected[worst]]} lies {distance[worst]:.1f} of its "
        f"standard deviations away, in {problem.frame.dimension} dimensions).",
    )
