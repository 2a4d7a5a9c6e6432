"""What every registered engine must satisfy, and an oracle that rejects engines which do not."""

from __future__ import annotations

import ast
import functools
import os
import pickle
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import consilience.engines
from consilience.engines import ENGINES, Event, TaskFailure, get_engine
from consilience.errors import InputError

pytest.importorskip("distributed", reason="NOT TESTED: the dask engine; pip install 'consilience[dask]'")


@pytest.fixture(scope="module", params=[engine.name for engine in ENGINES])
def engine(request: pytest.FixtureRequest) -> Iterator[object]:
    """Each registered engine, with two workers where it has any."""
    if request.param == "executor":
        with ThreadPoolExecutor(2) as threads:
            yield get_engine(threads)
    elif request.param == "dask":
        from consilience.engines.dask import own_cluster

        with own_cluster(workers=2) as client:
            yield get_engine(client)
    else:
        yield get_engine(request.param, workers=None if request.param == "serial" else 2)


def draws_of(seed: int) -> np.ndarray:
    """Stand in for a shard: pure, seeded by its own item."""
    return np.random.default_rng(seed).normal(size=(50, 3)) @ np.linspace(1, 2, 3)


def broken_results(run: Callable) -> list[str]:
    """Run the oracle's items and say what is wrong with the answers."""
    items = [11, 12, 13, 14, 15, 16, 17]
    pairs = []
    for pair in run(draws_of, items):
        pairs.append(pair)
        if len(pairs) > 3 * len(items):
            return ["it does not end"]
    wrong = []
    if sorted(index for index, _ in pairs) != list(range(len(items))):
        wrong.append("not every index exactly once")
    for index, result in pairs:
        if isinstance(result, TaskFailure) or result.tobytes() != draws_of(items[index]).tobytes():
            wrong.append(f"other bits for item {index}")
    return wrong


def count_attempts(folder: Path, item: object) -> int:
    """Count in files: attempts may be in different processes."""
    number = len(list(folder.glob(f"{item}-*")))
    (folder / f"{item}-{number}-{os.getpid()}-{time.monotonic_ns()}").touch()
    return number + 1


def test_every_item_gives_the_bits_it_gives_here(engine):
    assert broken_results(engine.map) == []


def test_the_oracle_rejects_wrong_engines():
    def drops_one(task, items):
        return ((i, task(item)) for i, item in enumerate(items[:-1]))

    def wrong_index(task, items):
        return ((len(items) - 1 - i, task(item)) for i, item in enumerate(items))

    def twice(task, items):
        return ((i, task(item)) for i, item in [*enumerate(items), (0, items[0])])

    def for_ever(task, items):
        while True:
            yield 0, task(items[0])

    def by_worker_seed(task, items):
        return ((i, task(item + 1)) for i, item in enumerate(items))

    for wrong in (drops_one, wrong_index, twice, for_ever, by_worker_seed):
        assert broken_results(wrong), wrong.__name__


def test_no_items(engine):
    assert list(engine.map(draws_of, [])) == []


def test_a_flaky_task_is_tried_again(engine, tmp_path):
    def flaky(item):
        if count_attempts(tmp_path, item) == 1:
            raise OSError("a passing trouble")
        return item * 10

    assert sorted(engine.map(flaky, [1, 2, 3])) == [(0, 10), (1, 20), (2, 30)]
    assert len(list(tmp_path.iterdir())) == 6


def test_what_fails_for_good_is_named_and_the_others_finish(engine, tmp_path):
    def task(item):
        count_attempts(tmp_path, item)
        if item == "bad":
            raise ZeroDivisionError("what went wrong")
        return item

    results = dict(engine.map(task, ["a", "bad", "c", "d"], attempts=2))
    failure = results.pop(1)
    assert results == {0: "a", 2: "c", 3: "d"}
    assert isinstance(failure, TaskFailure)
    assert (failure.index, failure.attempts, failure.exception) == (1, 2, "ZeroDivisionError")
    assert failure.message == "what went wrong"
    assert "in task" in failure.traceback
    assert not failure.wrong_input
    assert len(list(tmp_path.glob("bad-*"))) == 2
    assert pickle.loads(pickle.dumps(failure)) == failure


def test_wrong_input_is_not_tried_again(engine, tmp_path):
    def task(item):
        count_attempts(tmp_path, item)
        raise InputError("rows: no such column")

    [(_, failure)] = engine.map(task, ["x"])
    assert (failure.attempts, failure.wrong_input) == (1, True)
    assert failure.message == "rows: no such column"
    assert len(list(tmp_path.iterdir())) == 1


def test_leaving_the_interpreter_is_a_failure_of_the_task(engine):
    def task(item):
        raise SystemExit(item)

    [(_, failure)] = engine.map(task, [3], attempts=1)
    assert failure.exception == "SystemExit"


