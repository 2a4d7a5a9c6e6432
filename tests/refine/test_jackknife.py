"""The bias of small shards is found from parts of them and taken away; what is unbiased is left alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpyro.distributions as dist
import pytest
from refinement_targets import (
    Gaussian,
    importance_truth,
    linear,
    logistic_model,
    merged,
    pass_back_of,
    shard_tasks,
)

from consilience.combine.swiss import Swiss
from consilience.draws import Subposteriors
from consilience.errors import InputError, ShardError
from consilience.model.model import Model
from consilience.refine import PassBack, jackknife
from consilience.refine.jackknife import Jackknife, Totals, extrapolation
from consilience.refine.newton import find_mode
from consilience.refine.part_modes import PartModes, PartModesTask, halved
from consilience.sample.hmc import HMC
from consilience.sample.shard import ShardSampler

ROWS, SHARDS, DIMENSION = 12_000, 100, 3


def clicks(seed: int, intercept: float = -1.0, slope: float = 1.0) -> dict[str, np.ndarray]:
    """Logistic rows: 120 in each of 100 shards."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(ROWS, DIMENSION)).astype(np.float32)
    x[:, 0] = 1.0
    eta = x @ np.array([intercept, slope, -0.8 * slope])
    return {"x": x, "y": (rng.uniform(size=ROWS) < 1 / (1 + np.exp(-eta))).astype(np.float32)}


class Case:
    """Draws as SwISS makes them of Gaussian shards at their modes, beside the full data's mode and curvature."""

    def __init__(self, columns: dict[str, np.ndarray], seed: int) -> None:
        self.pass_back = pass_back_of(
            logistic_model(DIMENSION), columns, SHARDS, even=True, precision="float64"
        )
        self.peak = find_mode(self.pass_back, np.zeros(DIMENSION), 30)
        model = self.pass_back.model
        task = PartModesTask(model, self.pass_back.fingerprint, self.peak.point, 99, "float64")
        totals = Totals.over([Totals.of(shard) for shard in self.pass_back.each(task, PartModes, 1)])
        z = np.random.default_rng(seed).normal(size=(2000, DIMENSION))
        # Whitened exactly, so that the draws' own noise is in none of the ratios.
        z = (z - z.mean(axis=0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(z, rowvar=False))).T
        self.draws = totals.means()[0] + z @ np.linalg.cholesky(np.linalg.inv(totals.precisions[0])).T

    def errors(self, draws: np.ndarray) -> tuple[float, float]:
        """Of the mean in standard deviations, and of the covariance."""
        root = np.linalg.cholesky(self.peak.hessian)
        off = root.T @ (draws.mean(axis=0) - self.peak.point)
        spread = root.T @ np.cov(draws, rowvar=False) @ root
        return float(np.linalg.norm(off)), float(np.linalg.norm(spread - np.eye(DIMENSION)))


def ratios(cases: list[Case], **options: Any) -> np.ndarray:
    """Error after over error before, of mean and covariance, per case."""
    found = []
    for seed, case in enumerate(cases):
        refined = Jackknife(**options).refine(case.draws, None, case.pass_back, seed=seed)
        assert refined.record["kept"]
        found.append(np.divide(case.errors(refined.array), case.errors(case.draws)))
    return np.array(found)


@pytest.fixture(scope="module")
def biased() -> list[Case]:
    return [Case(clicks(seed), seed) for seed in range(4)]


def test_most_of_the_bias_is_taken_away(biased: list[Case], monkeypatch: pytest.MonkeyPatch) -> None:
    before = [case.errors(case.draws)[0] for case in biased]
    assert min(before) > 1.5
    found = ratios(biased)
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    assert np.all(found.mean(axis=0) + 3 * error < 0.5), (found.mean(axis=0), error)
    # As if halves had three times the bias of wholes instead of twice: half of the correction is missing.
    monkeypatch.setattr(
        jackknife,
        "extrapolation",
        lambda shards, order: np.array([1.5, -0.5, 0.0]) - [0.5 / shards, -0.5 / shards, 0],
    )
    wrong = ratios(biased)
    error = wrong.std(axis=0, ddof=1) / np.sqrt(len(wrong))
    assert np.all(wrong.mean(axis=0) + 3 * error > 0.5)
    assert np.all(wrong.mean(axis=0) > found.mean(axis=0) + 0.15)


def test_second_order(biased: list[Case]) -> None:
    found = ratios(biased[:2], order=2)
    assert found[:, 0].mean() < 0.5
    np.testing.assert_allclose(
        extrapolation(8, 2) @ np.array([[1, 1, 1], [1, 2, 4], [1, 4, 16]]).T, [1, 1 / 8, 1 / 64]
    )


@pytest.mark.long
def test_draws_of_swiss() -> None:
    """The same with real draws of every shard, and the truth by importance sampling."""
    rng = np.random.default_rng(0)
    columns, model = clicks(7), logistic_model(DIMENSION)
    back = pass_back_of(model, columns, SHARDS, even=True)
    sampler = ShardSampler(model, back.fingerprint, "inflated", HMC(), draws=400, seed=0)
    shards = Subposteriors.of([sampler(task).draws for task in back.tasks], kind="inflated")
    start = Swiss().combine(shards).array
    exact = pass_back_of(model, columns, 1, precision="float64")
    mean, covariance = importance_truth(exact, 20_000, rng)
    found = Jackknife().refine(start, None, back, shards)

    def distance(draws: np.ndarray) -> float:
        off = draws.mean(axis=0) - mean
        return float(np.sqrt(off @ np.linalg.solve(covariance, off)))

    assert distance(start) > 1.5
    assert distance(found.array) < 0.5 * distance(start)
    assert not found.warnings


