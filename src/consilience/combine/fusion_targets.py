"""What users of fusion declare: the density that each shard sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from consilience.errors import InputError, must_be

from .base import Floats
from .fusion_density import Density

Numbers = tuple[float, ...]
Table = tuple[Numbers, ...]


@dataclass(frozen=True)
class GaussianTarget:
    """A sub-posterior N(mean, covariance).

    Parameters
    ----------
    mean : (d,) numbers
    covariance : (d, d) numbers, symmetric and positive definite

    Examples
    --------
    >>> GaussianTarget([0.0], [[2.0]])
    GaussianTarget(mean=(0.0,), covariance=((2.0,),), family='gaussian')
    """

    mean: Numbers
    covariance: Table
    family: str = field(default="gaussian", init=False)

    def __post_init__(self) -> None:
        mean = _array("mean", self.mean, 1)
        covariance = _array("covariance", self.covariance, 2)
        right = covariance.shape == (mean.size, mean.size) and np.allclose(covariance, covariance.T)
        if not right or np.linalg.eigvalsh(covariance)[0] <= 0.0:
            raise _refused("covariance", "a positive definite matrix with a row per mean", self.covariance)
        object.__setattr__(self, "mean", tuple(mean.tolist()))
        object.__setattr__(self, "covariance", tuple(map(tuple, covariance.tolist())))

    def density(self) -> Density:
        """The density, ready to be evaluated."""
        return Density.gaussian(np.array(self.mean), np.linalg.inv(np.array(self.covariance)))


@dataclass(frozen=True)
class _Regression:
    x: Table
    y: Numbers
    prior_sd: float
    weight: float

    def __post_init__(self) -> None:
        x, y = _array("x", self.x, 2), _array("y", self.y, 1)
        if len(x) != len(y):
            raise _refused("y", f"one number for each of the {len(x)} rows of x", f"{len(y)} numbers")
        self._check_outcomes(y)
        for name in ("prior_sd", "weight"):
            value = getattr(self, name)
            right = isinstance(value, int | float | np.number) and np.isfinite(value) and value > 0
            if not right:
                raise _refused(name, "a number above 0", value)
            object.__setattr__(self, name, float(value))
        object.__setattr__(self, "x", tuple(map(tuple, x.tolist())))
        object.__setattr__(self, "y", tuple(y.tolist()))

    def _check_outcomes(self, y: Floats) -> None:
        raise NotImplementedError

    def _density(self, counts: bool) -> Density:
        x, y = np.array(self.x), np.array(self.y)
        d = x.shape[1]
        return Density(
            precision=np.eye(d) * self.weight / self.prior_sd**2,
            linear=np.zeros(d),
            rows=x,
            offsets=np.zeros(len(y)),
            outcomes=y,
            counts=np.full(len(y), counts),
        )


@dataclass(frozen=True)
class LogisticTarget(_Regression):
    """A sub-posterior of logistic regression: N(0, prior_sd² I) to the power `weight`, times the rows' likelihood.

    Parameters
    ----------
    x : (n, d) numbers
    y : (n,) of 0 and 1
    prior_sd : float
        Standard deviation of every coefficient under the prior.
    weight : float
        The shard's share w_b of the prior.

    Examples
    --------
    >>> LogisticTarget([[1.0], [2.0]], [0, 1], prior_sd=2.0, weight=0.5).density().precision
    array([[0.125]])
    """

    family: str = field(default="logistic", init=False)

    def _check_outcomes(self, y: Floats) -> None:
        if not np.all((y == 0) | (y == 1)):
            raise _refused("y", "0 or 1 in every row", y[(y != 0) & (y != 1)][0])

    def density(self) -> Density:
        """The density, ready to be evaluated."""
        return self._density(counts=False)


@dataclass(frozen=True)
class PoissonTarget(_Regression):
    """A sub-posterior of Poisson regression, log link: N(0, prior_sd² I) to the power `weight`, times the likelihood.

    Parameters
    ----------
    x : (n, d) numbers
    y : (n,) whole numbers, 0 or more
    prior_sd : float
        Standard deviation of every coefficient under the prior.
    weight : float
        The shard's share w_b of the prior.

    Examples
    --------
    >>> round(float(PoissonTarget([[1.0], [1.0]], [3, 5], prior_sd=10.0, weight=0.5).density().mode()[0]), 2)
    1.39
    """

    family: str = field(default="poisson", init=False)

    def _check_outcomes(self, y: Floats) -> None:
        wrong = (y < 0) | (y != np.floor(y))
        if np.any(wrong):
            raise _refused("y", "a whole number, 0 or more, in every row", y[wrong][0])

    def density(self) -> Density:
        """The density, ready to be evaluated."""
        return self._density(counts=True)


Target = GaussianTarget | LogisticTarget | PoissonTarget


def check_targets(targets: Any) -> Any:
    """Refuse what is neither None, "gaussian" nor a sequence of targets; sequences become tuples.

    Examples
    --------
    >>> check_targets([GaussianTarget([0.0], [[2.0]])])
    (GaussianTarget(mean=(0.0,), covariance=((2.0,),), family='gaussian'),)
    """
    if targets is None or (isinstance(targets, str) and targets == "gaussian"):
        return targets
    listed = isinstance(targets, Sequence) and not isinstance(targets, str) and len(targets) > 0
    if not listed or not all(isinstance(target, Target) for target in targets):
        raise must_be(
            "fusion",
            "targets",
            "a GaussianTarget, LogisticTarget or PoissonTarget for each shard, or 'gaussian'",
            targets,
            "They are in consilience.combine.fusion_targets.",
            error=InputError,
        )
    return tuple(targets)


def _array(name: str, value: Any, ndim: int) -> Floats:
    try:
        found = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        found = np.array(np.nan)
    if found.ndim != ndim or not found.size or not np.all(np.isfinite(found)):
        raise _refused(name, f"finite numbers in {ndim} dimension{'s'[: ndim - 1]}", value)
    return found


def _refused(name: str, constraint: str, value: Any) -> Exception:
    return must_be("fusion target", name, constraint, value, "Check the target.", error=InputError)
