"""Agreement of shards: p-values against their law, every number against a closed form or a brute-force one.

Each statistical oracle is also given a wrong variant, which it must reject.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy import integrate, stats

import consilience as cs
from consilience.combine.moments import gaussian_product, shard_moments
from consilience.diagnose.agreement import LEVEL
from consilience.diagnose.agreementwords import WEIGHTS_LIMIT
from consilience.diagnose.heterogeneity import (
    AgainstOthers,
    Heterogeneity,
    all_together,
    each_against_others,
    holm,
    whitened,
)
from consilience.diagnose.overlap import normal_overlap
from consilience.diagnose.shape import shard_shape
from consilience.draws import Subposteriors
from consilience.errors import DrawsError, InputError

# sqrt(n) times the Kolmogorov-Smirnov distance exceeds this once in a thousand times.
KS_LIMIT = 1.95
SIZES = (60, 100, 150, 200, 120, 80)


def gaussian_shards(
    rng: np.random.Generator, sizes: Sequence[int], d: int, kind: str, moved: float = 0.0
) -> tuple[list[np.ndarray], np.ndarray]:
    """Shards of unequal weight and covariance that differ by chance alone; the first may be moved, by so many of its
    sub-posterior standard deviations in its first whitened direction."""
    weights = rng.dirichlet(np.full(len(sizes), 8.0))
    draws = []
    for weight, size in zip(weights, sizes, strict=True):
        root = np.eye(d) + 0.4 * rng.normal(size=(d, d))
        centre = rng.normal(size=d)
        centre[0] += moved * (not draws)
        noise = rng.normal(size=(size, d)) * (np.sqrt(weight) if kind == "inflated" else 1.0)
        draws.append((centre + noise) @ root.T / np.sqrt(weight))
    return draws, weights


Tests = tuple[Heterogeneity, AgainstOthers]


def measured(draws: list[np.ndarray], weights: np.ndarray, kind: str) -> Tests:
    """The tests as `agreement` makes them, without the rest."""
    moments = shard_moments(Subposteriors.of(draws, kind=kind, weights=weights))
    shards = whitened(moments, weights if kind == "inflated" else np.ones_like(weights))
    return all_together(shards), each_against_others(shards)


def other(kind: str) -> str:
    return "inflated" if kind == "subposterior" else "subposterior"


def distance_from_uniform(p_values: Sequence[float]) -> float:
    return float(stats.kstest(p_values, "uniform").statistic * np.sqrt(len(p_values)))


def p_values(
    kind: str,
    sizes: Sequence[int],
    d: int,
    test: Callable[..., float],
    replicates: int = 300,
    **options: float,
) -> list[float]:
    rng = np.random.default_rng([7, d, len(sizes)])
    return [test(*gaussian_shards(rng, sizes, d, kind, **options), kind) for _ in range(replicates)]


def right(draws: list[np.ndarray], weights: np.ndarray, kind: str) -> float:
    return measured(draws, weights, kind)[0].p_value


def wrong_kind(draws: list[np.ndarray], weights: np.ndarray, kind: str) -> float:
    return measured(draws, weights, other(kind))[0].p_value


def wrong_weights(draws: list[np.ndarray], weights: np.ndarray, kind: str) -> float:
    return measured(draws, weights[::-1], kind)[0].p_value


def known_covariances(draws: list[np.ndarray], weights: np.ndarray, kind: str) -> float:
    """Cochran's Q with estimated covariances taken for the true ones."""
    powers = weights if kind == "inflated" else np.ones_like(weights)
    inverses = [a * np.linalg.inv(np.cov(x.T)) for a, x in zip(powers, draws, strict=True)]
    means = [x.mean(axis=0) for x in draws]
    mean = np.linalg.solve(sum(inverses), sum(w @ m for w, m in zip(inverses, means, strict=True)))
    q = sum((m - mean) @ w @ (m - mean) for w, m in zip(inverses, means, strict=True))
    return float(stats.chi2.sf(q, len(mean) * (len(draws) - 1)))


