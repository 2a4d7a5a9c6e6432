"""The parameters of a model, and the unconstrained space in which they are sampled and combined.

For a parameter theta with prior p(theta) on a support S, a bijection t: R^k -> S gives theta = t(u), and
the density of u is p(t(u)) |dt/du|. The bijections are NumPyro's `biject_to` of each prior's support:
identity on the line, exp on the positive half-line, a scaled logistic on an interval, stick-breaking on the
simplex, and so on.

Assumption: the priors are independent of each other; a prior whose parameters are other parameters is out
of reach here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution
from numpyro.distributions.transforms import (
    ComposeTransform,
    ExpTransform,
    IdentityTransform,
    IndependentTransform,
    SigmoidTransform,
    biject_to,
)

from consilience.errors import ModelError, must_be

__all__ = ["ParameterSpace", "Piece", "double_precision"]

_PRIOR_EXAMPLE = "For example prior={'beta': dist.Normal(0, 10).expand([5]).to_event(1)}."


def double_precision() -> AbstractContextManager[Any]:
    """Let JAX compute in float64 inside a `with` block, without touching the global flag.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> with double_precision():
    ...     print(jnp.zeros(2, dtype=float).dtype)
    float64
    """
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax import experimental  # JAX before 0.8

    return experimental.enable_x64()  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Piece:
    """One parameter: its prior, its bijection, and where it lies in the flat vectors."""

    name: str
    prior: Any
    bijection: Any
    shape: tuple[int, ...]
    free_shape: tuple[int, ...]
    start: int
    stop: int

    def constrained(self, flat: Any) -> Any:
        """Map `flat[..., start:stop]` to the support; leading axes are kept."""
        free = flat[..., self.start : self.stop]
        return self.bijection(free.reshape(flat.shape[:-1] + self.free_shape))


class ParameterSpace:
    """Bijections between a dict of parameters and a flat unconstrained vector.

    Parameters
    ----------
    prior : dict of str to numpyro.distributions.Distribution
        One continuous prior per parameter, in the order in which they are laid out in the flat vector.

    Examples
    --------
    >>> import numpy as np, numpyro.distributions as dist
    >>> prior = {"beta": dist.Normal(0, 1).expand([2]).to_event(1), "sigma": dist.HalfNormal(1.0)}
    >>> space = ParameterSpace(prior)
    >>> space.dimension, space.names, space.coordinate_names
    (3, ('beta[0]', 'beta[1]', 'sigma'), ('beta[0]', 'beta[1]', 'log(sigma)'))
    >>> space.to_user(np.array([[0.5, -1.0, 0.0]]))
    array([[ 0.5, -1. ,  1. ]])
    """

    def __init__(self, prior: Mapping[str, Any]) -> None:
        _check_prior(prior)
        self.prior = dict(prior)
        pieces: list[Piece] = []
        for name, distribution in self.prior.items():
            bijection = _bijection(name, distribution)
            shape = tuple(distribution.shape())
            free_shape = tuple(bijection.inverse_shape(shape))
            begin = pieces[-1].stop if pieces else 0
            end = begin + math.prod(free_shape)
            pieces.append(Piece(name, distribution, bijection, shape, free_shape, begin, end))
        self._pieces = tuple(pieces)
        if self.dimension == 0:
            raise must_be(
                "Model", "prior", "over at least one free number", prior, _PRIOR_EXAMPLE, ModelError
            )

    @property
    def dimension(self) -> int:
        """Number of unconstrained coordinates."""
        return self._pieces[-1].stop

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every parameter as the user sees it."""
        return {piece.name: piece.shape for piece in self._pieces}

    @property
    def names(self) -> tuple[str, ...]:
        """One name per scalar the user sees, in the order of `to_user`'s columns."""
        return tuple(n for piece in self._pieces for n in scalar_names(piece.name, piece.shape))

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        """One name per unconstrained coordinate."""
        return tuple(n for piece in self._pieces for n in _free_names(piece))

    def to_params(self, u: Any) -> dict[str, Any]:
        """Map a flat unconstrained vector to the dict of parameters (JAX; may be traced and vmapped)."""
        flat = jnp.asarray(u)
        return {piece.name: piece.constrained(flat) for piece in self._pieces}

    def log_prior(self, u: Any) -> Any:
        """Log density of the prior at `u`, with the logarithm of the bijections' Jacobian (JAX scalar)."""
        flat = jnp.asarray(u)
        total = jnp.zeros((), flat.dtype)
        for piece in self._pieces:
            total = total + self._log_prior_of(piece, flat)
        return total.astype(flat.dtype)

    def _log_prior_of(self, piece: Piece, flat: Any) -> Any:
        free = flat[piece.start : piece.stop].reshape(piece.free_shape)
        value = piece.bijection(free)
        jacobian = piece.bijection.log_abs_det_jacobian(free, value)
        prior = _with_constants_of(piece.prior, flat.dtype)
        return jnp.sum(prior.log_prob(value)) + jnp.sum(jacobian)

    def to_user(self, coordinates: np.ndarray) -> np.ndarray:
        """Map draws in the unconstrained space to the user's scalars, in float64.

        Parameters
        ----------
        coordinates : array (N, dimension)

        Returns
        -------
        array (N, len(names)), float64
        """
        flat = np.asarray(coordinates, dtype=np.float64)
        columns = []
        for piece in self._pieces:
            value = _in_double(piece, flat)
            columns.append(value.reshape(flat.shape[0], math.prod(piece.shape)))
        return np.concatenate(columns, axis=1)

    def from_params(self, params: Mapping[str, Any]) -> np.ndarray:
        """Map one dict of parameters to the flat unconstrained vector, in float64."""
        pieces = []
        with double_precision():
            for piece in self._pieces:
                value = np.asarray(params[piece.name], dtype=np.float64)
                pieces.append(np.broadcast_to(_inverse(piece, value), piece.free_shape).reshape(-1))
        return np.concatenate(pieces)

    @cached_property
    def start(self) -> np.ndarray:
        """A sensible first point: the prior means where they exist, else the origin."""
        point = np.zeros(self.dimension)
        for piece in self._pieces:
            point[piece.start : piece.stop] = _prior_centre(piece)
        return point


