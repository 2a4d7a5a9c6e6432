"""Reweighting reaches the noise floor where no affine map does, and each part of it is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpyro.distributions as dist
import pytest
from crooked_targets import Target, banana, bimodal, natural, ornstein_uhlenbeck
from refinement_targets import Bimodal, Gaussian, from_prior
from scipy.stats import chi2

from consilience.combine.consensus import Consensus
from consilience.draws import Subposteriors
from consilience.errors import InputError
from consilience.numerics import normalised_weights
from consilience.refine import importance
from consilience.refine.base import Refined
from consilience.refine.importance import ImportanceRounds
from consilience.refine.mixtures import GaussianMixture
from consilience.refine.proposals import HeavyParts, Kernels
from consilience.refine.reweight import Reweight

LEVEL = 1e-4
TARGETS = {"banana": banana, "needle": ornstein_uhlenbeck, "two modes": bimodal}


@pytest.fixture(scope="module")
def targets() -> dict[str, Target]:
    return {name: make(np.random.default_rng(0)) for name, make in TARGETS.items()}


def surprise(target: Target, found: Refined) -> float:
    """Squared error of the weighted mean over what its own Monte Carlo error allows once in 10,000 cases."""
    assert found.log_weights is not None
    weights = normalised_weights(found.log_weights)
    mean = weights @ found.array
    off = found.array - mean
    noise = (off * weights[:, None] ** 2).T @ off + np.cov(target.exact, rowvar=False) / len(target.exact)
    error = mean - target.exact.mean(axis=0)
    return float(error @ np.linalg.solve(noise, error)) / chi2.isf(LEVEL, len(mean))


def floor(target: Target, number: int = 10_000) -> tuple[float, float]:
    """Mahalanobis distance and IAD of two independent exact runs, on average."""
    rng = np.random.default_rng(1)
    runs = [target.exact[rng.integers(len(target.exact), size=number)] for _ in range(16)]
    root_two = np.sqrt(2.0)
    return (
        root_two * float(np.mean([target.mahalanobis(run) for run in runs])),
        root_two * float(np.mean([target.iad(run) for run in runs])),
    )


@pytest.mark.parametrize("name", list(TARGETS))
def test_swiss_draws_reach_the_noise_floor(name: str, targets: dict[str, Target]) -> None:
    target = targets[name]
    found = Reweight().refine(target.swiss, None, target.pass_back, target.shards)
    least = floor(target)
    assert target.mahalanobis(target.swiss) > 5 * least[0], "there would be nothing to mend"
    assert target.mahalanobis(found.array, found.log_weights) < 1.5 * least[0]
    assert target.iad(found.array, found.log_weights) < 1.5 * least[1]
    assert surprise(target, found) < 1
    assert found.record["effective_draws"] > 4000
    # Along the needle weights are all but constant, so that one thin place decides about k-hat, which then warns of
    # a result that is right.
    if name != "needle":
        assert found.record["shape"] < 0.7
        assert not found.warnings


def test_a_lost_mode_is_found_again(targets: dict[str, Target], monkeypatch: pytest.MonkeyPatch) -> None:
    """From draws of one mode alone; and the shares of raw and pooled draws are what finds the other."""
    target = targets["two modes"]
    start = target.swiss[target.swiss[:, 0] < 0.5]
    found = Reweight(rounds=2).refine(start, None, target.pass_back, target.shards)
    assert surprise(target, found) < 1
    monkeypatch.setattr(importance, "SHARE", 0.0)
    without = Reweight(rounds=2).refine(start, None, target.pass_back, target.shards)
    assert target.mahalanobis(without.array, without.log_weights) > 20 * floor(target)[0]
    assert without.record["effective_draws"] > 2500, "which nothing in its weights betrays"


def test_a_tail_is_missed_without_raw_and_pooled_draws(
    targets: dict[str, Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = targets["needle"]
    beyond = float(np.quantile(target.exact[:, 0], 0.99))
    share = []
    for kept in (importance.SHARE, 0.0):
        monkeypatch.setattr(importance, "SHARE", kept)
        start = target.exact[target.exact[:, 0] < np.quantile(target.exact[:, 0], 0.6)][:4000]
        found = Reweight(rounds=2).refine(start, None, target.pass_back, target.shards)
        weights = normalised_weights(found.log_weights)
        tail = found.array[:, 0] > beyond
        share.append(
            (float(weights @ tail), float(np.sqrt(np.sum(weights**2 * (tail - weights @ tail) ** 2))))
        )
    assert abs(share[0][0] - 0.01) < 4 * share[0][1]
    assert share[1][0] < 0.01 - 4 * share[0][1]


@pytest.mark.long
def test_consensus_draws_are_mended_too(targets: dict[str, Target]) -> None:
    """Sub-posterior draws, drawn in to the posterior's scale: consensus has one mode where there are two."""
    target = targets["two modes"]
    wide = [x.mean(axis=0) + np.sqrt(10.0) * (x - x.mean(axis=0)) for x in target.shards.draws]
    shards = Subposteriors.of(wide, kind="subposterior")
    start = Consensus().combine(shards).array
    assert surprise(target, Reweight(rounds=2).refine(start, None, target.pass_back, shards)) < 1


