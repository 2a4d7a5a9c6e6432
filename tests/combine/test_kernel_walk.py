"""The walk over the components of a product of kernels, against the enumeration of all of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from consilience.combine import Combiner
from consilience.combine.kernel_combination import Problem, Schedule, prepare
from consilience.combine.kernel_frame import Mixture, build_mixture
from consilience.combine.kernel_product import KernelProduct
from consilience.combine.kernel_walk import Walkers
from consilience.combine.semiparametric_product import SemiparametricProduct
from consilience.draws import Subposteriors

RULES: tuple[Combiner, ...] = (
    KernelProduct(noise_limit=None),
    KernelProduct(centres="draws", noise_limit=None),
    SemiparametricProduct(noise_limit=None),
    SemiparametricProduct(component_weights="nonparametric", noise_limit=None),
)
WALKERS = 20_000
# P(|z| > 5) is 6e-7, and some 30 of them are looked at.
Z_LIMIT = 5.0
every_rule = pytest.mark.parametrize("rule", RULES, ids=repr)


def small_problem() -> Problem:
    """Three shards of 9, 10 and 11 draws in two dimensions: 990 components."""
    rng = np.random.default_rng(4)
    factors = [np.eye(2), np.array([[2.0, 0.0], [1.0, 0.5]]), np.array([[1.0, 0.6], [0.0, 1.0]])]
    draws = [rng.normal(size=(9 + b, 2)) @ f.T + 0.5 * rng.normal(size=2) for b, f in enumerate(factors)]
    return prepare(Subposteriors.of(draws, kind="subposterior"), pull=0.0)


def enumerated(rule: Combiner, problem: Problem, bandwidths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Probability of every component and its mean, from densities in the draws' own coordinates.

    A component's weight is what is multiplied, at any point, over the component's density there.
    """
    gaussians = list(zip(problem.moments.means, np.linalg.inv(problem.product.precisions), strict=True))
    widths = [h**2 * v for h, (_, v) in zip(bandwidths, gaussians, strict=True)]
    kernels = [np.linalg.inv(v) for v in widths]
    precision = sum(kernels)
    anchored = isinstance(rule, SemiparametricProduct)
    whole = precision + problem.product.precisions.sum(axis=0) if anchored else precision
    semiparametric = anchored and rule.component_weights == "semiparametric"
    point = np.array([0.3, -0.2])
    chosen = [
        _centres(rule, x, m, h)
        for x, (m, _), h in zip(problem.shards.draws, gaussians, bandwidths, strict=True)
    ]
    tables, linear = [], []
    for x, width, kernel, (m, v) in zip(chosen, widths, kernels, gaussians, strict=True):
        table = multivariate_normal(point, width).logpdf(x)
        if semiparametric:
            table = table + multivariate_normal(m, v).logpdf(point) - multivariate_normal(m, v).logpdf(x)
        tables.append(table)
        linear.append(x @ kernel)
    weights_precision = whole if semiparametric else precision
    anchor = sum(np.linalg.solve(v, m) for m, v in gaussians) if anchored else np.zeros(2)
    log_weights, means = [], []
    for t in itertools.product(*(range(len(x)) for x in chosen)):
        total = sum(table[i] for table, i in zip(linear, t, strict=True))
        means.append(total + anchor)
        middle = np.linalg.solve(weights_precision, total + anchor if semiparametric else total)
        density = -0.5 * (point - middle) @ weights_precision @ (point - middle)
        log_weights.append(sum(table[i] for table, i in zip(tables, t, strict=True)) - density)
    weights = np.exp(np.array(log_weights) - max(log_weights))
    return weights / weights.sum(), np.linalg.solve(whole, np.array(means).T).T


def _centres(rule: Combiner, x: np.ndarray, mean: np.ndarray, bandwidth: float) -> np.ndarray:
    if isinstance(rule, KernelProduct):
        return mean + np.sqrt(1.0 - bandwidth**2) * (x - mean) if rule.centres == "shrunk" else x
    return (
        x if rule.component_weights == "semiparametric" else mean + np.sqrt(1.0 + bandwidth**2) * (x - mean)
    )


def worst_z(
    rule: Combiner, problem: Problem, fraction: float, spoil: Callable[[Mixture], Mixture] = lambda x: x
) -> float:
    """Largest |z| of how often each draw is held, and of the mean of the components' means."""
    stage = rule._ingredients(problem, fraction)
    mixture = spoil(build_mixture(problem.frame, stage.factors))
    walkers = Walkers(mixture, WALKERS, np.random.default_rng(0))
    for _ in range(30):
        walkers.sweep()
    probabilities, means = enumerated(rule, problem, stage.factors.bandwidths)
    sizes = [len(x) for x in problem.shards.draws]
    table = probabilities.reshape(sizes)
    zs = []
    for b, held in enumerate(walkers.indices):
        expected = table.sum(axis=tuple(i for i in range(len(sizes)) if i != b))
        seen = np.bincount(held, minlength=sizes[b]) / WALKERS
        likely = expected * WALKERS > 10
        zs.append(((seen - expected) / np.sqrt(expected * (1 - expected) / WALKERS))[likely])
    mean = probabilities @ means
    variance = probabilities @ (means - mean) ** 2
    found = problem.frame.origin + walkers.component_means() @ problem.frame.root.T
    zs.append((found.mean(axis=0) - mean) / np.sqrt(variance / WALKERS))
    return float(np.abs(np.concatenate(zs)).max())


