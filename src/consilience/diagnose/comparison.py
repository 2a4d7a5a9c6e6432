"""Compare two sets of draws, and tell a difference from Monte Carlo noise.

The noise floor of a measure is its mean between two exact samples with the effective sizes at hand, its limit
the 99 % point of the same law; under the limit a difference cannot be told from noise.

- Mahalanobis, covariance, standardised mean: by formula (`noise.py`).
- all others: pairs of resamples of the reference, independent draws in the numbers that the effective sizes
  say, measured like the real pair; the limit is that of the gamma law with their mean and variance.

Standard errors come from influence functions, or from resampling both sets in the same way. Effective sizes
stand for the dependence of draws: they are those of the worse of bulk and tail, which is cautious for
densities. It fails where chains have not found the whole posterior, because then no effective size knows.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np

from consilience.diagnose.discrepancy import Discrepancy
from consilience.diagnose.measures import (
    Frame,
    Measured,
    Sample,
    build_frame,
    build_sample,
    mahalanobis_and_covariance,
    measure,
    summarise,
)
from consilience.diagnose.noise import (
    Noise,
    covariance_noise,
    influence_errors,
    mahalanobis_noise,
    of_values,
    standardised_mean_noise,
)
from consilience.draws import Posterior, default_names
from consilience.draws.files import load
from consilience.errors import DrawsError, must_be

REPLICATES = 40


def compare(draws: Any, reference: Any, *, seed: int = 0) -> Discrepancy:
    """Measure how far draws are from a reference.

    Parameters
    ----------
    draws, reference
        `Posterior`, (N, d) or (chains, draws, d) array, a path that `consilience.load` reads, or anything
        with a `.posterior` that is a `Posterior`. Parameters are matched by name when both have names, else
        by position.
    seed
        Of the directions of the sliced distance and of the resamples.

    Returns
    -------
    Discrepancy
        Printing it gives a table.

    Raises
    ------
    DrawsError
        When dimensions or names differ, or a parameter is constant.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> same = compare(rng.normal(size=(1000, 2)), rng.normal(size=(1000, 2)))
    >>> same.within_noise["mahalanobis"]
    True
    >>> shifted = compare(rng.normal(0.5, 1, size=(1000, 2)), rng.normal(size=(1000, 2)))
    >>> shifted.within_noise["mahalanobis"], round(shifted.mahalanobis, 1)
    (False, 0.7)
    """
    a, r = _matched(_as_posterior(draws, "draws"), _as_posterior(reference, "reference"))
    _check_usable(a, "draws")
    _check_usable(r, "reference")
    rng = np.random.default_rng(seed)
    sizes = _density_size(a), _density_size(r)
    frame = build_frame(a.array, r.array, r.mean(), r.cov(), min(sizes), rng)
    sample_a, sample_r = build_sample(a.array, frame), build_sample(r.array, frame)
    weights_a, weights_r = a.weights(), r.weights()
    found = measure(
        frame, summarise(frame, sample_a, weights_a[None]), summarise(frame, sample_r, weights_r[None])
    )
    null, spread = _replicates(frame, (sample_a, weights_a), (sample_r, weights_r), sizes, rng)
    z, y = (sample.standardised @ frame.whitening for sample in (sample_a, sample_r))
    values = {name: float(value[0]) for name, value in found.totals.items()}
    errors = {name: float(value.std(ddof=1)) for name, value in spread.totals.items()}
    laws = {name: of_values(value) for name, value in null.totals.items()}
    values |= mahalanobis_and_covariance(z, weights_a)
    errors |= influence_errors((z, weights_a), (y, weights_r), sizes)
    laws |= _formulas(a, r, (z, y), sizes, rng)
    dimension, rank = frame.whitening.shape
    return Discrepancy(
        **values,
        standard_errors=errors,
        noise_floor={name: law.floor for name, law in laws.items()},
        limits={name: law.limit for name, law in laws.items()},
        per_parameter=_per_parameter(a, r, found, null, spread),
        effective_sizes=sizes,
        l2_of=_l2_of(dimension, frame),
        notes=_notes(dimension, rank, sizes),
    )


# ------------------------------------------------------------------------------------------
# What comes in
# ------------------------------------------------------------------------------------------


def _as_posterior(value: Any, parameter: str) -> Posterior:
    if isinstance(value, str | os.PathLike):
        return load(value)
    value = getattr(value, "posterior", value)
    if isinstance(value, Posterior):
        return value
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.ndim == 3 and array.size:
        lengths = (array.shape[1],) * array.shape[0]
        return Posterior(array.reshape(-1, array.shape[2]), chain_lengths=lengths)
    if array.ndim != 2 or not array.size:
        raise must_be(
            "compare",
            parameter,
            "a Posterior, a (draws, parameters) array or the path of a file of draws",
            value,
            "For one parameter pass x[:, None].",
            DrawsError,
        )
    return Posterior(array)


def _matched(a: Posterior, r: Posterior) -> tuple[Posterior, Posterior]:
    """The draws with their columns in the reference's order."""
    dimension = len(r.names)
    if len(a.names) != dimension:
        only = sorted(set(a.names) ^ set(r.names))
        raise must_be(
            "compare",
            "draws",
            f"of the reference's {dimension} parameters",
            f"{len(a.names)} parameters; not in both: {', '.join(only[:5])}",
            "Compare draws of the same parameters.",
            DrawsError,
        )
    unnamed = default_names(dimension)
    if a.names == r.names or a.names == unnamed or r.names == unnamed:
        return a, r
    if set(a.names) != set(r.names):
        missing = [name for name in r.names if name not in a.names]
        extra = [name for name in a.names if name not in r.names]
        raise must_be(
            "compare",
            "draws",
            "of parameters with the reference's names",
            f"{', '.join(extra[:5])} where the reference has {', '.join(missing[:5])}",
            "Rename them, or pass arrays to match by position.",
            DrawsError,
        )
    order = [a.names.index(name) for name in r.names]
    sizes = None if a.effective_sizes is None else a.effective_sizes[order]
    matched = Posterior(
        a.array[:, order],
        names=r.names,
        log_weights=a.log_weights,
        effective_sizes=sizes,
        chain_lengths=a.chain_lengths,
    )
    return matched, r