@pytest.mark.long
def test_unbiased_estimates_are_left_within_noise() -> None:
    """No intercept and no effects: by symmetry modes are unbiased, so that any correction is noise."""
    cases = [Case(clicks(seed, 0.0, 0.0), seed) for seed in range(6)]
    change = []
    for seed, case in enumerate(cases):
        found = Jackknife().refine(case.draws, None, case.pass_back, seed=seed)
        change.append(case.errors(found.array)[0] ** 2 - case.errors(case.draws)[0] ** 2)
    error = np.std(change, ddof=1) / np.sqrt(len(change))
    assert np.mean(change) < 3 * error + 0.01


def test_a_linear_model_has_no_bias_and_is_not_touched() -> None:
    target = Gaussian.of(4)
    start = target.draws(2000, np.random.default_rng(0)) + 0.3
    found = Jackknife().refine(start, None, target.pass_back(precision="float64"))
    np.testing.assert_array_equal(found.array, start)
    assert "no bias that can be told from noise" in found.notes[0]
    assert not found.warnings


def test_what_cannot_be_corrected_is_left_alone() -> None:
    target, rng = Gaussian.of(2), np.random.default_rng(0)
    start = target.draws(500, rng)
    few = Jackknife().refine(start, None, target.pass_back(), None)
    assert few.record["mean"]["estimate"] < 1e-3
    two = pass_back_of(target.model, target.columns, 2)
    assert "too few" in Jackknife().refine(start, None, two).notes[0]
    wide = Subposteriors.of(rng.normal(size=(3, 200, 2)), kind="subposterior")
    refused = Jackknife().refine(start, None, target.pass_back(), wide)
    np.testing.assert_array_equal(refused.array, start)
    assert "method='swiss'" in refused.warnings[0]
    flat = Model({"beta": dist.ImproperUniform(dist.constraints.real_vector, (), (2,))}, linear)
    unknown = {"x": np.tile(np.float32([1.0, 0.0]), (40, 1)), "y": np.zeros(40, np.float32)}
    lost = Jackknife().refine(start, None, pass_back_of(flat, unknown, 4))
    np.testing.assert_array_equal(lost.array, start)
    assert "no mode that their rows determine" in lost.warnings[0]
    with pytest.raises(InputError, match=r"`order` must be 1 or 2"):
        Jackknife(order=3).refine(start, None, two)


def test_counted_rows_are_split_as_rows() -> None:
    rng = np.random.default_rng(0)
    counts = np.array([1.0, 7.0, 0.0, 12.0])
    first = np.array([halved(counts, rng)[0] for _ in range(2000)])
    assert np.all(first.sum(axis=1) == 10)
    # Hypergeometric: mean n_i / 2, variance at most n_i / 4 * (1 + 1 / 19).
    assert np.all(np.abs(first.mean(axis=0) - counts / 2) < 4 * np.sqrt(counts / 4 * 20 / 19 / 2000) + 1e-12)
    weights = np.array([0.5, 2.5, 0.0, 1.0, 1.0])
    one, other = halved(weights, rng)
    assert np.count_nonzero(one) == 2
    np.testing.assert_array_equal(one + other, weights)


def test_merged_rows_give_what_the_rows_give() -> None:
    """A model that merges equal rows has the same modes of whole shards, and pays for fewer rows."""
    rng = np.random.default_rng(0)
    x = (rng.uniform(size=(3000, 2)) < [1.0, 0.4]).astype(np.float32)
    columns = {"x": x, "y": (rng.uniform(size=3000) < 0.3).astype(np.float32)}
    model = logistic_model(2)
    task = PartModesTask(model, "merged", np.zeros(2), 0, "float64")
    tasks = shard_tasks(columns, 3, even=True)
    counted = shard_tasks(columns, 3, even=True)
    for shard in counted:
        object.__setattr__(shard.reference, "columns", merged(shard.reference.columns))
    for one, other in zip(tasks, counted, strict=True):
        plain, fewer = task(one), task(other)
        np.testing.assert_allclose(plain.points[0], fewer.points[0], atol=1e-6)
        np.testing.assert_allclose(plain.precisions[0], fewer.precisions[0], rtol=1e-6)
        assert fewer.evaluated_rows < 10 < plain.evaluated_rows


def test_a_shard_without_an_answer_is_named() -> None:
    target = Gaussian.of(2)
    tasks = shard_tasks(target.columns, 3)

    def run(task: Any, items: Any) -> Any:
        for index, item in enumerate(items):
            yield index, task(item) if index != 1 else RuntimeError("gone")

    back = PassBack(target.model, "silent", tasks, run=run)
    with pytest.raises(ShardError, match=r"1 \(part 1\).*gone"):
        Jackknife().refine(target.draws(500, np.random.default_rng(0)), None, back)
