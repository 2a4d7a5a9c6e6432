"""The state of spline transforms, found over all rows while they stream by.

bs (B-splines) needs the bounds of its argument and, for `df=`, exact quantiles as knots. The cubic regression
splines cr and cs (natural) and cc (cyclic) need quantiles of the distinct values and, for
`constraints="center"`, the mean of each unconstrained column, which takes another pass. Knots that tie leave
columns of zeros, which are refused later.
Reference: Wood, Generalized Additive Models (2006), section 4.1.2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from consilience.errors import ModelError
from consilience.model.quantiles import ExactQuantiles

__all__ = ["BasisSpline", "CubicSpline", "CyclicSpline"]


class _Spline:
    """Bounds and inner knots that the spline transforms share."""

    def __init__(self, lower_bound: float | None, upper_bound: float | None, extrapolation: Any) -> None:
        self.lower, self.upper = lower_bound, upper_bound
        self.extrapolation = str(getattr(extrapolation, "value", extrapolation))
        self.count = 0
        self.low, self.high = np.inf, -np.inf
        self.quantiles: ExactQuantiles | None = None

    def knots_within_bounds(self) -> bool:
        return self.extrapolation in ("clip", "na", "zero")

    def add(self, data: Any) -> None:
        x = np.asarray(data, dtype=np.float64).reshape(-1)
        if x.size == 0:
            return
        self.count += x.size
        self.low, self.high = min(self.low, float(x.min())), max(self.high, float(x.max()))
        if self.quantiles is not None:
            if self.knots_within_bounds():
                x = x[(x >= (-np.inf if self.lower is None else self.lower))]
                x = x[(x <= (np.inf if self.upper is None else self.upper))]
            self.quantiles.add(x)

    def bounds(self) -> tuple[float, float]:
        lower = self.low if self.lower is None else float(self.lower)
        return lower, (self.high if self.upper is None else float(self.upper))


class BasisSpline(_Spline):
    """State of `bs(x, df, knots, degree, ...)`."""

    def __init__(
        self,
        df: int | None = None,
        knots: Any = None,
        degree: int = 3,
        include_intercept: bool = False,
        lower_bound: float | None = None,
        upper_bound: float | None = None,
        extrapolation: Any = "raise",
    ) -> None:
        super().__init__(lower_bound, upper_bound, extrapolation)
        self.degree, self.knots = degree, [] if knots is None else list(knots)
        if df and knots is not None:
            raise ModelError("glm: bs() takes either df or knots, not both. Leave one out.")
        if df:
            inner = df - degree - int(include_intercept)
            if inner < 0:
                raise ModelError(f"glm: bs(df={df}) must have df of at least {df - inner}. Raise df.")
            if inner > 0:
                self.quantiles = ExactQuantiles(np.linspace(0, 1, inner + 2)[1:-1].tolist())

    def finish(self, state: dict[str, Any]) -> bool:
        if self.quantiles is not None:
            if not self.quantiles.finish():
                return False
            self.knots = self.quantiles.quantiles
        lower, upper = self.bounds()
        knots = np.pad([lower, *self.knots, upper], self.degree, mode="edge").tolist()
        state.update({"lower_bound": lower, "upper_bound": upper, "knots": knots})
        return True


class CubicSpline(_Spline):
    """State of `cr`, `cs` (natural) and `cc` (cyclic) cubic regression splines."""

    cyclic = False

    def __init__(
        self,
        df: int | None = None,
        knots: Any = None,
        lower_bound: float | None = None,
        upper_bound: float | None = None,
        constraints: Any = None,
        extrapolation: Any = "extend",
    ) -> None:
        super().__init__(lower_bound, upper_bound, extrapolation)
        if (df is None) == (knots is None):
            raise ModelError("glm: cr(), cs() and cc() take either df or knots. Give one of the two.")
        self.constraints = None if constraints is None else constraints
        self.centred = isinstance(constraints, str) and constraints == "center"
        self.knots = None if knots is None else np.unique(np.asarray(knots, dtype=np.float64))
        self.sums: Any = 0.0
        self.summing = False
        if df is not None:
            constrained = 0 if constraints is None else 1 if self.centred else len(np.atleast_2d(constraints))
            inner = df - 2 + constrained + int(self.cyclic)
            if inner < 0 or df < 1:
                raise ModelError(f"glm: a cubic spline of df={df} is too small. Raise df to 3 or more.")
            probabilities = np.linspace(0, 1, inner + 2)[1:-1].tolist()
            self.quantiles = ExactQuantiles(probabilities, distinct=True)

    def knots_within_bounds(self) -> bool:
        return True

    def add(self, data: Any) -> None:
        if not self.summing:
            super().add(data)
            return
        x = np.asarray(data, dtype=np.float64).reshape(-1)
        if self.extrapolation == "clip":
            x = np.clip(x, *self.bounds())
        self.sums = self.sums + self._basis(x, None, {}).sum(axis=0)

    def _basis(self, x: np.ndarray, constraints: Any, state: dict[str, Any]) -> np.ndarray:
        from formulaic.transforms.cubic_spline import cubic_spline

        lower, upper = self.bounds()
        columns = cubic_spline(
            x,
            knots=self.knots,
            lower_bound=lower,
            upper_bound=upper,
            constraints=constraints,
            cyclic=self.cyclic,
            _state=state,
        )
        return np.stack(list(columns.values()), axis=1)

    def finish(self, state: dict[str, Any]) -> bool:
        if self.quantiles is not None and self.knots is None:
            if not self.quantiles.finish():
                return False
            self.knots = np.asarray(self.quantiles.quantiles)
        if self.centred and not self.summing:
            self.summing = True
            return False
        constraints = (self.sums / self.count).reshape(1, -1) if self.centred else self.constraints
        try:
            self._basis(np.asarray(self.bounds()), constraints, state)
        except ValueError as error:
            raise ModelError(
                f"glm: a cubic spline cannot be built: {error} Change df, knots or bounds."
            ) from error
        return True


class CyclicSpline(CubicSpline):
    cyclic = True
