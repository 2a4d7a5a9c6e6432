import numpy as np
import pytest

from consilience.draws import Posterior, Subposteriors, shapes_from_names
from consilience.errors import DrawsError, InputError


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


class TestSubposteriors:
    def test_ragged_shards_chains_and_integers(self):
        shards = Subposteriors.of(
            [normal(30, 2), normal(3, 20, 2), np.arange(40).reshape(20, 2) ** 2],
            kind="inflated",
            weights=[0.5, 0.25, 0.25],
            labels=["north", "south", "west"],
        )
        assert shards.num_draws == (30, 60, 20)
        assert shards.chain_lengths == ((30,), (20, 20, 20), (20,))
        assert shards.draws[2].dtype == np.float64
        assert shards.draws[2][3, 1] == 49
        assert shards.names == ("theta[0]", "theta[1]")
        with pytest.raises(ValueError, match="read-only"):
            shards.draws[0][0] = 1

    def test_one_parameter_as_flat_lists(self):
        assert Subposteriors.of([normal(9), normal(7)], kind="subposterior").dimension == 1

    def test_thinning_keeps_rows_with_their_densities(self):
        draws = normal(2, 2, 10, 3)
        shards = Subposteriors.of(
            draws, kind="inflated", log_densities=draws.sum(axis=-1).reshape(2, 20), names=list("abc")
        )
        thin = shards.thinned([6, 50])
        assert thin.num_draws == (6, 20)
        assert sum(thin.chain_lengths[0]) == 6
        np.testing.assert_allclose(thin.log_densities[0], thin.draws[0].sum(axis=1))

    @pytest.mark.parametrize(
        ("draws", "words"),
        [
            (normal(3, 5, 8), "at least 9 per shard for 8 parameters.*5 draws in shard 0"),
            ([normal(9, 2), normal(9, 3)], "same dimension.*3 columns in shard 1"),
            ([normal(9, 2), np.full((9, 2), np.nan)], "finite in shard 1.*theta"),
            ([normal(9, 2), normal(9, 2) * [1, 0]], r"shard 1 has a constant one.*theta\[1\]"),
            (normal(9, 2), r"draws\[:, :, None\]"),
            ([], "one array of draws per shard"),
            ([np.array([["a", "b"]] * 9)], "real numbers in shard 0"),
            ([normal(9, 2) + 1j], "real numbers in shard 0"),
            ([normal(2, 2, 9, 2)], "shard 0"),
        ],
    )
    def test_refusals_name_the_shard(self, draws, words):
        with pytest.raises(DrawsError, match=words):
            Subposteriors.of(draws, kind="inflated")

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"kind": None}, "kind.*'subposterior' or 'inflated'"),
            ({"kind": "sub"}, "kind"),
            ({"kind": "inflated", "weights": [1, 2]}, "sum to 1"),
            ({"kind": "inflated", "weights": [1.5, -0.5]}, "positive"),
            ({"kind": "inflated", "names": ["a", "a"]}, "different"),
            ({"kind": "inflated", "names": ["a"]}, "2 names"),
            ({"kind": "inflated", "labels": ["a"]}, "labels"),
            ({"kind": "inflated", "chain_lengths": [(9,), (4, 4)]}, "sum to the 9 draws"),
            ({"kind": "inflated", "log_densities": [np.zeros(9), np.zeros(8)]}, "one number per draw"),
        ],
    )
    def test_refused_options(self, options, words):
        with pytest.raises(DrawsError, match=words):
            Subposteriors.of(normal(2, 9, 2), **options)


