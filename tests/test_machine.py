"""The machine is asked for what it can do, and does without where it cannot."""

from __future__ import annotations

import os
from typing import Any

import pytest

from consilience import machine


class Library:
    """A C library that writes down what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def malloc_trim(self, pad: int) -> int:
        self.asked.append(("trim", pad))
        return 1

    def mallopt(self, option: int, value: int) -> int:
        self.asked.append((option, value))
        return 1


def test_memory_is_given_back_where_the_c_library_can(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda name: library)
    machine.release_freed_memory()
    machine.use_few_heaps()
    assert library.asked == [("trim", 0), (-8, machine.FEW_HEAPS)]


def test_another_c_library_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda name: object())
    machine.release_freed_memory()
    machine.use_few_heaps()


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity"), reason="this system does not bind processes to cores"
)
def test_cores_are_those_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5})
    assert machine.usable_cores() == 2
