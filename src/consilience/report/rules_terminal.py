"""Combined draws on the terminal: what was done, what each rule says, and where rules differ."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from consilience.report.rules import (
    SideBySide,
    estimate_frame,
    rule_frame,
    said_by_rules,
    side_by_side,
)
from consilience.report.terminal import MOST_ROWS, plain_console, summary_table
from consilience.report.text import MINUS, clean, duration, shorten, significant

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console
    from rich.table import Table

    from consilience.report.inputs import RulesInput


def print_rules(report: RulesInput, console_file: IO[str] | None = None) -> None:
    """Print what rules made of the draws: one rule's summary, or several side by side.

    Examples
    --------
    >>> import io, numpy as np
    >>> from consilience.draws import Posterior
    >>> from consilience.report.inputs import RulesInput
    >>> x, out = np.random.default_rng(0).normal(size=(400, 1)), io.StringIO()
    >>> print_rules(RulesInput("2 shards", {"swiss": Posterior(x), "pool": Posterior(2 * x)}), out)
    >>> "swiss" in out.getvalue(), "apart" in out.getvalue()
    (True, True)
    """
    console = plain_console(console_file)
    _say(console, report.title, "bold")
    for rule, reason in report.refused.items():
        _say(console, f"WARNING: {rule} was not used: {reason}", "bold red")
    for warning in said_by_rules(report, "warnings"):
        _say(console, f"WARNING: {warning}", "bold red")
    if report.agreement is not None:
        console.print()
        for line in str(report.agreement).splitlines():
            _say(console, line)
    console.print()
    if len(report.posteriors) == 1:
        ((rule, posterior),) = report.posteriors.items()
        _say(console, _one_line(report, rule))
        console.print(summary_table(posterior))
        _say_rest(console, len(posterior.names))
    else:
        _print_several(console, report)
    for note in said_by_rules(report, "notes"):
        _say(console, f"Note: {note}", "dim" if console.is_terminal else "")


def _print_several(console: Console, report: RulesInput) -> None:
    found = side_by_side(report)
    console.print(_as_table(rule_frame(report), "rule"))
    console.print()
    for table in _estimates(found, console.width):
        console.print(table)
        console.print()
    _say_rest(console, len(found.names))
    _say(console, found.sentence() or "The rules have no parameter in common.", "bold")


def _say(console: Console, text: str, style: str = "") -> None:
    from rich.text import Text

    console.print(Text(clean(text), style=style))


def _say_rest(console: Console, number: int) -> None:
    if number > MOST_ROWS:
        _say(console, f"… and {number - MOST_ROWS:,} more parameters.")


def _one_line(report: RulesInput, rule: str) -> str:
    posterior = report.posteriors[rule]
    took = f" in {duration(report.seconds[rule])}" if rule in report.seconds else ""
    weighted = "weighted " if posterior.log_weights is not None else ""
    return f"{rule}: {len(posterior.array):,} {weighted}draws{took}"


def _estimates(found: SideBySide, width: int) -> list[Table]:
    """As many rules beside each other as fit; with too many parameters, those in which rules differ most."""
    frame = estimate_frame(found)
    if len(frame) > MOST_ROWS:
        furthest = found.apart[0].argsort(kind="stable")[::-1][:MOST_ROWS]
        frame = frame.iloc[sorted(furthest)]
    differences = [column for column in ("apart", "sd ratio") if column in frame.columns]
    rules = [column for column in frame.columns if column not in differences]
    room = width - min(44, max(map(len, map(str, frame.index)), default=0)) - 30
    widest = max((len(str(cell)) for rule in rules for cell in [rule, *frame[rule]]), default=1) + 2
    each = max(1, room // widest)
    parts = [rules[start : start + each] for start in range(0, len(rules), each)]
    return [
        _as_table(frame[part + (differences if part is parts[-1] else [])], "mean ± sd") for part in parts
    ]


def _as_table(frame: pd.DataFrame, corner: str) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    frame = frame.loc[:, [not all(cell == "" for cell in frame[column]) for column in frame.columns]]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column(corner, no_wrap=True)
    for column in frame.columns:
        table.add_column(str(column), justify="right", no_wrap=True)
    for name, row in zip(frame.index, frame.itertuples(index=False, name=None), strict=True):
        texts = [
            duration(value) if column == "seconds" else significant(value)
            for column, value in zip(frame.columns, row, strict=True)
        ]
        table.add_row(Text(shorten(name, 44)), *(Text(text.replace(MINUS, "-")) for text in texts))
    return table
