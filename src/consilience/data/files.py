"""Rows that stay in files: finding the files, telling whether they changed, and what is wrong with them."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from consilience.data.columns import BOOLEAN, INTEGER, NUMBER, SINGLE, ColumnType, Shown
from consilience.data.source import Source
from consilience.errors import DataError, must_be

#: Extension to reader.
EXTENSIONS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".csv.gz": "csv"}

_ENDS = 1 << 20  # bytes hashed at either end of a file


class FileSource(Source):
    """One or more files with the same columns."""

    kind = "files"

    def __init__(self, name: str, paths: Sequence[Path], root: Path) -> None:
        self.name = name
        self.paths = tuple(paths)
        self._root = root
        self._types: dict[str, ColumnType | None] = {}

    def type_of(self, column: str) -> ColumnType | None:
        """Return the type that holds the column in every file."""
        return self._types[column]

    def called(self, path: Path) -> str:
        """Return how messages name one of the files."""
        return self.name if len(self.paths) == 1 else path.relative_to(self._root).as_posix()

    def fingerprint(self, columns: Sequence[str] | None = None) -> dict[str, Any]:
        """Return name, size, time and the hash of both ends of every file (Parquet: with its statistics)."""
        files = []
        for path in self.paths:
            with reading(self.called(path)), open(path, "rb") as file:
                state = os.fstat(file.fileno())
                digest = hashlib.blake2b(file.read(_ENDS), digest_size=16)
                file.seek(max(_ENDS, state.st_size - _ENDS))
                digest.update(file.read(_ENDS))
            files.append(
                {
                    "name": path.relative_to(self._root).as_posix(),
                    "bytes": state.st_size,
                    "mtime_ns": state.st_mtime_ns,
                    "ends": digest.hexdigest(),
                }
            )
        return {"kind": self.kind, "files": files}

    def _same_columns(self, first: Sequence[str], path: Path, found: Sequence[str]) -> None:
        """Refuse a file whose columns are not those of the first (their order may differ)."""
        duplicated = sorted({name for name in found if list(found).count(name) > 1})
        if duplicated:
            raise must_be(
                self.called(path),
                "columns",
                "of distinct names",
                duplicated,
                "Rename one of them.",
                DataError,
            )
        if set(first) == set(found):
            return
        lacking = ", ".join(repr(name) for name in first if name not in found)
        extra = ", ".join(repr(name) for name in found if name not in first)
        got = " and ".join(
            text
            for text in (f"no column {lacking}" if lacking else "", f"besides {extra}" if extra else "")
            if text
        )
        raise must_be(
            self.called(path),
            "columns",
            f"those of the first file, {self.called(self.paths[0])}",
            Shown(got),
            "Write all files with one schema, or name only the files that belong together.",
            DataError,
        )

    def _widened(
        self, path: Path, column: str, one: ColumnType | None, two: ColumnType | None
    ) -> ColumnType | None:
        """Return the type that holds a column of both types: numbers widen, nothing else does."""
        if one == two:
            return one
        if one and two and one.kind == two.kind:
            return max(one, two, key=lambda known: known.dtype.itemsize)
        numbers = (NUMBER, SINGLE, INTEGER)
        if one in numbers and two in numbers:
            return NUMBER
        # A boolean or integer column with gaps has become a number already; without gaps in this file it is
        # one too.
        if {one, two} == {NUMBER, BOOLEAN}:
            return NUMBER
        raise must_be(
            self.called(path),
            column,
            f"{one.kind if one else 'unsupported'} as in {self.called(self.paths[0])}",
            Shown(two.kind if two else "unsupported"),
            "Write all files with one schema.",
            DataError,
        )

    def _no_rows(self) -> Exception:
        return must_be(
            self.name,
            "data",
            "a table with rows",
            Shown("columns but no rows"),
            "Check how it was written.",
            DataError,
        )


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn what Arrow and the system say about an unreadable file into one sentence that names it."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(". ")
        raise must_be(
            what,
            "data",
            "a complete and readable file",
            Shown(reason),
            "Copy or write the file again.",
            DataError,
        ) from error


def find_files(data: str | os.PathLike[str]) -> tuple[str, list[Path], Path, str]:
    """Return the name for messages, the sorted files, the folder they are named from, and the reader.

    `data` is a file, a folder or a glob.
    """
    text = os.fspath(data)
    path = Path(text).expanduser()
    if path.is_dir():
        paths = _inside(path)
        if not paths:
            raise _bad(text, "a folder with .parquet, .csv or .csv.gz files", "none", "Check the folder.")
        return _checked(path.name or text, paths, path)
    if path.exists():
        return _checked(path.name, [path], path.parent)
    if "://" in text:
        raise _bad(text, "a path on this machine", "an address", "Download it first.")
    if any(sign in text for sign in "*?["):
        # Names are sorted, so that the order of rows does not depend on the file system.
        paths = sorted(Path(found) for found in glob.glob(str(path), recursive=True) if Path(found).is_file())
        if not paths:
            raise _bad(text, "a pattern that matches files", "no match", "Check the pattern and the folder.")
        root = Path(os.path.commonpath([found.parent for found in paths]))
        return _checked(text, paths, root)
    raise _bad(
        text, "an existing file, folder or pattern", "no such file", f"The folder searched is {Path.cwd()}."
    )


def _inside(folder: Path) -> list[Path]:
    """Return the data files below a folder; names with a leading _ or . are other programs' markers."""
    found = []
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if any(part.startswith(("_", ".")) for part in parts) or _reader(path) is None or not path.is_file():
            continue
        if any("=" in part for part in parts[:-1]):
            raise _bad(
                folder.name,
                "a folder whose columns are all inside its files",
                f"columns in the names of folders ({parts[0]})",
                "Read it with pyarrow.dataset and pass the table, or write those columns into the files.",
            )
        found.append(path)
    return found


def _checked(name: str, paths: list[Path], root: Path) -> tuple[str, list[Path], Path, str]:
    readers = {}
    for path in paths:
        reader = _reader(path)
        if reader is None:
            known = ", ".join(EXTENSIONS)
            raise _bad(
                path.name,
                f"a file that ends in {known}",
                path.suffix or "no extension",
                "Convert or rename it.",
            )
        if not path.is_file():
            raise _bad(path.name, "a regular file", "something else", "Copy the rows into a file.")
        if path.stat().st_size == 0:
            raise _bad(path.name, "a file with rows", "an empty file", "Write it again.")
        readers[reader] = path
    if len(readers) > 1:
        mixed = " and ".join(path.name for path in readers.values())
        raise _bad(name, "files of one kind", mixed, "Name only the Parquet files or only the CSV files.")
    return name, paths, root, next(iter(readers))


def _reader(path: Path) -> str | None:
    lowered = path.name.lower()
    return next((reader for ending, reader in EXTENSIONS.items() if lowered.endswith(ending)), None)


def _bad(what: str, constraint: str, got: str, next_step: str) -> Exception:
    return must_be(what, "data", constraint, Shown(got), next_step, DataError)
