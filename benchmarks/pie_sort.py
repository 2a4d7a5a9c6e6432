"""How fast `pie` combines: against np.sort of the same draws, which it cannot do without.

Run `python -m benchmarks.pie_sort`. Ten shards of 5,000 draws in d dimensions; contestants take turns in one
process, so that a busy machine is busy for all of them; ratios are medians over rounds. Effective sizes and putting
values into rows are in the time of `pie`. Checking the draws, which every rule's draws go through and which costs
more than sorting in few dimensions, is in the second column alone. The transcription is the formula and no more.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import numpy as np

from benchmarks.combine_speed import NUM_DRAWS, NUM_SHARDS, alternate, make_draws
from benchmarks.measuring import Verdict, machine, parser, table
from consilience.combine import combine
from consilience.draws import Subposteriors

# Sorting once for the values and, for one shard's worth of draws, once more for the rows, with a pass or two over the
# draws beside it.
LIMIT = 3.0


def plain_pie(draws: np.ndarray) -> np.ndarray:
    """The average of the shards' quantile functions."""
    return np.sort(draws, axis=1).mean(axis=0)


def measure(d: int, repetitions: int) -> dict[str, float]:
    """Median milliseconds, and the ratios to sorting."""
    draws = make_draws(d)
    checked = Subposteriors.of(draws, kind="inflated")
    contestants: dict[str, Callable[[], object]] = {
        "pie": lambda: combine(checked, method="pie"),
        "with checks": lambda: combine(draws, method="pie", kind="inflated"),
        "plain": lambda: plain_pie(draws),
        "sort": lambda: np.sort(draws, axis=1),
    }
    seconds = alternate(contestants, repetitions)
    found = {name: 1e3 * statistics.median(runs) for name, runs in seconds.items()}
    for name in ("pie", "with checks"):
        pairs = zip(seconds[name], seconds["sort"], strict=True)
        found[f"{name} over sort"] = statistics.median(ours / sort for ours, sort in pairs)
    return found


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--dimensions", type=int, nargs="+", default=[5, 20, 80])
    options.add_argument("--repetitions", type=int)
    arguments = options.parse_args()
    repetitions = arguments.repetitions or (3 if arguments.small else 15)
    print(
        f"{machine()}; {NUM_SHARDS} shards x {NUM_DRAWS} draws, median milliseconds of {repetitions} rounds"
    )
    found = {d: measure(d, repetitions) for d in arguments.dimensions}
    columns = ("pie", "with checks", "plain", "sort", "pie over sort", "with checks over sort")
    headers = {"plain": "transcription", "sort": "np.sort"}
    rows = [
        (d, *(f"{run[name]:.2f}" if "over" in name else f"{run[name]:.1f}" for name in columns))
        for d, run in found.items()
    ]
    print(table(["d", *(headers.get(name, name) for name in columns)], rows))
    for d, run in found.items():
        print(Verdict(f"pie over np.sort of the same draws, d = {d}", run["pie over sort"], LIMIT))


if __name__ == "__main__":
    main()
