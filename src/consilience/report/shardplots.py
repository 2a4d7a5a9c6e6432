"""Pictures of shards as such: how far each lies from the rest, and how well each converged."""

from __future__ import annotations

from collections.abc import Sequence

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
from consilience.report.disagreement import Disagreement
from consilience.report.text import escape, shard_name, shorten, shorten_all

Array = np.ndarray
MOST_RANKED = 40


def ranked_picture(found: Disagreement) -> str:
    """Each shard's largest standardised distance, the furthest first."""
    order = found.ranked()[:MOST_RANKED]
    largest, worst, beyond = found.largest(), found.worst_parameter(), set(found.outstanding())
    height = 0.185 * len(order) + 0.12
    figure = new_figure(height + 0.68)
    parameters = shorten_all(found.names, 30)
    names = [shorten(shard_name(int(b), found.labels[b]), 36) for b in order]
    margin = min(0.25 + 0.066 * max(map(len, names)), 2.9)
    axes = inches_axes(figure, margin, 0.24, WIDTH - margin - 2.1, height)
    axes.axvspan(*found.usual, color=COLOURS["soft"], linewidth=0, zorder=0)
    axes.axvline(found.limit, color=COLOURS["alarm"], linewidth=0.9, dashes=(4, 2), zorder=1)
    rows = np.arange(len(order))
    axes.hlines(rows, 0, largest[order], color=COLOURS["rule"], linewidth=0.8, zorder=1)
    for loud, colour in ((False, COLOURS["accent"]), (True, COLOURS["alarm"])):
        chosen = np.array([(int(b) in beyond) == loud for b in order])
        axes.plot(largest[order][chosen], rows[chosen], "o", color=colour, markersize=4.2, zorder=3)
    across = axes.get_yaxis_transform()
    for row, b in enumerate(order):
        colour = COLOURS["alarm"] if int(b) in beyond else COLOURS["ink"]
        label(axes, -0.01, row, names[row], transform=across, ha="right", va="center_baseline", color=colour)
        where = parameters[worst[b]]
        label(
            axes,
            1.02,
            row,
            where,
            transform=across,
            va="center_baseline",
            color=COLOURS["muted"],
            fontsize=7.5,
        )
    above = axes.get_xaxis_transform()
    label(
        axes,
        found.limit,
        1.0,
        "limit ",
        transform=above,
        ha="right",
        va="bottom",
        color=COLOURS["alarm"],
        fontsize=7,
    )
    label(
        axes,
        1.02,
        1.0,
        "in parameter",
        transform=axes.transAxes,
        va="bottom",
        color=COLOURS["muted"],
        fontsize=7,
    )
    axes.set_ylim(len(order) - 0.4, -0.6)
    axes.set_xlim(0.0, 1.08 * max(found.limit, float(largest.max())))
    plain_ticks(axes.xaxis, 8)
    axes.set_yticks([])
    axis_label(
        axes,
        "x",
        "distance of the shard's mean from the combined mean, in standard deviations expected by chance",
    )
    return svg(figure, "ranked", escape("Shards ranked by their distance from the combined posterior"))


def convergence_picture(columns: dict[str, Array], limits: dict[str, float], bad: Sequence[int]) -> str:
    """One strip per diagnostic over the shards' numbers, with its limit.

    Parameters
    ----------
    columns
        Title of a strip and its values (B,).
    limits
        Title of a strip and its limit.
    bad
        Shards that have not converged.
    """
    figure = new_figure(1.85)
    wide = WIDTH / max(len(columns), 2)
    troubled = set(bad)
    for place, (name, values) in enumerate(columns.items()):
        axes = inches_axes(figure, 0.55 + wide * place, 0.28, wide - 0.75, 1.12)
        index = np.arange(len(values))
        finite = np.isfinite(values)
        loud = finite & np.array([int(b) in troubled for b in index])
        many = len(values) > 2000  # dots as one embedded picture: thousands of elements would swell the file
        for chosen, colour in ((finite & ~loud, COLOURS["accent"]), (loud, COLOURS["alarm"])):
            axes.plot(
                index[chosen],
                values[chosen],
                "o",
                color=colour,
                markersize=3.2,
                markeredgewidth=0,
                rasterized=many,
                clip_on=False,
                zorder=4,
            )
        bottom, top = _strip_range(values[finite], limits.get(name))
        if name in limits:
            axes.axhline(limits[name], color=COLOURS["alarm"], linewidth=0.9, dashes=(4, 2))
        axes.set_ylim(bottom, top)
        axes.set_xlim(-0.6, len(values) - 0.4)
        plain_ticks(axes.yaxis, 4, integer=bool(np.all(values[finite] == np.round(values[finite]))))
        plain_ticks(axes.xaxis, 5, integer=True)
        title(axes, name)
        axis_label(axes, "x", "shard")
    return svg(figure, "convergence", escape("Convergence of each shard"))


def _strip_range(values: Array, limit: float | None) -> tuple[float, float]:
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
    if limit is not None:
        low, high = min(low, limit), max(high, limit)
    margin = 0.08 * (high - low) or 0.5
    # A count is seen from zero; R-hat, which never comes near it, is not.
    return (0.0 if 0 <= low < 0.6 * high else low - margin), high + margin
