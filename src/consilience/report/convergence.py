"""Which shards have not converged, read from the table that sampling left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from consilience.report.text import fixed, shard_name

if TYPE_CHECKING:
    from consilience.report.inputs import ReportInput

RHAT_LIMIT = 1.01  # Vehtari et al. (2021), section 4


@dataclass(frozen=True)
class Unconverged:
    """A shard that has not converged and what shows it."""

    index: int
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name} ({self.reason})" if self.reason else self.name


def limits(report: ReportInput) -> tuple[float, float | None]:
    """R-hat beyond which a shard counts as not converged, and the effective size asked for, if any was."""
    asked = report.settings.get("ess_limit")
    return float(report.settings.get("rhat_limit", RHAT_LIMIT)), None if asked is None else float(asked)


def unconverged_shards(report: ReportInput) -> list[Unconverged]:
    """Find them: by the sampler's own word where its status gives one, else by R-hat.

    Examples
    --------
    >>> import pandas as pd
    >>> from consilience.report.inputs import ReportInput
    >>> table = pd.DataFrame({"rhat": [1.002, 1.3]}, index=["north", "south"])
    >>> [str(shard) for shard in unconverged_shards(ReportInput("t", None, shard_table=table))]
    ['shard 1 (south) (R-hat 1.300)']
    """
    table = report.shard_table
    if table is None or table.empty:
        return []
    rhat = _column(table, "rhat")
    said = [str(value).strip().lower() for value in table["status"]] if "status" in table.columns else None
    if said is not None and any("converged" in status for status in said):
        bad = [status != "converged" for status in said]
    else:
        with np.errstate(invalid="ignore"):
            bad = list(rhat > limits(report)[0])
        if said is not None:
            bad = [
                b or "fail" in status or "unfinished" in status for b, status in zip(bad, said, strict=True)
            ]
    found = []
    for index in np.flatnonzero(bad):
        reasons = [f"R-hat {fixed(float(rhat[index]), 3)}"] if np.isfinite(rhat[index]) else []
        for column, word in (("ess_bulk", "ESS"), ("divergences", "divergences")):
            value = _column(table, column)[index]
            if np.isfinite(value) and (column == "ess_bulk" or value > 0):
                reasons.append(f"{word} {value:,.0f}")
        found.append(
            Unconverged(int(index), shard_name(int(index), table.index[int(index)]), ", ".join(reasons))
        )
    return found


def _column(table: object, name: str) -> np.ndarray:
    import pandas as pd

    assert isinstance(table, pd.DataFrame)
    if name not in table.columns:
        return np.full(len(table), np.nan)
    return np.asarray(pd.to_numeric(table[name], errors="coerce"), dtype=float)


def numeric_columns(report: ReportInput) -> dict[str, np.ndarray]:
    """The diagnostics that the table has, as floats."""
    table = report.shard_table
    if table is None or table.empty:
        return {}
    wanted = ("rhat", "ess_bulk", "ess_tail", "divergences", "acceptance")
    columns = {name: _column(table, name) for name in wanted if name in table.columns}
    return {name: values for name, values in columns.items() if np.isfinite(values).any()}
