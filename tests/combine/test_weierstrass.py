"""The Weierstrass rejection sampler against products that are known in closed form."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from consilience.combine import get_combiner, smoothed_product, weierstrass
from consilience.draws import Subposteriors
from consilience.errors import DrawsError, InputError

# P(|t| > 6) is 4e-6 with 23 degrees of freedom.
Z_LIMIT = 6.0
REPLICATES = 24


def laws(seed: int, d: int = 3) -> list[smoothed_product.Law]:
    rng = np.random.default_rng(seed)
    found = []
    for n in (300, 200, 250):
        factor = np.eye(d) + 0.4 * rng.normal(size=(d, d))
        x = rng.normal(size=(n, d)) @ factor.T + rng.normal(size=d)
        precision = 0.97 * np.linalg.inv(np.cov(x, rowvar=False))
        found.append(smoothed_product.Law(x, x.mean(axis=0), precision, 0.97, 1.0, np.zeros((d, d))))
    return found


def test_weights_of_tuples_are_those_of_the_definition():
    parts, h = laws(0), 0.8
    kept, c = 1 / np.sqrt(1 + h**2), h / np.sqrt(1 + h**2)
    tuples = smoothed_product._Tuples(parts)
    picked = tuples.pick(50, np.random.default_rng(1))
    found = smoothed_product._log_weights(*tuples.forms(picked), h)
    expected = []
    for index in picked.T:
        points = [
            p.mean + kept * (p.draws[i] - p.mean) / np.sqrt(p.factor)
            for p, i in zip(parts, index, strict=True)
        ]
        inverses = [p.precision / c**2 for p in parts]
        middle = np.linalg.solve(sum(inverses), sum(k @ s for k, s in zip(inverses, points, strict=True)))
        expected.append(
            -0.5 * sum((s - middle) @ k @ (s - middle) for k, s in zip(inverses, points, strict=True))
        )
    # A constant in the log weights counts for nothing.
    np.testing.assert_allclose(found - found[0], np.array(expected) - expected[0], rtol=1e-9, atol=1e-9)


def gammas(seed: int, number: int = 2_000) -> Subposteriors:
    """Gamma sub-posteriors: their product is a gamma, and skewed."""
    rng = np.random.default_rng([seed, 8])
    shapes, rates = (3.0, 5.0, 2.5, 4.5), (1.0, 1.5, 1.2, 0.8)
    return Subposteriors.of(
        [rng.gamma(a, 1 / r, size=(number, 1)) for a, r in zip(shapes, rates, strict=True)],
        kind="subposterior",
    )


def z_scores(found: list[np.ndarray], exact: np.ndarray) -> np.ndarray:
    """Error of the replicates' average over its standard error."""
    table = np.array(found)
    return np.abs(table.mean(axis=0) - exact) / (table.std(axis=0, ddof=1) / np.sqrt(len(table)))


# Mean, deviation and skewness of gamma(12, 4.5), the product of those above.
GAMMA = np.array([12 / 4.5, np.sqrt(12) / 4.5, 2 / np.sqrt(12)])


def gamma_moments(method: str, **options: object) -> list[np.ndarray]:
    found = []
    for seed in range(REPLICATES):
        x = get_combiner(method, **options).combine(gammas(seed), seed=seed).array[:, 0]
        found.append(np.array([x.mean(), x.std(), np.mean(((x - x.mean()) / x.std()) ** 3)]))
    return found


@pytest.mark.parametrize("choice", ["rejection", "importance"])
def test_product_of_gammas_is_a_gamma(choice):
    assert z_scores(gamma_moments("weierstrass", choice=choice), GAMMA).max() < Z_LIMIT


@pytest.mark.parametrize("method", ["gaussian-product", "consensus"])
def test_that_gamma_is_not_what_rules_for_gaussians_find(method):
    assert z_scores(gamma_moments(method), GAMMA).max() > 5 * Z_LIMIT


