"""How much the choice of the rule matters: several cheap rules on the same draws, in noise floors.

Rules that are exact for Gaussian shards agree when shards are Gaussian. Where they differ by more than noise, shards
are not Gaussian enough for that choice not to matter; where a rule that assumes equal covariances (`recentering`)
leaves the others, shards differ in spread. Rules that make the same error agree, so agreement proves nothing.

Each pair is measured by `compare`, on a few thousand draws of each, in the coordinates that were combined.
"""

from __future__ import annotations

import warnings as python_warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from consilience.combine import COMBINERS, combine
from consilience.diagnose.comparison import compare
from consilience.draws import Posterior, Subposteriors
from consilience.draws.checks import evenly
from consilience.errors import DrawsError

# Rules that cost little more than reading the draws, for either kind of draws, the reference first.
CHEAP = {
    "inflated": ("swiss", "gaussian-product", "recentering"),
    "subposterior": ("consensus", "gaussian-product"),
}
MOST_DRAWS = 2_000
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
    beyond_noise : per pair, the measures beyond the limit that 99 of 100 exact pairs stay under
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
        if not any(self.beyond_noise):
            return f"{listed} differ by no more than noise"
        times = self.in_floors[place][measure]
        return (
            f"{listed} differ by up to {times:.1f} noise floors ({_WORDS[measure]} of {first} and {second})"
        )


def rule_spread(
    subposteriors: Subposteriors, rules: Sequence[str] | None = None, seed: int = 0
) -> RuleSpread:
    """Combine by several rules and measure how far they are apart.

    Examples
    --------
    >>> import numpy as np
    >>> shards = np.random.default_rng(0).normal(size=(4, 400, 2))
    >>> str(rule_spread(Subposteriors.of(shards, kind="inflated")))
    'swiss, gaussian-product and recentering differ by no more than noise'
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
        except DrawsError as error:
            if rules is not None:
                raise
            notes.append(f"{name} was not run: {error}")
    pairs = tuple(combinations(made, 2))
    found: list[Any] = [compare(made[a], made[b], seed=seed) for a, b in pairs]
    return RuleSpread(
        rules=tuple(made),
        pairs=pairs,
        in_floors=tuple({m: getattr(x, m) / x.noise_floor[m] for m in MEASURES} for x in found),
        beyond_noise=tuple(tuple(m for m in MEASURES if not x.within_noise[m]) for x in found),
        notes=tuple(notes),
    )


def _thinned(posterior: Posterior) -> Posterior:
    """A few thousand draws, evenly from those that there are."""
    number = len(posterior.array)
    if number <= MOST_DRAWS:
        return posterior
    kept = evenly(number, MOST_DRAWS)
    sizes = posterior.effective_sizes
    return replace(
        posterior,
        array=posterior.array[kept],
        coordinates=None,
        log_weights=None if posterior.log_weights is None else posterior.log_weights[kept],
        effective_sizes=None if sizes is None else sizes.clip(max=float(MOST_DRAWS)),
        chain_lengths=None,
    )
