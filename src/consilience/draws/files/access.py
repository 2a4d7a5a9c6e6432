"""Reading and writing by the suffix of the file's name."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from consilience.draws import KINDS, Posterior
from consilience.draws.files import binary, inference_data, tables
from consilience.draws.files.atomic import write_atomically
from consilience.draws.files.record import DrawFile, bad_file
from consilience.errors import DrawsError, StoreError, must_be

_READERS: dict[str, Callable[[Path], DrawFile]] = {
    ".npy": binary.read_npy,
    ".npz": binary.read_npz,
    ".csv": tables.read_csv,
    ".parquet": tables.read_parquet,
    ".nc": inference_data.read_netcdf,
    ".zarr": inference_data.read_zarr,
}
_WRITERS: dict[str, Callable[[DrawFile, Path], None]] = {
    ".npz": binary.write_npz,
    ".csv": tables.write_csv,
    ".parquet": tables.write_parquet,
    ".nc": inference_data.write_netcdf,
}


def read_draws(path: str | os.PathLike[str]) -> DrawFile:
    """Read one file of draws: .npy, .npz, .csv, .parquet, .nc or .zarr (a folder).

    Raises
    ------
    DrawsError
        When there is no such file, or it is damaged, ragged or not numbers; the message names file and
        column.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "shard.csv"
    >>> _ = path.write_text("a,b\\n1,2\\n3,4.5\\n")
    >>> file = read_draws(path)
    >>> file.names, file.array.tolist(), file.kind
    (('a', 'b'), [[1.0, 2.0], [3.0, 4.5]], None)
    """
    path = Path(path)
    folder = path.is_dir() and inference_data.is_zarr(path)
    reader = inference_data.read_zarr if folder else _READERS.get(path.suffix.lower())
    if reader is None:
        suffixes = ", ".join(_READERS)
        raise bad_file(path, f"in a file ending in {suffixes}", path.name, "Convert it to one of these.")
    if not folder and not path.is_file():
        raise bad_file(path, "in a file that exists", str(path), "Check the path.")
    try:
        record = reader(path)
    except OSError as error:
        raise bad_file(
            path, "readable", error.strerror or str(error), "Check the file's permissions."
        ) from None
    check_record(record, path)
    return record


def readable(path: str | os.PathLike[str]) -> bool:
    """Whether a name is one that `read_draws` would open: by its suffix, or a zarr folder.

    Examples
    --------
    >>> readable("shard.csv"), readable("notes.txt")
    (True, False)
    """
    path = Path(path)
    return path.suffix.lower() in _READERS or (path.is_dir() and inference_data.is_zarr(path))


def check_record(record: DrawFile, path: Path | str) -> None:
    """Refuse draws that are not finite, or do not go with what comes beside them."""
    bad = ~np.isfinite(record.array)
    if bad.any():
        column = int(np.flatnonzero(bad.any(axis=0))[0])
        raise bad_file(
            path,
            "finite",
            f"{int(bad[:, column].sum())} NaN or infinite values in column {record.column_names[column]!r}",
            "Remove those draws or sample again.",
        )
    if record.names is not None and len(record.names) != record.array.shape[1]:
        raise bad_file(path, f"{len(record.names)} columns", record.array.shape[1], "Write the file again.")
    lengths = {name: len(value) for name, value in record.per_draw().items()}
    if record.chains is not None:
        lengths["chains"] = sum(record.chains)
    if any(length != len(record.array) for length in lengths.values()):
        raise bad_file(path, f"{len(record.array)} of everything", lengths, "Write the file again.")


def load(path: str | os.PathLike[str]) -> Posterior:
    """Read draws of a posterior back, ours with everything they carry, others as they are.

    A file of one shard is read as draws like any other; `info` then says which shard, kind and weight.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "posterior.npz"
    >>> Posterior(np.eye(3), names=("a", "b", "c"), info={"method": "swiss"}).save(path)
    >>> load(path)
    <Posterior: 3 draws of 3 parameters by swiss>
    """
    record = read_draws(path)
    info = dict(record.info)
    if record.content == "subposterior":
        info.update(kind=record.kind, weight=record.weight, shard=record.label)
    return Posterior(
        array=record.array,
        names=record.column_names,
        log_weights=record.log_weights,
        shapes=record.shapes,
        coordinates=record.coordinates,
        effective_sizes=record.effective_sizes,
        chain_lengths=record.chains,
        info=info,
    )


def write_posterior(posterior: Posterior, path: str | os.PathLike[str]) -> None:
    """Write a posterior to .npz, .csv, .parquet or .nc; `load` reads it back the same."""
    _write(
        DrawFile(
            array=posterior.array,
            names=posterior.names,
            chains=posterior.chain_lengths,
            kind=posterior.info.get("kind"),
            log_weights=posterior.log_weights,
            coordinates=posterior.coordinates,
            effective_sizes=posterior.effective_sizes,
            shapes=posterior.shapes,
            info=posterior.info,
            content="posterior",
        ),
        path,
    )


def write_subposterior(
    path: str | os.PathLike[str],
    array: Any,
    *,
    names: Sequence[str],
    kind: str,
    weight: float,
    chains: Sequence[int] | None = None,
    log_densities: Any = None,
    label: str | None = None,
    info: dict[str, Any] | None = None,
) -> None:
    """Write the draws of one shard, with the kind of target they follow and the shard's weight.

    Parameters
    ----------
    array
        (J, d) draws, chains one after the other; or (chains, J, d).
    kind
        "subposterior" or "inflated".
    weight
        The shard's share of all rows.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "shard0.parquet"
    >>> draws = np.random.default_rng(0).normal(size=(4, 50, 2))
    >>> write_subposterior(path, draws, names=["a", "b"], kind="inflated", weight=0.25)
    >>> file = read_draws(path)
    >>> file.kind, file.weight, file.chains
    ('inflated', 0.25, (50, 50, 50, 50))
    """
    if kind not in KINDS:
        raise must_be(
            "write_subposterior",
            "kind",
            " or ".join(map(repr, KINDS)),
            kind,
            "Say which was sampled.",
            DrawsError,
        )
    if not 0 < weight <= 1:
        raise must_be(
            "write_subposterior", "weight", "in (0, 1]", weight, "Give the shard's share of rows.", DrawsError
        )
    values = np.asarray(array, dtype=np.float64)
    if values.ndim == 3:
        chains = (values.shape[1],) * values.shape[0] if chains is None else chains
        values = values.reshape(-1, values.shape[2])
    checked = Posterior(values, names=tuple(names), chain_lengths=None if chains is None else tuple(chains))
    _write(
        DrawFile(
            array=checked.array,
            names=checked.names,
            chains=checked.chain_lengths,
            kind=kind,
            weight=float(weight),
            log_densities=None
            if log_densities is None
            else np.asarray(log_densities, dtype=np.float64).ravel(),
            shapes=checked.shapes,
            label=label,
            info=info or {},
            content="subposterior",
        ),
        path,
    )


def check_destination(path: str | os.PathLike[str]) -> None:
    """Refuse, before there is anything to save, a place where draws cannot be written.

    Examples
    --------
    >>> check_destination("posterior.txt")
    Traceback (most recent call last):
        ...
    consilience.errors.StoreError: save: `path` must be a file ending in .npz, .csv, ... Got 'posterior.txt'. ...
    """
    target = Path(path)
    _writer(target)
    if target.suffix.lower() == ".nc":
        inference_data.require_arviz(target)
    write_atomically(target, lambda temporary: temporary.touch(), keep=False)


def _writer(target: Path) -> Callable[[DrawFile, Path], None]:
    writer = _WRITERS.get(target.suffix.lower())
    if writer is None:
        raise must_be(
            "save",
            "path",
            f"a file ending in {', '.join(_WRITERS)}",
            str(target),
            "Choose the format by the suffix.",
            StoreError,
        )
    return writer


def _write(record: DrawFile, path: str | os.PathLike[str]) -> None:
    target = Path(path)
    writer = _writer(target)
    write_atomically(target, lambda temporary: writer(record, temporary))
