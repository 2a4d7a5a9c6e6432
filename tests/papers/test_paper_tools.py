"""The laws that experiments draw from, and the tools that measure and show."""

from __future__ import annotations

import numpy as np
import pytest
from papers.document import refresh
from papers.gaussian_shards import GaussianShards
from papers.measuring import Reference, gaussian_law, measured
from papers.tables import Collected, Table, as_markdown
from papers.thesis_geometries import MODES, banana, two_modes
from papers.wu_robert_beta import PRIOR, shard_draws
from papers.wu_robert_gaussian import target_draws
from scipy.special import ndtr
from scipy.stats import beta

RNG_SEED = 5


@pytest.mark.parametrize("exact", [True, False])
def test_measures_of_a_known_shift(exact):
    """N(delta, 1) against N(0, 1): every measure has a closed form."""
    rng = np.random.default_rng(RNG_SEED)
    number, delta = 200_000, 0.5
    law = gaussian_law(np.zeros(1), np.eye(1)) if exact else None
    reference = Reference(rng.normal(size=(number, 1)), law)
    moved = measured(rng.normal(delta, 1, size=(number, 1)), reference)
    error = 4 * np.sqrt(2 / number)
    assert moved["mahalanobis"] == pytest.approx(delta, abs=error)
    # Smoothing widens both densities by the same few per cent.
    assert moved["iad"] == pytest.approx(2 * ndtr(delta / 2) - 1, rel=0.01)
    assert moved["l2"] == pytest.approx((1 - np.exp(-(delta**2) / 4)) / np.sqrt(np.pi), rel=0.03)
    same = measured(rng.normal(size=(number, 1)), reference)
    assert same["mahalanobis"] < error
    assert same["iad"] < 0.01
    assert same["spread"] == pytest.approx(1, abs=error)


def test_l2_does_not_depend_on_units():
    rng = np.random.default_rng(RNG_SEED)
    draws, reference, units = rng.normal(size=(5000, 2)), rng.normal(0.3, 1, size=(5000, 2)), [1e3, 1e-4]
    for joint in (False, True):
        plain = measured(draws, Reference(reference), joint=joint)["l2"]
        scaled = measured(draws * units, Reference(reference * units), joint=joint)["l2"]
        assert scaled == pytest.approx(plain, rel=1e-6)


def test_gaussian_shards_multiply_to_their_posterior():
    rng = np.random.default_rng(RNG_SEED)
    factors = rng.normal(size=(4, 9, 3))
    shards = GaussianShards(rng.normal(size=(4, 3)), np.swapaxes(factors, 1, 2) @ factors)
    mean, covariance = shards.posterior()
    points = rng.normal(size=(20, 3))

    def log_density(x, m, v):
        return -0.5 * np.einsum("ni,ij,nj->n", x - m, np.linalg.inv(v), x - m)

    product = sum(log_density(points, m, v) for m, v in zip(shards.means, shards.covariances, strict=True))
    assert np.ptp(product - log_density(points, mean, covariance)) < 1e-9
    drawn = shards.draws(20_000, rng)
    spreads = [np.cov(drawn[kind].draws[0], rowvar=False) for kind in ("subposterior", "inflated")]
    assert np.allclose(spreads[0] / spreads[1], 4, rtol=0.3)


def test_powers_of_two_modes_and_of_the_banana():
    """Exact draws against moments by numerical integration of the displayed density to its power."""
    rng = np.random.default_rng(RNG_SEED)
    grid = np.stack(np.meshgrid(*[np.linspace(-7, 7, 561)] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
    mixture = np.logaddexp(*(-0.5 * np.sum((grid - mode) ** 2, axis=1) for mode in MODES))
    bent = -0.5 * (grid[:, 0] ** 2 + (grid[:, 1] + grid[:, 0] ** 2) ** 2)
    for power in (1, 3):
        for log_density, draw in ((mixture, two_modes(power)), (bent, banana(power))):
            weights = np.exp(power * (log_density - log_density.max()))
            if draw is not None and log_density is bent and power == 1:
                continue  # its tail leaves the grid
            weights /= weights.sum()
            sample = draw(100_000, rng)
            for moment in (grid, grid**2, grid[:, :1] * grid[:, 1:]):
                mean = weights @ moment
                sd = np.sqrt(weights @ (moment - mean) ** 2)
                columns = {2: sample if moment is grid else sample**2}.get(
                    moment.shape[1], sample[:, :1] * sample[:, 1:]
                )
                assert np.all(np.abs(columns.mean(axis=0) - mean) < 4.5 * sd / np.sqrt(len(sample)))


def test_beta_shards_have_the_posterior_as_their_product():
    successes, size = np.array([3.0, 0.0, 5.0]), 40
    p = np.linspace(0.01, 0.5, 50)
    number = len(successes)
    exponent = (PRIOR - 1) / number
    product = sum((s + exponent) * np.log(p) + (size - s + exponent) * np.log1p(-p) for s in successes)
    total = successes.sum()
    posterior = beta.logpdf(p, total + PRIOR, number * size - total + PRIOR)
    assert np.ptp(product - posterior) < 1e-9
    drawn = shard_draws(successes, size, 40_000, np.random.default_rng(RNG_SEED))
    for kind, copies, power in (("subposterior", 1, 1 / number), ("inflated", number, 1.0)):
        a = copies * 3.0 + power * (PRIOR - 1) + 1
        b = copies * 37.0 + power * (PRIOR - 1) + 1
        error = beta.std(a, b) / np.sqrt(40_000)
        assert abs(drawn[kind][0].mean() - beta.mean(a, b)) < 4 * error


def test_gaussian_rows_counted_twice_halve_the_variance():
    rng = np.random.default_rng(RNG_SEED)
    rows = rng.normal(1.0, 2.0, size=2_000)
    once, twice = (target_draws(rows, copies, 40_000, rng) for copies in (1, 2))
    assert np.allclose(once.var(axis=0) / twice.var(axis=0), 2, rtol=0.06)
    # The posterior of mu is a t law centred at the mean of the rows, of scale s / sqrt(n).
    assert once[:, 0].std() == pytest.approx(rows.std(ddof=1) / np.sqrt(2_000), rel=0.02)


def test_tables_put_the_papers_numbers_beside_ours():
    found = Collected()
    for value in (1.0, 2.0, 3.0):
        found.add("swiss", {"iad": value})
    table = found.table("Caption", ["iad"], {"swiss": {"iad": "0.5 (0.1)"}, "pie": {"iad": "9"}})
    assert table.header == ("rule", "IAD", "paper")
    assert table.rows == (("swiss", "2.0 ± 0.6", "0.5 (0.1)"), ("pie", "–", "9"))


def test_refresh_changes_nothing_but_its_own_part(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("words\n<!-- table: a -->\nold\n<!-- end: a -->\nmore \\1 words\n")
    text = as_markdown([Table("Caption", ("rule", "x"), (("swiss", "1"),))], "Made by \\1.")
    refresh(page, "a", text)
    refresh(page, "a", text)
    whole = page.read_text()
    assert whole.startswith("words\n<!-- table: a -->\n\n**Caption**")
    assert whole.endswith("Made by \\1.\n\n<!-- end: a -->\nmore \\1 words\n")
    assert "old" not in whole
    with pytest.raises(SystemExit, match="table: b"):
        refresh(page, "b", text)
