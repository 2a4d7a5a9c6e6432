"""Pictures of rules side by side: densities over the shards' and intervals, each rule in a colour and a dash."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.numerics import normalised_weights
from consilience.report.canvas import (
    COLOURS,
    FONT_SIZE,
    RULE_COLOURS,
    RULE_DASHES,
    WIDTH,
    inches_axes,
    label,
    new_figure,
    plain_ticks,
    svg,
    title,
)
from consilience.report.densities import (
    COLUMNS,
    COMBINED_POINTS,
    PANELS_PER_PAGE,
    choose_shards,
    draw_lines,
    highest,
    panel_ranges,
    shard_curves,
)
from consilience.report.density import binned_densities
from consilience.report.forest import page_words, scale_groups
from consilience.report.text import escape, shorten_all
from consilience.report.views import DrawsView

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from consilience.draws import Posterior
    from consilience.report.rules import SideBySide

Array = np.ndarray
RANGE_LEVELS: list[float] = np.linspace(0.0005, 0.9995, 401).tolist()
ROW, GAP, ROWS_PER_PAGE = 0.085, 0.13, 140  # inches between a parameter's rules, and between parameters


def rule_style(k: int) -> tuple[str, Any]:
    """Colour (a name of the page's) and dash of the k-th rule."""
    return RULE_COLOURS[k % len(RULE_COLOURS)], RULE_DASHES[k // len(RULE_COLOURS) % len(RULE_DASHES)]


def rule_key(rules: Sequence[str]) -> str:
    """The legend, for a caption."""
    borders = ("solid", "dashed", "dotted")
    keys = []
    for k, rule in enumerate(rules):
        colour, _ = rule_style(k)
        border = borders[k // len(RULE_COLOURS) % len(borders)]
        keys.append(
            f'<span class=key style="border-color:var(--{colour});border-top-style:{border}"></span>{escape(rule)}'
        )
    return " ".join(keys)


def rule_density_pages(
    found: SideBySide, posteriors: Sequence[Posterior], shards: DrawsView
) -> list[tuple[str, str]]:
    """Densities of every column by every rule, over the shards', a page of small multiples at a time."""
    drawn, _ = choose_shards(shards.num_shards, len(found.names), ())
    # Ranges are those of all rules together: of quantiles, which stand for the draws of each alike.
    stand_ins = np.concatenate([_columns(p.quantile(RANGE_LEVELS), p, found.names) for p in posteriors])
    view = DrawsView(
        found.names, stand_ins, None, shards.shards, shards.labels, shards.shard_weights, shards.kind
    )
    low, high = panel_ranges(view, drawn, np.arange(0), None)
    grid = np.linspace(low, high, COMBINED_POINTS, axis=1)
    curves = [
        (grid, binned_densities(_columns(p.array, p, found.names), grid, _weights(p))) for p in posteriors
    ]
    quiet = [shard_curves(shards.shards[int(b)], low, high) for b in drawn]
    short = shorten_all(found.names, 36)
    pages = []
    for start in range(0, len(found.names), PANELS_PER_PAGE):
        columns = range(start, min(start + PANELS_PER_PAGE, len(found.names)))
        picture = _density_page(short, columns, grid, curves, quiet)
        pages.append((page_words(found.names, columns.start, columns.stop), picture))
    return pages


def _columns(array: Array, posterior: Posterior, names: Sequence[str]) -> Array:
    if tuple(names) == tuple(posterior.names):
        return np.asarray(array)
    return np.asarray(array[:, [posterior.names.index(name) for name in names]])


def _weights(posterior: Posterior) -> Array | None:
    return None if posterior.log_weights is None else normalised_weights(posterior.log_weights)


def _density_page(
    names: Sequence[str], columns: range, grid: Array, curves: list[Any], quiet: list[Any]
) -> str:
    rows = -(-len(columns) // COLUMNS)
    figure = new_figure(1.42 * rows + 0.02)
    for place, j in enumerate(columns):
        row, column = divmod(place, COLUMNS)
        axes = inches_axes(figure, 0.06 + 2.4 * column, 0.26 + 1.42 * row, 2.22, 0.88)
        draw_lines(axes, quiet, j, COLOURS["shard"], 0.4)
        for k, curve in enumerate(curves):
            colour, dash = rule_style(k)
            draw_lines(axes, [curve], j, COLOURS[colour], 1.4, dash)
        heights = [curve[1][j] for curve in curves]
        axes.set_xlim(grid[j, 0], grid[j, -1])
        axes.set_ylim(0.0, highest(np.max(heights, axis=0), [points[1][j] for points in quiet]))
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        plain_ticks(axes.xaxis, 4, edge=0.07)
        title(axes, names[j])
    about = f"Densities of {names[columns[0]]} to {names[columns[-1]]} by {len(curves)} rules"
    return svg(figure, f"rules-density{columns[0]}", escape(about))


def rule_interval_pages(found: SideBySide) -> list[tuple[str, str]]:
    """Means with intervals: the rules of one parameter under each other."""
    each = max(1, ROWS_PER_PAGE // max(len(found.rules), 1))
    pages = []
    for start in range(0, len(found.names), each):
        columns = np.arange(start, min(start + each, len(found.names)))
        words = page_words(found.names, start, int(columns[-1]) + 1)
        pages.append((words, _interval_page(found, columns)))
    return pages


def _interval_page(found: SideBySide, columns: Array) -> str:
    edges = np.stack([found.quantiles[:, 0].min(axis=0), found.quantiles[:, 3].max(axis=0)])[:, columns]
    groups = scale_groups(edges)
    height = ROW * len(found.rules) + GAP
    heights = [height * len(group) + 0.08 for group in groups]
    gap, top = 0.5, 0.08
    figure = new_figure(sum(heights) + gap * len(groups) + top)
    short = shorten_all([found.names[j] for j in columns], 44)
    margin = 0.25 + 0.068 * max(map(len, short))
    for group, tall in zip(groups, heights, strict=True):
        axes = inches_axes(figure, margin, top, WIDTH - margin - 0.25, tall)
        _intervals(axes, [short[j] for j in group], found, columns[group], height)
        top += tall + gap
    return svg(figure, f"rules-intervals{columns[0]}", escape(f"Intervals by {len(found.rules)} rules"))


def _intervals(axes: Axes, names: Sequence[str], found: SideBySide, columns: Array, height: float) -> None:
    """Axes in inches downwards, so that rules of one parameter lie close together."""
    quantiles = found.quantiles[:, :, columns]
    low, high = float(quantiles[:, 0].min()), float(quantiles[:, 3].max())
    margin = 0.04 * (high - low or abs(high) or 1.0)
    if low - margin <= 0 <= high + margin:
        axes.axvline(0.0, color=COLOURS["muted"], linewidth=0.8, dashes=(3, 2), zorder=1)
    tops = height * np.arange(len(names))
    for k in range(len(found.rules)):
        colour, dash = rule_style(k)
        rows = tops + GAP / 2 + ROW * (k + 0.5)
        axes.hlines(
            rows, quantiles[k, 0], quantiles[k, 3], color=COLOURS[colour], linewidth=1.0, linestyles=dash
        )
        axes.hlines(rows, quantiles[k, 1], quantiles[k, 2], color=COLOURS[colour], linewidth=3.0)
        axes.plot(found.means[k, columns], rows, "o", color=COLOURS["ink"], markersize=2.4, zorder=4)
    axes.set_ylim(height * len(names) + 0.04, -0.04)
    axes.set_xlim(low - margin, high + margin)
    plain_ticks(axes.xaxis, 9)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color=COLOURS["soft"], linewidth=0.7)
    axes.set_axisbelow(True)
    for row, name in zip(tops + height / 2, names, strict=True):
        options = {"transform": axes.get_yaxis_transform(), "ha": "right", "va": "center_baseline"}
        label(axes, -0.008, float(row), name, fontsize=FONT_SIZE, **options)
