"""A plain model takes only the columns that its log-likelihood asks for."""

from __future__ import annotations

import numpy as np
import numpyro.distributions as dist
import pytest

import consilience as cs

ROWS = {"y": np.zeros(3), "x": np.ones(3), "label": np.array(["a", "b", "c"], object)}


@pytest.mark.parametrize(
    ("log_likelihood", "read"),
    [
        (lambda params, rows: -((rows["y"] - params["mu"]) ** 2), ("y",)),
        (lambda params, rows: -((rows.get("x") - params["mu"]) ** 2), ("x",)),
        (lambda params, rows: -sum((v - params["mu"]) ** 2 for v in rows.values()), ("y", "x")),
        (lambda params, rows: rows["nowhere"], ("y", "x")),
    ],
)
def test_columns_read(log_likelihood, read):
    assert cs.Model({"mu": dist.Normal(0, 1)}, log_likelihood).columns_read(ROWS) == read


def test_missing_values_in_other_columns_do_not_matter():
    rng = np.random.default_rng(0)
    rows = {"y": rng.normal(size=200), "other": np.full(200, np.nan)}
    model = cs.Model({"mu": dist.Normal(0, 1)}, lambda params, rows: -0.5 * (rows["y"] - params["mu"]) ** 2)
    result = cs.fit(model, rows, shards=1, refine=None, draws=200, progress=False)
    assert abs(result.posterior.mean()[0] - rows["y"].mean()) < 0.1
    with pytest.raises(cs.InputError, match="y"):
        cs.fit(model, {**rows, "y": rows["other"]}, shards=1, progress=False)
