"""Every measure against closed forms for Gaussians, and the noise floor against repeated exact samples."""

import numpy as np
import pytest
from scipy.stats import norm

from consilience.diagnose import Discrepancy, compare
from consilience.diagnose.measures import mahalanobis_and_covariance
from consilience.diagnose.noise import covariance_noise, mahalanobis_noise
from consilience.draws import Posterior
from consilience.errors import DrawsError

MEASURES = ["mahalanobis", "skew", "iad", "standardised_mean", "l2", "covariance", "sliced_wasserstein"]


def scores(number, seed=0):
    """Exactly normal: quantiles at mid-points, shuffled. What is left is bandwidth and grid."""
    return np.random.default_rng(seed).permutation(norm.ppf((np.arange(number) + 0.5) / number))[:, None]


def exact_pair(d, number, seed, mixing=None):
    rng = np.random.default_rng(seed)
    mixing = np.eye(d) if mixing is None else mixing
    return rng.normal(size=(number, d)) @ mixing.T, rng.normal(size=(number, d)) @ mixing.T


class TestClosedForms:
    @pytest.mark.parametrize("shift", [0.2, 1.0, 3.0])
    def test_shifted_normal(self, shift):
        found = compare(scores(20_000) + shift, scores(20_000))
        # The kernel of width h turns N(0, 1) into N(0, 1 + h^2), here h^2 = 0.0155.
        widened = np.sqrt(1 + (0.9 * 20_000**-0.2) ** 2)
        iad = 2 * norm.cdf(shift / 2 / widened) - 1
        l2 = (1 - np.exp(-((shift / widened) ** 2) / 4)) / np.sqrt(np.pi) / widened
        assert found.mahalanobis == pytest.approx(shift, rel=1e-3)
        assert found.standardised_mean == pytest.approx(shift, rel=1e-3)
        assert found.sliced_wasserstein == pytest.approx(shift, rel=1e-3)
        assert found.iad == pytest.approx(iad, rel=5e-3)
        assert found.iad == pytest.approx(2 * norm.cdf(shift / 2) - 1, rel=0.01)
        assert found.l2 == pytest.approx(l2, rel=0.01)
        assert abs(found.covariance) < 1e-10
        assert abs(found.skew) < 1e-8
        # Without the factor 1/2 the integral is twice the closed form, far outside the tolerance.
        assert 2 * found.iad != pytest.approx(2 * norm.cdf(shift / 2) - 1, rel=0.5)

    def test_iad_of_disjoint_draws_is_one(self):
        assert compare(scores(500) + 300, scores(500)).iad == pytest.approx(1, abs=1e-5)

    def test_scaled_normal(self):
        found = compare(1.1 * scores(20_000), scores(20_000))
        assert found.covariance == pytest.approx(0.21, rel=1e-6)
        assert found.sliced_wasserstein == pytest.approx(0.1, rel=0.01)
        assert found.per_parameter["sd_ratio"].item() == pytest.approx(1.1)

    def test_skew_of_an_exponential(self):
        exponential = -np.log1p(-(np.arange(50_000) + 0.5) / 50_000)[:, None]
        found = compare(exponential, scores(50_000))
        assert found.skew == pytest.approx(2, rel=0.02)
        # The paper's displayed formula cubes the expectation, which is zero whatever the law.
        assert ((exponential - exponential.mean()) / exponential.std()).mean() ** 3 == pytest.approx(
            0, abs=1e-10
        )

    def test_mahalanobis_uses_the_references_covariance(self):
        mixing = np.array([[2.0, 0.0], [1.8, 0.5]])
        a, r = exact_pair(2, 4000, 0, mixing)
        a = a + np.array([0.5, -0.5])
        difference = a.mean(axis=0) - r.mean(axis=0)
        expected = np.sqrt(difference @ np.linalg.solve(np.cov(r.T), difference))
        assert compare(a, r).mahalanobis == pytest.approx(expected, rel=1e-6)
        plain = np.sqrt(difference @ np.linalg.solve(np.diag(r.var(axis=0)), difference))
        assert compare(a, r).mahalanobis != pytest.approx(plain, rel=0.2)

    def test_covariance_and_wasserstein_do_not_depend_on_units(self):
        a, r = exact_pair(3, 3000, 1)
        a = a * [1.5, 1, 1]
        mixing = np.array([[1e3, 0, 0], [5, 1e-3, 0], [0, 1e-3, 1]])
        here, there = compare(a, r), compare(a @ mixing.T, r @ mixing.T)
        assert there.covariance == pytest.approx(here.covariance, rel=1e-6)
        assert there.mahalanobis == pytest.approx(here.mahalanobis, rel=1e-6)
        # Rotated whitened coordinates meet other random directions: only about the same.
        assert there.sliced_wasserstein == pytest.approx(here.sliced_wasserstein, rel=0.2)

    def test_joint_l2_of_two_parameters(self):
        """(1 - exp(-D^2 / 4)) / (2 pi sqrt det V), up to the kernel's widening; in the parameters' units."""
        mixing = np.array([[2.0, 0.0], [1.8, 0.5]])
        a, r = exact_pair(2, 15_000, 2, mixing)
        shift = mixing @ [1.0, 1.0]
        widened = 1 + 15_000 ** (-1 / 3)
        expected = (1 - np.exp(-2 / 4 / widened)) / (2 * np.pi * widened)
        found = compare(a + shift, r)
        # det of the mixing is 1; the mean of the marginals' L2 is another number, and outside.
        sd = np.sqrt(np.diagonal(mixing @ mixing.T))
        marginals = ((1 - np.exp(-((shift / sd) ** 2) / 4)) / np.sqrt(np.pi) / sd).mean()
        assert abs(marginals - expected) > 4 * found.standard_errors["l2"]
        assert abs(found.l2 - expected) < 4 * found.standard_errors["l2"] < 0.2 * expected
        assert found.l2_of == "the joint density"
        assert compare(10 * (a + shift), 10 * r).l2 == pytest.approx(found.l2 / 100, rel=1e-6)

    def test_l2_in_one_parameters_units(self):
        a, r = scores(5000) + 1, scores(5000)
        assert compare(10 * a, 10 * r).l2 == pytest.approx(compare(a, r).l2 / 10, rel=1e-6)


