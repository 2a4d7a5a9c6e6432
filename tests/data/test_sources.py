"""The same rows give the same batches, whatever they are stored in."""

from __future__ import annotations

import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consilience.data import open_source
from consilience.data.columns import rebatch
from consilience.errors import DataError

from .tables import make_columns, write_csv, write_parquet

FORMS = (
    *("dict", "dict of lists", "pandas", "pandas, other types", "polars", "arrow", "arrow dictionary"),
    *("parquet", "folder", "glob", "csv", "csv.gz", "csv folder"),
)


def same(one: dict[str, np.ndarray], two: dict[str, np.ndarray]) -> None:
    assert list(one) == list(two)
    for name in one:
        assert one[name].dtype == two[name].dtype, name
        np.testing.assert_array_equal(one[name], two[name], err_msg=name)


@pytest.mark.parametrize("form", FORMS)
def test_batches_are_the_same_from_every_form(
    form: str, forms: dict[str, Any], columns: dict[str, np.ndarray]
) -> None:
    source = open_source(forms[form])
    assert source.num_rows == 140_003
    assert source.columns == tuple(columns)
    kinds = {"row": "integer", "x": "number", "y": "integer", "carrier": "string", "school": "integer"}
    assert source.dtypes == kinds | {"when": "date", "late": "boolean"}
    batches = list(source.scan(batch_rows=50_000))
    assert [len(batch["x"]) for batch in batches] == [50_000, 50_000, 40_003]
    for place, batch in enumerate(batches):
        same(batch, {name: values[place * 50_000 : (place + 1) * 50_000] for name, values in columns.items()})


def test_only_the_columns_asked_for_are_decoded(forms: dict[str, Any]) -> None:
    for form in ("dict", "parquet", "csv"):
        (batch,) = open_source(forms[form]).scan(["y", "x"], batch_rows=1_000_000)
        assert list(batch) == ["y", "x"]


def test_a_source_is_returned_as_it_is() -> None:
    source = open_source({"x": [1.0]})
    assert open_source(source) is source


def test_rebatch_cuts_and_joins() -> None:
    rows = [{"x": np.arange(n)} for n in (0, 1, 7, 0, 3)]
    assert [len(batch["x"]) for batch in rebatch(rows, 4)] == [4, 4, 3]
    assert [len(batch["x"]) for batch in rebatch(rows, 11)] == [11]
    assert not list(rebatch([], 4))


def test_types_settle(tmp_path: Path) -> None:
    table = pa.table(
        {
            "tiny": pa.array([1, 2, 3], pa.int8()),
            "gap": pa.array([1, None, 3]),
            "maybe": pa.array([True, None, False]),
            "price": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("2.25")]),
            "single": pa.array([1.5, 2.5, None], pa.float32()),
            "half": pa.array(np.array([1.5, 2.5, 3.5], np.float16)),
            "day": pa.array([0, 1, None], pa.int32()).cast(pa.date32()),
            "zoned": pa.array([0, 1, 2], pa.timestamp("s", "Europe/Paris")),
            "fine": pa.array([0, 1, None], pa.timestamp("ns")),
            "text": pa.array(["a", None, "b"], pa.string_view()),
            "wait": pa.array([1500, None, 0], pa.duration("ms")),
            "nothing": pa.nulls(3),
            "vector": pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float64(), 2)),
        }
    )
    (batch,) = open_source(table).scan()
    expected = {
        "tiny": np.array([1, 2, 3]),
        "gap": np.array([1, np.nan, 3]),
        "maybe": np.array([1, np.nan, 0]),
        "price": np.array([1.5, np.nan, 2.25]),
        "single": np.array([1.5, 2.5, np.nan], np.float32),
        "half": np.array([1.5, 2.5, 3.5], np.float32),
        "day": np.array(["1970-01-01", "1970-01-02", "NaT"], "datetime64[us]"),
        "zoned": np.array([0, 1_000_000, 2_000_000], "datetime64[us]"),
        "fine": np.array([0, 1, "NaT"], "datetime64[ns]"),
        "text": np.array(["a", None, "b"], object),
        "wait": np.array([1.5, np.nan, 0]),
        "nothing": np.full(3, np.nan),
        "vector": np.array([[1.0, 2.0], [np.nan, np.nan], [3.0, 4.0]]),
    }
    same(batch, expected)
    # Parquet keeps no zones of this kind, durations, text views or half floats as they are.
    plain = table.drop_columns(["half", "zoned", "wait", "text"])
    pq.write_table(plain, tmp_path / "a.parquet")
    (stored,) = open_source(tmp_path / "a.parquet").scan()
    same(stored, {name: expected[name] for name in plain.column_names})


def test_a_sliced_fixed_size_list_keeps_its_rows() -> None:
    values = pa.array([[float(i), float(i + 1)] for i in range(6)], pa.list_(pa.float64(), 2))
    (batch,) = open_source(pa.table({"v": values}).slice(2, 3)).scan()
    assert batch["v"][:, 0].tolist() == [2.0, 3.0, 4.0]


def test_narrow_integers_do_not_overflow_and_two_dimensions_stay() -> None:
    source = open_source({"n": np.array([200, 100], np.uint8), "M": np.ones((2, 3), np.float32)})
    assert source.dtypes == {"n": "integer", "M": "array"}
    (batch,) = source.scan()
    assert (batch["n"] * 2).tolist() == [400, 200]
    assert batch["M"].shape == (2, 3)


