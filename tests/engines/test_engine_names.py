"""How a user names an engine, and executors and clusters that are the user's own."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest

import consilience.engines.dask as dask_engine
from consilience.engines import TaskFailure, get_engine
from consilience.engines.processes import ProcessEngine
from consilience.engines.serial import SerialEngine
from consilience.errors import InputError


def test_names():
    assert get_engine() == get_engine("serial") == get_engine(None, workers=1) == SerialEngine()
    assert get_engine("local", workers=3) == get_engine("processes", workers=3) == ProcessEngine(3)
    assert get_engine("dask", workers=2).workers == 2
    assert get_engine("dask:tcp://h:1").address == "tcp://h:1"
    engine = ProcessEngine(2)
    assert get_engine(engine) is engine


@pytest.mark.parametrize("spec", ["threads", "dask:", "", 3, object(), ["serial"]])
def test_unknown_engines(spec):
    with pytest.raises(InputError, match=r"`engine` must be a known engine.*'processes'"):
        get_engine(spec)


@pytest.mark.parametrize("workers", [0, -2, 1.5, True, "2"])
def test_workers_are_checked(workers):
    with pytest.raises(InputError, match="`workers` must be"):
        get_engine("processes", workers=workers)


def test_serial_has_one_worker():
    with pytest.raises(InputError, match="engine='processes'"):
        get_engine("serial", workers=2)


def test_an_address_where_nobody_answers(monkeypatch):
    monkeypatch.setattr(dask_engine, "_SECONDS_TO_CONNECT", 1)
    with pytest.raises(InputError, match="Is a Dask scheduler running there"):
        list(get_engine("dask:tcp://127.0.0.1:9").map(str, [1]))


def test_by_address_and_the_cluster_stays():
    with dask_engine.own_cluster(workers=1) as client:
        engine = get_engine(f"dask:{client.scheduler.address}")
        assert dict(engine.map(lambda item: item + 1, [1, 2])) == {0: 2, 1: 3}
        assert client.submit(sum, [1, 2]).result() == 3
        assert dict(get_engine(client).map(lambda item: item + 1, [1])) == {0: 2}


def test_an_executor_stays_the_callers():
    with ThreadPoolExecutor(1) as threads:
        assert dict(get_engine(threads).map(lambda item: item + 1, [1, 2])) == {0: 2, 1: 3}
        assert threads.submit(sum, [1, 2]).result() == 3


def test_a_pool_that_breaks_names_what_it_left():
    def task(item):
        if item == 2:
            os._exit(3)
        return item

    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        results = dict(get_engine(pool).map(task, range(6)))
    assert sorted(results) == list(range(6))
    broken = [index for index, result in results.items() if isinstance(result, TaskFailure)]
    assert 2 in broken
    assert all("engine='processes'" in results[index].message for index in broken)


def test_an_executor_that_was_shut_down():
    threads = ThreadPoolExecutor(1)
    threads.shutdown()
    [(_, failure)] = get_engine(threads).map(str, [1])
    assert "shutdown" in failure.message
    assert failure.attempts == 1


def test_closing_cancels_what_has_not_started():
    begun, go = [], threading.Event()
    threads = ThreadPoolExecutor(1)

    class Local:
        """Pickled by reference to this very object, so that the thread shares our lists."""

        def __reduce__(self):
            return (_the_local, ())

        def __call__(self, item):
            begun.append(item)
            if item:
                go.wait(60)

    global _the_local_object
    _the_local_object = Local()
    answers = get_engine(threads).map(_the_local_object, range(50))
    next(answers)
    answers.close()
    go.set()
    threads.shutdown()
    assert len(begun) <= 2


_the_local_object = None


def _the_local():
    return _the_local_object


def test_importing_the_room_is_cheap():
    code = "import sys, consilience.engines; print({'jax', 'numpy', 'distributed'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
