"""The judge lets healthy chains pass and stops the others."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.sample.convergence import judge

CHAINS = 4


def verdict(
    draws: np.ndarray, *, acceptance: float = 0.8, divergences: int = 0, log_density: np.ndarray | None = None
):
    names = tuple(f"u{i}" for i in range(draws.shape[-1]))
    values = -0.5 * (draws**2).sum(axis=-1) if log_density is None else log_density
    return judge(draws, values, acceptance, divergences, names)


def autoregressive(rng: np.random.Generator, length: int, dimension: int, rho: float) -> np.ndarray:
    """Stationary Gaussian chains with this autocorrelation."""
    x = rng.normal(size=(CHAINS, length, dimension))
    for t in range(1, length):
        x[:, t] = rho * x[:, t - 1] + np.sqrt(1 - rho**2) * x[:, t]
    return x


@pytest.mark.parametrize(("length", "dimension"), [(20, 1), (79, 5), (79, 28), (500, 28)])
@pytest.mark.parametrize("rho", [-0.3, 0.0, 0.3])
def test_healthy_chains_are_rarely_stopped(length, dimension, rho):
    rng = np.random.default_rng(length + dimension)
    stopped = sum(not verdict(autoregressive(rng, length, dimension, rho)).converged for _ in range(60))
    # The claim is one in a thousand for R-hat; two of sixty would happen once in 600 suites of a right judge.
    assert stopped <= 1


@pytest.mark.parametrize("length", [79, 500])
@pytest.mark.parametrize(("what", "size"), [("place", 1.5), ("place", 6.0), ("spread", 4.0)])
def test_one_chain_elsewhere_is_noticed_and_its_coordinate_named(length, what, size):
    rng = np.random.default_rng(1)
    noticed = 0
    for _ in range(40):
        x = rng.normal(size=(CHAINS, length, 6))
        x[2, :, 4] = x[2, :, 4] + size if what == "place" else x[2, :, 4] * size
        result = verdict(x)
        noticed += any("u4" in problem for problem in result.problems)
    assert noticed >= 38


def test_drift_within_chains_is_noticed():
    x = np.random.default_rng(2).normal(size=(CHAINS, 200, 2))
    x[:, :, 1] += np.linspace(-1.5, 1.5, 200)
    assert any("u1" in problem for problem in verdict(x).problems)


def test_slow_chains_have_too_few_effective_draws():
    result = verdict(autoregressive(np.random.default_rng(3), 500, 1, 0.99))
    assert any("effective draws" in problem or "R-hat" in problem for problem in result.problems)


def test_more_is_needed_where_more_was_asked_for():
    x = autoregressive(np.random.default_rng(4), 500, 1, 0.95)
    result = verdict(x)
    assert 17 < result.ess_bulk < 100
    assert not result.converged


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"acceptance": 0.1}, "acceptance is 0.10"),
        ({"log_density": np.where(np.arange(CHAINS) == 1, -np.inf, 0.0)[:, None] * np.ones(100)}, "chain 1 "),
    ],
)
def test_what_a_sampler_says_of_itself_counts(change, problem):
    x = np.random.default_rng(5).normal(size=(CHAINS, 100, 2))
    with np.errstate(invalid="ignore"):
        values = change.pop("log_density", None)
        if values is not None:
            values = np.nan_to_num(values, nan=0.0, neginf=-np.inf)
    result = verdict(x, log_density=values, **change)
    assert any(problem in text for text in result.problems)


def test_divergences_are_a_caution():
    x = np.random.default_rng(5).normal(size=(CHAINS, 100, 2))
    some, few = verdict(x, divergences=30), verdict(x, divergences=1)
    assert some.converged
    assert "diverged" in some.cautions[0]
    assert not few.cautions


def test_a_coordinate_that_never_moves_is_named():
    x = np.random.default_rng(6).normal(size=(CHAINS, 100, 3))
    x[:, :, 1] = 2.0
    assert verdict(x).problems[0] == "u1 did not move"


@pytest.mark.parametrize("chains", [1, 2])
def test_few_chains_can_be_judged_too(chains):
    x = np.random.default_rng(7).normal(size=(chains, 400, 2))
    assert verdict(x).converged
    x[:, 200:, 0] += 3.0
    assert not verdict(x).converged
