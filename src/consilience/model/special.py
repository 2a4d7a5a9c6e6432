"""Functions of the likelihoods that keep their digits in float32.

The usual log Gamma formulas subtract numbers near 10^7 for shapes near 10^6, where float32 resolves 1.
Stirling's series,

    log Gamma(z) = (z - 1/2) log z - z + log(2 pi)/2 + delta(z),
    delta(z) = 1/(12 z) - 1/(360 z^3) + 1/(1260 z^5) - 1/(1680 z^7) + ...

lets the large parts cancel on paper instead. It is used from z = 8 on, where four terms leave an error
below 1e-11. Reference: Abramowitz & Stegun (1964), 6.1.41.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

__all__ = ["exp_extended", "gamma_normaliser", "log_bernoulli", "log_rising", "positive_part"]

_STIRLING_FROM = 8.0
_LINEAR_FROM = 60.0  # exp(60) summed over 10^12 rows still fits in float32


def exp_extended(x: Any) -> Any:
    """Exponential, continued linearly beyond 60: finite, with a gradient that points back.

    Examples
    --------
    >>> bool(jnp.isfinite(exp_extended(500.0)))
    True
    """
    return jnp.exp(jnp.minimum(x, _LINEAR_FROM)) * (1.0 + jnp.maximum(x - _LINEAR_FROM, 0.0))


def _stirling_remainder(z: Any) -> Any:
    inverse = 1.0 / z
    square = inverse * inverse
    return inverse * (1.0 / 12.0 - square * (1.0 / 360.0 - square * (1.0 / 1260.0 - square / 1680.0)))


def log_rising(r: Any, y: Any) -> Any:
    """log Gamma(r + y) - log Gamma(r), for r > 0 and y >= 0.

    Examples
    --------
    >>> round(float(log_rising(3.0, 2.0)), 4)  # log(3 * 4)
    2.4849
    """
    large = jnp.maximum(r, _STIRLING_FROM)
    total = large + y
    series = y * jnp.log(large) + (total - 0.5) * jnp.log1p(y / large) - y
    series = series + _stirling_remainder(total) - _stirling_remainder(large)
    small = jnp.minimum(r, _STIRLING_FROM)
    return jnp.where(r >= _STIRLING_FROM, series, gammaln(small + y) - gammaln(small))


def gamma_normaliser(a: Any) -> Any:
    """a log a - a - log Gamma(a), for a > 0.

    Examples
    --------
    >>> round(float(gamma_normaliser(1.0)), 4)
    -1.0
    """
    large = jnp.maximum(a, _STIRLING_FROM)
    series = 0.5 * (jnp.log(large) - math.log(2.0 * math.pi)) - _stirling_remainder(large)
    small = jnp.minimum(a, _STIRLING_FROM)
    return jnp.where(a >= _STIRLING_FROM, series, small * jnp.log(small) - small - gammaln(small))


def log_bernoulli(link: str, eta: Any) -> tuple[Any, Any]:
    """Logarithms of the probabilities of 1 and of 0, each accurate in its own tail."""
    if link == "logit":
        return -jax.nn.softplus(-eta), -jax.nn.softplus(eta)
    if link == "probit":
        return _log_ndtr(eta), _log_ndtr(-eta)
    if link == "cauchit":
        # 1/2 + arctan(eta)/pi = arctan2(1, -eta)/pi, without the cancellation for eta far below 0.
        one = jnp.ones_like(eta)
        log_pi = math.log(math.pi)
        return jnp.log(jnp.arctan2(one, -eta)) - log_pi, jnp.log(jnp.arctan2(one, eta)) - log_pi
    return _log_cloglog(eta)


def _log_ndtr(x: Any) -> Any:
    """Log of the normal distribution function; above 0 from the other tail, as JAX's own rounds to 1."""
    upper = jnp.log1p(-jax.scipy.special.ndtr(-jnp.maximum(x, 0.0)))
    return jnp.where(x > 0, upper, jax.scipy.special.log_ndtr(jnp.minimum(x, 0.0)))


def _log_cloglog(eta: Any) -> tuple[Any, Any]:
    """P(0) = exp(-t) with t = exp(eta); log(1 - exp(-t)) = eta - t/2 + t^2/24 - ... for tiny t."""
    t = exp_extended(eta)
    tiny, large = eta < -4.0, eta > 0.0
    small = jnp.where(tiny, t, 0.0)
    series = eta - small / 2.0 + small * small / 24.0 - small**4 / 2880.0
    middle = jnp.log(-jnp.expm1(-jnp.where(tiny | large, 1.0, t)))
    upper = jnp.log1p(-jnp.exp(-jnp.where(large, t, 1.0)))
    return jnp.where(tiny, series, jnp.where(large, upper, middle)), -t


def positive_part(value: Any) -> tuple[Any, Any]:
    """Where `value` is positive, and `value` with the rest replaced by 1, so that no gradient becomes NaN."""
    inside = value > 0
    return inside, jnp.where(inside, value, 1.0)
