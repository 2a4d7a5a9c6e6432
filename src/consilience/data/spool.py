"""Rows of a file sorted by shard, on disk, in one pass and in bounded memory.

The rows are taken a part at a time (about 32 MB). The rows of a part are grouped by shard and written as one
Arrow IPC file in which record batch b holds the rows of shard b. A shard is then record batch b of every
part, found through the file's own index and mapped, so reading it costs its own bytes and no more.

Every part is written beside its name and renamed. A marker, written last, says what the spool holds; without
it the parts are worth nothing and are removed by whoever comes next.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from consilience.data.columns import Columns, Shown, count_rows, rows_at_once
from consilience.data.source import Source
from consilience.errors import DataError, StoreError, must_be

FORMAT = 1
MARKER = "rows.json"

#: Bytes of rows per part. A part is in memory about three times while it is sorted.
PART_BYTES = 32 << 20


def write_spool(
    source: Source, columns: tuple[str, ...], labels: Iterator[np.ndarray], num_shards: int, directory: Path
) -> tuple[list[dict[str, Any]], np.ndarray]:
    """Write all rows; return name and bytes of every part, and the number of rows of every shard.

    `labels` gives the shards of consecutive rows, in blocks of any length.
    """
    parts: list[dict[str, Any]] = []
    sizes = np.zeros(num_shards, dtype=np.int64)
    with _writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        clear(directory)
    with _undone_on_error(directory):
        for rows, shards in _parts(source, columns, labels):
            path = directory / f"part-{len(parts):05d}.arrow"
            with _writing(directory):
                _write_part(rows, shards, num_shards, path)
                parts.append({"name": path.name, "bytes": path.stat().st_size})
            sizes += np.bincount(shards, minlength=num_shards)
            del rows, shards
    _release()
    return parts, sizes


def write_marker(directory: Path, record: dict[str, Any]) -> None:
    """Say that the spool is complete."""
    temporary = directory / f".{MARKER}.{os.getpid()}.partial"
    with _undone_on_error(directory), _writing(directory):
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(record, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, directory / MARKER)


def read_marker(directory: Path, key: str) -> dict[str, Any] | None:
    """Return the record of a complete spool for exactly this purpose, or None."""
    try:
        record = json.loads((directory / MARKER).read_text(encoding="utf-8"))
        whole = all((directory / part["name"]).stat().st_size == part["bytes"] for part in record["parts"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return record if whole and record.get("format") == FORMAT and record.get("key") == key else None


def clear(directory: Path) -> None:
    """Remove what this module writes; other files stay."""
    (directory / MARKER).unlink(missing_ok=True)  # first: from here on the parts are worth nothing
    for pattern in ("part-*.arrow", ".part-*.partial", f".{MARKER}.*.partial"):
        for path in directory.glob(pattern):
            path.unlink(missing_ok=True)


def _parts(
    source: Source, columns: tuple[str, ...], labels: Iterator[np.ndarray]
) -> Iterator[tuple[Columns, np.ndarray]]:
    """Yield rows and their shards in parts of about `PART_BYTES`."""
    pieces: list[Columns] = []
    shards: list[np.ndarray] = []
    held = 0
    waiting = np.empty(0, dtype=np.int64)
    for batch in source.scan(columns, rows_at_once(len(columns))):
        rows = count_rows(batch)
        while len(waiting) < rows:
            more = next(labels, None)
            if more is None:
                raise _changed(source)
            waiting = np.concatenate([waiting, more])
        pieces.append(batch)
        # Only as wide as needed: a label per row is kept for the whole part.
        shards.append(waiting[:rows].astype(np.int32))
        waiting = waiting[rows:]
        held += sum(_bytes(values) for values in batch.values())
        if held >= PART_BYTES:
            yield _drained(pieces), np.concatenate(shards)
            shards, held = [], 0
    if len(waiting) or next(labels, None) is not None:
        raise _changed(source)
    if pieces:
        yield _drained(pieces), np.concatenate(shards)


def _changed(source: Source) -> Exception:
    got = Shown("another number of rows than before")
    step = "Start again when nobody writes to it."
    return must_be(source.name, "data", "unchanged while it is read", got, step, DataError)


def _drained(pieces: list[Columns]) -> Columns:
    """Join the pieces column by column, letting go of each as it is joined."""
    joined = {}
    for name in list(pieces[0]):
        joined[name] = np.concatenate([piece.pop(name) for piece in pieces])
    pieces.clear()
    return joined


def _write_part(rows: Columns, shards: np.ndarray, num_shards: int, path: Path) -> None:
    import pyarrow as pa

    order = np.argsort(shards, kind="stable")  # stable: rows keep their order inside a shard
    bounds = np.searchsorted(shards[order], np.arange(num_shards + 1))
    arrays = {}
    for name in list(rows):
        arrays[name] = _to_arrow(rows.pop(name)[order])
    schema = pa.schema([(name, values.type) for name, values in arrays.items()])
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with pa.OSFile(str(temporary), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            slices = [values.slice(low, high - low) for values in arrays.values()]
            writer.write_batch(pa.RecordBatch.from_arrays(slices, schema=schema))
    os.replace(temporary, path)


def _to_arrow(values: np.ndarray) -> Any:
    import pyarrow as pa

    if values.dtype == object:
        return pa.array(values, type=pa.large_string())
    if values.ndim == 2:
        return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
    return pa.array(values)


def _bytes(values: np.ndarray) -> int:
    if values.dtype != object:
        return values.nbytes
    sample = values[:: max(1, len(values) // 64)]
    return int(len(values) * (8 + np.mean([len(text or "") for text in sample])))


def _release() -> None:
    """Give decoding memory back to the system: what comes next is JAX, which wants it."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()


@contextlib.contextmanager
def _writing(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or (str(error).splitlines() or [type(error).__name__])[0]
        raise must_be(
            "split",
            "directory",
            "a folder on a disk that can be written and has room for the rows",
            f"{directory}: {reason}",
            "Free some space, or choose another folder (for temporary files: TMPDIR).",
            StoreError,
        ) from error


@contextlib.contextmanager
def _undone_on_error(directory: Path) -> Iterator[None]:
    """Leave nothing behind when writing stops, whether by a full disk or by Ctrl-C."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            clear(directory)
        raise
