"""SwISS section 4.3, simulated data: logistic regression with rare and decisive features.

N = 100,000 rows, five binary features, coefficients (-3, 1.2, -.5, .8, 3), B = 25 random shards. The last
feature occurs in one row of a thousand, four rows of a shard: some shards have seen it with one outcome only.
Frequencies are (1, .02, .03, .05, .001) in the paper and (1, .2, .3, .5, .001) in the thesis: both are run.
The thesis' shards have 4,000 rows (it says 5,000). Prior N(0, 1000) on every coefficient, as in the thesis.

The paper drew 10,000 from every target and partitioned one data set 5 times; here sub-posteriors have 10,000
draws, inflated ones 400 (10,000 in all), runs on all rows 10,000, and the data are drawn anew for each of 3
repetitions.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

import consilience as cs
from papers.experiment import Experiment, Settings, main
from papers.regression import Sizes, full_data, one_partition, record
from papers.tables import Collected, Table

ROWS = 100_000
SIZES = Sizes(shards=25, inflated=400, subposterior=10_000, full=10_000)
TRUTH = np.array([-3.0, 1.2, -0.5, 0.8, 3.0])
FREQUENCIES = {
    "the SwISS paper": (1.0, 0.02, 0.03, 0.05, 0.001),
    "the thesis": (1.0, 0.2, 0.3, 0.5, 0.001),
}
RARE = "x5"
COLUMNS = ("mahalanobis", "skew", "iad")
# Table 2 of the paper (standard errors), and table 3.3 of the thesis (standard deviations, of x5 only).
PAPER = {
    "swiss": ("0.46 (0.30)", "0.04 (0.01)", "0.05 (0.03)"),
    "consensus": ("0.48 (0.35)", "0.05 (0.01)", "0.06 (0.03)"),
    "recentering": ("5.46 (3.92)", "0.13 (0.07)", "0.20 (0.03)"),
    "semiparametric-product": ("1.25 (1.11)", "0.76 (0.33)", "0.12 (0.06)"),
    "gaussian-barycenter": ("5.42 (3.75)", "0.04 (0.01)", "0.20 (0.01)"),
}
THESIS = {
    "marginal-views": ("0.38 (0.29)", "0.17 (0.18)", "0.18 (0.09)"),
    "consensus": ("0.47 (0.35)", "0.05 (0.03)", "0.19 (0.11)"),
    "semiparametric-product": ("1.24 (1.12)", "3.59 (1.65)", "0.50 (0.27)"),
    "pie": ("5.45 (3.83)", "0.233 (0.09)", "0.88 (0.03)"),
    "gaussian-barycenter": ("5.43 (4.10)", "0.02 (0.02)", "0.90 (0.03)"),
    "recentering": ("5.44 (3.91)", "0.51 (0.37)", "0.89 (0.16)"),
}


def rare_feature_rows(
    rows: int, frequencies: Sequence[float], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Simulated rows; the first feature is the intercept."""
    features = (rng.random((rows, len(frequencies))) < np.asarray(frequencies)).astype(np.float64)
    probability = 1 / (1 + np.exp(-(features @ TRUTH)))
    columns = {f"x{j + 1}": features[:, j] for j in range(1, len(frequencies))}
    return {"y": (rng.random(rows) < probability).astype(np.int8), **columns}


def tables(settings: Settings) -> Sequence[Table]:
    """Two tables for each version of the frequencies: all parameters, and the rare feature's alone."""
    import numpyro.distributions as dist

    rows, sizes = (2_000, Sizes(2, 200, 200, 400)) if settings.small else (ROWS, SIZES)
    model = cs.glm("y ~ x2 + x3 + x4 + x5", family="bernoulli", prior=dist.Normal(0.0, float(np.sqrt(1000))))
    versions = list(FREQUENCIES.items())[: 1 if settings.small else 2]
    out = []
    for version, (name, frequencies) in enumerate(versions):
        found = {"": Collected(), RARE: Collected()}
        for repetition in range(settings.runs):
            rng = np.random.default_rng([settings.seed, version, repetition])
            if settings.small:
                frequencies = (1.0, 0.2, 0.3, 0.5, 0.05)
            data = rare_feature_rows(rows, frequencies, rng)
            seed = 1_000 * settings.seed + 10 * repetition
            reference = full_data(model, data, sizes.full, seed + 1).array
            record("floor, full data again", full_data(model, data, sizes.full, seed + 2), reference, found)
            one_partition(model, data, sizes, reference, seed, found)
            print(f"frequencies of {name}, repetition {repetition + 1}", file=sys.stderr, flush=True)
        paper, thesis = (
            {rule: dict(zip(COLUMNS, values, strict=True)) for rule, values in table.items()}
            for table in (PAPER, THESIS)
        )
        caption = f"Frequencies of {name}"
        out.append(
            found[""].table(f"{caption}; all five coefficients, beside table 2 of SwISS", COLUMNS, paper)
        )
        out.append(
            found[RARE].table(f"{caption}; the rare feature's alone, beside table 3.3", COLUMNS, thesis)
        )
    return out


EXPERIMENT = Experiment(
    "swiss_rare_features", "SwISS section 4.3, simulated; thesis section 3.3.2", 3, tables
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
