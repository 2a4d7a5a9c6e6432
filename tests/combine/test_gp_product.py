"""gp-product against products known in closed form, and its parts against their textbook formulas."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.stats import loggamma, norm

import consilience as cs
from consilience.combine import get_combiner
from consilience.combine.gp_density import Placed, Product
from consilience.combine.gp_design import design_points
from consilience.combine.gp_product import GaussianProcessProduct
from consilience.combine.gp_realisations import Deviation, realisations
from consilience.combine.gp_sampler import sample_density
from consilience.combine.gp_surface import features, fit_surface, minus_twice_log_likelihood
from consilience.combine.moments import gaussian_product, shard_moments
from consilience.draws import Subposteriors
from consilience.errors import ConsilienceWarning, DrawsError, InputError
from consilience.numerics import normalised_weights, weighted_covariance, weighted_mean

# P(|z| > 4.5) is 7e-6.
Z_LIMIT = 4.5


def rates_of(num_shards: int) -> np.ndarray:
    return np.linspace(1.0, 3.0, num_shards)


def log_gammas(num_shards: int = 6, size: int = 800, shape: float = 1.0, seed: int = 0) -> Subposteriors:
    """Log rates: exp(theta) ~ Gamma(shape, rate_b), skewed to the left."""
    rng = np.random.default_rng(seed)
    sizes = [size + 40 * b for b in range(num_shards)]
    rates = rates_of(num_shards)
    draws = [np.log(rng.gamma(shape, 1.0 / r, size=(n, 1))) for n, r in zip(sizes, rates, strict=True)]
    densities = [shape * x[:, 0] - r * np.exp(x[:, 0]) + 1e6 for x, r in zip(draws, rates, strict=True)]
    weights = np.arange(1.0, num_shards + 1.0)
    return Subposteriors.of(
        draws, kind="subposterior", weights=weights / weights.sum(), log_densities=densities
    )


def log_gamma_z(combined: cs.combine.Combined, num_shards: int = 6, shape: float = 1.0) -> float:
    """Largest |z| of mean, variance and third moment against the product, a log Gamma of the sums."""
    law = loggamma(shape * num_shards)
    x = combined.array[:, 0] + np.log(rates_of(num_shards).sum())
    weights = np.full(len(x), 1.0 / len(x))
    if combined.log_weights is not None:
        weights = normalised_weights(combined.log_weights)
    mean, sd = law.mean(), law.std()
    worst = 0.0
    for power in (1, 2, 3):
        values = ((x - mean) / sd) ** power
        expected = law.expect(lambda t, k=power: ((t - mean) / sd) ** k, lb=-30.0, ub=10.0)
        error = np.sqrt(np.cov(values, aweights=weights) / combined.effective_sizes[0])
        worst = max(worst, abs(weights @ values - expected) / error)
    return float(worst)


def surfaces(shards: Subposteriors, **options: object) -> Product:
    rule = GaussianProcessProduct(**options)  # type: ignore[arg-type]
    return Product(rule._surfaces(shards, shard_moments(shards), list(range(shards.num_shards))))


# Closed forms.


def gaussians(seed: int, d: int, size: int) -> tuple[Subposteriors, np.ndarray, np.ndarray]:
    """Far apart, of unlike covariances and scales."""
    rng = np.random.default_rng(seed)
    scale = np.logspace(-3.0, 3.0, d)
    means, covariances, draws, densities = [], [], [], []
    for _ in range(4):
        factor = (np.eye(d) + 0.5 * rng.normal(size=(d, d))) * scale[:, None]
        means.append(3.0 * scale * rng.normal(size=d))
        covariances.append(factor @ factor.T)
        z = rng.normal(size=(size, d))
        draws.append(means[-1] + z @ factor.T)
        densities.append(-0.5 * np.sum(z**2, axis=1) - 1e5)
    precisions = [np.linalg.inv(v) for v in covariances]
    covariance = np.linalg.inv(sum(precisions))
    mean = covariance @ sum(p @ m for p, m in zip(precisions, means, strict=True))
    return Subposteriors.of(draws, kind="subposterior", log_densities=densities), mean, covariance


@pytest.mark.parametrize(("d", "size"), [(1, 30), (3, 40), (8, 120)])
def test_gaussians_are_reproduced_to_rounding_from_few_draws(d, size):
    shards, mean, covariance = gaussians(0, d, size)
    product = surfaces(shards)
    assert product.is_gaussian
    sd = np.sqrt(np.diagonal(covariance))
    np.testing.assert_allclose(product.mean / sd, mean / sd, atol=1e-6)
    np.testing.assert_allclose(
        product.root @ product.root.T / np.outer(sd, sd), covariance / np.outer(sd, sd), atol=1e-6
    )
    # Moments of the same draws are far from that.
    estimated = gaussian_product(shard_moments(shards), np.ones(4)).mean
    assert np.abs((estimated - mean) / sd).max() > 0.01


def test_gaussians_in_many_dimensions_are_reproduced_too():
    shards, mean, covariance = gaussians(0, 25, 600)
    product = surfaces(shards)
    sd = np.sqrt(np.diagonal(covariance))
    np.testing.assert_allclose(product.mean / sd, mean / sd, atol=1e-6)
    found = product.root @ product.root.T / np.outer(sd, sd)
    np.testing.assert_allclose(found, covariance / np.outer(sd, sd), atol=1e-6)


def test_other_shapes_in_many_dimensions_are_refused():
    x = np.log(np.random.default_rng(0).gamma(2.0, size=(2, 600, 21)))
    densities = list(np.sum(2.0 * x - np.exp(x), axis=2))
    shards = Subposteriors.of(x, kind="subposterior", log_densities=densities)
    with pytest.raises(DrawsError, match=r"quadratic in more than 20 parameters.*scatter by"):
        GaussianProcessProduct().combine(shards)


@pytest.mark.parametrize("d", [3, 21])
def test_effective_sizes_count_the_noise_of_log_densities(d):
    """Values off by 0.09 each: the error of the means over replicates is what effective sizes promise."""
    ratios = []
    for seed in range(6):
        shards, mean, _ = gaussians(seed, d, 450)
        rng = np.random.default_rng(100 + seed)
        noisy = tuple(x + 0.09 * rng.normal(size=len(x)) for x in shards.log_densities)
        shards = dataclasses.replace(shards, log_densities=noisy)
        combined = GaussianProcessProduct(num_draws=100_000).combine(shards)
        promised = combined.array.std(axis=0) / np.sqrt(combined.effective_sizes)
        ratios.append((combined.array.mean(axis=0) - mean) / promised)
        assert combined.effective_sizes.max() < 50_000
    # Errors of a mean's coordinates are correlated: 6 replicates count as a few dozen numbers.
    assert 0.5 < np.sqrt(np.mean(np.square(ratios))) < 1.6


def test_gaussians_far_apart_are_not_hurt_by_few_draws():
    shards, mean, covariance = gaussians(1, 3, 200)
    combined = GaussianProcessProduct(num_draws=20_000).combine(shards)
    z = (combined.array.mean(axis=0) - mean) / np.sqrt(np.diagonal(covariance) / 20_000)
    assert np.abs(z).max() < Z_LIMIT
    np.testing.assert_array_equal(combined.effective_sizes.round(), 20_000)


@pytest.mark.parametrize("density", ["expected", "mean"])
@pytest.mark.parametrize("weighting", ["none", "realisations"])
def test_the_product_of_log_gammas_is_a_log_gamma(density, weighting):
    rule = GaussianProcessProduct(density=density, weighting=weighting, num_draws=8_000)
    combined = rule.combine(log_gammas())
    assert log_gamma_z(combined) < Z_LIMIT
    assert combined.warnings == ()
    assert combined.effective_sizes[0] > 4_000


def test_the_log_gamma_oracle_rejects_wrong_rules():
    shards = log_gammas()
    # The Gaussian product has no skewness.
    assert log_gamma_z(get_combiner("gaussian-product", num_draws=8_000).combine(shards)) > 3 * Z_LIMIT
    # Log densities of another parametrisation: the Jacobian of theta -> exp(theta) is left out.
    wrong = [d - x[:, 0] for d, x in zip(shards.log_densities, shards.draws, strict=True)]
    forgetful = dataclasses.replace(shards, log_densities=tuple(wrong))
    assert log_gamma_z(GaussianProcessProduct(num_draws=8_000).combine(forgetful)) > 3 * Z_LIMIT
    # Powers w_b, which are right for inflated draws only.
    powers = [6 * w * d for w, d in zip(shards.weights, shards.log_densities, strict=True)]
    weighted = dataclasses.replace(shards, log_densities=tuple(powers))
    assert log_gamma_z(GaussianProcessProduct(num_draws=8_000).combine(weighted)) > 3 * Z_LIMIT


def test_the_log_gamma_oracle_rejects_quadratics_without_processes(monkeypatch):
    import consilience.combine.gp_product as module

    monkeypatch.setattr(module, "NEGLIGIBLE", np.inf)
    combined = GaussianProcessProduct(num_draws=8_000).combine(log_gammas())
    combined = dataclasses.replace(combined, effective_sizes=np.array([8_000.0]))
    assert log_gamma_z(combined) > 3 * Z_LIMIT


def test_a_bent_product_keeps_its_bend():
    """x ~ N(0, 1), y | x ~ N(x², 1/2), split into four powers: E y = 1, var y = 2.5, skewed."""
    rng = np.random.default_rng(0)
    num_shards, draws, densities = 4, [], []
    for _ in range(num_shards):
        x = np.sqrt(num_shards) * rng.normal(size=2_000)
        noise = np.sqrt(num_shards / 2.0) * rng.normal(size=2_000)
        draws.append(np.stack([x, x**2 + noise], axis=1))
        densities.append(-(x**2 / 2.0 + noise**2) / num_shards)
    shards = Subposteriors.of(draws, kind="subposterior", log_densities=densities)
    combined = GaussianProcessProduct(num_draws=8_000).combine(shards)
    x, y = combined.array.T
    sizes = combined.effective_sizes
    for values, expected, size in (
        (x, 0.0, sizes[0]),
        (x**2, 1.0, sizes[0]),
        (y, 1.0, sizes[1]),
        ((y - 1.0) ** 2, 2.5, sizes[1]),
        (y - x**2, 0.0, sizes[1]),
        ((y - x**2) ** 2, 0.5, sizes[1]),
    ):
        assert abs(values.mean() - expected) < Z_LIMIT * values.std() / np.sqrt(size), expected


def mixture_log_density(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(np.log(0.4) + norm.logpdf(x, -2.0, 0.7), np.log(0.6) + norm.logpdf(x, 2.0, 0.9))


def test_two_modes_stay_two_and_keep_their_shares():
    """Half of a mixture's log density in each of two shards, which are tempered mixtures: drawn on a grid."""
    grid = np.linspace(-8.0, 8.0, 20_001)
    half = np.exp(0.5 * mixture_log_density(grid))
    rng = np.random.default_rng(0)
    draws = [rng.choice(grid, size=2_000, p=half / half.sum())[:, None] for _ in range(2)]
    densities = [0.5 * mixture_log_density(x[:, 0]) for x in draws]
    shards = Subposteriors.of(draws, kind="subposterior", log_densities=densities)
    combined = GaussianProcessProduct(num_draws=8_000).combine(shards)
    right = combined.array[:, 0] > 0.0
    share = 0.4 * norm.sf(0.0, -2.0, 0.7) + 0.6 * norm.sf(0.0, 2.0, 0.9)
    assert abs(right.mean() - share) < Z_LIMIT * np.sqrt(share * (1 - share) / combined.effective_sizes[0])
    assert abs(combined.array[right].mean() - 2.0) < 0.15
    assert combined.warnings == ()


