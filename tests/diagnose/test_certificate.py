"""The certificate's estimates against the truth, and its verdicts: honest before they are flattering."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpyro.distributions as dist
import pytest

from consilience.diagnose import marginals
from consilience.diagnose.certificate import Certificate, certify
from consilience.diagnose.escape import Kernels
from consilience.diagnose.marginals import hermite_iad, noise_floor
from consilience.draws import Subposteriors
from consilience.errors import DrawsError, InputError
from consilience.model.model import Model
from consilience.refine.calibrate import Calibrate
from consilience.refine.pass_back import Evaluation

sys.path.insert(0, str(Path(__file__).parents[1] / "refine"))
from refinement_targets import Bimodal, Gaussian, exponential, from_prior, pass_back_of

NUMBER = 4000
BEST, MIDDLE, WORST = "indistinguishable from full MCMC", "usable", "do not use"


def is_consistent(found: Certificate) -> bool:
    return str(found).startswith(found.verdict) and found.verdict in (BEST, MIDDLE, WORST)


@pytest.mark.parametrize("dimension", [1, 4, 20])
@pytest.mark.parametrize(("shift", "verdict"), [(0.0, BEST), (0.3, MIDDLE), (1.0, WORST)])
def test_gaussian_errors_are_measured(dimension: int, shift: float, verdict: str) -> None:
    target = Gaussian.of(dimension)
    sd = np.sqrt(np.diagonal(target.covariance))
    draws = target.draws(NUMBER, np.random.default_rng(dimension)) + shift * sd * (np.arange(dimension) == 0)
    found = certify(draws, target.pass_back())
    true = (draws.mean(axis=0) - target.mean) / sd
    np.testing.assert_allclose(found.mean_error, true, atol=0.03)
    assert abs(found.mahalanobis - target.mahalanobis(draws)) < 0.05
    assert found.verdict == verdict
    assert is_consistent(found)
    assert found.r_squared > 0.99
    assert found.points >= 64
    # A shift of s sd moves a Gaussian marginal by erf(s / sqrt(8)), 0.4 s for small s.
    assert abs(found.iad_per_parameter[0] - 0.4 * abs(true[0])) < 0.05


@pytest.mark.parametrize("scale", [0.5, 0.9, 1.1, 3.0])
def test_wrong_widths_are_seen(scale: float) -> None:
    target = Gaussian.of(3)
    draws = target.mean + scale * (target.draws(NUMBER, np.random.default_rng(0)) - target.mean)
    found = certify(draws, target.pass_back())
    np.testing.assert_allclose(found.sd_error, scale - 1, atol=0.06 * scale)
    assert found.verdict == (MIDDLE if scale in (0.9, 1.1) else WORST if scale > 1.5 else found.verdict)
    assert found.verdict != BEST


def test_the_oracle_rejects_the_wrong_stein_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact draws certify; with E[h v] = +1, or with scores of the wrong sign, they do not."""
    target = Gaussian.of(3)
    exact, pass_back = target.draws(NUMBER, np.random.default_rng(0)), target.pass_back()
    assert certify(exact, pass_back).verdict == BEST
    true = pass_back.scores(exact[:64])
    negated = Evaluation(true.points, true.log_density, -true.scores)
    assert certify(exact, pass_back, evaluation=negated).verdict == WORST
    right = marginals.hermite
    monkeypatch.setattr(marginals, "hermite", lambda k, x: -right(k, x) if k == 0 else right(k, x))
    assert certify(exact, pass_back).verdict != BEST


def test_hermite_distances_agree_with_numbers() -> None:
    x = np.linspace(-9, 9, 20001)
    for shift, width in [(0.05, 1.0), (0.0, 1.05)]:
        exact = np.exp(-0.5 * ((x - shift) / width) ** 2) / width - np.exp(-0.5 * x**2)
        distance = 0.5 * np.sum(np.abs(exact)) * (x[1] - x[0]) / np.sqrt(2 * np.pi)
        found = hermite_iad(np.array([[shift], [width**2 - 1], [0.0], [0.0]]))[0]
        assert abs(found - distance) < 0.1 * distance


def test_the_floor_is_what_two_exact_samples_differ_by() -> None:
    rng = np.random.default_rng(0)
    distances = [
        np.linalg.norm(rng.normal(size=(1000, 4)).mean(axis=0) - rng.normal(size=(1000, 4)).mean(axis=0))
        for _ in range(200)
    ]
    assert abs(np.sqrt(np.mean(np.square(distances))) / noise_floor(1000, 4)["mahalanobis"] - 1) < 0.1


