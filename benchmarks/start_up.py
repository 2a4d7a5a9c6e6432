"""How long a user waits for `import consilience` and for `consilience --help`.

Run `python -m benchmarks.start_up`. Every command is a fresh process; commands take turns, so that a busy
machine is busy for all of them. The peer is an interpreter that does nothing.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.measuring import Verdict, machine, parser, table

LIMIT = 0.3


def commands() -> dict[str, list[str]]:
    """What is timed."""
    script = Path(sys.executable).with_name("consilience")
    command = [str(script)] if script.exists() else [sys.executable, "-m", "consilience.cli"]
    return {
        "python -c pass": [sys.executable, "-c", "pass"],
        "import consilience": [sys.executable, "-c", "import consilience"],
        "consilience --help": [*command, "--help"],
        "consilience fit --help": [*command, "fit", "--help"],
    }


def measure(repetitions: int) -> dict[str, list[float]]:
    """Seconds of every run of every command."""
    seconds: dict[str, list[float]] = {name: [] for name in commands()}
    for repetition in range(repetitions + 1):
        for name, command in commands().items():
            start = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            if repetition:  # the first round warms the disk cache up
                seconds[name].append(time.perf_counter() - start)
    return seconds


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--repetitions", type=int)
    arguments = options.parse_args()
    repetitions = arguments.repetitions or (3 if arguments.small else 21)
    print(f"{machine()}; {repetitions} runs each; the peer is `python -c pass`")
    found = measure(repetitions)
    empty = statistics.median(found["python -c pass"])
    rows = [
        (f"`{name}`", f"{statistics.median(s):.3f}", f"{max(s):.3f}", f"{statistics.median(s) / empty:.2f}")
        for name, s in found.items()
    ]
    print(table(["command", "median s", "slowest s", "ratio to `python -c pass`"], rows))
    for name in list(found)[1:]:
        print(Verdict(f"median of `{name}`", statistics.median(found[name]), LIMIT, unit=" s"))


if __name__ == "__main__":
    main()
