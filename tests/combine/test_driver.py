"""`combine`: every form of draws, what it records, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest

from consilience.combine import combine, get_combiner, methods
from consilience.draws import Posterior, Subposteriors
from consilience.errors import DrawsError, InputError

RNG = np.random.default_rng(0)
DRAWS = RNG.normal(size=(3, 200, 2)) + np.array([1.0, -1.0])


def test_records_what_was_done():
    posterior = combine(
        DRAWS,
        method="consensus",
        kind="subposterior",
        weights=[1, 1, 2],
        names=["a", "b"],
        weighting="diagonal",
    )
    assert isinstance(posterior, Posterior)
    assert posterior.names == ("a", "b")
    info = json.loads(json.dumps(posterior.info))
    assert info["method"] == "consensus"
    assert info["kind"] == "subposterior"
    assert info["weights"] == [0.25, 0.25, 0.5]
    assert info["options"] == {"weighting": "diagonal"}
    assert info["notes"] == info["warnings"] == []


def test_accepts_lists_integers_and_subposteriors():
    whole = RNG.integers(0, 50, size=(3, 200, 2))
    first = combine(whole, method="swiss", kind="inflated").array
    second = combine(list(whole.astype(float)), method="swiss", kind="inflated").array
    third = combine(Subposteriors.of(whole, kind="inflated"), method="swiss").array
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, third)


@pytest.mark.parametrize(
    ("draws", "message"),
    [
        (DRAWS[0], "shards, draws, parameters"),
        (DRAWS.astype(object) + 1j, "real numbers"),
        ([], "draws"),
        ("shard.csv", "a list with one entry per shard"),
        ([DRAWS[0], DRAWS[1][:, :1]], "dimension"),
    ],
)
def test_refuses_other_shapes(draws, message):
    with pytest.raises(DrawsError, match=message):
        combine(draws, method="swiss", kind="inflated")


@pytest.mark.parametrize("weights", [[1, 2], [1, 2, -3], [1, 2, np.nan], "abc", [0, 1, 1]])
def test_refuses_bad_weights(weights):
    with pytest.raises(DrawsError, match="`weights` must be 3 positive numbers"):
        combine(DRAWS, method="swiss", kind="inflated", weights=weights)


def test_unknown_method_and_option():
    with pytest.raises(InputError, match="Did you mean 'consensus'"):
        combine(DRAWS, method="concensus", kind="subposterior")
    with pytest.raises(InputError, match="Known rules: swiss, consensus"):
        combine(DRAWS, method="zzz", kind="subposterior")
    with pytest.raises(InputError, match=r"`weights_by` must be an option of 'consensus' \(weighting\)"):
        combine(DRAWS, method="consensus", kind="subposterior", weights_by="full")
    with pytest.raises(InputError, match="'swiss' has no options"):
        combine(DRAWS, method="swiss", kind="inflated", weighting="full")
    with pytest.raises(InputError, match="`seed`"):
        combine(DRAWS, method="swiss", kind="inflated", seed=-1)


def test_subposteriors_are_not_contradicted():
    shards = Subposteriors.of(DRAWS, kind="inflated")
    with pytest.raises(DrawsError, match="'inflated', as the draws say"):
        combine(shards, method="consensus", kind="subposterior")
    with pytest.raises(InputError, match="`weights` must be left out"):
        combine(shards, method="swiss", weights=[1, 1, 1])


@dataclasses.dataclass(frozen=True)
class ExponentialSpace:
    """Two positive parameters, and their product, which the sampler did not have."""

    dimension: int = 2
    coordinate_names: tuple[str, ...] = ("log_b", "log_a")
    names: tuple[str, ...] = ("scale[0]", "scale[1]", "product")

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {"scale": (2,), "product": ()}

    def to_user(self, array: np.ndarray) -> np.ndarray:
        a, b = np.exp(array[:, 1]), np.exp(array[:, 0])
        return np.stack([a, b, a * b], axis=1)


def test_combines_unconstrained_and_maps_back():
    shards = Subposteriors.of(DRAWS, kind="inflated", space=ExponentialSpace())
    posterior = combine(shards, method="swiss")
    assert posterior.names == ("scale[0]", "scale[1]", "product")
    assert posterior.array.min() > 0
    assert posterior.draws["scale"].shape == (600, 2)
    np.testing.assert_allclose(np.log(posterior.array[:, 0]), posterior.coordinates[:, 1])
    sizes = get_combiner("swiss").combine(shards).effective_sizes
    assert posterior.effective_sizes[0] == sizes[1]
    assert posterior.effective_sizes[1] == sizes[0]


def write_csv(path, array, names):
    np.savetxt(path, array, delimiter=",", header=",".join(names), comments="")
    return path


def test_files_are_matched_by_column_name(tmp_path):
    paths = [write_csv(tmp_path / "0.csv", DRAWS[0], ["a", "b"])]
    paths += [write_csv(tmp_path / f"{i}.csv", DRAWS[i][:, ::-1], ["b", "a"]) for i in (1, 2)]
    found = combine(paths, method="swiss", kind="inflated")
    expected = combine(DRAWS, method="swiss", kind="inflated", names=["a", "b"])
    assert found.names == ("a", "b")
    np.testing.assert_allclose(found.array, expected.array)


def test_files_with_a_column_missing_or_more(tmp_path):
    full = write_csv(tmp_path / "full.csv", DRAWS[0], ["a", "b"])
    for name, columns in (("less", ["a"]), ("more", ["a", "b", "c"])):
        array = RNG.normal(size=(200, len(columns)))
        other = write_csv(tmp_path / f"{name}.csv", array, columns)
        with pytest.raises(
            DrawsError, match=r"no column b in" if name == "less" else r"column c, which .*full\.csv"
        ):
            combine([full, other], method="swiss", kind="inflated")


def test_arviz_objects():
    arviz = pytest.importorskip("arviz")
    data = [arviz.from_dict(posterior={"mu": x[None, :, 0], "beta": x[None, :, 1:]}) for x in DRAWS]
    found = combine(data, method="swiss", kind="inflated")
    assert found.names == ("mu", "beta[0]")
    np.testing.assert_allclose(found.array, combine(DRAWS, method="swiss", kind="inflated").array)


def test_shards_that_say_different_things(monkeypatch):
    from consilience.combine import reading

    def shard(path, where, label):
        kind = "inflated" if path == "b" else "subposterior"
        return [reading.ShardDraws(DRAWS[0], (200,), path, ("x", "y"), kind, 0.5)]

    monkeypatch.setattr(reading, "_read", shard)
    with pytest.raises(DrawsError, match=r"the same for all shards.*'inflated' in b"):
        combine(["a", "b"], method="consensus")
    with pytest.raises(DrawsError, match="kind='inflated'"):
        combine(["a", "c"], method="swiss", kind="inflated")
    assert combine(["a", "c"], method="consensus").info["weights"] == [0.5, 0.5]


def test_methods_lists_every_rule():
    names = [record.name for record in methods()]
    expected = [
        "swiss",
        "consensus",
        "recentering",
        "gaussian-barycenter",
        "gaussian-product",
        "gp-product",
        "kernel-product",
        "semiparametric-product",
        "weierstrass",
        "partition-trees",
        "pie",
        "marginal-views",
        "wasp",
        "median-posterior",
        "pool",
        "fusion",
    ]
    assert names == expected
    assert SimpleNamespace(**dataclasses.asdict(methods()[1])).options == ("weighting",)


def test_no_option_of_a_rule_is_taken_for_one_of_combine():
    import inspect

    own = set(inspect.signature(combine).parameters)
    for record in methods():
        assert not own & set(record.options), record.name
