"""A surrogate reaches the noise floor where no affine map does, leaves exact draws alone, knows when it is wrong."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpyro.distributions as dist
import pytest
from refinement_targets import Gaussian, from_prior, pass_back_of
from shaped_targets import Banana, FewEvents, Needle, ShortLogistic

import consilience as cs
from consilience.draws import Subposteriors
from consilience.errors import InputError
from consilience.model.model import Model
from consilience.refine import surrogate, surrogate_points, surrogate_sampling
from consilience.refine.pass_back import Evaluation, PassBack
from consilience.refine.polynomial import Polynomial, fit_polynomial, scales_of
from consilience.refine.surrogate import Surrogate
from consilience.refine.surrogate_check import Judgement, binned_divergence, divergence_from
from consilience.refine.surrogate_sampling import sample_polynomial

NUMBER = 3000
REFERENCE = 20_000


def normal_start(exact: np.ndarray, shift: float, rng: np.random.Generator) -> np.ndarray:
    """A normal cloud with the right covariance whose mean is `shift` standard deviations off: what affine maps give."""
    root = np.linalg.cholesky(np.cov(exact, rowvar=False))
    direction = np.ones(exact.shape[1]) / np.sqrt(exact.shape[1])
    return exact.mean(axis=0) + (rng.normal(size=(NUMBER, exact.shape[1])) + shift * direction) @ root.T


def at_the_floor(draws: np.ndarray, exact: np.ndarray) -> bool:
    """Mean and marginals within what 99 of 100 pairs of exact samples of these effective sizes show."""
    found = cs.compare(draws, exact)
    return found.within_noise["mahalanobis"] and found.within_noise["iad"]


def without_guards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Judgement, "better", True)
    monkeypatch.setattr(Judgement, "alike", False)
    monkeypatch.setattr(surrogate, "MOST_OUTSIDE", 1.0)
    monkeypatch.setattr(surrogate_sampling, "LARGEST_RHAT", np.inf)


@pytest.mark.parametrize("target", [Banana, FewEvents])
def test_shapes_that_no_affine_map_mends_reach_the_floor(target: Any) -> None:
    rng = np.random.default_rng(0)
    exact = target.of().draws(REFERENCE, rng)
    start = normal_start(exact, 1.0, rng)
    assert not at_the_floor(start, exact)
    found = Surrogate().refine(start, None, target.of().pass_back())
    assert found.record["kept"], found.notes
    assert found.array.shape == start.shape
    assert at_the_floor(found.array, exact)
    assert found.record["cost"]["full_data_gradients"] < 1300


def test_a_surrogate_without_refit_from_a_displaced_start_is_wrong_and_known_to_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(1)
    exact = FewEvents.of().draws(REFERENCE, rng)
    start = normal_start(exact, 3.0, rng)
    options: dict[str, Any] = {"points": 64, "max_degree": 4}
    once = Surrogate(max_rounds=1, **options).refine(start, None, FewEvents.of().pass_back())
    np.testing.assert_array_equal(once.array, start)
    assert once.warnings
    without_guards(monkeypatch)
    unguarded = Surrogate(max_rounds=1, least_r_squared=1e-9, **options)
    monkeypatch.setattr(surrogate, "explained", lambda *_: 1.0)
    found = unguarded.refine(start, None, FewEvents.of().pass_back())
    assert found.record["kept"]
    assert not at_the_floor(found.array, exact)


class Backwards:
    """A pass-back whose scores have the wrong sign."""

    def __init__(self, real: PassBack) -> None:
        self.real = real
        self.dimension = real.dimension

    @property
    def ledger(self) -> Any:
        return self.real.ledger

    def scores(self, points: np.ndarray) -> Evaluation:
        found = self.real.scores(points)
        assert found.scores is not None
        return Evaluation(found.points, found.log_density, -found.scores)


def test_scores_of_the_wrong_sign_are_not_believed() -> None:
    target, rng = Gaussian.of(2), np.random.default_rng(0)
    start = target.draws(NUMBER, rng) + np.sqrt(np.diagonal(target.covariance))
    backwards: Any = Backwards(target.pass_back())
    found = Surrogate(points=64, max_rounds=2).refine(start, None, backwards)
    np.testing.assert_array_equal(found.array, start)
    assert not found.record["kept"]


@pytest.mark.parametrize("target", [Banana, FewEvents])
def test_exact_draws_are_returned_as_they_are(target: Any) -> None:
    start = target.of().draws(NUMBER, np.random.default_rng(2))
    found = Surrogate().refine(start, None, target.of().pass_back())
    np.testing.assert_array_equal(found.array, start)
    assert "agree" in found.notes[0]
    assert not found.warnings


def test_modes_far_apart_are_not_mended_and_it_is_said() -> None:
    """Two modes ten standard deviations apart, draws at one of them: R^2 and KL at this mode are perfect."""
    mixture = dist.MixtureSameFamily(
        dist.Categorical(probs=np.array([0.5, 0.5], np.float32)),
        dist.Normal(np.array([-5.0, 5.0], np.float32), 1.0),
    )
    pass_back = from_prior({"t": mixture.expand([2]).to_event(1)})
    rng = np.random.default_rng(0)
    both = rng.normal(size=(NUMBER, 2)) + rng.choice([-5.0, 5.0], size=(NUMBER, 2))
    found = Surrogate(points=128, max_rounds=2).refine(both, None, pass_back)
    np.testing.assert_array_equal(found.array, both)
    one = rng.normal(size=(NUMBER, 2)) + 5.0
    deceived = Surrogate(points=128, max_rounds=2).refine(one + 0.5, None, pass_back)
    assert deceived.record["history"][-1]["check"]["r_squared"] > 0.99, (
        "the fault that only other draws can show"
    )
    centres = [(a, b) for a in (-5.0, 5.0) for b in (-5.0, 5.0)]
    shards = Subposteriors.of(np.stack([one - 5.0 + centre for centre in centres]), kind="inflated")
    warned = Surrogate(points=128, max_rounds=2).refine(one + 0.5, None, pass_back, shards)
    assert not warned.record["kept"] or np.mean(warned.array < 0) > 0.2


def test_points_are_taken_from_shards_of_either_kind() -> None:
    rng = np.random.default_rng(0)
    wide = rng.normal(100.0, 2.0, size=(4, 500, 1))
    shards = Subposteriors.of(wide, kind="subposterior")
    inflated = surrogate_points.inflated_draws(shards, 0)
    assert abs(inflated.std() - 1.0) < 4 / np.sqrt(2 * 500)
    points = surrogate_points.fitting_points(rng.normal(size=(500, 1)), None, shards, 100, rng)
    assert np.sum(points > 50) == 40
    few = Subposteriors.of(wide[:, :4], kind="subposterior")
    points = surrogate_points.fitting_points(rng.normal(size=(500, 1)), None, few, 100, rng)
    assert np.sum(points > 50) == 20, "SwISS refuses four draws per shard, and its share goes to the draws"


def test_weighted_draws_and_scores_that_are_not_finite() -> None:
    target, rng = Gaussian.of(2), np.random.default_rng(0)
    wide = target.mean + 1.5 * (target.draws(NUMBER, rng) - target.mean)
    tilt = (wide - target.mean) @ np.linalg.inv(target.covariance) @ np.ones(2)
    found = Surrogate(points=64).refine(wide, 0.5 * tilt / np.std(tilt), target.pass_back())
    assert found.log_weights is None
    assert target.mahalanobis(found.array) < 4 * np.sqrt(2 / found.record["effective_draws"])

    def root(params: dict[str, Any], rows: dict[str, Any]) -> Any:
        import jax.numpy as jnp

        return jnp.sqrt(params["a"]) + 0.0 * rows["y"]

    model = Model({"a": dist.Normal(1, 1)}, root)
    pass_back = pass_back_of(model, {"y": np.zeros(30, np.float32)}, reference_point=[1.0])
    start = rng.normal(size=(500, 1))
    found = Surrogate(points=64).refine(start, None, pass_back)
    np.testing.assert_array_equal(found.array, start)
    assert "NaN or infinite" in found.warnings[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"points": 8}, "`points` must be a whole number of at least 32. Got 8. Leave it out for 256"),
        ({"max_rounds": 0}, "`max_rounds`"),
        ({"max_degree": 7}, "at most 6"),
        ({"least_r_squared": 1.5}, "between 0 and 1"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Surrogate(**options)


def test_too_few_points_for_the_dimension_are_refused() -> None:
    target = Gaussian.of(20)
    with pytest.raises(InputError, match=r"at least 2 d = 40. Got 32"):
        Surrogate(points=32).refine(target.draws(100, np.random.default_rng(0)), None, target.pass_back())


# -- the parts --


def quartic(z: np.ndarray) -> np.ndarray:
    """Score of -|z|^2 / 2 - (z1 + z2)^4 / 8 + z1 z2 z3 / 2."""
    along = np.zeros_like(z)
    along[:, :2] = (-0.5 * (z[:, 0] + z[:, 1]) ** 3)[:, None]
    cubic = 0.5 * np.column_stack([z[:, 1] * z[:, 2], z[:, 0] * z[:, 2], z[:, 0] * z[:, 1]])
    return -z + along + cubic


def test_a_polynomial_is_found_and_is_the_same_on_fewer_points() -> None:
    rng = np.random.default_rng(0)
    z, fresh = rng.normal(size=(200, 3)), 1.5 * rng.normal(size=(500, 3))
    found = fit_polynomial(z, quartic(z), np.ones(200), rng)
    assert found.degree == 4
    scale = np.std(quartic(fresh))
    assert np.max(np.abs(found.scores(fresh) - quartic(fresh))) < 1e-3 * scale
    short = found.condensed()
    assert len(short.centres) < 30
    assert np.max(np.abs(short.scores(fresh) - found.scores(fresh))) < 1e-4 * scale
    step = 1e-5 * np.eye(3)
    slope = [(found.log_density(fresh + e) - found.log_density(fresh - e)) / 2e-5 for e in step]
    assert np.max(np.abs(np.column_stack(slope) - found.scores(fresh))) < 1e-4 * scale
    quadratic = fit_polynomial(z, quartic(z), np.ones(200), rng, most_degree=2)
    assert np.max(np.abs(quadratic.scores(fresh) - quartic(fresh))) > 0.1 * scale, (
        "the oracle tells degrees apart"
    )


def test_scores_that_are_noise_leave_the_normal_density() -> None:
    """A degree that noise asks for would be a shape out of nothing."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(128, 5))
    noisy = fit_polynomial(z, -z + 0.3 * rng.normal(size=z.shape), np.ones(128), rng)
    assert noisy.degree == 2
    assert np.mean(np.sum((noisy.scores(z) + z) ** 2, axis=1)) < 0.3**2 * 5 * 25 / 128


