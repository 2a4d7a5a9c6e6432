"""Rows in every form, written once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .tables import all_forms, make_columns


@pytest.fixture(scope="session")
def columns() -> dict[str, np.ndarray]:
    """More than two blocks, so that what happens between blocks is tested."""
    return make_columns(140_003)


@pytest.fixture(scope="session")
def forms(columns: dict[str, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    pytest.importorskip("polars")
    return all_forms(columns, tmp_path_factory.mktemp("forms"))
