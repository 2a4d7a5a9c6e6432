"""The section on how far shards agree: what was measured in words, the maps, the bars, and rules side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from consilience.diagnose import Agreement, agreement
from consilience.diagnose.agreement import WEIGHED_BY_PRECISION
from consilience.diagnose.agreementwords import lines
from consilience.diagnose.rulespread import rule_spread
from consilience.errors import DrawsError
from consilience.report import captions
from consilience.report.agreementplots import (
    MOST_ROWS,
    agreement_maps,
    influence_picture,
    shown_parameters,
    shown_shards,
)
from consilience.report.tables import frame_table
from consilience.report.text import escape

if TYPE_CHECKING:
    from consilience.report.inputs import ReportInput


def measured_agreement(subposteriors: Any) -> Agreement | None:
    """Agreement of the shards, without rules; None where it cannot be measured."""
    if subposteriors is None or subposteriors.num_shards < 2:
        return None
    try:
        return agreement(subposteriors, rules=None)
    except DrawsError:  # too few draws to invert a covariance, or columns that depend on each other
        return None


def weights_warnings(report: ReportInput, found: Agreement | None) -> tuple[str, ...]:
    """The warning on estimated covariances, where the rule weighs by them and nothing has corrected it since."""
    info = getattr(report.posterior, "info", None) or {}
    method = report.settings.get("method", info.get("method"))
    if found is None or report.verdict or info.get("refinements") or method not in WEIGHED_BY_PRECISION:
        return ()
    return found.weights_warning()


def agreement_section(report: ReportInput, found: Agreement | None, outstanding: Sequence[int]) -> str:
    """Words and pictures; nothing where agreement was not measured."""
    if found is None or report.subposteriors is None:
        return ""
    # Which shards stand out was said before, against the posterior that the page shows.
    items = "".join(f"<li>{escape(line)}</li>" for line in lines(found, outstanding=False))
    shards, parameters = shown_shards(found), shown_parameters(found)
    maps = captions.agreement_maps(
        found.kind, len(shards), len(found.labels), len(parameters), len(found.names)
    )
    bars = captions.influence(min(MOST_ROWS, len(found.labels)), len(found.labels))
    return (
        f"<ul>{items}</ul>{_figure(agreement_maps(found, outstanding), maps)}"
        f"{_figure(influence_picture(found, outstanding), bars)}{_rules(report)}"
    )


def _figure(picture: str, caption: str) -> str:
    return f"<figure><div class=picture>{picture}</div><figcaption>{caption}</figcaption></figure>"


def _rules(report: ReportInput) -> str:
    import pandas as pd

    spread = rule_spread(report.subposteriors)  # type: ignore[arg-type]
    if not spread.pairs:
        return ""
    frame = pd.DataFrame(
        list(spread.in_floors), index=[f"{first} and {second}" for first, second in spread.pairs]
    )
    return f"<h3>Between rules</h3><p>{escape(str(spread))}.</p>{frame_table(frame, corner='rules')}{captions.RULES}"
