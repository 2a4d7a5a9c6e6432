"""Draws in memory: ArviZ objects, NumPyro's MCMC, arrays by name, tables, and lists of them as a shard's chains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from consilience.draws.files.binary import from_arrays, from_variables, numbers
from consilience.draws.files.inference_data import from_inference_data, is_inference_data
from consilience.draws.files.record import DrawFile, bad_file
from consilience.draws.files.tables import from_table


def is_object(value: Any) -> bool:
    """Whether `read_object` knows what to do with it; plain arrays it leaves to others.

    Examples
    --------
    >>> is_object({"mu": np.zeros(5)}), is_object(np.zeros((5, 1)))
    (True, False)
    """
    return _is_numpyro(value) or is_inference_data(value) or isinstance(value, Mapping) or _is_table(value)


def read_object(value: Any, where: str) -> DrawFile:
    """Draws of one shard, or of one of its chains, with what the object knows beside them.

    Parameters
    ----------
    value
        ArviZ's InferenceData or DataTree (as PyMC returns them), NumPyro's MCMC after `run`, a dict of (draws, …)
        arrays, or a pandas, Polars or Arrow table.
    where
        What to call it when it cannot be used.

    Examples
    --------
    >>> read_object({"mu": np.arange(3), "beta": np.ones((3, 2))}, "draws[0]").array.shape
    (3, 3)
    """
    if _is_numpyro(value):
        return from_numpyro(value, where)
    if is_inference_data(value):
        return from_inference_data(value, where)
    if isinstance(value, Mapping):
        return from_arrays(value, where)
    return from_table(value, where)


def from_numpyro(mcmc: Any, where: str) -> DrawFile:
    """Draws of NumPyro's MCMC by chain; with `potential_energy` among its extra fields, log densities too."""
    try:
        samples = mcmc.get_samples(group_by_chain=True)
        fields = mcmc.get_extra_fields(group_by_chain=True)
    except (AssertionError, AttributeError, TypeError, KeyError):
        raise bad_file(where, "an MCMC that has run", "one without draws", "Call its `run` first.") from None
    if not isinstance(samples, Mapping) or not samples:
        shown = type(samples).__name__
        raise bad_file(where, "draws of named sites", shown, "Pass get_samples() as a dict.")
    arrays = {str(name): numbers(np.asarray(value), where, str(name)) for name, value in samples.items()}
    num_chains, num_draws = next(iter(arrays.values())).shape[:2]
    energy, diverging = fields.get("potential_energy"), fields.get("diverging")
    return from_variables(
        {name: value.reshape(num_chains * num_draws, *value.shape[2:]) for name, value in arrays.items()},
        chains=(num_draws,) * num_chains,
        log_densities=None if energy is None else -np.asarray(energy, dtype=np.float64).ravel(),
        unconstrained_densities=energy is not None,
        divergences=None if diverging is None else int(np.sum(diverging)),
    )


def _is_numpyro(value: Any) -> bool:
    return hasattr(value, "get_samples") and hasattr(value, "get_extra_fields")


def _is_table(value: Any) -> bool:
    return hasattr(value, "__arrow_c_stream__")
