"""PIE against the average of quantile functions in closed form, and everything that it promises."""

from __future__ import annotations

import dataclasses
import json
import tracemalloc
from math import lcm

import numpy as np
import pytest
from scipy import stats

from consilience.combine import combine, get_combiner
from consilience.combine.column_moments import column_moments
from consilience.combine.moments import shard_moments
from consilience.combine.pie import Pie
from consilience.combine.quantile_average import cell_averages
from consilience.draws import Subposteriors
from consilience.errors import ConsilienceWarning, DrawsError, InputError

WEIGHTS = np.array([0.2, 0.5, 0.3])
MEANS = np.array([-1.0, 2.0, 0.5])
DEVIATIONS = np.array([1.0, 0.6, 1.6])
Z_LIMIT = 4.5


def normal_shards(seed: int, sizes: tuple[int, ...] = (600, 1_000, 400)) -> Subposteriors:
    rng = np.random.default_rng([seed, 11])
    draws = [rng.normal(m, s, size=(n, 1)) for m, s, n in zip(MEANS, DEVIATIONS, sizes, strict=True)]
    return Subposteriors.of(draws, kind="inflated", weights=WEIGHTS)


def averaged_step_functions(columns: list[np.ndarray], weights: np.ndarray, number: int) -> np.ndarray:
    """sum w_b F_b⁻¹ averaged over `number` cells, on a grid on which every step function is exact."""
    fine = lcm(number, *map(len, columns))
    total = sum(w * np.repeat(np.sort(x), fine // len(x)) for w, x in zip(weights, columns, strict=True))
    return total.reshape(number, -1).mean(axis=1)


@pytest.mark.parametrize("sizes", [(40, 40, 40), (24, 40, 15), (7, 3, 4)])
def test_pie_is_the_average_of_the_quantile_functions(sizes):
    rng = np.random.default_rng(0)
    draws = [rng.exponential(size=(n, 2)) + rng.normal(size=2) for n in sizes]
    found = Pie().combine(Subposteriors.of(draws, kind="inflated", weights=WEIGHTS)).array
    for j in range(2):
        expected = averaged_step_functions([x[:, j] for x in draws], WEIGHTS, max(sizes))
        np.testing.assert_allclose(np.sort(found[:, j]), expected, rtol=1e-12)
        # The mean is that of the shards, whatever their numbers of draws.
        assert found[:, j].mean() == pytest.approx(
            sum(w * x[:, j].mean() for w, x in zip(WEIGHTS, draws, strict=True))
        )


@dataclasses.dataclass(frozen=True)
class EqualPie(Pie):
    """Averages without weights."""

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0):
        return super().combine(Subposteriors.of(list(subposteriors.draws), kind="inflated"), seed=seed)


@dataclasses.dataclass(frozen=True)
class DistributionAverage(Pie):
    """Averages distribution functions where quantile functions belong: a mixture."""

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0):
        array = np.concatenate(
            [
                np.repeat(x, round(3_000 * w / len(x)) or 1, axis=0)
                for w, x in zip(WEIGHTS, subposteriors.draws, strict=True)
            ]
        )
        return dataclasses.replace(super().combine(subposteriors), array=array)


@dataclasses.dataclass(frozen=True)
class VarianceAverage(Pie):
    """Averages variances where standard deviations belong."""

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0):
        right = super().combine(subposteriors, seed=seed)
        variance = sum(w * x.var() for w, x in zip(WEIGHTS, subposteriors.draws, strict=True))
        centred = right.array - right.array.mean()
        return dataclasses.replace(
            right, array=right.array.mean() + centred * np.sqrt(variance) / centred.std()
        )


def largest_z(rule: Pie, replicates: int = 40) -> float:
    """Mean and quantiles against N(sum w mu, (sum w s)²): that of normal quantile functions, which are linear."""
    levels = np.array([0.1, 0.5, 0.9])
    truth = WEIGHTS @ MEANS + (WEIGHTS @ DEVIATIONS) * stats.norm.ppf(levels)
    truth = np.append(truth, WEIGHTS @ MEANS)
    found = []
    for seed in range(replicates):
        array = rule.combine(normal_shards(seed)).array[:, 0]
        found.append(np.append(np.quantile(array, levels), array.mean()))
    errors = np.array(found) - truth
    return float(np.abs(errors.mean(axis=0) / (errors.std(axis=0, ddof=1) / np.sqrt(replicates))).max())


