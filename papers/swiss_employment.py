"""SwISS section 4.3, real data, with another data set in HEPMASS's place.

HEPMASS could not be had. Its place is taken by the American Community Survey, Massachusetts, 2015 to 2018:
is a person of 17 or more employed? The model has as many coefficients as the paper's, 28: age (cubic), sex,
marital status, schooling, disability and its kinds, being foreign-born, having moved, race, and sex with age
and with marriage. As in the paper N = 100,000 (the first rows with AGEP >= 17), B = 20 random shards, prior
N(0, 1000) as in the thesis. The paper partitioned 5 times and drew 10,000 from every target; here one
partition, 1,000 draws of every shard and kind, and 4,000 from all rows.

One level of race has 203 rows, ten in a shard, and one shard sees it with one outcome only. HEPMASS has real
features and nothing like that, so the same is run with that level joined to another.

The paper's numbers are for HEPMASS: only their order of magnitude, and which rules suffice, can agree.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

import consilience as cs
from papers.experiment import Experiment, Settings, main
from papers.regression import Sizes, full_data, one_partition, record
from papers.shared_data import read
from papers.tables import Collected, Table

FILE = "acs_employment_MA.parquet"
ROWS = 100_000
SIZES = Sizes(shards=20, inflated=1_000, subposterior=1_000, full=4_000)
FORMULA = (
    "employed ~ age + I(age**2) + I(age**3) + female + C(marital) + C(schooling) + disabled + hearing + sight"
    " + cognition + foreign + C(moved) + C(race) + female:age + female:wed"
)
COLUMNS = ("mahalanobis", "skew", "iad")
PAPER = {
    "swiss": ("0.56 (0.05)", "0.03 (<0.01)", "0.03 (<0.01)"),
    "consensus": ("0.35 (0.05)", "0.03 (<0.01)", "0.03 (<0.01)"),
    "recentering": ("0.47 (0.04)", "0.03 (<0.01)", "0.02 (<0.01)"),
    "semiparametric-product": ("0.36 (0.05)", "0.03 (<0.01)", "0.03 (<0.01)"),
    "gaussian-barycenter": ("0.46 (0.05)", "0.03 (<0.01)", "0.02 (<0.01)"),
}
# Last code of each level of schooling, and its name.
SCHOOLING = (
    (15, "none"),
    (17, "school"),
    (19, "some college"),
    (20, "associate"),
    (21, "bachelor"),
    (24, "more"),
)


def employment_rows(rows: int) -> dict[str, np.ndarray]:
    """Columns of the model; codes are those of the survey's data dictionary."""
    columns = ["AGEP", "SEX", "MAR", "SCHL", "DIS", "DEAR", "DEYE", "DREM", "NATIVITY", "MIG", "RAC1P"]
    frame = read(FILE, [*columns, "employed"])
    frame = frame[frame["AGEP"] >= 17].head(rows)
    schooling = np.searchsorted([last for last, _ in SCHOOLING], frame["SCHL"].astype(int))
    # Races of under two in a hundred rows, together.
    race = frame["RAC1P"].astype(str).where(frame["RAC1P"].isin(["1", "2", "6", "8", "9"]), "other")

    def flag(column: str, code: str) -> np.ndarray:
        return (frame[column] == code).to_numpy(np.float64)

    return {
        "employed": frame["employed"].to_numpy(np.int8),
        "age": (frame["AGEP"].to_numpy(np.float64) - 45) / 20,
        "female": flag("SEX", "2"),
        "wed": flag("MAR", "1"),
        "marital": frame["MAR"].astype(str).to_numpy(object),
        "schooling": np.array([name for _, name in SCHOOLING], dtype=object)[schooling],
        "disabled": flag("DIS", "1"),
        "hearing": flag("DEAR", "1"),
        "sight": flag("DEYE", "1"),
        "cognition": flag("DREM", "1"),
        "foreign": flag("NATIVITY", "2"),
        "moved": frame["MIG"].astype(str).to_numpy(object),
        "race": race.to_numpy(object),
    }


def joined(data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same rows with the rare races counted as "some other race", code 8."""
    return {**data, "race": np.where(data["race"] == "other", "8", data["race"])}


def tables(settings: Settings) -> Sequence[Table]:
    """Two tables: the model as described, and without its one rare level."""
    rows, sizes = (6_000, Sizes(2, 300, 300, 600)) if settings.small else (ROWS, SIZES)
    data = employment_rows(rows)
    versions = {"with a rare level": data, "without it": joined(data)}
    return [one_version(name, version, sizes, settings) for name, version in versions.items()]


def one_version(name: str, data: dict[str, np.ndarray], sizes: Sizes, settings: Settings) -> Table:
    """Partitions of the same rows against one run on all of them."""
    import numpyro.distributions as dist

    model = cs.glm(FORMULA, family="bernoulli", prior=dist.Normal(0.0, float(np.sqrt(1000))))
    seed = 1_000 * settings.seed
    found = {"": Collected()}
    reference = full_data(model, data, sizes.full, seed + 1).array
    for repetition in range(settings.runs):
        again = full_data(model, data, sizes.full, seed + 500 + repetition)
        record(f"floor, {sizes.full:,} draws from all rows", again, reference, found)
        fewer = cs.Posterior(again.array[:: sizes.full // sizes.subposterior])
        record(f"floor, {len(fewer.array):,} draws from all rows", fewer, reference, found)
        one_partition(model, data, sizes, reference, seed + 10 * repetition, found)
        print(f"{name}, partition {repetition + 1}", file=sys.stderr, flush=True)
    paper = {rule: dict(zip(COLUMNS, values, strict=True)) for rule, values in PAPER.items()}
    caption = f"Employment {name}, {reference.shape[1]} coefficients; the paper's numbers are for HEPMASS"
    return found[""].table(caption, COLUMNS, paper)


EXPERIMENT = Experiment("swiss_employment", "SwISS section 4.3, real data (a substitute)", 1, tables)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
