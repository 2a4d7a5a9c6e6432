import warnings

import numpy as np
import pytest

from consilience.chains import effective_sample_size, mcse_mean, rhat
from consilience.errors import DrawsError


def autoregressive(chains, draws, dimension, phi, seed):
    """Stationary AR(1) with unit innovations."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(chains, draws, dimension))
    x[:, 0] /= np.sqrt(1 - phi**2)
    for t in range(1, draws):
        x[:, t] += phi * x[:, t - 1]
    return x


@pytest.mark.parametrize(
    ("chains", "draws", "phi"),
    [
        (4, 500, 0.0),
        (4, 501, 0.5),
        (2, 1000, 0.9),
        (3, 77, 0.99),
        (2, 400, -0.5),
        (4, 9, 0.3),
        (4, 100, -0.9),
    ],
)
def test_numbers_of_arviz(chains, draws, phi):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        az = pytest.importorskip("arviz")
        x = autoregressive(chains, draws, 6, phi, seed=draws)
        x[..., -1] = np.round(x[..., -1])  # ties, as rejected proposals leave them
        data = az.convert_to_dataset({"x": x})
        expected = {kind: az.ess(data, method=kind)["x"].values for kind in ("bulk", "tail", "mean")}
        expected_rhat, expected_mcse = az.rhat(data)["x"].values, az.mcse(data)["x"].values
    for kind, values in expected.items():
        np.testing.assert_allclose(effective_sample_size(x, kind), values, rtol=1e-10, err_msg=kind)
    np.testing.assert_allclose(rhat(x), expected_rhat, rtol=1e-10)
    np.testing.assert_allclose(mcse_mean(x), expected_mcse, rtol=1e-10)


@pytest.mark.parametrize("phi", [-0.5, 0.0, 0.5, 0.9])
def test_autoregressive_closed_form(phi):
    """ESS of the mean is N (1 - phi) / (1 + phi); within 4 standard errors over 40 columns."""
    x = autoregressive(4, 2000, 40, phi, seed=1)
    exact = 8000 * (1 - phi) / (1 + phi)
    for kind in ("mean", "bulk"):
        found = effective_sample_size(x, kind)
        # Geyer's truncation costs a few per cent; a sum cut at the first lag is off by far more than this.
        limit = 4 * found.std(ddof=1) / np.sqrt(40) + 0.05 * exact
        assert abs(found.mean() - exact) < limit
    naive = np.full(40, 8000.0)
    if phi:
        assert abs(naive.mean() - exact) > limit


def test_mcse_is_the_spread_of_means():
    x = autoregressive(400, 500, 1, 0.8, seed=2)
    spread = x.mean(axis=1)[:, 0].std(ddof=1)
    claimed = np.sqrt(np.mean([mcse_mean(chain)[0] ** 2 for chain in x]))
    # The sd of 400 means is known to 1 / sqrt(800); Geyer's cut adds a few per cent.
    assert abs(claimed / spread - 1) < 4 / np.sqrt(800) + 0.05
    assert abs(x.std() / np.sqrt(500) / spread - 1) > 0.5  # what counting every draw would claim


def test_rhat_sees_location_scale_and_drift():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(4, 1000, 4))
    x[0, :, 1] += 1  # one chain elsewhere
    x[0, :, 2] *= 3  # one chain wider: only the folded half sees it
    x[:, :, 3] += np.linspace(-1, 1, 1000)  # drift: only splitting sees it
    found = rhat(x)
    assert found[0] < 1.01
    assert (found[1:] > 1.05).all()
    one = rhat(x[0])
    assert one[0] < 1.01
    assert one[3] > 1.05


def test_constant_column_and_short_chains_make_no_storm():
    x = np.random.default_rng(4).normal(size=(2, 50, 3))
    x[..., 1] = 2.0
    x[0, 3, 2] = np.nan
    assert np.isnan(rhat(x)).tolist() == [False, True, True]
    for kind in ("bulk", "tail", "mean"):
        found = effective_sample_size(x, kind)
        assert found[1] == 100
        assert np.isnan(found[2])
    assert mcse_mean(x)[1] == 0
    assert effective_sample_size(np.ones((3, 2))).tolist() == [3, 3]
    assert np.isnan(rhat(np.random.default_rng(0).normal(size=(3, 2)))).all()


def test_blocks_of_columns_change_nothing(monkeypatch):
    x = autoregressive(2, 60, 7, 0.3, seed=5)
    whole = rhat(x), effective_sample_size(x), effective_sample_size(x, "tail")
    monkeypatch.setattr("consilience.chains._BLOCK", 300)
    for before, after in zip(
        whole, (rhat(x), effective_sample_size(x), effective_sample_size(x, "tail")), strict=True
    ):
        np.testing.assert_array_equal(before, after)


def test_chains_of_one_value_each_are_infinitely_far_from_mixed():
    x = np.repeat(np.arange(4.0)[:, None, None], 20, axis=1)
    assert rhat(x)[0] > 1e3
    assert effective_sample_size(x)[0] < 20


def test_one_dimensional_input_is_refused():
    with pytest.raises(DrawsError, match=r"x\[\.\.\., None\]"):
        rhat(np.arange(10.0))
    with pytest.raises(DrawsError, match="kind"):
        effective_sample_size(np.zeros((4, 2)), "median")
