"""The same shard gives the same draws wherever it is sampled; the two plans agree in law."""

from __future__ import annotations

import hashlib
import os
import pickle
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cloudpickle
import jax
import numpy as np
import pytest
from shard_models import Rows, logistic_model, logistic_rows, mean_model, sample

from consilience.errors import ShardError
from consilience.sample import shard
from consilience.sample.hmc import HMC
from consilience.sample.nuts import NUTS
from consilience.sample.shard import ShardSampler, ShardTask
from consilience.sample.vectorised import chunks, sample_chunks, shards_per_program


def tasks(number: int, *, num_rows: int = 50, ragged: bool = False) -> list[ShardTask]:
    sizes = [num_rows + (7 * b if ragged else 0) for b in range(number)]
    return [ShardTask(b, f"s{b}", 1 / number, logistic_rows(size, 3, seed=b)) for b, size in enumerate(sizes)]


def sampler(**options) -> ShardSampler:
    model = logistic_model(3)
    options = {"kind": "inflated", "sampler": HMC(), "draws": 200, "seed": 5} | options
    return ShardSampler(model, model.fingerprint(), **options)


SCRIPT = """
import hashlib, sys
sys.path.insert(0, {here!r})
from shard_models import logistic_model, logistic_rows, sample
result = sample(logistic_model({d}), logistic_rows({n}, {d}), weight=0.5, draws=60, seed=2)
print(hashlib.sha256(result.draws.tobytes() + result.log_density.tobytes()).hexdigest())
"""


@pytest.mark.parametrize(("n", "d"), [(600, 70), (20_000, 12)])
def test_the_bits_do_not_depend_on_the_process_or_its_threads(n, d):
    """From 64 dimensions on OpenBLAS and LAPACK share their work among threads, and XLA does so with tall rows."""
    result = sample(logistic_model(d), logistic_rows(n, d), weight=0.5, draws=60, seed=2)
    ours = hashlib.sha256(result.draws.tobytes() + result.log_density.tobytes()).hexdigest()
    script = textwrap.dedent(SCRIPT.format(here=str(Path(__file__).parent), n=n, d=d))
    theirs = []
    for threads in ("1", "3"):
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "PJRT_NPROC")
        environment = os.environ | dict.fromkeys(names, threads)
        run = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        theirs.append(run.stdout.strip())
    assert theirs == [ours, ours]


def test_other_shards_around_change_nothing():
    sample_shard = sampler()
    alone = sample_shard(tasks(6, ragged=True)[4])
    among = list(sample_chunks(sample_shard, chunks(tasks(6, ragged=True), 1), size=1, workers=3))
    again = next(result for result in among if result.index == 4)
    np.testing.assert_array_equal(alone.draws, again.draws)
    assert sorted(result.index for result in among) == list(range(6))


def test_a_pickled_sampler_gives_the_same_bits():
    copy = pickle.loads(cloudpickle.dumps(sampler()))
    task = tasks(2)[1]
    np.testing.assert_array_equal(sampler()(task).draws, copy(task).draws)


def test_many_shards_share_one_compilation():
    # Settings that no other test takes, so that nothing is compiled yet.
    arriving = [pickle.loads(cloudpickle.dumps(sampler(sampler=HMC(warmup=7)))) for _ in range(8)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda pair: pair[0](pair[1]), zip(arriving, tasks(8), strict=True)))
    work = arriving[0].read(tasks(8)[0])
    programs = [copy.programs(work.data) for copy in arriving]
    assert all(program is programs[0] for program in programs)
    assert programs[0].run.compilations == programs[0].derivatives.compilations == 1
    assert programs[0].values.compilations == 0


def test_log_likelihoods_are_not_traced_for_each_shard():
    traced = []
    model = mean_model()
    original = model._log_likelihood

    def counting(params, rows):
        traced.append(1)
        return original(params, rows)

    model._log_likelihood = counting
    run = ShardSampler(model, "counting", "inflated", HMC(), 40, seed=0)
    counts = []
    for b in range(4):
        run(ShardTask(b, "s", 0.25, Rows(y=np.arange(5.0) + b)))
        counts.append(len(traced))
    assert counts[0] == counts[-1] <= 12


def test_models_and_priors_never_share_a_program_even_under_one_fingerprint():
    def drawn(model) -> np.ndarray:
        run = ShardSampler(model, "same", "inflated", HMC(), 200, seed=0)
        return run(ShardTask(0, "s", 1.0, Rows(y=np.array([1.0, 2.0])))).draws

    plain, shifted, narrow = drawn(mean_model()), mean_model(), drawn(mean_model(0.1))
    original = shifted._log_likelihood
    shifted._log_likelihood = lambda params, rows: original({"mu": params["mu"] - 5.0}, rows)
    assert drawn(shifted).mean() - plain.mean() > 4
    assert plain.std() > 5 * narrow.std()


