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


def test_no_more_shards_than_bring_the_draws_that_are_wanted() -> None:
    assert automatic_shards(400_000, 29, 2, enough=40)[0] == 40
    assert automatic_shards(400_000, 29, 2, enough=500)[0] == 136
    assert automatic_shards(400_000, 29, 8, enough=2)[0] == 8
    shards, explanation = automatic_shards(30_000_000, 29, 2, enough=40)
    assert shards == 300
    assert "100,000 rows" in explanation
    assert automatic_shards(10**9, 29, 2, enough=40)[0] == 1_000
