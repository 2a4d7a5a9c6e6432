"""What is inferred: a prior over parameters and a log-likelihood per row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from consilience.errors import ModelError, must_be
from consilience.model.fingerprints import (
    abstract_rows,
    code_fingerprint,
    json_fingerprint,
    program_fingerprint,
)
from consilience.model.reordering import vectors_first
from consilience.model.space import ParameterSpace

__all__ = ["Model"]

Columns = dict[str, np.ndarray]
Scan = Callable[[Sequence[str] | None], Iterator[Columns]]

_SIGNATURE = "Write `def log_likelihood(params, rows)` returning one number per row, such as shape (n,)."


class Model:
    """A prior and a per-row log-likelihood.

    Parameters
    ----------
    prior : dict of str to numpyro.distributions.Distribution
        One continuous prior per parameter.
    log_likelihood : callable
        ``log_likelihood(params, rows) -> (n,)`` in JAX; `rows` is a dict of arrays with n rows each. Rows
        are always an argument, never captured from outside: captured rows are compiled in, shard by shard,
        and cannot be shipped.
    columns : sequence of str, optional
        The data columns that the log-likelihood reads; every numeric column when left out.

    Notes
    -----
    Columns of strings and dates cannot enter a JAX program and are left out of `rows`.

    Examples
    --------
    >>> import numpy as np, numpyro.distributions as dist
    >>> def log_likelihood(params, rows):
    ...     return dist.Normal(params["mu"], 1.0).log_prob(rows["y"])
    >>> model = Model(prior={"mu": dist.Normal(0, 10)}, log_likelihood=log_likelihood)
    >>> rows = model.rows({"y": np.array([0.0, 1.0])})
    >>> model.log_likelihood({"mu": 0.0}, rows).shape
    (2,)
    """

    def __init__(
        self,
        prior: Mapping[str, Any],
        log_likelihood: Callable[[dict[str, Any], dict[str, Any]], Any],
        *,
        columns: Sequence[str] | None = None,
    ) -> None:
        if not callable(log_likelihood):
            raise must_be("Model", "log_likelihood", "a function", log_likelihood, _SIGNATURE, ModelError)
        self._space = ParameterSpace(prior)
        self._log_likelihood = log_likelihood
        self._columns = None if columns is None else tuple(columns)

    @property
    def space(self) -> ParameterSpace:
        """The parameters, their bijections and their prior."""
        return self._space

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Data columns that the model reads; None for every column."""
        return self._columns

    @property
    def notes(self) -> list[str]:
        """Sentences worth a reader's attention."""
        return []

    def columns_read(self, example: Columns) -> tuple[str, ...]:
        """Columns that the log-likelihood asks for, found by tracing it over a few rows.

        Examples
        --------
        >>> import numpyro.distributions as dist
        >>> model = Model({"mu": dist.Normal(0, 1)}, lambda params, rows: -((rows["y"] - params["mu"]) ** 2))
        >>> model.columns_read({"y": np.zeros(2), "unused": np.zeros(2)})
        ('y',)
        """
        if self._columns is not None:
            return self._columns
        rows = _Recorder(self.rows(example))
        point = jax.ShapeDtypeStruct((self.space.dimension,), np.dtype(np.float32))
        try:
            jax.eval_shape(lambda u: self._log_likelihood(self.space.to_params(u), rows), point)
        except Exception:  # `validate` says what is wrong, in a sentence
            return tuple(rows)
        return tuple(name for name in rows if name in rows.asked)

    def prepare(self, scan: Scan) -> Model:
        """Find whatever must be known about all rows before shards are made; here nothing."""
        return self

    def rows(self, columns: Columns) -> dict[str, np.ndarray]:
        """Turn data columns into the arrays that `log_likelihood` takes."""
        return {name: np.asarray(value) for name, value in columns.items() if _fits_jax(value)}

    def compress(self, rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Merge rows into fewer weighted ones where that is exact; here the rows as they are."""
        return rows

    def log_likelihood(self, params: dict[str, Any], rows: dict[str, Any]) -> Any:
        """Log-likelihood of every row, without row weights."""
        return vectors_first(self._log_likelihood)(params, rows)

    def validate(self, rows: Mapping[str, np.ndarray]) -> None:
        """Check that the log-likelihood returns one finite number per row at the starting point.

        Raises
        ------
        ModelError
            With what came back and what to do.
        """
        data = {name: value for name, value in rows.items() if name != "row_weight"}
        if not data:
            raise ModelError(
                "Model: no column of the data can enter a JAX program. Give at least one column of numbers."
            )
        count = len(next(iter(data.values())))
        start = np.asarray(self.space.start, np.float32)
        try:
            # As one program: operation by operation, the parameters' layout alone compiles half a dozen.
            values = jax.jit(lambda u, rows: self.log_likelihood(self.space.to_params(u), rows))(start, data)
        except KeyError as error:
            names = sorted(self.space.shapes)
            raise ModelError(
                f"Model: log_likelihood asks for {error}. Parameters are {names}, numeric columns "
                f"are {sorted(data)}; encode strings and dates as numbers first."
            ) from error
        except Exception as error:
            first = (str(error).strip().splitlines() or [""])[0]
            raise ModelError(
                f"Model: log_likelihood failed under jax.jit: {type(error).__name__}: {first} {_SIGNATURE}"
            ) from error
        self._check_values(values, count)

    def _check_values(self, values: Any, count: int) -> None:
        if not hasattr(values, "shape") or tuple(values.shape) != (count,):
            shape = tuple(values.shape) if hasattr(values, "shape") else type(values).__name__
            raise must_be(
                "Model",
                "log_likelihood",
                f"a function that returns shape ({count},) for {count} rows",
                shape,
                "Do not sum over rows; sum over every other axis.",
                ModelError,
            )
        bad = np.flatnonzero(~np.isfinite(np.asarray(values, dtype=np.float64)))
        if bad.size:
            raise must_be(
                "Model",
                "log_likelihood",
                "finite for every row at the prior's centre",
                float(np.asarray(values)[bad[0]]),
                f"{bad.size} of {count} rows are not, first row {bad[0]}: look for a log or division there.",
                ModelError,
            )

    def fingerprint(self, rows: Mapping[str, np.ndarray] | None = None) -> str:
        """Hash of the model, the same in every process.

        Parameters
        ----------
        rows : dict of arrays, optional
            Example rows (only their shapes and types are used). With them the traced program is hashed,
            which sees every constant; without them the function's bytecode and closed-over values, which
            does not see global variables.
        """
        point = jax.ShapeDtypeStruct((self.space.dimension,), np.dtype(np.float32))
        parts = {"prior": program_fingerprint(self.space.log_prior, point), "names": list(self.space.names)}
        if rows is None:
            parts["code"] = code_fingerprint(self._log_likelihood)
        else:
            data = {name: value for name, value in rows.items() if name != "row_weight"}
            params = jax.eval_shape(self.space.to_params, point)
            parts["program"] = program_fingerprint(self.log_likelihood, params, abstract_rows(data))
        return json_fingerprint(parts)

    def describe(self) -> dict[str, Any]:
        """What the model is, in JSON-able form."""
        return {
            "model": "custom",
            "parameters": {name: list(shape) for name, shape in self.space.shapes.items()},
            "prior": {name: prior_text(prior) for name, prior in self.space.prior.items()},
            "columns": None if self.columns is None else list(self.columns),
        }


class _Recorder(dict[str, Any]):
    """A dict that remembers what it was asked for; whoever walks over it has asked for everything."""

    def __init__(self, rows: Mapping[str, Any]) -> None:
        super().__init__(rows)
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.asked.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return super().get(name, default)

    def keys(self) -> Any:
        self.asked.update(super().keys())
        return super().keys()

    def values(self) -> Any:
        self.asked.update(super().keys())
        return super().values()

    def items(self) -> Any:
        self.asked.update(super().keys())
        return super().items()


def prior_text(prior: Any) -> str:
    """Write a NumPyro distribution as text.

    Examples
    --------
    >>> import numpyro.distributions as dist
    >>> prior_text(dist.Normal(0, 2.5).expand([3]).to_event(1))
    'Normal(loc=0, scale=2.5), shape (3,)'
    """
    base = prior
    while type(base).__name__ in ("Independent", "ExpandedDistribution", "MaskedDistribution"):
        base = base.base_dist
    arguments = []
    for key in getattr(base, "arg_constraints", {}):
        value = base.__dict__.get(key)
        if value is not None:
            arguments.append(f"{key}={_number_text(value)}")
    shape = tuple(prior.shape())
    suffix = f", shape {shape}" if shape else ""
    return f"{type(base).__name__}({', '.join(arguments)}){suffix}"


def _number_text(value: Any) -> str:
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        return type(value).__name__
    if array.ndim == 0:
        return f"{array.item():.4g}" if array.dtype.kind == "f" else str(array.item())
    if array.size > 8:
        return f"array{array.shape}"
    return "[" + ", ".join(f"{v:.4g}" for v in array.reshape(-1).tolist()) + "]"


def _fits_jax(value: Any) -> bool:
    return np.asarray(value).dtype.kind in "fiub"