def test_all_shards_at_once_need_wide_kernels_and_are_less_exact():
    gaussian, together = (
        np.abs(np.mean(gamma_moments(method, **options), axis=0) - GAMMA)
        for method, options in (("gaussian-product", {}), ("weierstrass", {"order": "together"}))
    )
    # Mean and skewness; deviations are not far off in either.
    assert np.all(together[[0, 2]] < 0.5 * gaussian[[0, 2]])


def bimodal(num_shards: int, number: int, seed: int) -> Subposteriors:
    """Two modes at -3 and 3 in every shard, of deviation 1: those of the product are 1 / sqrt(B) wide."""
    rng = np.random.default_rng([seed, 9])
    modes = rng.choice([-3.0, 3.0], size=(num_shards, number, 1))
    return Subposteriors.of(modes + rng.normal(size=modes.shape), kind="subposterior")


def test_two_modes_stay_two_modes():
    found = []
    for seed in range(8):
        x = get_combiner("weierstrass").combine(bimodal(4, 4_000, seed), seed=seed).array[:, 0]
        right = x > 0
        found.append(
            [x[right].mean(), -x[~right].mean(), x[right].std(), x[~right].std(), np.mean(np.abs(x) < 1)]
        )
    means, widths = np.mean(found, axis=0)[:2], np.mean(found, axis=0)[2:4]
    np.testing.assert_allclose(means, 3.0, atol=0.1)
    np.testing.assert_allclose(widths, 0.5, rtol=0.1)
    assert np.max(found, axis=0)[4] < 0.01
    # One mode in the middle is what averages make of it.
    averaged = get_combiner("consensus").combine(bimodal(4, 4_000, 0)).array
    assert np.mean(np.abs(averaged) < 1) > 0.2


def apart(seed: int, d: int = 2) -> tuple[Subposteriors, np.ndarray, np.ndarray]:
    """Gaussian shards of unequal covariances, about three deviations apart, and the moments of their product."""
    rng = np.random.default_rng(10)
    factors = np.eye(d) + 0.4 * rng.normal(size=(4, d, d))
    means = 3.0 * rng.normal(size=(4, d))
    precisions = np.linalg.inv(factors @ np.swapaxes(factors, 1, 2))
    covariance = np.linalg.inv(precisions.sum(axis=0))
    mean = covariance @ np.einsum("bij,bj->i", precisions, means)
    rng = np.random.default_rng([seed, 11])
    draws = rng.normal(size=(4, 1_500, d)) @ np.swapaxes(factors, 1, 2) + means[:, None]
    return Subposteriors.of(draws, kind="subposterior"), mean, covariance


def apart_z(combine_draws: object) -> float:
    found = []
    for seed in range(REPLICATES):
        shards, mean, covariance = apart(seed)
        array = combine_draws(shards, seed)  # type: ignore[operator]
        upper = np.triu_indices(len(mean))
        found.append(np.concatenate([array.mean(axis=0), np.cov(array, rowvar=False)[upper]]))
    return float(z_scores(found, np.concatenate([mean, covariance[upper]])).max())


def sampler(shards: Subposteriors, seed: int) -> np.ndarray:
    return get_combiner("weierstrass").combine(shards, seed=seed).array