def test_exceptions_that_cannot_travel(engine):
    def task(item):
        class Unpicklable(Exception):
            def __reduce__(self):
                raise TypeError("never")

            def __str__(self):
                raise RuntimeError("not even text")

        if item:
            raise Unpicklable
        return item

    results = dict(engine.map(task, [1, 0], attempts=2))
    assert results[1] == 0
    assert results[0].exception.endswith("Unpicklable")
    assert "no readable message" in results[0].message


def test_a_dead_worker_is_survived_where_that_is_claimed(engine, tmp_path):
    def task(item):
        attempt = count_attempts(tmp_path, item)
        if item == "killer" or (item == "once" and attempt == 1):
            os._exit(9)
        return attempt

    if not engine.survives_worker_death:
        # It shares our process (or the caller's pool): the claim must be absent, not merely untested.
        assert engine.name in ("serial", "executor")
        return
    results = dict(engine.map(task, ["a", "killer", "b", "once", "c"], attempts=2))
    failure = results.pop(1)
    assert (failure.exception, failure.attempts) == ("WorkerDied", 2)
    assert len(list(tmp_path.glob("killer-*"))) == 2
    assert results == {0: 1, 2: 1, 3: 2, 4: 1}, "only what killed its worker counts an attempt"


def test_a_task_that_cannot_be_sent_is_refused_before_any_work(engine, tmp_path):
    import threading

    lock = threading.Lock()

    def task(item):
        (tmp_path / "ran").touch()
        return lock is not None

    if not engine.ships_tasks:
        assert list(engine.map(task, [1])) == [(0, True)]
        return
    with pytest.raises(
        InputError, match=f"engine '{engine.name}': `task` must be .* sent .* engine='serial'"
    ):
        engine.map(task, [1])
    assert not list(tmp_path.iterdir())


def test_items_and_results_that_cannot_be_sent_are_named(engine):
    items = [1, (value for value in "ab"), 3]

    def task(item):
        return (value for value in "ab") if item == 3 else "fine"

    results = dict(engine.map(task, items))
    assert results[0] == "fine"
    if engine.ships_tasks:
        assert "the item cannot be pickled" in results[1].message
        assert "the result cannot be pickled" in results[2].message
        assert results[1].attempts == results[2].attempts == 1
    else:
        assert results[1] == "fine"


def test_items_are_taken_as_they_are_needed(engine):
    taken = []

    def items():
        for item in range(100):
            taken.append(item)
            yield item

    answers = engine.map(draws_of, items())
    assert taken == [], "nothing is taken before somebody asks"
    next(answers)
    assert len(taken) <= 6, "at most two for each of two workers, and what replaced those that finished"
    answers.close()


def test_events_tell_each_attempt(engine, tmp_path):
    def flaky(item):
        if item == "flaky" and count_attempts(tmp_path, item) == 1:
            raise OSError("a passing trouble")
        return item

    events: list[Event] = []
    list(engine.map(flaky, ["flaky", "fine"], on_event=events.append))
    told = [(event.kind, event.attempt) for event in events if event.index == 0]
    assert told == [("started", 1), ("failed", 1), ("started", 2), ("finished", 2)]
    assert [event.kind for event in events if event.index == 1] == ["started", "finished"]
    assert all(event.worker for event in events if event.kind == "finished")
    assert "a passing trouble" in next(event.message for event in events if event.kind == "failed")


def test_a_task_may_be_any_callable(engine):
    assert dict(engine.map(functools.partial(pow, 2), [3, 4])) == {0: 8, 1: 16}


@pytest.mark.parametrize("attempts", [0, -1, 2.0, True])
def test_attempts_are_checked(engine, attempts):
    with pytest.raises(InputError, match="`attempts` must be"):
        engine.map(draws_of, [1], attempts=attempts)


def test_it_is_a_frozen_configuration(engine):
    with pytest.raises(AttributeError):
        engine.name = "other"
    if engine.name in ("serial", "processes"):
        assert pickle.loads(pickle.dumps(engine)) == engine


def test_every_engine_file_is_registered():
    folder = Path(consilience.engines.__file__).parent
    files = {p.stem for p in folder.glob("*.py") if not p.stem.startswith("_")} - {"registry"}
    assert files == {engine.__module__.rpartition(".")[2] for engine in ENGINES}
    written = ast.parse((folder / "registry.py").read_text("utf-8"))
    [literal] = [
        node.value
        for node in written.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "ENGINES"
    ]
    assert isinstance(literal, ast.Tuple)
    assert len({engine.name for engine in ENGINES}) == len(ENGINES) == len(literal.elts)
