"""What a fit returns: the posterior, the draws it was made from, how far they converged, and what it cost."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.draws import Posterior, Subposteriors

if TYPE_CHECKING:
    import pandas as pd

    from consilience.report import ReportInput

SHARD_COLUMNS = (
    "rows",
    "weight",
    "draws",
    "rhat",
    "ess_bulk",
    "ess_tail",
    "divergences",
    "acceptance",
    "step_size",
    "seconds",
    "status",
)


@dataclass(frozen=True)
class Cost:
    """What a fit cost, in seconds and in a unit that does not depend on the machine.

    Attributes
    ----------
    seconds : dict of str to float
        Wall time of every stage.
    full_data_gradients : float
        Evaluations of one row's likelihood and gradient, divided by the number of rows. A Hessian counts as
        one gradient for each coordinate.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    full_data_gradients: float = 0.0

    @property
    def total_seconds(self) -> float:
        return sum(self.seconds.values())

    def __str__(self) -> str:
        return f"{self.total_seconds:.1f} s, {self.full_data_gradients:.0f} full-data gradient equivalents"

    def to_dict(self) -> dict[str, Any]:
        return {"seconds": dict(self.seconds), "full_data_gradients": self.full_data_gradients}


@dataclass(frozen=True, eq=False)
class Fit:
    """The result of `fit`.

    Attributes
    ----------
    posterior : Posterior
        Draws of the full posterior.
    subposteriors : Subposteriors
        Every shard's draws, as they were combined.
    certificate
        How far the posterior can be trusted, or None where nothing measured it.
    cost : Cost
        Seconds and full-data gradient equivalents.
    shard_records : tuple of dict
        Diagnostics of every shard.
    model, settings : dict
        What was fitted, and how.
    notes, warnings : tuple of str
        What a reader may, and must, know.
    """

    posterior: Posterior
    subposteriors: Subposteriors
    cost: Cost
    shard_records: tuple[dict[str, Any], ...]
    model: dict[str, Any]
    settings: dict[str, Any]
    certificate: Any = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def summary(self, interval: float = 0.95) -> pd.DataFrame:
        """Mean, sd, interval, Monte Carlo error and effective size of every parameter."""
        return self.posterior.summary(interval=interval)

    @property
    def shards(self) -> pd.DataFrame:
        """One row per shard: size, weight and convergence."""
        import pandas as pd

        rows = [{column: record[column] for column in SHARD_COLUMNS} for record in self.shard_records]
        return pd.DataFrame(rows, index=pd.Index([r["label"] for r in self.shard_records], name="shard"))

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write a self-contained HTML report."""
        from consilience.report import write_report

        return write_report(path, self.to_report())

    def to_report(self, discrepancy: Any = None) -> ReportInput:
        """Gather what a report shows; `discrepancy` is a comparison with a reference, where there is one."""
        from consilience.report import ReportInput

        return ReportInput(
            title=str(self.model.get("formula") or "Posterior"),
            posterior=self.posterior,
            subposteriors=self.subposteriors,
            shard_table=self.shards,
            cost=self.cost.to_dict(),
            model=self.model,
            settings=self.settings,
            notes=self.notes,
            warnings=self.warnings,
            verdict=None if self.certificate is None else str(self.certificate),
            discrepancy=discrepancy,
        )

    def __str__(self) -> str:
        import io

        from consilience.report import print_summary

        text = io.StringIO()
        print_summary(self.to_report(), text)
        return text.getvalue().rstrip()