class TestPValues:
    @pytest.mark.parametrize("kind", ["inflated", "subposterior"])
    def test_uniform_when_shards_differ_by_chance(self, kind: str) -> None:
        assert distance_from_uniform(p_values(kind, SIZES, 3, right)) < KS_LIMIT

    @pytest.mark.parametrize(("sizes", "d"), [((20, 25), 1), ((60,) * 10, 10), ((30,) * 60, 4)])
    def test_uniform_with_few_draws_where_covariances_taken_for_known_are_not(
        self, sizes: tuple[int, ...], d: int
    ) -> None:
        assert distance_from_uniform(p_values("inflated", sizes, d, right)) < KS_LIMIT
        if d > 1:
            assert distance_from_uniform(p_values("inflated", sizes, d, known_covariances)) > 2 * KS_LIMIT

    @pytest.mark.parametrize("kind", ["inflated", "subposterior"])
    def test_the_wrong_kind_of_draws_is_rejected(self, kind: str) -> None:
        assert distance_from_uniform(p_values(kind, SIZES, 3, wrong_kind, 50)) > 2 * KS_LIMIT

    def test_the_wrong_weights_are_rejected(self) -> None:
        assert distance_from_uniform(p_values("inflated", SIZES, 3, wrong_weights, 900)) > 1.5 * KS_LIMIT

    def test_uniform_for_dependent_draws(self) -> None:
        """Chains of autocorrelation time 3: their covariances count for fewer draws."""

        def chains(draws: list[np.ndarray], weights: np.ndarray, kind: str) -> float:
            rng = np.random.default_rng(len(draws[0]) + int(1e6 * weights[0]))
            slow = []
            for x in draws:
                noise = (x - x.mean(axis=0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(x.T))).T
                z = np.empty_like(noise)
                z[0] = noise[0]
                for t in range(1, len(z)):
                    z[t] = 0.5 * z[t - 1] + np.sqrt(0.75) * rng.normal(size=z.shape[1])
                # The mean that the draws had is that of their target, about which the chain moves.
                slow.append(x.mean(axis=0) + z @ np.linalg.cholesky(np.cov(x.T)).T)
            return measured(slow, weights, kind)[0].p_value

        assert distance_from_uniform(p_values("inflated", (400,) * 5, 2, chains, 100)) < KS_LIMIT

    @pytest.mark.parametrize("kind", ["inflated", "subposterior"])
    def test_each_shard_and_each_parameter(self, kind: str) -> None:
        rng = np.random.default_rng(11)
        joint, single, wrong = [], [], []
        for _ in range(300):
            draws, weights = gaussian_shards(rng, SIZES, 3, kind)
            each = measured(draws, weights, kind)[1]
            joint.append(each.joint_p_values[0])
            single.append(each.p_values[3, 1])
            wrong.append(measured(draws, weights, other(kind))[1].joint_p_values[0])
        assert distance_from_uniform(joint) < KS_LIMIT
        assert distance_from_uniform(single) < KS_LIMIT
        assert distance_from_uniform(wrong) > 2 * KS_LIMIT

    def test_two_shards_have_one_test(self) -> None:
        draws, weights = gaussian_shards(np.random.default_rng(0), (50, 80), 3, "inflated")
        together, each = measured(draws, weights, "inflated")
        np.testing.assert_allclose(each.joint_p_values, together.p_value, rtol=1e-6)

    def test_two_shards_of_one_parameter_have_welchs_test(self) -> None:
        rng = np.random.default_rng(1)
        draws = [rng.normal(size=(50, 1)), 0.8 + rng.normal(size=(80, 1))]
        together, each = measured(draws, np.full(2, 0.5), "subposterior")
        # T_b = V_b (1 + 1 / n_b): Welch's statistic has the sum of these below the difference of the means.
        spreads = [np.var(x, ddof=1) * (1 + 1 / len(x)) for x in draws]
        t = (draws[0].mean() - draws[1].mean()) / np.sqrt(sum(spreads))
        np.testing.assert_allclose(each.distances[:, 0], [t, -t], rtol=2e-3)
        freedom = sum(spreads) ** 2 / (spreads[0] ** 2 / 49 + spreads[1] ** 2 / 79)
        np.testing.assert_allclose(each.p_values, 2 * stats.t.sf(abs(t), freedom), rtol=0.01)
        assert together.p_value == pytest.approx(each.p_values[0, 0], rel=0.02)

    @pytest.mark.parametrize(("n", "tolerance"), [(40, 0.02), (400, 2e-4)])
    def test_mean_and_spread_of_q_are_those_of_hotellings_law(self, n: int, tolerance: float) -> None:
        """Two shards with the same covariance: their sum is a Wishart matrix, and Q is known exactly."""
        d = 5
        x = np.random.default_rng(0).normal(size=(2, n, d))
        x -= x.mean(axis=1, keepdims=True)
        x = np.stack([z @ np.linalg.inv(np.linalg.cholesky(np.cov(z.T))).T for z in x])  # both exactly I
        found, _ = measured(list(x), np.full(2, 0.5), "subposterior")
        m = 2 * (n - 1)
        mean, variance = stats.f.stats(d, m - d + 1)
        scale = d * m / (m - d + 1) * (n - d - 2) / (n - 1)
        assert found.expected == pytest.approx(scale * mean, rel=tolerance)
        assert found.deviation == pytest.approx(scale * np.sqrt(variance), rel=tolerance)
        # The chi-squared law of known covariances has neither.
        assert abs(found.expected / d - 1) > 4 * tolerance
        assert abs(found.deviation / np.sqrt(2 * d) - 1) > 1.5 * tolerance

    def test_at_most_one_report_in_twenty_names_a_shard_by_chance(self) -> None:
        def names_some(draws: list[np.ndarray], weights: np.ndarray, kind: str) -> float:
            each = measured(draws, weights, kind)[1]
            return float(min(holm(each.p_values).min(), holm(each.joint_p_values).min()) <= LEVEL / 2)

        def unadjusted(draws: list[np.ndarray], weights: np.ndarray, kind: str) -> float:
            each = measured(draws, weights, kind)[1]
            return float(min(each.p_values.min(), each.joint_p_values.min()) <= LEVEL / 2)

        replicates = 400
        limit = LEVEL + 3 * np.sqrt(LEVEL * (1 - LEVEL) / replicates)
        assert np.mean(p_values("inflated", SIZES, 3, names_some, replicates)) < limit
        assert np.mean(p_values("inflated", SIZES, 3, unadjusted, 100)) > 3 * limit

    @pytest.mark.parametrize("moved", [2.0, 4.0])
    def test_power_is_that_of_the_noncentral_law(self, moved: float) -> None:
        num_shards, d, replicates = 6, 2, 300
        rng = np.random.default_rng(5)
        weights = np.full(num_shards, 1 / num_shards)
        rejected = []
        for _ in range(replicates):
            centres = rng.normal(size=(num_shards, 1, d))
            centres[0, 0, 0] += moved
            draws = list(centres + rng.normal(size=(num_shards, 1_000, d)))
            rejected.append(measured(draws, weights, "subposterior")[0].p_value < 0.05)
        freedom = d * (num_shards - 1)
        limit = stats.chi2.isf(0.05, freedom)
        power = stats.ncx2.sf(limit, freedom, moved**2 * (1 - 1 / num_shards))
        error = np.sqrt(power * (1 - power) / replicates)
        assert abs(np.mean(rejected) - power) < 3.5 * error
        # Had the shift no share in the mean that it is measured from, power would be that of a larger shift.
        assert stats.ncx2.sf(limit, freedom, 2 * moved**2) > power + 3.5 * error


