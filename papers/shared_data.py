"""Real data that experiments share: found beside the project, never copied into it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

VARIABLE = "CONSILIENCE_DATA"
BESIDE = Path("..") / "shared" / "data"


class MissingData(Exception):
    """A data file is not on this machine; an experiment on it is skipped, and says so."""


def find(name: str) -> Path:
    """Where the file is: in the folder that CONSILIENCE_DATA names, or in ../shared/data."""
    folder = Path(os.environ.get(VARIABLE, BESIDE))
    path = folder / name
    if not path.is_file():
        raise MissingData(f"no {name} in {folder}. Set {VARIABLE} to the folder that has it.")
    return path


def read(name: str, columns: Sequence[str] | None = None) -> Any:
    """The file as a pandas frame."""
    import pandas as pd

    return pd.read_parquet(find(name), columns=None if columns is None else list(columns))