def test_a_skewed_posterior_and_gaussian_draws_with_its_moments() -> None:
    """The first two moments agree, the shape does not: nothing but a3 can see it."""
    rng = np.random.default_rng(0)
    pass_back = pass_back_of(
        Model({"rate": dist.Gamma(1.0, 1.0)}, exponential), {"y": np.ones(2, np.float32)}, 2
    )
    exact = np.log(rng.gamma(3.0, 1 / 3.0, size=(100_000, 1)))
    imitation = exact.mean() + exact.std() * rng.normal(size=(NUMBER, 1))
    assert certify(exact[:NUMBER], pass_back).verdict != WORST
    found = certify(imitation, pass_back)
    assert found.verdict != BEST
    assert found.iad > 2 * found.noise_floor["iad"]


def test_far_from_linear_scores_are_never_indistinguishable() -> None:
    found = certify(Bimodal.draws(NUMBER, np.random.default_rng(0)), Bimodal.pass_back())
    assert found.r_squared < 0.5
    assert found.verdict == MIDDLE
    assert "far from linear" in found.text


def test_an_unresolved_shift_is_never_indistinguishable() -> None:
    """Exact heavy-tailed draws: nothing is wrong, but so few scores cannot say so."""
    pass_back = from_prior({"t": dist.StudentT(6.0, 0.0, 1.0).expand([2]).to_event(1)})
    found = certify(np.random.default_rng(0).standard_t(6, size=(20_000, 2)), pass_back, max_points=64)
    assert found.verdict == MIDDLE
    assert "cannot be told from noise" in found.text


def test_a_lost_mode_is_found_among_the_shards_draws() -> None:
    rng = np.random.default_rng(0)
    draws, pass_back = 3.0 + rng.normal(size=(NUMBER, 2)), Bimodal.pass_back()
    shards = Subposteriors.of([Bimodal.draws(1000, rng) for _ in range(4)], kind="inflated")
    blind, seeing = certify(draws, pass_back), certify(draws, pass_back, subposteriors=shards)
    assert blind.verdict == BEST, "scores alone would have seen it: no test of the search"
    assert "none was looked for" in blind.text
    # Looking again at the combined draws, which lost the mode, is no search, and must not be told as one.
    same = certify(draws, pass_back, raw=draws)
    assert "none was looked for" in same.text
    assert "none was looked for" not in seeing.text
    assert seeing.escape is not None
    # 1 - 0.7^2 of the mass is elsewhere.
    assert abs(seeing.escape.mass - 0.51) < 4 * seeing.escape.error
    assert seeing.verdict == WORST
    whole = certify(Bimodal.draws(NUMBER, rng), pass_back, subposteriors=shards)
    assert whole.escape is not None
    assert not whole.escape.suspicious


def test_kernel_estimate_is_a_density() -> None:
    draws = np.random.default_rng(0).normal(size=(500, 2)) * [1.0, 100.0]
    kernels = Kernels.of(draws)
    points = kernels.sample(20_000, np.random.default_rng(1))
    # E_f[g / f] = 1 for every density g under f.
    g = -0.5 * (points[:, 0] ** 2 + (points[:, 1] / 100) ** 2) - np.log(2 * np.pi * 100)
    assert abs(np.mean(np.exp(g - kernels.log_density(points))) - 1) < 0.1


def test_scores_that_are_not_finite() -> None:
    import jax.numpy as jnp

    def root(params: dict[str, Any], rows: dict[str, Any]) -> Any:
        return jnp.sqrt(params["a"]) + 0.0 * rows["y"]

    y = np.zeros(30, np.float32)
    pass_back = pass_back_of(Model({"a": dist.Normal(1, 1)}, root), {"y": y}, reference_point=[1.0])
    rng = np.random.default_rng(0)
    for centre in (-5.0, 0.0, 1.5):
        found = certify(centre + rng.normal(size=(NUMBER, 1)), pass_back)
        assert found.verdict != BEST
        assert "NaN" in found.text or "not finite" in found.text
        json.dumps(found.to_dict(), allow_nan=False)


def test_scores_at_hand_are_used_first() -> None:
    target = Gaussian.of(3)
    pass_back = target.pass_back()
    start = target.draws(NUMBER, np.random.default_rng(0)) + 0.1
    refined = Calibrate().refine(start, None, pass_back)
    spent = pass_back.ledger.full_data_gradients
    found = certify(refined.array, pass_back, evaluation=refined.evaluation)
    assert found.verdict == BEST
    assert pass_back.ledger.full_data_gradients == spent
    assert found.points == len(refined.evaluation.points)


def test_record_is_json() -> None:
    target = Gaussian.of(2)
    found = certify(target.draws(NUMBER, np.random.default_rng(0)), target.pass_back(), names=["a", "b"])
    record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert record["verdict"] == found.verdict
    assert record["names"] == ["a", "b"]
    assert record["cost"]["full_data_gradients"] > 0


def test_bad_arguments_are_refused() -> None:
    target = Gaussian.of(3)
    draws = target.draws(100, np.random.default_rng(0))
    with pytest.raises(InputError, match="max_points"):
        certify(draws, target.pass_back(), max_points=3)
    with pytest.raises(DrawsError, match="shape"):
        certify(draws[:, :2], target.pass_back())