def test_q_is_cochrans_with_unbiased_weights() -> None:
    draws, weights = gaussian_shards(np.random.default_rng(3), SIZES, 3, "inflated")
    scale = np.array([1e-6, 1.0, 1e6])
    found, _ = measured([x * scale + 1e3 * scale for x in draws], weights, "inflated")
    precisions, means = [], []
    for weight, x in zip(weights, draws, strict=True):
        factor = (len(x) - 5) / (len(x) - 1)
        precisions.append(factor * np.linalg.inv(np.cov(x.T) * (1 / weight + 1 / len(x))))
        means.append(x.mean(axis=0))
    mean = np.linalg.solve(sum(precisions), sum(w @ m for w, m in zip(precisions, means, strict=True)))
    q = sum((m - mean) @ w @ (m - mean) for w, m in zip(precisions, means, strict=True))
    assert found.statistic == pytest.approx(q, rel=1e-5)
    assert found.degrees_of_freedom == 15


class TestLeavingOut:
    def test_equals_the_product_of_the_others(self) -> None:
        draws, weights = gaussian_shards(np.random.default_rng(3), SIZES, 3, "subposterior")
        each = measured(draws, weights, "subposterior")[1]
        moments = shard_moments(Subposteriors.of(draws, kind="subposterior", weights=weights))
        powers = 1.0 / (1.0 + 1.0 / moments.effective_draws)
        inverses = moments.precisions.precision * powers[:, None, None]

        def product(kept: list[int]) -> tuple[np.ndarray, np.ndarray]:
            covariance = np.linalg.inv(inverses[kept].sum(axis=0))
            return covariance @ np.einsum("bij,bj->i", inverses[kept], moments.means[kept]), covariance

        mean, covariance = product(list(range(6)))
        for b in range(6):
            others = [c for c in range(6) if c != b]
            without, wider = product(others)
            shift = (without - mean) / np.sqrt(np.diagonal(covariance))
            np.testing.assert_allclose(each.shifts[b], shift, rtol=1e-6, atol=1e-8)
            far = np.sqrt((without - mean) @ np.linalg.solve(covariance, without - mean))
            assert each.influence[b] == pytest.approx(far, rel=1e-6)
            ratio = np.sqrt(np.diagonal(wider) / np.diagonal(covariance))
            np.testing.assert_allclose(each.widening[b], ratio, rtol=1e-6)
            wrong, _ = product([c for c in range(6) if c != (b + 1) % 6])
            assert np.abs(each.shifts[b] - (wrong - mean) / np.sqrt(np.diagonal(covariance))).max() > 0.01

    def test_its_usual_size_by_chance(self) -> None:
        rng = np.random.default_rng(8)
        ratios = []
        for _ in range(200):
            each = measured(*gaussian_shards(rng, (500,) * 6, 3, "inflated"), "inflated")[1]
            ratios.append(np.mean(each.influence**2 / each.influence_by_chance**2))
        error = np.std(ratios, ddof=1) / np.sqrt(len(ratios))
        assert abs(np.mean(ratios) - 1.0) < 4 * error + 0.01  # d / J more because covariances are estimated

    def test_a_shard_that_holds_nearly_everything(self) -> None:
        draws = np.random.default_rng(0).normal(size=(3, 200, 2))
        found = cs.agreement(draws, kind="inflated", weights=[1.0, 1e-9, 1e-9], rules=None)
        assert np.isfinite(found.by_shard().select_dtypes("number")).all(axis=None)
        assert np.isfinite(found.against_others.p_values).all()


