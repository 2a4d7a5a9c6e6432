"""The choice of a refinement: nothing, an affine map, or a surrogate, from what was measured."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from refinement_targets import Gaussian
from shaped_targets import Banana, FewEvents, Needle

import consilience as cs
from consilience.refine import auto
from consilience.refine.auto import Auto
from consilience.refine.calibrate import Calibrate

NUMBER = 3000
REFERENCE = 20_000


def normal_start(exact: np.ndarray, shift: float, rng: np.random.Generator) -> np.ndarray:
    """A normal cloud with the right covariance, `shift` standard deviations off: the best that affine maps give."""
    root = np.linalg.cholesky(np.cov(exact, rowvar=False))
    off = shift / np.sqrt(exact.shape[1])
    return exact.mean(axis=0) + (rng.normal(size=(NUMBER, exact.shape[1])) + off) @ root.T


def at_the_floor(draws: np.ndarray, exact: np.ndarray) -> bool:
    found = cs.compare(draws, exact)
    return found.within_noise["mahalanobis"] and found.within_noise["iad"]


@pytest.mark.parametrize("target", [Banana, FewEvents])
def test_bent_posteriors_are_mended_by_a_surrogate(target: Any) -> None:
    rng = np.random.default_rng(0)
    exact = target.of().draws(REFERENCE, rng)
    start = normal_start(exact, 1.0, rng)
    found = Auto().refine(start, None, target.of().pass_back())
    assert "surrogate" in found.record["chosen"]
    assert at_the_floor(found.array, exact)
    assert "so surrogate:" in found.notes[0]
    assert json.loads(json.dumps(found.record))["surrogate"]["kept"]
    # The cost is that of both, and the affine map alone is seen not to be enough.
    alone = Calibrate().refine(start, None, target.of().pass_back())
    assert found.record["cost"]["full_data_gradients"] > alone.record["cost"]["full_data_gradients"] + 256
    assert not at_the_floor(alone.array, exact)


@pytest.mark.parametrize("off", [0.0, 0.5])
def test_gaussians_cost_no_surrogate(off: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "Surrogate", None)  # calling it would fail
    target = Gaussian.of(3)
    start = target.draws(NUMBER, np.random.default_rng(0)) + off * np.sqrt(np.diagonal(target.covariance))
    found = Auto().refine(start, None, target.pass_back())
    assert (
        found.record["chosen"] == "calibrate" if off else found.record["chosen"] in ("calibrate", "nothing")
    )
    assert "surrogate" not in found.notes[0]


@pytest.mark.long
def test_what_a_surrogate_cannot_mend_stays_as_it_was_calibrated() -> None:
    target, rng = Needle.of(), np.random.default_rng(1)
    exact = target.draws(REFERENCE, rng)
    start = normal_start(exact, 0.0, rng)
    found = Auto().refine(start, None, target.pass_back())
    calibrated = Calibrate().refine(start, None, target.pass_back())
    if "surrogate" in found.record["chosen"]:
        before, after = (cs.compare(x, exact).iad for x in (calibrated.array, found.array))
        assert after < before + 0.02
    else:
        np.testing.assert_array_equal(found.array, calibrated.array)
        assert "nothing changed" in found.notes[0]


def test_many_dimensions_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "MOST_DIMENSIONS", 1)
    rng = np.random.default_rng(2)
    start = normal_start(Banana.of().draws(REFERENCE, rng), 1.0, rng)
    found = Auto().refine(start, None, Banana.of().pass_back())
    assert "surrogate" not in found.record["chosen"]
    assert found.notes[0].endswith("for an affine map alone")
