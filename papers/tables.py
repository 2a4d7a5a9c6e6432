"""Numbers of several repetitions, as a table with the paper's beside them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

NOTHING = "–"
# What the columns of most tables are called.
TITLES = {
    "mahalanobis": "Mah",
    "standardised_mean": "SM",
    "skew": "Skew",
    "iad": "IAD",
    "l2": "L2",
    "spread": "sd ratio",
}


@dataclass(frozen=True)
class Table:
    """A caption, a header and rows of text."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Collected:
    """Values by row and column, one for each repetition; rows as announced and, after these, as they first came."""

    def __init__(self, rows: Sequence[str] = ()) -> None:
        self._first = list(dict.fromkeys(rows))
        self._values: dict[str, dict[str, list[float]]] = {}

    def add(self, row: str, values: Mapping[str, float]) -> None:
        """Add one repetition's values of a row."""
        columns = self._values.setdefault(row, defaultdict(list))
        for column, value in values.items():
            columns[column].append(float(value))

    def mean(self, row: str, column: str) -> float:
        """Mean over repetitions."""
        return float(np.mean(self._values[row][column]))

    @property
    def rows(self) -> tuple[str, ...]:
        announced = [row for row in self._first if row in self._values]
        return (*announced, *(row for row in self._values if row not in announced))

    def cell(self, row: str, column: str) -> str:
        """Mean and its Monte Carlo standard error over repetitions."""
        values = self._values.get(row, {}).get(column, [])
        if not values:
            return NOTHING
        mean = float(np.mean(values))
        if len(values) == 1:
            return number(mean)
        return with_error(mean, float(np.std(values, ddof=1) / np.sqrt(len(values))))

    def table(
        self,
        caption: str,
        columns: Sequence[str],
        paper: Mapping[str, Mapping[str, str]] | None = None,
        titles: Mapping[str, str] = TITLES,
        corner: str = "rule",
    ) -> Table:
        """One row per rule, one column per measure, each followed by the paper's where the paper has any."""
        paper = paper or {}
        quoted = [c for c in columns if any(c in row for row in paper.values())]
        header = [corner]
        for column in columns:
            header += [titles.get(column, column)] + (["paper"] if column in quoted else [])
        lines = []
        for row in [*self.rows, *(name for name in paper if name not in self._values)]:
            line = [row]
            for column in columns:
                line.append(self.cell(row, column))
                if column in quoted:
                    line.append(paper.get(row, {}).get(column, NOTHING))
            lines.append(tuple(line))
        return Table(caption, tuple(header), tuple(lines))


def number(value: float, digits: int = 2) -> str:
    """A number with `digits` significant ones, without an exponent where that is short.

    Examples
    --------
    >>> number(0.01234), number(5.4321), number(123.4), number(0.0000312)
    ('0.012', '5.4', '123', '3.1e-05')
    """
    if value == 0 or not np.isfinite(value):
        return f"{value:g}"
    rounded = float(f"{value:.{digits - 1}e}")
    if abs(rounded) < 1e-3:
        return f"{rounded:.{digits - 1}e}"
    return f"{value:.{max(0, digits - 1 - int(np.floor(np.log10(abs(rounded)))))}f}"


def with_error(mean: float, error: float) -> str:
    """A mean with as many digits as its error allows, and at least two.

    Examples
    --------
    >>> with_error(1.0023, 0.0021), with_error(0.4612, 0.3), with_error(3.21e-5, 2e-6)
    ('1.002 ± 0.002', '0.46 ± 0.3', '3.2e-05 ± 2e-06')
    """
    digits = 2
    if 0 < error < abs(mean):
        digits = max(2, 1 + int(np.floor(np.log10(abs(mean)))) - int(np.floor(np.log10(error))))
    return f"{number(mean, digits)} ± {number(error, 1)}"


def as_markdown(tables: Sequence[Table], made: str) -> str:
    """Tables one after the other, aligned so that they can be read as text too."""
    blocks = []
    for table in tables:
        lines = [table.header, *table.rows]
        widths = [max(3, *(len(line[i]) for line in lines)) for i in range(len(table.header))]
        rule = "|".join(["-" * (widths[0] + 2), *("-" * (w + 1) + ":" for w in widths[1:])])
        text = [f"**{table.caption}**", "", _line(table.header, widths), f"|{rule}|"]
        blocks.append("\n".join([*text, *(_line(row, widths) for row in table.rows)]))
    return "\n\n".join([*blocks, made]) + "\n"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first = cells[0].ljust(widths[0])
    rest = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
    return "| " + " | ".join([first, *rest]) + " |"
