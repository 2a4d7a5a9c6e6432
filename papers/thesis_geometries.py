"""Thesis section 4.4.1: three posteriors that are not Gaussian, B = 10 shards, SwISS against consensus.

The sub-posteriors are, for every shard, those displayed; the posterior is their product, its tenth power:

- rare Bernoulli: t (1 - t)^999, Beta(2, 1000); posterior Beta(11, 9991).
- warped Gaussian: phi(t1) phi(t2 + t1^2); posterior t1 ~ N(0, 1/10), t2 ~ N(-t1^2, 1/10).
- two modes: phi(t - m1) + phi(t - m2); posterior a mixture of 11 Gaussians N(m(k), I / 10), m(k) the average
  of k times m1 and 10 - k times m2, exactly.

What the thesis has wrong or leaves out: phi(mu) is introduced as the *density of N(mu, 1)* and used as the
standard normal density; the modes are "t = (mu1, mu2)" and have no values (here (-2, -2) and (2, 2)); all shards
are identical, so that every inflated sub-posterior *is* the posterior and SwISS has nothing to correct. The
tenth power of the displayed banana is hardly bent; if instead the display is the posterior, and sub-posteriors
are its tenth roots, shards are bent ten times as much. Both are run, and a rare Bernoulli whose ten
successes fall into shards by chance, so that shards do differ.

`--picture docs/_static/geometries.png` draws figure 4.4.1 too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb
from pathlib import Path
from typing import Any

import numpy as np

import consilience as cs
from papers.experiment import Experiment, Settings, add_options, report
from papers.measuring import Reference, measured
from papers.rules import combine_all
from papers.tables import Collected, Table

SHARDS, DRAWS, REFERENCE_DRAWS = 10, 10_000, 50_000
PICTURE = Path("docs/_static/geometries.png")
MODES = np.array([[-2.0, -2.0], [2.0, 2.0]])
COLUMNS = ("mahalanobis", "skew", "iad", "spread")
Generator = np.random.Generator
Sampler = Callable[[int, Generator], np.ndarray]


@dataclass(frozen=True)
class Geometry:
    """A posterior with exact draws of it and of every shard's two targets.

    Attributes
    ----------
    title : what it is called
    posterior : exact draws of the posterior
    shards : from a number of draws, exact draws (B, number, d) by kind
    forward, back : to and from unconstrained coordinates
    """

    title: str
    posterior: Sampler
    shards: Callable[[int, Generator], dict[str, np.ndarray]]
    forward: Callable[[np.ndarray], np.ndarray] = np.asarray
    back: Callable[[np.ndarray], np.ndarray] = np.asarray


def alike(subposterior: Sampler, inflated: Sampler) -> Callable[[int, Generator], dict[str, np.ndarray]]:
    """Shards that all have the same targets."""

    def shards(number: int, rng: Generator) -> dict[str, np.ndarray]:
        samplers = {"subposterior": subposterior, "inflated": inflated}
        return {k: np.array([draw(number, rng) for _ in range(SHARDS)]) for k, draw in samplers.items()}

    return shards


def beta(a: float, b: float) -> Sampler:
    """Draws of Beta(a, b)."""
    return lambda number, rng: rng.beta(a, b, size=(number, 1))


def banana(power: float) -> Sampler:
    """Draws of (phi(t1) phi(t2 + t1^2))^power."""

    def draw(number: int, rng: Generator) -> np.ndarray:
        normal = rng.normal(size=(number, 2)) / np.sqrt(power)
        return np.column_stack([normal[:, 0], normal[:, 1] - normal[:, 0] ** 2])

    return draw


def two_modes(power: int) -> Sampler:
    """Draws of (phi(t - m1) + phi(t - m2))^power, whose binomial expansion is a mixture of Gaussians."""
    k = np.arange(power + 1)
    gap = float(np.sum((MODES[0] - MODES[1]) ** 2))
    log_weights = np.log([float(comb(power, i)) for i in k]) - 0.5 * gap * k * (power - k) / power
    weights = np.exp(log_weights - log_weights.max())
    centres = (k[:, None] * MODES[0] + (power - k)[:, None] * MODES[1]) / power

    def draw(number: int, rng: Generator) -> np.ndarray:
        chosen = rng.choice(len(k), size=number, p=weights / weights.sum())
        return centres[chosen] + rng.normal(size=(number, 2)) / np.sqrt(power)

    return draw


def scattered_successes(number: int, rng: Generator) -> dict[str, np.ndarray]:
    """A rare Bernoulli whose ten successes in 10,000 rows fall into the shards by chance."""
    successes = rng.multinomial(SHARDS, np.full(SHARDS, 1 / SHARDS)).astype(float)
    failures = 1000 - successes
    shapes = {
        "subposterior": (successes + 1, failures + 1),
        "inflated": (SHARDS * successes + 1, SHARDS * failures + 1),
    }
    return {
        kind: rng.beta(a[:, None, None], b[:, None, None], size=(SHARDS, number, 1))
        for kind, (a, b) in shapes.items()
    }


def geometries() -> tuple[Geometry, ...]:
    """The thesis' three, and two that it leaves out."""
    rare = beta(SHARDS + 1, 999 * SHARDS + 1)
    logit = {"forward": _logit, "back": _expit}
    return (
        Geometry("rare Bernoulli", rare, alike(beta(2, 1000), rare)),
        Geometry("warped Gaussian", banana(SHARDS), alike(banana(1), banana(SHARDS))),
        Geometry("two modes", two_modes(SHARDS), alike(two_modes(1), two_modes(SHARDS))),
        Geometry("rare Bernoulli, shards that differ", rare, scattered_successes),
        Geometry("the same, combined as logit", rare, scattered_successes, **logit),
        Geometry("warped Gaussian, as the posterior", banana(1), alike(banana(1 / SHARDS), banana(1))),
    )


