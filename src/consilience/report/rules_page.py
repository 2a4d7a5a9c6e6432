"""The page of several rules on the same draws: where they differ, and what each says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from consilience.diagnose import Agreement
from consilience.report import captions
from consilience.report.agreement import agreement_section
from consilience.report.frame import fact_list, framed, paged
from consilience.report.inputs import ReportInput
from consilience.report.rule_pictures import rule_density_pages, rule_interval_pages, rule_key
from consilience.report.rules import (
    SideBySide,
    estimate_frame,
    rule_frame,
    said_by_rules,
    side_by_side,
)
from consilience.report.tables import definition_table, frame_table
from consilience.report.text import escape, listing, shorten
from consilience.report.views import DrawsView, user_view

if TYPE_CHECKING:
    from consilience.report.inputs import RulesInput


def render_rules_page(report: RulesInput) -> str:
    """The whole page.

    Examples
    --------
    >>> from consilience.draws import Posterior
    >>> from consilience.report.inputs import RulesInput
    >>> x = np.random.default_rng(0).normal(size=(400, 2))
    >>> page = render_rules_page(RulesInput("two rules", {"swiss": Posterior(x), "pool": Posterior(2 * x)}))
    >>> "<h2>Rules</h2>" in page, page.count("<svg") >= 2
    (True, True)
    """
    found = side_by_side(report)
    sections = [
        ("verdict", "Where rules differ", _difference(report, found)),
        ("rules", "Rules", frame_table(rule_frame(report), corner="rule")),
        ("estimates", "Means and standard deviations", _estimates(found)),
        ("intervals", "Intervals", _intervals(found)),
        ("densities", "Densities over shards", _densities(report, found)),
        ("agreement", "Agreement between shards", _agreement(report)),
        ("shards", "Shards", _shards(report)),
        ("made", "How it was made", _made(report)),
    ]
    shards = None if report.subposteriors is None else report.subposteriors.num_shards
    facts = {
        "shards": shards,
        "kind": None if report.subposteriors is None else report.subposteriors.kind,
        "rules": len(report.posteriors),
        "parameters": len(found.names),
    }
    return framed(report.title, sections, fact_list(facts))


def _difference(report: RulesInput, found: SideBySide) -> str:
    warnings = said_by_rules(report, "warnings")
    refused = [f"{rule} was not used: {reason}" for rule, reason in report.refused.items()]
    items = "".join(f"<li class=red>{escape(text)}</li>" for text in [*refused, *warnings])
    lost = [
        f"{rule} says nothing of {listing([shorten(name) for name in names], 6)}"
        for rule, names in found.missing.items()
    ]
    items += "".join(f"<li>{escape(text)}.</li>" for text in lost)
    grade = "bad" if refused or warnings else "caution" if found.differing() else "plain"
    return (
        f'<section id="verdict" class="verdict {grade}" role="status"><h2>Where rules differ</h2>'
        f"<p>{escape(found.sentence())}</p>{f'<ul>{items}</ul>' if items else ''}</section>"
    )


def _estimates(found: SideBySide) -> str:
    if not found.names:
        return "<p>The rules have no parameter in common.</p>"
    bad = set(found.differing())
    return frame_table(estimate_frame(found), bad=bad, corner="parameter") + captions.RULES


def _intervals(found: SideBySide) -> str:
    if not found.names:
        return ""
    return paged(rule_interval_pages(found), f"{rule_key(found.rules)}. {captions.FOREST}")


def _densities(report: RulesInput, found: SideBySide) -> str:
    if not found.names:
        return ""
    shards = _shard_view(report, found)
    pages = rule_density_pages(found, list(report.posteriors.values()), shards)
    return paged(pages, f"{rule_key(found.rules)}. {captions.rule_densities(shards.kind, shards.num_shards)}")


def _shard_view(report: RulesInput, found: SideBySide) -> DrawsView:
    """The shards' draws under the names that all rules have."""
    first = next(iter(report.posteriors.values()))
    view = user_view(ReportInput(report.title, first, report.subposteriors))
    columns = [view.names.index(name) for name in found.names]
    arrays = tuple(np.asarray(array[:, columns]) for array in view.shards)
    combined = view.combined[:1, columns]
    return DrawsView(found.names, combined, None, arrays, view.labels, view.shard_weights, view.kind)


def _agreement(report: RulesInput) -> str:
    found = report.agreement
    if isinstance(found, Agreement):
        warnings = "".join(f"<p>Warning: {escape(text)}</p>" for text in found.warnings)
        return warnings + agreement_section(report.subposteriors, found, found.standing_out())
    return "" if found is None else f"<pre>{escape_lines(str(found))}</pre>"


def escape_lines(text: str) -> str:
    """Text of several lines, each safe inside an element."""
    return "\n".join(escape(line) for line in text.splitlines())


def _shards(report: RulesInput) -> str:
    table = report.shard_table
    if table is None or table.empty:
        return ""
    bad = (
        {i for i, status in enumerate(table["status"]) if status != "converged"}
        if "status" in table
        else set()
    )
    return frame_table(table, bad=bad, corner="shard")


def _made(report: RulesInput) -> str:
    notes = said_by_rules(report, "notes")
    listed = "<h3>Notes</h3><ul>" + "".join(f"<li>{escape(note)}</li>" for note in notes) + "</ul>"
    settings = "<h3>Settings</h3>" + definition_table(report.settings) if report.settings else ""
    return (listed if notes else "") + settings