class TestPosterior:
    def test_parameters_by_name(self):
        posterior = Posterior(normal(10, 4), names=("a", "L[0]", "L[1]", "L[2]"))
        assert posterior.shapes == {"a": (), "L": (3,)}
        assert {k: v.shape for k, v in posterior.draws.items()} == {"a": (10,), "L": (10, 3)}
        np.testing.assert_array_equal(posterior.draws["L"][:, 1], posterior.array[:, 2])
        with pytest.raises(ValueError, match="read-only"):
            posterior.array[0] = 0

    def test_shapes_need_a_full_run_in_row_major_order(self):
        assert shapes_from_names(["b[1,1]", "b[1,2]", "b[2,1]", "b[2,2]"]) == {"b": (2, 2)}
        # Stan's own order is by column: left as scalars, not transposed in silence.
        assert list(shapes_from_names(["b[1,1]", "b[2,1]", "b[1,2]", "b[2,2]"]).values()) == [()] * 4
        assert shapes_from_names(["b[0]", "b[2]"]) == {"b[0]": (), "b[2]": ()}
        assert shapes_from_names(["C(x)[T.2]", "C(x)[T.3]"]) == {"C(x)[T.2]": (), "C(x)[T.3]": ()}

    def test_summary(self):
        posterior = Posterior(normal(4000, 2) * [1, 5], names=("a", "b"), chain_lengths=(2000, 2000))
        table = posterior.summary()
        assert table.index.name == "parameter"
        assert list(table) == ["mean", "sd", "2.5%", "97.5%", "mcse", "ess", "ess_tail"]
        np.testing.assert_allclose(table["sd"], [1, 5], rtol=4 / np.sqrt(8000))
        np.testing.assert_allclose(table["97.5%"], [1.96, 9.8], rtol=0.05)
        np.testing.assert_allclose(table["mcse"], table["sd"] / np.sqrt(4000), rtol=0.2)
        assert list(posterior.summary(interval=0.9))[2:4] == ["5%", "95%"]
        with pytest.raises(InputError, match="interval"):
            posterior.summary(interval=95)

    def test_given_effective_sizes_are_used(self):
        posterior = Posterior(normal(1000, 2), effective_sizes=[100.0, 4000.0])
        table = posterior.summary()
        assert table["ess"].tolist() == [100, 4000]
        assert table["ess_tail"].tolist() == [100, 1000]
        np.testing.assert_allclose(table["mcse"], table["sd"] / np.sqrt([100, 4000]))

    def test_effective_size_of_ragged_chains_is_their_sum(self):
        x = normal(900, 1)
        whole = Posterior(x, chain_lengths=(300, 600)).effective_size()
        parts = Posterior(x[:300]).effective_size() + Posterior(x[300:]).effective_size()
        np.testing.assert_allclose(whole, parts)

    def test_weighted_moments_are_those_of_the_target(self):
        """Draws of N(0, 2^2) weighted to N(1, 1): mean, sd and quantiles within 4 standard errors."""
        x = 2 * normal(40_000, 1)
        log_weights = -0.5 * (x[:, 0] - 1) ** 2 + 0.125 * x[:, 0] ** 2
        posterior = Posterior(x, log_weights=log_weights + 1e4)
        size = posterior.effective_size()[0]
        assert 0.2 * 40_000 < size < 0.7 * 40_000  # Kish
        assert abs(posterior.mean()[0] - 1) < 4 / np.sqrt(size)
        assert abs(posterior.sd()[0] - 1) < 4 / np.sqrt(2 * size)
        assert abs(np.sqrt(posterior.cov()[0, 0]) - posterior.sd()[0]) < 1e-12
        assert np.abs(posterior.quantile([0.025, 0.5, 0.975])[:, 0] - [-0.96, 1, 2.96]).max() < 0.1
        assert abs(Posterior(x).mean()[0] - 1) > 4 / np.sqrt(size)  # without weights it is another law

    def test_equal_weights_change_nothing(self):
        x = normal(500, 3)
        plain, weighted = Posterior(x), Posterior(x, log_weights=np.full(500, -1e5))
        np.testing.assert_allclose(weighted.mean(), plain.mean(), atol=1e-14)
        np.testing.assert_allclose(weighted.cov(), plain.cov(), atol=1e-13)
        np.testing.assert_allclose(weighted.sd(), plain.sd(), atol=1e-13)
        np.testing.assert_allclose(weighted.quantile(0.3), plain.quantile(0.3), atol=0.02)

    def test_systematic_resampling_keeps_every_share(self):
        weights = np.array([0.07, 0.4, 0.03, 0.5])
        posterior = Posterior(np.arange(4.0)[:, None], log_weights=np.log(weights), chain_lengths=(2, 2))
        for seed in range(50):
            counts = np.bincount(posterior.resample(10, seed).array[:, 0].astype(int), minlength=4)
            assert (counts >= np.floor(10 * weights)).all()
            assert (counts <= np.ceil(10 * weights)).all()
        drawn = posterior.resample(10, 1)
        assert drawn.log_weights is None
        assert sum(drawn.chain_lengths) == 10
        np.testing.assert_array_equal(drawn.array, posterior.resample(10, 1).array)

    def test_resampling_repeats_do_not_pass_for_draws(self):
        posterior = Posterior(normal(500, 1))
        assert posterior.resample(5000).effective_size("mean")[0] < 700
        assert Posterior(normal(500, 1), effective_sizes=[500.0]).resample(50).effective_sizes[
            0
        ] == pytest.approx(50)

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"array": normal(5)}, "draws, parameters"),
            ({"array": np.full((5, 1), np.inf)}, r"finite.*theta\[0\] \(5\)"),
            ({"array": normal(5, 2), "names": ("a",)}, "2 names"),
            ({"array": normal(5, 2), "log_weights": np.full(5, -np.inf)}, "log_weights"),
            ({"array": normal(5, 2), "log_weights": np.zeros(4)}, "5 numbers"),
            ({"array": normal(5, 2), "shapes": {"a": (3,)}}, "2 columns"),
            ({"array": normal(5, 2), "coordinates": normal(4, 2)}, "5 rows"),
            ({"array": normal(5, 2), "effective_sizes": [1.0]}, "2 positive numbers"),
            ({"array": normal(5, 2), "chain_lengths": (2, 2)}, "sum to the 5 draws"),
        ],
    )
    def test_refusals(self, options, words):
        with pytest.raises(DrawsError, match=words):
            Posterior(**options)

    def test_to_arviz(self):
        pytest.importorskip("arviz")
        posterior = Posterior(normal(20, 3), names=("a", "b[0]", "b[1]"), chain_lengths=(10, 10))
        group = posterior.to_arviz()["posterior"]
        assert group["b"].shape == (2, 10, 2)
        np.testing.assert_array_equal(group["b"].values[1, 3], posterior.array[13, 1:])

    def test_to_arviz_resamples_weighted_draws(self):
        pytest.importorskip("arviz")
        posterior = Posterior(np.arange(2.0)[:, None], names=("a",), log_weights=[0.0, -np.inf])
        assert posterior.to_arviz()["posterior"]["a"].values.tolist() == [[0.0, 0.0]]

    def test_without_arviz_the_extra_is_named(self, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "arviz", None)
        with pytest.raises(InputError, match=r'pip install "consilience\[arviz\]"'):
            Posterior(normal(5, 1)).to_arviz()