def _check_usable(posterior: Posterior, parameter: str) -> None:
    number, dimension = posterior.array.shape
    counted = int(np.count_nonzero(posterior.weights()))
    if counted < dimension + 3:
        raise must_be(
            "compare",
            parameter,
            f"at least {dimension + 3} draws of {dimension} parameters",
            f"{counted} draws" + ("" if counted == number else " with a weight above 0"),
            "Draw more.",
            DrawsError,
        )
    weighted = posterior.array[posterior.weights() > 0]
    constant = [posterior.names[int(i)] for i in np.flatnonzero(np.ptp(weighted, axis=0) == 0)]
    if constant:
        raise must_be(
            "compare",
            parameter,
            "moving in every parameter",
            f"constant {', '.join(constant[:5])}",
            "Leave those out.",
            DrawsError,
        )


# ------------------------------------------------------------------------------------------
# What noise does
# ------------------------------------------------------------------------------------------


def _density_size(posterior: Posterior) -> float:
    """Effective number of draws behind shapes: the worse of bulk and tail, at most one per draw."""
    sizes = np.minimum(posterior.effective_size("bulk"), posterior.effective_size("tail"))
    return _harmonic(np.minimum(sizes, len(posterior.array)))


def _harmonic(sizes: np.ndarray) -> float:
    return float(len(sizes) / np.sum(1.0 / sizes))


