"""What every registered combination rule must satisfy, with no skip path; wrong rules are shown not to."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import json
import pickle
import pkgutil

import combiner_oracles as oracles
import numpy as np
import pytest
import wrong_combiners as wrong
from combiner_oracles import Z_LIMIT, GaussianScenario, kinds

import consilience.combine as room
from consilience.combine import COMBINERS, Combined, combine, get_combiner, methods
from consilience.draws import Subposteriors
from consilience.errors import DrawsError, InputError

VARIANTS = [(rule, kind) for rule in oracles.variants() for kind in kinds(rule)]
DEFAULTS = [(oracles.default(rule), kind) for rule in COMBINERS for kind in kinds(rule())]

# These invert no covariance matrix: a column that repeats another comes out as it went in. Others refuse.
CARRY_DEPENDENT_COLUMNS = (
    get_combiner("pool"),
    get_combiner("recentering"),
    get_combiner("pie"),
    get_combiner("consensus", weighting="diagonal"),
    get_combiner("consensus", weighting="uniform"),
)

# Histograms: what these make of the shards is as coarse as their blocks, and blocks need draws.
HISTOGRAMS = tuple(
    rule for rule in oracles.variants() if rule.name == "partition-trees" and rule.within != "shard-gaussian"
)
# These work out what they would cost, and refuse a thousand shards instead of never coming back.
REFUSE_A_THOUSAND_SHARDS = (get_combiner("fusion", targets="gaussian", tree="fork-and-join"),)


def name_of(value: object) -> str:
    return value if isinstance(value, str) else repr(value)


def combined_worth(first: Combined, second: Combined) -> float:
    """Effective draws of the worst column of two results."""
    return float(min(first.effective_sizes.min(), second.effective_sizes.min()))


every_variant = pytest.mark.parametrize(("rule", "kind"), VARIANTS, ids=name_of)
every_rule = pytest.mark.parametrize(("rule", "kind"), DEFAULTS, ids=name_of)
exact_rules = pytest.mark.parametrize(
    ("rule", "kind"), [(r, k) for r, k in DEFAULTS if r.exact_for_gaussian], ids=name_of
)


def test_every_method_file_is_registered():
    registered = set(COMBINERS)
    for module in pkgutil.iter_modules(room.__path__):
        contents = vars(importlib.import_module(f"{room.__name__}.{module.name}")).values()
        rules = [
            x
            for x in contents
            if isinstance(x, type)
            and x.__module__ == f"{room.__name__}.{module.name}"
            and hasattr(x, "combine")
            and hasattr(x, "name")
        ]
        assert set(rules) <= registered, f"{module.name}.py holds a rule that the registry does not list"
    assert len({rule.name for rule in COMBINERS}) == len(COMBINERS)


def test_options_can_be_told_from_the_parameters_of_combine():
    for record in methods():
        assert not set(record.options) & set(inspect.signature(combine).parameters)


def test_every_record_answers_for_its_rule():
    for record, rule in zip(methods(), COMBINERS, strict=True):
        assert record.name == rule.name
        assert record.kind in ("subposterior", "inflated", "any")
        assert set(record.needs) <= {"draws", "log densities", "pass-back", "targets"}
        assert record.reference
        assert json.dumps(dataclasses.asdict(record))


def test_rules_that_need_targets_are_those_listed_and_refuse_to_go_without():
    assert {rule.name for rule in COMBINERS if "targets" in rule.needs} == set(oracles.TARGETS_FROM_DRAWS)
    for name in oracles.TARGETS_FROM_DRAWS:
        with pytest.raises(InputError, match="`targets` must be the density that each shard sampled"):
            combine(np.random.default_rng(0).normal(size=(3, 200, 2)), method=name, kind="subposterior")


@every_variant
def test_round_trip(rule, kind):
    assert pickle.loads(pickle.dumps(rule)) == rule
    options = json.loads(json.dumps(dataclasses.asdict(rule)))
    assert get_combiner(rule.name, **options) == rule


@every_variant
def test_draws_that_come_out(rule, kind):
    subposteriors = GaussianScenario(kind).draw(0)
    combined = rule.combine(subposteriors, seed=0)
    assert combined.array.dtype == np.float64
    assert np.all(np.isfinite(combined.array))
    assert combined.effective_sizes.shape == (2,)
    assert np.all(combined.effective_sizes > 0)
    if combined.log_weights is not None:
        assert combined.log_weights.shape == (len(combined.array),)
    if combined.chain_lengths is not None:
        assert sum(combined.chain_lengths) == len(combined.array)
    needed = rule.draws_per_shard(1_000, 3)
    fresh = oracles.shards_of(np.random.default_rng(0).normal(size=(3, needed, 2)), kind=kind)
    assert len(rule.combine(fresh).array) >= 1_000


@every_variant
def test_same_seed_same_bits_other_seed_same_law(rule, kind):
    subposteriors = GaussianScenario(kind).draw(0)
    first, again, other = (rule.combine(subposteriors, seed=seed) for seed in (4, 4, 5))
    assert first.array.tobytes() == again.array.tobytes()
    limit = 2.2
    if rule in HISTOGRAMS:
        # Other trees make another histogram, no farther away than the effective sizes promise.
        assert combined_worth(first, other) < oracles.counted(first)
        limit *= np.sqrt(oracles.counted(first) / combined_worth(first, other))
    assert oracles.kolmogorov_smirnov(first, other) < limit


@every_variant
def test_order_of_shards_does_not_matter(rule, kind):
    assert oracles.order_dependence(rule, kind) < 1e-9


@every_rule
def test_equivariance_as_claimed(rule, kind):
    assert oracles.equivariance_error(rule, kind, rule.equivariance) < Z_LIMIT


@exact_rules
def test_exact_for_gaussians_of_unequal_weight_and_size(rule, kind):
    assert oracles.gaussian_exactness(rule, kind) < Z_LIMIT


@every_rule
def test_effective_sizes_are_honest(rule, kind):
    # Sixty replicates of two means: the ratio has a standard error of about sqrt(2 / 120) = 0.13.
    assert abs(oracles.effective_size_honesty(rule, kind) - 1.0) < 4 * 0.13


@every_variant
def test_one_shard_returns_its_own_law(rule, kind):
    draws = np.random.default_rng(3).multivariate_normal([5.0, -3.0], [[2.0, 1.0], [1.0, 3.0]], size=3_000)
    combined = rule.combine(oracles.shards_of([draws], kind=kind), seed=0)
    assert (
        oracles.kolmogorov_smirnov(combined, dataclasses.replace(combined, array=draws, log_weights=None))
        < 2.2
    )
    mean, covariance = oracles.moments_of(combined)
    limit = Z_LIMIT * np.sqrt(1.0 / oracles.counted(combined))
    assert np.abs(mean - draws.mean(axis=0)).max() < limit * np.sqrt(3.0)
    assert np.abs(covariance / np.cov(draws, rowvar=False) - 1.0).max() < limit * 3.0


@every_variant
def test_identically_seeded_shards_are_not_correlated(rule, kind):
    limit = Z_LIMIT
    if rule in HISTOGRAMS:
        # Half too wide or narrow, where shards that are not permuted make it 183 % too wide.
        limit = np.sqrt(2 * 2_000) / 2
    assert oracles.identical_shards_z(rule, kind) < limit


@every_variant
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_not_finite_is_refused_by_name(rule, kind, bad):
    draws = np.random.default_rng(0).normal(size=(3, 200, 2))
    draws[1, 7, 1] = bad
    with pytest.raises(DrawsError, match=r"shard 1.*slope|slope.*shard 1"):
        combine(draws, method=rule.name, kind=kind, names=["a", "slope"], **dataclasses.asdict(rule))


@every_variant
def test_constant_column_is_refused_by_name(rule, kind):
    draws = np.random.default_rng(0).normal(size=(3, 200, 2))
    draws[2, :, 1] = 4.0
    with pytest.raises(DrawsError, match="slope"):
        combine(draws, method=rule.name, kind=kind, names=["a", "slope"], **dataclasses.asdict(rule))


@every_variant
def test_duplicated_column_never_gives_nan_silently(rule, kind):
    draws = np.random.default_rng(0).normal(size=(3, 200, 3))
    draws[:, :, 2] = 3.0 - 2.0 * draws[:, :, 0]
    shards = oracles.shards_of(draws, kind=kind, names=["a", "b", "copy"])
    run = functools.partial(combine, shards, method=rule.name, **dataclasses.asdict(rule))
    if rule in CARRY_DEPENDENT_COLUMNS:
        found = run()
        np.testing.assert_allclose(found.array[:, 2], 3.0 - 2.0 * found.array[:, 0], atol=1e-6)
    else:
        with pytest.raises(DrawsError, match="copy, a linear combination of a, in shard 0"):
            run()


@every_variant
def test_fewer_draws_than_dimensions_are_refused(rule, kind):
    draws = np.random.default_rng(0).normal(size=(3, 40, 50))
    with pytest.raises(DrawsError, match="40"):
        combine(draws, method=rule.name, kind=kind, **dataclasses.asdict(rule))


@every_rule
def test_memory_is_within_three_copies_of_the_draws(rule, kind):
    rng = np.random.default_rng(0)
    shards = 0.2 * rng.normal(size=(10, 1, 5)) + rng.normal(size=(10, 5_000, 5))
    densities = [-0.5 * np.sum((x - x.mean(axis=0)) ** 2, axis=1) for x in shards]
    given = Subposteriors.of(shards, kind=kind, log_densities=densities)
    assert oracles.peak_in_copies(rule, given) < 3.0


def test_memory_rejects_a_rule_that_keeps_every_copy():
    given = Subposteriors.of(np.random.default_rng(0).normal(size=(10, 5_000, 5)), kind="inflated")
    assert oracles.peak_in_copies(wrong.Hoarder(), given) > 3.0


@every_variant
def test_one_dimension_and_a_thousand_shards(rule, kind):
    draws = np.random.default_rng(0).normal(size=(1_000, 20, 1))
    shards = oracles.shards_of(draws, kind=kind)
    if rule in HISTOGRAMS:
        with pytest.raises(DrawsError, match="at least 100 independent ones per shard"):
            rule.combine(shards, seed=0)
        return
    if rule in REFUSE_A_THOUSAND_SHARDS:
        with pytest.raises(DrawsError, match=r"`limit` must be at least the .* evaluations"):
            rule.combine(shards, seed=0)
        return
    combined = rule.combine(shards, seed=0)
    mean, covariance = oracles.moments_of(combined)
    expected = 1.0 / 1_000 if kind == "subposterior" else None
    assert abs(mean[0]) < 1.0
    if expected is not None:
        assert 0.2 < covariance[0, 0] / expected < 2.0
    else:
        assert 0.8 < covariance[0, 0] < 1.3


@pytest.mark.parametrize("rule", COMBINERS, ids=lambda rule: rule.name)
def test_the_wrong_kind_is_refused_and_the_right_one_named(rule):
    draws = np.random.default_rng(0).normal(size=(3, 200, 2))
    with pytest.raises(DrawsError, match=r"`kind` must be 'subposterior' or 'inflated'.*sqrt\(B\)"):
        combine(draws, method=rule.name)
    for kind in {"subposterior", "inflated"} - set(kinds(rule())):
        with pytest.raises(DrawsError, match=f"`kind` must be '{rule.kind}'.*Got '{kind}'"):
            combine(draws, method=rule.name, kind=kind)


# The other half of every oracle: it must reject a rule that is wrong on purpose.


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        (wrong.VarianceWeightedSwiss(), "inflated"),
        (wrong.EqualWeightSwiss(), "inflated"),
        (wrong.KindlessProduct(), "inflated"),
        (wrong.WeightlessPool(), "inflated"),
        (get_combiner("recentering"), "inflated"),
        (get_combiner("gaussian-barycenter"), "inflated"),
        (get_combiner("consensus", weighting="diagonal"), "subposterior"),
        (get_combiner("consensus", weighting="uniform"), "subposterior"),
        (get_combiner("kernel-product", centres="draws", bandwidth=3.0), "subposterior"),
    ],
    ids=name_of,
)
def test_exactness_rejects(rule, kind):
    assert oracles.gaussian_exactness(rule, kind) > 1.5 * Z_LIMIT


def test_equivariance_rejects():
    assert oracles.equivariance_error(wrong.VarianceWeightedSwiss(), "inflated", "affine") > 2 * Z_LIMIT
    assert oracles.equivariance_error(get_combiner("gaussian-barycenter"), "inflated", "affine") > 2 * Z_LIMIT
    diagonal = get_combiner("consensus", weighting="diagonal")
    assert oracles.equivariance_error(diagonal, "subposterior", "affine") > 2 * Z_LIMIT


def test_identical_shards_reject():
    assert oracles.identical_shards_z(wrong.UnpermutedConsensus(), "subposterior") > 2 * Z_LIMIT


def test_order_rejects():
    assert oracles.order_dependence(wrong.PositionalConsensus(), "subposterior") > 1e-3


def test_effective_sizes_reject():
    assert oracles.effective_size_honesty(wrong.BoastfulSwiss(), "inflated") > 1.0 + 8 * 0.13


def test_least_motion_holds_for_swiss_and_rejects_cholesky():
    assert oracles.motion_asymmetry(get_combiner("swiss")) < 1e-9
    assert oracles.motion_asymmetry(wrong.CholeskySwiss()) > 0.01
    # It is the motion alone that is wrong about Cholesky factors: moments are right.
    assert oracles.gaussian_exactness(wrong.CholeskySwiss(), "inflated") < 3 * Z_LIMIT


def test_one_law_rejects_another():
    subposteriors = GaussianScenario("inflated").draw(0)
    first, second = get_combiner("swiss").combine(subposteriors), get_combiner("pool").combine(subposteriors)
    assert oracles.kolmogorov_smirnov(first, second) > 4.4
