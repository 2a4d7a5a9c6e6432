"""SwISS section 4.1: accuracy and time of combining as the dimension grows.

Sub-posteriors N(mu_b, V_b), mu_b ~ N(0, I_d), V_b ~ inverse Wishart(5 d, I_d), B = 10 shards of J = 5,000
draws, d in {5, 10, 20, 40, 80}. V_b are covariances of *sub*-posteriors, as the paper's own posterior
(V^-1 = sum V_b^-1) has it, so the inflated ones are N(mu_b, V_b / B); the paper does not say so.

With these laws shards contradict each other: standard deviations are about 1 / sqrt(4 d), the means one apart.
No data split at random does that, so the same is run with means mu_b ~ N(0, V_b), which is how far apart
shards of one data set are by chance.

Rules that keep every draw return 50,000, the others 5,000: the noise floor is shown for both sizes. The paper
gives this experiment as a figure only. Times are ratios, in the same run, to one copy of all draws and to a
consensus in plain NumPy, because seconds are the machine's.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

from papers.experiment import Experiment, Settings, main
from papers.gaussian_shards import GaussianShards
from papers.measuring import measured
from papers.rules import combine, combine_all, kind_of, usable_rules
from papers.tables import Collected, Table

SHARDS, DRAWS = 10, 5_000
DIMENSIONS = (5, 10, 20, 40, 80)
ROUNDS = 5  # of timing, in which the contestants take turns
CAPTIONS = {
    "iad": "Integrated absolute distance to the exact marginals",
    "mahalanobis": "Mahalanobis distance of the mean to the exact mean",
    "skew": "Mean absolute skewness (0 is right)",
    "spread": "Ratio of standard deviations to the exact ones (geometric mean; 1 is right)",
}


def gaussian_shards(dimension: int, rng: np.random.Generator, scattered: bool = True) -> GaussianShards:
    """Covariances drawn as the paper does; means N(0, I) as it does, or N(0, V_b)."""
    # V ~ inverse Wishart(5 d, I) when V^-1 ~ Wishart(5 d, I), a sum of 5 d outer products.
    factors = rng.normal(size=(SHARDS, 5 * dimension, dimension))
    covariances = np.linalg.inv(np.swapaxes(factors, 1, 2) @ factors)
    means = rng.normal(size=(SHARDS, dimension))
    if not scattered:
        means = np.einsum("bij,bj->bi", np.linalg.cholesky(covariances), means)
    return GaussianShards(means, covariances)


def plain_consensus(draws: np.ndarray) -> np.ndarray:
    """Consensus as one writes it down: averages weighted by precisions, with nothing checked or permuted."""
    precisions = np.array([np.linalg.inv(np.cov(x, rowvar=False)) for x in draws])
    total = sum(x @ p for x, p in zip(draws, precisions, strict=True))
    return np.asarray(total @ np.linalg.inv(precisions.sum(axis=0)))


def accuracy(
    dimension: int, draws: int, settings: Settings, found: dict[str, Collected], scattered: bool
) -> None:
    """Every rule against the exact posterior, one column per dimension."""
    column = str(dimension)
    for repetition in range(settings.runs):
        rng = np.random.default_rng([settings.seed, dimension, repetition])
        shards = gaussian_shards(dimension, rng, scattered)
        reference = shards.reference(draws, rng)
        rows = {f"floor, {n:,} exact draws": shards.sample(n, rng) for n in (SHARDS * draws, draws)}
        for row, sample in rows.items():
            values = measured(sample, reference)
            for measure in CAPTIONS:
                found[measure].add(row, {column: values[measure]})
        for name, posterior in combine_all(shards.draws(draws, rng), seed=repetition):
            values = measured(posterior, reference)
            for measure in CAPTIONS:
                found[measure].add(name, {column: values[measure]})
        print(f"d = {dimension}, repetition {repetition + 1}", file=sys.stderr, flush=True)


def timing(dimension: int, draws: int, settings: Settings, copies: Collected, plain: Collected) -> None:
    """Median seconds of every rule over the median seconds of a copy, and of a plain consensus."""
    shards = gaussian_shards(dimension, np.random.default_rng([settings.seed, dimension]))
    kinds = shards.draws(draws, np.random.default_rng(settings.seed))
    array = np.array(kinds["subposterior"].draws)
    contestants: dict[str, Callable[[], object]] = {
        "copy": array.copy,
        "plain NumPy consensus": lambda: plain_consensus(array),
    }
    for record in usable_rules():
        contestants[record.name] = lambda record=record: combine(record.name, kinds[kind_of(record)], 0)  # type: ignore[misc]
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(1 + (1 if settings.small else ROUNDS)):
        for name, work in contestants.items():
            begun = time.perf_counter()
            work()
            if turn:  # the first round warms up
                seconds[name].append(time.perf_counter() - begun)
    medians = {name: float(np.median(values)) for name, values in seconds.items()}
    for name in list(contestants)[1:]:
        copies.add(name, {str(dimension): medians[name] / medians["copy"]})
        plain.add(name, {str(dimension): medians[name] / medians["plain NumPy consensus"]})


def tables(settings: Settings) -> Sequence[Table]:
    """Tables of accuracy, for the paper's means and for consistent ones, and two of time."""
    dimensions, draws = ((5, 10), 300) if settings.small else (DIMENSIONS, DRAWS)
    columns = [str(d) for d in dimensions]
    titles = {c: f"d = {c}" for c in columns}
    out = []
    for scattered in (True, False):
        found = {measure: Collected() for measure in CAPTIONS}
        for dimension in dimensions:
            accuracy(dimension, draws, settings, found, scattered)
        means = "as in the paper" if scattered else "as far apart as chance puts them"
        for measure, caption in CAPTIONS.items():
            out.append(found[measure].table(f"{caption}; means {means}", columns, titles=titles))
    copies, plain = Collected(), Collected()
    for dimension in dimensions:
        timing(dimension, draws, settings, copies, plain)
    return [
        *out,
        copies.table("Time to combine, in copies of all draws", columns, titles=titles),
        plain.table("Time to combine, in plain NumPy consensuses", columns, titles=titles),
    ]


EXPERIMENT = Experiment("swiss_dimension", "SwISS section 4.1, figure 2", 3, tables)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
