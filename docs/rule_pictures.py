"""Make the pictures of the rules' pages: `python docs/rule_pictures.py [name ...]` (all rules if none is named).

Three shards in one dimension, twice. Skewed: the logarithm of a Poisson rate, of which the shards saw 1, 2 and 6
events. Bimodal: two valleys, of which the shards prefer different ones. Thin lines are the shards' targets of the
kind that the rule takes; bold is the density of what the rule makes of 4,000 draws from each; dashed is the exact
posterior on a grid.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from consilience.combine import COMBINERS, Combiner, get_combiner
from consilience.draws import Subposteriors

FOLDER = Path(__file__).parent / "_static" / "rules"
DRAWS = 4_000
WEIGHTS = np.array([0.25, 0.25, 0.5])
# Blue, orange and grey of Okabe and Ito, told apart by every common kind of colour vision.
SHARD, COMBINED, EXACT = "#8c96a0", "#0072b2", "#d55e00"

# Options for rules that do not show what they are for with the default ones.
OPTIONS: dict[str, dict[str, Any]] = {}


@dataclass(frozen=True)
class Case:
    """Log-likelihoods of three shards on a grid, under a flat prior."""

    title: str
    grid: np.ndarray
    shown: tuple[float, float]
    log_likelihoods: tuple[np.ndarray, ...]
    # What a rule is given that has to be told the shards' densities.
    options: Mapping[str, Any] = field(default_factory=dict)

    def targets(self, kind: str) -> list[np.ndarray]:
        """The shards' log densities, normalised."""
        powers = 1.0 / WEIGHTS if kind == "inflated" else np.ones(len(WEIGHTS))
        return [self.normalised(a * x) for a, x in zip(powers, self.log_likelihoods, strict=True)]

    def exact(self) -> np.ndarray:
        """The posterior's log density."""
        return self.normalised(sum(self.log_likelihoods))

    def normalised(self, log_density: np.ndarray) -> np.ndarray:
        step = self.grid[1] - self.grid[0]
        largest = log_density.max()
        return log_density - largest - np.log(np.exp(log_density - largest).sum() * step)

    def draws(self, kind: str, rng: np.random.Generator) -> Subposteriors:
        """Draws of every shard by inversion, with their log densities."""
        arrays, densities = [], []
        for target in self.targets(kind):
            cumulative = np.cumsum(np.exp(target))
            draws = np.interp(rng.random(DRAWS), cumulative / cumulative[-1], self.grid)
            arrays.append(draws[:, None])
            densities.append(np.interp(draws, self.grid, target))
        return Subposteriors.of(arrays, kind=kind, weights=WEIGHTS, log_densities=densities)


def skewed() -> Case:
    """Poisson rates on the log scale: events x - exposure exp(x)."""
    grid = np.linspace(-12.0, 5.0, 20_001)
    pieces = [k * grid - e * np.exp(grid) for k, e in ((1.0, 0.5), (2.0, 0.5), (6.0, 2.5))]
    return Case("skewed", grid, (-2.6, 3.1), tuple(pieces))


def bimodal() -> Case:
    """Two valleys, and slopes that add up to a small one."""
    grid = np.linspace(-4.0, 4.0, 20_001)
    wells = -((grid**2 - 1.5) ** 2)
    pieces = [a * wells + b * grid for a, b in ((0.15, 0.12), (0.15, -0.15), (0.4, 0.08))]
    return Case("bimodal", grid, (-2.6, 2.6), tuple(pieces))


def declared(title: str, kind: type, outcomes: Sequence[Sequence[float]], shown: tuple[float, float]) -> Case:
    """The intercept of a regression whose shards' densities are declared: prior^w x likelihood each."""
    grid = np.linspace(-15.0, 15.0, 30_001)
    targets = [
        kind(np.ones((len(y), 1)), np.array(y, dtype=float), prior_sd=3.0, weight=w)
        for y, w in zip(outcomes, WEIGHTS, strict=True)
    ]
    logs = tuple(target.density().log_density(grid[:, None]) for target in targets)
    return Case(title, grid, shown, logs, {"targets": targets})


def cases(rule: type[Combiner]) -> tuple[Case, Case]:
    """Skewed and bimodal; two regressions for a rule that has to be told the densities."""
    if "targets" not in rule.needs:
        return skewed(), bimodal()
    from consilience.combine.fusion_targets import LogisticTarget, PoissonTarget

    return (
        declared("logistic regression", LogisticTarget, [[1, 0, 0], [1, 1, 1], [1, 0, 0, 0, 0]], (-4.5, 4.5)),
        declared("Poisson regression", PoissonTarget, [[1, 0], [2, 1], [1, 3, 2, 4]], (-2.6, 2.6)),
    )


def kind_of(rule: type[Combiner]) -> str:
    """The kind of draws to give to a rule."""
    return "subposterior" if rule.kind == "any" else rule.kind


def combined_density(
    rule: type[Combiner], case: Case, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Where and how high the density of the combined draws is, by a kernel estimate."""
    from scipy.stats import gaussian_kde

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = get_combiner(rule.name, **OPTIONS.get(rule.name, {}), **case.options)
        result = made.combine(case.draws(kind_of(rule), rng))
    x = result.array[:, 0]
    weights = None if result.log_weights is None else np.exp(result.log_weights - result.log_weights.max())
    # Less than Silverman's width: two modes are to be seen as they are.
    estimate = gaussian_kde(x, bw_method=lambda k: 0.7 * k.silverman_factor(), weights=weights)
    where = np.linspace(*case.shown, 500)
    return where, estimate(where)


def draw(rule: type[Combiner]) -> Path:
    """Make the picture of one rule."""
    plt.rcParams.update({"font.family": "DejaVu Sans", "font.size": 10})
    figure, panels = plt.subplots(1, 2, figsize=(7.6, 2.9), dpi=100)
    kind = kind_of(rule)
    shards = "inflated shards" if kind == "inflated" else "shards' sub-posteriors"
    for axes, case in zip(panels, cases(rule), strict=True):
        step = max(1, len(case.grid) // 2_000)
        for number, target in enumerate(case.targets(kind)):
            label = shards if number == 0 else None
            axes.plot(case.grid[::step], np.exp(target[::step]), color=SHARD, linewidth=1.0, label=label)
        where, density = combined_density(rule, case, np.random.default_rng(0))
        axes.plot(where, density, color=COMBINED, linewidth=2.8, label=f"combined by {rule.name}")
        axes.plot(
            case.grid[::step],
            np.exp(case.exact()[::step]),
            color=EXACT,
            linewidth=1.5,
            linestyle=(0, (4, 2.5)),
            label="exact posterior",
        )
        axes.set_xlim(*case.shown)
        axes.set_ylim(0.0, 1.25 * max(density.max(), np.exp(case.exact()).max()))
        axes.set_yticks([])
        axes.set_title(case.title, fontsize=10, loc="left")
        axes.spines[["top", "right", "left"]].set_visible(False)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="lower center", ncols=3)
    figure.tight_layout(rect=(0.0, 0.09, 1.0, 1.0))
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{rule.name}.png"
    figure.savefig(path, facecolor="white")
    plt.close(figure)
    # Few colours: a third of the size, and no difference to be seen.
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(48)
    small.save(path, optimize=True)
    return path


def main(names: list[str]) -> int:
    """Make the pictures of these rules, or of all."""
    known = {rule.name: rule for rule in COMBINERS}
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"No rule is named {', '.join(unknown)}. There are {', '.join(known)}.", file=sys.stderr)
        return 2
    for name in names or known:
        print(draw(known[name]).relative_to(FOLDER.parent.parent))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