def test_normal_shards_average_their_means_and_deviations():
    assert largest_z(Pie()) < Z_LIMIT


@pytest.mark.parametrize("wrong", [EqualPie(), DistributionAverage(), VarianceAverage()], ids=repr)
def test_the_normal_oracle_rejects(wrong):
    assert largest_z(wrong) > 2 * Z_LIMIT


def test_modes_that_shards_share_stay():
    rng = np.random.default_rng(5)
    shape = lambda n: rng.choice([-2.0, 2.0], size=n) + rng.normal(scale=0.5, size=n)  # noqa: E731
    shifts = rng.normal(size=10)
    shards = Subposteriors.of([(shape(4_000) + shift)[:, None] for shift in shifts], kind="inflated")
    found = Pie().combine(shards).array[:, 0] - shifts.mean()
    between = lambda x: np.mean(np.abs(x) < 1.0)  # noqa: E731
    expected = 2 * 0.5 * (stats.norm.cdf(-2.0) - stats.norm.cdf(-6.0))
    assert between(found) == pytest.approx(expected, abs=0.02)
    # The mixture of the shifted shards fills the gap.
    assert between(get_combiner("pool").combine(shards).array[:, 0] - shifts.mean()) > expected + 0.15


def test_few_draws_lose_variance_as_the_page_says():
    # Averages over many shards tend to expected normal order statistics, by Blom's approximation.
    rng = np.random.default_rng(0)
    for size, said in ((100, 0.03), (1_000, 0.004)):
        expected = stats.norm.ppf((np.arange(1, size + 1) - 0.375) / (size + 0.25))
        shards = Subposteriors.of(rng.normal(size=(400, size, 1)), kind="inflated")
        found = Pie().combine(shards).array.var()
        # The average of 400 shards has a variance with a relative standard error of sqrt(2 / (400 size)).
        assert found == pytest.approx(expected.var(), abs=Z_LIMIT * np.sqrt(2 / (400 * size)))
        assert 1.0 - expected.var() == pytest.approx(said, rel=0.2)


def test_one_shard_comes_out_as_it_went_in():
    draws = np.random.default_rng(0).normal(size=(500, 3)) @ np.array([[1, 2, 0], [0, 1, 5], [0, 0, 1e-6]])
    found = Pie().combine(Subposteriors.of([draws], kind="inflated"))
    np.testing.assert_array_equal(found.array, draws)


def test_rows_keep_the_dependence_of_the_shards():
    rng = np.random.default_rng(2)
    covariance = [[1.0, -0.8], [-0.8, 1.0]]
    draws = [rng.multivariate_normal(rng.normal(size=2), covariance, size=n) for n in (3_000, 5_000, 4_000)]
    found = Pie().combine(Subposteriors.of(draws, kind="inflated", weights=WEIGHTS))
    correlation = np.corrcoef(found.array, rowvar=False)[0, 1]
    # Standard error of a correlation of n draws: (1 - rho²) / sqrt(n).
    assert correlation == pytest.approx(-0.8, abs=Z_LIMIT * 0.36 / np.sqrt(5_000))
    assert not Pie.joint
    assert "without a theory of the joint law" in found.notes[0]


def test_functions_are_combined_as_columns_of_their_own():
    rng = np.random.default_rng(3)
    draws = [rng.normal(size=(n, 2)) for n in (300, 200)]
    functions = {
        "contrast": {"a": 1.0, "b": -1.0},
        "ratio": lambda values: values["a"] / (3.0 + values["b"] ** 2),
        "both": lambda values: np.stack([values["a"], values["a"] * values["b"]], axis=1),
    }
    posterior = combine(
        draws, method="pie", kind="inflated", weights=[1, 3], names=["a", "b"], functions=functions
    )
    assert posterior.names == ("contrast", "ratio", "both[0]", "both[1]")
    values = [
        np.stack([x[:, 0] - x[:, 1], x[:, 0] / (3 + x[:, 1] ** 2), x[:, 0], x[:, 0] * x[:, 1]], axis=1)
        for x in draws
    ]
    for j in range(4):
        expected = averaged_step_functions([x[:, j] for x in values], np.array([0.25, 0.75]), 300)
        np.testing.assert_allclose(np.sort(posterior.array[:, j]), expected, atol=1e-12)
    # A linear combination of averaged columns is something else: quantile functions are not linear in them.
    plain = combine(draws, method="pie", kind="inflated", weights=[1, 3], names=["a", "b"]).array
    assert np.abs(np.sort(plain[:, 0] - plain[:, 1]) - np.sort(posterior.array[:, 0])).max() > 1e-3


