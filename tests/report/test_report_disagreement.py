"""Do shards that differ by chance stay unnamed, and are shards that really differ named?"""

from __future__ import annotations

import numpy as np
import pytest
from report_samples import gaussian_shards, sample_report

from consilience.report.disagreement import LEVEL, Disagreement, shard_disagreement
from consilience.report.page import findings
from consilience.report.views import DrawsView

WEIGHTS = np.array([0.05, 0.05, 0.1, 0.1, 0.2, 0.5])


def simulated(kind: str, replicates: int, seed: int = 0, wrong_kind: bool = False) -> list[Disagreement]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(replicates):
        draws, mean, covariance = gaussian_shards(rng, WEIGHTS, 3, kind, num_draws=600)
        combined = rng.multivariate_normal(mean, covariance, size=2400)
        said = {"inflated": "subposterior", "subposterior": "inflated"}[kind] if wrong_kind else kind
        view = DrawsView(("a", "b", "c"), combined, None, tuple(draws), tuple("012345"), WEIGHTS, said)
        one = shard_disagreement(view)
        assert one is not None
        found.append(one)
    return found


def spread_error(found: list[Disagreement]) -> float:
    """How far the distances' mean square lies from 1, in its Monte Carlo standard errors."""
    squares = np.array([np.mean(one.distances**2) for one in found])
    return float((squares.mean() - 1.0) / (squares.std(ddof=1) / np.sqrt(len(squares))))


@pytest.mark.parametrize("kind", ["inflated", "subposterior"])
def test_distances_have_unit_spread_when_shards_differ_by_chance(kind: str) -> None:
    # Estimating S_b and the combined mean adds about 0.01 to the mean square of 1, a third of its standard
    # error here, so that 4 of them leave no room for a false alarm.
    assert abs(spread_error(simulated(kind, 200))) < 4
    assert abs(spread_error(simulated(kind, 200, wrong_kind=True))) > 8


@pytest.mark.parametrize("kind", ["inflated", "subposterior"])
def test_at_most_one_report_in_twenty_names_a_shard_by_chance(kind: str) -> None:
    replicates = 400
    found = simulated(kind, replicates, seed=1)
    share = np.mean([bool(one.outstanding()) for one in found])
    assert share < LEVEL + 3 * np.sqrt(LEVEL * (1 - LEVEL) / replicates)
    wrong = simulated(kind, 50, seed=1, wrong_kind=True)
    if kind == "inflated":  # taken for sub-posteriors, they look far too sure of themselves
        assert np.mean([bool(one.outstanding()) for one in wrong]) > 0.5


def test_a_shard_that_differs_is_named_with_its_parameter() -> None:
    known = findings(sample_report(moved=30.0))
    assert known.found is not None
    assert known.outstanding == [7]
    sentence = known.found.sentence(7)
    assert sentence.startswith("shard 7 (site 7) stands out in <script>alert(1)</script>: ")
    assert sentence.endswith("sd above")


def test_a_shard_that_differs_only_jointly_is_named() -> None:
    rng = np.random.default_rng(5)
    weights = np.full(8, 1 / 8)
    root = np.linalg.cholesky(np.array([[1.0, 0.995], [0.995, 1.0]]))
    means = rng.normal(size=(8, 2)) * np.sqrt(7)
    shards = [(m + rng.normal(size=(500, 2))) @ root.T for m in means]
    shards[0] = shards[0] - shards[0].mean(axis=0) + np.array([1.5, -1.5])
    combined = (rng.normal(size=(2000, 2))) @ root.T
    view = DrawsView(("a", "b"), combined, None, tuple(shards), tuple("01234567"), weights, "inflated")
    found = shard_disagreement(view)
    assert found is not None
    assert found.largest()[0] < found.limit
    assert found.outstanding() == [0]
    assert "in all together" in found.sentence(0)


def test_constant_columns_and_a_single_shard_are_left_out() -> None:
    rng = np.random.default_rng(2)
    draws = [np.column_stack([rng.normal(size=50), np.full(50, 3.0)]) for _ in range(3)]
    view = DrawsView(("a", "k"), draws[0], None, tuple(draws), tuple("012"), np.full(3, 1 / 3), "inflated")
    found = shard_disagreement(view)
    assert found is not None
    assert found.names == ("a",)
    single = DrawsView(("a", "k"), draws[0], None, tuple(draws[:1]), ("0",), np.ones(1), "inflated")
    assert shard_disagreement(single) is None


def test_few_draws_give_no_joint_distance_but_no_nan_either() -> None:
    rng = np.random.default_rng(3)
    draws = tuple(rng.normal(size=(12, 8)) for _ in range(4))
    names = tuple("abcdefgh")
    found = shard_disagreement(
        DrawsView(names, rng.normal(size=(100, 8)), None, draws, tuple("0123"), np.full(4, 0.25), "inflated")
    )
    assert found is not None
    assert np.isnan(found.overall).all()
    assert np.isfinite(found.distances).all()
    assert found.outstanding() == []
