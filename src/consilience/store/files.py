"""Files of a run directory: JSON and arrays, each written whole or not at all, and errors that say where."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..draws.files import write_atomically
from ..errors import StoreError, must_be


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what the system says about a directory into an error with a next step."""
    try:
        yield
    except OSError as error:
        raise must_be(
            "run directory",
            "path",
            "a directory that can be written",
            f"{path} ({error.strerror or error})",
            "Choose another one with --out, change its permissions, or free some space.",
            StoreError,
        ) from None


def checksum(path: Path) -> str:
    """Return the BLAKE2b checksum of a file, read piece by piece."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, lambda: hashlib.blake2b(digest_size=32)).hexdigest()


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays to an npz file; the same arrays give the same bytes."""
    # As `np.savez` writes, but free in the names of the arrays.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asanyarray(array), allow_pickle=False)


def write_text(path: Path, text: str) -> None:
    """Write text as it is on every system."""
    path.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, value: Any) -> None:
    """Write JSON whole or not at all; NumPy's numbers and arrays become plain ones."""
    text = json.dumps(value, indent=1, ensure_ascii=False, default=_plain_one)
    write_atomically(path, lambda temporary: write_text(temporary, text + "\n"))


def read_json(path: Path) -> Any:
    """Read JSON back."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise must_be(
            "run directory",
            "path",
            "a run whose files can be read",
            f"{path} ({error})",
            "Delete the directory and start again, or choose another one with --out.",
            StoreError,
        ) from None


def plain(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value as it will be when it is read back."""
    return json.loads(json.dumps(value, default=_plain_one))


def _plain_one(value: Any) -> Any:
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{type(value).__name__} cannot be written to a run directory")