@every_rule
@pytest.mark.parametrize("fraction", [0.1, 1.0])
def test_components_are_visited_as_often_as_they_weigh(rule, fraction):
    assert worst_z(rule, small_problem(), fraction) < Z_LIMIT


@every_rule
def test_the_enumeration_rejects_a_walk_that_forgets_how_it_proposes(rule):
    def all_alike(mixture: Mixture) -> Mixture:
        counts = [
            np.bincount(pool, minlength=len(s)) for pool, s in zip(mixture.pools, mixture.scores, strict=True)
        ]
        return replace(
            mixture, scores=tuple(s + np.log1p(c) for s, c in zip(mixture.scores, counts, strict=True))
        )

    assert worst_z(rule, small_problem(), 1.0, all_alike) > 2 * Z_LIMIT


def test_the_enumeration_rejects_the_other_weights():
    """Walking with w_t where W_t belongs is seen, and so are kernels at the draws where centres are pulled in."""
    problem = small_problem()
    for rule, other in itertools.pairwise(RULES):
        wrong = build_mixture(problem.frame, other._ingredients(problem, 0.1).factors)
        assert worst_z(rule, problem, 0.1, lambda _, wrong=wrong: wrong) > 2 * Z_LIMIT


@every_rule
def test_component_covariance(rule):
    problem = small_problem()
    stage = rule._ingredients(problem, 1.0)
    mixture = build_mixture(problem.frame, stage.factors)
    root = problem.frame.root @ mixture.component_root
    precision = np.tensordot(stage.factors.bandwidths**-2.0, problem.product.precisions, 1)
    if isinstance(rule, SemiparametricProduct):
        precision = precision + problem.product.precisions.sum(axis=0)
    np.testing.assert_allclose(root @ root.T @ precision, np.eye(2), atol=1e-9)


def gaussian_mixture(num_shards: int) -> Mixture:
    draws = np.random.default_rng(1).normal(size=(num_shards, 200, 2))
    rule = KernelProduct()
    problem = prepare(Subposteriors.of(draws, kind="subposterior"), pull=0.0)
    return build_mixture(problem.frame, rule._ingredients(problem, 1.0).factors)


def test_running_sums_do_not_drift():
    walkers = Walkers(gaussian_mixture(5), 300, np.random.default_rng(0))
    for _ in range(49):  # one more, and they are worked out anew
        walkers.sweep()
    np.testing.assert_allclose(walkers.sums, walkers._sums(), atol=1e-11)
    walkers.sums += 1.0
    walkers.sweep()
    np.testing.assert_allclose(walkers.sums, walkers._sums(), atol=1e-13)


def test_a_step_looks_at_the_shard_that_moves_and_at_no_other():
    mixture = gaussian_mixture(5)
    walkers = Walkers(mixture, 300, np.random.default_rng(0))
    before = walkers.indices.copy()

    def alone(tables: tuple) -> tuple:
        return tuple(table if s == 3 else None for s, table in enumerate(tables))

    walkers.mixture = replace(
        mixture,
        positions=alone(mixture.positions),
        scores=alone(mixture.scores),
        pools=alone(mixture.pools),
    )
    walkers._step(3)
    assert np.any(walkers.indices[3] != before[3])
    assert np.array_equal(np.delete(walkers.indices, 3, axis=0), np.delete(before, 3, axis=0))


def test_walkers_say_when_they_cannot_forget():
    mixture = gaussian_mixture(3)
    walkers = Walkers(mixture, 2_000, np.random.default_rng(0))
    sweeps, stuck = walkers.walk(200)
    assert not stuck
    assert sweeps < 200
    # Two places so far apart that nobody changes over.
    far = np.where(np.arange(200) < 100, -40.0, 40.0)[:, None] * np.ones(2)
    stuck = replace(
        mixture, positions=(far,) * 3, scores=tuple(-0.5 * 3 * np.sum(far**2, axis=1) for _ in range(3))
    )
    assert Walkers(stuck, 2_000, np.random.default_rng(0)).walk(20) == (20, True)


@pytest.mark.parametrize("num_draws", [1, 300, 5_000, 100_000])
def test_a_schedule_makes_enough_draws_and_anneals(num_draws):
    schedule = Schedule(num_draws, 10)
    fractions = [f for f, _ in schedule.fractions()]
    assert num_draws <= schedule.walkers * schedule.blocks < num_draws + schedule.walkers
    assert fractions == sorted(fractions)
    assert fractions[-1] <= 1.0
    assert sum(read for _, read in schedule.fractions()) == schedule.blocks
