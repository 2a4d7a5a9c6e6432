"""Faults of existing systems, each with data on which they show (the list is in the design, section 8)."""

from __future__ import annotations

import numpy as np
import numpyro.distributions as dist
import pytest

import consilience as cs
from consilience.data import open_source, split
from consilience.errors import DrawsError

# What a rule is given that has to be told the shards' densities.
TARGETS = {"fusion": {"targets": "gaussian"}}
# Rules that move draws without inverting a covariance; the others must name the column.
CARRY_THROUGH = ("recentering", "pool", "pie")


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("fault", ["constant", "duplicated"])
@pytest.mark.parametrize("record", cs.methods(), ids=lambda record: record.name)
def test_constant_or_duplicated_parameters_are_named_and_never_nan(record, fault):
    draws = normal(0, 3, 500, 2)
    draws[:, :, 1] = 1.0 if fault == "constant" else draws[:, :, 0]
    kind = "inflated" if record.kind == "any" else record.kind
    if fault == "duplicated" and record.name in CARRY_THROUGH:
        posterior = cs.combine(draws, method=record.name, kind=kind)
        assert np.allclose(posterior.array[:, 0], posterior.array[:, 1])
        return

    def combined() -> cs.Posterior:
        # With log densities, for rules that rest on them.
        log_densities = list(-0.5 * (draws**2).sum(axis=2))
        shards = cs.Subposteriors.of(draws, kind=kind, names=["slope", "level"], log_densities=log_densities)
        return cs.combine(shards, method=record.name, **TARGETS.get(record.name, {}))

    with pytest.raises(DrawsError, match="level"):
        combined()


def test_too_few_draws_for_the_dimension_are_refused_or_named():
    draws = normal(0, 4, 40, 50)
    for record in cs.methods():
        kind = "inflated" if record.kind == "any" else record.kind
        with pytest.raises(DrawsError, match="40 draws"):
            cs.combine(draws, method=record.name, kind=kind)


@pytest.mark.parametrize("method", ["consensus", "gaussian-product"])
def test_identically_seeded_shards_are_not_too_wide(method):
    """Eight copies of the same N(0, 1) draws: the product has sd 1 / sqrt(8); unpermuted averages have sd 1."""
    draws = np.repeat(normal(0, 1, 4000, 1), 8, axis=0)
    posterior = cs.combine(draws, method=method, kind="subposterior")
    right = draws[0].std(ddof=1) / np.sqrt(8)
    assert posterior.array.std(ddof=1) == pytest.approx(right, rel=0.05)  # 4.5 standard errors of an sd
    assert draws.mean(axis=0).std(ddof=1) > 2 * right  # what the fault gives


@pytest.mark.parametrize("method", ["swiss", "recentering", "gaussian-product"])
def test_positive_parameters_stay_positive(method):
    """An sd of which the shards know little: combined as it is, some of its draws would be negative."""
    space = cs.Model({"sigma": dist.HalfNormal(5.0)}, lambda params, rows: 0.0 * rows["y"]).space
    coordinates = [centre + normal(b, 2000, 1) for b, centre in enumerate((-1.0, 0.0, 1.0))]
    posterior = cs.combine(
        cs.Subposteriors.of(coordinates, kind="inflated", space=space, names=["sigma"]), method=method
    )
    assert posterior.array.min() > 0
    positive = [np.asarray(space.to_user(shard)) for shard in coordinates]
    naive = cs.combine(positive, method=method, kind="inflated")
    assert (naive.array < 0).mean() > 0.02  # what the fault gives


def test_integer_draws_are_converted():
    draws = np.random.default_rng(0).integers(0, 9, size=(3, 2000, 1))
    posterior = cs.combine(draws, method="consensus", kind="subposterior")
    assert posterior.array.dtype == np.float64
    assert np.any(posterior.array != np.round(posterior.array))
    assert posterior.array.std() == pytest.approx(draws.std() / np.sqrt(3), rel=0.1)


def test_chains_by_draws_are_not_taken_for_draws_by_dimensions():
    with pytest.raises(DrawsError, match="4 draws"):
        cs.combine([normal(b, 4, 1000) for b in range(3)], method="swiss", kind="inflated")


def test_one_dimensional_barycenter_is_exact():
    """The barycenter of N(0, 1) and N(0, 3^2) is N(0, 2^2); a plain average has sd sqrt(10) / 2."""
    draws = np.stack([normal(0, 20_000, 1), 3 * normal(1, 20_000, 1)])
    posterior = cs.combine(draws, method="gaussian-barycenter", kind="inflated")
    right = draws.std(axis=1, ddof=1).mean()
    assert posterior.array.std(ddof=1) == pytest.approx(right, rel=0.02)


@pytest.mark.parametrize("method", ["swiss", "gaussian-product"])
def test_weights_are_precisions_and_not_variances(method):
    """Shards N(0, 1) and N(3, 2^2), equal in rows: the mean is 0.6 by precision, and 2.4 by variance."""
    draws = np.stack([normal(0, 8000, 1), 3 + 2 * normal(1, 8000, 1)])
    posterior = cs.combine(draws, method=method, kind="inflated")
    assert posterior.mean()[0] == pytest.approx(0.6, abs=0.1)


def test_sorted_rows_are_shuffled_by_default():
    source = open_source({"x": np.arange(10_000.0)})
    shards = split(source, cs.RandomPartition(10), columns=["x"], seed=0)
    means = [shards.reference(b).read()["x"].mean() for b in range(10)]
    assert np.ptp(means) < 6 * 2887 / np.sqrt(1000)  # contiguous blocks would differ by 9,000


def test_shards_are_kept():
    x = normal(0, 400, 1)
    model = cs.Model({"mu": dist.Normal(0, 10)}, lambda params, rows: -0.5 * (rows["x"] - params["mu"]) ** 2)
    result = cs.fit(model, {"x": x[:, 0]}, shards=3, refine=None, draws=600, progress=False)
    assert result.subposteriors.num_shards == 3
    assert len(result.shards) == 3
    assert {"rhat", "ess_bulk", "ess_tail", "divergences"} <= set(result.shards.columns)
