"""Shards' means and ellipses, with the combined posterior's, for pairs of parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from consilience.numerics import weighted_covariance, weighted_mean
from consilience.report.canvas import (
    COLOURS,
    WIDTH,
    axis_label,
    inches_axes,
    label,
    new_figure,
    plain_ticks,
    svg,
)
from consilience.report.disagreement import Disagreement
from consilience.report.text import escape, shorten_all
from consilience.report.views import DrawsView

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = np.ndarray
MOST_PAIRS = 6


def choose_pairs(view: DrawsView, found: Disagreement | None) -> list[tuple[int, int]]:
    """Pairs worth a look: half for disagreement, with the most correlated partner, half for correlation."""
    covariance = weighted_covariance(view.combined, view.log_weights)
    scale = np.sqrt(np.diag(covariance))
    usable = np.flatnonzero(scale > 0)
    if usable.size < 2:
        return []
    correlation = np.zeros_like(covariance)
    part = np.ix_(usable, usable)
    correlation[part] = covariance[part] / np.outer(scale[usable], scale[usable])
    np.fill_diagonal(correlation, 0.0)
    strength = np.abs(correlation)
    pairs: list[tuple[int, int]] = []
    if found is not None:
        furthest = np.nan_to_num(np.abs(found.distances)).max(axis=0)
        position = {name: j for j, name in enumerate(view.names)}
        columns = [position[found.names[k]] for k in np.argsort(-furthest) if found.names[k] in position]
        for j in columns:
            partner = int(np.argmax(strength[j]))
            if partner == j or strength[j, partner] == 0:
                partner = next(int(k) for k in usable if k != j)
            _add(pairs, j, partner)
            if len(pairs) == MOST_PAIRS // 2:
                break
    upper = np.triu_indices(len(scale), 1)
    for k in np.argsort(-strength[upper], kind="stable"):
        if len(pairs) == MOST_PAIRS:
            break
        first, second = int(upper[0][k]), int(upper[1][k])
        if first in usable and second in usable:
            _add(pairs, first, second)
    return pairs


def _add(pairs: list[tuple[int, int]], first: int, second: int) -> None:
    pair = (min(first, second), max(first, second))
    if pair not in pairs:
        pairs.append(pair)


def named_pairs(view: DrawsView, pairs: Sequence[tuple[str, str]]) -> list[tuple[int, int]]:
    """Columns of pairs asked for by name; names that do not exist are left out."""
    position = {name: j for j, name in enumerate(view.names)}
    return [(position[a], position[b]) for a, b in pairs if a in position and b in position and a != b]


def pairs_picture(
    view: DrawsView, pairs: Sequence[tuple[int, int]], drawn: Array, highlighted: Sequence[int]
) -> str:
    """Draw the pairs, three in a row."""
    rows = -(-len(pairs) // 3)
    short = shorten_all(view.names, 34)
    figure = new_figure(2.9 * rows)
    mean = weighted_mean(view.combined, view.log_weights)
    covariance = weighted_covariance(view.combined, view.log_weights)
    wide = WIDTH / 3
    loud = set(highlighted)
    for place, (i, j) in enumerate(pairs):
        row, column = divmod(place, 3)
        axes = inches_axes(figure, 0.62 + wide * column, 0.1 + 2.9 * row, wide - 0.8, 2.3)
        pair = np.ix_((i, j), (i, j))
        shapes = {int(b): _moments(view.shards[b][:, (i, j)]) for b in drawn}
        for group, colour, width in (
            ([b for b in shapes if b not in loud], COLOURS["shard"], 0.5),
            ([b for b in shapes if b in loud], COLOURS["alarm"], 0.9),
        ):
            _ellipses(axes, [shapes[b] for b in group], colour, width)
        main = (mean[[i, j]], covariance[pair])
        axes.fill(*ellipse(*main).T, color=COLOURS["accent"], alpha=0.25, linewidth=0)
        _ellipses(axes, [main], COLOURS["ink"], 1.7)
        _limits(axes, [*shapes.values()], main, [shapes[b] for b in shapes if b in loud])
        for b in list(loud & set(shapes))[:4]:
            at = shapes[b][0]
            label(axes, at[0], at[1], f" {b}", fontsize=7, color=COLOURS["alarm"], va="bottom", clip_on=True)
        plain_ticks(axes.xaxis, 4)
        plain_ticks(axes.yaxis, 5)
        axis_label(axes, "x", short[i])
        axis_label(axes, "y", short[j])
    return svg(figure, "pairs", escape("Shards' means and ellipses with the combined posterior's"))


def _moments(draws: Array) -> tuple[Array, Array]:
    return draws.mean(axis=0), weighted_covariance(draws)


def ellipse(mean: Array, covariance: Array, radius: float = 2.0, points: int = 60) -> Array:
    """Outline (points, 2) of the ellipse ``radius`` standard deviations away.

    Examples
    --------
    >>> outline = ellipse(np.zeros(2), np.diag([4.0, 1.0]))
    >>> np.abs(outline).max(axis=0).round(2)
    array([4., 2.])
    """
    values, vectors = np.linalg.eigh(covariance)
    angle = np.linspace(0.0, 2 * np.pi, points + 1)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    return mean + radius * (vectors @ (np.sqrt(np.maximum(values, 0.0))[:, None] * circle)).T


def _ellipses(axes: Axes, shapes: list[tuple[Array, Array]], colour: str, width: float) -> None:
    shapes = [shape for shape in shapes if np.isfinite(shape[0]).all() and np.isfinite(shape[1]).all()]
    if not shapes:
        return
    outlines = [np.vstack([ellipse(*shape), [[np.nan, np.nan]]]) for shape in shapes]
    path = np.concatenate(outlines)
    axes.plot(path[:, 0], path[:, 1], color=colour, linewidth=width)
    centres = np.array([shape[0] for shape in shapes])
    axes.plot(centres[:, 0], centres[:, 1], "o", color=colour, markersize=1.4 + width, markeredgewidth=0)


def _limits(
    axes: Axes, shapes: list[tuple[Array, Array]], main: tuple[Array, Array], loud: list[tuple[Array, Array]]
) -> None:
    """Nearly every shard inside, all that stand out, but the combined ellipse at least 1/20 of the axis."""
    for k in range(2):
        centre, half = main[0][k], 2 * np.sqrt(main[1][k, k])
        centres = np.array([shape[0][k] for shape in shapes if np.isfinite(shape[1]).all()])
        spread = np.array(
            [2 * np.sqrt(max(shape[1][k, k], 0)) for shape in shapes if np.isfinite(shape[1]).all()]
        )
        low, high = centre - half, centre + half
        for shape in loud:
            reach = 2 * np.sqrt(max(shape[1][k, k], 0))
            low, high = min(low, shape[0][k] - reach), max(high, shape[0][k] + reach)
        if centres.size:
            low = max(min(low, float(np.quantile(centres - spread, 0.03))), centre - 20 * half)
            high = min(max(high, float(np.quantile(centres + spread, 0.97))), centre + 20 * half)
        margin = 0.05 * (high - low or 1.0)
        (axes.set_ylim if k else axes.set_xlim)(low - margin, high + margin)
