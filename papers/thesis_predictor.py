"""Thesis section 3.3.2, real data: the posterior of a linear predictor x'theta, with another data set.

HEPMASS could not be had; the American Community Survey stands in its place, with the columns of
`papers.swiss_employment` (its rare level joined to another) written out as numbers, so that a person's x is a row
of them. The thesis has N = 1,000,000, 28 coefficients, B = 20 random shards, prior N(0, 1000), 10,000 draws of
every shard and kind, and five partitions, the i-th judged at the i-th subject's x. Here N is all persons of 17
or more (230,000), with 2,000 draws of every shard and kind, 10,000 from all rows, and three partitions.

Rules that combine whole vectors are judged by x'theta of their draws. `pie` and `marginal-views` are given the
function x'theta itself.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

import consilience as cs
from papers.experiment import Experiment, Settings, main
from papers.measuring import Reference, measured
from papers.regression import SWISS_REFINED, fit, full_data
from papers.rules import combine_linear, linear
from papers.swiss_employment import employment_rows, joined
from papers.tables import Collected, Table

ROWS, SHARDS, DRAWS, FULL = 300_000, 20, 2_000, 10_000
COLUMNS = ("standardised_mean", "skew", "iad")
PAPER = {
    "marginal-views": ("0.04 (0.02)", "0.10 (0.12)", "0.06 (<0.01)"),
    "consensus": ("0.04 (0.02)", "0.03 (0.02)", "0.03 (<0.01)"),
    "semiparametric-product": ("0.05 (0.02)", "0.02 (0.02)", "0.03 (<0.01)"),
    "pie": ("0.07 (0.07)", "0.02 (0.01)", "0.03 (0.02)"),
    "gaussian-barycenter": ("0.07 (0.08)", "0.01 (0.01)", "0.04 (0.02)"),
    "recentering": ("0.07 (0.07)", "0.02 (0.02)", "0.03 (0.02)"),
}


def numeric_rows(rows: int) -> dict[str, np.ndarray]:
    """The survey's columns as numbers: powers, indicators and products written out."""
    data = joined(employment_rows(rows))
    out = {
        "employed": data["employed"],
        "age": data["age"],
        "age2": data["age"] ** 2,
        "age3": data["age"] ** 3,
    }
    for name in ("female", "disabled", "hearing", "sight", "cognition", "foreign"):
        out[name] = data[name]
    for name in ("marital", "schooling", "moved", "race"):
        for level in sorted(set(data[name]))[1:]:
            out[f"{name}_{str(level).replace(' ', '_')}"] = (data[name] == level).astype(np.float64)
    out["female_age"] = data["female"] * data["age"]
    out["female_wed"] = data["female"] * data["wed"]
    return out


def tables(settings: Settings) -> Sequence[Table]:
    """One table: every rule's draws of the linear predictor, against those of a run on all rows."""
    import numpyro.distributions as dist

    rows, shards, each, full = (6_000, 2, 300, 600) if settings.small else (ROWS, SHARDS, DRAWS, FULL)
    data = numeric_rows(rows)
    features = [name for name in data if name != "employed"]
    model = cs.glm(
        "employed ~ " + " + ".join(features), family="bernoulli", prior=dist.Normal(0.0, float(np.sqrt(1000)))
    )
    seed = 1_000 * settings.seed
    whole, again = (full_data(model, data, full, seed + s) for s in (1, 2))
    found = Collected()
    for repetition in range(settings.runs):
        person = {"Intercept": 1.0, **{name: float(data[name][repetition]) for name in features}}
        reference = Reference(linear(whole, person).array)
        found.add("floor, full data again", measured(linear(again, person), reference))
        partition = {"shards": shards, "seed": seed + 10 * repetition}
        ((row, how),) = SWISS_REFINED.items()
        refined = fit(model, data, draws=each * shards, **partition, **how)
        draws = {
            "inflated": refined.subposteriors,
            "subposterior": fit(model, data, draws=each, method="consensus", **partition).subposteriors,
        }
        for name, posterior in combine_linear(draws, person, repetition):
            found.add(name, measured(posterior, reference))
        found.add(row, measured(linear(refined.posterior, person), reference))
        print(f"partition {repetition + 1}", file=sys.stderr, flush=True)
    paper = {rule: dict(zip(COLUMNS, values, strict=True)) for rule, values in PAPER.items()}
    caption = "Linear predictor of one person's employment; the thesis' numbers (table 3.4) are for HEPMASS"
    return [found.table(caption, COLUMNS, paper)]


EXPERIMENT = Experiment("thesis_predictor", "Thesis section 3.3.2, real data (a substitute)", 3, tables)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
