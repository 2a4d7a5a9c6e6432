"""Wu and Robert, example 1: mean and variance of a million Gaussian rows, with a posterior in closed form.

X_i ~ N(0, 10), the prior flat in (mu, log sigma), K = 20, 50, 100. A shard with M rows, mean m and sum of
squares S has, whichever target it samples, sigma^2 ~ c S / chi^2(c M - 1) and mu ~ N(m, sigma^2 / (c M)) with
c = 1 (sub-posterior: a flat prior to the power 1/K is flat) or c = K (inflated): all are drawn exactly.
Draws are combined as (mu, log sigma), and compared as (mu, sigma^2), the paper's theta, by the L2 distance
of joint densities in units of the posterior's standard deviations: in the units of mu and sigma^2 two exact
samples would be about 10 apart and the paper's 1e-4 could not be reached.

Every rule's result is thinned to 10^5 draws, as the reference and the floor have. Rules that walk over draws or build
trees of them are given 10^4 of every shard and make as many; these have a floor of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import product

import numpy as np

import consilience as cs
from papers.experiment import Experiment, Settings, main
from papers.measuring import Reference, measured
from papers.parallel import in_processes
from papers.rules import SLOW, combine_all, usable_rules
from papers.tables import Collected, Table

ROWS, DRAWS = 1_000_000, 100_000
FEW_DRAWS = 10_000
FLOOR = "floor"
SHARDS = (20, 50, 100)
# Columns CMC, AR, WS and MP of table 1.
RULES = ("consensus", "recentering", "weierstrass", "median-posterior")
PAPER = {
    20: ("1.0e-4", "1.0e-4", "1.7e-4", "1.1e-3"),
    50: ("1.5e-4", "1.3e-4", "2.9e-4", "1.5e-3"),
    100: ("1.5e-4", "2.2e-4", "1.6e-4", "7.3e-4"),
}


def target_draws(rows: np.ndarray, copies: float, draws: int, rng: np.random.Generator) -> np.ndarray:
    """(draws, 2) of (mu, log sigma) given the rows, each counted `copies` times."""
    number = copies * len(rows)
    variance = copies * len(rows) * rows.var() / rng.chisquare(number - 1, size=draws)
    mean = rows.mean() + np.sqrt(variance / number) * rng.normal(size=draws)
    return np.column_stack([mean, 0.5 * np.log(variance)])


def as_variance(draws: np.ndarray) -> np.ndarray:
    """(mu, sigma^2) of (mu, log sigma)."""
    return np.column_stack([draws[:, 0], np.exp(2 * draws[:, 1])])


def one_part(seed: int, repetition: int, number: int, rule: str, rows: int, draws: int) -> dict[str, float]:
    """L2 distance of one rule, or of the floor, on one data set in so many shards."""
    rng = np.random.default_rng([seed, repetition])
    data = rng.normal(0.0, np.sqrt(10.0), size=rows)
    reference = Reference(as_variance(target_draws(data, 1, draws, rng)))
    exact = as_variance(target_draws(data, 1, draws, rng))
    few = min(FEW_DRAWS, draws)
    if rule == FLOOR:
        return {floor_of(n): measured(exact[:n], reference, joint=True)["l2"] for n in (draws, few)}
    rng = np.random.default_rng([seed, repetition, number])
    shards = data.reshape(number, -1)
    # Rules that keep every draw need the K-th part of them from every shard.
    kinds = {
        "inflated": [target_draws(x, number, max(draws // number, 100), rng) for x in shards],
        "subposterior": [target_draws(x, 1, few if rule in SLOW else draws, rng) for x in shards],
    }
    given = {kind: cs.Subposteriors.of(x, kind=kind) for kind, x in kinds.items()}
    return {
        row_of(name, few): measured(as_variance(posterior.array[:draws]), reference, joint=True)["l2"]
        for name, posterior in combine_all(given, seed=repetition, rules=[rule])
    }


def floor_of(draws: int) -> str:
    """What the row of exact draws is called."""
    return f"floor, {draws:,} exact draws"


def row_of(rule: str, few: int) -> str:
    """What a rule's row is called."""
    return f"{rule}, {few:,} draws" if rule in SLOW else rule


def tables(settings: Settings) -> Sequence[Table]:
    """L2 distances, one column per number of shards."""
    rows, draws, numbers = (20_000, 1_000, (4, 8)) if settings.small else (ROWS, DRAWS, SHARDS)
    names = [FLOOR, *(record.name for record in usable_rules())]
    # Many shards first: they take longest.
    cases = list(product(range(settings.runs), sorted(numbers, reverse=True), names))
    tasks = [(settings.seed, *case, rows, draws) for case in cases]
    few = min(FEW_DRAWS, draws)
    order = [row_of(name, few) for name in sorted(names[1:], key=lambda name: name in SLOW)]
    found = Collected([floor_of(draws), *order[: -len(SLOW)], floor_of(few), *order[-len(SLOW) :]])
    for (_, number, _), values in zip(cases, in_processes(one_part, tasks, settings.jobs), strict=True):
        for name, value in values.items():
            found.add(name, {str(number): value})
    paper: dict[str, dict[str, str]] = {rule: {} for rule in RULES}
    for number, values in PAPER.items():
        for rule, value in zip(RULES, values, strict=True):
            paper[rule][str(number)] = value
    columns = [str(number) for number in numbers]
    caption = "L2 distance of joint densities, in standard deviations"
    return [found.table(caption, columns, paper, titles={c: f"K = {c}" for c in columns})]


EXPERIMENT = Experiment("wu_robert_gaussian", "Wu and Robert, example 1, table 1", 3, tables)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