@dataclasses.dataclass(frozen=True)
class LogScale:
    """A positive parameter, sampled as its logarithm."""

    dimension: int = 1
    coordinate_names: tuple[str, ...] = ("log_scale",)
    names: tuple[str, ...] = ("scale",)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {"scale": ()}

    def to_user(self, array: np.ndarray) -> np.ndarray:
        return np.exp(array)


def test_parameters_are_averaged_unconstrained_and_functions_as_the_user_sees_them():
    draws = np.random.default_rng(0).normal(size=(2, 200, 1)) * [[[0.5]], [[1.0]]]
    shards = Subposteriors.of(draws, kind="inflated", space=LogScale())
    ordered = np.sort(draws[:, :, 0], axis=1)
    plain = combine(shards, method="pie")
    assert plain.names == ("scale",)
    np.testing.assert_allclose(np.sort(plain.array[:, 0]), np.exp(ordered.mean(axis=0)))
    found = combine(shards, method="pie", functions={"same": {"scale": 1.0}})
    np.testing.assert_allclose(np.sort(found.array[:, 0]), np.exp(ordered).mean(axis=0))


def test_functions_may_be_more_than_the_draws_of_a_shard():
    draws = np.random.default_rng(3).normal(size=(4, 50, 2))
    points = np.random.default_rng(4).normal(size=(2, 400))
    rule = Pie(functions={"predictor": lambda values: values["theta"] @ points})
    found = rule.combine(Subposteriors.of(draws, kind="inflated"))
    assert found.array.shape == (50, 400)
    assert found.names[-1] == "predictor[399]"


def test_functions_are_recorded_and_saved(tmp_path):
    from consilience import load

    draws = np.random.default_rng(0).normal(size=(2, 100, 1))
    functions = {"square": lambda values: values["a"] ** 2, "double": {"a": 2.0}}
    posterior = combine(draws, method="pie", kind="inflated", names=["a"], functions=functions)
    recorded = json.loads(json.dumps(posterior.info))["options"]["functions"]
    assert recorded["double"] == {"a": 2.0}
    assert "<lambda>" in recorded["square"]
    posterior.save(tmp_path / "squares.npz")
    assert load(tmp_path / "squares.npz").names == ("square", "double")


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ("a", "`functions` must be a dict of names"),
        ({}, "`functions` must be a dict of names"),
        ({"f": 3.0}, "`functions` must be a dict of names"),
        ({"f": {"c": 1.0}}, "`f` must be made of known parameters. Got 'c'"),
        ({"f": lambda values: np.log(values["a"])}, "`f` must be one finite number.*NaN"),
        ({"f": lambda values: values["a"][:3]}, "`f` must be one finite number.*shape"),
        ({"f": lambda values: values["a"] > 99.0}, "`f` must be a function that takes more than one value"),
    ],
)
def test_functions_that_cannot_be_combined_are_refused(functions, message):
    draws = np.random.default_rng(0).normal(size=(2, 100, 2))
    with np.errstate(invalid="ignore"), pytest.raises(InputError, match=message):
        combine(draws, method="pie", kind="inflated", names=["a", "b"], functions=functions)


def test_fit_combines_functions_only_without_refinement():
    import consilience as cs

    rows = {"x": np.zeros(10), "y": np.zeros(10)}
    with pytest.raises(InputError, match="fit: `refine` must be None where functions of the parameters"):
        cs.fit(cs.glm("y ~ x"), rows, shards=2, method="pie", functions={"double": {"x": 2.0}})


