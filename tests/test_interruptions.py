"""A run that is stopped goes on with the same command, to the same bits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import consilience as cs
from consilience.cli import main

SECONDS = 120  # by when a command must have come to what is waited for


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> Path:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 3))
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pd.DataFrame(x, columns=list("abc")).assign(y=x.sum(axis=1) + rng.normal(size=4000)).to_parquet(path)
    return path


def command(rows: Path, run: Path, *more: str) -> list[str]:
    shape = ["--family", "gaussian", "--shards", "6", "--draws", "600", "--no-progress"]
    return ["fit", "y ~ a + b + c", str(rows), *shape, *more, "--out", str(run)]


def stopped(arguments: list[str], by: signal.Signals, there: Path) -> tuple[int, str, str]:
    """Run a command of its own until a file is there, then send the signal."""
    process = subprocess.Popen(
        [sys.executable, "-m", "consilience.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    patience = time.monotonic() + SECONDS
    while not there.exists() and process.poll() is None and time.monotonic() < patience:
        time.sleep(0.005)
    process.send_signal(by)
    out, error = process.communicate(timeout=SECONDS)
    return process.returncode, out, error


def posterior(run: Path) -> np.ndarray:
    return cs.load(run / "posterior.npz").array


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize(
    ("signal_name", "until", "options"),
    [
        ("SIGINT", "manifest.json", ()),
        pytest.param(
            "SIGKILL",
            "shards/00001.json",
            ("--engine", "serial", "--refine", "none"),
            marks=pytest.mark.long,
        ),
        pytest.param("SIGKILL", "shards/00000.npz", (), marks=pytest.mark.long),
        pytest.param("SIGINT", "shards/00001.json", ("--engine", "processes"), marks=pytest.mark.long),
    ],
)
def test_the_same_command_goes_on(rows, tmp_path, capsys, signal_name, until, options):
    by, run, whole = getattr(signal, signal_name), tmp_path / "run", tmp_path / "whole"
    arguments = command(rows, run, *options)
    code, out, error = stopped(arguments, by, run / until)
    assert (run / until).exists(), error
    assert not (run / "posterior.npz").exists()
    assert out == ""
    if by is signal.SIGINT:
        assert code == 1
        assert error.splitlines() == [
            f"consilience: interrupted. What is finished is kept in {run}; the same command goes on from there."
        ]
    finished = {path: path.stat().st_mtime_ns for path in run.glob("shards/0*.json")}
    assert main(arguments) == 0
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    assert not list(run.rglob(".*"))
    capsys.readouterr()
    assert main(command(rows, whole, *options)) == 0
    assert np.array_equal(posterior(run), posterior(whole))


def test_interrupted_before_anything_was_written(tmp_path, monkeypatch, capsys):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cs, "fit", interrupted, raising=False)
    assert main(command(tmp_path / "rows.parquet", tmp_path / "run")) == 1
    assert capsys.readouterr().err == "consilience: interrupted. Nothing was written.\n"
    assert main(command(tmp_path / "rows.parquet", tmp_path / "run")[:-2]) == 1
    assert "--out DIR" in capsys.readouterr().err