class TestNoise:
    def test_exact_samples_sit_at_the_floor_and_are_called_noise(self):
        """Mean value over mean floor is 1 within Monte Carlo error; about 1 in 100 passes the limit."""
        pairs = 60
        mixing = np.array([[1.0, 0, 0], [0.9, 0.3, 0], [0, 2, 5]])
        found = [compare(*exact_pair(3, 800, seed, mixing), seed=seed) for seed in range(pairs)]
        for name in MEASURES:
            values = np.array([getattr(d, name) for d in found])
            floors = np.array([d.noise_floor[name] for d in found])
            error = np.hypot(values.std(ddof=1), floors.std(ddof=1)) / np.sqrt(pairs)
            # Effective sizes of densities are cautious: their floor may be a tenth high.
            assert -0.1 * floors.mean() - 4 * error < values.mean() - floors.mean() < 4 * error, name
            # A floor without the reference's own noise would be too low by sqrt(2) (by 2 for a square).
            assert values.mean() - floors.mean() / np.sqrt(2) > 3 * error, name
        alarms = sum(not calm for d in found for calm in d.within_noise.values())
        # 420 measures at 1 in 100 give 4.2; those of a pair hang together, hence twice the binomial spread.
        assert alarms <= 4.2 + 4 * 2 * np.sqrt(4.2)

    @pytest.mark.parametrize("d", [1, 2, 5])
    def test_a_shift_is_real(self, d):
        a, r = exact_pair(d, 10_000, d)
        calm = compare(a + 0.2, r).within_noise
        assert not any(
            calm[name] for name in ("mahalanobis", "standardised_mean", "iad", "l2", "sliced_wasserstein")
        )
        assert calm["skew"]
        assert calm["covariance"]

    @pytest.mark.parametrize("d", [1, 2, 5])
    def test_a_scale_is_real(self, d):
        a, r = exact_pair(d, 10_000, 10 + d)
        calm = compare(1.1 * a, r).within_noise
        assert not any(calm[name] for name in ("covariance", "iad", "sliced_wasserstein"))
        assert calm["mahalanobis"]
        assert calm["skew"]

    def test_autocorrelated_chains_have_a_higher_floor(self):
        """AR(1) with phi = 0.9 is worth N / 19 draws: what would be real for N draws is noise."""
        distances, floors = [], []
        for seed in range(20):
            rng = np.random.default_rng(seed)
            x = rng.normal(size=(2, 2000, 2))
            x[:, 0] /= np.sqrt(1 - 0.81)
            for t in range(1, 2000):
                x[:, t] += 0.9 * x[:, t - 1]
            found = compare(x[0], x[1])
            distances.append(found.mahalanobis)
            floors.append(found.noise_floor["mahalanobis"])
            assert found.limits["mahalanobis"] > found.noise_floor["mahalanobis"]
        error = np.hypot(np.std(distances), np.std(floors)) / np.sqrt(20)
        assert abs(np.mean(distances) - np.mean(floors)) < 4 * error + 0.1 * np.mean(floors)
        independent = np.sqrt(np.pi / 2 * 2 / 2000)
        assert np.mean(distances) - independent > 4 * error

    def test_given_effective_sizes_set_the_floor(self):
        a, r = exact_pair(2, 2000, 3)
        few = compare(Posterior(a, effective_sizes=[50.0, 50.0]), r)
        assert few.noise_floor["mahalanobis"] == pytest.approx(
            np.sqrt(np.pi / 2 * (1 / 50 + 1 / 2000)), rel=0.05
        )
        assert few.effective_sizes[0] == pytest.approx(50)
        assert "Few" not in str(few)
        assert "Few" in str(compare(Posterior(a, effective_sizes=[15.0, 15.0]), r))

    def test_standard_errors_are_the_spread_of_repetitions(self):
        found = [compare(exact_pair(3, 500, s)[0] * 1.5 + 1, exact_pair(3, 500, s)[1]) for s in range(40)]
        for name in MEASURES:
            spread = np.std([getattr(d, name) for d in found], ddof=1)
            claimed = np.mean([d.standard_errors[name] for d in found])
            # 40 repetitions know a spread to 11 %; 40 resamples each claim to as much.
            assert 0.6 < claimed / spread < 1.6, name


