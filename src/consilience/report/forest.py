"""Every parameter's interval in one picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from consilience.report.canvas import (
    COLOURS,
    FONT_SIZE,
    WIDTH,
    inches_axes,
    label,
    new_figure,
    plain_ticks,
    svg,
)
from consilience.report.text import escape, shorten, shorten_all

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = np.ndarray
ROWS_PER_PAGE = 45
ROW_HEIGHT = 0.2


def forest_pages(names: Sequence[str], quantiles: Array, means: Array) -> list[tuple[str, str]]:
    """Pictures of intervals, each with the words that name its page.

    Parameters
    ----------
    names
        The parameters.
    quantiles
        (4, d): the 2.5, 25, 75 and 97.5 % quantiles.
    means
        (d,) means.
    """
    pages = []
    for start in range(0, len(names), ROWS_PER_PAGE):
        chosen = slice(start, start + ROWS_PER_PAGE)
        picture = _forest(names[chosen], quantiles[:, chosen], means[chosen], f"forest{start}")
        pages.append((page_words(names, start, min(start + ROWS_PER_PAGE, len(names))), picture))
    return pages


def page_words(names: Sequence[str], start: int, stop: int) -> str:
    """What a page holds.

    Examples
    --------
    >>> page_words(["a", "b", "c"], 1, 3)
    'Parameters 2 to 3: b … c'
    """
    return f"Parameters {start + 1} to {stop}: {shorten(names[start], 60)} … {shorten(names[stop - 1], 60)}"


def scale_groups(quantiles: Array, smallest: float = 0.02, most: int = 4) -> list[Array]:
    """Indices of parameters that can share an axis without any interval shrinking to a dot.

    Parameters of one group keep their order; groups are ordered by their first parameter.
    """
    low, high = quantiles[0], quantiles[-1]
    groups = [np.arange(low.size)]
    while len(groups) < most:
        crowded = [g for g in groups if _narrowest(low[g], high[g]) < smallest]
        if not crowded:
            break
        group = crowded[0]
        groups = [g for g in groups if g is not group]
        # Either some are far narrower than the others, or some (an intercept) lie far away from the others.
        size = np.log(np.maximum(high[group] - low[group], 1e-300))
        by_size, by_place = _cut(group, size), _cut(group, (low[group] + high[group]) / 2)
        groups += max(by_size, by_place, key=lambda parts: min(_narrowest(low[p], high[p]) for p in parts))
    return sorted(groups, key=lambda g: int(g[0]))


def _cut(group: Array, values: Array) -> list[Array]:
    """Two parts of a group, divided where its values leave the largest gap."""
    order = np.argsort(values, kind="stable")
    cut = int(np.argmax(np.diff(values[order]))) + 1
    return [np.sort(group[order[:cut]]), np.sort(group[order[cut:]])]


def _narrowest(low: Array, high: Array) -> float:
    span = high.max() - low.min()
    width = (high - low)[high > low]
    return 1.0 if span <= 0 or low.size == 1 or not width.size else float(width.min() / span)


def _forest(names: Sequence[str], quantiles: Array, means: Array, key: str) -> str:
    groups = scale_groups(quantiles)
    gap, top = 0.5, 0.08
    heights = [ROW_HEIGHT * len(group) + 0.1 for group in groups]
    figure = new_figure(sum(heights) + gap * len(groups) + top)
    short = shorten_all(names, 44)
    margin = 0.25 + 0.068 * max(map(len, short))
    for group, height in zip(groups, heights, strict=True):
        axes = inches_axes(figure, margin, top, WIDTH - margin - 0.25, height)
        _forest_axes(axes, [short[j] for j in group], quantiles[:, group], means[group])
        top += height + gap
    return svg(figure, key, escape(f"Intervals of {len(names)} parameters"))


def _forest_axes(axes: Axes, names: Sequence[str], quantiles: Array, means: Array) -> None:
    rows = np.arange(len(names))
    low, high = float(quantiles[0].min()), float(quantiles[-1].max())
    margin = 0.04 * (high - low or abs(high) or 1.0)
    if low - margin <= 0 <= high + margin:
        axes.axvline(0.0, color=COLOURS["muted"], linewidth=0.8, dashes=(3, 2), zorder=1)
    axes.hlines(rows, quantiles[0], quantiles[3], color=COLOURS["accent"], linewidth=1.1, zorder=2)
    axes.hlines(rows, quantiles[1], quantiles[2], color=COLOURS["accent"], linewidth=3.4, zorder=3)
    axes.plot(means, rows, "o", color=COLOURS["ink"], markersize=3.2, zorder=4)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(min(low, means.min()) - margin, max(high, means.max()) + margin)
    plain_ticks(axes.xaxis, 9)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color=COLOURS["soft"], linewidth=0.7)
    axes.set_axisbelow(True)
    for row, name in enumerate(names):
        label(
            axes,
            -0.008,
            row,
            name,
            transform=axes.get_yaxis_transform(),
            ha="right",
            va="center_baseline",
            fontsize=FONT_SIZE,
        )