# Textbook formulas.


def curved(n: int = 40, d: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    z = np.random.default_rng(seed).normal(size=(n, d))
    return z, -0.5 * np.sum(z**2, axis=1) + np.sin(2.0 * z[:, 0]) * np.cos(z[:, -1])


def dense(surface, points, new):
    """Kernel matrices of the fitted hyperparameters, by their definition."""
    share, length = 1.0 - surface.noise, surface.length

    def kernel(a, b):
        return share * np.exp(-((a[:, None] - b[None]) ** 2).sum(axis=2) / (2.0 * length**2))

    return kernel(points, points) + surface.noise * np.eye(len(points)), kernel(new, points), kernel(new, new)


def test_the_surface_is_universal_kriging():
    z, values = curved()
    values = values + 0.05 * np.random.default_rng(2).normal(size=len(values))
    new = np.random.default_rng(1).normal(size=(7, 2))
    surface = fit_surface(z, values)
    assert surface.has_process
    assert surface.quadratic_features
    k, across, _ = dense(surface, z, new)
    inverse, h = np.linalg.inv(k), features(z)
    coefficients = np.linalg.solve(h.T @ inverse @ h, h.T @ inverse @ values)
    left = values - h @ coefficients
    np.testing.assert_allclose(
        surface.mean(new), features(new) @ coefficients + across @ inverse @ left, atol=1e-4
    )
    assert surface.scale == pytest.approx(left @ inverse @ left / (len(z) - h.shape[1]), rel=1e-4)
    variance = surface.scale * (1.0 - surface.noise - np.sum((across @ inverse) * across, axis=1))
    np.testing.assert_allclose(surface.variance(new), variance, rtol=1e-2, atol=1e-6)


def test_the_restricted_likelihood_is_that_of_the_contrasts():
    z, values = curved()
    h = features(z)
    distances = ((z[:, None] - z[None]) ** 2).sum(axis=2)
    contrasts = np.linalg.svd(h)[0][:, h.shape[1] :]
    free = contrasts.shape[1]

    def direct(length, noise):
        k = (1.0 - noise) * np.exp(-distances / (2.0 * length**2)) + noise * np.eye(len(z))
        inner = contrasts.T @ k @ contrasts
        y = contrasts.T @ values
        return free * np.log(y @ np.linalg.solve(inner, y) / free) + np.linalg.slogdet(inner)[1]

    found = [
        minus_twice_log_likelihood(distances, h, values, *p) - direct(*p)
        for p in ((0.5, 0.1), (1.0, 0.01), (3.0, 0.2), (1.0, 1.0))
    ]
    # The same but for log|H'H|, which depends on no hyperparameter.
    np.testing.assert_allclose(found, found[0], atol=1e-6)


def test_realisations_have_the_covariance_of_universal_kriging():
    z, values = curved()
    values = values + 0.05 * np.random.default_rng(2).normal(size=len(values))
    surface = fit_surface(z, values)
    product = Product([Placed(surface, np.eye(2), np.zeros(2))])
    new = np.array([[0.2, 0.1], [1.5, -1.0], [2.5, 2.5], [-1.0, 0.4]])
    rng, sets = np.random.default_rng(3), 100
    # Sets of random frequencies have the process's covariance on average.
    found = np.stack([np.cov(Deviation(product.shards[0], 100, rng)(new)) for _ in range(sets)])
    k, across, within = dense(surface, z, new)
    inverse, h = np.linalg.inv(k), features(z)
    rest = features(new) - across @ inverse @ h
    expected = within - across @ inverse @ across.T + rest @ np.linalg.solve(h.T @ inverse @ h, rest.T)
    expected *= surface.scale
    errors = found.std(axis=0) / np.sqrt(sets)
    assert np.abs((found.mean(axis=0) - expected) / errors).max() < Z_LIMIT
    # Without the quadratic's uncertainty the covariance is another one.
    simple = surface.scale * (within - across @ inverse @ across.T)
    assert np.abs((found.mean(axis=0) - simple) / errors).max() > 2 * Z_LIMIT


def test_gradient_of_the_product():
    product = surfaces(log_gammas())
    u = np.linspace(-3.0, 2.0, 9)[:, None]
    up, down = (product.mean_and_gradient(u + step)[0] for step in (1e-4, -1e-4))
    np.testing.assert_allclose(product.mean_and_gradient(u)[1][:, 0], (up - down) / 2e-4, atol=1e-5)


def test_the_product_is_the_sum_of_the_surfaces():
    product = surfaces(log_gammas())
    u = np.linspace(-3.0, 2.0, 9)[:, None]
    theta = product.to_parameters(u.copy())
    total = np.sum(
        [s.surface.mean(s.place(theta)) for s in product.shards],
        axis=0,
    )
    found = product.mean_and_gradient(u)[0]
    np.testing.assert_allclose(found - found[0], total - total[0], atol=1e-6)
    variance = np.sum(
        [s.surface.variance(s.place(theta)) for s in product.shards],
        axis=0,
    )
    np.testing.assert_allclose(product.variance(u), variance, atol=1e-9)


def test_shards_in_groups_are_the_shards_together(monkeypatch):
    shards = log_gammas()
    whole = surfaces(shards).mean_and_gradient(np.ones((5, 1)))
    monkeypatch.setattr("consilience.combine.gp_density.BLOCK", 300)
    for one, other in zip(whole, surfaces(shards).mean_and_gradient(np.ones((5, 1))), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)


def test_the_sampler_draws_from_the_expected_density():
    """The variance changes the law, and the gradient leaves it out: acceptance must make up for it."""

    def surface(u):
        return -0.5 * u[:, 0] ** 2 - 0.1 * u[:, 0] ** 4, -u - 0.4 * u**3

    def correction(u):
        return 1.5 * np.tanh(2.0 * u[:, 0])

    grid = np.linspace(-5.0, 5.0, 4_001)
    density = np.exp(surface(grid[:, None])[0] + correction(grid[:, None]))
    mean = np.sum(grid * density) / density.sum()
    sample = sample_density(surface, correction, 1, 16_000, np.random.default_rng(0))
    flat = sample.chains.ravel()
    from consilience.chains import effective_sample_size

    size = effective_sample_size(sample.chains, "mean")[0]
    assert size > 4_000
    assert abs(flat.mean() - mean) < Z_LIMIT * flat.std() / np.sqrt(size)
    plain = sample_density(surface, lambda u: 0.0 * u[:, 0], 1, 16_000, np.random.default_rng(0)).chains
    assert abs(plain.mean() - mean) > 5 * Z_LIMIT * flat.std() / np.sqrt(size)


def test_raised_curvature_keeps_what_the_points_say():
    """The best quadratic opens upwards here; the surface must fall outside nevertheless."""
    z = np.linspace(-1.6, 1.6, 40)[:, None]
    values = 2.0 * z[:, 0] ** 2
    surface = fit_surface(z, values)
    assert not surface.quadratic_features
    np.testing.assert_allclose(surface.mean(z), values, atol=1e-3)
    assert surface.mean(np.array([[100.0]]))[0] < surface.mean(np.array([[50.0]]))[0] < values.min()


# What the rule promises.


def test_surfaces_are_affinely_equivariant():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(3, 400, 2)) + rng.normal(size=(3, 1, 2))
    densities = [-0.5 * np.sum(x**2, axis=1) - 0.05 * x[:, 0] ** 4 - 0.02 * np.exp(x[:, 1]) for x in draws]
    matrix, shift = np.array([[1.0, 40.0], [-30.0, 7.0]]), np.array([5.0, -1e4])
    plain = surfaces(Subposteriors.of(draws, kind="subposterior", log_densities=densities))
    mapped = surfaces(
        Subposteriors.of(draws @ matrix.T + shift, kind="subposterior", log_densities=densities)
    )
    theta = plain.to_parameters(rng.normal(size=(20, 2)))

    def heights(product, points):
        value = product.mean_and_gradient(product.from_parameters(points))[0]
        return value - value[0]

    np.testing.assert_allclose(heights(plain, theta), heights(mapped, theta @ matrix.T + shift), atol=1e-3)


