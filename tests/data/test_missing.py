"""Rows with missing or infinite values are refused or dropped, and always counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.data import RandomPartition, open_source, split
from consilience.errors import DataError

from .tables import make_columns, write_csv, write_parquet


def holes(rows: int) -> dict[str, np.ndarray]:
    """Return a table with gaps in three columns, some of them in the same row."""
    table = make_columns(rows)
    table["x"][[0, 5, rows - 1]] = [np.nan, np.inf, -np.inf]
    table["carrier"][[5, 9]] = None
    table["when"][70_000 % rows] = np.datetime64("NaT")
    table["unused"] = np.full(rows, np.nan)
    return table


USED = ("row", "x", "y", "carrier", "when")


@pytest.fixture(params=["memory", "parquet", "csv"])
def gappy(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    table = holes(70_500)
    if request.param == "memory":
        return table
    write = write_parquet if request.param == "parquet" else write_csv
    return write(table, tmp_path / f"a.{request.param}")


def test_refusal_counts_rows_and_columns(gappy: Any, tmp_path: Path) -> None:
    target = tmp_path / "rows"
    with pytest.raises(DataError) as caught:
        split(open_source(gappy), RandomPartition(3), columns=USED, seed=0, directory=target)
    message = str(caught.value)
    assert "Got 5 of 70,500 rows with missing or infinite values (x: 3, carrier: 2, when: 1)" in message
    assert 'missing="drop"' in message
    assert "--missing drop" in message
    assert not target.exists()


def test_dropped_rows_are_gone_from_every_later_scan(gappy: Any) -> None:
    source = open_source(gappy)
    kept = source.filtered("drop", USED)
    assert kept.num_rows == 70_495
    assert kept.dropped_rows == 5
    assert kept.notes == (
        "5 of 70,500 rows dropped for missing or infinite values (x: 3, carrier: 2, when: 1).",
    )
    expected = [row for row in range(70_500) if row not in (0, 5, 9, 70_000, 70_499)]
    for batch_rows in (1000, 65_536, 200_000):
        batches = list(kept.scan(["row"], batch_rows=batch_rows))
        assert all(len(batch["row"]) == batch_rows for batch in batches[:-1])
        assert np.concatenate([batch["row"] for batch in batches]).tolist() == expected
    assert kept.filtered("refuse", ["x"]) is kept
    assert kept.fingerprint() != source.fingerprint()


def test_dropped_rows_do_not_take_part_in_the_assignment(gappy: Any) -> None:
    table = holes(70_500)
    keep = np.ones(70_500, bool)
    keep[[0, 5, 9, 70_000, 70_499]] = False
    clean = open_source({name: table[name][keep] for name in USED})
    wanted = split(clean, RandomPartition(7), columns=["row"], seed=4)
    for source in (open_source(gappy), open_source(gappy).filtered("drop", USED)):
        shards = split(source, RandomPartition(7), columns=USED, seed=4, missing="drop")
        assert shards.dropped_rows == 5
        assert "5 of 70,500 rows dropped" in shards.notes[0]
        for shard in range(7):
            np.testing.assert_array_equal(
                shards.reference(shard).read()["row"], wanted.reference(shard).read()["row"]
            )


def test_unused_columns_may_have_gaps(gappy: Any) -> None:
    kept = open_source(gappy).filtered("refuse", ["row", "y"])
    assert kept.num_rows == 70_500
    assert kept.notes == ()


def test_a_second_filter_adds_to_the_first() -> None:
    source = open_source({"row": np.arange(4), "a": [1.0, np.nan, 3.0, 4.0], "b": [np.nan, 2.0, 3.0, 4.0]})
    kept = source.filtered("drop", ["a"]).filtered("drop", ["b"])
    assert kept.dropped_rows == 2
    assert len(kept.notes) == 2
    shards = split(kept, RandomPartition(1), columns=["row"], seed=0)
    assert shards.reference(0).read()["row"].tolist() == [2, 3]


def test_every_row_missing_and_unknown_policy() -> None:
    source = open_source({"a": [np.nan, np.nan]})
    with pytest.raises(DataError, match="at least one row"):
        source.filtered("drop")
    with pytest.raises(DataError, match="'refuse' or 'drop'"):
        source.filtered("ignore")


def test_a_row_of_a_matrix_is_missing_when_one_entry_is() -> None:
    kept = open_source({"M": np.array([[1.0, np.nan], [1.0, 2.0]])}).filtered("drop")
    assert kept.num_rows == 1
