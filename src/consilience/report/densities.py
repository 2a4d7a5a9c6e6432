"""Every parameter's density over its shards' densities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.numerics import normalised_weights
from consilience.report.canvas import COLOURS, inches_axes, new_figure, plain_ticks, svg, title
from consilience.report.density import binned_densities
from consilience.report.forest import page_words
from consilience.report.text import escape, shorten_all
from consilience.report.views import DrawsView

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = np.ndarray
Curves = tuple[np.ndarray, np.ndarray]  # points and densities there, (d, m) each
COLUMNS, PANELS_PER_PAGE = 4, 24
MOST_LINES, FEWEST_LINES, LINES_PER_REPORT = 50, 8, 2500
SHARD_POINTS, COMBINED_POINTS = 48, 144


@dataclass(frozen=True)
class DensityPages:
    """Pictures with the words that name each page, and which shards were drawn."""

    pages: list[tuple[str, str]]
    drawn: Array
    highlighted: Array


def choose_shards(num_shards: int, num_parameters: int, outstanding: Sequence[int]) -> tuple[Array, Array]:
    """Which shards get a line: all if they fit, else those that stand out and an even spread of the others.

    Returns
    -------
    drawn, highlighted
        Indices of shards; the second is a part of the first.
    """
    most = int(np.clip(LINES_PER_REPORT // max(num_parameters, 1), FEWEST_LINES, MOST_LINES))
    highlighted = np.array(sorted(outstanding[: max(most // 4, 3)]), dtype=int)
    if num_shards <= most:
        return np.arange(num_shards), highlighted
    others = np.setdiff1d(np.arange(num_shards), highlighted)
    spread = others[np.linspace(0, len(others) - 1, most - len(highlighted)).astype(int)]
    return np.sort(np.concatenate([highlighted, spread])), highlighted


def density_pages(view: DrawsView, outstanding: Sequence[int] = ()) -> DensityPages:
    """Draw all parameters, a page of small multiples at a time."""
    dimension = len(view.names)
    drawn, highlighted = choose_shards(view.num_shards, dimension, outstanding)
    weights = None if view.log_weights is None else normalised_weights(view.log_weights)
    low, high = panel_ranges(view, drawn, highlighted, weights)
    grid = np.linspace(low, high, COMBINED_POINTS, axis=1)
    combined = (grid, binned_densities(view.combined, grid, weights))
    shards = {int(b): shard_curves(view.shards[b], low, high) for b in drawn}
    quiet = [shards[b] for b in shards if b not in set(highlighted.tolist())]
    loud = [shards[b] for b in highlighted.tolist()]
    pages = []
    short = shorten_all(view.names, 36)
    for start in range(0, dimension, PANELS_PER_PAGE):
        columns = range(start, min(start + PANELS_PER_PAGE, dimension))
        picture = _page(short, columns, combined, quiet, loud)
        pages.append((page_words(view.names, columns.start, columns.stop), picture))
    return DensityPages(pages, drawn, highlighted)


def shard_curves(draws: Array, low: Array, high: Array) -> Curves:
    """A shard's densities on points of its own: a narrow shard on a wide panel would look like a polygon."""
    with np.errstate(invalid="ignore"):
        first = np.clip(np.nan_to_num(draws.min(axis=0), nan=0.0), low, high)
        last = np.clip(np.nan_to_num(draws.max(axis=0), nan=1.0), low, high)
    points = np.linspace(first, last, SHARD_POINTS, axis=1)
    density = binned_densities(draws, points)
    density[last <= first] = np.nan  # wholly outside the panel
    return points, density


