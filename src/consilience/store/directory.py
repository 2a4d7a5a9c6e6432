"""The run directory: what a run keeps, to be looked at later and gone on with after an interruption.

    run/manifest.json       what was asked for; another command in the same directory is refused
    run/shards/00012.npz    the draws of a finished shard
    run/shards/00012.json   its record and checksum; written last, so that it says that the shard is finished
    run/rows/               rows sorted by shard, when they came from files
    run/posterior.npz, summary.csv, diagnostics.json, report.html
    run/.lock               held by the process that writes

Every file is written beside its name and renamed. A checksum that does not fit makes a shard unfinished,
never wrong.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from ..draws.files import write_atomically
from ..errors import InputError, StoreError, must_be
from .files import checksum, explained, plain, read_json, write_arrays, write_json, write_text
from .lock import LOCK, take_lock
from .manifest import MANIFEST, compare, read_manifest, write_manifest
from .place import UNFINISHED, is_new, make_directories, remove_empty, try_writing

_SHARD = re.compile(r"^(\d{5,})\.json$")


class RunDirectory:
    """A run on disk. Use `open` to write and `existing` to look.

    Attributes
    ----------
    path : Path
    manifest : dict
    warnings : list of str
        What was found wrong on disk and mended by doing it again, and versions that have changed.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "run"
    >>> with RunDirectory.open(folder, {"settings": {"draws": 10}}) as run:
    ...     run.save_shard(3, {"draws": np.zeros((2, 1))}, {"label": "c"})
    ...     run.finished()
    [3]
    >>> RunDirectory.open(folder, {"settings": {"draws": 20}})
    Traceback (most recent call last):
    ...
    consilience.errors.StoreError: run directory ...: settings.draws was 10, is 20. Choose another ...
    """

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path = path
        self.manifest = manifest
        self.warnings: list[str] = []
        self._held = contextlib.ExitStack()
        self._made: list[Path] | None = None

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], manifest: Mapping[str, Any] | None = None, *, create: bool = True
    ) -> RunDirectory:
        """Open a run for writing; the first time, make it.

        Parameters
        ----------
        path : path
        manifest : dict, optional
            What the run depends on, JSON-able. A stored one must say the same, except for ``versions``.
            Without it the run must exist and is gone on with as it is.
        create : bool
            Whether a run may be made.

        Raises
        ------
        StoreError
            When the stored manifest differs (saying in what), the directory holds something else or cannot be
            written, or another process is writing to it.
        """
        path = Path(path)
        wanted = None if manifest is None else plain(manifest)
        new = is_new(path)
        if new and (wanted is None or not create):
            raise _not_a_run(path)
        made = make_directories(path)
        try:
            with contextlib.ExitStack() as stack:
                warnings = take_lock(path, stack)
                new = not (path / MANIFEST).exists()  # somebody may have been here before us
                _remove_unfinished(path)
                if new:
                    assert wanted is not None
                    write_manifest(path, wanted)
                else:
                    stored = read_manifest(path)
                    warnings += [] if wanted is None else compare(path, stored, wanted)
                    wanted = stored
                run = cls(path, wanted)
                run.warnings = warnings
                run._made = made if new else None
                run._held = stack.pop_all()
                return run
        except BaseException:
            remove_empty(made)
            raise

    @classmethod
    def check(cls, path: str | os.PathLike[str]) -> None:
        """Refuse a place where no run can be, before any work is done for it; leave it as it was.

        Examples
        --------
        >>> RunDirectory.check("/proc/run")
        Traceback (most recent call last):
        ...
        consilience.errors.StoreError: run directory: `path` must be a directory that can be written. ...
        """
        is_new(Path(path))
        try_writing(Path(path))

    @classmethod
    def existing(cls, path: str | os.PathLike[str]) -> RunDirectory:
        """Open a run to look at it, also while another process writes to it."""
        path = Path(path)
        if not (path / MANIFEST).is_file():
            raise _not_a_run(path)
        return cls(path, read_manifest(path))

    def close(self) -> None:
        """Let other processes write."""
        self._held.close()

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, InputError):
            self._discard()
        self.close()

    def _discard(self) -> None:
        """Leave nothing of a run that was refused, unless it is an old one or some of its shards are done."""
        if self._made is None or self.finished():
            return
        for name in (MANIFEST, LOCK):
            (self.path / name).unlink(missing_ok=True)
        for directory in (self.rows, self.path / "shards"):
            shutil.rmtree(directory, ignore_errors=True)
        remove_empty(self._made)

    @property
    def rows(self) -> Path:
        """Where rows sorted by shard are kept."""
        return self.path / "rows"

    @property
    def posterior(self) -> Path:
        """The file with the combined draws."""
        return self.path / "posterior.npz"

    @property
    def summary(self) -> Path:
        """The file with the summary table."""
        return self.path / "summary.csv"

    @property
    def report(self) -> Path:
        """The file with the report."""
        return self.path / "report.html"

    def write_text(self, name: str, text: str) -> None:
        """Write a text file whole or not at all."""
        write_atomically(self.path / name, lambda temporary: write_text(temporary, text))

    def save_json(self, name: str, value: Any) -> None:
        """Write a JSON file whole or not at all; NumPy's numbers and arrays become plain ones."""
        write_json(self.path / name, value)

    def read_json(self, name: str) -> Any:
        """Read a JSON file back."""
        return read_json(self.path / name)

    def save_shard(self, index: int, arrays: Mapping[str, np.ndarray], record: Mapping[str, Any]) -> None:
        """Keep a finished shard: its arrays, and a JSON-able record about them."""
        arrays_file, record_file = self._shard_files(index)
        with explained(arrays_file.parent):
            arrays_file.parent.mkdir(exist_ok=True)
        checks: dict[str, Any] = {}

        def write(temporary: Path) -> None:
            write_arrays(temporary, arrays)
            checks.update(bytes=temporary.stat().st_size, blake2b=checksum(temporary))

        write_atomically(arrays_file, write)
        write_json(record_file, {**checks, "record": record})

    def load_shard(self, index: int) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """Return a shard's arrays and record; None (and a warning, if it is damaged) when it must be done."""
        record = self._checked_record(index)
        if record is None:
            return None
        try:
            with np.load(self._shard_files(index)[0], allow_pickle=False) as stored:
                return {name: stored[name] for name in stored.files}, record
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            self._note_damage(index, str(error))
            return None

    def finished(self) -> list[int]:
        """Return the indices of the shards that are there and undamaged."""
        directory = self.path / "shards"
        found = [_SHARD.match(name) for name in os.listdir(directory)] if directory.is_dir() else []
        indices = sorted(int(match[1]) for match in found if match)
        return [index for index in indices if self._checked_record(index) is not None]

    def _shard_files(self, index: int) -> tuple[Path, Path]:
        stem = self.path / "shards" / f"{index:05d}"
        return stem.with_suffix(".npz"), stem.with_suffix(".json")

    def _checked_record(self, index: int) -> dict[str, Any] | None:
        arrays_file, record_file = self._shard_files(index)
        if not record_file.exists():
            return None
        try:
            stored = json.loads(record_file.read_text(encoding="utf-8"))
            size, expected, record = stored["bytes"], stored["blake2b"], stored["record"]
        except (OSError, ValueError, KeyError, TypeError):
            self._note_damage(index, "its record cannot be read")
            return None
        try:
            found = arrays_file.stat().st_size
            if found == size and checksum(arrays_file) == expected:
                return record
            self._note_damage(
                index, "its checksum does not fit" if found == size else f"{found} bytes, not {size}"
            )
        except OSError as error:
            self._note_damage(index, error.strerror or "its draws cannot be read")
        return None

    def _note_damage(self, index: int, how: str) -> None:
        message = f"{self._shard_files(index)[0]} is damaged ({how}); shard {index} is done again."
        if message not in self.warnings:
            self.warnings.append(message)


def _remove_unfinished(path: Path) -> None:
    for directory in (path, path / "shards"):
        if directory.is_dir():
            for name in os.listdir(directory):
                if UNFINISHED.match(name):
                    (directory / name).unlink(missing_ok=True)


def _not_a_run(path: Path) -> Exception:
    next_step = "Make one with `consilience fit ... --out`."
    return must_be("run directory", "path", "the directory of a run", str(path), next_step, StoreError)
