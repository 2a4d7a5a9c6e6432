"""Where a run can be: an empty or new directory that can be written, or a run already."""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from pathlib import Path

from ..errors import StoreError, must_be
from .files import explained
from .lock import LOCK
from .manifest import MANIFEST

# The names that unfinished files have here; what an interruption left of them is removed.
UNFINISHED = re.compile(r"^\..+(-[0-9a-f]{8}(\.\w+)?|\.tmp|\.partial)$")


def is_new(path: Path) -> bool:
    """Say whether there is no run yet; refuse a place that holds something else."""
    with explained(path):
        if path.exists() and not path.is_dir():
            raise must_be(
                "run directory",
                "path",
                "a directory",
                str(path),
                "Choose another one with --out.",
                StoreError,
            )
        if not path.exists():
            return True
        names = set(os.listdir(path))
    if MANIFEST in names:
        return False
    others = sorted(name for name in names if name != LOCK and not UNFINISHED.match(name))
    if others:
        raise must_be(
            "run directory",
            "path",
            f"empty, new, or the directory of a run (it holds {others[0]} and no {MANIFEST})",
            str(path),
            "Choose another one with --out.",
            StoreError,
        )
    return True


def make_directories(path: Path) -> list[Path]:
    """Make the directory and return what was made, outermost first."""
    made = [directory for directory in [*reversed(path.parents), path] if not directory.exists()]
    with explained(path):
        path.mkdir(parents=True, exist_ok=True)
    return made


def remove_empty(directories: list[Path]) -> None:
    for directory in reversed(directories):
        with contextlib.suppress(OSError):
            directory.rmdir()


def try_writing(path: Path) -> None:
    """Refuse a directory that cannot be made or written; leave everything as it was."""
    made = make_directories(path)
    try:
        with explained(path):
            trial = path / f".trial-{uuid.uuid4().hex[:8]}"
            trial.touch()
            trial.unlink()
    finally:
        remove_empty(made)
