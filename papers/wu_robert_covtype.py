"""Wu and Robert, example 2, real rows: forest cover by the first three attributes.

The first N = 500,000 rows of Covtype; is the cover of type 2 (lodgepole pine, half of the rows)? Elevation,
aspect and slope, and an intercept: the paper does not say whether its three coefficients include one. K = 100
and 500 shards, recentring at the Newton centre as in the paper. L2 as in `papers.wu_robert_logistic`. Draws:
130 or more from every inflated shard, 2,000 from every sub-posterior, 4,000 from all rows.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

import consilience as cs
from papers.experiment import Experiment, Settings, main
from papers.shared_data import read
from papers.tables import Collected, Table
from papers.wu_robert_logistic import l2_table, one_data_set

FILE, ROWS, SHARDS = "covtype.parquet", 500_000, (100, 500)
DRAWS = (4_000, 2_000, 10_000)  # from all rows, from every sub-posterior, from inflated shards in all
PAPER = {100: ("3.8e-4", "3.1e-4", "9.0e-4", "6.1e-3"), 500: ("7.3e-4", "3.4e-4", "2.0e-3", "–")}


def cover_rows(rows: int) -> dict[str, np.ndarray]:
    """The outcome and the first three attributes."""
    attributes = ("Elevation", "Aspect", "Slope")
    frame = read(FILE).head(rows)
    outcome = (frame.iloc[:, -1].astype(int) == 2).to_numpy(np.int8)
    return {"pine": outcome, **{name: frame[name].to_numpy(np.float64) for name in attributes}}


def tables(settings: Settings) -> Sequence[Table]:
    """One column per number of shards."""
    rows, numbers, draws = (20_000, (4,), (300, 300, 300)) if settings.small else (ROWS, SHARDS, DRAWS)
    model = cs.glm("pine ~ Elevation + Aspect + Slope", family="bernoulli")
    data = cover_rows(rows)
    found = Collected()
    for repetition in range(settings.runs):
        one_data_set(model, data, numbers, draws, 1_000 * settings.seed + 10 * repetition, found)
    return [l2_table(found, numbers, PAPER, "Covtype")]


EXPERIMENT = Experiment("wu_robert_covtype", "Wu and Robert, example 2, Covtype, table 2", 1, tables)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
