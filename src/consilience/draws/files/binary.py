"""NumPy's .npy and .npz, never unpickled, and ArviZ's netCDF."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from consilience.draws import Posterior
from consilience.draws.files.record import KEY, DrawFile, bad_file, from_metadata, metadata_text, scalar_names
from consilience.draws.posterior import arviz_from_dict
from consilience.errors import InputError, must_be

_DAMAGED = (ValueError, EOFError, KeyError, zipfile.BadZipFile, NotImplementedError, RuntimeError)


def _numbers(array: np.ndarray, path: Path, name: str) -> np.ndarray:
    if array.dtype.kind not in "fiub":
        raise bad_file(path, "numbers", f"{array.dtype} in {name}", "Leave that array out.")
    return np.ascontiguousarray(array, dtype=np.float64)


def read_npy(path: Path) -> DrawFile:
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise bad_file(path, "a whole .npy file of numbers", str(error), "Write the file again.") from None
    if array.ndim not in (1, 2, 3) or array.size == 0:
        raise bad_file(
            path,
            "(draws, parameters) or (chains, draws, parameters)",
            f"an array of shape {array.shape}",
            "Write one row per draw.",
        )
    array = _numbers(array, path, "the array")
    if array.ndim == 1:
        array = array[:, None]
    chains = (array.shape[1],) * array.shape[0] if array.ndim == 3 else None
    return DrawFile(array.reshape(-1, array.shape[-1]), chains=chains)


def read_npz(path: Path) -> DrawFile:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except _DAMAGED as error:
        raise bad_file(path, "a whole .npz file of numbers", str(error), "Write the file again.") from None
    if KEY in arrays:
        text, array = str(arrays.pop(KEY)), arrays.pop("array", None)
        if array is None:
            raise bad_file(path, "whole", "no array of draws", "Write the file again.")
        return from_metadata(text, array, arrays, path)
    arrays = {name: _numbers(value, path, name) for name, value in arrays.items()}
    lengths = {name: value.shape[:1] for name, value in arrays.items()}
    if not arrays or len(set(lengths.values())) != 1 or not all(value.size for value in arrays.values()):
        raise bad_file(
            path,
            "one array per parameter, all with the same number of draws first",
            {name: value.shape for name, value in arrays.items()},
            "Write (draws, …) arrays.",
        )
    return from_variables(arrays)


def from_variables(variables: dict[str, np.ndarray], **more: Any) -> DrawFile:
    """Put parameters of shape (draws, …) side by side."""
    shapes = {name: value.shape[1:] for name, value in variables.items()}
    names = [scalar for name, shape in shapes.items() for scalar in scalar_names(name, shape)]
    array = np.concatenate([value.reshape(len(value), -1) for value in variables.values()], axis=1)
    return DrawFile(np.asarray(array, dtype=np.float64), names=tuple(names), shapes=shapes, **more)


def write_npz(record: DrawFile, temporary: Path) -> None:
    with open(temporary, "wb") as handle:
        np.savez(
            handle,
            allow_pickle=False,
            **{KEY: np.array(metadata_text(record)), "array": record.array, **record.per_draw()},
        )


# netCDF allows no "/" in the name of a variable; formulas do ("x / y").
_SLASH, _STAND_IN = "/", "\N{DIVISION SLASH}"


def require_arviz(path: Path) -> Any:
    """Import what netCDF needs, or say what to install."""
    try:
        import arviz
    except ImportError:
        raise must_be(
            f"file {path}",
            "arviz",
            "installed to read or write netCDF",
            "no such package",
            'Run `pip install "consilience[arviz]"`.',
            InputError,
        ) from None
    return arviz


def read_netcdf(path: Path) -> DrawFile:
    arviz = require_arviz(path)
    try:
        data = arviz.from_netcdf(str(path))
        posterior = data["posterior"]
        variables = {str(k): v.transpose("chain", "draw", ...) for k, v in posterior.data_vars.items()}
        values = {name.replace(_STAND_IN, _SLASH): np.asarray(v.values) for name, v in variables.items()}
        statistics = data["sample_stats"].data_vars if "sample_stats" in _groups(data) else {}
        extras = {str(k): np.asarray(v.values) for k, v in statistics.items()}
        text = posterior.attrs.get(KEY)
    except (*_DAMAGED, OSError, AttributeError, TypeError) as error:
        raise bad_file(
            path, "a netCDF file of ArviZ with a posterior", str(error), "Write it with ArviZ's to_netcdf."
        ) from None
    finally:
        if "data" in locals() and hasattr(data, "close"):
            data.close()
    if not values:
        raise bad_file(path, "at least one parameter", "none", "Write the posterior group.")
    num_chains, num_draws = next(iter(values.values())).shape[:2]
    flat = {k: _numbers(v, path, k).reshape(num_chains * num_draws, *v.shape[2:]) for k, v in values.items()}
    extras = {
        k: v.reshape(num_chains * num_draws, *v.shape[2:])
        for k, v in extras.items()
        if v.ndim >= 2 and v.size
    }
    if text is not None:
        return from_metadata(text, from_variables(flat).array, extras, path)
    density = extras.get("lp")
    return from_variables(flat, chains=(num_draws,) * num_chains, log_densities=density)


def _groups(data: Any) -> list[str]:
    """Names of the groups, of an InferenceData (a method) or of a DataTree (a property with slashes)."""
    groups = data.groups() if callable(data.groups) else data.groups
    return [str(name).lstrip("/") for name in groups]


def write_netcdf(record: DrawFile, temporary: Path) -> None:
    """Unlike `Posterior.to_arviz`, keep draws as they are: their log weights lie in sample_stats."""
    require_arviz(temporary)
    lengths = record.chains or (len(record.array),)
    chains = len(lengths) if len(set(lengths)) == 1 else 1
    draws = Posterior(record.array, names=record.column_names, shapes=record.shapes).draws
    groups = {
        "posterior": {
            name.replace(_SLASH, _STAND_IN): v.reshape(chains, -1, *v.shape[1:]) for name, v in draws.items()
        }
    }
    if extras := record.per_draw():
        groups["sample_stats"] = {k: v.reshape(chains, -1, *v.shape[1:]) for k, v in extras.items()}
    data = arviz_from_dict(groups)
    data["posterior"].attrs[KEY] = metadata_text(record)
    data.to_netcdf(str(temporary))
