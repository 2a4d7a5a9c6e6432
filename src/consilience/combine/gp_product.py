"""Product of Gaussian-process approximations of the shards' log densities.

Formula. Sub-posterior draws theta_bj come with the log densities l_b(theta_bj) of what was sampled. A quadratic
and a Gaussian process on top of it are fitted to a few hundred of these pairs per shard (`gp_surface`), which
gives the log density everywhere, with mean mu_b and variance sigma_b². The posterior's log density is then a
Gaussian process with mean sum mu_b and variance sum sigma_b² (`gp_density`), and Hamiltonian Monte Carlo
(`gp_sampler`) draws from

    exp(sum mu_b + sum sigma_b² / 2),  the expected density ("expected"), or from   exp(sum mu_b)  ("mean"),

wherever the surfaces are known (`gp_density` says what happens elsewhere).

The importance correction (`gp_realisations`) weighs the draws by realisations of the process: the weighted draws
estimate the expectation over all log posteriors that agree with what was evaluated, and the realisations'
spread is what is not known about it.

Assumptions. The log densities are those of the columns, up to a constant per shard: of all the parameters that
were sampled, in the coordinates in which they are combined. They are smooth. No shape is assumed: skewness,
bent and several modes are kept. Gaussians are reproduced to rounding, whatever the draws: neither the noise of
estimated covariances nor the distance between shards matters to them. The rule then draws independently.

Kind. The product takes no powers of sub-posteriors, so the shards' weights play no part. Inflated draws would
do with powers w_b, but lie sqrt(B) posterior standard deviations away from where the surfaces are needed.

Fails. Where the shards' draws do not reach the posterior, surfaces are extrapolated: there is a warning when
combined draws lie farther from a shard than all of its own, and when realisations disagree, so that their
weights are worth few draws. Log densities of other columns than those given, or
rounded ones, scatter about any surface: there is a warning for that, and a refusal when it is hopeless. Beyond
20 dimensions a few hundred points say nothing about a process: log densities that are quadratics are taken, by
`gp_quadratic`, and others are refused.

Cost. n points per shard: n³ to fit, n per shard and leapfrog step, n² per shard and draw for variances. The
factors take n² numbers per shard, and n is about (2 J d)^1/2, so that they cost twice the memory of the draws;
quadratics need none.

Reference. Nemeth and Sherlock (2018), Merging MCMC subposteriors through Gaussian-process approximations,
Bayesian Analysis 13(2), 507-530, sections 2, 3.1 and 3.3. Their section 3.2, importance weights from the shards' own
densities at the combined draws, is another look at the data, and as such a refinement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from consilience.draws import Subposteriors
from consilience.errors import DrawsError, InputError, must_be
from consilience.numerics import weighted_covariance
from consilience.progress import tell

from .base import Combined, Equivariance, Floats, Kind, Need, effective_sizes, require_choice, shared_out
from .gp_density import Placed, Product
from .gp_design import design_points
from .gp_diagnosis import LOOKED_AT, ROUGH, disagreement, judged, notes, out_of_reach, roughness
from .gp_quadratic import fit_quadratic, mean_error
from .gp_realisations import KNOWN, Spread, realisations
from .gp_sampler import sample_product
from .gp_surface import NEGLIGIBLE, Surface, fit_surface, num_features
from .moments import ShardMoments, shard_moments
from .permute import canonical_order

Density = Literal["expected", "mean"]
Weighting = Literal["none", "realisations"]

# A process in more dimensions than this is not seen by any number of points that can be afforded.
MOST_DIMENSIONS_OF_PROCESS = 20
# Points per coefficient of the quadratic: wanted, and the least with which residuals mean something.
POINTS_PER_FEATURE = 2.0
LEAST_POINTS_PER_FEATURE = 1.5
FEWEST_POINTS = 30
POINTS_OF_NOISY_QUADRATIC = 20


@dataclass(frozen=True)
class GaussianProcessProduct:
    """Sample from the product of Gaussian-process approximations of the shards' log densities.

    Parameters
    ----------
    density : "expected" or "mean"
        Draw from the expectation of the process's exponential, or from the exponential of its mean.
    weighting : "none" or "realisations"
        Leave the draws unweighted, or weigh them by realisations of the process.
    num_points : int, optional
        Points per shard that surfaces rest on; (2 J d)^1/2, and enough for the quadratic, if not given.
    num_realisations : int
        Realisations for weights and for what the surfaces leave unknown.
    num_draws : int, optional
        How many draws come out; as many as all shards brought together, if not given.

    Examples
    --------
    Two shards of an exponential rate, on its log scale: the product of Gammas is a Gamma.

    >>> rng = np.random.default_rng(0)
    >>> shards = [np.log(rng.gamma(3.0, 1.0 / rate, size=(500, 1))) for rate in (1.0, 2.0)]
    >>> densities = [3.0 * x[:, 0] - rate * np.exp(x[:, 0]) for x, rate in zip(shards, (1.0, 2.0))]
    >>> draws = Subposteriors.of(shards, kind="subposterior", log_densities=densities)
    >>> combined = GaussianProcessProduct(num_draws=4000).combine(draws)
    >>> round(float(np.exp(combined.array).mean()), 1)
    2.0
    """

    density: Density = "expected"
    weighting: Weighting = "none"
    num_points: int | None = None
    num_realisations: int = 64
    num_draws: int | None = None

    name: ClassVar[str] = "gp-product"
    reference: ClassVar[str] = "Nemeth and Sherlock (2018), Bayesian Analysis 13(2), sections 2, 3.1 and 3.3"
    kind: ClassVar[Kind] = "subposterior"
    needs: ClassVar[tuple[Need, ...]] = ("draws", "log densities")
    exact_for_gaussian: ClassVar[bool] = True
    joint: ClassVar[bool] = True
    equivariance: ClassVar[Equivariance] = "affine"

    def __post_init__(self) -> None:
        require_choice(self.name, "density", self.density, ("expected", "mean"))
        require_choice(self.name, "weighting", self.weighting, ("none", "realisations"))
        _require_number("num_points", self.num_points, 4, optional=True)
        _require_number("num_realisations", self.num_realisations, 2)
        _require_number("num_draws", self.num_draws, 1, optional=True)

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0) -> Combined:
        """Fit the surfaces, draw from their product, and look at what realisations of it say."""
        moments = shard_moments(subposteriors)
        self._check(subposteriors, moments)
        order, key = canonical_order(subposteriors)
        generator = np.random.default_rng([seed, key])
        product = Product(self._surfaces(subposteriors, moments, order))
        rough = roughness(subposteriors, product, order)
        total = self.num_draws or sum(subposteriors.num_draws)
        array, lengths = self._draws(product, total, generator)
        sizes, mixing = judged(array, lengths) if lengths else (np.full(array.shape[1], float(total)), ())
        some = array[:: -(-total // LOOKED_AT)]
        weighted = self.weighting == "realisations"
        spread = realisations(
            product,
            array if weighted else some,
            self.num_realisations,
            generator,
            self.density == "expected",
        )
        log_weights = None
        if spread is not None and weighted:
            log_weights = np.log(np.maximum(spread.weights, np.finfo(np.float64).tiny))
        return Combined(
            array=array,
            log_weights=log_weights,
            effective_sizes=_effective_sizes(product, array, sizes, spread, log_weights),
            chain_lengths=lengths,
            notes=notes(product),
            warnings=rough
            + out_of_reach(subposteriors, product, order, some)
            + disagreement(spread)
            + mixing,
        )

    def draws_per_shard(self, total: int, num_shards: int) -> int:
        """As many draws come out as all shards brought."""
        return shared_out(total, num_shards)

    def _check(self, subposteriors: Subposteriors, moments: ShardMoments) -> None:
        d, sizes = subposteriors.dimension, subposteriors.num_draws
        if subposteriors.log_densities is None:
            advice = "Pass Subposteriors.of(..., log_densities=...)."
            raise must_be(
                self.name, "draws", "stored with their log densities", "none", advice, error=DrawsError
            )
        least, fewest = _least_points(d), int(np.argmin(sizes))
        if sizes[fewest] < least:
            got = f"{sizes[fewest]} draws in shard {subposteriors.labels[fewest]}"
            advice = "Draw longer chains, or combine by 'consensus'."
            raise must_be(
                self.name,
                "draws",
                f"{least} or more per shard for {d} parameters",
                got,
                advice,
                error=DrawsError,
            )
        moments.require_independent_columns()
        for b, values in enumerate(subposteriors.log_densities):
            if not np.all(np.isfinite(values)):
                got = f"NaN or infinity in shard {subposteriors.labels[b]}"
                raise must_be(
                    self.name, "log_densities", "finite", got, "Leave such draws out.", error=DrawsError
                )

    def _surfaces(
        self, subposteriors: Subposteriors, moments: ShardMoments, order: list[int]
    ) -> list[Placed]:
        """The shards' surfaces, in the given order."""
        roots = np.linalg.cholesky(moments.covariances)
        whitenings = np.linalg.inv(roots)
        precisions = np.swapaxes(whitenings, 1, 2) @ whitenings
        precision = precisions[order].sum(axis=0)
        weighted = np.einsum("bij,bj->bi", precisions, moments.means - moments.means[order[0]])
        middle = moments.means[order[0]] + np.linalg.solve(precision, weighted[order].sum(axis=0))
        towards = np.linalg.cholesky(precision)
        assert subposteriors.log_densities is not None
        placed = []
        for position, b in enumerate(order):
            tell("surfaces", position, len(order))
            x, values = subposteriors.draws[b], subposteriors.log_densities[b]
            z = (x - moments.means[b]) @ whitenings[b].T
            away = np.sum(((x - middle) @ towards) ** 2, axis=1)
            surface = self._surface(z, values, away, subposteriors.labels[b], len(order))
            placed.append(Placed(surface, whitenings[b], moments.means[b]))
        tell("surfaces", len(order), len(order))
        return placed

    def _surface(self, z: Floats, values: Floats, away: Floats, label: str, num_shards: int) -> Surface:
        d = z.shape[1]
        if d > MOST_DIMENSIONS_OF_PROCESS:
            surface = fit_quadratic(z, values)
            if surface.noise_deviation > ROUGH:
                constraint = f"quadratic in more than {MOST_DIMENSIONS_OF_PROCESS} parameters"
                got = (
                    f"values that scatter by {surface.noise_deviation:.2g} about a quadratic in shard {label}"
                )
                advice = "Combine by 'consensus', or by 'swiss' from inflated draws."
                raise must_be(self.name, "log_densities", constraint, got, advice, error=DrawsError)
            return surface
        chosen = design_points(z, away, self._points_wanted(len(z), d))
        if len(chosen) < _least_points(d):
            constraint = f"{_least_points(d)} or more that differ from each other per shard"
            got = f"{len(chosen)} in shard {label}"
            raise must_be(self.name, "draws", constraint, got, "Draw longer chains.", error=DrawsError)
        surface = fit_surface(z[chosen], values[chosen], NEGLIGIBLE / np.sqrt(num_shards))
        if not surface.has_process and surface.noise_deviation > KNOWN:
            return _averaged(surface, z, values)
        return surface

    def _points_wanted(self, num_draws: int, dimension: int) -> int:
        if self.num_points is not None:
            return max(self.num_points, _least_points(dimension))
        enough = int(POINTS_PER_FEATURE * num_features(dimension))
        return max(FEWEST_POINTS, enough, int(np.sqrt(2 * num_draws * dimension)))

    def _draws(
        self, product: Product, total: int, generator: np.random.Generator
    ) -> tuple[Floats, tuple[int, ...] | None]:
        """Draws of the product, and the lengths of their chains where they are not independent."""
        if product.is_gaussian:
            return product.to_parameters(generator.standard_normal((total, product.dimension))), None
        sample = sample_product(product, total, generator, self.density == "expected")
        iterations = sample.chains.shape[1]
        array = product.to_parameters(sample.chains.reshape(-1, product.dimension)[:total])
        return array, tuple(min(iterations, total - start) for start in range(0, total, iterations))


