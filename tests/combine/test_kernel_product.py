"""The product of kernel estimates: skewed shards whose product is known, noise, refusals and promises."""

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
from consilience.draws import Subposteriors
from consilience.errors import ConsilienceWarning, DrawsError, InputError

# What is known of a distribution function from n independent draws: P(sqrt(n) D > 2.2) is 1e-4. Draws of a kernel
# product are worth less than they are many, and the effective size counts that.
LIMIT = 2.2


@pytest.mark.parametrize("centres", ["shrunk", "draws"])
def test_skewed_shards_give_the_product_of_their_smoothed_densities(centres):
    rule = KernelProduct(centres=centres)
    shards = skewed_shards(0)
    combined = rule.combine(shards)
    assert distance(combined, average_product(rule, shards, skewed_densities(), tilted=False)) < LIMIT


def test_the_oracle_rejects_a_missing_shard_and_wrong_centres():
    rule = KernelProduct()
    shards = skewed_shards(0)
    fewer = Subposteriors.of(shards.draws[:2], kind="subposterior")
    expected = average_product(rule, shards, skewed_densities(), tilted=False)
    assert distance(rule.combine(fewer), expected) > 2 * LIMIT
    wide = KernelProduct(centres="draws", bandwidth=3.0)
    expected = average_product(KernelProduct(bandwidth=3.0), shards, skewed_densities(), tilted=False)
    assert distance(wide.combine(shards), expected) > 2 * LIMIT


def test_it_comes_near_a_skewed_posterior_that_averages_miss():
    shards, truth = skewed_shards(1), skewed_product()
    assert largest_difference(get_combiner("consensus").combine(shards), truth) > 0.2
    assert largest_difference(KernelProduct().combine(shards), truth) < 0.06


def test_more_draws_come_nearer():
    truth = skewed_product()
    errors = [
        np.mean(
            [largest_difference(KernelProduct().combine(skewed_shards(s, (n,) * 3)), truth) for s in range(3)]
        )
        for n in (200, 20_000)
    ]
    assert errors[1] < 0.5 * errors[0]


def test_annealing_to_the_end_is_noisier_than_with_a_limit():
    rng = np.random.default_rng(0)
    free, limited = [], []
    for _ in range(8):
        draws = rng.normal(size=(4, 300, 5)) + 1.2 * rng.normal(size=(4, 1, 5))
        shards = Subposteriors.of(draws, kind="subposterior")
        gaussian = get_combiner("gaussian-product").combine(shards).array.mean(axis=0)
        for found, limit in ((free, None), (limited, 0.3)):
            mean = KernelProduct(noise_limit=limit).combine(shards).array.mean(axis=0)
            found.append(np.mean((mean - gaussian) ** 2))
    assert np.mean(limited) < 0.5 * np.mean(free)


def test_many_dimensions_are_refused_and_other_rules_named():
    draws = np.random.default_rng(0).normal(size=(4, 2_000, 40))
    with pytest.raises(
        DrawsError, match=r"fewer dimensions.*2000 effective draws in 40 dim.*'semiparametric-product'"
    ):
        combine(draws, method="kernel-product", kind="subposterior")


def test_shards_far_apart_are_taken_as_gaussians_with_a_warning():
    draws = np.random.default_rng(0).normal(size=(4, 2_000, 2)) + np.array([0, 8, 16, 24])[:, None, None]
    with pytest.warns(ConsilienceWarning, match="4 of 4 shards have so few draws near the product"):
        posterior = combine(draws, method="kernel-product", kind="subposterior")
    assert np.abs(posterior.mean() - 12.0).max() < 1.0
    assert np.all(np.isfinite(posterior.array))


def test_inflated_draws_are_refused():
    with pytest.raises(DrawsError, match="must be 'subposterior' for method 'kernel-product'"):
        combine(np.random.default_rng(0).normal(size=(3, 200, 1)), method="kernel-product", kind="inflated")


def test_autocorrelated_draws_get_wider_kernels_and_smaller_effective_sizes():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(3, 20_000, 1))
    chains = np.empty_like(noise)
    chains[:, 0] = noise[:, 0]
    for j in range(1, noise.shape[1]):
        chains[:, j] = 0.95 * chains[:, j - 1] + np.sqrt(1 - 0.95**2) * noise[:, j]
    slow = KernelProduct().combine(Subposteriors.of(chains, kind="subposterior"))
    fast = KernelProduct().combine(Subposteriors.of(noise, kind="subposterior"))
    assert slow.effective_sizes[0] < 0.3 * fast.effective_sizes[0]


def test_the_number_of_draws_can_be_chosen():
    shards = skewed_shards(0, (300, 500, 400))
    assert len(KernelProduct().combine(shards).array) == 500
    assert len(KernelProduct(num_draws=1_700).combine(shards).array) == 1_700


def test_memory_is_a_small_multiple_of_the_draws():
    draws = np.random.default_rng(0).normal(size=(8, 20_000, 3))
    shards = Subposteriors.of(draws, kind="subposterior")
    assert peak_over_draws(lambda: KernelProduct(num_draws=300).combine(shards), shards) < 3.0


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("centres", "middle"),
        ("num_draws", 0),
        ("num_draws", 2.5),
        ("bandwidth", 0.0),
        ("bandwidth", "wide"),
        ("noise_limit", -1.0),
        ("max_sweeps", None),
    ],
)
def test_options_are_checked(option, value):
    with pytest.raises(InputError, match=f"kernel-product: `{option}` must be"):
        get_combiner("kernel-product", **{option: value})
