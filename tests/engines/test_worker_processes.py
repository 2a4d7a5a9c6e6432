"""Engines that start processes: plain scripts, interruption, orphans, what travels and what does not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from consilience.engines import TaskFailure, get_engine
from consilience.engines.processes import worker_environment
from consilience.errors import RunError

PATIENCE = 60


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def wait_until(condition) -> bool:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.05)
    return False


def run_script(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(text)
    return subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.parametrize("engine", ["processes", "dask"])
def test_a_plain_script_without_a_main_guard(engine, tmp_path):
    (tmp_path / "beside.py").write_text("def double(value):\n    return 2 * value\n")
    done = run_script(
        tmp_path,
        f"""
import beside
from consilience.engines import get_engine

print("top of the script")

class Answer:
    def __init__(self, value):
        self.value = value

def task(item):
    return Answer(beside.double(item))

answers = dict(get_engine({engine!r}, workers=2).map(task, [1, 2, 3]))
assert all(type(answer) is Answer for answer in answers.values())
print(sorted((index, answer.value) for index, answer in answers.items()))
""",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["top of the script", "[(0, 2), (1, 4), (2, 6)]"]


STUCK = """
import os, sys, time
from pathlib import Path
from consilience.engines import get_engine

def task(item):
    Path(sys.path[0], f"pid-{os.getpid()}").touch()
    time.sleep(600)

for _ in get_engine(ENGINE, workers=2).map(task, [1, 2]):
    pass
"""


@pytest.mark.parametrize("engine", ["processes", "dask"])
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_running(engine, ending, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(STUCK.replace("ENGINE", repr(engine)).replace("sys.path[0]", repr(str(tmp_path))))
    process = subprocess.Popen([sys.executable, script], stderr=subprocess.PIPE, text=True)
    try:
        assert wait_until(lambda: len(list(tmp_path.glob("pid-*"))) == 2)
        workers = [int(path.name[4:]) for path in tmp_path.glob("pid-*")]
        assert all(is_running(pid) for pid in workers)
        process.send_signal(ending)
        _, said = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    if ending == signal.SIGINT:
        assert "KeyboardInterrupt" in said
        assert not any(is_running(pid) for pid in workers), "gone before the caller is"
    assert wait_until(lambda: not any(is_running(pid) for pid in workers))


def test_an_abandoned_run_ends_its_workers(tmp_path):
    def task(item):
        (tmp_path / f"pid-{os.getpid()}").touch()
        if item:
            time.sleep(600)

    answers = get_engine("processes", workers=2).map(task, [0, 1, 1])
    assert next(answers) == (0, None)
    assert wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
    workers = [int(path.name[4:]) for path in tmp_path.iterdir()]
    answers.close()
    assert not any(is_running(pid) for pid in workers)


def test_an_error_from_the_items_ends_the_workers():
    def items():
        yield 1
        raise KeyError("no more")

    with pytest.raises(KeyError):
        list(get_engine("processes", workers=2).map(str, items()))


def test_the_environment_of_the_caller_stays_as_it_is():
    before = dict(os.environ)

    def task(name):
        return os.environ.get(name)

    names = ["XLA_FLAGS", "PJRT_NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"]
    seen = dict(get_engine("processes", workers=1).map(task, names))
    assert "--xla_cpu_multi_thread_eigen=false" in seen[0]
    assert (seen[1], seen[2], seen[3]) == ("1", "1", "1")
    assert dict(os.environ) == before
    assert worker_environment({"XLA_FLAGS": "--mine"})["XLA_FLAGS"].startswith("--mine ")


def test_what_a_task_prints_does_not_disturb(capfd):
    def task(item):
        print("printed by a task")
        os.write(1, b"written by a library\n")
        return sys.stdin.read()

    assert dict(get_engine("processes", workers=1).map(task, [1, 2])) == {0: "", 1: ""}
    shown = capfd.readouterr()
    assert shown.out == ""
    assert shown.err.count("written by a library") == 2


class Counted:
    """A task that leaves a file each time it is unpacked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __setstate__(self, state):
        self.__dict__ = state
        (self.folder / f"unpacked-{os.getpid()}-{time.monotonic_ns()}").touch()

    def __call__(self, item):
        return os.getpid()


def test_the_task_travels_once_per_worker(tmp_path):
    workers = set(dict(get_engine("processes", workers=2).map(Counted(tmp_path), range(20))).values())
    assert len(list(tmp_path.iterdir())) == len(workers) <= 2


@pytest.mark.parametrize("workers", [1, 2])
def test_another_try_is_in_another_process(workers, tmp_path):
    def task(item):
        with open(tmp_path / "tried", "a") as file:
            file.write(f"{os.getpid()}\n")
        raise ValueError

    list(get_engine("processes", workers=workers).map(task, [1], attempts=3))
    tried = (tmp_path / "tried").read_text().split()
    assert len(tried) == 3
    assert tried[0] != tried[1] != tried[2]


def test_workers_work_at_the_same_time(tmp_path):
    def meet(item):
        (tmp_path / str(item)).touch()
        return wait_until(lambda: len(list(tmp_path.iterdir())) == 2)

    assert dict(get_engine("processes", workers=2).map(meet, [0, 1])) == {0: True, 1: True}


def test_no_more_workers_than_items(tmp_path):
    def task(item):
        return os.getpid()

    assert len(set(dict(get_engine("processes", workers=50).map(task, [1])).values())) == 1


def test_workers_that_cannot_start_are_not_the_items_fault(tmp_path, monkeypatch):
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\nexit 3\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    with pytest.raises(RunError, match="exit code 3 while starting, 3 times"):
        list(get_engine("processes", workers=2).map(str, [1, 2, 3]))


def test_a_killed_worker_is_explained():
    def task(item):
        os.kill(os.getpid(), signal.SIGKILL)

    [(_, failure)] = get_engine("processes", workers=1).map(task, [1], attempts=1)
    assert isinstance(failure, TaskFailure)
    assert "SIGKILL (often: memory ran out)" in failure.message


def test_large_items_and_results_pass():
    def task(item):
        return item[::-1]

    large = os.urandom(5_000_000)
    assert dict(get_engine("processes", workers=2).map(task, [large, large])) == {
        0: large[::-1],
        1: large[::-1],
    }