def panel_ranges(
    view: DrawsView, drawn: Array, highlighted: Array, weights: Array | None
) -> tuple[Array, Array]:
    """Where each panel begins and ends.

    Nearly all of nearly every shard and of those that stand out, but the result must not vanish.
    """
    draws = view.combined
    if weights is not None:
        chosen = np.searchsorted(np.cumsum(weights), (np.arange(len(draws)) + 0.5) / len(draws))
        draws = draws[np.minimum(chosen, len(draws) - 1)]
    low, middle_low, middle_high, high = np.quantile(draws, [0.0005, 0.16, 0.84, 0.9995], axis=0)
    centre, half = (middle_low + middle_high) / 2, np.maximum((middle_high - middle_low) / 2, 0.0)
    if len(drawn):
        edges = np.array([np.quantile(view.shards[b], [0.005, 0.995], axis=0) for b in drawn])
        with np.errstate(invalid="ignore"):
            lower = np.where(np.isnan(edges[:, 0]), low, edges[:, 0])
            upper = np.where(np.isnan(edges[:, 1]), high, edges[:, 1])
        low = np.minimum(low, np.quantile(lower, 0.04, axis=0))
        high = np.maximum(high, np.quantile(upper, 0.96, axis=0))
        loud = np.isin(drawn, highlighted)
        if loud.any():
            low, high = np.minimum(low, lower[loud].min(axis=0)), np.maximum(high, upper[loud].max(axis=0))
        low, high = np.maximum(low, centre - 30 * half), np.minimum(high, centre + 30 * half)
    flat = ~(high > low)
    unit = np.where(flat, np.maximum(np.abs(centre), 1.0) * 0.5, 0.0)
    margin = 0.03 * (high - low)
    return low - margin - unit, high + margin + unit


def _page(
    names: Sequence[str], columns: range, combined: Curves, quiet: list[Curves], loud: list[Curves]
) -> str:
    rows = -(-len(columns) // COLUMNS)
    figure = new_figure(1.42 * rows + 0.02)
    for place, j in enumerate(columns):
        row, column = divmod(place, COLUMNS)
        axes = inches_axes(figure, 0.06 + 2.4 * column, 0.26 + 1.42 * row, 2.22, 0.88)
        draw_lines(axes, quiet, j, COLOURS["shard"], 0.5)
        draw_lines(axes, loud, j, COLOURS["alarm"], 0.8)
        draw_lines(axes, [combined], j, COLOURS["ink"], 1.8)
        low, high = combined[0][j, 0], combined[0][j, -1]
        axes.set_xlim(low, high)
        axes.set_ylim(0.0, highest(combined[1][j], [curves[1][j] for curves in quiet + loud]))
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        plain_ticks(axes.xaxis, 4, edge=0.07)
        title(axes, names[j])
        if np.isnan(combined[1][j]).all():  # constant: it has a value but no density
            axes.axvline(float((low + high) / 2), color=COLOURS["ink"], linewidth=1.8)
    about = f"Densities of {names[columns[0]]} to {names[columns[-1]]}"
    return svg(figure, f"density{columns[0]}", escape(about))


def draw_lines(
    axes: Axes, curves: list[Curves], column: int, colour: str, width: float, dash: Any = "solid"
) -> None:
    """All curves as one path with gaps: a fifth of the size of one element each."""
    gap = np.array([np.nan])
    pieces_x, pieces_y = [], []
    for points, density in curves:
        x, y = points[column], density[column]
        if np.isnan(y).all():
            continue
        # Long tails at zero would be most of the file; a line starts and ends where it leaves the baseline.
        alive = np.flatnonzero(y > 1e-3 * y.max())
        if not alive.size:
            continue
        part = slice(max(alive[0] - 1, 0), alive[-1] + 2)
        pieces_x += [x[part], gap]
        pieces_y += [y[part], gap]
    if pieces_x:
        x, y = np.concatenate(pieces_x), np.concatenate(pieces_y)
        axes.plot(x, y, color=colour, linewidth=width, linestyle=dash, zorder=2)


def highest(combined: Array, shards: list[Array]) -> float:
    """Where a panel ends: above the combined density, and above the usual shard unless that dwarfs it."""
    peaks = [float(curve.max()) for curve in shards if not np.isnan(curve).all()]
    top = 0.0 if np.isnan(combined).all() else float(combined.max())
    if peaks:
        usual = float(np.quantile(peaks, 0.9))
        top = max(top, min(usual, 2.5 * top) if top > 0 else usual)
    return 1.08 * top if top > 0 else 1.0