def _replicates(
    frame: Frame,
    draws: tuple[Sample, np.ndarray],
    reference: tuple[Sample, np.ndarray],
    sizes: tuple[float, float],
    rng: np.random.Generator,
) -> tuple[Measured, Measured]:
    """Measures between resamples: of the reference with itself (noise), of either set (its spread)."""
    dimension, rank = frame.whitening.shape
    number_a, number_r = (max(int(size), rank + 3) for size in sizes)
    # Batches keep the working arrays under some 100 MB in high dimension.
    batch = int(np.clip(4_000_000 // (dimension * max(dimension, frame.bins)), 1, REPLICATES))
    null, spread = [], []
    for start in range(0, REPLICATES, batch):
        count = min(batch, REPLICATES - start)
        like_draws, like_reference, as_draws = (
            summarise(frame, sample, _resampled(rng, weights, number, count))
            for (sample, weights), number in ((reference, number_a), (reference, number_r), (draws, number_a))
        )
        null.append(measure(frame, like_draws, like_reference))
        spread.append(measure(frame, as_draws, like_reference))
    return Measured.joined(null), Measured.joined(spread)


def _resampled(rng: np.random.Generator, weights: np.ndarray, number: int, count: int) -> np.ndarray:
    """(count, N) weights of resamples of `number` independent draws each."""
    counts = [np.bincount(_chosen(rng, weights, number), minlength=len(weights)) for _ in range(count)]
    return np.array(counts) / number


def _chosen(rng: np.random.Generator, weights: np.ndarray, number: int) -> np.ndarray:
    """Indices of independent draws from a weighted sample."""
    if np.ptp(weights) == 0:
        return rng.integers(len(weights), size=number)
    cumulative = np.cumsum(weights)
    found = np.searchsorted(cumulative / cumulative[-1], rng.uniform(size=number), side="right")
    return found.clip(max=len(weights) - 1)


def _formulas(
    a: Posterior,
    r: Posterior,
    whitened: tuple[np.ndarray, np.ndarray],
    sizes: tuple[float, float],
    rng: np.random.Generator,
) -> dict[str, Noise]:
    """What noise gives for the measures with formulas."""
    z, y = whitened
    covariance = r.cov()
    sd = np.sqrt(np.diagonal(covariance))
    equal = y if r.log_weights is None else y[_chosen(rng, r.weights(), len(y))]
    return {
        "mahalanobis": mahalanobis_noise(1 / _whitened_sizes(a, z) + 1 / _whitened_sizes(r, y), sizes[1]),
        "covariance": covariance_noise(equal, sizes, rng),
        "standardised_mean": standardised_mean_noise(
            covariance / np.outer(sd, sd), 1 / a.effective_size("mean") + 1 / r.effective_size("mean"), rng
        ),
    }


def _whitened_sizes(posterior: Posterior, white: np.ndarray) -> np.ndarray:
    """Effective sizes of whitened coordinates: a direction may mix more slowly than every parameter does."""
    if posterior.effective_sizes is not None:
        return np.full(white.shape[1], _harmonic(posterior.effective_sizes))
    return replace(posterior, array=white, names=(), shapes={}, coordinates=None).effective_size("mean")


# ------------------------------------------------------------------------------------------
# What goes out
# ------------------------------------------------------------------------------------------


def _per_parameter(a: Posterior, r: Posterior, found: Measured, null: Measured, spread: Measured) -> Any:
    import pandas as pd

    variance = found.sd_ratio[0] ** 2 / a.effective_size("mean") + 1.0 / r.effective_size("mean")
    return pd.DataFrame(
        {
            "standardised_mean": found.standardised_mean[0],
            "standardised_mean_se": np.sqrt(variance),
            "skew": found.skew[0],
            "skew_se": spread.skew.std(axis=0, ddof=1),
            "iad": found.iad[0],
            "iad_se": spread.iad.std(axis=0, ddof=1),
            "iad_noise": null.iad.mean(axis=0),
            "sd_ratio": found.sd_ratio[0],
        },
        index=pd.Index(r.names, name="parameter"),
    )


def _l2_of(dimension: int, frame: Frame) -> str:
    if dimension == 1:
        return "the density"
    if frame.joint_low is not None:
        return "the joint density"
    return "marginal densities, in standard deviations"


def _notes(dimension: int, rank: int, sizes: tuple[float, float]) -> tuple[str, ...]:
    notes = []
    if rank < dimension:
        notes.append(
            f"{dimension - rank} directions in which the reference has no spread are left out of "
            "Mahalanobis, covariance and Wasserstein."
        )
    if min(sizes) < 10 * dimension:
        notes.append(
            f"Few effective draws ({min(sizes):.0f}) for {dimension} parameters: draw more before trusting "
            "Mahalanobis and covariance."
        )
    return tuple(notes)
