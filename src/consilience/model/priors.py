"""Priors of generalised linear models: the weakly informative default, and users' own on the raw scale.

Default (as in rstanarm, Gabry & Goodrich, "Prior distributions for rstanarm models"), with s_x the standard
deviation of a design column over all rows and s_y a unit of the linear predictor: coefficient ~ Normal(0,
2.5 s_y / s_x); intercept, at the means of the predictors, ~ Normal(location, 2.5 s_y). s_y is sd(y) for an
identity link and, by the delta method, sd(y) / (2 sqrt(mean y)) and sd(y) / mean(y)^2 for sqrt and inverse
links; 1 for log and binary links. The location is 0 for binary links and link(mean y) less the mean offset
for the others. sigma ~ Exponential(1 / sd(y)); dispersion ~ Exponential(1); shape ~ Exponential(0.1);
degrees_of_freedom ~ Gamma(2, 0.1).

Coefficients are sampled for standardised columns. A prior given by a user is a density of the raw
coefficients, and is evaluated on them: raw slope_j = b_j / s_j, raw intercept = b_0 + shift - sum_j b_j m_j
/ s_j. The map is affine and triangular, and its constant log-Jacobian -sum log s_j (over the slopes with a
given prior) is included, so that the density of b is normalised.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from consilience.errors import ModelError, must_be
from consilience.model.families import Family, link_function
from consilience.model.model import prior_text
from consilience.model.outcome import OutcomeSummary
from consilience.model.space import ParameterSpace, Piece

__all__ = [
    "CoefficientSpace",
    "DefaultPrior",
    "Standardisation",
    "check_prior_argument",
    "default_prior",
    "given_priors",
]


@dataclass(frozen=True)
class Standardisation:
    """The affine map between raw coefficients and those of the standardised columns."""

    names: tuple[str, ...]
    intercept: int | None
    means: np.ndarray  # 0 for the intercept, and for every column when there is none
    sds: np.ndarray  # 1 for the intercept
    shift: float  # subtracted from the outcome, to spare float32 its digits

    def standardise(self, matrix: np.ndarray) -> np.ndarray:
        """Standardise a raw design, in float64."""
        return (matrix - self.means) / self.sds

    def to_raw(self, coefficients: Any, module: Any = np) -> Any:
        """Map coefficients (..., p) of standardised columns to raw ones."""
        dtype = coefficients.dtype
        raw = coefficients / module.asarray(self.sds, dtype=dtype)
        if self.intercept is None:
            return raw
        moved = self.shift - raw @ module.asarray(self.means, dtype=dtype)
        indicator = np.zeros(len(self.names))
        indicator[self.intercept] = 1.0
        return raw + moved[..., None] * module.asarray(indicator, dtype=dtype)


@dataclass(frozen=True)
class DefaultPrior:
    """Normal priors of the standardised coefficients, priors of the extra parameters, and where to start."""

    location: np.ndarray
    scale: np.ndarray
    extra: dict[str, Any]
    start: np.ndarray
    extra_start: dict[str, float]


def default_prior(
    family: Family, link: str, standardisation: Standardisation, summary: OutcomeSummary
) -> DefaultPrior:
    """The default prior of the module's docstring, for one outcome."""
    mean, sd = summary.mean, summary.sd
    unit = {
        "identity": lambda: sd,
        "sqrt": lambda: sd / (2.0 * math.sqrt(mean)),
        "inverse": lambda: sd / mean**2,
    }.get(link, lambda: 1.0)()
    centre = link_function(link, mean) - summary.offset if not (link == "log" and mean <= 0) else 0.0
    p, intercept = len(standardisation.names), standardisation.intercept
    location, start = np.zeros(p), np.zeros(p)
    if intercept is not None:
        start[intercept] = centre - standardisation.shift
        location[intercept] = (
            -standardisation.shift if family.name in ("bernoulli", "binomial") else start[intercept]
        )
    extra = {
        "sigma": dist.Exponential(1.0 / sd) if sd > 0 else dist.Exponential(1.0),
        "dispersion": dist.Exponential(1.0),
        "shape": dist.Exponential(0.1),
        "degrees_of_freedom": dist.Gamma(2.0, 0.1),
    }
    extra_start = {"sigma": sd, "dispersion": 0.5, "shape": 1.0, "degrees_of_freedom": 5.0}
    return DefaultPrior(
        location,
        np.full(p, 2.5 * unit),
        {name: extra[name] for name in family.extra},
        start,
        {name: extra_start[name] for name in family.extra},
    )