def _require_number(name: str, value: Any, least: int, optional: bool = False) -> None:
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        advice = "Leave it out."
        raise must_be("gp-product", name, f"a whole number, {least} or more", value, advice, error=InputError)


def _least_points(dimension: int) -> int:
    return int(np.ceil(LEAST_POINTS_PER_FEATURE * num_features(dimension)))


def _averaged(surface: Surface, z: Floats, values: Floats) -> Surface:
    """A quadratic that many more draws are fitted to: what is left of the values is noise, and averages out."""
    wanted = min(len(z), POINTS_OF_NOISY_QUADRATIC * num_features(z.shape[1]))
    rows = np.linspace(0, len(z) - 1, wanted).astype(int)
    again = fit_surface(z[rows], values[rows], negligible=np.inf)
    # More scatter about it means that it was not noise alone.
    return again if again.noise_deviation < 1.5 * surface.noise_deviation else surface


def _effective_sizes(
    product: Product, array: Floats, sizes: Floats, spread: Spread | None, log_weights: Floats | None
) -> Floats:
    """Independent draws that the means are worth: chains, weights, and what the surfaces do not know."""
    covariance = weighted_covariance(array, log_weights)
    error = np.diagonal(covariance) / sizes
    if log_weights is not None:
        error = error * len(array) * float(np.sum(np.exp(2.0 * log_weights)))
    error = error + mean_error(product.shards, product.mean, product.root)
    if spread is not None:
        error = error + np.var(spread.means, axis=0, ddof=1)
    return effective_sizes(covariance, np.diag(error))
