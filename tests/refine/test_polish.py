"""Chains keep the posterior, forget where they started, and say so when they cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpyro.distributions as dist
import pytest
from refinement_targets import Bimodal, Gaussian, pass_back_of
from scipy.stats import chi2
from shaped_targets import Banana, FewEvents, ShortLogistic

import consilience as cs
from consilience.errors import InputError
from consilience.model.model import Model
from consilience.refine.full_data_chains import FullDataChains
from consilience.refine.nested_rhat import nested_rhat, nested_rhat_limit, quantities
from consilience.refine.polish import Polish
from consilience.refine.stein import Cloud

NUMBER = 3000


def normal_start(exact: np.ndarray, shift: float, rng: np.random.Generator) -> np.ndarray:
    root = np.linalg.cholesky(np.cov(exact, rowvar=False))
    direction = np.ones(exact.shape[1]) / np.sqrt(exact.shape[1])
    return exact.mean(axis=0) + (rng.normal(size=(NUMBER, exact.shape[1])) + shift * direction) @ root.T


# -- nested R-hat --


def test_nested_rhat_is_its_definition() -> None:
    rng = np.random.default_rng(0)
    superchains, size, draws = 5, 3, 4
    x = rng.normal(size=(superchains, size, draws)) + rng.normal(size=(superchains, 1, 1))
    between = np.var([x[k].mean() for k in range(superchains)], ddof=1)
    within = 0.0
    for k in range(superchains):
        means = [x[k, m].mean() for m in range(size)]
        inside = np.mean([np.var(x[k, m], ddof=1) for m in range(size)])
        within += (np.var(means, ddof=1) + inside) / superchains
    found = nested_rhat(x.reshape(superchains * size, draws, 1), superchains)
    np.testing.assert_allclose(found, [np.sqrt(1 + between / within)])
    assert nested_rhat(np.ones((8, 2, 1)), 4)[0] == np.inf


def test_its_limit_is_exceeded_by_one_in_a_hundred_and_by_chains_that_remember() -> None:
    rng = np.random.default_rng(0)
    limit, repeats = nested_rhat_limit(256, 64, 5), 1000

    def alarms(memory: float) -> float:
        found = 0
        for _ in range(repeats):
            start = np.repeat(rng.normal(size=(64, 2)), 4, axis=0)
            z = np.sqrt(1 - memory**2) * rng.normal(size=(256, 2)) + memory * start
            found += nested_rhat(quantities(z, -0.5 * np.sum(z**2, axis=1)), 64).max() > limit
        return found / repeats

    assert alarms(0.0) < 0.01 + 3 * np.sqrt(0.01 / repeats)
    assert alarms(0.6) > 0.8


# -- the kernel --


def scores_of_moments(path: list[np.ndarray], exact: np.ndarray) -> float:
    """Largest standardised difference of means, squares and cubes; errors from chains, which are independent."""
    centre, scale = exact.mean(axis=0), exact.std(axis=0)
    found = (np.stack(path) - centre) / scale
    known = (exact - centre) / scale
    worst = 0.0
    for power in (1, 2, 3):
        by_chain = (found**power).mean(axis=0)
        error = by_chain.std(axis=0) / np.sqrt(len(by_chain)) + (known**power).std(axis=0) / np.sqrt(
            len(known)
        )
        worst = max(worst, float(np.max(np.abs(by_chain.mean(axis=0) - (known**power).mean(axis=0)) / error)))
    return worst


@pytest.mark.parametrize("target", [FewEvents, Banana])
def test_the_posterior_is_invariant_and_without_the_metropolis_rule_it_is_not(
    target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    exact = target.of().draws(50_000, rng)

    def run(step: float) -> float:
        pass_back = target.of().pass_back()
        starts = pass_back.scores(exact[:1024])
        chains = FullDataChains(pass_back, Cloud.of(exact), starts, 4, np.random.default_rng(1))
        path = []
        for _ in range(12):
            chains.iterate(step)
            path.append(chains.at.points)
        return scores_of_moments(path, exact)

    large = 1.7 if target is FewEvents else 0.5
    assert run(large) < 4.5
    monkeypatch.setattr(FullDataChains, "accepted", lambda self, gain: np.isfinite(gain))
    assert run(large) > 9.0, "the oracle would have passed a kernel that accepts everything"


def test_points_without_a_density_are_never_entered() -> None:
    def positive(params: dict[str, Any], rows: dict[str, Any]) -> Any:
        import jax.numpy as jnp

        return jnp.log(params["a"]) / 30.0 + 0.0 * rows["y"]

    model = Model({"a": dist.Normal(1, 1)}, positive)
    pass_back = pass_back_of(model, {"y": np.zeros(30, np.float32)}, reference_point=[1.0])
    start = np.abs(np.random.default_rng(0).normal(size=(500, 1))) + 0.1
    found = Polish(max_gradients=3000).refine(start, None, pass_back)
    assert np.all(found.array > 0)
    spoiled = Polish().refine(start - 1.0, None, pass_back)
    np.testing.assert_array_equal(spoiled.array, start - 1.0)
    assert "NaN or infinite" in spoiled.warnings[0]


# -- the whole --


@pytest.mark.parametrize("target", [FewEvents, Banana])
def test_shapes_that_no_affine_map_mends_reach_the_floor(target: Any) -> None:
    rng = np.random.default_rng(0)
    exact = target.of().draws(20_000, rng)
    start = normal_start(exact, 1.0, rng)
    assert not cs.compare(start, exact).within_noise["mahalanobis"]
    found = Polish().refine(start, None, target.of().pass_back())
    assert found.record["converged"], found.notes
    off = found.array.mean(axis=0) - exact.mean(axis=0)
    distance = float(np.sqrt(off @ np.linalg.solve(np.cov(exact, rowvar=False), off)))
    assert distance**2 * found.record["effective_draws"] < chi2.ppf(0.999, exact.shape[1])
    assert cs.compare(found.array, exact).iad < 0.5 * cs.compare(start, exact).iad


def test_chains_that_are_stuck_far_out_come_in_by_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three standard deviations off, some starts lie a thousand nats deep, where every whole step is refused."""
    rng = np.random.default_rng(0)
    exact = Banana.of().draws(20_000, rng)
    start = normal_start(exact, 3.0, rng)
    pass_back = Banana.of().pass_back()
    depth = pass_back.densities(exact).log_density.min() - 50.0

    def deep(found: np.ndarray) -> int:
        return int(np.count_nonzero(pass_back.densities(found).log_density < depth))

    assert deep(start) > 100
    found = Polish().refine(start, None, Banana.of().pass_back())
    assert deep(found.array) == 0
    monkeypatch.setattr("consilience.refine.full_data_chains.SMALLEST", 1.0)
    stuck = Polish().refine(start, None, Banana.of().pass_back())
    assert deep(stuck.array) > 0, "whole steps alone leave them there"


