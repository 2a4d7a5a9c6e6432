"""The pass-back against sums done by hand in float64."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from refinement_targets import Gaussian, Rows, pass_back_of, shard_tasks

from consilience.engines import get_engine
from consilience.errors import InputError, ShardError
from consilience.refine import PassBack
from consilience.refine.shard_sums import MOST_POINTS, PassBackTask


@pytest.fixture(scope="module")
def gaussian() -> Gaussian:
    return Gaussian.of(4, rows=3001)


def by_hand(target: Gaussian, points: np.ndarray, reference: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    precision = np.linalg.inv(target.covariance)

    def value(u: np.ndarray) -> float:
        return float(-0.5 * (u - target.mean) @ precision @ (u - target.mean))

    return np.array([value(u) - value(reference) for u in points]), -(points - target.mean) @ precision


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 2e-3), ("float64", 1e-8)])
def test_sums_agree_with_closed_form(gaussian: Gaussian, precision: str, tolerance: float) -> None:
    rng = np.random.default_rng(0)
    pass_back = gaussian.pass_back(precision=precision, reference_point=gaussian.mean)
    found = pass_back.scores(gaussian.draws(MOST_POINTS + 5, rng))
    values, scores = by_hand(gaussian, found.points, pass_back.reference)
    scale = np.sqrt(np.diagonal(np.linalg.inv(gaussian.covariance)))
    np.testing.assert_allclose(found.log_density, values, atol=tolerance)
    np.testing.assert_allclose(found.scores / scale, scores / scale, atol=tolerance)
    alone = pass_back.densities(found.points)
    np.testing.assert_allclose(alone.log_density, found.log_density, atol=tolerance)
    hessian = pass_back.negative_hessian(gaussian.mean)
    np.testing.assert_allclose(
        hessian / np.outer(scale, scale),
        np.linalg.inv(gaussian.covariance) / np.outer(scale, scale),
        atol=1e-4,
    )


def test_differences_survive_ten_thousandfold_log_densities() -> None:
    """Rows whose log densities are near 10^4: their plain float32 sum has no digit left for a difference of 1."""
    rows = 4096
    y = (300.0 + np.random.default_rng(1).normal(size=rows)).astype(np.float32)
    import numpyro.distributions as dist
    from refinement_targets import nothing

    from consilience.model.model import Model

    def far(params: dict[str, Any], rows: dict[str, Any]) -> Any:
        return nothing(params, rows) - 1e4 - 0.5 * (rows["y"] - 300.0 - params["mu"]) ** 2

    model = Model({"mu": dist.Normal(0, 10)}, far)
    pass_back = pass_back_of(model, {"y": y}, reference_point=[0.0])
    points = np.array([[0.01], [0.03]])
    found = pass_back.densities(points)
    off = y.astype(np.float64) - 300.0
    expected = [np.sum(-0.5 * (off - u) ** 2 + 0.5 * off**2) for u in found.points[:, 0]]
    plain = [
        np.float32(np.sum((-1e4 - 0.5 * (off - u) ** 2).astype(np.float32), dtype=np.float32))
        for u in (0.01, 0.0)
    ]
    np.testing.assert_allclose(found.log_density, expected, atol=0.3)
    assert abs(float(plain[0] - plain[1]) - expected[0]) > 0.3, "the naive sum would have passed: no test"


def test_shards_of_any_cut_give_the_same(gaussian: Gaussian) -> None:
    points = gaussian.draws(8, np.random.default_rng(0))
    cuts = [pass_back_of(gaussian.model, gaussian.columns, k, precision="float64") for k in (1, 2, 7)]
    first, *others = [cut.scores(points) for cut in cuts]
    for other in others:
        np.testing.assert_allclose(other.log_density, first.log_density, rtol=1e-9)
        np.testing.assert_allclose(other.scores, first.scores, rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_engines_give_the_same_bits(gaussian: Gaussian, engine: str) -> None:
    points = gaussian.draws(8, np.random.default_rng(0))
    here = gaussian.pass_back().scores(points)
    there = gaussian.pass_back(run=get_engine(engine).map).scores(points)
    np.testing.assert_array_equal(here.log_density, there.log_density)
    np.testing.assert_array_equal(here.scores, there.scores)


def test_ledger_counts_what_was_asked(gaussian: Gaussian) -> None:
    pass_back = gaussian.pass_back()
    points = gaussian.draws(10, np.random.default_rng(0))
    pass_back.scores(points)
    first = pass_back.ledger
    assert (first.rounds, first.full_data_gradients, first.row_evaluations) == (1, 10.5, 10.5 * 3001)
    assert first.bytes_per_shard == 8 * (11 * 4 + 10 * 5)
    pass_back.densities(points)
    pass_back.negative_hessian(gaussian.mean)
    later = pass_back.ledger.since(first)
    assert (later.rounds, later.full_data_gradients) == (2, 5.5 + 4.5)
    assert later.seconds > 0


class Broken(Rows):
    def read(self) -> dict[str, np.ndarray]:
        raise OSError("disk on fire")


@pytest.mark.parametrize("run", [None, get_engine("serial").map])
def test_a_failing_shard_is_named(gaussian: Gaussian, run: Any) -> None:
    tasks = shard_tasks(gaussian.columns, 3)
    tasks[1] = replace(tasks[1], reference=Broken({}))
    pass_back = PassBack(gaussian.model, "broken", tasks, run)
    with pytest.raises(ShardError, match=r"shard 1 \(part 1\).*disk on fire"):
        pass_back.scores(np.zeros((2, 4)))


def test_an_engine_that_loses_a_shard_is_noticed(gaussian: Gaussian) -> None:
    def loses(task: Any, items: Any) -> Any:
        yield 0, task(next(iter(items)))

    with pytest.raises(ShardError, match="2 of 3 shards gave no answer"):
        gaussian.pass_back(run=loses).scores(np.zeros((2, 4)))


def test_scores_that_are_not_finite_are_counted() -> None:
    import jax.numpy as jnp
    import numpyro.distributions as dist

    from consilience.model.model import Model

    def root(params: dict[str, Any], rows: dict[str, Any]) -> Any:
        return jnp.sqrt(params["a"]) + 0.0 * rows["y"]

    pass_back = pass_back_of(
        Model({"a": dist.Normal(1, 1)}, root), {"y": np.zeros(30, np.float32)}, reference_point=[1.0]
    )
    found = pass_back.scores(np.array([[1.0], [-1.0], [2.0]]))
    assert found.finite.tolist() == [True, False, True]
    assert len(found.kept().points) == 2
    assert pass_back.ledger.non_finite == 1


def test_bad_points_are_refused(gaussian: Gaussian) -> None:
    pass_back = gaussian.pass_back()
    with pytest.raises(InputError, match="shape"):
        pass_back.scores(np.zeros((3, 5)))
    with pytest.raises(InputError, match="finite"):
        pass_back.densities(np.full((1, 4), np.nan))
    with pytest.raises(InputError, match="float16"):
        gaussian.pass_back(precision="float16")


def test_the_task_travels(gaussian: Gaussian) -> None:
    import cloudpickle

    task = PassBackTask(gaussian.model, "travels", np.zeros((2, 4)), np.zeros(4), "scores")
    copy = pickle.loads(cloudpickle.dumps(task))
    item = shard_tasks(gaussian.columns, 2)[0]
    np.testing.assert_array_equal(copy(item).gradients, task(item).gradients)
