"""What is sampled: kinds, powers, row weights, padding, merged rows."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from shard_models import Rows, logistic_model, logistic_rows, mean_model, sample

from consilience.errors import DataError, ShardError
from consilience.model.model import Model
from consilience.sample.rows import pad_rows, padded_length
from consilience.sample.target import ShardData, absolute_log_density, log_density, powers, reference_at


def target(model, u, *, kind="inflated", weight=1.0, **columns):
    arrays, row_weight = pad_rows({name: np.asarray(values) for name, values in columns.items()})
    prior, likelihood = powers(kind, weight)
    data = ShardData(arrays, row_weight, np.float32(prior), np.float32(likelihood))
    return float(absolute_log_density(model, jnp.asarray(u, jnp.float32), data))


def difference(model, u, v, **options):
    return target(model, u, **options) - target(model, v, **options)


def test_the_kinds_are_the_formulas():
    y, weight = np.array([0.5, 2.0]), 0.25
    model = Model({"mu": dist.Normal(0.0, 2.0)}, mean_model()._log_likelihood)

    def prior(mu: float) -> float:
        return -(mu**2) / 8

    def likelihood(mu: float) -> float:
        return -0.5 * float(((y - mu) ** 2).sum())

    inflated = difference(model, [1.5], [-0.3], kind="inflated", weight=weight, y=y)
    sub = difference(model, [1.5], [-0.3], kind="subposterior", weight=weight, y=y)
    assert inflated == pytest.approx(
        prior(1.5) - prior(-0.3) + 4 * (likelihood(1.5) - likelihood(-0.3)), rel=1e-5
    )
    assert sub == pytest.approx(
        0.25 * (prior(1.5) - prior(-0.3)) + likelihood(1.5) - likelihood(-0.3), rel=1e-5
    )


def test_the_product_of_the_shards_is_the_posterior():
    y = np.array([0.5, 2.0, -1.0, 3.0])
    model = mean_model(1.5)
    whole = difference(model, [1.0], [0.2], y=y)
    parts = [(y[:1], 0.25), (y[1:], 0.75)]
    subs = sum(difference(model, [1.0], [0.2], kind="subposterior", weight=w, y=part) for part, w in parts)
    inflated = sum(
        w * difference(model, [1.0], [0.2], kind="inflated", weight=w, y=part) for part, w in parts
    )
    assert subs == pytest.approx(whole, rel=1e-5)
    assert inflated == pytest.approx(whole, rel=1e-5)


def test_whole_weights_are_repeated_rows():
    rows = logistic_rows(30, 3).columns
    counts = np.arange(30) % 4
    model = logistic_model(3)
    repeated = {name: np.repeat(values, counts, axis=0) for name, values in rows.items()}
    for u in ([0.1, 0.2, 0.3], [-2.0, 1.0, 4.0]):
        weighted = target(model, u, row_weight=counts, **rows)
        assert weighted == pytest.approx(target(model, u, **repeated), rel=1e-5)


def test_a_row_of_weight_zero_is_absent_even_if_it_is_nonsense():
    rows = Rows(y=[1.0, np.nan, 2.0, np.inf], row_weight=[1.0, 0.0, 2.0, 0.0])
    clean = Rows(y=[1.0, 2.0], row_weight=[1.0, 2.0])
    first, second = sample(mean_model(), rows), sample(mean_model(), clean)
    np.testing.assert_array_equal(first.draws, second.draws)


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_weights_that_are_no_weights_are_refused(bad):
    with pytest.raises(DataError, match=r"shard 0 .*row_weight.*finite and not negative"):
        sample(mean_model(), Rows(y=[1.0, 2.0], row_weight=[1.0, bad]))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"y": np.zeros(0)}, "no rows"),
        ({"y": np.ones(3), "row_weight": np.zeros(3)}, "weight zero"),
        ({"name": np.array(["a", "b"], object)}, "no rows|numbers"),
    ],
)
def test_nothing_to_sample_from_is_said(columns, message):
    with pytest.raises((DataError, ShardError), match=rf"shard 0 \(shard 0\): .*({message})"):
        sample(mean_model(), Rows(**columns))


class Merging(Model):
    """Merges equal rows, as models of counts do."""

    def compress(self, rows):
        values, counts = np.unique(rows["y"], return_counts=True)
        return {"y": values, "row_weight": counts.astype(np.float32)}


def test_merged_rows_are_used_and_give_the_same_target():
    y = np.repeat([0.0, 1.0, 4.0], [50, 30, 20])
    plain, merging = mean_model(), Merging({"mu": dist.Normal(0, 10.0)}, mean_model()._log_likelihood)
    one, two = sample(plain, Rows(y=y)), sample(merging, Rows(y=y))
    assert two.record["rows"] == 100
    assert two.record["row_evaluations"] < one.record["row_evaluations"] / 10
    np.testing.assert_allclose(one.draws, two.draws, atol=1e-3 * one.draws.std())


@pytest.mark.parametrize("num_rows", [1, 63, 64, 65, 1000, 1025, 99_999])
def test_padding_is_modest_and_counts_for_nothing(num_rows):
    length = padded_length(num_rows)
    assert length >= num_rows
    assert num_rows <= 1024 or length <= 1.125 * num_rows + 1
    arrays, weight = pad_rows({"y": np.arange(num_rows, dtype=float)})
    assert arrays["y"].shape == weight.shape == (length,)
    assert weight.sum() == num_rows
    assert not weight[num_rows:].any()


def test_whole_numbers_and_booleans_arrive_as_such():
    arrays, _ = pad_rows(
        {"k": np.arange(5), "b": np.arange(5) > 2, "big": np.array([2**40] * 5), "s": np.array(["x"] * 5)}
    )
    assert {name: values.dtype.kind for name, values in arrays.items()} == {"k": "i", "b": "b", "big": "f"}


def test_nan_in_the_likelihood_is_no_density_and_not_nan():
    model = Model({"a": dist.Normal(0, 1)}, lambda params, rows: jnp.log(params["a"]) * rows["y"])
    arrays, weight = pad_rows({"y": np.ones(2)})
    data = ShardData(arrays, weight, np.float32(1), np.float32(1))
    reference = reference_at(model, jnp.ones(1), data)
    assert log_density(model, -jnp.ones(1), data, reference) == -jnp.inf
