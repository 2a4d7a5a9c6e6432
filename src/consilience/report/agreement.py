"""The section on how far shards agree: what was measured in words, the maps, the bars, and rules side by side."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from consilience.diagnose import Agreement, agreement
from consilience.diagnose.agreement import WEIGHED_BY_PRECISION
from consilience.diagnose.agreementwords import lines
from consilience.diagnose.rulespread import RuleSpread, rule_spread
from consilience.errors import InputError
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
    from consilience.draws import Subposteriors
    from consilience.report.inputs import ReportInput


def measured_agreement(subposteriors: Any) -> Agreement | None:
    """Agreement of the shards, without rules; None where it cannot be measured."""
    if subposteriors is None or subposteriors.num_shards < 2:
        return None
    try:
        return agreement(subposteriors, rules=None)
    except InputError:  # too few draws to invert a covariance, or columns that depend on each other
        return None


def told_agreement(subposteriors: Any, seed: int = 0, said: Collection[str] = ()) -> Agreement | str | None:
    """Agreement to be printed beside a combination: rules too, without the warnings that were said already.

    A sentence where it cannot be measured, None for a single shard.
    """
    if subposteriors.num_shards < 2:
        return None
    try:
        found = agreement(subposteriors, seed=seed)
    except InputError as error:
        return f"Agreement of the shards was not measured. {error}"
    return replace(found, warnings=tuple(text for text in found.warnings if text not in said))


def weights_warnings(report: ReportInput, found: Agreement | None) -> tuple[str, ...]:
    """The warning on estimated covariances, where the rule weighs by them and nothing has corrected it since."""
    info = getattr(report.posterior, "info", None) or {}
    method = report.settings.get("method", info.get("method"))
    if found is None or report.verdict or info.get("refinements") or method not in WEIGHED_BY_PRECISION:
        return ()
    return found.weights_warning()


def agreement_section(
    subposteriors: Subposteriors | None, found: Agreement | None, outstanding: Sequence[int]
) -> str:
    """Words and pictures, shards that stand out in orange; nothing where agreement was not measured."""
    if found is None or subposteriors is None:
        return ""
    # Which shards stand out was said before, against the posterior that the page shows.
    items = "".join(f"<li>{escape(line)}</li>" for line in lines(found, outstanding=False))
    shards, parameters = shown_shards(found), shown_parameters(found)
    maps = captions.agreement_maps(
        found.kind, len(shards), len(found.labels), len(parameters), len(found.names)
    )
    bars = captions.influence(min(MOST_ROWS, len(found.labels)), len(found.labels))
    spread = rule_spread(subposteriors) if found.rules is None else found.rules
    return (
        f"<ul>{items}</ul>{_figure(agreement_maps(found, outstanding), maps)}"
        f"{_figure(influence_picture(found, outstanding), bars)}{_rules(spread)}"
    )


def _figure(picture: str, caption: str) -> str:
    return f"<figure><div class=picture>{picture}</div><figcaption>{caption}</figcaption></figure>"


def _rules(spread: RuleSpread) -> str:
    import pandas as pd

    if not spread.pairs:
        return ""
    index = [f"{first} and {second}" for first, second in spread.pairs]
    table = frame_table(pd.DataFrame(list(spread.in_floors), index=index), corner="rules")
    return f"<h3>Between rules</h3><p>{escape(str(spread))}.</p>{table}{captions.RULE_SPREAD}"