def test_points_left_out_cost_effective_draws_and_a_warning():
    rule = GaussianProcessProduct(num_draws=4_000)
    few, many = log_gammas(size=100, shape=0.3), log_gammas(size=2_000, shape=0.3)
    coarse = dataclasses.replace(rule, num_points=5).combine(few)
    assert coarse.effective_sizes[0] < 0.5 * rule.combine(many).effective_sizes[0]


def test_shards_that_do_not_reach_the_product_are_told():
    rng = np.random.default_rng(0)
    draws = [rng.standard_t(5.0, size=(300, 1)) + c for c in (-20.0, 20.0)]
    densities = [-3.0 * np.log1p((x[:, 0] - c) ** 2 / 5.0) for x, c in zip(draws, (-20.0, 20.0), strict=True)]
    shards = Subposteriors.of(draws, kind="subposterior", log_densities=densities)
    with pytest.warns(ConsilienceWarning, match="farther from shard"):
        cs.combine(shards, method="gp-product", num_draws=2_000)


def test_weights_by_realisations_follow_their_formula():
    shards = log_gammas(num_shards=2, size=30, shape=0.5)
    product = surfaces(shards, num_points=6)
    draws = product.to_parameters(np.random.default_rng(0).normal(size=(500, 1)))
    spread = realisations(product, draws, 200, np.random.default_rng(1), False)
    assert spread.weights.sum() == pytest.approx(1.0)
    assert spread.means.shape == (200, 1)
    assert spread.weights @ draws == pytest.approx(spread.means.mean(axis=0))
    assert 0.0 < spread.worth < 1.0


