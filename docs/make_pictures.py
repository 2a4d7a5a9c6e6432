"""Make the picture on the first page: `python docs/make_pictures.py` (about a minute).

The demo's rows (see `consilience.demo`): the densities of the rare feature's coefficient in each of 25 shards,
in the combined posterior, and in a run on all rows.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import gaussian_kde

import consilience as cs
from consilience.demo import FORMULA, SHARDS, rare_feature_rows

PICTURE = Path(__file__).parent / "_static" / "rare_feature.png"
RARE = "partner"
RANGE = (0.0, 6.0)
# Enough for smooth lines; the default of 10,000 leaves 400 for each shard.
DRAWS = 50_000
# Blue, orange and grey of Okabe and Ito, told apart by every common kind of colour vision.
SHARD, COMBINED, WHOLE = "#8c96a0", "#0072b2", "#d55e00"


def rare_draws() -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """The rare coefficient's draws: of every shard, of the combined posterior, of the run on all rows."""
    rows = rare_feature_rows()
    model = cs.glm(FORMULA, family="bernoulli")
    fit = cs.fit(model, rows, shards=SHARDS, draws=DRAWS, progress=False)
    whole = cs.fit(model, rows, shards=1, draws=DRAWS, refine=None, seed=1, progress=False)
    column = fit.posterior.names.index(RARE)
    shards = [fit.subposteriors.space.to_user(draws)[:, column] for draws in fit.subposteriors.draws]
    return shards, fit.posterior.array[:, column], whole.posterior.array[:, column]


def density(draws: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """A kernel estimate, its bandwidth from the middle half: a shard without events has a very long tail."""
    low, high = np.quantile(draws, [0.25, 0.75])
    width = 1.2 * min(draws.std(), (high - low) / 1.34) * len(draws) ** -0.2
    return gaussian_kde(draws, bw_method=width / draws.std(ddof=1))(grid)


def draw(shards: list[np.ndarray], combined: np.ndarray, whole: np.ndarray) -> None:
    """Thin lines for shards, a bold one for the posterior, a dashed one for the run on all rows."""
    plt.rcParams.update({"font.family": "DejaVu Sans", "font.size": 11})
    figure, axes = plt.subplots(figsize=(8.0, 3.4), dpi=150)
    grid = np.linspace(*RANGE, 600)
    for draws in shards:
        axes.plot(grid, density(draws, grid), color=SHARD, linewidth=0.9, alpha=0.75)
    beside = sum(not RANGE[0] < np.median(draws) < RANGE[1] for draws in shards)
    aside = f" ({beside} of them beside the frame)" if beside else ""
    axes.plot([], [], color=SHARD, linewidth=0.9, label=f"{len(shards)} shards of 4,000 rows{aside}")
    axes.plot(grid, density(combined, grid), color=COMBINED, linewidth=3.0, label="combined posterior")
    dashes = {"color": WHOLE, "linewidth": 1.6, "linestyle": (0, (4, 2.5))}
    axes.plot(grid, density(whole, grid), **dashes, label="run on all 100,000 rows")
    axes.set_xlim(*RANGE)
    axes.set_ylim(bottom=0.0)
    axes.set_yticks([])
    axes.set_xlabel("coefficient of a feature that one row in a thousand has")
    axes.set_ylabel("density")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_ylim(top=1.35 * axes.get_ylim()[1])
    axes.legend(frameon=False, loc="upper right")
    figure.tight_layout()
    figure.savefig(PICTURE, facecolor="white", pil_kwargs={"optimize": True})


if __name__ == "__main__":
    draw(*rare_draws())