def test_objects_in_a_dict() -> None:
    source = open_source({"a": ["x", None], "b": [1, None], "c": np.ma.array([1, 2], mask=[False, True])})
    (batch,) = source.scan()
    assert batch["a"].tolist() == ["x", None]
    assert np.isnan(batch["b"][1])
    assert np.isnan(batch["c"][1])


def test_integers_with_gaps_in_one_row_group_only_are_numbers_everywhere(tmp_path: Path) -> None:
    table = pa.table({"n": pa.array([1, 2, 3, None])})
    for statistics in (True, False):
        pq.write_table(table, tmp_path / "a.parquet", row_group_size=2, write_statistics=statistics)
        source = open_source(tmp_path / "a.parquet")
        assert source.dtypes == {"n": "number"}
        assert [batch["n"].dtype for batch in source.scan(batch_rows=2)] == [np.float64, np.float64]
        pq.write_table(table.slice(0, 3), tmp_path / "b.parquet", write_statistics=statistics)
        assert open_source(tmp_path / "b.parquet").dtypes == {"n": "integer"}


def test_number_types_of_several_files_widen(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1, 2], "m": [1, 2]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"m": [5, 6], "n": [0.5, 1.5]}), tmp_path / "b.parquet")
    (batch,) = open_source(tmp_path).scan()
    same(batch, {"n": np.array([1.0, 2.0, 0.5, 1.5]), "m": np.array([1, 2, 5, 6])})


def test_csv_types_widen_over_the_whole_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consilience.data.csvfile._BLOCK_BYTES", 4096)
    lines = ["n,code,flag,day,instant,empty,text"]
    for i in range(2000):
        late = i > 1900
        day = f"2020-01-{i % 28 + 1:02d}" + ("T10:30:00" if late else "")
        gap = ["NA", "7"][i == 1950]
        lines.append(
            f"{i}.5,A{i},true,{day},2020-01-01T00:00:00Z,,{gap}"
            if late
            else f"{i},{i},false,{day},2020-01-01T00:00:00Z,,"
        )
    path = tmp_path / "a.csv"
    path.write_text("\n".join(lines))
    source = open_source(path)
    kinds = {"n": "number", "code": "string", "flag": "boolean", "day": "date", "instant": "date"}
    assert source.dtypes == kinds | {"empty": "number", "text": "number"}
    (batch,) = source.scan()
    assert batch["n"][[0, 1999]].tolist() == [0.0, 1999.5]
    assert batch["code"][[5, 1999]].tolist() == ["5", "A1999"]
    assert str(batch["day"][1901]) == "2020-01-26T10:30:00.000000"
    assert np.nansum(batch["text"]) == 7


def test_csv_keeps_quoted_commas_and_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'\xef\xbb\xbfa,b\r\n1,"x, y"\r\n2,"two\nlines"\r\n')
    (batch,) = open_source(path).scan()
    assert list(batch) == ["a", "b"]
    assert batch["b"].tolist() == ["x, y", "two\nlines"]


def test_fingerprints_of_memory_tell_content_not_container(forms: dict[str, Any]) -> None:
    tables = [open_source(forms[form]) for form in ("dict", "pandas", "arrow", "polars")]
    prints = [table.fingerprint(["x", "carrier"]) for table in tables]
    assert all(one == prints[0] for one in prints)
    changed = dict(forms["dict"])
    changed["carrier"] = changed["carrier"].copy()
    changed["carrier"][7] = "XX"
    assert open_source(changed).fingerprint(["x", "carrier"]) != prints[0]
    assert open_source(changed).fingerprint(["x"]) == open_source(forms["dict"]).fingerprint(["x"])
    moved = open_source({"a": ["ab", "c"]}).fingerprint(), open_source({"a": ["a", "bc"]}).fingerprint()
    assert moved[0] != moved[1]


def test_fingerprints_of_files_notice_a_change_that_keeps_size_and_time(tmp_path: Path) -> None:
    import os

    path = write_parquet(make_columns(500), tmp_path / "a.parquet")
    state = path.stat()
    before = open_source(path).fingerprint()
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(bytes(content))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    after = open_source(path).fingerprint()
    assert before["files"][0]["mtime_ns"] == after["files"][0]["mtime_ns"]
    assert before != after


def test_unsupported_columns_are_refused_only_when_asked_for() -> None:
    source = open_source(pa.table({"s": pa.array([{"a": 1}]), "x": [1.0]}))
    assert source.dtypes == {"s": "unsupported", "x": "number"}
    assert len(list(source.scan(["x"]))) == 1
    with pytest.raises(DataError, match=r"Got 's'"):
        source.scan()


def test_mixed_columns_are_refused_only_when_asked_for() -> None:
    import pandas as pd

    source = open_source(pd.DataFrame({"m": ["a", 1], "x": [1.0, 2.0]}))
    assert len(list(source.scan(["x"]))) == 1
    with pytest.raises(DataError, match="`m` must be values of one type"):
        list(source.scan(["m"]))


def test_csv_round_trip_of_whitespace_and_signs(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n 1, x\n-2,y \n")
    (batch,) = open_source(path).scan()
    assert batch["a"].tolist() == [1, -2]
    assert batch["b"].tolist() == [" x", "y "]


def test_csv_written_here_reads_the_same(tmp_path: Path) -> None:
    rows = make_columns(100)
    (batch,) = open_source(write_csv(rows, tmp_path / "a.csv")).scan()
    same(batch, rows)
