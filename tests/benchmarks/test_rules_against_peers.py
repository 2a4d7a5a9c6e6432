"""The comparison with public implementations: its arithmetic, and a run at sizes that say nothing about speed."""

from __future__ import annotations

import os
import shutil
import sys

import numpy as np
import pytest
from benchmarks import rules_against_peers
from benchmarks.measuring import MET, MISSED
from benchmarks.peer_verdicts import Found, judge, ratio_and_error
from benchmarks.peers import programs
from benchmarks.rules_against_peers import on_one_core

# Stands in for a peer's program: averages the shards, as combine.R is called.
AVERAGE = """
import sys
import numpy as np
call, folder, given, *shape_and_more = sys.argv[1:]
shape = tuple(int(value) for value in shape_and_more[:3])
np.fromfile(given).reshape(shape).mean(axis=0).tofile(sys.argv[-2])
if call != "fails":
    open(sys.argv[-1], "w").write("0.25 0.125")
sys.exit("it was asked to fail" if call == "fails" else 0)
"""


@pytest.fixture
def average(tmp_path, monkeypatch):
    """A peer whose program is the one above."""
    script = tmp_path / "average.py"
    script.write_text(AVERAGE)
    monkeypatch.setitem(programs.PROGRAMS, "R", (sys.executable, str(script)))
    for call in ("works", "fails"):
        monkeypatch.setitem(programs.PEERS, f"R {call}", programs.Peer("R", call, ("average.py",)))
    return tmp_path


def test_the_error_of_a_ratio_is_that_of_paired_values():
    """Standardised errors of the ratio have variance 1; an error that takes the pairs apart is far too large."""
    rng = np.random.default_rng(0)
    replications, sets, truth = 2_000, 40, 1.2
    paired, apart = [], []
    for _ in range(replications):
        # Luck of the data set, which both sides share, is most of what varies.
        theirs = 1.0 + 0.2 * rng.normal(size=sets)
        ours = truth * theirs + 0.02 * rng.normal(size=sets)
        ratio, error = ratio_and_error(ours.tolist(), theirs.tolist())
        assert error is not None
        paired.append((ratio - truth) / error)
        relative = np.hypot(np.std(ours, ddof=1) / ours.mean(), np.std(theirs, ddof=1) / theirs.mean())
        apart.append((ratio - truth) / (ratio * relative / np.sqrt(sets)))
    # Squares of Student's t with 39 degrees of freedom: mean 39/37, variance 2.35.
    expected, limit = 39 / 37, 5 * np.sqrt(2.35 / replications)
    assert np.mean(np.square(paired)) == pytest.approx(expected, abs=limit)
    assert abs(np.mean(np.square(apart)) - expected) > 2 * limit


def found_with(ours: list[float], theirs: list[float]) -> Found:
    found = Found()
    for seed, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        found.add(
            seed,
            {"rule": {"seconds": [0.1], "iad": a}, "R semiparamDPE": {"seconds": [2.0, 1.5], "iad": b}},
        )
    return found


def test_a_difference_that_is_noise_is_no_miss():
    rng = np.random.default_rng(1)
    theirs = 0.2 + 0.05 * rng.normal(size=6)
    noise = 0.004 * rng.normal(size=6)
    (same, speed), (worse, _) = (
        judge(
            5, "rule", ["R semiparamDPE", "absent"], found_with(list(factor * theirs + noise), list(theirs))
        )
        for factor in (1.0, 1.2)
    )
    assert str(same).startswith(MET)
    assert str(worse).startswith(MISSED)
    assert "6 data sets" in str(worse)
    assert str(speed) == f"{MET}: R semiparamDPE's time over rule's, d = 5 is 15, asked was at least 10"


def test_one_data_set_is_not_judged_and_no_peer_is_no_verdict():
    found = found_with([0.3], [0.1])
    assert str(judge(5, "rule", ["R semiparamDPE"], found)[0]).startswith("not judged")
    assert judge(5, "rule", ["absent"], found) == []


def test_a_program_gets_the_draws_and_gives_back_its_own(average):
    draws = np.random.default_rng(2).normal(size=(3, 7, 2))
    seconds, combined = programs.run_peer("R works", str(average), draws, 0, 5, 2.0)
    assert seconds == [0.25, 0.125]
    assert np.allclose(combined, draws.mean(axis=0), rtol=0, atol=1e-15)
    with pytest.raises(RuntimeError, match=r"R fails wrote no draws\. It said: it was asked to fail"):
        programs.run_peer("R fails", str(average), draws, 0, 5, 2.0)


def test_peers_that_are_not_there_are_named(average, monkeypatch, capsys):
    names = ["swiss", "R works", "R consensusMCcov", "PART kd, pairwise"]
    trees = {"PART kd": [5]}
    assert rules_against_peers.chosen(names, 20, None, trees) == ["swiss"]
    assert rules_against_peers.chosen(names, 20, average, trees) == ["swiss", "R works"]
    assert "parallelMCMCcombine/R/consensusMCcov.R is not there" in capsys.readouterr().out
    monkeypatch.setattr(shutil, "which", lambda program: None)
    assert rules_against_peers.chosen(names, 20, average, trees) == ["swiss"]
    assert "octave-cli is not installed" in capsys.readouterr().out


def test_both_kinds_of_draws_are_the_same_draws():
    data = rules_against_peers.Workload(3, 0, 50)
    inflated = np.array(data.kinds["inflated"].draws)
    means = data.shards.means[:, None]
    assert np.allclose((inflated - means) * np.sqrt(10), data.draws - means)
    law, density = data.shards, data.kinds["subposterior"].log_densities
    assert density is not None
    away = data.draws[4, 0] - law.means[4], data.draws[4, 1] - law.means[4]
    exact = [-0.5 * x @ np.linalg.solve(law.covariances[4], x) for x in away]
    assert density[4][:2] == pytest.approx(exact)


def test_memory_at_the_peak_is_counted_in_copies():
    draws = np.zeros((4, 1000, 5))

    def doubled() -> np.ndarray:
        twice = np.concatenate([draws, draws])
        return twice[:1].copy()

    assert rules_against_peers.copies_at_peak(doubled, draws) == pytest.approx(2.25, rel=0.05)


def test_rules_and_peers_run_and_are_reported(capsys):
    names = ("swiss", "consensus", "gaussian-product", "fusion")
    rules = {name: rules_against_peers.RULES[name] for name in names}
    everyone = [*names, "NumPyro consensus", "NumPyro parametric_draws", "transcription of SwISS"]
    found = Found()
    for seed in range(2):
        found.add(seed, rules_against_peers.contest(2, seed, 300, everyone, None, memory=seed == 0))
    rules_against_peers.report({2: found}, rules)
    said = capsys.readouterr().out
    assert "nan" not in said
    assert "IAD of consensus beyond that of" in said
    assert "peak memory of swiss" in said
    assert "refused, d = 2: fusion: `limit` must be at least" in said


def test_the_caller_keeps_its_cores() -> None:
    before = os.sched_getaffinity(0)
    with on_one_core():
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == before