@pytest.mark.parametrize("kernel", [HMC(), pytest.param(NUTS(), marks=pytest.mark.long)], ids=["hmc", "nuts"])
def test_the_vectorised_plan_repeats_itself_and_agrees_to_rounding_at_first(kernel):
    run = sampler(sampler=kernel)
    shards = tasks(5)

    def stacked() -> list:
        return sorted(
            sample_chunks(run, chunks(shards, 3), size=3, workers=2), key=lambda result: result.index
        )

    first, second = stacked(), stacked()
    for one, two in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.draws, two.draws)
        alone = run(shards[one.index])
        # Rounding grows along a chain; the first draws of it have not had the time.
        np.testing.assert_allclose(one.draws[:2], alone.draws[:2], rtol=1e-3, atol=1e-3)
        assert one.record["gradients"] == pytest.approx(alone.record["gradients"], rel=0.2)


def test_padding_changes_no_bits_of_equal_shards_and_no_law():
    run = sampler()
    short, long = tasks(1, num_rows=50)[0], ShardTask(1, "long", 1.0, logistic_rows(300, 3, seed=9))
    alone = next(sample_chunks(run, [[short]], size=2, workers=1))
    beside_equal = next(sample_chunks(run, [[short, tasks(2)[1]]], size=2, workers=1))
    beside_longer = next(sample_chunks(run, [[short, long]], size=2, workers=1))
    np.testing.assert_array_equal(alone.draws, beside_equal.draws)
    assert beside_longer.index == alone.index
    error = alone.draws.std(axis=0) * np.sqrt(
        2 / min(alone.record["ess_bulk"], beside_longer.record["ess_bulk"])
    )
    assert np.all(np.abs(alone.draws.mean(axis=0) - beside_longer.draws.mean(axis=0)) < 4 * error)


def test_how_many_shards_are_stacked_depends_on_sizes_alone():
    assert shards_per_program([12_500] * 32, 4) == 1
    assert shards_per_program([100] * 5, 4) == 5
    assert [len(group) for group in chunks(tasks(5), 2)] == [2, 2, 1]


class Broken:
    def read(self):
        raise OSError("the disk is gone")


@pytest.mark.parametrize("size", [1, 3])
def test_a_shard_that_cannot_be_read_is_named(size):
    shards = [*tasks(2), ShardTask(2, "north", 0.3, Broken())]
    with pytest.raises(ShardError, match=r"shard 2 \(north\): OSError: the disk is gone"):
        list(sample_chunks(sampler(), chunks(shards, size), size=size))


@pytest.mark.parametrize("size", [1, 2])
def test_a_log_likelihood_that_fails_names_the_shard(size):
    model = mean_model()
    model._log_likelihood = lambda params, rows: params["nu"] * rows["y"]
    run = ShardSampler(model, "broken", "inflated", HMC(), 40, seed=0)
    with pytest.raises(ShardError, match=r"shard 0 \(s\): KeyError: 'nu'"):
        list(sample_chunks(run, [[ShardTask(0, "s", 1.0, Rows(y=np.arange(3.0)))]], size=size))


def test_a_shard_whose_search_is_not_simple_is_done_alone_in_a_stack():
    run = ShardSampler(mean_model(), "same", "inflated", HMC(), 200, seed=0)
    shards = [ShardTask(b, "s", 0.5, Rows(y=np.full(4, b + 1.0))) for b in range(2)]
    stacked = list(sample_chunks(run, [shards], size=2))
    assert [result.record["status"] for result in stacked] == ["converged"] * 2
    # With not a single Newton step allowed neither search is simple.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("consilience.sample.newton.MAX_ITERATIONS", 1)
        alone = list(sample_chunks(run, [shards], size=2))
    assert all(any("Newton stopped" in note for note in result.record["notes"]) for result in alone)
    assert all(abs(result.draws.mean() - result.index - 1) < 0.5 for result in alone)


def test_workers_are_reported_and_slots_used_again():
    seen = []
    lock = threading.Lock()

    def on_event(kind: str, slot: int, label: str) -> None:
        with lock:
            seen.append((kind, slot, label))

    list(sample_chunks(sampler(), chunks(tasks(4), 1), size=1, workers=2, on_event=on_event))
    assert {label for _, _, label in seen} == {"s0", "s1", "s2", "s3"}
    assert {slot for _, slot, _ in seen} <= {0, 1}


def test_rows_leave_the_device_with_the_shard():
    run = sampler()
    run(tasks(1)[0])
    before = len(jax.live_arrays())
    results = [run(task) for task in tasks(4)]
    list(sample_chunks(run, [tasks(4)], size=4))
    assert len(jax.live_arrays()) <= before
    assert all(isinstance(result.draws, np.ndarray) for result in results)


def test_a_repeat_is_longer_and_counted(monkeypatch):
    monkeypatch.setattr("consilience.sample.convergence.LOWEST_ACCEPTANCE", 1.1)
    result = sampler(draws=40)(tasks(1)[0])
    record = result.record
    assert record["status"] == "not converged"
    assert record["repeats"] == shard.MAX_REPEATS
    assert record["draws"] == len(result.draws) == 40 * shard.REPEAT_FACTOR**shard.MAX_REPEATS
    assert "acceptance is" in record["problems"][0]
    assert record["gradients"] > 21 * 40