class TestOverlap:
    @pytest.mark.parametrize(
        ("gap", "first", "second"), [(0.0, 1, 1), (1.3, 1, 1), (-0.7, 2, 0.3), (4, 1, 1.0001)]
    )
    def test_against_integration(self, gap: float, first: float, second: float) -> None:
        def smaller(x: float) -> float:
            return min(stats.norm.pdf(x, 0, first), stats.norm.pdf(x, gap, second))

        exact = integrate.quad(smaller, -15, 15, limit=400, points=[0.0, gap])[0]
        found = normal_overlap(np.array([gap]), np.array([float(first)]), np.array([float(second)]))
        assert found[0] == pytest.approx(exact, abs=1e-6)

    @pytest.mark.parametrize("kind", ["inflated", "subposterior"])
    def test_by_chance(self, kind: str) -> None:
        """Equal shards share (2 / pi) arctan sqrt 2 on average; unequal ones what is worked out for each pair."""
        rng = np.random.default_rng(2)
        differences = []
        for _ in range(60):
            draws, weights = gaussian_shards(rng, (400,) * 6, 2, kind)
            pairs = cs.agreement(draws, kind=kind, weights=weights, rules=None).pairs
            average, chance = pairs.average()
            differences.append(average - chance)
        error = np.std(differences, ddof=1) / np.sqrt(len(differences))
        assert abs(np.mean(differences)) < 4 * error
        equal = rng.normal(size=(5, 20_000, 1)) * (1 / np.sqrt(5) if kind == "inflated" else 1.0)
        chance = cs.agreement(equal, kind=kind, rules=None).pairs.overlap_by_chance[0, 1]
        assert chance == pytest.approx(2 / np.pi * np.arctan(np.sqrt(2)), abs=3e-3)

    def test_inflated_draws_are_drawn_out(self) -> None:
        rng = np.random.default_rng(0)
        draws = rng.normal(size=(4, 50_000, 1)) + np.array([0.0, 1.0, 2.0, 3.0])[:, None, None]
        found = cs.agreement(draws, kind="inflated", rules=None).pairs
        assert found.overlap[0, 1] == pytest.approx(2 * stats.norm.sf(0.5 / 2), abs=0.02)
        assert found.distance[0, 3] == pytest.approx(3 / np.sqrt(2 * 4), rel=0.02)
        # As they come, draws of the first and the last hardly overlap: that is not what their rows say.
        assert found.overlap[0, 3] > 2 * (2 * stats.norm.sf(1.5))

    def test_distances_have_unit_mean_square_by_chance(self) -> None:
        rng = np.random.default_rng(4)
        squares = []
        for _ in range(200):
            draws, weights = gaussian_shards(rng, (30,) * 4, 8, "inflated")
            distance = cs.agreement(draws, kind="inflated", weights=weights, rules=None).pairs.distance
            squares.append(np.mean(distance[np.triu_indices(4, 1)] ** 2))
        error = np.std(squares, ddof=1) / np.sqrt(len(squares))
        assert abs(np.mean(squares) - 1.0) < 4 * error
        # The inverse of a sum of two covariances of 30 draws is too large by about 58 / 49.
        assert np.mean(squares) * 58 / 49 - 1.0 > 4 * error

    def test_of_many_shards_the_loud_ones_are_among_those_compared(self) -> None:
        draws = np.random.default_rng(0).normal(size=(1000, 60, 1))
        draws[777] += 400.0
        found = cs.agreement(draws, kind="subposterior", rules=None)
        assert 777 in found.pairs.shards
        assert len(found.pairs.shards) == 60
        assert found.standing_out() == [777]