def test_rounded_log_densities_are_told_and_those_of_other_columns_refused():
    shards = log_gammas()
    rounded = dataclasses.replace(shards, log_densities=tuple(np.round(x) for x in shards.log_densities))
    with pytest.warns(ConsilienceWarning, match="scatter about every smooth"):
        cs.combine(rounded, method="gp-product", num_draws=2_000)
    rng = np.random.default_rng(0)
    whole = rng.normal(size=(3, 500, 6))
    densities = -0.5 * np.sum(whole**2, axis=2)
    part = Subposteriors.of(whole[:, :, :2], kind="subposterior", log_densities=list(densities))
    with pytest.raises(DrawsError, match=r"a smooth function of the draws.*scatter by 1"):
        GaussianProcessProduct().combine(part)


def test_noise_of_rounding_is_averaged_away():
    """Log densities of a float32 sum: their noise is no obstacle, and is no process."""
    shards, mean, covariance = gaussians(3, 2, 1_000)
    rng = np.random.default_rng(1)
    noisy = tuple(x + 0.02 * rng.normal(size=len(x)) for x in shards.log_densities)
    combined = GaussianProcessProduct(num_draws=4_000).combine(
        dataclasses.replace(shards, log_densities=noisy)
    )
    sd = np.sqrt(np.diagonal(covariance))
    limit = Z_LIMIT * sd / np.sqrt(combined.effective_sizes)
    assert np.all(np.abs(weighted_mean(combined.array) - mean) < limit)
    ratio = np.diagonal(weighted_covariance(combined.array)) / sd**2
    assert np.abs(ratio - 1.0).max() < 0.15
    assert combined.warnings == ()