def as_published(shards: Subposteriors, seed: int, h: float = 1.0) -> np.ndarray:
    """Pairwise rejection with one kernel for all, which inflates covariances at every level."""
    rng = np.random.default_rng(seed)

    def pair(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        a, b = rng.choice(x, 40_000), rng.choice(y, 40_000)
        log_weights = -np.sum((a - b) ** 2, axis=1) / (4 * h**2)
        kept = np.log(rng.random(len(a))) < log_weights - log_weights.max()
        return 0.5 * (a + b)[kept] + h * np.sqrt(0.5) * rng.normal(size=(kept.sum(), x.shape[1]))

    first, second, third, fourth = shards.draws
    return pair(pair(first, second), pair(third, fourth))


def test_shards_apart_are_exact_and_the_published_kernels_are_not():
    assert apart_z(sampler) < Z_LIMIT
    assert apart_z(as_published) > 2 * Z_LIMIT


@pytest.mark.parametrize(("own", "pull"), [(0.1, 1.0), (1.0, 0.1)])
def test_both_parts_of_the_weights_of_tuples_count(monkeypatch, own, pull):
    # For Gaussians neither would: sum v, which draws are made of, is independent of E and uncorrelated with L.
    right = smoothed_product._log_weights
    monkeypatch.setattr(smoothed_product, "_log_weights", lambda x, y, h: right(own * x, pull * y, h))
    assert z_scores(gamma_moments("weierstrass"), GAMMA).max() > 2 * Z_LIMIT


def test_shards_far_apart_tend_to_the_gaussian_product_with_a_warning():
    shards, _, _ = apart(0)
    moved = [x + 20.0 * b for b, x in enumerate(shards.draws)]
    shards = Subposteriors.of(moved, kind="subposterior")
    found = get_combiner("weierstrass").combine(shards, seed=1)
    gaussian = get_combiner("gaussian-product").combine(shards, seed=1)
    assert "close to that of gaussian-product" in found.warnings[-1]
    deviations = gaussian.array.std(axis=0)
    # The mean's error is stated, and both share the noise of the shards' covariances.
    limit = 5 * deviations / np.sqrt(found.effective_sizes)
    assert np.all(np.abs(found.array.mean(axis=0) - gaussian.array.mean(axis=0)) < limit)
    np.testing.assert_allclose(found.array.std(axis=0), deviations, rtol=0.15)


def test_near_gaussian_shards_get_wide_kernels_and_others_narrow_ones():
    def width(shards: Subposteriors) -> float:
        note = get_combiner("weierstrass").combine(shards).notes[0]
        return float(note.split(" to ")[1].split()[0])

    normal = Subposteriors.of(np.random.default_rng(0).normal(size=(4, 2_000, 1)), kind="subposterior")
    assert width(normal) > 0.5
    assert width(gammas(0)) < 0.2
    assert width(bimodal(4, 2_000, 0)) < 0.2


@pytest.mark.parametrize("number", [300, 2_000])
def test_effective_sizes_are_honest_for_skewed_shards(number):
    # The variance of 24 means has a relative standard error of sqrt(2 / 23) = 0.3; what is stated errs to the safe
    # side by up to a factor of two.
    means, promised = [], []
    for seed in range(REPLICATES):
        combined = get_combiner("weierstrass").combine(gammas(seed, number), seed=seed)
        means.append(combined.array.mean())
        promised.append(combined.array.var() / combined.effective_sizes[0])
    assert 0.25 < np.var(means, ddof=1) / np.mean(promised) < 1.0 + 4 * 0.3


@pytest.mark.parametrize("order", ["pairwise", "together"])
@pytest.mark.parametrize(("num_shards", "number", "d"), [(10, 5_000, 5), (2, 40_000, 4), (50, 1_000, 20)])
def test_memory_stays_within_three_copies(order, num_shards, number, d):
    draws = np.random.default_rng(0).normal(size=(num_shards, number, d))
    shards = Subposteriors.of(draws, kind="subposterior")
    tracemalloc.start()
    get_combiner("weierstrass", order=order).combine(shards)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * draws.nbytes + 4e6


def test_progress_is_told(monkeypatch):
    told = []
    monkeypatch.setattr(weierstrass, "tell", lambda what, done, total: told.append((done, total)))
    get_combiner("weierstrass").combine(gammas(0, 200))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_too_few_draws_are_refused():
    shards = Subposteriors.of(np.random.default_rng(0).normal(size=(3, 8, 4)), kind="subposterior")
    with pytest.raises(DrawsError, match="worth more than 8 independent ones"):
        get_combiner("weierstrass").combine(shards)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("order", "sideways"),
        ("choice", "luck"),
        ("acceptance", 0.0),
        ("acceptance", 1.0),
        ("acceptance", "half"),
    ],
)
def test_options_are_checked(option, value):
    with pytest.raises(InputError, match=f"`{option}` must be"):
        get_combiner("weierstrass", **{option: value})
