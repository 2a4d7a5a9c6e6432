"""Rows of files sorted by shard on disk: reuse, cleanup, damage, full disks, memory."""

from __future__ import annotations

import gc
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consilience.data import RandomPartition, Shards, TimePartition, open_source, split
from consilience.data import columns as columns_module
from consilience.data import spool as spool_module
from consilience.errors import DataError, StoreError

from .tables import make_columns, write_parquet


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_parquet(make_columns(5000), tmp_path / "a.parquet")


def divide(file: Path, directory: Path | None, seed: int = 0, **options: Any) -> Shards:
    options = {"columns": ["row", "x", "carrier", "when", "late"]} | options
    return split(open_source(file), RandomPartition(4), seed=seed, directory=directory, **options)


def ages(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in directory.iterdir()}


def test_a_second_call_finds_the_spool(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "run" / "rows"
    first = divide(file, target)
    before = ages(target)
    assert set(before) == {"part-00000.arrow", "rows.json"}
    again = divide(file, target)
    assert ages(target) == before
    assert (again.sizes, again.labels, again.notes) == (first.sizes, first.labels, first.notes)
    for name, values in first.reference(2).read().items():
        np.testing.assert_array_equal(values, again.reference(2).read()[name])


@pytest.mark.parametrize("change", ["seed", "columns", "file", "part", "marker", "missing"])
def test_a_spool_for_something_else_is_made_again(change: str, file: Path, tmp_path: Path) -> None:
    target = tmp_path / "rows"
    divide(file, target)
    before = ages(target)
    (target / "part-00007.arrow").write_bytes(b"left over")
    (target / "notes.txt").write_text("not ours")
    options: dict[str, Any] = {}
    if change == "seed":
        options["seed"] = 1
    elif change == "columns":
        options["columns"] = ["row"]
    elif change == "missing":
        options["missing"] = "drop"
    elif change == "file":
        write_parquet(make_columns(5001), file)
    elif change == "part":
        with open(target / "part-00000.arrow", "ab") as part:
            part.write(b"x")
    else:
        (target / "rows.json").write_text('{"format"')
    shards = divide(file, target, **options)
    assert ages(target)["part-00000.arrow"] != before["part-00000.arrow"]
    assert set(ages(target)) == {"part-00000.arrow", "rows.json", "notes.txt"}
    assert sum(len(shards.reference(b).read()["row"]) for b in range(4)) == sum(shards.sizes)


def test_several_parts_give_the_same_rows(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = divide(file, tmp_path / "one")
    monkeypatch.setattr(spool_module, "PART_BYTES", 20_000)
    monkeypatch.setattr(columns_module, "_BYTES_AT_ONCE", 1)
    parts = divide(file, tmp_path / "many")
    assert len(list((tmp_path / "many").glob("part-*.arrow"))) > 3
    for shard in range(4):
        for name, values in whole.reference(shard).read().items():
            other = parts.reference(shard).read()[name]
            assert other.dtype == values.dtype
            np.testing.assert_array_equal(values, other)


def test_values_survive_the_spool(tmp_path: Path) -> None:
    table = pa.table(
        {
            "x": pa.array([1.5, None, np.inf]),
            "text": ["é", None, ""],
            "day": pa.array([1, None, 3], pa.timestamp("ns")),
            "v": pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float64(), 2)),
            "f": pa.array([1, 2, 3], pa.float32()),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    source = open_source(tmp_path / "a.parquet")
    # A complete column decides which rows are checked; the others travel with their gaps.
    spooled = spool_module.write_spool(source, source.columns, iter([np.zeros(3, int)]), 1, tmp_path / "rows")
    from consilience.data.reference import SpooledShard

    parts = tuple(tmp_path / "rows" / part["name"] for part in spooled[0])
    rows = SpooledShard(0, "0", "a", 3, parts, source.columns).read()
    (expected,) = source.scan()
    for name, values in expected.items():
        assert rows[name].dtype == values.dtype
        np.testing.assert_array_equal(rows[name], values)


def test_a_temporary_spool_goes_with_the_shards(file: Path) -> None:
    with divide(file, None) as shards:
        folder = shards.directory
        assert folder is not None
        assert folder.exists()
    assert not folder.exists()
    with pytest.raises(StoreError, match=r"shard 0 \(0\) of a.parquet"):
        shards.reference(0).read()
    reference = divide(file, None).reference(1)
    gc.collect()
    assert len(reference.read()["x"]) == 1250  # a reference keeps its rows
    folder = reference.parts[0].parent  # type: ignore[attr-defined]
    assert folder.exists()
    del reference
    gc.collect()
    assert not folder.exists()


def test_a_forked_worker_leaves_the_spool_alone(file: Path) -> None:
    shards = divide(file, None)
    worker = os.fork()
    if worker == 0:
        try:
            shards.close()
        finally:
            os._exit(0)
    os.waitpid(worker, 0)
    assert shards.directory is not None
    assert shards.directory.exists()


def test_references_are_small_and_independent(file: Path, tmp_path: Path) -> None:
    columns = make_columns(5000)
    whole = len(pickle.dumps(columns))
    for data, directory in ((file, tmp_path / "rows"), (columns, None)):
        shards = split(open_source(data), RandomPartition(20), columns=None, seed=0, directory=directory)
        sent = pickle.dumps(shards.reference(3))
        assert len(sent) < whole / 10
        received = pickle.loads(sent)
        assert (received.index, received.label, received.num_rows) == (3, "3", shards.sizes[3])
        for name, values in shards.reference(3).read().items():
            np.testing.assert_array_equal(received.read()[name], values)
        assert len(pickle.dumps(received)) == len(sent)
    assert len(pickle.dumps(split(open_source(file), RandomPartition(20), columns=None, seed=0,
                                  directory=tmp_path / "rows").reference(0))) < 1500  # fmt: skip


def test_a_missing_or_shorter_part_is_named(file: Path, tmp_path: Path) -> None:
    shards = divide(file, tmp_path / "rows")
    part = tmp_path / "rows" / "part-00000.arrow"
    content = part.read_bytes()
    part.write_bytes(content[: len(content) // 2])
    with pytest.raises(StoreError, match=r"shard 2 \(2\) of a.parquet.*start again"):
        shards.reference(2).read()
    part.unlink()
    with pytest.raises(StoreError, match=r"shard 2 \(2\) of a.parquet"):
        shards.reference(2).read()


def test_a_directory_that_cannot_be_made(file: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(StoreError, match="folder on a disk that can be written"):
        divide(file, tmp_path / "taken" / "rows")


@pytest.mark.parametrize("limit", [100, 60_000])
def test_a_full_disk_leaves_nothing_behind(limit: int, file: Path, tmp_path: Path) -> None:
    """A limit on file size makes real writes fail half-way, as a full disk does."""
    program = f"""
import resource, signal
import pytest
from consilience.data import RandomPartition, open_source, spool, split
from consilience.errors import StoreError
spool.PART_BYTES, spool._BATCH_BYTES = 60_000, 1
source = open_source({str(file)!r})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
with pytest.raises(StoreError, match="has room for the rows.*Free some space"):
    split(source, RandomPartition(4), columns=None, seed=0, directory={str(tmp_path / "rows")!r})
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert not list((tmp_path / "rows").iterdir())


def test_an_interruption_leaves_nothing_behind(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(spool_module.os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        divide(file, tmp_path / "rows")
    assert not list((tmp_path / "rows").iterdir())


def test_nothing_is_written_when_the_partition_does_not_fit(file: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError):
        split(
            open_source(file), TimePartition(2, "carrier"), columns=None, seed=0, directory=tmp_path / "rows"
        )
    assert not (tmp_path / "rows").exists()


def test_a_file_that_changes_between_two_passes_is_noticed(file: Path, tmp_path: Path) -> None:
    for rows in (4000, 6000):
        source = open_source(write_parquet(make_columns(5000), file))
        write_parquet(make_columns(rows), file)
        with pytest.raises(DataError, match="unchanged while it is read"):
            split(source, RandomPartition(4), columns=["row"], seed=0, directory=tmp_path / "rows")
        assert not list((tmp_path / "rows").iterdir())


def test_the_marker_is_plain_json(file: Path, tmp_path: Path) -> None:
    divide(file, tmp_path / "rows")
    record = json.loads((tmp_path / "rows" / "rows.json").read_text())
    assert record["sizes"] == [1250] * 4
    assert record["dropped_rows"] == 0


PEAK = """
import resource, sys
from consilience.data import RandomPartition, open_source, split
import pandas, pyarrow.compute, pyarrow.parquet
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with split(open_source(sys.argv[1]), RandomPartition(50), columns=None, seed=0) as shards:
    shards.reference(7).read()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.long
def test_peak_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    peaks = []
    for copies in (1, 10):
        path = tmp_path / f"{copies}.parquet"
        rng = np.random.default_rng(0)
        with pq.ParquetWriter(path, pa.schema([(f"x{i}", pa.float64()) for i in range(30)])) as writer:
            for _ in range(copies * 3):
                table = pa.table({f"x{i}": rng.standard_normal(100_000) for i in range(30)})
                writer.write_table(table)
        command = [sys.executable, "-c", PEAK, str(path)]
        peaks.append(int(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    # 72 and 720 MB of rows. All of the larger file in memory would be 648 MB more.
    assert peaks[1] < peaks[0] + 100
    assert peaks[1] < 450