def test_refusals():
    rng = np.random.default_rng(0)

    def shards(x, **options):
        densities = [-0.5 * np.sum(v**2, axis=1) for v in x]
        return Subposteriors.of(x, kind="subposterior", log_densities=densities, **options)

    rule = GaussianProcessProduct()
    with pytest.raises(DrawsError, match=r"99 or more per shard for 10 parameters. Got '90 draws in shard 0"):
        rule.combine(shards(rng.normal(size=(2, 90, 10))))
    stuck = rng.normal(size=(2, 300, 2))
    stuck[1] = np.repeat(stuck[1, :6], 50, axis=0)
    with pytest.raises(DrawsError, match=r"differ from each other per shard. Got '6 in shard 1"):
        rule.combine(shards(stuck))
    bare = Subposteriors.of(rng.normal(size=(2, 90, 1)), kind="subposterior")
    with pytest.raises(DrawsError, match="log densities"):
        rule.combine(bare)
    with pytest.raises(DrawsError, match="lp__"):
        cs.combine(bare, method="gp-product")
    x = rng.normal(size=(2, 90, 1))
    infinite = Subposteriors.of(x, kind="subposterior", log_densities=[x[0], np.full(90, np.inf)])
    with pytest.raises(DrawsError, match=r"finite. Got 'NaN or infinity in shard 1"):
        rule.combine(infinite)