def _with_constants_of(prior: Any, dtype: Any) -> Any:
    """The prior with its arrays in the precision of what is evaluated.

    JAX remembers the type that a NumPy array had when it was first traced, and would mix a float32 constant
    into a float64 program.
    """
    return jax.tree.map(
        lambda leaf: (
            np.array(leaf, dtype) if isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f" else leaf
        ),
        prior,
    )


def scalar_names(name: str, shape: tuple[int, ...]) -> list[str]:
    """Name every scalar of a parameter.

    Examples
    --------
    >>> scalar_names("Sigma", (2, 2))
    ['Sigma[0,0]', 'Sigma[0,1]', 'Sigma[1,0]', 'Sigma[1,1]']
    >>> scalar_names("sigma", ())
    ['sigma']
    """
    if not shape:
        return [name]
    indices = itertools.product(*(range(k) for k in shape))
    return [f"{name}[{','.join(str(i) for i in index)}]" for index in indices]


def _in_double(piece: Piece, flat: np.ndarray) -> np.ndarray:
    """Apply one bijection in float64: NumPy where it is one line, else NumPyro under double precision."""
    free = flat[:, piece.start : piece.stop]
    base = _elementwise(piece.bijection)
    if isinstance(base, IdentityTransform):
        return free
    if isinstance(base, ExpTransform):
        return np.exp(free)
    with double_precision():  # compiled as a whole: operation by operation takes seconds the first time
        return np.asarray(jax.jit(piece.constrained)(jnp.asarray(flat)), dtype=np.float64)


def _inverse(piece: Piece, value: np.ndarray) -> np.ndarray:
    """Apply one bijection backwards, in float64; to be called under double precision."""
    base = _elementwise(piece.bijection)
    if isinstance(base, IdentityTransform):
        return value
    if isinstance(base, ExpTransform):
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.log(value))
    return np.asarray(jax.jit(lambda x: piece.bijection.inv(x))(jnp.asarray(value)), dtype=np.float64)


def _elementwise(bijection: Any) -> Any:
    while isinstance(bijection, IndependentTransform):
        bijection = bijection.base_transform
    return bijection


def _free_names(piece: Piece) -> list[str]:
    """Say which function of which scalar a coordinate is, where there is such a function."""
    base = _elementwise(piece.bijection)
    if piece.shape == piece.free_shape:
        scalars = scalar_names(piece.name, piece.shape)
        if isinstance(base, IdentityTransform):
            return scalars
        if isinstance(base, ExpTransform):
            return [f"log({s})" for s in scalars]
        if isinstance(base, SigmoidTransform) or (
            isinstance(base, ComposeTransform) and isinstance(base.parts[0], SigmoidTransform)
        ):
            return [f"logit({s})" for s in scalars]
    return scalar_names(f"free({piece.name})", piece.free_shape)


def _prior_centre(piece: Piece) -> np.ndarray:
    """The prior mean in the unconstrained space; the origin where a mean is infinite, unknown or outside."""
    origin = np.zeros(piece.stop - piece.start)
    with double_precision():
        try:
            mean = np.broadcast_to(np.asarray(piece.prior.mean, dtype=np.float64), piece.shape)
            centre = _inverse(piece, mean).reshape(-1)
        except (NotImplementedError, AttributeError, TypeError, ValueError):
            return origin
    # A mean on the support's edge maps to something huge: no place to start from.
    return centre if np.all(np.abs(centre) < 1e6) else origin


def _check_prior(prior: Any) -> None:
    if not isinstance(prior, Mapping) or not prior:
        raise must_be(
            "Model",
            "prior",
            "a dict with at least one parameter and its NumPyro distribution",
            prior,
            _PRIOR_EXAMPLE,
            ModelError,
        )
    for name, distribution in prior.items():
        if not isinstance(name, str) or not name:
            raise must_be(
                "Model", "prior", "keyed by the parameters' names", name, _PRIOR_EXAMPLE, ModelError
            )
        if not isinstance(distribution, Distribution):
            raise must_be(
                "Model",
                f"prior[{name!r}]",
                "a NumPyro distribution",
                distribution,
                "Write for example dist.Normal(0, 1), with `import numpyro.distributions as dist`.",
                ModelError,
            )


def _bijection(name: str, distribution: Any) -> Any:
    """The map from the unconstrained space to the prior's support; a discrete support has none."""
    support = distribution.support
    discrete = bool(getattr(distribution, "is_discrete", False)) or bool(
        getattr(support, "is_discrete", False)
    )
    if discrete or type(distribution).__name__ == "Delta":
        raise must_be(
            "Model",
            f"prior[{name!r}]",
            "a continuous distribution",
            type(distribution).__name__,
            "Sum a discrete parameter out inside log_likelihood, or fix its value there.",
            ModelError,
        )
    try:
        return biject_to(support)
    except NotImplementedError as error:
        raise must_be(
            "Model",
            f"prior[{name!r}]",
            "a distribution whose support has a bijection in NumPyro (`biject_to`)",
            f"{type(distribution).__name__} on {support}",
            "Express the parameter through one that has, such as dist.Normal or dist.HalfNormal.",
            ModelError,
        ) from error
