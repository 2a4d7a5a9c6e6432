"""What the benchmarks share: fresh processes, the machine's load, tables, and verdicts in words."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MET, MISSED = "target met", "target MISSED"
_ROOT = Path(__file__).resolve().parents[1]
_SERVE = "from benchmarks.measuring import serve; serve()"
_MARK = "benchmark-result:"


@dataclass(frozen=True)
class Verdict:
    """A measured number beside what was promised."""

    what: str
    value: float
    limit: float
    at_least: bool = False
    unit: str = ""

    @property
    def met(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def __str__(self) -> str:
        bound = "at least" if self.at_least else "at most"
        word = MET if self.met else MISSED
        return f"{word}: {self.what} is {self.value:.3g}{self.unit}, asked was {bound} {self.limit:.3g}{self.unit}"


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options that all benchmarks have."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--small", action="store_true", help="a quick look; the ratios mean little")
    return made


def load() -> float:
    """How busy the machine is: the load average of the last minute."""
    return os.getloadavg()[0]


def machine() -> str:
    """What a number was measured on."""
    return f"{len(os.sched_getaffinity(0))} cores, load average {load():.1f} at the start"


def in_fresh_process(
    function: str, *, environment: dict[str, str] | None = None, **arguments: Any
) -> dict[str, Any]:
    """Call ``module:function`` of the benchmarks in a process that has nothing loaded yet."""
    return wait_for(start_fresh(function, environment=environment, **arguments))


def start_fresh(
    function: str, *, environment: dict[str, str] | None = None, **arguments: Any
) -> subprocess.Popen[str]:
    """Start such a call, so that several can run at once."""
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=_ROOT,
        env={**os.environ, **(environment or {})},
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps({"function": function, "arguments": arguments}))
    process.stdin.close()
    process.stdin = None
    return process


def wait_for(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The answer of a call that was started."""
    said, complained = process.communicate()
    lines = [line for line in said.splitlines() if line.startswith(_MARK)]
    if process.returncode or not lines:
        tail = "\n".join(complained.strip().splitlines()[-15:])
        raise RuntimeError(f"a benchmark process ended with exit code {process.returncode}:\n{tail}")
    found: dict[str, Any] = json.loads(lines[-1].removeprefix(_MARK))
    return found


def serve() -> None:
    """What runs in the fresh process."""
    asked = json.load(sys.stdin)
    module, name = asked["function"].split(":")
    answer = getattr(importlib.import_module(f"benchmarks.{module}"), name)(**asked["arguments"])
    print(_MARK + json.dumps(answer), flush=True)


def table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table that reads well in a terminal and can be pasted into the docs."""
    cells = [[str(cell) for cell in row] for row in [headers, *rows]]
    widths = [max(3, *(len(row[i]) for row in cells)) for i in range(len(headers))]
    first = [True] + [False] * (len(headers) - 1)

    def line(row: Sequence[str]) -> str:
        padded = (
            cell.ljust(w) if left else cell.rjust(w) for cell, w, left in zip(row, widths, first, strict=True)
        )
        return "| " + " | ".join(padded) + " |"

    rule = "|" + "|".join(
        "-" * (w + 1) + ("-" if left else ":") for w, left in zip(widths, first, strict=True)
    )
    return "\n".join([line(cells[0]), rule + "|", *map(line, cells[1:])])


def stages(seconds: dict[str, float]) -> str:
    """Where the time of a fit went."""
    return ", ".join(f"{name} {value:.1f}" for name, value in seconds.items())
