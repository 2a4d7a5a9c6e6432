"""Kernel product: draws from the product of kernel density estimates of the shards.

Formula. With draws x_bt of sub-posterior b, t = 1 ... n_b, Gaussian kernels, and m_b, V_b the shard's moments,

    p(theta) ~ prod_b (1 / n_b) sum_t N(theta; c_bt, h_b² V_b),   c_bt = m_b + (1 - h_b²)^(1/2) (x_bt - m_b),

a mixture with one Gaussian for every choice of one draw per shard, walked by independent Metropolis within Gibbs
(`kernel_walk`), with bandwidths h_b annealed from 1 (`kernel_bandwidth`). The papers have kernels h² I at the draws
(centres="draws", c_bt = x_bt). V_b makes them know the draws' units and correlations. Centres drawn towards the mean
(West, 1993) keep a kernel estimate from being too wide by 1 + h²: it has the shard's mean and covariance, and is
its Gaussian for h = 1. Annealing then leads from the product of Gaussians to the product of kernels.

Weights. The sub-posteriors' product is the posterior, whatever the shards' weights w_b are: these went into the prior's
power w_b. Inflated draws would need the w_b-th power of a sum of kernels, which is no such mixture.

Annealing stops where the noise of the kernels would move the product by more than `noise_limit` of its standard
deviations. For shards that do not overlap this is near h = 1.

Assumptions. Few dimensions: kernels see less of a density's shape in each one more. Refused where agreeing shards
with so many draws would need a bandwidth above 0.8, which keeps less than a quarter of the skewness; 5,000
draws do for 17 dimensions. In three dimensions or fewer wide kernels only get a warning.

Fails when shards hardly overlap, or have sharp features: modes much narrower than h V_b^(1/2) are smeared.

Cost O(d) per step and walker; memory: the draws' positions once, and two numbers per draw.

Reference. Neiswanger, Wang and Xing (2014), Asymptotically exact, embarrassingly parallel MCMC, UAI, section 3.2 and
Algorithm 1; West (1993), Approximating posterior distributions by mixtures, JRSS B 55(2), for the centres.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from consilience.draws import Subposteriors
from consilience.errors import DrawsError, must_be

from .base import Combined, Equivariance, Floats, Kind, Need, require_choice
from .kernel_bandwidth import (
    NoiseOfBandwidth,
    annealed,
    noise_of_plain_kernels,
    noise_of_shrunk_kernels,
    smallest_bandwidths,
)
from .kernel_combination import Ingredients, Problem, Schedule, check_options, combined_by_walk, prepare
from .kernel_frame import Factors

Centres = Literal["shrunk", "draws"]

# A kernel estimate of this bandwidth with shrunk centres keeps (1 - h²)^(3/2) = 0.22 of the draws' skewness.
WIDEST = 0.8
# In so few dimensions it is draws that lack when kernels have to be wide, which is no reason to refuse.
FEW_DIMENSIONS = 3


@dataclass(frozen=True)
class KernelProduct:
    """Multiply kernel density estimates of the shards, for few dimensions.

    Parameters
    ----------
    centres : "shrunk" or "draws"
        Kernels are centred at draws pulled towards their mean, which keeps mean and covariance, or at the draws.
    num_draws : int, optional
        How many draws come out; as many as the longest shard brought, if not given.
    bandwidth : float
        Multiple of the annealed bandwidth.
    noise_limit : float or None
        Bandwidths are kept so wide that the noise of the kernels moves the product by no more than so many of its
        standard deviations. None anneals to the end.
    max_sweeps : int
        Most sweeps between two draws of a walker; they stop as soon as walkers have forgotten where they were.

    Examples
    --------
    >>> shards = np.random.default_rng(0).normal(size=(4, 2000, 1))
    >>> combined = KernelProduct().combine(Subposteriors.of(shards, kind="subposterior"))
    >>> combined.array.shape, round(float(combined.array.std()), 1)
    ((2000, 1), 0.5)
    """

    centres: Centres = "shrunk"
    num_draws: int | None = None
    bandwidth: float = 1.0
    noise_limit: float | None = 0.3
    max_sweeps: int = 500

    name: ClassVar[str] = "kernel-product"
    reference: ClassVar[str] = "Neiswanger, Wang and Xing (2014), UAI, nonparametric estimator"
    kind: ClassVar[Kind] = "subposterior"
    needs: ClassVar[tuple[Need, ...]] = ("draws",)
    exact_for_gaussian: ClassVar[bool] = True
    joint: ClassVar[bool] = True
    equivariance: ClassVar[Equivariance] = "affine"

    def __post_init__(self) -> None:
        require_choice("kernel-product", "centres", self.centres, ("shrunk", "draws"))
        check_options("kernel-product", self.num_draws, self.bandwidth, self.noise_limit, self.max_sweeps)

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0) -> Combined:
        """Walk over the components of the product."""
        problem = prepare(subposteriors, pull=0.0)
        self._require_few_dimensions(problem)
        schedule = Schedule(self.num_draws or max(subposteriors.num_draws), self.max_sweeps)
        combined = combined_by_walk(problem, schedule, lambda f: self._ingredients(problem, f), seed)
        wide = _wide_warning(self._bandwidths(problem, 1.0), self.centres)
        return replace(combined, warnings=combined.warnings + wide)

    def draws_per_shard(self, total: int, num_shards: int) -> int:
        """As many draws come out as the longest shard brought."""
        return total

    @property
    def _noise(self) -> NoiseOfBandwidth:
        return noise_of_shrunk_kernels if self.centres == "shrunk" else noise_of_plain_kernels

    def _bandwidths(self, problem: Problem, fraction: float) -> Floats:
        found = problem.bandwidths(fraction, self.bandwidth, self._noise, self.noise_limit)
        return np.minimum(found, 1.0)

    def _ingredients(self, problem: Problem, fraction: float) -> Ingredients:
        """Kernels alone, of every shard."""
        bandwidths, d = self._bandwidths(problem, fraction), problem.frame.dimension
        shrunk = self.centres == "shrunk"
        shrinkage = np.sqrt(1.0 - bandwidths**2) if shrunk else np.ones_like(bandwidths)
        factors = Factors(
            active=tuple(range(len(bandwidths))),
            bandwidths=bandwidths,
            shrinkage=shrinkage,
            tilted=False,
            weights_precision=np.zeros((d, d)),
            weights_mean=np.zeros(d),
            component_precision=np.zeros((d, d)),
        )
        return Ingredients(factors, 1.0 - shrinkage, bandwidths**2 / (shrinkage**2 + bandwidths**2))

    def _require_few_dimensions(self, problem: Problem) -> None:
        """Refuse dimensions in which kernels are too wide to show anything, even if shards agree."""
        d, counts = problem.frame.dimension, problem.moments.effective_draws.min(keepdims=True)
        lowest = self.bandwidth * annealed(counts, 1.0, d)
        agreeing = np.array([float(d)])
        needed = smallest_bandwidths(self._noise, lowest, counts, agreeing, d, self.noise_limit)
        if d <= FEW_DIMENSIONS or needed[0] <= WIDEST:
            return
        raise must_be(
            "kernel-product",
            "draws",
            f"of fewer dimensions, or many more of them per shard, for kernels narrower than {WIDEST} of the "
            "shards' standard deviations",
            f"{counts[0]:.0f} effective draws in {d} dimensions",
            "Use 'semiparametric-product', 'consensus' or 'gaussian-product'.",
            error=DrawsError,
        )


def _wide_warning(bandwidths: Floats, centres: Centres) -> tuple[str, ...]:
    wide = int(np.count_nonzero(bandwidths > WIDEST))
    if not wide:
        return ()
    so = "enter nearly as Gaussians" if centres == "shrunk" else "make the product too wide"
    return (
        f"{wide} of {len(bandwidths)} shards have so few draws near the product that their kernels had to be wider "
        f"than {WIDEST} of their standard deviations: these shards {so}. Make more draws, and look at how far the "
        "shards agree.",
    )
