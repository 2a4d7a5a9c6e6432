"""Input that cannot be used: one sentence that names what is wrong and what to do, and nothing written."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consilience.data import open_source
from consilience.errors import DataError

from .tables import make_columns, write_csv, write_parquet


def text(name: str, content: str | bytes) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def cut_parquet(folder: Path) -> Path:
    path = write_parquet(make_columns(5000), folder / "cut.parquet")
    path.write_bytes(path.read_bytes()[:20_000])
    return path


def cut_gzip(folder: Path) -> Path:
    path = write_csv(make_columns(5000), folder / "cut.csv.gz")
    path.write_bytes(path.read_bytes()[:20_000])
    return path


def no_rows(folder: Path) -> Path:
    pq.write_table(pa.table({"x": pa.array([], pa.float64())}), folder / "none.parquet")
    return folder / "none.parquet"


def other_columns(folder: Path) -> Path:
    pq.write_table(pa.table({"x": [1.0], "y": [1]}), folder / "a.parquet")
    pq.write_table(pa.table({"x": [1.0], "z": [1]}), folder / "b.parquet")
    return folder


def other_types(folder: Path) -> Path:
    pq.write_table(pa.table({"x": [1.0]}), folder / "a.parquet")
    pq.write_table(pa.table({"x": ["one"]}), folder / "b.parquet")
    return folder


def mixed_kinds(folder: Path) -> Path:
    write_csv(make_columns(5), folder / "b.csv")
    write_parquet(make_columns(5), folder / "a.parquet")
    return folder


def hive(folder: Path) -> Path:
    (folder / "site=A").mkdir()
    write_parquet(make_columns(5), folder / "site=A" / "a.parquet")
    return folder


CASES: list[tuple[str, Callable[[Path], Any], str]] = [
    ("missing file", lambda folder: folder / "none.csv", "none.csv: `data` must be an existing file"),
    ("glob", lambda folder: str(folder / "*.parquet"), "pattern that matches files. Got no match"),
    ("empty folder", lambda folder: folder, "folder with .parquet, .csv or .csv.gz files. Got none"),
    ("extension", text("a.xlsx", "x"), "ends in .parquet, .pq, .csv, .csv.gz. Got .xlsx"),
    ("address", lambda _: "s3://bucket/a.parquet", "path on this machine"),
    ("empty file", text("a.csv", ""), "a.csv: `data` must be a file with rows. Got an empty file"),
    ("blank file", text("a.csv", "\n\n"), "a.csv: `data` must be"),
    ("only a header", text("a.csv", "x,y\n"), "a.csv: `data` must be a table with rows"),
    ("no header", text("a.csv", "1,2\n3,4\n"), "column names in its first line"),
    ("semicolons", text("a.csv", "x;y\n3;4\n"), "separated by commas"),
    ("ragged", text("a.csv", "x,y\n1,2\n\n3,4\n5\n"), "`line 5` must be a line of 2 columns.*Got 1 columns"),
    ("ragged, later", text("a.csv", "x,y\n" + "1,2\n" * 70_000 + "1,2,3\n"), "`line 70,002` must be.*Got 3"),
    ("ragged gzip", text("a.csv.gz", gzip.compress(b"x,y\n1,2,3\n")), "`line 2` must be a line of 2 columns"),
    ("latin", text("a.csv", "x,y\n1,é\n".encode("latin-1")), "text in UTF-8"),
    ("twice", text("a.csv", "x,x\n1,2\n"), r"distinct names. Got \['x'\]"),
    ("cut Parquet", cut_parquet, "cut.parquet: `data` must be a complete and readable file"),
    ("cut gzip", cut_gzip, "cut.csv.gz: `data` must be a complete and readable file"),
    ("not Parquet", text("a.parquet", "x,y\n1,2\n"), "a.parquet: `data` must be a complete"),
    ("no rows", no_rows, "none.parquet: `data` must be a table with rows"),
    ("other columns", other_columns, "b.parquet: `columns` must.*Got no column 'y' and besides 'z'"),
    ("other types", other_types, "b.parquet: `x` must be number as in a.parquet. Got string"),
    ("mixed kinds", mixed_kinds, "files of one kind. Got .*a.parquet"),
    ("hive", hive, r"columns are all inside its files. Got .*site=A"),
    ("lengths", lambda _: {"x": [1, 2], "y": [1]}, "common first axis. Got x: 2 rows, y: 1 rows"),
    ("scalar", lambda _: {"x": 1.0}, "`x` must be an array with one entry per row"),
    ("no columns", lambda _: {}, "a table with columns"),
    ("no entries", lambda _: {"x": []}, "a table with rows"),
    ("list", lambda _: [1, 2, 3], "pandas, Polars or Arrow table, or a path. Got builtins.list"),
    ("complex", lambda _: {"x": np.array([1j])}, "real numbers"),
    ("ragged lists", lambda _: {"x": [[1], [1, 2]]}, "`x` must be values of one type"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_each_gets_one_sentence(make: Callable[[Path], Any], message: str, tmp_path: Path) -> None:
    data = make(tmp_path)
    with pytest.raises(DataError, match=message) as caught:
        open_source(data)
    assert "\n" not in str(caught.value).replace("\\n", "")
    assert str(caught.value).endswith(".")


def test_a_lazy_frame_is_not_collected() -> None:
    polars = pytest.importorskip("polars")
    with pytest.raises(DataError, match="sink_parquet"):
        open_source(polars.LazyFrame({"x": [1]}))


def test_duplicate_names_in_a_frame() -> None:
    import pandas as pd

    with pytest.raises(DataError, match="distinct names"):
        open_source(pd.DataFrame([[1, 2]], columns=["x", "x"]))


def test_an_unknown_column_is_named_with_the_closest(tmp_path: Path) -> None:
    source = open_source(write_parquet(make_columns(10), tmp_path / "a.parquet"))
    with pytest.raises(
        DataError, match=r"a.parquet: `columns` must be .* Got 'carier'. Did you mean 'carrier'\?"
    ):
        source.require(["x", "carier"])
    with pytest.raises(DataError, match=r"Did you mean 'when'\?"):
        source.scan(["WHEN"])
    with pytest.raises(DataError, match=r"Got 'quux'. The data has 'row', 'x'"):
        source.require(["quux"])


def test_a_file_damaged_in_the_middle_is_named_while_reading(tmp_path: Path) -> None:
    path = write_parquet(make_columns(20_000), tmp_path / "a.parquet")
    content = bytearray(path.read_bytes())
    content[2000:90_000] = b"\xff" * 88_000
    path.write_bytes(bytes(content))
    with pytest.raises(DataError, match=r"a.parquet: `data` must be a complete"):
        list(open_source(path).scan())


def test_numbers_beyond_64_bits_are_refused() -> None:
    source = open_source({"id": np.array([2**63 + 1], np.uint64)})
    with pytest.raises(DataError, match="fit in 64 bits"):
        list(source.scan())
    source = open_source(pa.table({"id": pa.array([2**63 + 1], pa.uint64())}))
    with pytest.raises(DataError, match="fit in 64 bits"):
        list(source.scan())
