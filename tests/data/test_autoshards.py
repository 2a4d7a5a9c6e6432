"""The automatic number of shards keeps its promises for any input."""

from __future__ import annotations

import pytest

from consilience.data import automatic_shards


@pytest.mark.parametrize("rows", [1, 3_999, 4_000, 100_000, 400_000, 3_000_000, 10**9])
@pytest.mark.parametrize("parameters", [1, 6, 28, 500])
@pytest.mark.parametrize("cores", [1, 2, 7, 64])
def test_bounds(rows: int, parameters: int, cores: int) -> None:
    shards, explanation = automatic_shards(rows, parameters, cores)
    least = max(2000, 100 * parameters)
    assert 1 <= shards <= 1000
    assert shards == 1 or rows // shards >= least
    assert (shards == 1) == (rows < 2 * least)
    assert shards <= cores or shards % cores == 0
    assert explanation.startswith(f"{shards} shard")
    assert explanation.endswith(".")