def test_separate_modes_keep_their_shares_and_it_is_said() -> None:
    start = Bimodal.draws(NUMBER, np.random.default_rng(0))
    found = Polish(max_gradients=20_000).refine(start, None, Bimodal.pass_back())
    assert not found.record["converged"]
    assert found.record["nested_rhat"] > found.record["nested_rhat_limit"]
    assert "separate modes" in found.warnings[0]
    share = np.mean(start < 0)
    assert abs(np.mean(found.array < 0) - share) < 4 * np.sqrt(share * (1 - share) / 64)


def test_the_budget_is_kept_and_fewer_draws_are_returned() -> None:
    rng = np.random.default_rng(0)
    exact = FewEvents.of().draws(NUMBER, rng)
    found = Polish(chains=64, max_gradients=1000).refine(exact + 5.0, None, FewEvents.of().pass_back())
    assert not found.record["converged"]
    one_round = 6 * 8 * 64.5  # an iteration at most eight leapfrog steps
    assert 1000 <= found.record["cost"]["full_data_gradients"] < 1000 + one_round
    assert len(found.array) < NUMBER
    assert "1000" in found.warnings[0] or "max_gradients" in found.warnings[0]


def test_weighted_draws_become_equally_weighted() -> None:
    target, rng = Gaussian.of(2), np.random.default_rng(0)
    wide = target.mean + 1.5 * (target.draws(NUMBER, rng) - target.mean)
    tilt = (wide - target.mean) @ np.linalg.inv(target.covariance) @ np.ones(2)
    found = Polish().refine(wide, tilt / np.std(tilt), target.pass_back())
    assert found.log_weights is None
    assert target.mahalanobis(found.array) < 4 * np.sqrt(2 / found.record["effective_draws"])


def test_what_draws_are_worth_is_no_more_than_what_their_means_show() -> None:
    """The mean over runs of different seeds scatters as the stated effective number says."""
    target = Gaussian.of(1)
    start = target.draws(600, np.random.default_rng(0))
    options: dict[str, Any] = {"chains": 64, "max_gradients": 20_000}
    sd = np.sqrt(target.covariance[0, 0])
    off, worth = [], []
    for seed in range(30):
        found = Polish(**options).refine(start, None, target.pass_back(), seed=seed)
        off.append((found.array.mean() - target.mean[0]) / sd)
        worth.append(found.record["effective_draws"])
    ratio = np.mean(np.square(off)) * np.median(worth)
    assert ratio < 1 + 4 * np.sqrt(2 / 30)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chains": 100, "superchain": 3}, "multiple"),
        ({"chains": 16, "superchain": 4}, "at least 8 times"),
        ({"superchain": 1}, "`superchain` must be a whole number of at least 2"),
        ({"max_leapfrogs": 0}, "`max_leapfrogs`"),
        ({"max_gradients": 0.5}, "`max_gradients`"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Polish(**options)


@pytest.mark.long
def test_twenty_dimensions_reach_the_floor() -> None:
    target, rng = ShortLogistic.of(), np.random.default_rng(0)
    exact = target.draws(10_000, rng, steps=150)
    start = normal_start(exact, 2.0, rng)
    found = Polish().refine(start, None, target.pass_back())
    compared = cs.compare(found.array, exact)
    assert found.record["converged"]
    assert compared.within_noise["mahalanobis"]
    assert compared.within_noise["iad"]