@pytest.mark.parametrize(
    "options",
    [
        {"density": "median"},
        {"weighting": "all"},
        {"num_points": 0},
        {"num_draws": 1.5},
        {"num_realisations": None},
    ],
)
def test_options_are_checked(options):
    with pytest.raises(InputError, match=next(iter(options))):
        GaussianProcessProduct(**options)


def test_design_points_are_different_draws_near_and_far():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(500, 2))
    z = np.concatenate([z, z[:100]])
    away = np.sum((z - 1.0) ** 2, axis=1)
    chosen = design_points(z, away, 60)
    assert len(np.unique(z[chosen], axis=0)) == len(chosen) == 60
    gaps = np.sqrt(((z[:, None] - z[chosen][None]) ** 2).sum(axis=2).min(axis=1))
    random = rng.choice(500, 60, replace=False)
    random_gaps = np.sqrt(((z[:, None] - z[random][None]) ** 2).sum(axis=2).min(axis=1))
    assert gaps.max() < 0.7 * random_gaps.max()
    assert np.mean(away[chosen] < np.quantile(away, 0.3)) > 0.4


# Log densities on their way.


def stan_file(path, x, density):
    """What CmdStan writes of one shard."""
    header = "lp__,accept_stat__,stepsize__,theta.1,theta.2"
    rows = [f"{float(v)!r},0.9,0.5,{float(a)!r},{float(b)!r}" for v, (a, b) in zip(density, x, strict=True)]
    path.write_text("\n".join(["# stan_version_major = 2", header, *rows]) + "\n")
    return path