def _logit(p: np.ndarray) -> np.ndarray:
    return np.log(p) - np.log1p(-p)


def _expit(x: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))


def combined(geometry: Geometry, draws: int, rng: Generator, seed: int) -> dict[str, np.ndarray]:
    """Every rule's result, of the size that it returns."""
    kinds = {
        kind: cs.Subposteriors.of(geometry.forward(array), kind=kind)
        for kind, array in geometry.shards(draws, rng).items()
    }
    return {name: geometry.back(posterior.array) for name, posterior in combine_all(kinds, seed)}


def tables(settings: Settings) -> Sequence[Table]:
    """One table per geometry."""
    draws, reference_draws = (300, 1000) if settings.small else (DRAWS, REFERENCE_DRAWS)
    out = []
    for index, geometry in enumerate(geometries()):
        found = Collected()
        for repetition in range(settings.runs):
            rng = np.random.default_rng([settings.seed, index, repetition])
            reference = Reference(geometry.posterior(reference_draws, rng))
            found.add(f"floor, {draws:,} exact draws", measured(geometry.posterior(draws, rng), reference))
            for name, array in combined(geometry, draws, rng, repetition).items():
                found.add(name, measured(array[rng.permutation(len(array))[:draws]], reference))
        out.append(found.table(geometry.title[0].upper() + geometry.title[1:], COLUMNS))
    return out


def picture(path: Path, seed: int = 0, draws: int = DRAWS) -> None:
    """Figure 4.4.1: SwISS above, consensus below, the exact posterior in black."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6.2), layout="constrained")
    axes = figure.subplots(2, 3, sharex="col")
    for column, geometry in enumerate(geometries()[:3]):
        rng = np.random.default_rng([seed, column])
        results = combined(geometry, draws, rng, seed)
        exact = geometry.posterior(50 * draws, rng)
        for row, (name, colour) in enumerate((("swiss", "tab:blue"), ("consensus", "tab:red"))):
            panel = axes[row, column]
            panel.set_title(f"{geometry.title}: {name}", fontsize=10)
            if exact.shape[1] == 1:
                _curves(panel, exact[:, 0], results[name][:, 0], colour)
            else:
                chosen = rng.permutation(len(results[name]))[:1500]
                _cloud(panel, exact, results[name][chosen], colour)
        axes[1, column].set_xlabel(r"$\vartheta_1$")
    figure.suptitle(
        "Exact posterior in black (contours hold 50, 90 and 99 %); combined draws in colour", fontsize=11
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def _curves(panel: Any, exact: np.ndarray, found: np.ndarray, colour: str) -> None:
    bins = np.linspace(0, 0.004, 100)
    panel.hist(found, bins, density=True, color=colour, alpha=0.5)
    heights, _ = np.histogram(exact, bins, density=True)
    panel.plot(0.5 * (bins[1:] + bins[:-1]), heights, color="black")
    panel.set_ylabel("density")


def _cloud(panel: Any, exact: np.ndarray, found: np.ndarray, colour: str) -> None:
    from scipy.ndimage import gaussian_filter

    panel.scatter(*found.T, s=3, color=colour, alpha=0.4)
    heights, x, y = np.histogram2d(exact[:, 0], exact[:, 1], bins=150)
    smooth = gaussian_filter(heights, 2.0)
    ordered = np.sort(smooth.ravel())[::-1]
    shares = np.cumsum(ordered) / ordered.sum()
    levels = sorted(float(ordered[np.searchsorted(shares, share)]) for share in (0.5, 0.9, 0.99))
    panel.contour(
        0.5 * (x[1:] + x[:-1]), 0.5 * (y[1:] + y[:-1]), smooth.T, levels, colors="black", linewidths=0.9
    )
    panel.set_ylabel(r"$\vartheta_2$")


EXPERIMENT = Experiment("thesis_geometries", "Vyner's thesis, section 4.4.1, figure 4.4.1", 5, tables)


def main() -> int:
    """Run the experiment, and draw the picture where it is asked for."""
    parser = argparse.ArgumentParser(prog="python -m papers.thesis_geometries")
    add_options(parser, EXPERIMENT.runs)
    parser.add_argument("--picture", type=Path, nargs="?", const=PICTURE, help=f"draw it (default {PICTURE})")
    chosen = parser.parse_args()
    if chosen.picture is not None:
        picture(chosen.picture, chosen.seed)
    return report(EXPERIMENT, Settings(chosen.runs, chosen.seed, chosen.small), chosen.write)


if __name__ == "__main__":
    sys.exit(main())
