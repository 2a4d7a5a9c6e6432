"""The rare-feature example of the SwISS paper (section 4.3), from rows in a file to a report.

Five binary features with frequencies (1, .02, .03, .05, .001): the last is rare and decisive, so that in
25 shards of 4,000 rows each it is seen about four times, and the shards' posteriors of it differ widely.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from consilience.diagnose import compare
from consilience.draws.files import write_atomically
from consilience.errors import StoreError
from consilience.fitted import Fit
from consilience.model import glm
from consilience.pipeline import fit
from consilience.report import print_summary

ROWS = 100_000
SHARDS = 25
FREQUENCIES = (1.0, 0.02, 0.03, 0.05, 0.001)
TRUTH = (-3.0, 1.2, -0.5, 0.8, 3.0)
PRIOR_SD = 5.0
FORMULA = "click ~ banner + video + mobile + partner"


def rare_feature_rows(rows: int = ROWS, seed: int = 0, frequencies: tuple[float, ...] = FREQUENCIES) -> Any:
    """Simulate clicks with rare features; returns a dict of columns."""
    rng = np.random.default_rng(seed)
    features = (rng.random((rows, len(frequencies))) < np.asarray(frequencies)).astype(float)
    probability = 1 / (1 + np.exp(-features @ np.asarray(TRUTH)))
    names = ("banner", "video", "mobile", "partner")
    columns = {name: features[:, j + 1].astype(np.int8) for j, name in enumerate(names)}
    return {"click": (rng.random(rows) < probability).astype(np.int8), **columns}


def run_demo(out: str | os.PathLike[str], *, seed: int = 0, progress: bool = True) -> Fit:
    """Make data, fit them in shards and whole, compare, and leave the report in `out`."""
    out = Path(out)
    data = _write_rows(out, seed)
    import numpyro.distributions as dist

    # The automatic prior of so rare a feature is very wide (sd 80), as wide as its share of rows is small.
    model = glm(FORMULA, family="bernoulli", prior=dist.Normal(0, PRIOR_SD))
    print(f"{ROWS:,} rows in {data}; {FORMULA}; {SHARDS} shards")
    result = fit(model, data, shards=SHARDS, seed=seed, out=out / "run", progress=progress)
    full = fit(
        model, data, shards=1, refine=None, seed=seed + 1, out=out / "full-data-run", progress=progress
    )
    discrepancy = compare(result.posterior, full.posterior)
    report = replace(result.to_report(discrepancy), title=f"{FORMULA} (demo)")
    from consilience.report import write_report

    path = write_report(out / "report.html", report)
    print_summary(report)
    print("\nAgainst a run on all rows:")
    print(discrepancy)
    whole = f"{full.cost.full_data_gradients:.0f} gradients of all rows for the run on all rows"
    print(f"\nCost: {result.cost.full_data_gradients:.0f} full-data gradient equivalents in shards, {whole}")
    print(f"Report: {path}")
    return result


def _write_rows(out: Path, seed: int) -> Path:
    """Write the rows once; a second demo in the same place finds its run again."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    path = out / f"clicks-{seed}.parquet"
    if path.exists():
        return path
    try:
        out.mkdir(parents=True, exist_ok=True)
        table = pa.table(rare_feature_rows(seed=seed))
        write_atomically(path, lambda temporary: parquet.write_table(table, temporary))
    except OSError as error:
        raise StoreError(
            f"demo: cannot write to {out}: {error.strerror or error}. Choose another --out."
        ) from error
    return path
