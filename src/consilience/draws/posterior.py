"""The draws of the whole, their summaries, and their way to ArviZ and to files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from consilience import chains
from consilience.draws.checks import (
    as_float,
    check_finite,
    check_lengths,
    check_log_weights,
    check_names,
    default_names,
    lengths_after,
    read_only,
    shapes_from_names,
)
from consilience.errors import DrawsError, InputError, must_be
from consilience.numerics import weighted_covariance, weighted_mean

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["bulk", "tail", "mean"]


@dataclass(frozen=True, eq=False)
class Posterior:
    """Draws of the full posterior.

    Attributes
    ----------
    array : (N, d) float64, read-only
    names : names of the d columns, such as "Intercept" or "beta[0]"; default "theta[0]", …
    log_weights : (N,) unnormalised log weights, or None when every draw counts the same
    shapes : {parameter: shape}; the columns are these parameters one after the other, each in row-major order
    coordinates : (N, d_u) the same draws in the space in which they were combined, or None
    effective_sizes : (d,) effective number of draws behind each column's mean, when the order of draws cannot
        tell (after a permutation); None: computed from the chains
    chain_lengths : lengths of the chains that the array concatenates; None: one chain
    info : JSON-able record: method, kind, weights, options, notes, warnings

    Examples
    --------
    >>> posterior = Posterior(np.random.default_rng(0).normal(size=(500, 2)), names=("a", "b"))
    >>> list(posterior.summary().columns)
    ['mean', 'sd', '2.5%', '97.5%', 'mcse', 'ess', 'ess_tail']
    """

    array: np.ndarray
    names: tuple[str, ...] = ()
    log_weights: np.ndarray | None = None
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    coordinates: np.ndarray | None = None
    effective_sizes: np.ndarray | None = None
    chain_lengths: tuple[int, ...] | None = None
    info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        what = "Posterior"
        array = as_float(self.array, what, "array", "")
        if array.ndim != 2 or array.size == 0:
            raise must_be(
                what,
                "array",
                "(draws, parameters)",
                f"an array of shape {array.shape}",
                "Give one row per draw and one column per parameter.",
                DrawsError,
            )
        number, dimension = array.shape
        names = check_names(self.names or default_names(dimension), dimension, what)
        check_finite(array, names, what, "array", "")
        shapes = {
            str(k): tuple(int(n) for n in v) for k, v in (self.shapes or shapes_from_names(names)).items()
        }
        if sum(int(np.prod(shape)) for shape in shapes.values()) != dimension:
            raise must_be(
                what, "shapes", f"{dimension} columns in all", shapes, "Check the shapes.", DrawsError
            )
        self._set("array", read_only(array))
        self._set("names", names)
        self._set("shapes", shapes)
        if self.log_weights is not None:
            self._set("log_weights", read_only(check_log_weights(self.log_weights, number)))
        if self.coordinates is not None:
            coordinates = as_float(self.coordinates, what, "coordinates", "")
            if coordinates.ndim != 2 or len(coordinates) != number:
                raise must_be(
                    what, "coordinates", f"{number} rows", coordinates.shape, "Give one per draw.", DrawsError
                )
            self._set("coordinates", read_only(coordinates))
        if self.effective_sizes is not None:
            sizes = as_float(self.effective_sizes, what, "effective_sizes", "")
            if sizes.shape != (dimension,) or not np.all(sizes > 0):
                raise must_be(
                    what,
                    "effective_sizes",
                    f"{dimension} positive numbers",
                    sizes,
                    "One per column.",
                    DrawsError,
                )
            self._set("effective_sizes", read_only(sizes))
        if self.chain_lengths is not None:
            self._set("chain_lengths", check_lengths(self.chain_lengths, number, what))

    def _set(self, attribute: str, value: Any) -> None:
        object.__setattr__(self, attribute, value)

    def __repr__(self) -> str:
        method = self.info.get("method")
        weighted = ", weighted" if self.log_weights is not None else ""
        by = f" by {method}" if method else ""
        number, dimension = self.array.shape
        return f"<Posterior: {number} draws{weighted} of {dimension} parameters{by}>"

    @property
    def draws(self) -> dict[str, np.ndarray]:
        """``{parameter: (N, *shape) array}``."""
        out, start = {}, 0
        for name, shape in self.shapes.items():
            stop = start + int(np.prod(shape))
            out[name] = self.array[:, start:stop].reshape(len(self.array), *shape)
            start = stop
        return out

    def weights(self) -> np.ndarray:
        """(N,) weights that sum to 1."""
        if self.log_weights is None:
            return np.full(len(self.array), 1.0 / len(self.array))
        weights = np.exp(self.log_weights - self.log_weights.max())
        return np.asarray(weights / weights.sum())

    def mean(self) -> np.ndarray:
        """(d,) mean."""
        return weighted_mean(self.array, self.log_weights)

    def cov(self) -> np.ndarray:
        """(d, d) covariance."""
        if len(self.array) < 2:
            raise must_be("cov", "array", "at least 2 draws", len(self.array), "Draw more.", DrawsError)
        return weighted_covariance(self.array, self.log_weights)

    def sd(self) -> np.ndarray:
        """(d,) standard deviation."""
        if self.log_weights is None:
            return np.asarray(self.array.std(axis=0, ddof=1 if len(self.array) > 1 else 0))
        weights = self.weights()
        centred = self.array - weights @ self.array
        return np.sqrt(weights @ centred**2 / max(1.0 - weights @ weights, np.finfo(float).tiny))

    def quantile(self, q: float | Sequence[float]) -> np.ndarray:
        """Quantiles of each column: (d,) for one q, (len(q), d) for several.

        Linear interpolation between order statistics (of the mid-points of the weights, when there are
        weights).

        Examples
        --------
        >>> Posterior(np.arange(5.0)[:, None]).quantile([0.25, 0.5])
        array([[1.],
               [2.]])
        """
        levels = np.asarray(q, dtype=np.float64)
        if levels.size == 0 or not np.all((levels >= 0) & (levels <= 1)):
            raise must_be(
                "quantile", "q", "between 0 and 1", q, "Pass 0.05 for the 5 % quantile.", InputError
            )
        if self.log_weights is None:
            return np.asarray(np.quantile(self.array, levels, axis=0))
        weights = self.weights()
        out = np.empty((levels.size, self.array.shape[1]))
        for column in range(self.array.shape[1]):
            order = np.argsort(self.array[:, column], kind="stable")
            middle = np.cumsum(weights[order]) - 0.5 * weights[order]
            out[:, column] = np.interp(levels.ravel(), middle, self.array[order, column])
        return out.reshape(*levels.shape, self.array.shape[1])

    def effective_size(self, kind: Kind = "bulk") -> np.ndarray:
        """(d,) effective number of draws.

        `effective_sizes` when they were given (the tail then has at most one per draw); otherwise from the
        chains' autocorrelation, times Kish's (sum w)^2 / sum w^2 / N when draws are weighted. Chains of
        different lengths are counted one by one and summed.
        """
        number = len(self.array)
        if self.effective_sizes is not None:
            return (
                np.minimum(self.effective_sizes, number) if kind == "tail" else np.array(self.effective_sizes)
            )
        lengths = self.chain_lengths or (number,)
        if len(set(lengths)) == 1:
            sizes = chains.effective_sample_size(self.array.reshape(len(lengths), lengths[0], -1), kind=kind)
        else:
            parts = np.split(self.array, np.cumsum(lengths)[:-1])
            sizes = np.sum([chains.effective_sample_size(part, kind=kind) for part in parts], axis=0)
        if self.log_weights is not None:
            kish = 1.0 / np.sum(self.weights() ** 2)
            sizes = kish * np.minimum(1.0, sizes / number)
        return np.asarray(sizes)

    def mcse(self) -> np.ndarray:
        """(d,) Monte Carlo standard error of the mean."""
        return np.asarray(self.sd() / np.sqrt(self.effective_size("mean")))

    def summary(self, interval: float = 0.95) -> pd.DataFrame:
        """A frame indexed by parameter: mean, sd, central interval, Monte Carlo standard error, effective
        sizes.

        `ess` is the bulk's and `ess_tail` that of the 5 % and 95 % quantiles (Vehtari et al. 2021).

        Examples
        --------
        >>> posterior = Posterior(np.random.default_rng(0).normal(size=(500, 1)), names=("a",))
        >>> posterior.summary(interval=0.9).round(1)[["mean", "5%", "95%"]].to_dict("index")
        {'a': {'mean': -0.0, '5%': -1.5, '95%': 1.6}}
        """
        import pandas as pd

        if not 0 < interval < 1:
            raise must_be(
                "summary", "interval", "between 0 and 1", interval, "Pass 0.95 for 95 %.", InputError
            )
        levels = [(1 - interval) / 2, (1 + interval) / 2]
        low, high = self.quantile(levels)
        columns = {
            "mean": self.mean(),
            "sd": self.sd(),
            f"{100 * levels[0]:.6g}%": low,
            f"{100 * levels[1]:.6g}%": high,
            "mcse": self.mcse(),
            "ess": self.effective_size("bulk"),
            "ess_tail": self.effective_size("tail"),
        }
        return pd.DataFrame(columns, index=pd.Index(self.names, name="parameter"))

    def resample(self, n: int, seed: int = 0) -> Posterior:
        """n equally weighted draws by systematic resampling (Kitagawa 1996).

        Draw i appears floor(n w_i) or ceil(n w_i) times: without weights this thins (n < N) or repeats (n >
        N) evenly. The order is kept, so repeated draws show up as autocorrelation and effective sizes stay
        honest.

        Examples
        --------
        >>> posterior = Posterior(np.arange(4.0)[:, None], log_weights=np.log([0.5, 0.5, 1e-9, 1e-9]))
        >>> posterior.resample(4).array[:, 0].tolist()
        [0.0, 0.0, 1.0, 1.0]
        """
        if not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 1:
            raise must_be(
                "resample", "n", "a positive whole number", n, "Say how many draws you want.", InputError
            )
        positions = (np.random.default_rng(seed).uniform() + np.arange(n)) / n
        cumulative = np.cumsum(self.weights())
        chosen = np.searchsorted(cumulative / cumulative[-1], positions, side="right").clip(
            max=len(self.array) - 1
        )
        sizes = self.effective_sizes
        if sizes is not None:
            # What resampling adds to the variance of the mean; its upper bound 1/n where weights differ.
            added = 1.0 / n if self.log_weights is not None else max(0.0, 1.0 / n - 1.0 / len(self.array))
            sizes = 1.0 / (1.0 / sizes + added)
        return replace(
            self,
            array=self.array[chosen],
            log_weights=None,
            coordinates=None if self.coordinates is None else self.coordinates[chosen],
            effective_sizes=sizes,
            chain_lengths=None if self.chain_lengths is None else lengths_after(chosen, self.chain_lengths),
        )

    def to_arviz(self) -> Any:
        """The draws as ArviZ's InferenceData (ArviZ 0.x) or DataTree (ArviZ 1.x).

        Chains of equal length stay chains, others become one. ArviZ knows no weights: weighted draws are
        resampled to N equally weighted ones first.
        """
        equal = self if self.log_weights is None else self.resample(len(self.array))
        lengths = equal.chain_lengths or (len(equal.array),)
        num_chains = len(lengths) if len(set(lengths)) == 1 else 1
        variables = {k: v.reshape(num_chains, -1, *v.shape[1:]) for k, v in equal.draws.items()}
        return arviz_from_dict({"posterior": variables})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a .npz, .parquet, .csv or .nc file, whole or not at all; `consilience.load` reads it back."""
        # The one import against the order of the house: a method that users expect here, written where files
        # are.
        from consilience.draws.files import write_posterior

        write_posterior(self, path)


def arviz_from_dict(groups: dict[str, dict[str, np.ndarray]]) -> Any:
    """ArviZ's own object from {group: {variable: (chain, draw, …)}}, in either of its two generations."""
    try:
        import arviz
    except ImportError:
        raise must_be(
            "to_arviz",
            "arviz",
            "installed",
            "no such package",
            'Run `pip install "consilience[arviz]"`.',
            InputError,
        ) from None
    if int(arviz.__version__.split(".")[0]) >= 1:
        return arviz.from_dict(groups)
    return arviz.from_dict(**groups)