class TestWeights:
    def test_weighted_draws_of_the_same_law_are_noise(self):
        rng = np.random.default_rng(5)
        wide = 1.5 * rng.normal(size=(8000, 2))
        log_weights = -0.5 * np.sum(wide**2 * (1 - 1 / 2.25), axis=1)
        reference = rng.normal(size=(4000, 2))
        assert all(compare(Posterior(wide, log_weights=log_weights), reference).within_noise.values())
        assert all(compare(reference, Posterior(wide, log_weights=log_weights)).within_noise.values())
        assert not compare(wide, reference).within_noise["covariance"]

    def test_equal_weights_change_nothing(self):
        a, r = exact_pair(2, 500, 6)
        plain, weighted = compare(a, r), compare(Posterior(a, log_weights=np.full(500, 3.0)), r)
        for name in MEASURES:
            assert getattr(weighted, name) == pytest.approx(getattr(plain, name), rel=1e-8)


class TestInput:
    def test_files_arrays_and_results_alike(self, tmp_path):
        a, r = exact_pair(2, 300, 7)
        Posterior(a, names=("x", "y")).save(tmp_path / "a.npz")
        np.save(tmp_path / "r.npy", r)

        class Fit:
            posterior = Posterior(r, names=("x", "y"))

        expected = compare(a, r).mahalanobis
        assert compare(tmp_path / "a.npz", str(tmp_path / "r.npy")).mahalanobis == expected
        assert compare(tmp_path / "a.npz", Fit()).mahalanobis == expected
        assert compare(a.reshape(3, 100, 2), r.reshape(2, 150, 2)).mahalanobis == expected

    def test_names_are_matched(self):
        a, r = exact_pair(2, 300, 8)
        a = a + np.array([0.0, 5.0])
        swapped = Posterior(a[:, ::-1], names=("y", "x"))
        found = compare(swapped, Posterior(r, names=("x", "y")))
        assert found.mahalanobis == compare(a, r).mahalanobis
        assert found.per_parameter.index.tolist() == ["x", "y"]
        assert abs(found.per_parameter.loc["y", "standardised_mean"]) > 4
        assert compare(Posterior(a[:, ::-1]), Posterior(r, names=("x", "y"))).mahalanobis != found.mahalanobis

    @pytest.mark.parametrize(
        ("draws", "words"),
        [
            (Posterior(np.eye(9)[:, :2], names=("x", "z")), "z where the reference has y"),
            (np.random.default_rng(0).normal(size=(50, 3)), "2 parameters"),
            (np.ones((50, 2)), r"constant theta\[0\], theta\[1\]"),
            (np.random.default_rng(0).normal(size=(4, 2)), "at least 5 draws"),
            (np.full((50, 2), np.nan), "finite"),
            (np.zeros(5), r"x\[:, None\]"),
            ("nowhere.npz", "exists"),
            (None, "draws"),
        ],
    )
    def test_refusals(self, draws, words):
        reference = Posterior(np.random.default_rng(1).normal(size=(50, 2)), names=("x", "y"))
        with pytest.raises(DrawsError, match=words):
            compare(draws, reference)

    def test_a_duplicated_parameter_is_carried_and_told(self):
        a, r = exact_pair(1, 1000, 9)
        found = compare(np.hstack([a, 2 * a]), np.hstack([r, 2 * r]))
        assert found.mahalanobis == pytest.approx(compare(a, r).mahalanobis, rel=1e-6)
        assert "1 directions" in str(found)

    def test_seed_decides_everything(self):
        a, r = exact_pair(3, 300, 10)
        assert str(compare(a, r, seed=1)) == str(compare(a, r, seed=1))
        assert compare(a, r, seed=1).noise_floor != compare(a, r, seed=2).noise_floor