def test_a_density_that_rises_for_ever_is_held() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(100, 2))
    rising = fit_polynomial(z, -z + 0.8 * z**3, np.ones(100), rng)
    radius = float(np.max(np.linalg.norm(z, axis=1)))
    assert rising.log_density(np.array([[6.0, 0.0]]))[0] > 100
    found = sample_polynomial(rising, radius, z, 1000, rng, most_runs=1)
    assert np.all(np.isfinite(found.draws))
    assert np.max(np.linalg.norm(found.draws, axis=1)) < radius + 6
    assert found.outside > surrogate.MOST_OUTSIDE, "and it is seen"
    unheld = sample_polynomial(rising, 1e3, z, 1000, rng, most_runs=1)
    assert np.max(np.linalg.norm(unheld.draws, axis=1)) > radius + 6, "without the guard it explodes"


def test_draws_of_a_known_polynomial() -> None:
    """exp(-z^2 / 2 - z^4 / 4): moments by quadrature; a sampler of the normal density alone is told apart."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(100, 1))
    polynomial = fit_polynomial(z, -z - z**3, np.ones(100), rng)
    grid = np.linspace(-6, 6, 10_001)
    density = np.exp(-(grid**2) / 2 - grid**4 / 4)
    square, fourth = (np.average(grid**k, weights=density) for k in (2, 4))
    found = sample_polynomial(polynomial, 5.0, z, 8000, rng, most_runs=2)
    error = np.sqrt((fourth - square**2) / 2000)
    assert abs(np.mean(found.draws**2) - square) < 4 * error
    normal = Polynomial(z, np.zeros_like(z), scales_of(2, 1), 1.0)
    wrong = sample_polynomial(normal, 5.0, z, 8000, rng, most_runs=2)
    assert abs(np.mean(wrong.draws**2) - square) > 10 * error


def test_divergences_are_those_of_normal_laws() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(20_000, 1))
    for shift in (0.0, 0.1, 0.3):
        by_density = divergence_from(shift * z[:, 0])
        assert abs(by_density.value - shift**2 / 2) < 4 * by_density.error + 1e-12
        by_bins = binned_divergence(z + shift, rng.normal(size=z.shape), (2e4, 2e4))
        assert by_bins.value < shift**2 / 2 + 4 * by_bins.error + 4 * shift * np.sqrt(2 / 2e4)
    assert binned_divergence(z + 0.3, rng.normal(size=z.shape), (2e4, 2e4)).value > 0.03


# -- the hard ones --


@pytest.mark.long
def test_twenty_dimensions_reach_the_floor() -> None:
    target, rng = ShortLogistic.of(), np.random.default_rng(0)
    exact = target.draws(10_000, rng, steps=150)
    start = normal_start(exact, 0.0, rng)
    assert np.max(np.abs(exact.mean(axis=0) - target.mode()[0]) / exact.std(axis=0)) > 0.1, "skewed"
    found = Surrogate().refine(start, None, target.pass_back())
    assert found.record["kept"], found.notes
    assert at_the_floor(found.array, exact)
    assert not at_the_floor(target.mode()[0] + start - start.mean(axis=0), exact), (
        "a Laplace approximation is not"
    )


@pytest.mark.long
def test_a_needle_whose_tail_was_lost_is_not_certified() -> None:
    """The surrogate may be deceived; the certificate, which is told of the shards, is not."""
    from consilience.diagnose import certify

    target, rng = Needle.of(), np.random.default_rng(0)
    edges = np.linspace(0, 400, 6).astype(int)
    shards = [target.draws(1000, rng, slice(a, b), 5.0) for a, b in itertools.pairwise(edges)]
    subposteriors = Subposteriors.of(shards, kind="inflated")
    exact = target.draws(REFERENCE, rng)
    cut = exact[exact[:, 0] > np.quantile(exact[:, 0], 0.2)][:NUMBER]
    found = Surrogate().refine(cut, None, target.pass_back(), subposteriors)
    certificate = certify(found.array, target.pass_back(), raw=cut, subposteriors=subposteriors)
    assert certificate.verdict != "indistinguishable from full MCMC"
