"""The benchmarks run, at sizes that say nothing about speed, so that they cannot rot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks import (
    combine_speed,
    logistic_vs_nuts,
    marginal_views_speed,
    memory_parquet,
    pie_sort,
    scaling_rows,
    semiparametric_speed,
    start_up,
    two_processes,
)
from benchmarks.__main__ import NAMES
from benchmarks.measuring import MET, MISSED, Verdict, in_fresh_process, table
from benchmarks.simulated import write_parquet


def test_a_verdict_says_in_words_whether_a_target_is_met():
    assert str(Verdict("time", 2.0, 3.0, unit=" s")) == f"{MET}: time is 2 s, asked was at most 3 s"
    assert str(Verdict("speed", 2.0, 3.0, at_least=True)).startswith(MISSED)


def test_a_table_has_one_line_for_each_row():
    assert table(["a", "b"], [("x", 1)]).splitlines()[1:] == ["|-----|----:|", "| x   |   1 |"]


def test_every_benchmark_is_in_the_list():
    folder = Path(combine_speed.__file__).parent
    shared = {"__init__", "__main__", "measuring", "peer_verdicts", "simulated"}
    assert {path.stem for path in folder.glob("*.py")} - shared == set(NAMES)
    listing = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--help"],
        check=True,
        capture_output=True,
        text=True,
        cwd=folder.parent,
    )
    assert all(name in listing.stdout for name in NAMES)


def test_a_failing_call_says_why():
    with pytest.raises(RuntimeError, match="division by zero"):
        in_fresh_process("scaling_rows:slope", runs=[{"rows": 1, "seconds": 1.0}])


def test_the_slope_of_time_that_grows_with_the_square_is_two():
    runs = [{"rows": 10**k, "seconds": 10.0 ** (2 * k)} for k in range(3)]
    assert scaling_rows.slope(runs) == pytest.approx(2.0)
    assert scaling_rows.steepest(runs) == pytest.approx(10.0)


def test_the_rest_of_a_run_that_was_stopped_is_extrapolated():
    # 10 slow warm-up iterations, then 30 of 1 s and 4 steps each, out of 100.
    found = {
        "steps": [9] * 10 + [4] * 30,
        "ends": [3.0 * k for k in range(1, 11)] + [30.0 + k for k in range(1, 31)],
    }
    whole = logistic_vs_nuts.extrapolated(found, warmup=10, draws=100)
    assert whole["seconds"] == pytest.approx(60 + 70)
    assert whole["gradients"] == pytest.approx(90 + 120 + 70 * 4)
    assert (whole["measured_iterations"], whole["left"]) == (40, 70)


def test_start_up_runs():
    found = start_up.measure(1)
    assert all(len(seconds) == 1 for seconds in found.values())


def test_the_transcription_of_swiss_agrees_with_the_package():
    from consilience.combine import combine

    draws = np.random.default_rng(0).normal(size=(3, 200, 2))
    ours = combine(draws, method="swiss", kind="inflated").array
    # The package corrects the precision of a covariance estimated from few draws.
    assert np.allclose(ours.mean(axis=0), combine_speed.plain_swiss(draws).mean(axis=0), atol=0.02)


def test_the_transcription_of_pie_agrees_with_the_package():
    from consilience.combine import combine

    draws = np.random.default_rng(0).normal(size=(3, 200, 2))
    ours = combine(draws, method="pie", kind="inflated").array
    assert np.allclose(np.sort(ours, axis=0), pie_sort.plain_pie(draws))
    assert pie_sort.measure(2, 1)["pie over sort"] > 0


def test_the_semiparametric_product_is_set_against_its_peer(capsys):
    semiparametric_speed.report({5: semiparametric_speed.measure(5, 1, 400)})
    said = capsys.readouterr().out
    assert "R's semiparamDPE over walk" in said
    assert "nan" not in said


def test_fits_run_in_memory_and_from_a_file(tmp_path):
    path = tmp_path / "rows.parquet"
    write_parquet(str(path), rows=600, features=scaling_rows.FEATURES, group=250)
    whole = scaling_rows.run_fit(600, str(path), draws=200)
    assert whole["seconds"] > 0
    assert set(whole["stages"]) >= {"read", "split", "sample", "combine"}
    watched = memory_parquet.run_fit(str(path), scaling_rows.FEATURES, 1, 2, None, 200)
    assert watched["all"] > watched["private"] > 0
    # A stage shorter than the watch's interval is not seen.
    assert watched["by_stage"]
    assert set(watched["by_stage"]) <= {"imports", *watched["stages"]}
    found = two_processes.run_fit(rows=400, shards=2, workers=1, draws=200)
    assert found["in_shards"] > 0


def test_memory_is_put_down_to_the_stage_that_took_it():
    watch = memory_parquet.Watch()
    watch.seen = [(0.5, 1.0, 0.0), (1.5, 2.0, 1.0), (2.5, 7.0, 2.0), (3.5, 5.0, 2.0)]
    assert watch.peaks(1.0, {"read": 1.0, "idle": 0.1, "sample": 2.0}) == {
        "imports": (1.0, 0.0),
        "read": (1.0, 1.0),
        "sample": (5.0, 2.0),
    }


def test_both_sides_of_the_comparison_run_and_agree(tmp_path, capsys):
    logistic_vs_nuts.write_rows(str(tmp_path), rows=500)
    ours = logistic_vs_nuts.run_ours(str(tmp_path), None, draws=500)
    found = logistic_vs_nuts.run_nuts(str(tmp_path), warmup=60, draws=120, limit=1e9)
    peer = logistic_vs_nuts.extrapolated(found, 60, 120)
    assert peer["left"] == 0
    assert peer["seconds"] == found["ends"][-1]
    assert peer["gradients"] == sum(found["steps"])
    distance = logistic_vs_nuts.discrepancies(ours["path"], found["path"])
    assert distance["mahalanobis"] < distance["limit"]
    peer |= {"load": 0.0, "ess": logistic_vs_nuts.effective(found["path"])}
    logistic_vs_nuts.report({"ours": {**ours, "load": 0.0, "distance": distance}, "nuts": peer})
    assert "wall time of NUTS over ours" in capsys.readouterr().out


def test_marginal_views_are_timed():
    seconds = marginal_views_speed.contestants(1_000)
    assert set(seconds) == {"sums by the sweep", "shard", "sums by brute force"}
    assert all(value >= 0.0 for value in seconds.values())
