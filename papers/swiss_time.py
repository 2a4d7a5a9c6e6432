"""SwISS section 4.1, the right plot of figure 2: time to combine as the dimension grows.

The shards of `papers.swiss_dimension`: 10 of 5,000 draws. Seconds are the machine's, so times are ratios within
one run, to a copy of all draws and to a consensus in plain NumPy. They are processor time, of all threads, and
the fastest of several turns counts: other work on the machine then matters little.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

from consilience.errors import ConsilienceError
from papers.experiment import Experiment, Settings, main
from papers.rules import combine, kind_of, usable_rules
from papers.swiss_dimension import DIMENSIONS, DRAWS, gaussian_shards
from papers.tables import Collected, Table

PLAIN = "plain NumPy consensus"


def plain_consensus(draws: np.ndarray) -> np.ndarray:
    """Consensus as one writes it down: averages weighted by precisions, with nothing checked or permuted."""
    precisions = np.array([np.linalg.inv(np.cov(x, rowvar=False)) for x in draws])
    total = sum(x @ p for x, p in zip(draws, precisions, strict=True))
    return np.asarray(total @ np.linalg.inv(precisions.sum(axis=0)))


def fastest(contestants: dict[str, Callable[[], object]], turns: int) -> dict[str, float]:
    """Processor seconds of the fastest of several turns of each; one that refuses says so and is left out."""
    seconds = dict.fromkeys(contestants, float("inf"))
    for _ in range(1 + turns):  # the first also warms up
        for name in list(seconds):
            begun = time.process_time()
            try:
                contestants[name]()
            except ConsilienceError as refusal:
                print(f"{name} refused: {refusal}", file=sys.stderr)
                del seconds[name]
                continue
            seconds[name] = min(seconds[name], time.process_time() - begun)
    return seconds


def one_dimension(dimension: int, draws: int, settings: Settings) -> dict[str, float]:
    """Seconds of a copy, of the plain consensus and of every rule."""
    shards = gaussian_shards(dimension, np.random.default_rng([settings.seed, dimension]))
    kinds = shards.draws(draws, np.random.default_rng(settings.seed))
    array = np.array(kinds["subposterior"].draws)
    contestants: dict[str, Callable[[], object]] = {"copy": array.copy, PLAIN: lambda: plain_consensus(array)}
    for record in usable_rules():
        contestants[record.name] = lambda record=record: combine(record.name, kinds[kind_of(record)], 0)  # type: ignore[misc]
    return fastest(contestants, settings.runs)


def tables(settings: Settings) -> Sequence[Table]:
    """Times in copies, and in plain consensuses."""
    dimensions, draws = ((5, 10), 300) if settings.small else (DIMENSIONS, DRAWS)
    units = {"copy": "copies of all draws", PLAIN: "plain NumPy consensuses"}
    found = {unit: Collected() for unit in units}
    for dimension in dimensions:
        seconds = one_dimension(dimension, draws, settings)
        for unit, collected in found.items():
            for name in list(seconds)[1:]:
                collected.add(name, {str(dimension): seconds[name] / seconds[unit]})
    columns = [str(d) for d in dimensions]
    titles = {c: f"d = {c}" for c in columns}
    return [
        found[u].table(f"Processor time to combine, in {title}", columns, titles=titles)
        for u, title in units.items()
    ]


EXPERIMENT = Experiment("swiss_time", "SwISS section 4.1, figure 2, right", 7, tables)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
