"""Stein weights: weights on given draws under which Stein's identities hold, from scores at a few hundred of them.

Formula. With whitened draws z and scores h (see `stein`), every posterior has

    E[h_j] = 0,      E[(h_j z_k + h_k z_j) / 2] = -1(j = k),

the Stein operator on linear and quadratic functions. Of all weights w_i >= 0 with sum 1 under which the sample has
them exactly, those of least variance are taken: minimise sum w_i^2 subject to sum w_i psi_i = (1, 0, ..., 0), with

    psi = (1, h_j, 1(j = k) + (h_j z_k + h_k z_j) / 2)_{j <= k},      w_i = max(0, psi_i' lambda).

lambda solves sum_i max(0, psi_i' lambda) psi_i = (1, 0, ..., 0), by Newton's method on the convex dual. Without the
bound these are the weights that regressing on psi as control variates gives; with it they are a law one can draw from.

Assumptions: the draws surround the posterior: near their mean the scores point to both sides. Where the posterior is
Gaussian, weighted mean and covariance are exact, whatever the draws' law.

Fails where no such weights exist (draws to one side of the posterior), which is found out and said, and for modes
that lie apart: the identities hold within each, so their relative weights stay as they are. A result has as many draws
as scores were asked for: its mean and covariance are sharp, its quantiles are those of so few draws.

Reference. Mira, Solgi and Imparato (2013), Zero variance MCMC for Bayesian estimators, Statistics and Computing 23 (the
functions); Oates, Girolami and Chopin (2017), Control functionals for Monte Carlo integration, JRSS B 79(3); Deville
and Särndal (1992), Calibration estimators in survey sampling, JASA 87(418) (weights by constraints).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from consilience.numerics import FEW_DRAWS_PER_DIMENSION
from consilience.refine.base import Floats, FreshDraws, Refined
from consilience.refine.keeping import better
from consilience.refine.pass_back import PassBack
from consilience.refine.stein import Cloud

ITERATIONS = 100
# Largest violation of an identity, in standard deviations of it, that passes for rounding.
EXACT = 1e-6
# Draws that are right are taken for wrong once in so many cases.
LEVEL = 1e-3
# Fewer effective draws than this have no quantiles to speak of.
FEWEST = 50.0
# Share of points without a finite score beyond which nothing is concluded from the others.
MOST_NON_FINITE = 0.1


def identities(z: Floats, h: Floats) -> Floats:
    """(S, 1 + d + d (d + 1) / 2) functions of mean 1, 0, ..., 0 under the posterior.

    Examples
    --------
    >>> z = np.array([[-1.0], [1.0]])
    >>> identities(z, -z)
    array([[ 1.,  1.,  0.],
           [ 1., -1.,  0.]])
    """
    first, second = np.triu_indices(z.shape[1])
    products = (h[:, first] * z[:, second] + h[:, second] * z[:, first]) / 2.0 + (first == second)
    return np.column_stack([np.ones(len(z)), h, products])


def least_variance_weights(psi: Floats) -> Floats | None:
    """Nonnegative weights with sum psi_i w_i = (1, 0, ..., 0) and the least sum of squares, or None if there are none.

    Examples
    --------
    >>> psi = identities(np.array([[-1.0], [0.0], [2.0]]), np.array([[1.0], [0.0], [-2.0]]))
    >>> least_variance_weights(psi[:, :2]).round(3)
    array([0.429, 0.357, 0.214])
    >>> least_variance_weights(psi[1:, :2] + [[0.0, 3.0]]) is None
    True
    """
    scale = np.sqrt(np.mean(psi**2, axis=0))
    psi = psi / np.where(scale > 0, scale, 1.0)
    number, size = psi.shape
    wanted = np.zeros(size)
    wanted[0] = 1.0
    dual = np.asarray(np.linalg.lstsq(psi.T @ psi, wanted, rcond=None)[0], np.float64)
    for _ in range(ITERATIONS):
        weights = np.maximum(0.0, psi @ dual)
        gap: Floats = wanted - weights @ psi
        if np.max(np.abs(gap)) < EXACT:
            return np.asarray(weights / weights.sum())
        active = psi[weights > 0]
        # A touch of ridge: fewer active draws than identities leave directions without curvature.
        curvature = active.T @ active + 1e-12 * number * np.eye(size)
        direction = np.asarray(np.linalg.solve(curvature, gap), np.float64)
        dual = dual + direction * _step(psi, dual, direction, gap)
        if not np.all(np.isfinite(dual)) or np.max(np.abs(dual)) > 1e8:
            break
    return None


def _step(psi: Floats, dual: Floats, direction: Floats, gap: Floats) -> float:
    """Halve the step until the dual, 1/2 sum max(0, psi' lambda)^2 - lambda_0, falls."""

    def height(at: Floats) -> float:
        return 0.5 * float(np.sum(np.maximum(0.0, psi @ at) ** 2)) - float(at[0])

    here, slope, step = height(dual), float(gap @ direction), 1.0
    while step > 1e-8 and height(dual + step * direction) > here - 1e-4 * step * slope:
        step /= 2.0
    return step


def disagreement(psi: Floats) -> float:
    """Chance that exact draws would disagree more with the identities, by Hotelling's T^2.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(400, 2))
    >>> disagreement(identities(z, -z)) > 0.01, disagreement(identities(z + 0.5, -(z + 0.5))) < 1e-6
    (True, True)
    """
    from scipy.stats import f

    number, size = len(psi), psi.shape[1] - 1
    mean = psi[:, 1:].mean(axis=0)
    spread = np.cov(psi[:, 1:], rowvar=False).reshape(size, size)
    squared = number * float(mean @ np.linalg.lstsq(spread, mean, rcond=None)[0])
    return float(f.sf(squared * (number - size) / (size * (number - 1)), size, number - size))


def reweighted_by_scores(
    draws: Floats, log_weights: Floats | None, pass_back: PassBack, count: int, rng: np.random.Generator
) -> Refined:
    """Some of the draws with Stein weights, or all as they are where that is better or nothing else is possible."""
    begun = pass_back.ledger
    found = pass_back.scores(draws[FreshDraws(log_weights, len(draws), rng).take(count)])
    kept = found.kept()
    cost = pass_back.ledger.since(begun).to_dict()
    spent = f"{cost['full_data_gradients']:.0f} full-data gradients"
    record: dict[str, Any] = {
        "name": "reweight",
        "weights": "stein",
        "points": len(kept.points),
        "cost": cost,
    }
    weights, why, advice = None, *too_few_scores(len(found.points), len(kept.points), draws.shape[1])
    if not why:
        assert kept.scores is not None
        cloud = Cloud.of(draws, log_weights)
        psi = identities(cloud.whiten(kept.points), cloud.whiten_scores(kept.scores))
        weights, why, advice = weighed(psi, draws.shape[1], record)
    if weights is not None:
        used, effective = weights > 0, record["effective_draws"]
        points, log_kept = kept.points[used], np.log(weights[used])
        if better(draws, log_weights, points, log_kept, effective):
            note = (
                f"reweight: Stein weights on {np.count_nonzero(used)} draws, {spent}: effective size {effective:.0f}; "
                "mean and covariance are sharper than that, quantiles are not"
            )
            record = {**record, "kept": True}
            return Refined(points, log_kept, (note,), (), record, effective_draws=effective)
        why = f"so few draws (effective size {effective:.0f}) would be no better than the given ones"
    note = f"reweight: nothing changed, {spent}: {why}"
    warnings = (f"reweight: {why}, so the draws were left as they were. {advice}",) if advice else ()
    return Refined(draws, log_weights, (note,), warnings, {**record, "kept": False})


def too_few_scores(asked: int, finite: int, dimension: int) -> tuple[str, str]:
    """Why there are not enough scores, and what to do; empty where there are."""
    size = 1 + dimension + dimension * (dimension + 1) // 2
    if asked - finite > MOST_NON_FINITE * asked:
        return (
            f"{asked - finite} of {asked} scores are NaN or infinite",
            "Look for a log or a division in the model.",
        )
    if finite < 2 * size:
        return f"{finite} scores are too few for {size} identities", "Ask for more draws."
    return "", ""


def weighed(psi: Floats, dimension: int, record: dict[str, Any]) -> tuple[Floats | None, str, str]:
    """Weights, or why there are none and what to do; what is found goes into the record."""
    record["p_value"] = disagreement(psi)
    if record["p_value"] > LEVEL:
        return None, "the draws already agree with the scores", ""
    weights = least_variance_weights(psi)
    if weights is None:
        why = "no nonnegative weights make Stein's identities hold"
        return None, why, "Calibrate first: the draws lie to one side."
    effective = float(1.0 / np.sum(weights**2))
    record["effective_draws"] = effective
    if effective < max(FEWEST, FEW_DRAWS_PER_DIMENSION * dimension):
        why = f"Stein weights leave {effective:.0f} effective draws for {dimension} parameters"
        return None, why, "Calibrate first."
    return weights, "", ""