def test_weights_without_the_proposals_density_are_rejected(
    targets: dict[str, Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = targets["banana"]
    monkeypatch.setattr(
        ImportanceRounds, "log_proposal", lambda self: np.zeros(sum(len(x) for x in self.points))
    )
    found = Reweight(rounds=2).refine(target.swiss, None, target.pass_back, target.shards)
    assert found.log_weights is None or surprise(target, found) > 5


def test_all_rounds_are_one_sample() -> None:
    """Two rounds, each near one of two modes: weights normalised within rounds would give both the same say."""
    rng = np.random.default_rng(0)
    rounds = ImportanceRounds(from_prior({"t": two_modes()}), ())
    for centre in (-5.0, 5.0):
        parts = GaussianMixture(np.ones(1), np.full((1, 1), centre), np.ones((1, 1, 1)))
        rounds.one_round(HeavyParts(parts), 2000, rng)
    ratios, right = rounds.log_ratios(), np.concatenate(rounds.points)[:, 0] > 0
    weights = normalised_weights(ratios)
    error = np.sqrt(np.sum(weights**2 * (right - 0.7) ** 2))
    assert abs(weights @ right - 0.7) < 4 * error
    own = [
        np.exp(d - HeavyParts.log_density(shared.proposals[0], x))
        for d, x, shared in zip(rounds.log_densities, rounds.points, rounds.rounds, strict=True)
    ]
    by_round = np.concatenate([w / w.sum() / 2 for w in own])
    assert abs(by_round @ right - 0.7) > 10 * error


def two_modes() -> Any:
    weights = np.array([0.3, 0.7], np.float32)
    mixture = dist.MixtureSameFamily(
        dist.Categorical(probs=weights), dist.Normal(np.array([-5.0, 5.0], np.float32), 1.0)
    )
    return mixture.expand([1]).to_event(1)


def test_draws_that_are_no_worse_are_kept() -> None:
    target = Gaussian.of(3)
    exact = target.draws(100_000, np.random.default_rng(0))
    found = Reweight(rounds=1).refine(exact, None, target.pass_back())
    assert found.array is exact
    assert found.log_weights is None
    assert not found.warnings
    assert "no worse" in found.notes[0]
    displaced = exact + 0.2 * np.sqrt(np.diagonal(target.covariance))
    assert Reweight(rounds=1).refine(displaced, None, target.pass_back()).record["kept"]


def test_too_few_effective_points_change_nothing_and_say_so() -> None:
    target = Gaussian.of(28)
    start = target.draws(4000, np.random.default_rng(0)) * 1.2 + 1.0
    back = target.pass_back()
    found = Reweight(rounds=1, points=600).refine(start, None, back)
    if found.record["effective_draws"] >= 5 * 28:
        pytest.fail("this start is too easy")
    np.testing.assert_array_equal(found.array, start)
    assert "too few for 28 parameters" in found.warnings[0]
    assert found.record["cost"] == back.ledger.to_dict()


def test_a_heavy_tail_is_flagged() -> None:
    back = from_prior({"t": dist.StudentT(0.5, 0.0, 1.0).expand([2]).to_event(1)})
    start = np.random.default_rng(0).normal(size=(2000, 2)) + 1.0
    found = Reweight(rounds=2).refine(start, None, back)
    assert found.record["shape"] > 0.7
    assert "beyond 0.7" in found.warnings[0]


def test_weighted_draws_may_come_in() -> None:
    rng = np.random.default_rng(0)
    start = 1.5 * Bimodal.draws(4000, rng)
    log_weights = -0.01 * np.sum(start**2, axis=1)
    found = Reweight(rounds=2).refine(start, log_weights, Bimodal.pass_back())
    share = np.average(found.array[:, 0] > 0, weights=natural(found.log_weights))
    assert abs(share - 0.7) < 4 * np.sqrt(0.21 / found.record["effective_draws"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": "equal"}, "'density' or 'stein'"),
        ({"rounds": 0}, "1 or more"),
        ({"points": 10}, "80 or more for 3 parameters"),
        ({"points": 10, "weights": "stein"}, "20 or more for 3 parameters"),
    ],
)
def test_options_are_checked_before_any_work(options: dict[str, Any], message: str) -> None:
    target = Gaussian.of(3)
    back = target.pass_back()
    with pytest.raises(InputError, match=message):
        Reweight(**options).refine(target.draws(100, np.random.default_rng(0)), None, back)
    assert back.ledger.rounds == 0


@pytest.mark.parametrize("dimension", [1, 2, 10])
def test_proposals_are_densities_of_what_they_draw(dimension: int) -> None:
    """E over one proposal of the other's density ratio is 1, and kernels keep the draws' covariance."""
    rng = np.random.default_rng(dimension)
    draws = rng.normal(size=(2000, dimension)) * np.arange(1, dimension + 1) + 3.0
    kernels = Kernels.on(draws, rng)
    parts = HeavyParts(
        GaussianMixture(np.ones(1), draws.mean(axis=0)[None], 1.3 * np.diag(draws.var(axis=0))[None])
    )
    for drawn, other in ((kernels, parts), (parts, kernels)):
        points = drawn.sample(20_000, rng)
        ratio = np.exp(np.minimum(other.log_density(points), 700) - drawn.log_density(points))
        # Ratios to kernels have a heavy tail; the half that is bounded is tested, by p (p + q)^-1.
        bounded = ratio / (1.0 + ratio)
        mirrored = 1.0 / (
            1.0 + np.exp(drawn.log_density(back := other.sample(20_000, rng)) - other.log_density(back))
        )
        error = np.sqrt((bounded.var() + mirrored.var()) / 20_000)
        assert abs(bounded.mean() + mirrored.mean() - 1.0) < 4 * error
    spread = np.cov(kernels.sample(20_000, rng), rowvar=False).reshape(dimension, dimension)
    ratios = np.diagonal(spread) / draws.var(axis=0)
    assert np.all(np.abs(ratios - 1) < 5 * np.sqrt(2 / 2000))
