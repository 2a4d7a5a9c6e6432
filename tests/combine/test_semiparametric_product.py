"""The product of corrected Gaussians: skewed shards, far shards, and what its two weights promise."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_cases import (
    average_product,
    distance,
    largest_difference,
    peak_over_draws,
    skewed_densities,
    skewed_product,
    skewed_shards,
)

from consilience.combine import combine, get_combiner
from consilience.combine.kernel_product import KernelProduct
from consilience.combine.semiparametric_product import SemiparametricProduct
from consilience.draws import Subposteriors
from consilience.errors import ConsilienceWarning, DrawsError, InputError

# See test_kernel_product.
LIMIT = 2.2


def test_skewed_shards_give_the_product_of_their_corrected_gaussians():
    rule = SemiparametricProduct()
    shards = skewed_shards(0)
    expected = average_product(rule, shards, skewed_densities(), tilted=True)
    assert distance(rule.combine(shards), expected) < LIMIT
    # Gaussians alone, which is what is left when corrections are forgotten, are rejected.
    assert distance(get_combiner("gaussian-product").combine(shards), expected) > 2 * LIMIT


@pytest.mark.parametrize("weights", ["semiparametric", "nonparametric"])
def test_it_comes_near_a_skewed_posterior_that_averages_miss(weights):
    shards, truth = skewed_shards(1), skewed_product()
    assert largest_difference(get_combiner("gaussian-product").combine(shards), truth) > 0.2
    rule = SemiparametricProduct(component_weights=weights)
    assert largest_difference(rule.combine(shards), truth) < 0.08


def test_nonparametric_weights_are_exact_for_gaussians_whatever_the_bandwidth():
    """Without the centres' push outwards the variance would be 1 - h² / (1 + h²)² of the right one: 0.76 here."""
    rng = np.random.default_rng(0)
    draws = np.array([[0.0], [0.3], [-0.4]])[:, None] + rng.normal(size=(3, 20_000, 1))
    shards = Subposteriors.of(draws, kind="subposterior")
    rule = SemiparametricProduct(component_weights="nonparametric", bandwidth=20.0, num_draws=20_000)
    variance = rule.combine(shards).array.var()
    assert abs(variance * 3.0 - 1.0) < 5 * np.sqrt(2 / 20_000) + 0.01


def test_shards_far_apart_enter_as_gaussians_and_agree_with_their_product():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(6, 3_000, 3)) + 8.0 * rng.normal(size=(6, 1, 3))
    shards = Subposteriors.of(draws, kind="subposterior", weights=np.arange(1.0, 7.0) / 21.0)
    with pytest.warns(ConsilienceWarning, match="6 of 6 shards enter as Gaussians"):
        posterior = combine(shards, method="semiparametric-product")
    gaussian = get_combiner("gaussian-product").combine(shards)
    covariance = np.cov(gaussian.array, rowvar=False)
    apart = posterior.mean() - gaussian.array.mean(axis=0)
    error = np.sqrt(
        np.diagonal(covariance) * 2 / np.minimum(gaussian.effective_sizes, posterior.effective_sizes)
    )
    assert np.all(np.abs(apart) < 5 * error)
    ratio = np.diagonal(np.cov(posterior.array, rowvar=False)) / np.diagonal(covariance)
    assert np.abs(ratio - 1.0).max() < 5 * np.sqrt(2 / 3_000 + 2 / 18_000)


@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
@pytest.mark.parametrize("weights", ["semiparametric", "nonparametric"])
def test_one_far_shard_of_several_enters_as_a_gaussian(weights):
    draws = np.random.default_rng(0).normal(size=(4, 3_000, 2))
    draws[2] += 4.0
    posterior = combine(
        draws, method="semiparametric-product", kind="subposterior", component_weights=weights
    )
    if weights == "semiparametric":  # the others reach farther
        assert "1 of 4 shards enter as Gaussians" in posterior.info["warnings"][-1]
        assert "shard 2 lies" in posterior.info["warnings"][-1]
    error = np.sqrt(0.25 / posterior.effective_sizes)
    assert np.all(np.abs(posterior.mean() - 1.0) < 5 * error)
    # The mean of plain kernels, which that shard has none of near there, would be somewhere else.
    others = combine(np.delete(draws, 2, axis=0), method="semiparametric-product", kind="subposterior")
    assert np.all(np.abs(others.mean() - 1.0) > 6 * error)


def test_many_dimensions_are_the_gaussian_product():
    draws = np.random.default_rng(0).normal(size=(4, 2_000, 40))
    with pytest.warns(ConsilienceWarning, match="4 of 4 shards enter as Gaussians"):
        posterior = combine(draws, method="semiparametric-product", kind="subposterior")
    assert abs(np.mean(np.diagonal(posterior.cov())) * 4 - 1.0) < 0.03


def test_corrections_with_wide_kernels_are_quieter_than_kernels_alone():
    """What the parametric start buys: for Gaussian shards no smoothing bias at any bandwidth."""
    draws = np.random.default_rng(0).normal(size=(4, 4_000, 1))
    shards = Subposteriors.of(draws, kind="subposterior")
    start = SemiparametricProduct(bandwidth=3.0).combine(shards).array.var()
    plain = KernelProduct(centres="draws", bandwidth=3.0).combine(shards).array.var()
    assert abs(start * 4 - 1.0) < 0.15 < plain * 4 - 1.0


def test_inflated_draws_are_refused():
    draws = np.random.default_rng(0).normal(size=(3, 200, 1))
    with pytest.raises(DrawsError, match="must be 'subposterior' for method 'semiparametric-product'"):
        combine(draws, method="semiparametric-product", kind="inflated")


def test_memory_is_a_small_multiple_of_the_draws():
    draws = np.random.default_rng(0).normal(size=(8, 20_000, 3))
    shards = Subposteriors.of(draws, kind="subposterior")
    assert peak_over_draws(lambda: SemiparametricProduct(num_draws=300).combine(shards), shards) < 3.0


@pytest.mark.parametrize(
    ("option", "value"),
    [("component_weights", "both"), ("num_draws", True), ("bandwidth", -1.0), ("max_sweeps", 0)],
)
def test_options_are_checked(option, value):
    with pytest.raises(InputError, match=f"semiparametric-product: `{option}` must be"):
        get_combiner("semiparametric-product", **{option: value})