class CoefficientSpace(ParameterSpace):
    """Parameters of a generalised linear model: standardised coefficients inside, raw ones for the user."""

    def __init__(
        self,
        standardisation: Standardisation,
        default: DefaultPrior,
        given: Mapping[str, Any],
    ) -> None:
        names = standardisation.names
        extra = {name: given.get(name, prior) for name, prior in default.extra.items()}
        super().__init__({"coefficients": dist.Normal(default.location, default.scale).to_event(1), **extra})
        self.standardisation = standardisation
        self.default = default
        self._given = {i: given[name] for i, name in enumerate(names) if name in given}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every coefficient and extra parameter is a scalar of its own."""
        return dict.fromkeys(self.names, ())

    @property
    def names(self) -> tuple[str, ...]:
        """Raw coefficients by formulaic's column names, then the extra parameters."""
        return (*self.standardisation.names, *self.default.extra)

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        """Coefficients of the standardised columns, then the unconstrained extra parameters."""
        return (*(f"standardised({n})" for n in self.standardisation.names), *self._extra_coordinates())

    def _extra_coordinates(self) -> tuple[str, ...]:
        return super().coordinate_names[len(self.standardisation.names) :]

    def to_user(self, coordinates: np.ndarray) -> np.ndarray:
        """Map draws to raw coefficients and extra parameters, in float64."""
        values = super().to_user(coordinates)
        p = len(self.standardisation.names)
        return np.concatenate([self.standardisation.to_raw(values[:, :p]), values[:, p:]], axis=1)

    @cached_property
    def start(self) -> np.ndarray:
        """The outcome's mean as intercept, no effects, moderate extra parameters."""
        return self.from_params({"coefficients": self.default.start, **self.default.extra_start})

    def _log_prior_of(self, piece: Piece, flat: Any) -> Any:
        if piece.name != "coefficients" or not self._given:
            return super()._log_prior_of(piece, flat)
        values = flat[piece.start : piece.stop]
        count = len(self.standardisation.names)
        kept = np.array([i for i in range(count) if i not in self._given], dtype=int)
        total = jnp.zeros((), flat.dtype)
        if kept.size:
            defaults = dist.Normal(self.default.location[kept], self.default.scale[kept])
            total = total + jnp.sum(defaults.log_prob(values[kept]))
        raw = self.standardisation.to_raw(values, jnp)
        for prior, indices in _grouped(self._given):
            total = total + jnp.sum(prior.log_prob(raw[indices]))
            total = total - float(np.sum(np.log(self.standardisation.sds[indices])))
        return total

    def prior_texts(self) -> dict[str, str]:
        """Every prior in words, on the raw scale."""
        texts = {}
        for i, name in enumerate(self.standardisation.names):
            if i in self._given:
                texts[name] = prior_text(self._given[i])
                continue
            scale = self.default.scale[i] / self.standardisation.sds[i]
            location = self.default.location[i]
            where = ""
            if i == self.standardisation.intercept:
                location += self.standardisation.shift
                where = " at the means of the predictors"
            texts[name] = f"Normal(loc={location:.4g}, scale={scale:.4g}){where}"
        for name in self.default.extra:
            texts[name] = prior_text(self.prior[name])
        return texts


def _grouped(given: Mapping[int, Any]) -> list[tuple[Any, np.ndarray]]:
    """One distribution for many coefficients is evaluated once, on all of them."""
    groups: dict[int, tuple[Any, list[int]]] = {}
    for index, prior in given.items():
        groups.setdefault(id(prior), (prior, []))[1].append(index)
    return [(prior, np.array(indices)) for prior, indices in groups.values()]


def check_prior_argument(prior: Any, family: Family) -> dict[str, Any] | Any:
    """Check what can be checked before the columns are known."""
    if prior is None:
        return {}
    entries = prior.items() if isinstance(prior, Mapping) else [(None, prior)]
    for name, distribution in entries:
        shown = "prior" if name is None else f"prior[{name!r}]"
        example = "Write for example prior=dist.Normal(0, 1), with `import numpyro.distributions as dist`."
        if not isinstance(distribution, dist.Distribution) or distribution.shape() != ():
            raise must_be("glm", shown, "a scalar NumPyro distribution", distribution, example, ModelError)
        positive = name in family.extra
        text = prior_text(distribution)
        if positive and not _support_is_positive(distribution):
            step = "Write for example dist.HalfNormal(1)."
            raise must_be("glm", shown, "on the positive numbers", text, step, ModelError)
        if not positive and distribution.support is not dist.constraints.real:
            step = "Coefficients may be negative; write for example dist.Normal(0, 1)."
            raise must_be("glm", shown, "a distribution on the whole line", text, step, ModelError)
    return dict(prior) if isinstance(prior, Mapping) else prior


def _support_is_positive(distribution: Any) -> bool:
    try:
        bijection = dist.transforms.biject_to(distribution.support)
    except NotImplementedError:
        return False
    points = np.asarray(bijection(jnp.array([-12.0, 0.0, 12.0])))
    return bool((points > 0).all())


def given_priors(prior: Any, names: tuple[str, ...], extra: tuple[str, ...]) -> dict[str, Any]:
    """The user's priors by name, now that the names are known."""
    if not isinstance(prior, Mapping):
        return dict.fromkeys(names, prior)
    known = (*names, *extra)
    for name in prior:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, n=1)
            hint = f"Did you mean {close[0]!r}? " if close else ""
            shown = ", ".join(known[:30]) + (" ..." if len(known) > 30 else "")
            step = f"{hint}The names are {shown}."
            raise must_be("glm", "prior", "keyed by names of coefficients", name, step, ModelError)
    return dict(prior)
