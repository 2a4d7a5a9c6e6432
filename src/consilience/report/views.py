"""The same draws as arrays on common columns: the combined posterior beside its shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from consilience.report.inputs import ReportInput

Array = np.ndarray


@dataclass(frozen=True)
class DrawsView:
    """Combined draws (N, d) with their log weights, and each shard's draws (J_b, d), under the same names.

    A column that the shards do not have (a derived quantity) is NaN in ``shards``.
    """

    names: tuple[str, ...]
    combined: Array
    log_weights: Array | None
    shards: tuple[Array, ...]
    labels: tuple[str, ...]
    shard_weights: Array
    kind: str
    transformed: bool = False

    @property
    def num_shards(self) -> int:
        """How many shards there are."""
        return len(self.shards)


def user_view(report: ReportInput) -> DrawsView:
    """Draws as the user's parameters, which is what pictures and tables show."""
    posterior, shards = report.posterior, report.subposteriors
    names = tuple(str(name) for name in posterior.names)
    combined = np.asarray(posterior.array, dtype=np.float64)
    if shards is None:
        return DrawsView(names, combined, posterior.log_weights, (), (), np.ones(0), "")
    space = shards.space
    arrays = [np.asarray(draws, dtype=np.float64) for draws in shards.draws]
    shard_names = tuple(str(name) for name in shards.names)
    if space is not None:
        arrays = [np.asarray(space.to_user(draws), dtype=np.float64) for draws in arrays]
        shard_names = tuple(str(name) for name in space.names)
    aligned = tuple(_aligned(array, shard_names, names) for array in arrays)
    return DrawsView(names, combined, posterior.log_weights, aligned, *_about_shards(shards))


def coordinate_view(report: ReportInput) -> DrawsView | None:
    """Draws in the unconstrained space where shards were combined, or None when that is the user's own.

    Shards are nearer to Gaussian there, so distances in standard deviations mean what they say.
    """
    posterior, shards = report.posterior, report.subposteriors
    coordinates = getattr(posterior, "coordinates", None)
    if shards is None or coordinates is None or shards.space is None:
        return None
    coordinates = np.asarray(coordinates, dtype=np.float64)
    names = tuple(str(name) for name in shards.names)
    if coordinates.ndim != 2 or coordinates.shape[1] != len(names):
        return None
    arrays = tuple(np.asarray(draws, dtype=np.float64) for draws in shards.draws)
    transformed = names != tuple(str(name) for name in posterior.names)
    return DrawsView(names, coordinates, posterior.log_weights, arrays, *_about_shards(shards), transformed)


def _about_shards(shards: Any) -> tuple[tuple[str, ...], Array, str]:
    return (
        tuple(str(label) for label in shards.labels),
        np.asarray(shards.weights, dtype=float),
        str(shards.kind),
    )


def _aligned(array: Array, have: Sequence[str], want: Sequence[str]) -> Array:
    if tuple(have) == tuple(want) or (array.shape[1] == len(want) and not set(have) & set(want)):
        return array
    position = {name: column for column, name in enumerate(have)}
    aligned = np.full((len(array), len(want)), np.nan)
    for column, name in enumerate(want):
        if name in position:
            aligned[:, column] = array[:, position[name]]
    return aligned
