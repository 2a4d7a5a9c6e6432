"""The families of generalised linear models: one record each.

A family knows its links, its parameters beside the coefficients, what outcomes it allows, the part of each
row's log-likelihood that no parameter enters (computed once in float64 and carried in `rows["constant"]`),
and the rest in JAX. Parametrisations: sigma is a standard deviation (gaussian) or scale (student-t);
negative binomial has variance mu + dispersion mu^2; gamma has mean mu and variance mu^2 / shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaln as np_gammaln
from scipy.special import xlogy

from consilience.errors import ModelError, must_be
from consilience.model.special import (
    exp_extended,
    gamma_normaliser,
    log_bernoulli,
    log_rising,
    positive_part,
)

__all__ = ["FAMILIES", "Family", "get_family", "get_link", "link_function"]

LOG_2_PI = math.log(2.0 * math.pi)


@dataclass(frozen=True)
class Family:
    """One family; `log_likelihood(link, eta, rows, extra)` leaves out `rows["constant"]`."""

    name: str
    links: tuple[str, ...]  # the first one is the default
    extra: tuple[str, ...]  # positive parameters beside the coefficients
    outcomes: str
    allowed: Callable[[np.ndarray], np.ndarray]
    log_likelihood: Callable[[str, Any, dict[str, Any], dict[str, Any]], Any]
    constant: Callable[[np.ndarray, np.ndarray | None], np.ndarray] | None = None


def link_function(link: str, mean: float) -> float:
    """The linear predictor that belongs to a mean (NumPy; for starting points and prior locations).

    Examples
    --------
    >>> link_function("log", 1.0), link_function("logit", 0.5)
    (0.0, 0.0)
    """
    from scipy import stats

    functions: dict[str, Callable[[float], float]] = {
        "identity": lambda m: m,
        "log": math.log,
        "sqrt": math.sqrt,
        "inverse": lambda m: 1.0 / m,
        "logit": lambda m: math.log(m / (1.0 - m)),
        "probit": lambda m: float(stats.norm.ppf(m)),
        "cloglog": lambda m: math.log(-math.log1p(-m)),
        "cauchit": lambda m: math.tan(math.pi * (m - 0.5)),
    }
    return float(functions[link](mean))


def _mean_and_log(link: str, eta: Any) -> tuple[Any, Any, Any]:
    """(inside, mean, log mean) of a positive mean; where the link leaves the half-line, inside is False."""
    if link == "log":
        return jnp.ones_like(eta, dtype=bool), exp_extended(eta), eta
    if link == "inverse":
        inside, safe = positive_part(eta)
        return inside, 1.0 / safe, -jnp.log(safe)
    inside, safe = positive_part(eta * eta if link == "sqrt" else eta)
    return inside, safe, jnp.log(safe)


def _gaussian(link: str, eta: Any, rows: dict[str, Any], extra: dict[str, Any]) -> Any:
    mean = exp_extended(eta) if link == "log" else eta
    residual = (rows["y"] - mean) / extra["sigma"]
    return -0.5 * (residual * residual + LOG_2_PI) - jnp.log(extra["sigma"])


def _student_t(link: str, eta: Any, rows: dict[str, Any], extra: dict[str, Any]) -> Any:
    nu, sigma = extra["degrees_of_freedom"], extra["sigma"]
    residual = (rows["y"] - eta) / sigma
    normaliser = log_rising(0.5 * nu, 0.5) - 0.5 * jnp.log(math.pi * nu) - jnp.log(sigma)
    return normaliser - 0.5 * (nu + 1.0) * jnp.log1p(residual * residual / nu)


def _bernoulli(link: str, eta: Any, rows: dict[str, Any], extra: dict[str, Any]) -> Any:
    log_one, log_zero = log_bernoulli(link, eta)
    return jnp.where(rows["y"] > 0.5, log_one, log_zero)


def _binomial(link: str, eta: Any, rows: dict[str, Any], extra: dict[str, Any]) -> Any:
    log_one, log_zero = log_bernoulli(link, eta)
    return rows["y"] * log_one + (rows["trials"] - rows["y"]) * log_zero


def _poisson(link: str, eta: Any, rows: dict[str, Any], extra: dict[str, Any]) -> Any:
    # Relative to the saturated model: y (d - expm1(d)) with d = log(mean / y) loses no digits for large
    # counts.
    inside, mean, log_mean = _mean_and_log(link, eta)
    y = rows["y"]
    d = log_mean - jnp.log(jnp.maximum(y, 1.0))
    counts = y * (1.0 + d - exp_extended(d)) if link == "log" else y * (1.0 + d) - mean
    return jnp.where(inside, jnp.where(y > 0, counts, -mean), -jnp.inf)


def _negative_binomial(link: str, eta: Any, rows: dict[str, Any], extra: dict[str, Any]) -> Any:
    inside, _, log_mean = _mean_and_log(link, eta)
    y = rows["y"]
    r = 1.0 / jnp.maximum(extra["dispersion"], 1e-8)  # beyond, it is a Poisson law to every digit of float32
    odds = log_mean - jnp.log(r)
    value = log_rising(r, y) - r * jax.nn.softplus(odds) - y * jax.nn.softplus(-odds)
    return jnp.where(inside, value, -jnp.inf)


def _gamma(link: str, eta: Any, rows: dict[str, Any], extra: dict[str, Any]) -> Any:
    inside, _, log_mean = _mean_and_log(link, eta)
    a = extra["shape"]
    d = jnp.log(rows["y"]) - log_mean
    value = a * (1.0 + d - exp_extended(d)) + gamma_normaliser(a)
    return jnp.where(inside, value, -jnp.inf)


def _log_choose(y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
    n = np.asarray(trials)
    return np_gammaln(n + 1.0) - np_gammaln(y + 1.0) - np_gammaln(n - y + 1.0)


def _counts(y: np.ndarray) -> np.ndarray:
    return (y >= 0) & (y == np.floor(y))


_BINARY_LINKS = ("logit", "probit", "cloglog", "cauchit")
_COUNT_LINKS = ("log", "identity", "sqrt")

FAMILIES: tuple[Family, ...] = (
    Family("gaussian", ("identity", "log"), ("sigma",), "finite numbers", np.isfinite, _gaussian),
    Family("bernoulli", _BINARY_LINKS, (), "0 or 1", lambda y: (y == 0) | (y == 1), _bernoulli),
    Family(
        "binomial",
        _BINARY_LINKS,
        (),
        "whole numbers from 0 to the number of trials",
        _counts,
        _binomial,
        _log_choose,
    ),
    Family(
        "poisson",
        _COUNT_LINKS,
        (),
        "whole numbers from 0 up",
        _counts,
        _poisson,
        lambda y, _: xlogy(y, y) - y - np_gammaln(y + 1.0),
    ),
    Family(
        "negative-binomial",
        _COUNT_LINKS,
        ("dispersion",),
        "whole numbers from 0 up",
        _counts,
        _negative_binomial,
        lambda y, _: -np_gammaln(y + 1.0),
    ),
    Family(
        "gamma",
        ("log", "inverse", "identity"),
        ("shape",),
        "positive numbers",
        lambda y: np.isfinite(y) & (y > 0),
        _gamma,
        lambda y, _: -np.log(y),
    ),
    Family(
        "student-t",
        ("identity",),
        ("sigma", "degrees_of_freedom"),
        "finite numbers",
        np.isfinite,
        _student_t,
    ),
)


def get_family(name: Any) -> Family:
    """Look a family up by name; blanks and underscores may stand for hyphens.

    Examples
    --------
    >>> get_family("negative binomial").extra
    ('dispersion',)
    """
    wanted = str(name).strip().lower().replace("_", "-").replace(" ", "-")
    for family in FAMILIES:
        if family.name == wanted:
            return family
    names = ", ".join(family.name for family in FAMILIES)
    raise must_be("glm", "family", f"one of {names}", name, _closest(wanted, names.split(", ")), ModelError)


def get_link(family: Family, link: Any) -> str:
    """The family's default link for None, else the named one if the family has it."""
    if link is None:
        return family.links[0]
    if link not in family.links:
        raise must_be(
            "glm",
            "link",
            f"one of {', '.join(family.links)} for family {family.name!r}",
            link,
            f"Leave it out for {family.links[0]!r}.",
            ModelError,
        )
    return str(link)


def _closest(word: str, words: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(word, words, n=1)
    return f"Did you mean {close[0]!r}?" if close else "Choose one of them, or write a cs.Model."
