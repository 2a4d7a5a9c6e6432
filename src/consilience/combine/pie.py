"""PIE: posterior interval estimation, the average of the shards' inflated quantile functions.

Formula. For a parameter, or any scalar function of the parameters, with F_b its distribution under shard b's
inflated sub-posterior,

    F⁻¹(u) = sum w_b F_b⁻¹(u),   0 < u < 1.

From draws: the i-th smallest values of all shards are averaged. Shards with fewer draws than the longest one
are put on its N levels by averaging their step functions over each level's cell, which keeps every shard's
mean. The N values are the draws of the one-dimensional Wasserstein-2 barycenter, exactly.

Assumptions. Inflated sub-posteriors of about the same spread, whose centres scatter around the posterior's:
the bias of a shard's centre is then averaged out. Exact for Gaussian shards only when their variances are equal;
no shape is assumed, so modes and skewness that shards share stay.

Rows. The method says nothing about several parameters at once. Each column is combined for itself, and its
values are put into rows in the order of the ranks of the shards' own draws, recentred, rescaled and laid
together by weight: a column's law does not depend on it, correlations are about those of the shards, and one
shard comes out as it went in. Values of an independent order, or sorted ones, would show correlations 0 or 1.
Because no theory stands behind the rows, functions of several parameters are better asked for by `functions`.

Fails when spreads differ between shards: the combined standard deviation is the average of theirs, where the
posterior's follows the most precise shard. Averages of J order statistics of many shards have slightly too
little spread in the tails: 3 % of a Gaussian's variance with 100 draws per shard, .4 % with 1,000.

Cost. Sorting: O(sum J_b log J_b) for each column. Memory: the combined draws, and two copies of one shard.

Reference. Li, Srivastava and Dunson (2017), Simple, scalable and accurate posterior interval estimation,
Biometrika 104(3), Algorithm 1, with w_b in the place of 1/K; Vyner's thesis, equation (2.17).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from consilience.draws import Subposteriors
from consilience.errors import InputError, must_be
from consilience.progress import tell

from .base import Combined, Equivariance, Floats, Kind, Need
from .column_moments import ColumnMoments, column_moments, slow_chains, uneven_spreads
from .functions import Functions, check_functions, column_names, evaluate_functions
from .permute import canonical_order
from .quantile_average import add_quantiles, rows_in_rank_order, shared_rows


@dataclass(frozen=True)
class Pie:
    """Average the shards' inflated quantile functions, each parameter or function for itself.

    Parameters
    ----------
    functions : dict, optional
        Functions of the parameters to combine in their place, by name: a linear combination
        ``{parameter: coefficient}``, or a callable that takes ``{parameter: (J, *shape) array}`` and returns (J,)
        or (J, k) numbers. They are computed and averaged in the user's parameters. Without them, quantiles are
        averaged in the unconstrained coordinates.

    Examples
    --------
    >>> shards = np.random.default_rng(0).normal(0.0, [[[1.0]], [[3.0]]], size=(2, 5000, 1))
    >>> combined = Pie().combine(Subposteriors.of(shards, kind="inflated"))
    >>> round(float(combined.array.std()), 1)
    2.0
    >>> rule = Pie(functions={"square": lambda draws: draws["theta"][:, 0] ** 2})
    >>> rule.combine(Subposteriors.of(shards, kind="inflated")).names
    ('square',)
    """

    functions: Functions | None = None

    name: ClassVar[str] = "pie"
    reference: ClassVar[str] = "Li, Srivastava and Dunson (2017), Biometrika 104(3), Algorithm 1"
    kind: ClassVar[Kind] = "inflated"
    needs: ClassVar[tuple[Need, ...]] = ("draws",)
    exact_for_gaussian: ClassVar[bool] = False
    joint: ClassVar[bool] = False
    equivariance: ClassVar[Equivariance] = "diagonal"

    def __post_init__(self) -> None:
        check_functions("pie", self.functions)

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0) -> Combined:
        """Sort, average, and put the values into rows; nothing here is random, so `seed` is not used."""
        arrays, names = subposteriors.draws, tuple(subposteriors.names)
        if self.functions is not None:
            arrays, names = _values(self.functions, subposteriors)
        weights, sizes = np.asarray(subposteriors.weights), subposteriors.num_draws
        quantiles = np.zeros((len(names), max(sizes)))
        moments = []
        for b, (x, lengths) in enumerate(zip(arrays, subposteriors.chain_lengths, strict=True)):
            columns = np.array(x.T, order="C")
            moments.append(column_moments(columns, lengths))
            add_quantiles(quantiles, columns, weights[b])
            tell("shards averaged", b + 1, len(arrays))
        pattern = _rank_pattern(subposteriors, arrays, moments, weights, max(sizes))
        errors = weights**2 @ np.array([part.mean_errors for part in moments])
        deviations = np.array([part.deviations for part in moments])
        return Combined(
            array=rows_in_rank_order(quantiles, pattern),
            effective_sizes=quantiles.var(axis=1) / errors,
            names=None if self.functions is None else names,
            notes=_notes(sizes, len(names)),
            warnings=uneven_spreads(deviations, weights, names) + slow_chains(moments, subposteriors.labels),
        )

    def draws_per_shard(self, total: int, num_shards: int) -> int:
        """One draw of every shard makes one combined draw."""
        return total


def _values(functions: Functions, subposteriors: Subposteriors) -> tuple[tuple[Floats, ...], tuple[str, ...]]:
    """Values of all functions, one (J_b, k) array per shard, and the names of their columns."""
    found = evaluate_functions("pie", functions, subposteriors)
    names = tuple(column for name, parts in found.items() for column in column_names(name, parts[0].shape[1]))
    arrays = tuple(np.concatenate(parts, axis=1) for parts in zip(*found.values(), strict=True))
    for x, label in zip(arrays, subposteriors.labels, strict=True):
        still = np.flatnonzero(np.ptp(x, axis=0) == 0)
        if still.size:
            raise must_be(
                "pie",
                names[still[0]],
                "a function that takes more than one value in every shard",
                f"{x[0, still[0]]} for all draws of shard {label}",
                "Leave it out: it has no quantile function to average.",
                error=InputError,
            )
    return arrays, names


def _rank_pattern(
    subposteriors: Subposteriors,
    arrays: tuple[Floats, ...],
    moments: list[ColumnMoments],
    weights: Floats,
    number: int,
) -> Floats:
    """(d, number) draws of all shards, recentred and rescaled, whose ranks the combined rows take."""
    order, _ = canonical_order(subposteriors)
    chosen = shared_rows(subposteriors.num_draws, weights, order, number)
    parts = [((arrays[b][chosen[b]] - moments[b].means) / moments[b].deviations).T for b in order]
    return np.concatenate(parts, axis=1)


def _notes(sizes: tuple[int, ...], num_columns: int) -> tuple[str, ...]:
    notes: tuple[str, ...] = ()
    if num_columns > 1:
        notes += (
            "Every column was combined for itself; rows follow the ranks of the shards' draws, without a theory "
            "of the joint law. Ask for functions of several parameters by functions=.",
        )
    if min(sizes) < max(sizes):
        notes += (
            f"Shards brought {min(sizes)} to {max(sizes)} draws; the quantile functions of shorter ones were "
            f"averaged on the {max(sizes)} levels of the longest.",
        )
    return notes
