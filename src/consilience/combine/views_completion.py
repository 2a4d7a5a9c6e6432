"""From a function of the parameters to coordinates (theta, psi): theta the function, psi all parameters but k.

Formula. theta = m(x) has k columns; psi are the parameters x less k of them, chosen so that x <-> (theta, psi) is
one to one: the derivative of m by the k left out, det m'(x), keeps its sign. Of the choices that do, the one whose
|det m'| varies least is taken, and among equal ones that which moves theta most.

The Jacobian. In the new coordinates the density of shard b is p_b(x) / |det m'(x)|, and the product of B such has
the Jacobian to the power B where the posterior has it once: the thesis' (3.6) is right for linear functions only.
Weighing each shard's draws by |det m'|^{1 - w_b} leaves sum w_b = 1 powers of it. Here they are resampled with
those weights, systematically; for a linear function all weights are the same, and nothing is done.

Assumptions. m is smooth: derivatives are central differences of a ten-thousandth of a standard deviation.

Fails. A function that is monotone in no parameter alone (a square around 0) is refused. One that bends strongly
leaves few distinct draws, which count as such.

Reference. Vyner's thesis, section 3.2.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np

from consilience.draws import Subposteriors
from consilience.draws.checks import lengths_after
from consilience.errors import InputError, must_be
from consilience.pareto import effective_draws

from .base import Floats
from .functions import Function, column_names, evaluate_functions
from .permute import shard_generators

STEP = 1e-4
ROWS_TO_CHOOSE_BY = 512
MOST_CHOICES = 300
STRAIGHT = 1e-6  # spread of log |det m'| that is rounding of differences
RULE = "marginal-views"


@dataclass(frozen=True, eq=False)
class Completed:
    """Draws of (theta, psi), and what is known about them."""

    shards: Subposteriors
    width: int
    theta: tuple[Floats, ...]  # theta of the draws before any resampling: what bandwidths are found from
    distinct: Floats  # (B,) share of the draws that resampling left


def complete(name: str, function: Function, subposteriors: Subposteriors, seed: int) -> Completed:
    """Coordinates for one function.

    Examples
    --------
    >>> draws = 3.0 + 0.1 * np.random.default_rng(0).normal(size=(2, 500, 2))
    >>> shards = Subposteriors.of(draws, kind="subposterior", names=["a", "b"])
    >>> found = complete("ratio", lambda draws: draws["a"] / draws["b"], shards, seed=0)
    >>> found.shards.names, found.width
    (('ratio', 'b'), 1)
    """
    theta = evaluate_functions(RULE, {name: function}, subposteriors)[name]
    width, d = theta[0].shape[1], subposteriors.dimension
    if width > d:
        raise must_be(
            RULE, name, f"of at most {d} columns, as there are parameters", width, "Take fewer.", InputError
        )
    steps = STEP * np.std(np.concatenate([x[:1_000] for x in subposteriors.draws]), axis=0)
    left_out = _choose(name, function, subposteriors, width, steps)
    kept = [i for i in range(d) if i not in left_out]
    draws = [np.concatenate([t, x[:, kept]], axis=1) for t, x in zip(theta, subposteriors.draws, strict=True)]
    names = (
        *_free_names(column_names(name, width), subposteriors.names),
        *(subposteriors.names[i] for i in kept),
    )
    log_volume = _log_volume(name, function, subposteriors, left_out, steps)
    distinct = np.ones(len(draws))
    lengths = list(subposteriors.chain_lengths)
    if max(float(np.ptp(x)) for x in log_volume) > STRAIGHT:
        generators = shard_generators(subposteriors, seed)
        for b, (weight, volume) in enumerate(zip(subposteriors.weights, log_volume, strict=True)):
            tilt = (1.0 - weight) * volume
            chosen = _systematic(tilt, generators[b])
            draws[b], lengths[b] = draws[b][chosen], lengths_after(chosen, lengths[b])
            distinct[b] = effective_draws(tilt) / len(tilt)
    shards = Subposteriors.of(
        draws,
        kind=subposteriors.kind,
        weights=subposteriors.weights,
        names=names,
        labels=subposteriors.labels,
        chain_lengths=lengths,
    )
    return Completed(shards, width, theta, distinct)


def _choose(
    name: str, function: Function, subposteriors: Subposteriors, width: int, steps: Floats
) -> tuple[int, ...]:
    """The parameters that theta takes the place of."""
    d = subposteriors.dimension
    few = subposteriors.thinned(max(2, ROWS_TO_CHOOSE_BY // subposteriors.num_shards))
    slopes = np.stack(
        [np.concatenate(_difference(name, function, few, c, steps)) for c in range(d)], axis=2
    ) * (steps / STEP)
    if math.comb(d, width) <= MOST_CHOICES:
        choices = list(itertools.combinations(range(d), width))
    else:
        # Pivoting finds columns that move theta most; then each is exchanged for any other.
        from scipy.linalg import qr

        first = qr(np.abs(slopes).mean(axis=0), pivoting=True, mode="economic")[2][:width]
        choices = [tuple(sorted(map(int, first)))]
        choices += [
            tuple(sorted({*choices[0]} - {i} | {j}))
            for i in choices[0]
            for j in range(d)
            if j not in choices[0]
        ]
    best: tuple[tuple[float, float], tuple[int, ...]] | None = None
    volumes = [np.linalg.det(slopes[:, :, list(choice)]) for choice in choices]
    largest = max(float(np.abs(volume).max()) for volume in volumes)
    for choice, volume in zip(choices, volumes, strict=True):
        if np.ptp(np.sign(volume)) > 0 or np.abs(volume).min() <= 1e-9 * largest:
            continue
        logs = np.log(np.abs(volume))
        varies = float(logs.std())
        score = (varies if varies > STRAIGHT else 0.0, -float(logs.mean()))
        if best is None or score < best[0]:
            best = (score, choice)
    if best is None:
        raise _not_monotone(name)
    return best[1]


def _log_volume(
    name: str, function: Function, subposteriors: Subposteriors, left_out: tuple[int, ...], steps: Floats
) -> list[Floats]:
    """log |det m'| at all draws."""
    columns = [_difference(name, function, subposteriors, c, steps) for c in left_out]
    found, signs = [], set()
    for parts in zip(*columns, strict=True):
        volume = np.linalg.det(np.stack(parts, axis=2))
        signs.update(np.unique(np.sign(volume)).tolist())
        with np.errstate(divide="ignore"):
            found.append(np.log(np.abs(volume)))
    if len(signs) != 1 or 0.0 in signs:
        raise _not_monotone(name)
    return found


