"""The page: its sections in order, and the words around the pictures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from consilience.report import captions
from consilience.report.agreement import agreement_section, measured_agreement, weights_warnings
from consilience.report.convergence import Unconverged, limits, numeric_columns, unconverged_shards
from consilience.report.densities import choose_shards, density_pages
from consilience.report.disagreement import Disagreement, shard_disagreement
from consilience.report.forest import forest_pages
from consilience.report.frame import fact_list, framed, paged
from consilience.report.pairs import choose_pairs, named_pairs, pairs_picture
from consilience.report.shardplots import MOST_RANKED, convergence_picture, ranked_picture
from consilience.report.tables import by_stage, cost_table, definition_table, frame_table, summary_table
from consilience.report.text import duration, escape, listing
from consilience.report.views import DrawsView, coordinate_view, user_view

if TYPE_CHECKING:
    from consilience.diagnose import Agreement
    from consilience.report.inputs import ReportInput


@dataclass(frozen=True)
class Findings:
    """What is worked out once and used by several sections."""

    report: ReportInput
    view: DrawsView
    found: Disagreement | None
    transformed: bool
    unconverged: list[Unconverged] = field(default_factory=list)
    agreement: Agreement | None = None

    @property
    def outstanding(self) -> list[int]:
        """Shards that disagree with the rest, furthest first."""
        return [] if self.found is None else self.found.outstanding()


def findings(report: ReportInput) -> Findings:
    """Look at the draws before anything is written."""
    view = user_view(report)
    coordinates = coordinate_view(report)
    found = shard_disagreement(coordinates or view)
    transformed = coordinates is not None and coordinates.transformed
    return Findings(
        report, view, found, transformed, unconverged_shards(report), measured_agreement(report.subposteriors)
    )


def render_page(report: ReportInput) -> str:
    """The whole page."""
    known = findings(report)
    sections = [
        ("verdict", "Verdict", _verdict(known)),
        ("summary", "Summary", _summary(known)),
        ("glance", "At a glance", _glance(known)),
        ("reference", "Compared with the reference", _reference(known)),
        ("densities", "Densities over shards", _densities(known)),
        ("ellipses", "Pairs of parameters", _ellipses(known)),
        ("disagreement", "Which shards disagree", _disagreement(known)),
        ("agreement", "How far shards agree", _agreement(known)),
        ("convergence", "Convergence per shard", _convergence(known)),
        ("cost", "Cost", cost_table(report.cost) + captions.COST if report.cost else ""),
        ("made", "How it was made", _made(known)),
    ]
    return framed(report.title, sections, _facts(known))


def all_warnings(known: Findings) -> list[str]:
    """Warnings given, those that travel with the posterior, and that on estimated covariances, each once."""
    info = getattr(known.report.posterior, "info", None) or {}
    given = [*map(str, known.report.warnings), *map(str, info.get("warnings", ()))]
    return list(dict.fromkeys([*given, *weights_warnings(known.report, known.agreement)]))


def unconverged_words(known: Findings, most: int) -> list[str]:
    """A sentence that names shards that have not converged, unless a warning given says so already."""
    if not known.unconverged or known.report.shard_table is None:
        return []
    bad = len(known.unconverged)
    count = f"{bad} of {len(known.report.shard_table)} shards"
    if any(text.startswith(count) and "not converged" in text for text in all_warnings(known)):
        return []
    who = listing([str(shard) for shard in known.unconverged], most)
    return [f"{count} {'has' if bad == 1 else 'have'} not converged: {who}."]


def verdict_grade(known: Findings) -> str:
    """How loud the first box is: good, caution, bad, or plain where there is nothing to go by."""
    verdict = (known.report.verdict or "").strip().lower()
    if verdict.startswith("do not use") or known.unconverged or (all_warnings(known) and not verdict):
        return "bad"
    if verdict.startswith("usable") or known.outstanding or all_warnings(known):
        return "caution"
    return "good" if verdict.startswith("indistinguishable") else "plain"


def headline(known: Findings) -> tuple[str, str]:
    """The verdict's first line and the rest of the certificate."""
    verdict = (known.report.verdict or "").strip()
    if verdict:
        first, _, rest = verdict.partition("\n")
        return first[:1].upper() + first[1:], rest.strip()
    if known.unconverged:
        return "Not converged", "No certificate was made."
    if all_warnings(known):
        return "Read the warnings first", "No certificate was made."
    return "No certificate was made", "Nothing below says how far this is from MCMC on all rows."


def _verdict(known: Findings) -> str:
    first, rest = headline(known)
    items = [f"<li class=red>{escape(text)}</li>" for text in unconverged_words(known, 20)]
    items += [f"<li class=red>{escape(text)}</li>" for text in all_warnings(known)]
    if known.found is not None and known.outstanding:
        sentences = [known.found.sentence(b, most=1) for b in known.outstanding[:3]]
        more = len(known.outstanding) - len(sentences)
        text = ". ".join(s[0].upper() + s[1:] for s in sentences) + (f". So do {more} more" if more else "")
        items.append(f'<li>{escape(text)}. See <a href="#disagreement">which shards disagree</a>.</li>')
    listed = f"<ul>{''.join(items)}</ul>" if items else ""
    body = f"<p class=certificate>{_lines(rest)}</p>" if rest else ""
    return (
        f'<section id="verdict" class="verdict {verdict_grade(known)}" role="status">'
        f"<h2>{escape(first)}</h2>{body}{listed}</section>"
    )


