"""How much the choice of the rule matters: several cheap rules on the same draws, in noise floors.

Rules that are exact for Gaussian shards agree when shards are Gaussian. Where they differ by more than noise, shards
are not Gaussian enough for that choice not to matter; where a rule that assumes equal covariances (`recentering`)
leaves the others, shards differ in spread, or the noise of estimated precisions moves the others. Rules that make the
same error agree, so agreement proves nothing.

The noise floor is that of two independent runs of full MCMC with N draws, N those of the smaller of two sets, a few
thousand at most, in d dimensions:

    Mahalanobis distance of means              sqrt(2 d / N)
    relative error of covariance (Frobenius)   sqrt(2 (d + 1) / N)
    mean absolute difference of skewness       sqrt(2 / pi) sqrt(12 / N)
    IAD                                        as in `marginals.noise_floor`, with the bandwidth of `measures`

Measures are those of `compare`, in the coordinates that were combined.
"""

from __future__ import annotations

import warnings as python_warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from consilience.combine import COMBINERS, combine
from consilience.diagnose.marginals import noise_floor
from consilience.diagnose.measures import (
    build_frame,
    build_sample,
    mahalanobis_and_covariance,
    measure,
    summarise,
)
from consilience.draws import Posterior, Subposteriors
from consilience.draws.checks import evenly
from consilience.errors import InputError

# Rules that cost little more than reading the draws, for either kind of draws, the reference first.
CHEAP = {
    "inflated": ("swiss", "gaussian-product", "recentering"),
    "subposterior": ("consensus", "gaussian-product"),
}
MOST_DRAWS = 2_000
# So many noise floors are a difference.
BEYOND = 3.0
MEASURES = ("mahalanobis", "covariance", "skew", "iad")
_WORDS = {"mahalanobis": "means", "covariance": "covariances", "skew": "skewness", "iad": "densities"}


@dataclass(frozen=True, eq=False)
class RuleSpread:
    """Differences between rules, two by two.

    Attributes
    ----------
    rules : which rules were run
    pairs : two rules each
    in_floors : per pair, each measure divided by its noise floor
    beyond_noise : per pair, the measures of more than three noise floors
    notes : rules that could not be run
    """

    rules: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    in_floors: tuple[dict[str, float], ...]
    beyond_noise: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.pairs:
            return "fewer than two rules could be run"
        place, measure = max(
            ((i, name) for i in range(len(self.pairs)) for name in MEASURES),
            key=lambda at: self.in_floors[at[0]][at[1]],
        )
        first, second = self.pairs[place]
        listed = ", ".join(self.rules[:-1]) + f" and {self.rules[-1]}"
        most = (
            f"{self.in_floors[place][measure]:.2g} noise floors ({_WORDS[measure]} of {first} and {second})"
        )
        if not any(self.beyond_noise):
            return f"{listed} differ by no more than noise, at most {most}"
        return f"{listed} differ by up to {most}"


def rule_spread(
    subposteriors: Subposteriors, rules: Sequence[str] | None = None, seed: int = 0
) -> RuleSpread:
    """Combine by several rules and measure how far they are apart.

    Examples
    --------
    >>> shards = np.random.default_rng(0).normal(size=(4, 400, 2))
    >>> str(rule_spread(Subposteriors.of(shards, kind="inflated")))
    'swiss, gaussian-product and recentering differ by no more than noise, at most ...
    """
    known = {rule.name for rule in COMBINERS}
    wanted = rules if rules is not None else [r for r in CHEAP[subposteriors.kind] if r in known]
    plain = replace(subposteriors, space=None)
    made: dict[str, Posterior] = {}
    notes = []
    for name in wanted:
        try:
            with python_warnings.catch_warnings():
                python_warnings.simplefilter("ignore")
                made[name] = _thinned(combine(plain, method=name, seed=seed))
        except InputError as error:
            if rules is not None:
                raise
            notes.append(f"{name} was not run: {error}")
    pairs = tuple(combinations(made, 2))
    found = tuple(_in_floors(made[a], made[b], seed) for a, b in pairs)
    return RuleSpread(
        rules=tuple(made),
        pairs=pairs,
        in_floors=found,
        beyond_noise=tuple(tuple(m for m in MEASURES if x[m] > BEYOND) for x in found),
        notes=tuple(notes),
    )


def _in_floors(a: Posterior, r: Posterior, seed: int) -> dict[str, float]:
    """The measures between two sets of draws, each divided by its noise floor."""
    weights = a.weights(), r.weights()
    # Weighted draws count for as many as equal ones with that mean would.
    size = float(min(1.0 / np.sum(w**2) for w in weights))
    frame = build_frame(a.array, r.array, r.mean(), r.cov(), size, np.random.default_rng(seed))
    samples = build_sample(a.array, frame), build_sample(r.array, frame)
    summaries = [summarise(frame, x, w[None]) for x, w in zip(samples, weights, strict=True)]
    totals = measure(frame, *summaries).totals
    values = mahalanobis_and_covariance(samples[0].standardised @ frame.whitening, weights[0])
    values |= {name: float(totals[name][0]) for name in ("skew", "iad")}
    d = a.array.shape[1]
    floors = {
        **noise_floor(size, d),
        "covariance": np.sqrt(2.0 * (d + 1) / size),
        "skew": np.sqrt(2.0 / np.pi * 12.0 / size),
    }
    floors["iad"] *= np.sqrt(1.06 / 0.9)
    return {name: values[name] / float(floors[name]) for name in MEASURES}


def _thinned(posterior: Posterior) -> Posterior:
    """A few thousand draws, evenly from those that there are."""
    number = len(posterior.array)
    kept = evenly(number, min(number, MOST_DRAWS))
    return Posterior(
        posterior.array[kept],
        names=posterior.names,
        log_weights=None if posterior.log_weights is None else posterior.log_weights[kept],
    )