class TestShape:
    def test_skewness_and_kurtosis_of_an_exponential(self) -> None:
        draws = np.random.default_rng(0).exponential(size=(3, 100_000, 1))
        shape = cs.agreement(draws, kind="inflated", rules=None).shape
        assert np.all(np.abs(shape.skewness - 2) < 4 * shape.skewness_error)
        assert np.all(np.abs(shape.kurtosis - 6) < 4 * shape.kurtosis_error + 0.1)
        assert np.all(shape.skewness_error < 0.05)

    def test_distance_is_the_iad_to_a_gaussian(self) -> None:
        law = stats.gamma(40)
        draws = law.ppf((np.arange(40_000) + 0.5) / 40_000)
        rng = np.random.default_rng(0)
        shards = Subposteriors.of([rng.permutation(draws)[:, None] for _ in range(2)], kind="inflated")
        x = np.linspace(law.ppf(1e-9), law.isf(1e-9), 20_001)
        gap = np.abs(law.pdf(x) - stats.norm.pdf(x, law.mean(), law.std()))
        exact = 0.5 * np.trapezoid(gap, x)
        found = shard_shape(shards, shard_moments(shards)).distance
        assert found == pytest.approx(np.full((2, 1), exact), rel=0.05)

    @pytest.mark.parametrize("rho", [0.0, 0.8])
    def test_errors_are_those_between_repetitions(self, rho: float) -> None:
        rng = np.random.default_rng(6)
        noise = rng.normal(size=(300, 4_000, 1))
        draws = np.empty_like(noise)
        draws[:, 0] = noise[:, 0]
        for t in range(1, 4_000):
            draws[:, t] = rho * draws[:, t - 1] + np.sqrt(1 - rho**2) * noise[:, t]
        draws = np.exp(0.2 * draws)  # skewed
        shards = Subposteriors.of(draws, kind="inflated")
        shape = shard_shape(shards, shard_moments(shards))
        for values, errors in (
            (shape.skewness, shape.skewness_error),
            (shape.kurtosis, shape.kurtosis_error),
        ):
            ratio = np.var(values, ddof=1) / np.mean(errors**2)
            # A variance of 300 heavy-tailed estimates is known to a fifth; batches under-state by a tenth.
            assert 0.7 < ratio < 1.4
        gaussian = np.sqrt(6 / 4_000)
        assert (
            np.var(shape.skewness, ddof=1) > 1.5 * gaussian**2
        )  # the formula for Gaussians would be too small


