"""What a refinement is, what it returns, and what several of them share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from consilience.draws import Subposteriors
from consilience.errors import DrawsError, must_be
from consilience.refine.pass_back import Evaluation, PassBack

Floats = NDArray[np.float64]
Need = Literal["draws", "pass-back", "subposteriors"]


@dataclass(frozen=True, eq=False)
class Refined:
    """What a refinement returns.

    Attributes
    ----------
    array : (N, d) draws, in the coordinates of those it was given
    log_weights : (N,) or None
    notes : what a reader may want to know; the first says in one line what was done and why
    warnings : what a reader has to know
    record : JSON-able: what was measured on the way, and what it cost
    evaluation : full-data scores at some of the returned draws that nothing was fitted to, or None; the
        certificate starts from them
    effective_draws : how many independent draws these are worth, where they are new ones; None where they are those
        that came in, moved or not
    """

    array: Floats
    log_weights: Floats | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    record: dict[str, Any] = field(default_factory=dict)
    evaluation: Evaluation | None = None
    effective_draws: float | None = None


class Refinement(Protocol):
    """A frozen dataclass of options with these class variables and one method."""

    name: ClassVar[str]
    reference: ClassVar[str]
    needs: ClassVar[tuple[Need, ...]]
    # Whether displaced draws of a Gaussian posterior come back right; if not, they stay where they were.
    exact_for_gaussian: ClassVar[bool]

    def refine(
        self,
        draws: Floats,
        log_weights: Floats | None,
        pass_back: PassBack,
        subposteriors: Subposteriors | None = None,
        *,
        seed: int = 0,
    ) -> Refined:
        """Draws nearer to the full posterior, or the same draws and why they were left alone."""


def checked_draws(what: str, draws: Any, log_weights: Any, dimension: int) -> tuple[Floats, Floats | None]:
    """Draws as a refinement takes them, or a clear refusal."""
    array = np.asarray(draws, np.float64)
    if array.ndim != 2 or array.shape[1] != dimension:
        constraint = f"of shape (N, {dimension}), the unconstrained coordinates"
        raise must_be(what, "draws", constraint, array.shape, "Pass Posterior.coordinates.", DrawsError)
    if not np.all(np.isfinite(array)):
        bad = int(np.count_nonzero(~np.isfinite(array)))
        raise must_be(what, "draws", "finite", f"{bad} NaN or infinite", "Look at the shards.", DrawsError)
    if len(array) < dimension + 2:
        constraint = f"at least d + 2 = {dimension + 2}"
        raise must_be(what, "draws", constraint, len(array), "Ask for more draws.", DrawsError)
    constant = np.flatnonzero(np.ptp(array, axis=0) == 0)
    if constant.size:
        constraint = "without a constant column"
        raise must_be(what, "draws", constraint, f"column {constant[0]}", "Leave it out.", DrawsError)
    if log_weights is None:
        return array, None
    weights = np.asarray(log_weights, np.float64)
    if weights.shape != (len(array),) or np.any(np.isnan(weights)) or not np.any(np.isfinite(weights)):
        constraint = f"({len(array)},) without NaN"
        raise must_be(what, "log_weights", constraint, weights.shape, "One per draw.", DrawsError)
    return array, weights


class FreshDraws:
    """Draws handed out at random, none twice before all have been."""

    def __init__(self, log_weights: Floats | None, number: int, rng: np.random.Generator) -> None:
        self._log_weights, self._number, self._rng = log_weights, number, rng
        self._waiting = np.empty(0, np.intp)

    def take(self, count: int) -> NDArray[np.intp]:
        """Indices of `count` draws, or of as many as there are.

        Examples
        --------
        >>> fresh = FreshDraws(None, 10, np.random.default_rng(0))
        >>> len(set(fresh.take(4)) | set(fresh.take(6)))
        10
        """
        count = min(count, self._number)
        if self._log_weights is not None:
            # Systematic resampling: weighted draws become equally weighted ones.
            weights = np.exp(self._log_weights - self._log_weights.max())
            edges = np.cumsum(weights / weights.sum())
            places = (np.arange(count) + self._rng.uniform()) / count
            return np.searchsorted(edges, places).clip(max=self._number - 1)
        if len(self._waiting) < count:
            self._waiting = self._rng.permutation(self._number)
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken
