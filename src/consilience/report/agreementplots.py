"""Pictures of how far shards agree: who overlaps with whom, who stands out where, who matters most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.report.canvas import (
    COLOURS,
    WIDTH,
    axis_label,
    inches_axes,
    label,
    new_figure,
    plain_ticks,
    svg,
    title,
)
from consilience.report.text import escape, shard_name, shorten, shorten_all

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from consilience.diagnose import Agreement

Array = np.ndarray
MOST_ROWS = 30
MOST_COLUMNS = 24
ROW = 0.185
# Steps of a map: from here on a cell is drawn this opaque.
OVERLAP_STEPS = ((0.0, 0.08), (0.2, 0.25), (0.4, 0.45), (0.6, 0.68), (0.8, 0.95))
DISTANCE_STEPS = ((1.0, 0.12), (2.0, 0.35), (3.0, 0.65), (4.0, 0.95))


def agreement_maps(found: Agreement, outstanding: Sequence[int]) -> str:
    """Overlap of shards two by two beside the distance of each shard from the others in each parameter."""
    shards, parameters = shown_shards(found), shown_parameters(found)
    names = _names(found, shards)
    side = max(ROW * len(shards), 0.9)
    margin = min(0.25 + 0.066 * max(map(len, names)), 2.4)
    figure = new_figure(side + 1.62)
    room = WIDTH - margin - 0.5
    width = min(max(side * 1.6, 3.05), 0.48 * room)
    left = inches_axes(figure, margin, 0.3, width, side)
    inside = [int(np.flatnonzero(found.pairs.shards == b)[0]) for b in shards]
    overlap = found.pairs.overlap[np.ix_(inside, inside)].copy()
    np.fill_diagonal(overlap, np.nan)
    _cells(left, overlap, OVERLAP_STEPS, COLOURS["accent"])
    title(left, "overlap of sub-posteriors")
    _frame(left, len(shards), len(shards))
    across = left.get_yaxis_transform()
    for row, (b, name) in enumerate(zip(shards, names, strict=True)):
        loud = COLOURS["alarm"] if b in outstanding else COLOURS["ink"]
        label(left, -0.02, row, name, transform=across, ha="right", va="center_baseline", color=loud)
    start = margin + width + 0.35
    right = inches_axes(figure, start, 0.3, WIDTH - start - 0.15, side)
    distances = np.abs(found.against_others.distances[np.ix_(shards, parameters)])
    _cells(right, distances, DISTANCE_STEPS, COLOURS["alarm"])
    title(right, "distance from the other shards")
    _frame(right, len(shards), len(parameters))
    below = right.get_xaxis_transform()
    for column, name in enumerate(shorten_all([found.names[j] for j in parameters], 14)):
        options = {"ha": "center", "va": "top", "rotation": 90, "fontsize": 6.5, "color": COLOURS["muted"]}
        label(right, column, -0.06 / side, name, transform=below, **options)
    total = side + 1.62
    _legend(figure, margin, total - 0.3, "shared, from", [f"{low:g}" for low, _ in OVERLAP_STEPS], "accent")
    _legend(figure, start, total - 0.3, "sd, from", [f"{low:g}" for low, _ in DISTANCE_STEPS], "alarm")
    return svg(figure, "agreement", escape("Overlap of shards, and their distances from the others"))


def influence_picture(found: Agreement, outstanding: Sequence[int]) -> str:
    """What leaving each shard out changes, and how far each is from Gaussian."""
    others, shape = found.against_others, found.shape.distance
    order = np.argsort(-others.influence, kind="stable")[:MOST_ROWS]
    names = _names(found, order)
    height = ROW * len(order) + 0.12
    figure = new_figure(height + 0.72)
    margin = min(0.25 + 0.066 * max(map(len, names)), 2.4)
    width = (WIDTH - margin - 0.7) / 2
    colours = [COLOURS["alarm"] if int(b) in outstanding else COLOURS["accent"] for b in order]
    left = inches_axes(figure, margin, 0.26, width, height)
    rows = np.arange(len(order))
    left.barh(rows, others.influence[order], height=0.62, color=colours, linewidth=0)
    chance = others.influence_by_chance[order]
    left.vlines(chance, rows - 0.42, rows + 0.42, color=COLOURS["ink"], linewidth=1.1)
    across = left.get_yaxis_transform()
    for row, name in enumerate(names):
        label(left, -0.015, row, name, transform=across, ha="right", va="center_baseline")
    title(left, "influence")
    axis_label(left, "x", "posterior sd that the mean moves by without the shard")
    right = inches_axes(figure, margin + width + 0.45, 0.26, width, height)
    right.barh(rows, shape[order].max(axis=1), height=0.62, color=COLOURS["shard"], linewidth=0)
    right.barh(rows, shape[order].mean(axis=1), height=0.62, color=COLOURS["accent"], linewidth=0)
    title(right, "distance from Gaussian")
    axis_label(right, "x", "IAD: mean over parameters, and the largest (light)")
    largest = (max(others.influence[order].max(), chance.max()), max(float(shape[order].max()), 0.02))
    for axes, most in zip((left, right), largest, strict=True):
        axes.set_ylim(len(order) - 0.4, -0.6)
        axes.set_xlim(0.0, 1.05 * float(most))
        plain_ticks(axes.xaxis, 6)
        axes.set_yticks([])
    return svg(figure, "influence", escape("Influence of each shard, and its distance from Gaussian"))


def shown_shards(found: Agreement) -> list[int]:
    """Shards of the maps: all in their order, or, of many, those that stand out most and some others."""
    from consilience.diagnose.overlap import choose

    compared = found.pairs.shards
    return [int(b) for b in compared[choose(found.against_others.joint_p_values[compared], MOST_ROWS)]]


def shown_parameters(found: Agreement) -> list[int]:
    """Parameters of the map: all, or those in which some shard is furthest from the others."""
    largest = np.abs(found.against_others.distances).max(axis=0)
    return sorted(int(j) for j in np.argsort(-largest, kind="stable")[:MOST_COLUMNS])


def _names(found: Agreement, shards: Sequence[int] | Array) -> list[str]:
    return [shorten(shard_name(int(b), found.labels[int(b)]), 30) for b in shards]


def _cells(axes: Axes, values: Array, steps: Sequence[tuple[float, float]], colour: str) -> None:
    """A map in a few steps of one colour, one path each, so that it follows the page's light and dark."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    highest = [low for low, _ in steps[1:]] + [np.inf]
    for (low, opaque), high in zip(steps, highest, strict=True):
        places = np.argwhere((values >= low) & (values < high))
        if not len(places):
            continue
        corners = np.array([(-0.46, -0.46), (0.46, -0.46), (0.46, 0.46), (-0.46, 0.46), (-0.46, -0.46)])
        vertices = (places[:, None, ::-1] + corners).reshape(-1, 2)
        codes = [Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY] * len(places)
        patch = PathPatch(Path(vertices, codes), facecolor=colour, linewidth=0, alpha=opaque)
        axes.add_patch(patch)


def _frame(axes: Axes, rows: int, columns: int) -> None:
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(True)
        spine.set_color(COLOURS["rule"])
        spine.set_linewidth(0.6)


def _legend(figure: Any, left: float, top: float, words: str, steps: Sequence[str], colour: str) -> None:
    """Swatches of a map's steps, each with the value from which it is used."""
    axes = inches_axes(figure, left, top, 3.6, 0.2)
    axes.set_axis_off()
    axes.set_xlim(0.0, 3.6)
    axes.set_ylim(0.0, 0.2)
    label(axes, 0.0, 0.1, words, va="center_baseline", color=COLOURS["muted"], fontsize=7)
    opaque = [alpha for _, alpha in (OVERLAP_STEPS if colour == "accent" else DISTANCE_STEPS)]
    for place, (text, alpha) in enumerate(zip(steps, opaque, strict=True)):
        x = 0.85 + 0.5 * place
        axes.fill(
            [x, x + 0.16, x + 0.16, x],
            [0.03, 0.03, 0.17, 0.17],
            color=COLOURS[colour],
            alpha=alpha,
            linewidth=0,
        )
        label(axes, x + 0.2, 0.1, text, va="center_baseline", color=COLOURS["muted"], fontsize=7)