class TestEstimatedCovariances:
    @staticmethod
    def shards(
        rng: np.random.Generator, d: int, num_draws: int, apart: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Sub-posteriors N(mu_b, I) whose means lie so many standard deviations from their mean."""
        means = rng.normal(size=(10, d))
        means -= means.mean(axis=0)
        means *= apart / np.sqrt(np.mean(np.sum(means**2, axis=1)))
        return means[:, None] + rng.normal(size=(10, num_draws, d)), means

    def error(self, d: int, num_draws: int, apart: float) -> tuple[float, float, float]:
        """Mean squared Mahalanobis error of the combined mean over its prediction, its error, and the prediction."""
        rng = np.random.default_rng(9)
        found, said = [], []
        for _ in range(40):
            draws, _ = self.shards(rng, d, num_draws, apart)
            shards = Subposteriors.of(draws, kind="subposterior")
            product = gaussian_product(shard_moments(shards), np.ones(10))
            found.append(10 * np.sum(product.mean**2))
            found[-1] -= d / num_draws  # of the shards' means themselves
            said.append(np.sum(cs.agreement(shards, rules=None).weights_error ** 2))
        ratio = np.array(found) / np.mean(said)
        return float(ratio.mean()), float(ratio.std(ddof=1) / np.sqrt(len(ratio))), float(np.mean(said))

    @pytest.mark.parametrize("apart", [2.0, 20.0])
    def test_is_what_it_is_said_to_be(self, apart: float) -> None:
        d, num_draws = 10, 500
        ratio, error, said = self.error(d, num_draws, apart)
        assert abs(ratio - 1.0) < 4 * error + 0.02
        formula = apart * np.sqrt(d) / np.sqrt(num_draws)
        assert np.sqrt(said) == pytest.approx(formula, rel=0.15)
        # What shards at chance distances would have is a wrong prediction here.
        chance = d / np.sqrt(num_draws)
        assert abs(ratio * said / chance**2 - 1.0) > 5 * error

    def test_warns_above_the_limit_only(self) -> None:
        rng = np.random.default_rng(1)
        close, _ = self.shards(rng, 5, 2_000, np.sqrt(5))
        assert not cs.agreement(close, kind="subposterior", rules=None).weights_warning()
        far, _ = self.shards(rng, 20, 5_000, 40.0)
        found = cs.agreement(far, kind="subposterior", rules=None)
        (text,) = found.weights_warning()
        assert text in found.warnings
        assert "0.57 posterior sd off" in text or "0.56" in text or "0.58" in text
        assert np.sqrt(np.mean(found.weights_error**2)) > WEIGHTS_LIMIT
        assert "WARNING: Covariances estimated from 5,000" in str(found)

    def test_the_number_of_draws_that_it_asks_for_is_enough(self) -> None:
        rng = np.random.default_rng(1)
        draws, _ = self.shards(rng, 5, 400, 12.0)
        (text,) = cs.agreement(draws, kind="subposterior", rules=None).weights_warning()
        wanted = int(text.split("Draw about ")[1].split()[0].replace(",", ""))
        more, _ = self.shards(rng, 5, wanted, 12.0)
        assert not cs.agreement(more, kind="subposterior", rules=None).weights_warning()


class TestRules:
    def test_no_more_than_noise_between_gaussian_shards(self) -> None:
        draws, weights = gaussian_shards(np.random.default_rng(0), (800,) * 4, 2, "subposterior")
        found = cs.agreement(draws, kind="subposterior", weights=weights)
        assert found.rules is not None
        assert not any(found.rules.beyond_noise)
        assert list(found.between_rules().columns) == ["mahalanobis", "covariance", "skew", "iad"]

    def test_skewed_shards_are_seen(self) -> None:
        draws = np.random.default_rng(0).gamma(1.0, size=(4, 2_000, 1))
        found = cs.agreement(draws, kind="inflated", rules=["swiss", "gaussian-product"])
        assert found.rules is not None
        assert found.rules.pairs == (("swiss", "gaussian-product"),)
        assert "skew" in found.rules.beyond_noise[0]
        assert "noise floors (skewness of swiss and gaussian-product)" in str(found)

    def test_a_rule_for_the_other_kind_is_refused(self) -> None:
        draws = np.random.default_rng(0).normal(size=(3, 100, 1))
        with pytest.raises(DrawsError, match="kind"):
            cs.agreement(draws, kind="inflated", rules=["consensus"])
        with pytest.raises(InputError, match="swiss"):
            cs.agreement(draws, kind="inflated", rules="swis")

    def test_a_rule_that_refuses_is_left_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from consilience.combine.recentering import Recentering

        def refuses(*_: object, **__: object) -> None:
            raise InputError("recentering: too many dimensions.")

        monkeypatch.setattr(Recentering, "combine", refuses)
        found = cs.agreement(np.random.default_rng(0).normal(size=(3, 200, 2)), kind="inflated").rules
        assert found is not None
        assert found.rules == ("swiss", "gaussian-product")
        assert found.notes == ("recentering was not run: recentering: too many dimensions.",)


class TestWords:
    def test_a_shard_that_differs_is_named_with_its_parameter(self) -> None:
        draws, weights = gaussian_shards(np.random.default_rng(0), (400,) * 6, 3, "inflated")
        draws[2] = draws[2] + np.array([0.0, 40.0, 0.0])
        shards = Subposteriors.of(
            draws,
            kind="inflated",
            weights=weights,
            names=["a", "slope", "c"],
            labels=[*"uv", "north", *"xyz"],
        )
        found = cs.agreement(shards, rules=None)
        assert found.standing_out()[0] == 2
        assert found.standing_out_in(2)[0] == 1
        assert "Shard 2 (north) stands out in slope: " in str(found)
        assert found.warnings
        assert "times as far apart" in found.warnings[0]
        assert found.by_parameter().loc["slope", "furthest"] == "north"
        assert found.by_shard().loc["north", "parameter"] == "slope"
        by_shard = found.by_shard()
        assert (by_shard["influence"] / by_shard["by_chance"]).idxmax() == "north"
        assert found.pairwise_distance().mean().idxmax() == "north"
        assert found.overlap().loc["u", "north"] == found.overlap().loc["north", "u"] < 1.0
        assert found.distances().loc["north"].abs().idxmax() == "slope"
        assert found.influence().shape == (6, 3)

    @pytest.mark.parametrize("kind", ["inflated", "subposterior"])
    def test_the_other_kind_is_suggested_where_it_explains_what_is_seen(self, kind: str) -> None:
        draws, weights = gaussian_shards(np.random.default_rng(1), (400,) * 12, 3, kind)
        good = cs.agreement(draws, kind=kind, weights=weights, rules=None)
        assert good.warnings == ()
        bad = cs.agreement(draws, kind=other(kind), weights=weights, rules=None)
        assert f"Taken for {kind} draws they would lie as chance has it" in bad.warnings[0]

    def test_shards_of_the_same_rows_are_too_close(self) -> None:
        draws = np.random.default_rng(0).normal(size=(10, 400, 3))
        found = cs.agreement(draws, kind="inflated", rules=None)
        assert "same rows" in found.warnings[0]

    def test_short_and_without_nan(self) -> None:
        for num_shards, d in itertools.product((2, 5), (1, 3)):
            draws = np.random.default_rng(0).normal(size=(num_shards, 60, d))
            text = str(cs.agreement(draws, kind="subposterior", rules=None))
            assert len(text.splitlines()) <= 9
            assert "nan" not in text.lower()


class TestWhatComesIn:
    def test_neither_order_nor_coordinates_matter(self) -> None:
        draws, weights = gaussian_shards(np.random.default_rng(0), SIZES, 3, "inflated")
        first = cs.agreement(draws, kind="inflated", weights=weights, rules=None)
        order = [3, 1, 0, 5, 4, 2]
        turn = np.array([[1.0, 50.0, 0.0], [0.0, 1e-3, 0.0], [2.0, 0.0, 1.0]])
        second = cs.agreement(
            [draws[b] @ turn.T + 100.0 for b in order], kind="inflated", weights=weights[order], rules=None
        )
        assert second.p_value == pytest.approx(first.p_value, rel=1e-6)
        first_joint = first.against_others.joint_p_values[order]
        np.testing.assert_allclose(second.against_others.joint_p_values, first_joint, rtol=1e-5)
        np.testing.assert_allclose(
            second.against_others.influence, first.against_others.influence[order], rtol=1e-5
        )
        np.testing.assert_allclose(
            second.pairs.distance, first.pairs.distance[np.ix_(order, order)], rtol=1e-5
        )

    def test_same_input_same_bits(self) -> None:
        draws = np.random.default_rng(0).normal(size=(4, 300, 2))
        first, second = (cs.agreement(draws, kind="inflated", seed=3) for _ in range(2))
        assert str(first) == str(second)
        np.testing.assert_array_equal(first.between_rules(), second.between_rules())

    def test_what_cannot_be_measured_is_refused(self) -> None:
        rng = np.random.default_rng(0)
        with pytest.raises(DrawsError, match="two shards"):
            cs.agreement(rng.normal(size=(1, 100, 2)), kind="inflated")
        with pytest.raises(DrawsError, match="kind"):
            cs.agreement(rng.normal(size=(3, 100, 2)))
        with pytest.raises(DrawsError, match="more than 9 independent"):
            cs.agreement(rng.normal(size=(3, 9, 5)), kind="inflated")
        columns = rng.normal(size=(3, 100, 2))
        with pytest.raises(DrawsError, match="linearly independent"):
            cs.agreement(np.concatenate([columns, columns[:, :, :1]], axis=2), kind="inflated")
        with pytest.raises(InputError, match="seed"):
            cs.agreement(columns, kind="inflated", seed=-1)
