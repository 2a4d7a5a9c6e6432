"""The run directory: going on after an interruption, and refusing what does not fit."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from consilience.errors import StoreError
from consilience.store import RunDirectory

MANIFEST = {
    "versions": {"jax": "0.10.2"},
    "model": {"formula": "y ~ a", "priors": {"a": "Normal(0, 1)"}},
    "data": {"files": [{"bytes": 10}, {"bytes": 20}]},
    "settings": {"draws": 10000, "seed": 0, "tolerance": 1.0},
}


def changed(**settings) -> dict:
    return {**MANIFEST, "settings": {**MANIFEST["settings"], **settings}}


def contents(path: Path) -> list[str]:
    return sorted(str(found.relative_to(path)) for found in path.rglob("*"))


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"draws": rng.normal(size=(200, 3)), "chain_lengths": np.array([100, 100]), "file": np.zeros(0)}


@pytest.fixture
def run(tmp_path):
    with RunDirectory.open(tmp_path / "run", MANIFEST) as opened:
        yield opened


def test_shards_come_back_as_they_were(run, arrays):
    run.save_shard(
        12, arrays, {"label": "m", "rhat": np.array([1.0, 1.01]), "draws": np.int64(200), "ess": np.nan}
    )
    run.save_shard(3, arrays, {})
    assert run.finished() == [3, 12]
    loaded, record = run.load_shard(12)
    assert {name: (array.dtype, array.tobytes()) for name, array in loaded.items()} == {
        name: (array.dtype, array.tobytes()) for name, array in arrays.items()
    }
    assert record["label"] == "m"
    assert record["rhat"] == [1.0, 1.01]
    assert np.isnan(record["ess"])
    assert run.load_shard(4) is None
    assert run.warnings == []


def test_the_same_shard_gives_the_same_bytes(tmp_path, arrays):
    files = []
    for name in ("one", "two"):
        with RunDirectory.open(tmp_path / name, MANIFEST) as run:
            run.save_shard(0, arrays, {"a": 1})
            files.append({p.name: p.read_bytes() for p in (run.path / "shards").iterdir()})
    assert files[0] == files[1]


def test_started_again_it_goes_on(tmp_path, arrays):
    path = tmp_path / "deep" / "run"
    with RunDirectory.open(path, MANIFEST) as run:
        run.save_shard(1, arrays, {})
    with RunDirectory.open(path, json.loads(json.dumps(MANIFEST))) as run:
        assert run.finished() == [1]
        assert run.manifest == MANIFEST
    with RunDirectory.open(path) as run:
        assert run.manifest == MANIFEST
    assert RunDirectory.existing(path).load_shard(1) is not None
    assert contents(path) == ["manifest.json", "shards", "shards/00001.json", "shards/00001.npz"]


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (
            changed(draws=5000),
            r"settings\.draws was 10000, is 5000\. Choose another directory with --out, or delete",
        ),
        (changed(extra="x"), r'settings\.extra was not set, is "x"\.'),
        ({k: v for k, v in MANIFEST.items() if k != "model"}, r"model was \{.*\}, is not set"),
        (
            {**MANIFEST, "model": {**MANIFEST["model"], "priors": {"a": "Normal(0, 2)"}}},
            r"model\.priors\.a was",
        ),
        (
            {**MANIFEST, "data": {"files": [{"bytes": 10}, {"bytes": 21}]}},
            r"data\.files\[1\]\.bytes was 20, is 21",
        ),
        ({**MANIFEST, "data": {"files": []}}, r"data\.files was \[.*\], is \[\]"),
        (changed(tolerance=None), r"settings\.tolerance was 1, is null"),
        (changed(seed=False), r"settings\.seed was 0, is false"),
        (changed(**{f"s{number}": 1 for number in range(20)}), "and 12 more"),
    ],
)
def test_a_changed_run_is_refused_saying_what_changed(tmp_path, arrays, manifest, said):
    path = tmp_path / "run"
    with RunDirectory.open(path, MANIFEST) as run:
        run.save_shard(0, arrays, {})
    before = {name: (path / name).read_bytes() for name in contents(path) if (path / name).is_file()}
    with pytest.raises(StoreError, match=said):
        RunDirectory.open(path, manifest)
    assert {name: (path / name).read_bytes() for name in contents(path) if (path / name).is_file()} == before


def test_equal_settings_in_other_clothes_are_no_change(tmp_path):
    RunDirectory.open(tmp_path / "run", changed(x=(1, 2), nan=float("nan"), where=Path("a"))).close()
    RunDirectory.open(
        tmp_path / "run", changed(x=np.array([1, 2]), nan=np.nan, where="a", tolerance=1, seed=np.int32(0))
    ).close()


def test_other_versions_are_noted(tmp_path):
    RunDirectory.open(tmp_path / "run", MANIFEST).close()
    with RunDirectory.open(tmp_path / "run", {**MANIFEST, "versions": {"jax": "0.11"}}) as run:
        assert len(run.warnings) == 1
        assert 'versions.jax was "0.10.2", is "0.11"' in run.warnings[0]
        assert "rounding" in run.warnings[0]


def test_another_format_is_refused(tmp_path):
    RunDirectory.open(tmp_path / "run", MANIFEST).close()
    manifest = tmp_path / "run" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 99'))
    with pytest.raises(StoreError, match="its format is 99, this version of consilience reads 1"):
        RunDirectory.open(tmp_path / "run", MANIFEST)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\x00\xff"])
def test_a_damaged_manifest_is_refused(tmp_path, text):
    RunDirectory.open(tmp_path / "run", MANIFEST).close()
    (tmp_path / "run" / "manifest.json").write_text(text, encoding="latin-1")
    with pytest.raises(StoreError, match="run directory"):
        RunDirectory.open(tmp_path / "run", MANIFEST)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGE = {
    "cut short": lambda npz, record: cut(npz),
    "one bit": lambda npz, record: flip(npz),
    "emptied": lambda npz, record: npz.write_bytes(b""),
    "removed": lambda npz, record: npz.unlink(),
    "record cut short": lambda npz, record: cut(record),
    "record emptied": lambda npz, record: record.write_text(""),
    "record of another kind": lambda npz, record: record.write_text("[1]"),
    "record unreadable": lambda npz, record: record.write_bytes(b"\xff\xfe\x00"),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_shard_is_noticed_and_can_be_done_again(run, arrays, how):
    for index in (4, 5):
        run.save_shard(index, arrays, {})
    DAMAGE[how](run.path / "shards" / "00005.npz", run.path / "shards" / "00005.json")
    assert run.finished() == [4]
    assert run.load_shard(5) is None
    assert len(run.warnings) == 1
    assert "00005.npz is damaged" in run.warnings[0]
    assert "shard 5 is done again" in run.warnings[0]
    run.save_shard(5, arrays, {})
    assert run.finished() == [4, 5]


def test_a_shard_without_its_record_was_interrupted_not_damaged(run, arrays):
    run.save_shard(5, arrays, {})
    (run.path / "shards" / "00005.json").unlink()
    assert run.finished() == []
    assert run.load_shard(5) is None
    assert run.warnings == []


def test_nothing_is_unpickled(run):
    with pytest.raises(ValueError, match="allow_pickle"):
        run.save_shard(0, {"draws": np.array([{"an": "object"}], dtype=object)}, {})
    assert contents(run.path / "shards") == []


def test_leftovers_of_an_interruption_go_and_other_files_stay(tmp_path, arrays):
    path = tmp_path / "run"
    with RunDirectory.open(path, MANIFEST) as run:
        run.save_shard(0, arrays, {})
        run.rows.mkdir()
    leftovers = [".manifest-0123abcd.json", ".report.html.x.tmp", "shards/.00001-0123abcd.npz"]
    kept = ["notes.txt", ".gitignore", "posterior.npz", "shards/00000.npz", "rows/.x.partial"]
    for name in leftovers + kept[:3] + kept[4:]:
        (path / name).write_text("")
    RunDirectory.open(path, MANIFEST).close()
    assert not [name for name in leftovers if (path / name).exists()]
    assert [name for name in kept if (path / name).exists()] == kept


WRITER = """
import os, sys
from consilience.store import RunDirectory
run = RunDirectory.open(sys.argv[1], {})
print(os.getpid(), flush=True)
sys.stdin.read()
"""


def test_one_writer_at_a_time_and_a_dead_one_does_not_count(tmp_path, arrays):
    path = tmp_path / "run"
    other = subprocess.Popen(
        [sys.executable, "-c", WRITER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        pid = other.stdout.readline().strip()
        with pytest.raises(StoreError, match=rf"process {pid} on .* is writing to it"):
            RunDirectory.open(path, {})
        assert RunDirectory.existing(path).finished() == [], "looking is allowed"
    finally:
        other.kill()
        other.communicate()
    assert (path / ".lock").exists()
    with RunDirectory.open(path, {}) as run:
        run.save_shard(0, arrays, {})
        with pytest.raises(StoreError, match=f"process {os.getpid()} on"):
            RunDirectory.open(path, {})
    assert not (path / ".lock").exists()
    RunDirectory.open(path, {}).close()


def test_a_place_that_is_something_else(tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(StoreError, match="must be a directory"):
        RunDirectory.open(file, MANIFEST)
    with pytest.raises(StoreError, match=r"`path` must be a directory that can be written.*Not a directory"):
        RunDirectory.open(file / "run", MANIFEST)
    with pytest.raises(
        StoreError, match=r"it holds file and no manifest\.json.*Choose another one with --out"
    ):
        RunDirectory.open(tmp_path, MANIFEST)
    assert contents(tmp_path) == ["file"]
    empty = tmp_path / "empty"
    empty.mkdir()
    RunDirectory.open(empty, MANIFEST).close()


def test_a_place_that_is_not_a_run(tmp_path):
    for opening in (
        lambda: RunDirectory.existing(tmp_path / "none"),
        lambda: RunDirectory.open(tmp_path / "none"),
        lambda: RunDirectory.open(tmp_path / "none", MANIFEST, create=False),
    ):
        with pytest.raises(StoreError, match="must be the directory of a run"):
            opening()
    assert contents(tmp_path) == []


def test_a_directory_that_cannot_be_made():
    with pytest.raises(StoreError, match="must be a directory that can be written"):
        RunDirectory.open("/proc/run", MANIFEST)


def test_a_directory_that_cannot_be_written(tmp_path, monkeypatch):
    # Permissions do not stop root, so the system's answer is put in its mouth.
    def refuse(*arguments, **options):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    (tmp_path / "there").mkdir()
    monkeypatch.setattr(os, "open", refuse)
    for name in ("there", "new"):
        with pytest.raises(StoreError, match="Permission denied"):
            RunDirectory.open(tmp_path / name, MANIFEST)
    assert contents(tmp_path) == ["there"]


def test_a_full_disk_while_saving_a_shard(run, arrays, monkeypatch):
    run.save_shard(0, arrays, {})
    before = contents(run.path)

    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np.lib.format, "write_array", full)
    with pytest.raises(StoreError, match=r"full disk.*Free some space"):
        run.save_shard(1, arrays, {})
    assert contents(run.path) == before
    monkeypatch.undo()
    assert run.finished() == [0]


def test_a_full_disk_at_the_start(tmp_path, monkeypatch):
    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(StoreError, match="full disk"):
        RunDirectory.open(tmp_path / "a" / "b", MANIFEST)
    assert contents(tmp_path) == []


LIMITED = """
import resource, sys
import numpy as np
from consilience.errors import StoreError
from consilience.store import RunDirectory
with RunDirectory.open(sys.argv[1], {}) as run:
    run.save_shard(0, {"draws": np.zeros(10)}, {})
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
    try:
        run.save_shard(1, {"draws": np.zeros(100_000)}, {})
    except StoreError as error:
        print(error)
    print(run.finished())
"""


def test_a_file_that_the_system_really_refuses_to_let_grow(tmp_path):
    path = tmp_path / "run"
    done = subprocess.run([sys.executable, "-c", LIMITED, path], capture_output=True, text=True, check=True)
    assert "File too large" in done.stdout
    assert done.stdout.endswith("[0]\n")
    assert contents(path) == ["manifest.json", "shards", "shards/00000.json", "shards/00000.npz"]


def test_other_files(run):
    run.save_json("diagnostics.json", {"rhat": np.float64(1.0), "path": Path("x")})
    assert run.read_json("diagnostics.json") == {"rhat": 1.0, "path": "x"}
    run.write_text("summary.csv", "a,b\n")
    assert run.summary.read_bytes() == b"a,b\n"
    assert (run.posterior.name, run.report.name, run.rows.name) == ("posterior.npz", "report.html", "rows")
    with pytest.raises(StoreError, match=r"nothing\.json"):
        run.read_json("nothing.json")
