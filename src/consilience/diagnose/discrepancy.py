"""The answer of `compare`: how far two sets of draws are apart, and how much of it is Monte Carlo noise."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

_TITLES = {
    "mahalanobis": "Mahalanobis distance of means",
    "standardised_mean": "standardised mean difference",
    "covariance": "relative error of covariance",
    "skew": "skew difference",
    "iad": "integrated absolute distance",
    "l2": "L2 distance of densities",
    "sliced_wasserstein": "sliced Wasserstein-2",
}


@dataclass(frozen=True, eq=False)
class Discrepancy:
    """How far draws are from a reference.

    Attributes
    ----------
    mahalanobis, skew, iad, standardised_mean, l2, covariance, sliced_wasserstein : float
        The measures; `skew`, `iad` and `standardised_mean` are means over parameters of absolute values. `l2`
        is that of the joint density in the parameters' units for one and two parameters, else the mean of the
        marginals' in units of the reference's standard deviations (`l2_of` says which).
    standard_errors : dict
        Monte Carlo standard error of each measure.
    noise_floor : dict
        What each measure gives, on average, between two exact samples with these effective sizes.
    limits : dict
        What each measure stays under in 99 of 100 such pairs.
    within_noise : dict of bool
        Whether the measure is under its limit.
    per_parameter : DataFrame
        By parameter: signed standardised mean difference and skew difference, IAD, each with its standard
        error; `iad_noise` is IAD's noise floor; ratio of standard deviations.
    effective_sizes : pair of floats
        Effective number of draws of either set.
    """

    mahalanobis: float
    skew: float
    iad: float
    standardised_mean: float
    l2: float
    covariance: float
    sliced_wasserstein: float
    standard_errors: dict[str, float]
    noise_floor: dict[str, float]
    limits: dict[str, float]
    per_parameter: pd.DataFrame
    effective_sizes: tuple[float, float]
    l2_of: str
    notes: tuple[str, ...] = ()

    @property
    def within_noise(self) -> dict[str, bool]:
        return {name: value <= self.limits[name] for name, value in self.measures.items()}

    @property
    def measures(self) -> dict[str, float]:
        """The seven measures by name."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: values[name] for name in _TITLES}

    def __str__(self) -> str:
        header = ("measure", "value", "± se", "noise floor", "")
        rows = [
            (
                _TITLES[name],
                _short(value),
                _short(self.standard_errors[name]),
                _short(self.noise_floor[name]),
                "noise" if self.within_noise[name] else "real",
            )
            for name, value in self.measures.items()
        ]
        widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
        lines = [
            "  ".join(
                cell.ljust(w) if i in (0, 4) else cell.rjust(w)
                for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in [header, *rows]
        ]
        a, r = self.effective_sizes
        count = len(self.per_parameter)
        parameters = f"{count} parameter{'s' if count > 1 else ''}"
        lines.append(f"{parameters}; effective draws {a:,.0f} against {r:,.0f}; L2 of {self.l2_of}.")
        return "\n".join([*lines, *self.notes])


def _short(value: float) -> str:
    return f"{value:.4f}" if 1e-3 <= abs(value) < 1e4 else f"{value:.2e}"
