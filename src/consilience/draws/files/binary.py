"""NumPy's .npy and .npz, never unpickled, and arrays by name."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from consilience.draws.files.record import KEY, DrawFile, bad_file, from_metadata, metadata_text, scalar_names

_DAMAGED = (ValueError, EOFError, KeyError, zipfile.BadZipFile, NotImplementedError, RuntimeError)


def numbers(array: np.ndarray, path: Path | str, name: str) -> np.ndarray:
    """An array as float64; what is not a real number is refused by name."""
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
    array = numbers(array, path, "the array")
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
    return from_arrays(arrays, path)


def from_arrays(arrays: Mapping[str, Any], path: Path | str) -> DrawFile:
    """Parameters by name, each (draws, …), as others' .npz files and NumPyro's `get_samples` hold them.

    Examples
    --------
    >>> from_arrays({"mu": np.zeros(5), "beta": np.ones((5, 2))}, "draws[0]").names
    ('mu', 'beta[0]', 'beta[1]')
    """
    arrays = {str(name): numbers(np.asarray(value), path, str(name)) for name, value in arrays.items()}
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
