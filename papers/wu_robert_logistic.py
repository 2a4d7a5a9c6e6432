"""Wu and Robert, example 2, synthetic rows: logistic regression with five coefficients.

N = 100,000 rows, x_1 = 1, x_2 to x_5 uniform on (0, 1), coefficients (.3, 5, -7, 2.4, -20), K = 50 and 100.
The paper recentres at the mode that Newton-Raphson finds on all rows: the row "recentering, Newton centre";
plain recentering is its Algorithm 1 without that. The paper names no prior: N(0, 1000) here.

What the paper's L2 is in five dimensions is not said. In units of standard deviations the joint densities'
could not exceed .004, and its Mposterior has .23; ours is the mean of the five marginals', where .56 is the most.
The paper gives no numbers of draws either; here 10,000 in all from inflated shards, 4,000 from every
sub-posterior and 10,000 from all rows.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import consilience as cs
from papers.experiment import Experiment, Settings, main
from papers.regression import NEWTON_CENTRE, SWISS_REFINED, Sizes, full_data, one_partition, record
from papers.tables import Collected, Table

ROWS = 100_000
FULL, SUBPOSTERIOR, INFLATED_TOTAL = 10_000, 4_000, 10_000
TRUTH = np.array([0.3, 5.0, -7.0, 2.4, -20.0])
SHARDS = (50, 100)
# Columns CMC, AR, WS and MP of table 2; AR recentres by Newton-Raphson.
RULES = ("consensus", "recentering, Newton centre", "weierstrass", "median-posterior")
PAPER = {50: ("1.1e-2", "7.6e-3", "1.0e-2", "2.3e-1"), 100: ("1.8e-2", "8.8e-3", "4.7e-2", "2.5e-1")}


def synthetic_rows(rows: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Rows as the paper draws them."""
    features = np.column_stack([np.ones(rows), rng.random((rows, 4))])
    outcome = rng.random(rows) < 1 / (1 + np.exp(-(features @ TRUTH)))
    return {"y": outcome.astype(np.int8), **{f"x{j + 1}": features[:, j] for j in range(1, 5)}}


def one_data_set(
    model: Any, data: Any, numbers: Sequence[int], draws: tuple[int, int, int], seed: int, found: Collected
) -> None:
    """One reference, one floor, every rule for each number of shards; L2 in columns by number."""
    full, subposterior, inflated = draws
    reference = full_data(model, data, full, seed + 1).array
    again = full_data(model, data, full, seed + 2)
    for number in numbers:
        measures = {"": Collected()}
        record("floor, full data again", again, reference, measures)
        sizes = Sizes(number, max(inflated // number, 130), subposterior, full)
        one_partition(
            model, data, sizes, reference, seed, measures, refined={**NEWTON_CENTRE, **SWISS_REFINED}
        )
        for row in measures[""].rows:
            found.add(row, {str(number): measures[""].mean(row, "l2")})
        print(f"K = {number}, seed {seed}", file=sys.stderr, flush=True)


def l2_table(
    found: Collected, numbers: Sequence[int], paper: Mapping[int, Sequence[str]], rows: str
) -> Table:
    """The table of either data set of example 2."""
    quoted: dict[str, dict[str, str]] = {rule: {} for rule in RULES}
    for number, values in paper.items():
        for rule, value in zip(RULES, values, strict=True):
            quoted[rule][str(number)] = value
    columns = [str(number) for number in numbers]
    caption = f"L2 distance of marginal densities, in standard deviations; {rows}"
    return found.table(caption, columns, quoted, titles={c: f"K = {c}" for c in columns})


def tables(settings: Settings) -> Sequence[Table]:
    """One column per number of shards."""
    import numpyro.distributions as dist

    rows, draws = ROWS, (FULL, SUBPOSTERIOR, INFLATED_TOTAL)
    numbers: tuple[int, ...] = SHARDS
    if settings.small:
        rows, numbers, draws = 4_000, (2,), (300, 300, 300)
    model = cs.glm("y ~ x2 + x3 + x4 + x5", family="bernoulli", prior=dist.Normal(0.0, float(np.sqrt(1000))))
    found = Collected()
    for repetition in range(settings.runs):
        data = synthetic_rows(rows, np.random.default_rng([settings.seed, repetition]))
        one_data_set(model, data, numbers, draws, 1_000 * settings.seed + 10 * repetition, found)
    return [l2_table(found, numbers, PAPER, "synthetic rows")]


EXPERIMENT = Experiment("wu_robert_logistic", "Wu and Robert, example 2, synthetic, table 2", 1, tables)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