def test_unequal_spreads_are_warned_of():
    rng = np.random.default_rng(0)
    with pytest.warns(ConsilienceWarning, match=r"for b their average is 1\.[89] times.*1 of 2 columns"):
        combine(
            [rng.normal(size=(500, 2)), rng.normal(size=(500, 2)) * [1.0, 4.0]],
            method="pie",
            kind="inflated",
            names=["a", "b"],
        )


def autoregression(rng: np.random.Generator, length: int, persistence: float) -> np.ndarray:
    from scipy.signal import lfilter

    return lfilter([1.0], [1.0, -persistence], rng.normal(size=length + 200))[200:]


@pytest.mark.parametrize("lengths", [(4_000,), (2_000, 2_000), (1_500, 2_100, 400)])
@pytest.mark.parametrize("persistence", [0.0, 0.7, 0.999])
def test_moments_of_a_column_are_those_of_a_shard_with_one_parameter(lengths, persistence):
    rng = np.random.default_rng(1)
    x = np.concatenate([autoregression(rng, length, persistence) for length in lengths])[:, None]
    shards = Subposteriors.of([x], kind="inflated", chain_lengths=[lengths])
    known, found = shard_moments(shards), column_moments(x.T.copy(), lengths)
    np.testing.assert_allclose(found.means, known.means[0])
    np.testing.assert_allclose(found.deviations**2, known.covariances[0, 0])
    np.testing.assert_allclose(found.mean_errors, known.mean_errors[0, 0])
    assert found.slow == bool(known.slow)


def test_effective_sizes_count_autocorrelation():
    rng = np.random.default_rng(0)
    chains = [autoregression(rng, 20_000, 0.8)[:, None] for _ in range(4)]
    found = Pie().combine(Subposteriors.of(chains, kind="inflated"))
    # (1 + 0.8) / (1 - 0.8) = 9 draws are worth one.
    assert found.effective_sizes[0] == pytest.approx(4 * 20_000 / 9, rel=0.25)


def test_slow_chains_are_warned_of():
    rng = np.random.default_rng(0)
    chains = [autoregression(rng, 1_000, 0.999)[:, None], rng.normal(size=(1_000, 1)) * 15]
    assert (
        "Chains of 1 of 2 shards are too short"
        in Pie().combine(Subposteriors.of(chains, kind="inflated")).warnings[-1]
    )


def test_extreme_scales_lose_nothing():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(3, 500, 2))
    mapped = draws * [1e-9, 1e9] + [0.0, 1e12]
    plain = Pie().combine(Subposteriors.of(draws, kind="inflated")).array
    found = Pie().combine(Subposteriors.of(mapped, kind="inflated")).array
    # Shards go by what their draws are, so rows may come in another order.
    plain, found = np.sort(plain, axis=0), np.sort(found, axis=0)
    np.testing.assert_allclose(found[:, 0] * 1e9, plain[:, 0], atol=1e-12)
    np.testing.assert_allclose((found[:, 1] - 1e12) / 1e9, plain[:, 1], atol=1e-6)


def test_repeated_draws_are_taken_as_they_are():
    draws = np.random.default_rng(0).normal(size=(2, 100, 1)).repeat(3, axis=1)
    found = Pie().combine(Subposteriors.of(draws, kind="inflated"))
    np.testing.assert_allclose(np.sort(found.array[:, 0]), np.sort(draws[:, :, 0], axis=1).mean(axis=0))


def test_memory_stays_below_three_copies():
    draws = np.random.default_rng(0).normal(size=(10, 5_000, 20))
    shards = Subposteriors.of(draws, kind="inflated")
    Pie().combine(shards)
    tracemalloc.start()
    Pie().combine(shards)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # With the draws themselves, three copies in all.
    assert peak < 2 * draws.nbytes


def test_cells_keep_the_mean_whatever_their_number():
    ordered = np.sort(np.random.default_rng(0).normal(size=(1, 13)), axis=1)
    for number in (13, 14, 20, 26, 1_000):
        cells = cell_averages(ordered, number)
        assert cells.mean() == pytest.approx(ordered.mean())
        assert np.all(np.diff(cells) >= 0)


def test_subposterior_draws_are_refused():
    with pytest.raises(DrawsError, match="`kind` must be 'inflated' for method 'pie'"):
        combine(np.random.default_rng(0).normal(size=(2, 50, 1)), method="pie", kind="subposterior")
