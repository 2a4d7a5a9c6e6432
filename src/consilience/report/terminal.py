"""A run's result on the terminal: verdict and warnings, the summary, one line on cost and one on shards."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

import numpy as np

from consilience.report.convergence import numeric_columns
from consilience.report.page import (
    Findings,
    all_warnings,
    findings,
    headline,
    unconverged_words,
    verdict_grade,
)
from consilience.report.tables import HEADINGS, by_stage, summary_cells
from consilience.report.text import MINUS, clean, duration, listing, shorten, significant

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from consilience.draws import Posterior
    from consilience.report.inputs import ReportInput

MOST_ROWS = 40
_COLOURS = {"bad": "bold red", "caution": "bold yellow", "good": "bold green", "plain": "bold"}


def print_summary(report: ReportInput, console_file: IO[str] | None = None) -> None:
    """Print what a user wants to see first; plain text when it does not go to a terminal.

    Parameters
    ----------
    console_file
        Where to print; standard output when not given.

    Examples
    --------
    >>> import io, numpy as np
    >>> from consilience.draws import Posterior
    >>> from consilience.report.inputs import ReportInput
    >>> out = io.StringIO()
    >>> print_summary(ReportInput("y ~ x", Posterior(np.arange(9.0)[:, None], names=("x[1]",))), out)
    >>> "x[1]" in out.getvalue(), "mean" in out.getvalue()
    (True, True)
    """
    from rich.text import Text

    console = plain_console(console_file)
    known = findings(report)
    first, rest = headline(known)
    console.print(Text(clean(first), style=_COLOURS[verdict_grade(known)]))
    for line in rest.splitlines():
        console.print(Text(clean(line)))
    for warning in [*unconverged_words(known, 6), *all_warnings(known)]:
        console.print(Text(f"WARNING: {clean(warning)}", style="bold red"))
    console.print()
    console.print(summary_table(report.posterior))
    frame_length = len(known.view.names)
    if frame_length > MOST_ROWS:
        console.print(Text(f"… and {frame_length - MOST_ROWS:,} more parameters (all are in the report)."))
    for line in (_shard_line(known), _cost_line(report), *(f"Note: {clean(note)}" for note in report.notes)):
        if line:
            console.print(Text(line, style="dim" if console.is_terminal else ""))


def plain_console(file: IO[str] | None = None) -> Console:
    """A console that prints what it is given: no markup, and whole lines where nobody watches."""
    from rich.console import Console

    console = Console(file=file, highlight=False, emoji=False, markup=False)
    if console.is_terminal:
        return console
    # Whoever reads this later (a log, a pipe) is not helped by lines broken at an accidental width.
    return Console(file=file, highlight=False, emoji=False, markup=False, width=200, no_color=True)


def summary_table(posterior: Posterior) -> Table:
    """The first parameters' summary, to the digits that Monte Carlo error reaches."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    frame = posterior.summary().head(MOST_ROWS)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("", no_wrap=True)
    for column in frame.columns:
        table.add_column(HEADINGS.get(str(column), str(column)), justify="right", no_wrap=True)
    cells = summary_cells(frame)
    deepest = [max((row[k][1] for row in cells), default=-1) for k in range(len(frame.columns))]
    for name, row in zip(frame.index, cells, strict=True):
        texts: list[Any] = [Text(shorten(name, 44))]
        for k, (text, places, low) in enumerate(row):
            missing = min(deepest[k] - places, 6) + (places == 0 and deepest[k] > 0) if places >= 0 else 0
            texts.append(Text(text.replace(MINUS, "-") + " " * missing, style="yellow" if low else ""))
        table.add_row(*texts)
    return table


def _shard_line(known: Findings) -> str:
    count = known.view.num_shards
    if not count:
        return ""
    words = [f"{count:,} shards" if count > 1 else "1 shard"]
    columns = numeric_columns(known.report)
    if "rhat" in columns:
        words.append(f"largest R-hat {np.nanmax(columns['rhat']):.3f}")
    if "ess_bulk" in columns:
        words.append(f"smallest ESS {np.nanmin(columns['ess_bulk']):,.0f}")
    if "divergences" in columns:
        words.append(f"{np.nansum(columns['divergences']):,.0f} divergences")
    if known.found is not None:
        if known.outstanding:
            who = listing([known.found.sentence(b, most=1) for b in known.outstanding[:2]])
            more = len(known.outstanding) - 2
            words.append(clean(who) + (f" and {more} more stand out" if more > 0 else ""))
        else:
            words.append("no shard disagrees beyond chance")
    return "Shards: " + ", ".join(words) + "."


def _cost_line(report: ReportInput) -> str:
    words = []
    seconds, gradients = (
        by_stage(report.cost.get("seconds")),
        by_stage(report.cost.get("full_data_gradients")),
    )
    if seconds:
        parts = sorted((item for item in seconds.items() if item[0] != "total"), key=lambda item: -item[1])
        inner = ", ".join(f"{clean(stage)} {duration(spent)}" for stage, spent in parts[:4])
        words.append(duration(seconds["total"]) + (f" ({inner})" if inner else ""))
    if gradients:
        words.append(f"{significant(gradients['total'])} full-data gradients")
    return "Cost: " + ", ".join(words) + "." if words else ""