def test_log_densities_of_cmdstan_files_are_used(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 200, 2)) + np.array([[[0.0]], [[1.0]], [[2.0]]])
    densities = [-0.5 * np.sum((v - b) ** 2, axis=1) for b, v in enumerate(x)]
    paths = [stan_file(tmp_path / f"{b}.csv", x[b], densities[b]) for b in range(3)]
    posterior = cs.combine(paths, method="gp-product", kind="subposterior", num_draws=10_000)
    assert np.abs(posterior.mean() - 1.0).max() < Z_LIMIT / np.sqrt(3 * 10_000)
    assert "quadratic" in posterior.info["notes"][0]


@pytest.mark.parametrize("ending", ["npz", "csv", "parquet", "nc"])
def test_log_densities_of_our_own_files_are_used(tmp_path, ending):
    from consilience.draws.files import write_subposterior

    shards = log_gammas(num_shards=3, size=200)
    paths = []
    for b, (x, density) in enumerate(zip(shards.draws, shards.log_densities, strict=True)):
        paths.append(tmp_path / f"{b}.{ending}")
        write_subposterior(
            paths[-1], x, names=["rate"], kind="subposterior", weight=1 / 3, log_densities=density
        )
    direct = GaussianProcessProduct(num_draws=500).combine(shards)
    read = cs.combine(paths, method="gp-product", num_draws=500)
    np.testing.assert_allclose(read.array, direct.array, atol=1e-6)


def test_fit_keeps_log_densities_and_uses_them(tmp_path):
    import jax.numpy as jnp
    import numpyro.distributions as dist

    def log_likelihood(params, rows):
        return dist.Exponential(jnp.exp(params["log_rate"])).log_prob(rows["y"])

    y = np.random.default_rng(0).exponential(size=40)
    model = cs.Model({"log_rate": dist.Normal(0.0, 100.0)}, log_likelihood)
    fit = cs.fit(
        model,
        {"y": y},
        method="gp-product",
        shards=4,
        draws=4_000,
        refine=None,
        progress=False,
        out=tmp_path / "run",
    )
    assert fit.subposteriors.kind == "subposterior"
    with np.load(next((tmp_path / "run" / "shards").glob("*.npz"))) as stored:
        assert stored["log_density"].shape == (len(stored["draws"]),)
    x = fit.posterior.array[:, 0] + np.log(y.sum())
    law = loggamma(40)
    assert abs(x.mean() - law.mean()) < Z_LIMIT * law.std() / np.sqrt(fit.posterior.effective_sizes[0])
    assert fit.posterior.effective_sizes[0] > 2_000
    assert fit.warnings == ()
