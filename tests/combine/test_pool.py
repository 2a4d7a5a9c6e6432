"""Pool is LISA: the case of Bernoulli rows, where inflated sub-posteriors and their mixture are known."""

from __future__ import annotations

import numpy as np
from scipy import stats

from consilience.combine import get_combiner
from consilience.draws import Subposteriors
from consilience.numerics import normalised_weights

ROWS, SUCCESSES = np.array([400, 250, 350]), np.array([130, 70, 140])
PRIOR = (2.0, 3.0)
WEIGHTS = ROWS / ROWS.sum()


def bernoulli_shards(
    rng: np.random.Generator, sizes: tuple[int, ...] = (3_000, 3_000, 3_000)
) -> tuple[Subposteriors, list[stats.rv_continuous]]:
    """Draws of Beta(a + S_b / w_b, c + (n_b - S_b) / w_b), which is the prior times the inflated likelihood."""
    laws = [
        stats.beta(PRIOR[0] + s / w, PRIOR[1] + (n - s) / w)
        for n, s, w in zip(ROWS, SUCCESSES, WEIGHTS, strict=True)
    ]
    draws = [law.rvs(size=(size, 1), random_state=rng) for law, size in zip(laws, sizes, strict=True)]
    return Subposteriors.of(draws, kind="inflated", weights=WEIGHTS), laws


def distance(values: np.ndarray, weights: np.ndarray, laws: list[stats.rv_continuous]) -> float:
    """Distance of the weighted draws from the mixture of the laws, in units of its Monte Carlo error."""
    order = np.argsort(values)
    exact = sum(w * law.cdf(values[order]) for w, law in zip(WEIGHTS, laws, strict=True))
    return float(np.abs(np.cumsum(weights[order]) - exact).max() / np.sqrt(np.sum(weights**2)))


def test_pool_is_the_mixture_of_inflated_posteriors():
    shards, laws = bernoulli_shards(np.random.default_rng(0), sizes=(3_000, 2_000, 4_000))
    combined = get_combiner("pool").combine(shards)
    assert distance(combined.array[:, 0], normalised_weights(combined.log_weights), laws) < 2.2


def test_the_mixture_rejects_draws_that_all_count_the_same():
    shards, laws = bernoulli_shards(np.random.default_rng(0), sizes=(3_000, 9_000, 1_000))
    values = get_combiner("pool").combine(shards).array[:, 0]
    assert distance(values, np.full(len(values), 1 / len(values)), laws) > 3 * 2.2


def test_the_mixture_rejects_averages():
    shards, laws = bernoulli_shards(np.random.default_rng(0))
    averages = WEIGHTS @ np.array([x[:, 0] for x in shards.draws])
    assert distance(averages, np.full(len(averages), 1 / len(averages)), laws) > 3 * 2.2


def test_pool_is_about_sqrt_b_times_too_wide():
    # B shards of N(0, 1) rows: inflated means scatter by sqrt(B - 1) posterior deviations, V_b is the posterior's.
    rng = np.random.default_rng(1)
    means = rng.normal(size=200) * np.sqrt(199)
    draws = means[:, None, None] + rng.normal(size=(200, 100, 1))
    combined = get_combiner("pool").combine(Subposteriors.of(draws, kind="inflated", names=["slope"]))
    # The variance of 200 means has a relative standard error of sqrt(2 / 199) = 0.1.
    assert abs(combined.array.var() / 200 - 1.0) < 4 * 0.1
    assert "of the variance of slope lies between shards" in combined.notes[0]


def test_shards_that_agree_need_no_note():
    draws = np.random.default_rng(2).normal(size=(3, 1_000, 1))
    assert get_combiner("pool").combine(Subposteriors.of(draws, kind="inflated")).notes == ()