def _difference(
    name: str, function: Function, subposteriors: Subposteriors, column: int, steps: Floats
) -> list[Floats]:
    """Derivative of the function by one parameter at every draw: (J_b, k) per shard."""
    step = np.zeros(subposteriors.dimension)
    step[column] = steps[column]
    found = []
    # Shard by shard: a moved copy of one shard's draws is enough to hold.
    for x, label in zip(subposteriors.draws, subposteriors.labels, strict=True):
        high, low = (
            evaluate_functions(
                RULE,
                {name: function},
                replace(subposteriors, draws=(x + sign * step,), labels=(label,), curvatures=None),
            )[name][0]
            for sign in (1.0, -1.0)
        )
        found.append((high - low) / (2.0 * steps[column]))
    return found


def _systematic(log_weights: Floats, generator: np.random.Generator) -> np.ndarray:
    weights = np.exp(log_weights - log_weights.max())
    edges = np.cumsum(weights) / weights.sum()
    positions = (generator.uniform() + np.arange(len(weights))) / len(weights)
    return np.minimum(np.searchsorted(edges, positions, side="right"), len(weights) - 1)


def _free_names(wanted: tuple[str, ...], taken: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{name} (function)" if name in taken else name for name in wanted)


def _not_monotone(name: str) -> Exception:
    return must_be(
        RULE,
        name,
        "strictly monotone in some parameter while the others stay (one parameter for each of its columns)",
        "a function whose derivatives change sign, or vanish, among the draws",
        "Combine a monotone function of it, or evaluate it at draws of a joint rule.",
        error=InputError,
    )
