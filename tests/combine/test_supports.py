"""Declared supports: the bijections, the columns that they are about, and combination in the space behind them."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest
from scipy import stats

from consilience.combine import combine
from consilience.combine.bijections import SUPPORTS, outside
from consilience.combine.inputs import gather
from consilience.combine.supports import SupportSpace
from consilience.draws import Subposteriors
from consilience.errors import ConsilienceWarning, DrawsError, InputError

SHAPES = {"positive": (), "unit": (2,), "simplex": (2, 3), "ordered": (3,), "correlation": (3, 3)}


def names_of(parameter: str, shape: tuple[int, ...], origin: int = 0) -> list[str]:
    indices = (",".join(str(i + origin) for i in index) for index in np.ndindex(*shape))
    return [f"{parameter}[{index}]" for index in indices] if shape else [parameter]


def coordinates(space: SupportSpace, number: int = 50, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(number, space.dimension))


@pytest.mark.parametrize("support", SUPPORTS)
def test_there_and_back(support):
    shape = SHAPES[support]
    space = SupportSpace(["a", *names_of("p", shape), "z"], {"p": support})
    flat = coordinates(space)
    user = space.to_user(flat)
    values = user[:, 1:-1].reshape(50, *shape)
    assert not outside(support, values).any()
    np.testing.assert_array_equal(user[:, [0, -1]], flat[:, [0, -1]])
    (back,) = space.to_coordinates([user], ["0"])
    np.testing.assert_allclose(back, flat, atol=1e-8)
    assert len(space.coordinate_names) == len(set(space.coordinate_names)) == space.dimension


@pytest.mark.parametrize("support", SUPPORTS)
def test_jacobian_is_the_determinant_of_differences(support):
    """Of a simplex the last entry and of a correlation matrix all but the lower triangle follow from the rest."""
    shape = {"simplex": (4,)}.get(support, SHAPES[support])
    space = SupportSpace(names_of("p", shape), {"p": support})
    free = {
        "simplex": [0, 1, 2],
        "correlation": [3, 6, 7],
    }.get(support, list(range(max(1, int(np.prod(shape))))))
    point = 0.7 * coordinates(space, 1, seed=3)[0]
    step = 1e-6
    moved = np.array([point + sign * step * e for e in np.eye(len(point)) for sign in (1, -1)])
    user = space.to_user(moved)[:, free]
    differences = (user[0::2] - user[1::2]) / (2 * step)
    expected = np.log(abs(np.linalg.det(differences)))
    found = space.log_jacobian(point[None])[0]
    assert abs(found - expected) < 1e-6
    wrong = -found  # the inverse map's
    assert abs(wrong - expected) > 0.1


def lognormal_shards(seed: int = 0) -> list[np.ndarray]:
    """Three inflated shards: a mean, and a scale that is close to zero for its spread."""
    rng = np.random.default_rng(seed)
    shards = []
    for b in range(3):
        u = rng.multivariate_normal([b, -2 + 0.2 * b], [[1, 0.5], [0.5, 1.5]], size=800)
        shards.append(np.column_stack([u[:, 0], np.exp(u[:, 1])]))
    return shards


@pytest.mark.parametrize("method", ["swiss", "recentering"])
def test_a_scale_is_combined_as_its_logarithm(method):
    shards = lognormal_shards()
    found = combine(
        shards, method=method, kind="inflated", names=["mu", "sigma"], supports={"sigma": "positive"}
    )
    logs = [np.column_stack([x[:, 0], np.log(x[:, 1])]) for x in shards]
    expected = combine(logs, method=method, kind="inflated").array
    np.testing.assert_allclose(found.coordinates, expected, atol=1e-10)
    np.testing.assert_allclose(found.array[:, 1], np.exp(expected[:, 1]), rtol=1e-12)
    assert found.names == ("mu", "sigma")
    assert found.info["supports"] == {"sigma": "positive"}
    assert found.info["notes"] == []


def test_without_a_declaration_there_is_a_hint_and_a_warning_of_what_went_wrong():
    with pytest.warns(ConsilienceWarning, match=r"not positive .*sigma \([\d.]+ %\)"):
        found = combine(lognormal_shards(), method="swiss", kind="inflated", names=["mu", "sigma"])
    assert found.array[:, 1].min() < 0
    (hint,) = found.info["notes"]
    assert hint.startswith("sigma is positive in all draws")
    assert "supports={'sigma': 'positive'}" in hint
    assert "--support sigma=positive" in hint


def test_a_hint_is_given_for_positive_columns_only():
    shards = [x * [1, -1] for x in lognormal_shards()]
    assert combine(shards, method="swiss", kind="inflated").info["notes"] == []
    far = [x + np.array([50.0, 0.0]) for x in shards]
    (hint,) = combine(far, method="swiss", kind="inflated").info["notes"]
    assert hint.startswith("theta[0] is positive")


def test_a_vector_that_sums_to_one_gets_a_hint_of_its_own():
    draws = np.random.default_rng(0).dirichlet([2, 3, 4], size=(2, 100)).round(6)
    names = ["p[0]", "p[1]", "p[2]"]
    _, hint = gather(draws, kind="inflated", names=names).notes
    assert "--support p=simplex" in hint
    assert len(gather(draws * 1.1, kind="inflated", names=names).notes) == 1


def test_columns_beside_declared_ones_keep_their_hints():
    """A simplex before them has fewer coordinates than columns."""
    rng = np.random.default_rng(0)
    shards = [
        np.column_stack([rng.dirichlet([2, 3, 4], size=200), rng.lognormal(size=(200, 2))]) for _ in "ab"
    ]
    names = ["p[0]", "p[1]", "p[2]", "tau", "sigma"]
    supports = {"p": "simplex", "tau": "positive"}
    found = gather(shards, kind="inflated", names=names, supports=supports)
    assert found.positive == (4,)
    assert found.notes[0].startswith("sigma is positive")
    with pytest.warns(ConsilienceWarning, match=r"not positive .*: sigma \("):
        combine(shards, method="swiss", kind="inflated", names=names, supports=supports)


def test_combined_draws_of_every_support_lie_inside():
    rng = np.random.default_rng(0)
    names = [name for support, shape in SHAPES.items() for name in names_of(support, shape, origin=1)]
    supports = {support: support for support in SUPPORTS}
    space = SupportSpace(names, supports)
    flat = [rng.normal(0.3 * b, 0.7, size=(300, space.dimension)) for b in range(3)]
    found = combine(
        [space.to_user(x) for x in flat], method="swiss", kind="inflated", names=names, supports=supports
    )
    for support in SUPPORTS:
        assert found.draws[support].shape == (900, *SHAPES[support])
        assert not outside(support, found.draws[support]).any()
    np.testing.assert_allclose(
        found.coordinates, combine(flat, method="swiss", kind="inflated").array, atol=1e-6
    )
    # The same without declarations is refused: entries of a simplex depend on each other, a diagonal is constant.
    with pytest.raises(DrawsError, match=r"constant one.*correlation\[1,1\]"):
        combine([space.to_user(x) for x in flat], method="swiss", kind="inflated", names=names)


def test_columns_in_any_order_keep_their_places():
    """R and others write matrices by column, and columns between each other."""
    names = ["C[1,1]", "C[2,1]", "a", "C[1,2]", "C[2,2]"]
    space = SupportSpace(names, {"C": "correlation"})
    assert space.coordinate_names == ("free(C)[0]", "a")
    user = space.to_user(np.array([[0.5, 9.0]]))
    np.testing.assert_allclose(user, [[1, np.tanh(0.5), 9, np.tanh(0.5), 1]])
    (back,) = space.to_coordinates([user], ["0"])
    np.testing.assert_allclose(back, [[0.5, 9.0]])
    space = SupportSpace(["z[2]", "a", "z[0]", "z[1]"], {"z": "ordered"})
    user = space.to_user(np.array([[1.0, 0.0, np.log(2), 9.0]]))
    np.testing.assert_allclose(user, [[4, 9, 1, 2]])
    (back,) = space.to_coordinates([user], ["0"])
    np.testing.assert_allclose(back, [[1.0, 0.0, np.log(2), 9.0]], atol=1e-12)


def test_few_digits_are_put_right():
    simplex = np.array([[0.3333, 0.3333, 0.3333], [0.2, 0.3, 0.5]])
    matrix = np.array([[1.00001, 0.5, 0.50004, 1.0]])
    space = SupportSpace(["p[0]", "p[1]", "p[2]"], {"p": "simplex"})
    (flat,) = space.to_coordinates([simplex], ["0"])
    np.testing.assert_allclose(space.to_user(flat)[0], [1 / 3] * 3)
    space = SupportSpace(["C[0,0]", "C[0,1]", "C[1,0]", "C[1,1]"], {"C": "correlation"})
    (flat,) = space.to_coordinates([matrix], ["0"])
    np.testing.assert_allclose(space.to_user(flat)[0], [1, 0.50002, 0.50002, 1], atol=1e-5)


@pytest.mark.parametrize(
    ("supports", "words"),
    [
        ("sigma", "a dict of parameters"),
        ({"sigma": "positve"}, "Did you mean 'positive'"),
        ({"sgima": "positive"}, "Did you mean 'sigma'"),
        ({"sigma": "simplex"}, "only for a vector.*a single number"),
        ({"p": "correlation"}, r"only for a square matrix.*shape \(3,\)"),
        ({"p": "positive", "p[1]": "unit"}, r"declared once.*p and p\[1\]"),
        ({"q": "ordered"}, r"for a whole parameter.*q\[0\], q\[2\]"),
    ],
)
def test_declarations_that_do_not_fit(supports, words):
    names = ["sigma", "p[0]", "p[1]", "p[2]", "q[0]", "q[2]"]
    draws = np.random.default_rng(0).normal(size=(2, 50, 6))
    with pytest.raises(InputError, match=words):
        combine(draws, method="swiss", kind="inflated", names=names, supports=supports)


@pytest.mark.parametrize(
    ("support", "bad"),
    [
        ("positive", [-0.5, 0.2, 0.8]),
        ("positive", [0.0, 0.2, 0.8]),
        ("unit", [0.5, 0.2, 1.0]),
        ("simplex", [0.5, 0.2, 0.2]),
        ("simplex", [1.2, -0.4, 0.2]),
        ("ordered", [0.1, 0.1, 0.8]),
    ],
)
def test_a_draw_outside_is_refused_by_shard_and_parameter(support, bad):
    inside = np.sort(np.random.default_rng(0).dirichlet(np.ones(3), size=40), axis=1)
    spoiled = inside.copy()
    spoiled[[3, 9]] = bad
    names = ["p[0]", "p[1]", "p[2]"]
    with pytest.raises(DrawsError, match=r"supports\['p'\].*2 of 40 draws outside in shard 1"):
        combine([inside, spoiled], method="swiss", kind="inflated", names=names, supports={"p": support})


def test_a_matrix_that_is_no_correlation_is_refused():
    good = np.tile([1.0, 0.4, 0.4, 1.0], (40, 1)) + 0.0
    good[:, 1] = good[:, 2] = np.random.default_rng(0).uniform(-0.5, 0.5, size=40)
    names = ["C[0,0]", "C[0,1]", "C[1,0]", "C[1,1]"]
    for column, value in ((0, 2.0), (1, 0.9), (3, np.nan)):
        spoiled = good.copy()
        spoiled[5, column] = value
        with pytest.raises(DrawsError, match="shard 1"):
            combine(
                [good, spoiled], method="swiss", kind="inflated", names=names, supports={"C": "correlation"}
            )
    spoiled = good.copy()
    spoiled[5, 1:3] = 1.0
    assert outside("correlation", spoiled.reshape(40, 2, 2)).tolist().index(True) == 5


class TestLogDensities:
    """Densities of the draws get the Jacobian; those of the sampler's own coordinates have it already."""

    draws = np.random.default_rng(0).lognormal(-1, 0.5, size=(2, 100, 1))
    of_draws = stats.lognorm(0.5, scale=np.exp(-1)).logpdf(draws[..., 0])
    of_logs = stats.norm(-1, 0.5).logpdf(np.log(draws[..., 0]))

    def test_of_the_draws(self):
        shards = Subposteriors.of(
            self.draws, kind="inflated", names=["sigma"], log_densities=list(self.of_draws)
        )
        found = gather(shards, supports={"sigma": "positive"}).subposteriors
        np.testing.assert_allclose(found.log_densities, self.of_logs)
        assert np.abs(self.of_draws - self.of_logs).max() > 0.5

    def test_of_the_sampler(self):
        arviz = pytest.importorskip("arviz")
        data = [
            arviz.from_dict(posterior={"sigma": x.T}, sample_stats={"lp": lp[None]})
            for x, lp in zip(self.draws, self.of_logs, strict=True)
        ]
        found = gather(data, kind="inflated", supports={"sigma": "positive"})
        np.testing.assert_allclose(found.subposteriors.log_densities, self.of_logs)
        assert found.unconstrained_densities
        assert found.positive == ()
        assert gather(data, kind="inflated").positive == (0,)


def test_subposteriors_with_a_space_are_not_contradicted():
    shards = Subposteriors.of(
        lognormal_shards(), kind="inflated", names=["mu", "sigma"], weights=[0.5, 0.25, 0.25]
    )
    found = gather(shards, supports={"sigma": "positive"}).subposteriors
    np.testing.assert_array_equal(found.weights, [0.5, 0.25, 0.25])
    assert pickle.loads(pickle.dumps(found)).space.coordinate_names == ("mu", "log(sigma)")
    with pytest.raises(InputError, match="a space of their own"):
        combine(found, method="swiss", supports={"sigma": "positive"})
    assert dataclasses.replace(shards).names == ("mu", "sigma")


def test_unequal_shards_share_compiled_programs():
    """40 lengths between two powers of two need two programs."""
    from consilience.combine import bijections

    bijections._compiled.cache_clear()
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(0.1, 0.9, size=(n, 1)) for n in range(20, 60)]
    SupportSpace(["p"], {"p": "unit"}).to_coordinates(arrays, [str(b) for b in range(40)])
    assert bijections._compiled("unit", "backward")._cache_size() == 2