def test_table():
    a, r = exact_pair(3, 2000, 11)
    found = compare(a + 1, r)
    lines = str(found).splitlines()
    assert lines[0].split() == ["measure", "value", "±", "se", "noise", "floor"]
    assert len(lines) == 9
    assert lines[1].endswith("real")
    assert next(line for line in lines if line.startswith("skew")).endswith("noise")
    assert set(found.measures) == set(MEASURES)
    assert isinstance(found, Discrepancy)


class TestFormulas:
    """The laws between exact samples against simulation, with draws far from normal."""

    @pytest.mark.parametrize(("d", "n"), [(1, 200), (4, 300), (20, 150)])
    def test_covariance_and_mahalanobis(self, d, n):
        rng = np.random.default_rng(d)

        def draw(number):
            return rng.gamma(8.0, size=(number, d)) if d < 20 else rng.normal(size=(number, d))

        values = []
        for _ in range(300):
            a, r = draw(2 * n), draw(n)
            whitening = np.linalg.cholesky(np.linalg.inv(np.cov(r.T).reshape(d, d)))
            z = (a - r.mean(axis=0)) @ whitening
            values.append(mahalanobis_and_covariance(z, np.full(2 * n, 1 / (2 * n))))
        big = draw(20_000)
        standard = (big - big.mean(axis=0)) @ np.linalg.cholesky(np.linalg.inv(np.cov(big.T).reshape(d, d)))
        laws = {
            "covariance": covariance_noise(standard, (2 * n, n), rng),
            "mahalanobis": mahalanobis_noise(np.full(d, 1.5 / n), n),
        }
        for name, law in laws.items():
            sample = np.array([v[name] for v in values])
            error = sample.std(ddof=1) / np.sqrt(300)
            assert abs(sample.mean() - law.floor) < 4 * error + 0.02 * law.floor, name
            # 3 of 300 are expected above the limit; a limit at the floor would let half of them through.
            assert (sample > law.limit).sum() <= 3 + 4 * np.sqrt(3) + 2, name

    def test_first_order_alone_is_too_low_in_high_dimension(self):
        y = np.random.default_rng(0).normal(size=(5000, 40))
        floor = covariance_noise(y, (400, 200), np.random.default_rng(1)).floor
        assert floor > 1.1 * np.sqrt(41 * (1 / 400 + 1 / 200))