def _lines(text: str) -> str:
    return "\n".join(escape(line) for line in text.splitlines())


def _facts(known: Findings) -> str:
    report, settings = known.report, known.report.settings
    table = report.shard_table
    rows = settings.get("rows")
    if rows is None and table is not None and "rows" in table.columns:
        rows = int(table["rows"].sum())
    info = getattr(report.posterior, "info", None) or {}
    shards = known.view.num_shards or (len(table) if table is not None else None)
    seconds = by_stage(report.cost.get("seconds")).get("total")
    facts = {
        "rows": rows,
        "shards": shards,
        "method": settings.get("method", info.get("method")),
        "draws": len(known.view.combined),
        "parameters": len(known.view.names),
        "time": None if seconds is None else duration(seconds),
    }
    return fact_list(facts)


def _summary(known: Findings) -> str:
    return summary_table(known.report.posterior.summary()) + captions.SUMMARY


def _glance(known: Findings) -> str:
    posterior = known.report.posterior
    quantiles = posterior.quantile([0.025, 0.25, 0.75, 0.975])
    pages = forest_pages(known.view.names, quantiles, posterior.mean())
    return paged(pages, captions.FOREST)


def _reference(known: Findings) -> str:
    discrepancy: Any = known.report.discrepancy
    if discrepancy is None:
        return ""
    frame = getattr(discrepancy, "per_parameter", None)
    table = frame_table(frame, corner="parameter") if frame is not None else ""
    return f"<pre>{_lines(str(discrepancy))}</pre>{table}"


def _densities(known: Findings) -> str:
    pages = density_pages(known.view, known.outstanding)
    caption = captions.densities(
        known.view.kind, known.view.num_shards, len(pages.drawn), len(pages.highlighted)
    )
    return paged(pages.pages, caption)


def _ellipses(known: Findings) -> str:
    view = known.view
    if not view.num_shards or len(view.names) < 2:
        return ""
    asked = known.report.pairs
    pairs = named_pairs(view, asked) if asked is not None else choose_pairs(view, known.found)
    if not pairs:
        return ""
    drawn, highlighted = choose_shards(view.num_shards, len(pairs), known.outstanding)
    picture = pairs_picture(view, pairs, drawn, highlighted.tolist())
    caption = captions.ellipses(view.kind, view.num_shards, len(drawn), len(highlighted), asked is not None)
    return f"<figure><div class=picture>{picture}</div><figcaption>{caption}</figcaption></figure>"


def _disagreement(known: Findings) -> str:
    found = known.found
    if found is None:
        return ""
    outstanding = known.outstanding
    if outstanding:
        items = "".join(f"<li>{escape(found.sentence(b))}.</li>" for b in outstanding[:12])
        more = (
            f"<li>{len(outstanding) - 12} more shards beyond the limit.</li>" if len(outstanding) > 12 else ""
        )
        words = f"<ul>{items}{more}</ul>{captions.ADVICE}"
    else:
        words = "<p>No shard lies further from the others than chance explains.</p>"
    caption = captions.disagreement(known.view.kind, known.view.num_shards, MOST_RANKED, known.transformed)
    picture = (
        f"<figure><div class=picture>{ranked_picture(found)}</div><figcaption>{caption}</figcaption></figure>"
    )
    return words + picture


def _agreement(known: Findings) -> str:
    return agreement_section(known.report.subposteriors, known.agreement, known.outstanding)


def _convergence(known: Findings) -> str:
    table = known.report.shard_table
    if table is None or table.empty:
        return ""
    rhat_limit, ess_limit = limits(known.report)
    titles = {
        "rhat": "R-hat, largest over parameters",
        "ess_bulk": "ESS bulk, smallest",
        "divergences": "divergences",
    }
    columns = {
        titles[name]: values for name, values in numeric_columns(known.report).items() if name in titles
    }
    marks = {titles["rhat"]: rhat_limit}
    if ess_limit is not None:
        marks[titles["ess_bulk"]] = ess_limit
    bad = [shard.index for shard in known.unconverged]
    picture = ""
    if columns:
        drawing = convergence_picture(columns, marks, bad)
        caption = captions.convergence(rhat_limit, ess_limit)
        picture = f"<figure><div class=picture>{drawing}</div><figcaption>{caption}</figcaption></figure>"
    words = ""
    if bad:
        who = listing([str(shard) for shard in known.unconverged], 20)
        words = f"<p class=red>Not converged: {escape(who)}.</p>"
    if "status" in table.columns:  # what matters most must not hide at the right end of a wide table
        table = table[["status", *(column for column in table.columns if column != "status")]]
    return words + picture + frame_table(table, bad=set(bad), corner=str(table.index.name or "shard"))


def _made(known: Findings) -> str:
    report = known.report
    info = getattr(report.posterior, "info", None) or {}
    parts = []
    notes = list(dict.fromkeys([*map(str, report.notes), *map(str, info.get("notes", ()))]))
    if notes:
        parts.append("<h3>Notes</h3><ul>" + "".join(f"<li>{escape(note)}</li>" for note in notes) + "</ul>")
    if report.model:
        parts.append("<h3>Model</h3>" + definition_table(report.model))
    if report.settings:
        parts.append("<h3>Settings</h3>" + definition_table(report.settings))
    extra = {
        key: value
        for key, value in info.items()
        if key not in ("notes", "warnings") and key not in report.settings
    }
    if extra:
        parts.append("<h3>Combination</h3>" + definition_table(extra))
    return "\n".join(parts)
